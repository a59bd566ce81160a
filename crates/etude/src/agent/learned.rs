//! MCP tools of learned pipelines: a pipeline in the state `active` does not call a tool that has changed (`learn.md` 2.11).

use etude_core::tool::{ToolCall, ToolResult};
use etude_spec::discover::PIPELINES;
use etude_spec::tool::MCP_PREFIX;
use etude_tools::Tool;

use super::Inner;

impl Inner {
    /// Refuses a call by an `active` pipeline if the tool has changed since the pipeline was trusted. In `assisted`, a person
    /// confirms it.
    pub(super) async fn check_learned(&self, call: &ToolCall, tool: &Tool) -> Result<(), ToolResult> {
        if !tool.name.starts_with(MCP_PREFIX) || !call.is_of_step() || self.grants.rehearsal.is_some() {
            return Ok(());
        }
        let called = self.called_pipeline(&call.key);
        let is_active = called.is_some() || self.assisted.is_none();
        let (Some(name), Some(available)) = (called.or(self.learned.as_deref()), self.available(tool)) else {
            return Ok(());
        };
        let dir = format!("{PIPELINES}/{name}");
        match etude_evidence::servers::is_unchanged(&*self.engine, &self.app_of_run, &dir, &available.tool).await {
            Ok(false) if is_active => Err(ToolResult::terminal(
                "ToolChanged",
                &format!(
                    "the description or the schema of `{}` has changed since the pipeline `{name}` was promoted",
                    tool.name
                ),
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(ToolResult::terminal("ToolExecutionFailed", &error.to_string())),
        }
    }

    /// The pipeline that an agent has called as a tool and that contains the effect `key` (L-77).
    fn called_pipeline(&self, key: &str) -> Option<&str> {
        let mut names = self.pipelines.iter().map(|pipeline| pipeline.tool.name.as_str());
        let is_inside = |name: &&str| key.split_once(&format!("/{name}[")).is_some_and(|(_, rest)| rest.contains('/'));
        names.find(is_inside)
    }
}
