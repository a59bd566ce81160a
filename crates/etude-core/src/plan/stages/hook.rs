//! Who decides in a stage: setup, gate, assert and exit, written as rules or as scripts (`b-stages` §3, §20).

use super::{Rule, Script, Source};

/// Who fills the context.
#[derive(Debug, Clone, PartialEq)]
pub enum Setup {
    /// These fields.
    Set(Vec<(String, Source)>),
    /// A script.
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
    /// A script.
    Script(Script),
}

crate::words! {
    /// What becomes of a stage (B-R2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verdict {
        /// Its work is good.
        Ok = "ok",
        /// Once more.
        Retry = "retry",
        /// Its work is not good.
        Fail = "fail",
        /// It was passed over.
        Skip = "skip",
    }
}

/// Who judges the work.
#[derive(Debug, Clone, PartialEq)]
pub enum Assert {
    /// The first rule that holds; none: `retry` after the cap, else `ok` (B-R3).
    Rules(Vec<Rule<Verdict>>),
    /// A validator as llm steps have it.
    Validate(Script),
    /// A script.
    Script(Script),
}

/// Who says what a stage hands on.
#[derive(Debug, Clone, PartialEq)]
pub enum Exit {
    /// Values.
    Values {
        /// The result's `output`.
        output: Option<Output>,
        /// Members that are laid over the slot's data.
        slot: Vec<(String, Source)>,
    },
    /// A script.
    Script(Script),
}

/// A declarative `output`.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// An object with these members.
    Members(Vec<(String, Source)>),
    /// One value.
    Whole(Source),
}
