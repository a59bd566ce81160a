//! Policy for calls outside a stage's envelope (`b-stages` §11.2).

use super::Script;

/// Source of decisions about calls outside the envelope (B-GT3).
#[derive(Debug, Clone, PartialEq)]
pub enum Grants {
    /// The first rule that fits and is not used up decides; if there is none, a person is asked.
    Rules(Vec<GrantRule>),
    /// A script of the hook `grant`, which prints the decision (§20.4).
    Script(Script),
}

/// A rule about calls outside the envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    /// The stage's id; `None`: any stage.
    pub stage: Option<String>,
    /// The name of the called tool; `*`: any tool.
    pub tool: String,
    /// Decision about such a call.
    pub decision: GrantDecision,
    /// Maximum number of decisions in one run; `None`: unlimited.
    pub times: Option<u32>,
}

crate::words! {
    /// Decision of a policy about a call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GrantDecision {
        /// The call is approved, once.
        Approve = "approve",
        /// The call is denied.
        Deny = "deny",
        /// A person decides.
        Defer = "defer",
    }
}
