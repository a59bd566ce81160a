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

/// What a gate says (B-G1, B-G2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOutcome {
    /// The stage runs.
    Proceed,
    /// Not now.
    Defer,
    /// It must not.
    Block,
}

impl GateOutcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Proceed, Self::Defer, Self::Block];

    /// The word in machine files and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proceed => "proceed",
            Self::Defer => "defer",
            Self::Block => "block",
        }
    }

    /// The outcome that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
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

/// What becomes of a stage (B-R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its work is good.
    Ok,
    /// Once more.
    Retry,
    /// Its work is not good.
    Fail,
    /// It was passed over.
    Skip,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Retry, Self::Fail, Self::Skip];

    /// The word in machine files and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Retry => "retry",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }

    /// The verdict that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == word)
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
