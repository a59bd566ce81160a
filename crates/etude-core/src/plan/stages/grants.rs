//! Who decides about calls outside a stage's envelope (`b-stages` §11.2).

use super::Script;

/// Who decides about calls outside the envelope (B-GT3).
#[derive(Debug, Clone, PartialEq)]
pub enum Grants {
    /// The first rule that fits and is not used up; none: a person is asked.
    Rules(Vec<GrantRule>),
    /// A script.
    Script(Script),
}

/// A rule about calls outside the envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    /// The stage; `None`: any.
    pub stage: Option<String>,
    /// The tool.
    pub tool: String,
    /// What is decided.
    pub decision: GrantDecision,
    /// How often it decides in one run; `None`: always.
    pub times: Option<u32>,
}

/// What a policy says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantDecision {
    /// Once, yes.
    Approve,
    /// No.
    Deny,
    /// A person decides.
    Defer,
}

impl GrantDecision {
    /// Every decision.
    pub const ALL: [Self; 3] = [Self::Approve, Self::Deny, Self::Defer];

    /// The word in machine files and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Defer => "defer",
        }
    }

    /// The decision that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.word() == word)
    }
}
