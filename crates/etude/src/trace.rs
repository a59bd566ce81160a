//! What the agents of a run did, call by call, with where each argument came from: what pipelines can be mined from.
//!
//! Nothing of it is kept twice: the journal has every answer and every result, and the rest follows from them.

use etude_core::outcome::{Outcome, Stdout};
use etude_core::tool::{ToolReply, ToolResult};
use etude_core::tree;
use etude_process::blob::BlobStore;
use etude_runtime::engine::RunView;
use etude_runtime::record;
use serde_json::{Value, json};

use crate::header::Header;

/// A tool call of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The effect: `…/turn3/Read[0]`.
    pub effect: String,
    /// Which tool.
    pub tool: String,
    /// Its arguments; a string if they were no JSON.
    pub arguments: Value,
    /// What it gave; `None`: it was not let through, or never ended.
    pub result: Option<ToolResult>,
    /// Where each plain value of the arguments came from.
    pub origins: Vec<Origin>,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// JSON pointer into the arguments.
    pub path: String,
    /// Where it was seen last before the call.
    pub from: Source,
}

/// Something that a model could have a value from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// What the run was started with.
    Input,
    /// What an earlier effect gave.
    Effect(String),
    /// The model itself.
    Model,
}

/// Shorter texts are found everywhere, and prove nothing.
const SHORTEST: usize = 3;

/// The tool calls of a run, in the order in which models and steps made them.
pub fn of(view: &RunView, blobs: &dyn BlobStore) -> Vec<Call> {
    let mut seen: Vec<(Source, String)> = Vec::new();
    if let Ok(header) = Header::parse(&view.run.header, blobs)
        && let Ok(text) = header.input.text()
    {
        seen.push((Source::Input, text.to_string()));
    }
    let mut calls: Vec<Call> = Vec::new();
    for record in view.records.iter().filter(|record| !record.key.starts_with('!')) {
        let Ok(completed) = record::to_outcome(record, blobs) else { continue };
        match completed.outcome {
            Outcome::Response(answer) => {
                let made = answer.tool_calls.iter().enumerate();
                calls.extend(made.map(|(n, call)| {
                    let effect = format!("{}/{}[{n}]", record.key, call.name);
                    begun(effect, &call.name, &call.arguments, &seen)
                }));
            }
            Outcome::Tool(reply) => {
                // A call that was approved is made again, under its second name.
                let key = record.key.strip_suffix("#2").unwrap_or(&record.key);
                // A step calls without a model.
                if let Some((tool, arguments)) = record::to_call(record)
                    && !calls.iter().any(|call| call.effect == key)
                {
                    calls.push(begun(key.to_owned(), &tool, &arguments, &seen));
                }
                let ToolReply::Done(result) = *reply else { continue };
                seen.push((Source::Effect(key.to_owned()), result.content.clone()));
                if let Some(call) = calls.iter_mut().rev().find(|call| call.effect == key) {
                    call.result = Some(result);
                }
            }
            Outcome::Process(end) => {
                if let Stdout::Value(output) = end.stdout
                    && let Ok(text) = output.text()
                {
                    seen.push((Source::Effect(record.key.clone()), text.to_string()));
                }
            }
            _ => {}
        }
    }
    calls
}

fn begun(effect: String, tool: &str, arguments: &str, seen: &[(Source, String)]) -> Call {
    let arguments = match arguments.trim() {
        "" => json!({}),
        text => tree::of_answer(text).unwrap_or_else(|_| text.into()),
    };
    let mut origins = Vec::new();
    trace(&arguments, &mut String::new(), seen, &mut origins);
    Call { effect, tool: tool.to_owned(), arguments, result: None, origins }
}

/// Finds the origin of every plain value.
fn trace(value: &Value, path: &mut String, seen: &[(Source, String)], origins: &mut Vec<Origin>) {
    let mut below = |step: &str, inner: &Value, path: &mut String| {
        let before = path.len();
        path.push('/');
        path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        trace(inner, path, seen, origins);
        path.truncate(before);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, inner)| below(name, inner, path)),
        Value::Array(items) => items.iter().enumerate().for_each(|(n, inner)| below(&n.to_string(), inner, path)),
        Value::Null => {}
        plain => origins.push(Origin { path: path.clone(), from: origin(plain, seen) }),
    }
}

fn origin(value: &Value, seen: &[(Source, String)]) -> Source {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    if text.len() < SHORTEST || value.is_boolean() {
        return Source::Model;
    }
    // In the text of a JSON value quotes and line ends stand escaped.
    let escaped = Value::from(text.as_str()).to_string();
    let escaped = escaped.trim_matches('"');
    let holds = |(_, all): &&(Source, String)| all.contains(&text) || all.contains(escaped);
    seen.iter().rev().find(holds).map_or(Source::Model, |(source, _)| source.clone())
}

impl Source {
    fn word(&self) -> String {
        match self {
            Self::Input => "input".to_owned(),
            Self::Effect(id) => id.clone(),
            Self::Model => "model".to_owned(),
        }
    }
}

impl Call {
    /// The call as a document.
    pub fn to_json(&self) -> Value {
        let origins: serde_json::Map<String, Value> =
            self.origins.iter().map(|origin| (origin.path.clone(), origin.from.word().into())).collect();
        let error = self.result.as_ref().and_then(|result| result.error.as_ref());
        json!({
            "effect": self.effect,
            "tool": self.tool,
            "arguments": self.arguments,
            "origins": origins,
            "result": self.result.as_ref().map(|result| result.content.as_str()),
            "error": error.map(|e| json!({"class": e.class.word(), "code": e.code, "message": e.message})),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Vec<(Source, String)> {
        vec![
            (Source::Input, r#"{"request":"tidy notes/a.md"}"#.to_owned()),
            (Source::Effect("x/turn1/List[0]".to_owned()), "notes/a.md\nnotes/b \"q\".md\n".to_owned()),
            (Source::Effect("x/turn2/count[0]".to_owned()), r#"{"words":1234,"title":"say \"hi\""}"#.to_owned()),
        ]
    }

    fn of(arguments: Value) -> Vec<(String, String)> {
        let mut origins = Vec::new();
        trace(&arguments, &mut String::new(), &seen(), &mut origins);
        origins.into_iter().map(|origin| (origin.path, origin.from.word())).collect()
    }

    /// A-7.2: where each argument's value came from: the latest place that it was seen in.
    #[test]
    fn a_value_comes_from_where_it_was_seen_last() {
        let found = of(json!({"path": "notes/a.md", "n": 1234, "deep": [{"t": "say \"hi\""}], "new": "unheard of"}));
        let found: Vec<_> = found.iter().map(|(path, from)| (path.as_str(), from.as_str())).collect();
        assert_eq!(
            found,
            [
                ("/path", "x/turn1/List[0]"),
                ("/n", "x/turn2/count[0]"),
                ("/deep/0/t", "x/turn2/count[0]"),
                ("/new", "model")
            ]
        );
    }

    #[test]
    fn what_the_user_typed_is_input_and_short_words_prove_nothing() {
        assert_eq!(
            of(json!({"what": "tidy", "ok": true, "n": 1})),
            [
                ("/what".to_owned(), "input".to_owned()),
                ("/ok".to_owned(), "model".to_owned()),
                ("/n".to_owned(), "model".to_owned()),
            ]
        );
    }
}
