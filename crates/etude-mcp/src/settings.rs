//! Settings of an app for agents.

use std::time::Duration;

/// Fate of the run of an abandoned call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCancel {
    /// The run continues, because a client's timeout looks like a cancellation by a person.
    #[default]
    Leave,
    /// The run is cancelled.
    Cancel,
}

/// Place at which questions that authorize something are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Approvals {
    /// On the page, or with `etude approve`.
    #[default]
    Page,
    /// Also in a form of the client, unless the question names its approvers.
    Client,
}

/// `serve.mcp` of an app's configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of tools that change nothing.
    pub read_only: Vec<String>,
    /// Maximum time until a call returns.
    pub answer_within: Duration,
    /// Fate of the run of an abandoned call.
    pub on_cancel: OnCancel,
    /// Place at which questions that authorize something are decided.
    pub approvals: Approvals,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            read_only: Vec::new(),
            // Clients give up after 60 to 120 s.
            answer_within: Duration::from_secs(50),
            on_cancel: OnCancel::default(),
            approvals: Approvals::default(),
        }
    }
}
