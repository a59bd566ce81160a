//! Origin of each value of an input, and the record of it that a run keeps.

use std::fmt::Write;
use std::ops::Range;

use etude_core::data::Json;
use etude_core::report::usage_json;
use etude_spec::input::InputDecl;
use indexmap::IndexMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ask::RoutingCall;
use super::{Extracted, Mode};

etude_core::words! {
    /// The origin of a value, by its word in documents.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum From {
        /// Code found it in the request.
        Request = "request",
        /// A model found it in the request.
        Model = "model",
        /// Given by `-i`.
        Argument = "argument",
        /// A member of the JSON object that `--input` gave.
        Input = "input",
        /// The default that the parameter declares.
        Default = "default",
    }
}

/// A value of an input, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name of the parameter.
    pub name: String,
    /// The value, as JSON.
    pub value: String,
    /// The origin of the value.
    pub from: From,
    /// Position in the request, as a byte range.
    pub span: Option<Range<usize>>,
    /// The text of the request at `span`.
    pub text: Option<String>,
}

impl Source {
    /// The source as a member of documents.
    pub fn to_json(&self) -> Value {
        let mut out = json!({"from": self.from.word()});
        if let (Some(span), Some(text)) = (&self.span, &self.text) {
            out["text"] = text.as_str().into();
            out["start"] = span.start.into();
            out["end"] = span.end.into();
        }
        out
    }

    /// The source as text for users: `count=2 (request: "2")`.
    pub fn shown(&self) -> String {
        let value = serde_json::from_str::<String>(&self.value).ok().filter(|text| is_plain(text));
        let mut out = format!("{}={}", self.name, cut(value.as_deref().unwrap_or(&self.value)));
        let _ = match (self.from, &self.text) {
            (from, Some(text)) => write!(out, " ({}: \"{}\")", from.word(), cut(text)),
            (From::Argument, None) => write!(out, " (-i)"),
            (From::Input, None) => write!(out, " (--input)"),
            (from, None) => write!(out, " ({})", from.word()),
        };
        out
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains([' ', ',', '"', '\n', '(', ')'])
}

fn cut(text: &str) -> String {
    etude_core::report::clip(text, 80)
}

/// Origins of the values of `input`, in their order: the request, `arguments`, the object `json`, or the declaration.
pub fn sources(
    declared: &InputDecl,
    input: &Json,
    extracted: &[Source],
    arguments: &[(String, String)],
    json: Option<&str>,
) -> Vec<Source> {
    let text = input.text().map(|text| text.to_string()).unwrap_or_default();
    let members: IndexMap<String, &RawValue> = serde_json::from_str(&text).unwrap_or_default();
    let given: IndexMap<String, &RawValue> = json.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let values = members.iter().filter(|(name, _)| declared.parameter(name).is_some());
    values
        .map(|(name, value)| {
            let plain =
                |from| Source { name: name.clone(), value: value.get().to_owned(), from, span: None, text: None };
            let found = extracted.iter().find(|source| source.name == *name);
            match found {
                _ if arguments.iter().any(|(argument, _)| argument == name) => plain(From::Argument),
                _ if given.contains_key(name) => plain(From::Input),
                Some(source) => Source { value: value.get().to_owned(), ..source.clone() },
                None => plain(From::Default),
            }
        })
        .collect()
}

/// Path of a request to its run: decision, sources and model calls. It is kept with the run.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    /// The request in the user's words.
    pub request: String,
    /// The pipeline, the mode that chose it and the score; `None` if the user named the pipeline.
    pub decision: Option<(Option<String>, Mode, f64)>,
    /// Origins of the input's values.
    pub sources: Vec<Source>,
    /// Values of the model that the request does not confirm: names and values as JSON.
    pub made_up: Vec<(String, String)>,
    /// The model calls, in order.
    pub calls: Vec<RoutingCall>,
}

impl Trail {
    /// Adds the unconfirmed values and the model calls of an extraction.
    pub fn add(&mut self, extracted: &Extracted) {
        self.made_up.extend(extracted.made_up.iter().cloned());
        self.calls.extend(extracted.calls.iter().cloned());
    }

    /// The trail as a document.
    pub fn to_json(&self) -> Value {
        let decision = self.decision.as_ref().map(
            |(pipeline, mode, score)| json!({"pipeline": pipeline, "mode": mode.word(), "score": (score * 1e4).round() / 1e4}),
        );
        let parsed = |json: &str| serde_json::from_str::<Value>(json).unwrap_or_default();
        json!({
            "request": self.request,
            "decision": decision,
            "sources": sources_json(&self.sources),
            "not_in_request": self.made_up.iter().map(|(name, json)| (name.clone(), parsed(json))).collect::<serde_json::Map<_, _>>(),
            "calls": self.calls.iter().map(call_json).collect::<Vec<_>>(),
        })
    }
}

/// Sources as an object by parameter name.
pub fn sources_json(sources: &[Source]) -> Value {
    sources.iter().map(|source| (source.name.clone(), source.to_json())).collect::<serde_json::Map<_, _>>().into()
}

fn call_json(call: &RoutingCall) -> Value {
    json!({
        "purpose": call.purpose,
        "model": call.model,
        "system": call.system,
        "prompt": call.prompt,
        "answer": call.answer.as_ref().ok(),
        "error": call.answer.as_ref().err(),
        "usage": usage_json(&call.usage),
        "duration_ms": call.elapsed_ms,
    })
}
