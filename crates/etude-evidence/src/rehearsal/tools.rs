//! Tools of a rehearsal.

use std::sync::Arc;

use etude_core::tool::{ToolCall, ToolList, ToolReply, ToolResult, ToolSelection, shown_arguments};
use etude_runtime::host::{Boxed, ToolPort};
use tokio_util::sync::CancellationToken;

use super::{Rehearsal, RehearsedCall};

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
        let made = RehearsedCall { tool: call.name.clone(), arguments: shown_arguments(&call.arguments) };
        let done = |result| Box::pin(std::future::ready(ToolReply::Done(result))) as Boxed<ToolReply>;
        if let Some(refused) = self.rehearsal.misfit(&made) {
            return done(refused);
        }
        let is_write = !self.rehearsal.reads(&call.name);
        let recorded = self.rehearsal.result_of(&made);
        self.rehearsal.note(&made, is_write, recorded.is_some());
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

fn unrecorded(call: &RehearsedCall) -> ToolResult {
    ToolResult::terminal("NotRecorded", &format!("no result is recorded for this call of `{}`", call.tool))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::Recorded;
    use serde_json::json;

    /// L-58: a rehearsal refuses a call that the tool would refuse today, whatever was recorded for it.
    #[tokio::test]
    async fn a_call_that_does_not_fit_its_tool_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("tools")).expect("made");
        let tool = |required: &str| {
            let text = format!(
                "name: pay\ndescription: Pays.\ncommand: \"true\"\neffects: true\n\
                 inputSchema: {{type: object, properties: {{id: {{type: string}}}}, required: [{required}]}}\n"
            );
            std::fs::write(dir.path().join("tools/pay.yaml"), text).expect("written");
            etude_spec::tool::load(&etude_tools::disk::Disk::open(dir.path()).expect("opened")).0
        };
        let pay = |required: &str| {
            let recorded = Recorded {
                tool: "pay".to_owned(),
                arguments: json!({"id": "A"}),
                result: json!("paid"),
                error: json!(null),
            };
            let rehearsal = Arc::new(Rehearsal::of_case(vec![recorded], None, tool(required)));
            Rehearsed { rehearsal, tools: nothing() }
        };
        for (required, is_made) in [("id", true), ("id, reason", false)] {
            let port = pay(required);
            let ToolReply::Done(result) = port.call(call(), CancellationToken::new()).await else {
                panic!("it is done")
            };
            assert_eq!((result.is_error(), port.rehearsal.calls_made().writes.len()), (!is_made, usize::from(is_made)));
        }
    }

    fn call() -> ToolCall {
        ToolCall {
            tool_selection: Arc::default(),
            name: "pay".to_owned(),
            arguments: r#"{"id":"A"}"#.to_owned(),
            id: "p/pay".to_owned(),
            key: "p/pay".to_owned(),
            is_approved: false,
            is_confirmed: false,
            approved_key: None,
            stage_execution: None,
        }
    }

    /// A tool port that is never called.
    fn nothing() -> Arc<dyn ToolPort> {
        #[derive(Debug)]
        struct Nothing;
        impl ToolPort for Nothing {
            fn open(&self, _: Arc<ToolSelection>) -> Boxed<ToolList> {
                Box::pin(std::future::ready(ToolList::default()))
            }

            fn call(&self, _: ToolCall, _: CancellationToken) -> Boxed<ToolReply> {
                Box::pin(std::future::ready(ToolReply::Done(ToolResult::ok(""))))
            }
        }
        Arc::new(Nothing)
    }
}
