//! `tests/DIGEST.yaml`: a request with its recorded results, as a test case (1.4).

use serde_json::{Map, Value, json};

use crate::episode::Episode;
use crate::program::{Program, StepKind};
use crate::replay::{End, Replay};
use crate::trace::TraceCall;
use crate::value::is_same_call;

/// Test case of a replayed episode; `None` if the program makes a read that the run did not make.
pub(super) fn case(name: &str, program: &Program, episode: &Episode<'_>, replay: Replay<'_>) -> Option<Value> {
    let Replay { end, input, answers, reads, .. } = replay;
    if matches!(end, End::Deviated { reason: "tool_error", .. }) {
        return None;
    }
    let mut tools: Vec<Value> = Vec::new();
    // A run reads more than the pipeline does, and a case has a limit on its size.
    let is_made = |call: &&&TraceCall| reads.iter().any(|(tool, args)| *tool == call.tool && *args == call.arguments);
    let made: &[Value] = if let End::Wrote(writes) = &end { writes } else { &[] };
    let reads = episode.reads.iter().filter(is_made).map(|call| (*call, &call.arguments));
    let writes = episode.writes.iter().map(|call| (*call, as_made(call, made)));
    for (call, arguments) in reads.chain(writes) {
        // Of equal reads the last one before the write counts.
        tools.retain(|known| known["tool"] != call.tool || known["arguments"] != *arguments);
        tools.push(json!({"tool": call.tool, "arguments": arguments, "result": call.result, "error": null}));
    }
    let tool = program.write().and_then(|step| match &step.kind {
        StepKind::Call { tool, .. } => Some(tool.clone()),
        _ => None,
    });
    let call = |arguments: &Value| json!({"tool": tool, "arguments": arguments});
    let (calls, fell_back): (Vec<Value>, Value) = match &end {
        End::Wrote(writes) => (writes.iter().map(call).collect(), Value::Null),
        End::Answered => (Vec::new(), Value::Null),
        End::Deviated { step, reason } => (Vec::new(), json!({"step": step, "reason": reason})),
    };
    let mut case = Map::new();
    let digest = &episode.digest;
    case.insert("name".into(), format!("{name} {digest}").into());
    case.insert("digest".into(), digest.as_str().into());
    case.insert("pipeline".into(), name.into());
    case.insert("request".into(), episode.trace.request.as_str().into());
    case.insert("input".into(), input.into());
    case.insert("tools".into(), tools.into());
    case.insert("answers".into(), answers.into());
    case.insert("expect".into(), json!({"status": "succeeded", "calls": calls, "fell_back": fell_back}));
    Some(case.into())
}

/// Arguments of a write in the form of the pipeline, whose lists may have another order than those of the run.
fn as_made<'v>(call: &'v TraceCall, made: &'v [Value]) -> &'v Value {
    made.iter().find(|one| is_same_call(one, &call.arguments)).unwrap_or(&call.arguments)
}
