//! Who decides about calls outside a stage's envelope (`b-stages` §11.2).

use super::Script;

/// Who decides about calls outside the envelope (B-GT3).
#[derive(Debug, Clone, PartialEq)]
pub enum Grants {
    /// The first rule that fits and is not used up; none: a person is asked.
    Rules(Vec<GrantRule>),
    /// A script of the hook `grant`, which prints the decision (§20.4).
    Script(Script),
}

/// A rule about calls outside the envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    /// The stage's id; `None`: any.
    pub stage: Option<String>,
    /// The name of the tool that is called.
    pub tool: String,
    /// The answer to such a call.
    pub decision: GrantDecision,
    /// How often it decides in one run; `None`: always.
    pub times: Option<u32>,
}

crate::words! {
    /// What a policy says about a call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GrantDecision {
        /// Once, yes.
        Approve = "approve",
        /// No.
        Deny = "deny",
        /// A person decides.
        Defer = "defer",
    }
}
