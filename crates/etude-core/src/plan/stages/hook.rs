//! The decisions in a stage: setup, gate, assert and exit, written as rules or as scripts (`b-stages` §3, §20).

use super::{Rule, Script, Source};

/// The rule or program that fills the context before the prompt is rendered.
#[derive(Debug, Clone, PartialEq)]
pub enum Setup {
    /// These fields, each from a value of the run.
    Set(Vec<(String, Source)>),
    /// A script of the hook `setup`, which prints the fields under `ctx` (§20.4).
    Script(Script),
}

crate::words! {
    /// Outcome of a gate (B-G1, B-G2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GateOutcome {
        /// The stage runs.
        Proceed = "proceed",
        /// The stage cannot run now.
        Defer = "defer",
        /// The stage must not run.
        Block = "block",
    }
}

/// The rule or program that decides whether a stage runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Gate {
    /// The first rule that holds decides; if there is none, the stage runs (B-G4).
    Rules(Vec<Rule<GateOutcome>>),
    /// A script of the hook `gate`, which prints the outcome (§20.4).
    Script(Script),
}

crate::words! {
    /// Verdict on a stage (B-R2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verdict {
        /// The work is accepted, and its output goes to the next stages.
        Ok = "ok",
        /// The stage must try again.
        Retry = "retry",
        /// The work is rejected.
        Fail = "fail",
        /// The stage was skipped.
        Skip = "skip",
    }
}

/// The rule or program that judges the work of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Assert {
    /// The first rule that holds decides; if there is none, `retry` after the cap, else `ok` (B-R3).
    Rules(Vec<Rule<Verdict>>),
    /// A content validator as in llm steps.
    Validate(Script),
    /// A script of the hook `assert`, which prints the verdict (§20.4).
    Script(Script),
}

/// The rule or program that provides a stage's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Exit {
    /// Values of the run, as listed in `exit`.
    Values {
        /// The result's `output`; `None` if the result has none.
        output: Option<Output>,
        /// Members to lay over the slot's data.
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
