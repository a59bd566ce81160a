//! Tools of a rehearsal.

use std::sync::Arc;

use etude_core::tool::{ToolCall, ToolList, ToolReply, ToolResult, ToolSelection, shown_arguments};
use etude_runtime::host::{Boxed, ToolPort};
use tokio_util::sync::CancellationToken;

use super::{Call, Rehearsal};

/// Tool port with recorded results, in front of the tools of the run.
#[derive(Debug)]
pub struct Rehearsed {
    /// The rehearsal with the recorded calls.
    pub rehearsal: Arc<Rehearsal>,
    /// Tools of the run, for reads of a shadow.
    pub tools: Arc<dyn ToolPort>,
}

impl ToolPort for Rehearsed {
    /// Returns no tools: an agent, which follows a deviation, is not rehearsed.
    fn open(&self, _tool_selection: Arc<ToolSelection>) -> Boxed<ToolList> {
        Box::pin(std::future::ready(ToolList::default()))
    }

    fn call(&self, call: ToolCall, cancel: CancellationToken) -> Boxed<ToolReply> {
        let made = Call { tool: call.name.clone(), arguments: shown_arguments(&call.arguments) };
        let is_write = !self.rehearsal.reads(&call.name);
        let recorded = self.rehearsal.result_of(&made);
        self.rehearsal.note(&made, is_write, recorded.is_some());
        let done = |result| Box::pin(std::future::ready(ToolReply::Done(result))) as Boxed<ToolReply>;
        match recorded {
            Some(result) => done(result),
            None if is_write => done(ToolResult::ok("null")),
            None if self.rehearsal.is_live && self.rehearsal.needs_no_approval(&made.tool) => {
                let reply = self.tools.call(call, cancel);
                Box::pin(async move {
                    match reply.await {
                        // A shadow asks for no approval.
                        ToolReply::Held { .. } => ToolReply::Done(unrecorded(&made)),
                        reply @ ToolReply::Done(_) => reply,
                    }
                })
            }
            None => done(unrecorded(&made)),
        }
    }
}

fn unrecorded(call: &Call) -> ToolResult {
    ToolResult::terminal("NotRecorded", &format!("no result is recorded for this call of `{}`", call.tool))
}
