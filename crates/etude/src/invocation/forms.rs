//! Results of host functions, in the forms that middleware and callers need.

use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::{Chunk, Protocol, Stdin};
use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Part, Request};
use etude_core::outcome::{Conditions, Exit, ProcessEnd, Stderr, Stdout};
use etude_core::tool::{ToolError, ToolReply, ToolResult};
use etude_core::tree;
use etude_invoke::chain::{Outcome, Throw, ThrowKind};
use etude_models::Redactor;
use etude_process::Cancelled;
use serde_json::{Value, json};

use etude_invoke::{Form, OWN_MIDDLEWARE, as_value, refusal};

fn given_up(name: &str) -> Outcome {
    Err(Throw::new(ThrowKind::Failed, name, "it was cancelled"))
}

/// The form of a process of a run.
pub(super) struct ProcessForm {
    pub(super) protocol: Protocol,
}

impl Form for ProcessForm {
    type End = Result<ProcessEnd, Cancelled>;

    fn outcome(&self, end: &Self::End, name: &str, is_seen: bool) -> Outcome {
        let Ok(end) = end else { return given_up(name) };
        let failed = |message: String| Err(Throw::new(ThrowKind::Failed, name, message));
        match (&end.exit, &end.stdout) {
            (Exit::Status(0), Stdout::Value(json)) if is_seen => match json.value() {
                Ok(value) => Ok(Some(value)),
                Err(error) => failed(error.to_string()),
            },
            (Exit::Status(0), Stdout::Value(_)) => Ok(None),
            // A hook without output reports success.
            (Exit::Status(0), Stdout::Unusable { found, .. })
                if self.protocol == Protocol::Document && found.is_empty() =>
            {
                Ok(None)
            }
            (Exit::Status(0), Stdout::Unusable { problem, .. }) => failed(problem.clone()),
            (Exit::NotStarted(why), _) => failed(why.clone()),
            (Exit::Status(status), _) => failed(format!("exited with status {status}")),
            (Exit::Signal { name, .. }, _) => failed(format!("was killed by {name}{}", Exit::why_signal(name))),
        }
    }

    fn changed(&self, own: Option<Self::End>, outcome: Outcome) -> Self::End {
        let has_run = matches!(&own, Some(Ok(end)) if !matches!(end.exit, Exit::NotStarted(_)));
        let (stderr, conditions) = match own {
            Some(Err(given_up)) => return Err(given_up),
            Some(Ok(end)) => (end.stderr, end.conditions),
            None => (Stderr::default(), Conditions::default()),
        };
        let unusable = |problem: &str| Stdout::Unusable { problem: problem.to_owned(), found: String::new() };
        Ok(match outcome {
            Ok(None) if self.protocol == Protocol::Document => ProcessEnd {
                exit: Exit::Status(0),
                stdout: unusable("middleware removed the result"),
                stderr,
                conditions,
            },
            Ok(value) => {
                let value = value.unwrap_or(Value::Null);
                ProcessEnd { exit: Exit::Status(0), stdout: Stdout::Value(Json::of(&value)), stderr, conditions }
            }
            // A process that has run must not look like one that never began, whose failure counts as one of the environment.
            // `found` is not empty, so that no hook is taken for a silent one.
            Err(throw) if has_run => {
                let problem = "middleware rejected the result".to_owned();
                let stdout = Stdout::Unusable { problem, found: refusal(&throw) };
                ProcessEnd { exit: Exit::Status(0), stdout, stderr, conditions }
            }
            Err(throw) => {
                let exit = Exit::NotStarted(refusal(&throw));
                ProcessEnd { exit, stdout: unusable("middleware rejected the call"), stderr, conditions }
            }
        })
    }
}

/// The stdin of a process as arguments: a JSON document, or else an empty object. Values in the blob store are read.
///
/// # Errors
/// A value cannot be read or parsed: middleware that guards by arguments would not see it.
pub(super) fn document(stdin: &Stdin) -> Result<Value, Throw> {
    let mut text = String::new();
    for chunk in &stdin.0 {
        match chunk {
            Chunk::Text(piece) => text.push_str(piece),
            Chunk::Bytes(piece) => text.push_str(&String::from_utf8_lossy(piece)),
            Chunk::Json(json) => {
                let why =
                    |error| Throw::new(ThrowKind::Environment, "layers", format!("its input cannot be read: {error}"));
                text.push_str(&json.text().map_err(why)?);
            }
        }
    }
    match tree::parse(&text) {
        Ok(value) => Ok(value),
        Err(error) if tree::is_json(&text) => {
            Err(Throw::new(ThrowKind::Failed, "layers", format!("its input cannot be parsed: {error}")))
        }
        Err(_) => Ok(json!({})),
    }
}

/// The form of a model's response to a step. Middleware sees its text, parsed if it is JSON.
pub(super) struct ModelForm;

impl Form for ModelForm {
    type End = Result<ModelResponse, CallFailure>;

    fn outcome(&self, end: &Self::End, name: &str, is_seen: bool) -> Outcome {
        match end {
            Ok(answer) if is_seen => Ok(Some(as_value(&answer.text))),
            Ok(_) => Ok(None),
            Err(failure) => Err(Throw::new(ThrowKind::Failed, name, failure.message.clone())),
        }
    }

    fn changed(&self, own: Option<Self::End>, outcome: Outcome) -> Self::End {
        let failed = |message: String| CallFailure {
            kind: CallFailureKind::Model,
            message,
            model: None,
            transport_failures: Vec::new(),
        };
        match (own, outcome) {
            (_, Err(throw)) => Err(failed(refusal(&throw))),
            (Some(Ok(answer)), Ok(value)) => {
                Ok(ModelResponse { text: as_text(value.unwrap_or(Value::Null)), ..answer })
            }
            (Some(Err(failure)), Ok(_)) => Err(failure),
            (None, Ok(_)) => {
                Err(failed("middleware returned a response in place of the model, which is not allowed".to_owned()))
            }
        }
    }
}

/// The request of a step to a model, as arguments.
pub(super) fn request(request: &Request) -> Value {
    let text = |parts: &[Part]| {
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().concat()
    };
    let messages = request.messages.iter().map(|message| text(&message.parts));
    json!({
        "tier": request.tier.word(),
        "system": request.system,
        "messages": messages.collect::<Vec<_>>(),
    })
}

/// The form of a tool call by an agent or a stage.
pub(crate) struct ToolForm {
    /// Redacts the text of an error that middleware throws again.
    pub(crate) redactor: Arc<Redactor>,
}

impl Form for ToolForm {
    type End = ToolReply;

    fn outcome(&self, end: &ToolReply, name: &str, is_seen: bool) -> Outcome {
        let (kind, message) = match end {
            ToolReply::Done(ToolResult { content, error: None, .. }) if is_seen => return Ok(Some(as_value(content))),
            ToolReply::Done(ToolResult { content, error: None, .. }) => return Ok(Some(json!(content))),
            ToolReply::Done(ToolResult { error: Some(error), .. }) => (ThrowKind::Failed, &error.message),
            ToolReply::Held { question, .. } => (ThrowKind::Waiting, question),
        };
        Err(Throw::new(kind, name, message.clone()).with(end.clone()))
    }

    fn is_same(&self, before: &Outcome, after: &Outcome) -> bool {
        before == after
    }

    fn changed(&self, own: Option<ToolReply>, outcome: Outcome) -> ToolReply {
        // Middleware may replace a result, but not the record of the sandbox that the program ran in.
        let sandbox = match &own {
            Some(ToolReply::Done(result)) => result.sandbox.clone(),
            Some(ToolReply::Held { .. }) | None => None,
        };
        let result = match (outcome, own) {
            (Ok(value), _) => ToolResult::ok(as_text(value.unwrap_or(Value::Null))),
            (Err(Throw { kind: ThrowKind::Waiting, reply: Some(held), .. }), _) => return *held,
            // A person must be asked before the call runs, whatever middleware makes of that.
            (Err(_), Some(held @ ToolReply::Held { .. })) => return held,
            // Middleware in another process throws a received error again with its message only, so the other members are
            // restored.
            (Err(throw), Some(ToolReply::Done(ToolResult { content, error: Some(error), .. })))
                if throw.reply.is_none() && self.redactor.redact(&error.message) == throw.message =>
            {
                ToolResult::failed_with(self.redactor.redact(&content), ToolError { message: throw.message, ..error })
            }
            (Err(throw), _) => failed(throw),
        };
        ToolReply::Done(ToolResult { sandbox, ..result })
    }
}

/// A throw as a model reads it: the tool's own failure as it was reported, a refusal of the host's middleware by its code
/// (`b-stages` §18), and one of other middleware with its name.
fn failed(mut throw: Throw) -> ToolResult {
    let code = match throw.kind {
        _ if !OWN_MIDDLEWARE.contains(&throw.tool.as_str()) => "ToolRefused",
        ThrowKind::Arguments => "InputInvalid",
        ThrowKind::NotAllowed | ThrowKind::NotTrusted => "ApprovalDenied",
        _ => "ToolExecutionFailed",
    };
    match throw.reply.take().map(|reply| *reply) {
        Some(ToolReply::Done(result)) => result,
        _ => ToolResult::terminal(code, &refusal(&throw)),
    }
}

/// A value as text: strings unquoted, everything else as JSON.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ADR 0035: arguments that a guard cannot parse are refused, not treated as empty.
    #[test]
    fn a_guard_is_never_shown_less_than_there_is() {
        let stdin = |text: &str| document(&Stdin(vec![Chunk::Text(text.into())]));
        assert_eq!(stdin("{\"a\": 1}").ok(), Some(json!({"a": 1})));
        assert_eq!(stdin("no document").ok(), Some(json!({})));
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(200), "]".repeat(200));
        let wide = format!("{{\"a\": [{}0]}}", "0,".repeat(tree::MAX_VALUES));
        for text in [deep, wide] {
            let error = stdin(&text).expect_err("it cannot be looked into");
            assert!(error.message.contains("its input cannot be parsed"), "{}", error.message);
        }
    }
}
