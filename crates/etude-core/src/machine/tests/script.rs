//! Outcomes written as text, such as `output 1`, `exit 2 no such file`, `answer {"n": 1}`.

use super::build::json;
use crate::data::Json;
use crate::effect::{Effect, EffectId, Protocol};
use crate::model::{CallFailure, CallFailureKind, ModelResponse, Stop, Tool, ToolCall, Usage};
use crate::outcome::{Completed, Conditions, Decision, Exit, Outcome, ProcessEnd, Stderr, Stdout, Warmth};
use crate::tool::{AvailableTool, ToolCalling, ToolError, ToolList, ToolReply, ToolResult};

/// Time that every effect takes, in milliseconds.
pub(super) const ELAPSED_MS: u64 = 10;

/// Parses the outcome in `text`.
pub(super) fn outcome(text: &str) -> Completed {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let outcome = match word {
        "output" => process(Exit::Status(0), Stdout::Value(json(rest)), ""),
        // `exit 1` prints nothing; `exit 1 text` prints on stderr; `exit 1 > JSON` on stdout.
        "exit" => {
            let (status, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let status = Exit::Status(status.parse().expect("an exit status"));
            match rest.strip_prefix("> ") {
                Some(printed) => process(status, Stdout::Value(json(printed)), ""),
                None => process(status, nothing(), rest),
            }
        }
        // `cold WHY`: the requested warm interpreter was not used.
        "cold" => Outcome::Process(ProcessEnd {
            exit: Exit::Status(0),
            stdout: Stdout::Value(Json::null()),
            stderr: Stderr::default(),
            conditions: Conditions { worker: Some(Warmth::Cold(rest.to_owned())), sandbox: None },
        }),
        "signal" => process(Exit::Signal { number: 9, name: rest.to_owned() }, nothing(), ""),
        "not_started" => process(Exit::NotStarted(rest.to_owned()), nothing(), ""),
        "prints" => {
            let found = rest.to_owned();
            process(
                Exit::Status(0),
                Stdout::Unusable { problem: "text before the JSON document".to_owned(), found },
                "",
            )
        }
        "prints_nothing" => process(Exit::Status(0), nothing(), ""),
        "answer" => answer(rest, Stop::End, 3, 2, None),
        // `spends IN OUT USD TEXT`
        "spends" => {
            let mut words = rest.splitn(4, ' ');
            let mut next = || words.next().expect("a word");
            let (input, output) = (next().parse().expect("tokens"), next().parse().expect("tokens"));
            let cost = next().parse().expect("money");
            answer(next(), Stop::End, input, output, Some(cost))
        }
        "cut" => answer(rest, Stop::Length, 3, 2, None),
        "refuses" => answer("", Stop::Refusal(rest.to_owned()), 3, 2, None),
        "no_answer" => no_answer(CallFailureKind::Model, rest),
        "no_key" => no_answer(CallFailureKind::Environment, rest),
        "over" => Outcome::Slept,
        "approved" => decision(true, if rest.is_empty() { "null" } else { rest }, None),
        "denied" => decision(false, "null", (!rest.is_empty()).then(|| rest.to_owned())),
        // `calls NAME ARGUMENTS; NAME ARGUMENTS`, with the ids c1, c2 …
        "calls" => calls(rest, Stop::ToolCalls),
        // The same calls in a response that was cut off.
        "cut_calls" => calls(rest, Stop::Length),
        // `offers NAME NAME! NAME* NAME^`: `!` marks an exclusive tool, `*` a tool whose results are kept, `^` a pipeline.
        "offers" => tool_list_outcome(rest),
        // The same tools, for a model that must be probed.
        "doubtful" => doubtful(rest),
        "gives" => Outcome::Tool(Box::new(ToolReply::Done(ToolResult::ok(rest)))),
        "fails" => Outcome::Tool(Box::new(ToolReply::Done(ToolResult::terminal("ToolExecutionFailed", rest)))),
        // The call exceeded its time limit.
        "hangs" => {
            let error = ToolError::transient("ExecutionTimeout", rest);
            Outcome::Tool(Box::new(ToolReply::Done(error.into())))
        }
        "held" => {
            let (key, question) = (rest.to_owned(), format!("may I {rest}?"));
            Outcome::Tool(Box::new(ToolReply::Held { key, question, is_once: false }))
        }
        "held_once" => {
            let (key, question) = (rest.to_owned(), format!("confirm {rest}?"));
            Outcome::Tool(Box::new(ToolReply::Held { key, question, is_once: true }))
        }
        "found" => Outcome::Recalled(Some(json(rest))),
        "nothing" => Outcome::Recalled(None),
        "kept" => Outcome::Remembered,
        "clean" => Outcome::Scanned(Vec::new()),
        "abandoned" => Outcome::Abandoned,
        other => panic!("no such outcome: {other}"),
    };
    let elapsed_ms = if outcome == Outcome::Abandoned { 0 } else { ELAPSED_MS };
    Completed { outcome, elapsed_ms }
}

/// The usual outcome of an effect, in the words of [`outcome`].
pub(super) fn default(id: &EffectId, effect: &Effect) -> String {
    let name = id.as_str().rsplit('/').next().unwrap_or_default();
    match effect {
        Effect::Process(call) if call.protocol == Protocol::Document => r#"output {"valid":true}"#.to_owned(),
        Effect::Process(_) => format!("output {:?}", Json::string(name)),
        Effect::Model(request) if request.schema.is_some() => "answer {}".to_owned(),
        Effect::Model(_) => format!("answer {name}"),
        Effect::Open(_) => "offers Read Look Write!".to_owned(),
        Effect::Tool(call) => format!("gives {}-out", call.name),
        Effect::Sleep { .. } => "over".to_owned(),
        Effect::Gate(_) => "approved".to_owned(),
        Effect::Scan(_) => "clean".to_owned(),
        Effect::Recall { .. } => "nothing".to_owned(),
        Effect::Remember { .. } => "kept".to_owned(),
    }
}

fn calls(text: &str, stop: Stop) -> Outcome {
    let Outcome::Response(mut answer) = answer("", stop, 3, 2, None) else { unreachable!("an answer") };
    let call = |(n, text): (usize, &str)| {
        let (name, arguments) = text.trim().split_once(' ').unwrap_or((text.trim(), "{}"));
        ToolCall { id: format!("c{}", n + 1), name: name.to_owned(), arguments: arguments.to_owned() }
    };
    answer.tool_calls = text.split(';').enumerate().map(call).collect();
    Outcome::Response(answer)
}

fn tool_list_outcome(names: &str) -> Outcome {
    let tool = |name: &str| AvailableTool {
        tool: Tool {
            name: name.trim_end_matches(['!', '*', '^']).to_owned(),
            description: String::new(),
            parameters: std::sync::Arc::new(serde_json::json!({"type": "object"})),
        },
        is_pipeline: name.ends_with('^'),
        is_exclusive: name.ends_with(['!', '^']),
        is_kept: name.ends_with('*'),
        approval_key: None,
    };
    let tools = names.split_whitespace().map(tool).collect();
    Outcome::Opened(Box::new(ToolList { tools, ..ToolList::default() }))
}

fn doubtful(names: &str) -> Outcome {
    let Outcome::Opened(mut tool_list) = tool_list_outcome(names) else { unreachable!("an offer") };
    (tool_list.model, tool_list.tool_calling) = ("test/doubtful".to_owned(), ToolCalling::Probed);
    Outcome::Opened(tool_list)
}

fn process(exit: Exit, stdout: Stdout, stderr: &str) -> Outcome {
    let stderr = Stderr { tail: stderr.to_owned(), lines: 1, bytes: stderr.len() as u64, blob: None };
    Outcome::Process(ProcessEnd { exit, stdout, stderr, conditions: Conditions::default() })
}

fn nothing() -> Stdout {
    Stdout::Unusable { problem: "stdout is empty".to_owned(), found: String::new() }
}

fn answer(text: &str, stop: Stop, input_tokens: u64, output_tokens: u64, cost_usd: Option<f64>) -> Outcome {
    let usage = Usage { calls: 1, input_tokens, output_tokens, cost_usd, ..Usage::default() };
    let (text, model) = (text.to_owned(), "test/model".to_owned());
    Outcome::Response(Box::new(ModelResponse {
        text,
        tool_calls: Vec::new(),
        stop,
        usage,
        model,
        reasoning: None,
        transport_failures: Vec::new(),
    }))
}

fn no_answer(kind: CallFailureKind, message: &str) -> Outcome {
    let tries = if kind == CallFailureKind::Model { 2 } else { 0 };
    let transport_failures = vec!["HTTP 503".to_owned(); tries];
    Outcome::CallFailed(CallFailure { kind, message: message.to_owned(), model: None, transport_failures })
}

fn decision(approved: bool, answer: &str, reason: Option<String>) -> Outcome {
    let (by, at) = ("ada".to_owned(), "2026-01-01T00:00:00Z".to_owned());
    Outcome::Decided(Decision { approved, answer: json(answer), by, at, reason })
}
