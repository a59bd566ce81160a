//! Who decides in a stage: setup, gate, assert and exit, written as rules or as scripts (`b-stages` §3, §20).

use super::{Rule, Script, Source};

/// The rule or program that fills the context before the prompt is made.
#[derive(Debug, Clone, PartialEq)]
pub enum Setup {
    /// These fields, each from a value of the run.
    Set(Vec<(String, Source)>),
    /// A script of the hook `setup`, which prints the fields under `ctx` (§20.4).
    Script(Script),
}

crate::words! {
    /// What a gate says (B-G1, B-G2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GateOutcome {
        /// The stage runs.
        Proceed = "proceed",
        /// Not now.
        Defer = "defer",
        /// It must not.
        Block = "block",
    }
}

/// Who decides whether a stage runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Gate {
    /// The first rule that holds; none: it runs (B-G4).
    Rules(Vec<Rule<GateOutcome>>),
    /// A script of the hook `gate`, which prints the outcome (§20.4).
    Script(Script),
}

crate::words! {
    /// What becomes of a stage (B-R2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verdict {
        /// The work is accepted, and the stage hands it on.
        Ok = "ok",
        /// Once more.
        Retry = "retry",
        /// Its work is not good.
        Fail = "fail",
        /// It was passed over.
        Skip = "skip",
    }
}

/// The rule or program that judges the work of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Assert {
    /// The first rule that holds; none: `retry` after the cap, else `ok` (B-R3).
    Rules(Vec<Rule<Verdict>>),
    /// A validator as llm steps have it.
    Validate(Script),
    /// A script of the hook `assert`, which prints the verdict (§20.4).
    Script(Script),
}

/// Who says what a stage hands on.
#[derive(Debug, Clone, PartialEq)]
pub enum Exit {
    /// Values of the run that `exit` lists.
    Values {
        /// The result's `output`; `None`: the result has none.
        output: Option<Output>,
        /// Members that are laid over the slot's data.
        slot: Vec<(String, Source)>,
    },
    /// A script of the hook `exit`, which prints `output` and the slot's new data (§20.4).
    Script(Script),
}

/// A declarative `output`.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// An object with these members.
    Members(Vec<(String, Source)>),
    /// A single value, of any type.
    Whole(Source),
}
