//! The user's guards for calls of agents and of steps of type `tool` (B-11.3).

use etude_core::exact::Exact;
use etude_core::tool::{APPLICATION_CALL, ToolCall, ToolResult, all_digits, shown_arguments};
use etude_tools::guard::{Proposal, refusal};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Inner;

/// The arguments of a call with all digits of their numbers. `None` if `args` keeps them, or if `args` are not the arguments
/// that the caller wrote: the words of a command are judged as a line.
pub(super) fn exact(call: &ToolCall, args: &Value) -> Option<Exact> {
    all_digits(&call.arguments).filter(|_| shown_arguments(&call.arguments) == *args)
}

impl Inner {
    /// The result of a call that a guard denies. The journal keeps it as the outcome of the call, like a denial by the policy,
    /// so a resume does not ask about a completed call again.
    ///
    /// Calls of stages are skipped, because their machine has asked already, and so are commands that a step names, because
    /// they do not call a tool.
    pub(super) async fn guarded(
        &self,
        call: &ToolCall,
        args: &Value,
        cancel: &CancellationToken,
    ) -> Option<ToolResult> {
        if self.grants.guards.is_empty() || call.stage_execution.is_some() || call.name == APPLICATION_CALL {
            return None;
        }
        let input = match self.input.value() {
            Ok(input) => input,
            Err(why) => {
                return Some(ToolResult::denied(&format!("cannot run the guards: the input cannot be read: {why}")));
            }
        };
        let cwd = self.app.display().to_string();
        let exact = exact(call, args);
        let proposal =
            Proposal { tool: &call.name, args, exact, key: &call.key, run_id: &self.run_id, input, cwd: &cwd };
        refusal(&self.grants.guards, &self.processes, &proposal, cancel).await
    }
}
