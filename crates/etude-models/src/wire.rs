//! Wire formats: pure functions from a request to a JSON body and from a JSON body to an answer.

pub(crate) mod anthropic;
pub(crate) mod gemini;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
mod reasoning;
pub(crate) mod stream;
pub(crate) mod thoughts;

use std::collections::BTreeSet;

use etude_core::model::{Message, Part, Request, Role, Stop, ToolCall};
use etude_core::tree;
use serde_json::{Map, Value, json};

use crate::dialect::ProviderSchema;
use crate::image::Images;
use crate::kind::ProviderKind;

/// Larger answers are no answers of a model.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// What a codec encodes.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The provider's name of the model.
    pub(crate) model: &'a str,
    /// `provider/model`, as configured.
    pub(crate) id: &'a str,
    /// The conversation, with any note about the schema already in it.
    pub(crate) request: &'a Request,
    /// The contents of its images.
    pub(crate) images: &'a Images,
    /// The schema in the provider's dialect, when its own structured output is used.
    pub(crate) provider_schema: Option<&'a ProviderSchema>,
}

/// What a codec read from an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    /// What the model wants back, in the form of its API.
    pub(crate) reasoning: Option<Value>,
    pub(crate) stop: Stop,
    pub(crate) tokens: TokenCount,
}

impl Decoded {
    /// An answer that was withheld for this reason.
    pub(crate) fn refusal(reason: String) -> Self {
        Self {
            text: String::new(),
            tool_calls: Vec::new(),
            reasoning: None,
            stop: Stop::Refusal(reason),
            tokens: TokenCount::default(),
        }
    }
}

/// Tokens of one answer, counted alike for all providers: `input` includes those read from and written to a cache,
/// `output` includes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TokenCount {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
    pub(crate) cache_written: u64,
    pub(crate) reasoning: u64,
    /// US dollars, where the provider says what the answer cost.
    pub(crate) cost_usd: Option<f64>,
}

impl TokenCount {
    /// A program that does not count its tokens has not worked for nothing: its cost is unknown.
    pub(crate) fn is_counted(&self) -> bool {
        *self != Self { cost_usd: self.cost_usd, ..Self::default() }
    }
}

/// Why a successful HTTP answer is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// It does not have the form of an answer.
    Unreadable(String),
    /// It says more than is kept of an answer.
    TooMuch(String),
    /// It reports a failure of the provider, with the HTTP status that it amounts to.
    Failed { status: u16, message: String },
}

impl DecodeError {
    fn missing(what: &str) -> Self {
        Self::Unreadable(format!("the answer has no `{what}`"))
    }
}

/// Reads the body of an answer by the rules of the kind of provider that it came from.
pub(crate) fn decode(kind: ProviderKind, body: &Value, request: &Request) -> Result<Decoded, DecodeError> {
    let mut decoded = match kind {
        ProviderKind::Anthropic => anthropic::decode(body),
        ProviderKind::OpenAi => openai_responses::decode(body),
        ProviderKind::Gemini => gemini::decode(body, request),
        ProviderKind::OpenAiChat => openai_chat::decode(body),
        // Servers of open models leave it to their callers to know thoughts from answers.
        _ => openai_chat::decode(body).map(|mut decoded| {
            openai_chat::cut_thoughts(&mut decoded);
            decoded
        }),
    }?;
    identify(&mut decoded.tool_calls, request);
    Ok(decoded)
}

/// Gives an id to calls without one, and another to those whose id a call of the conversation has already: a result is known
/// by the id of its call alone.
fn identify(calls: &mut [ToolCall], request: &Request) {
    let earlier = request.messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::ToolCall { id, .. } => Some(id.clone()),
        _ => None,
    });
    let mut taken: BTreeSet<String> = earlier.collect();
    let mut number = taken.len();
    for call in calls {
        while call.id.is_empty() || taken.contains(&call.id) {
            call.id = format!("call_{number}");
            number += 1;
        }
        taken.insert(call.id.clone());
    }
}

/// The value at a pointer through objects, such as `/usage/input_tokens`, without anything escaped: each answer is asked a
/// dozen of these, and those that may be anything cost allocations.
fn value_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    debug_assert!(pointer.is_empty() || pointer.starts_with('/'));
    pointer.split('/').skip(1).try_fold(value, |value, key| value.get(key))
}

/// The text at such a pointer.
fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value_at(value, pointer).and_then(Value::as_str)
}

/// The count at such a pointer; 0 if there is none.
fn count_at(value: &Value, pointer: &str) -> u64 {
    value_at(value, pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// The array at a key; empty if there is none.
fn array_at<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The whole text of a message.
fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The tool results of a message, as id and content. A message of the role `tool` without any is a result without an
/// id, which no provider takes.
fn results_of(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolResult { id, content } => Some((id.as_str(), content.as_str())),
        _ => None,
    })
}

/// Whether a message has anything besides tool results.
fn has_own_content(message: &Message) -> bool {
    message.role != Role::Tool
        && (message.parts.is_empty() || message.parts.iter().any(|part| !matches!(part, Part::ToolResult { .. })))
}

/// An id that every provider accepts. Ids are made by the provider that answered, and a conversation may go on with
/// another one, whose rules are narrower.
fn plain_id(id: &str) -> String {
    let plain = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { id.to_owned() } else { format!("call_{}", &blake3::hash(id.as_bytes()).to_hex()[..24]) }
}

/// A name of a tool that every provider accepts. A model may have called a tool by a name that none has.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Arguments as an object, for the providers whose wire format has one. Arguments that are no object are kept as a
/// text, so that the model sees what it wrote.
fn arguments_object(arguments: &str) -> Value {
    match tree::of_answer(arguments) {
        Ok(value @ Value::Object(_)) => value,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "arguments": arguments }),
    }
}

/// The same for the providers whose wire format has arguments as a text. Some servers read that text in every request,
/// and refuse a conversation in which it is no object.
fn arguments_text(arguments: &str) -> String {
    match tree::of_answer(arguments) {
        Ok(Value::Object(_)) => arguments.to_owned(),
        _ => arguments_object(arguments).to_string(),
    }
}

/// The arguments of a call as a provider wrote them: as a text, or as the object itself.
fn written_arguments(arguments: Option<&Value>) -> String {
    match arguments {
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => "{}".to_owned(),
    }
}

/// Adds `value` under `key` if there is one.
fn set(body: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(key.to_owned(), value.into());
    }
}

/// A key under which an OpenAI service keeps the unchanging start of conversations together.
fn prompt_cache_key(request: &Request) -> Option<String> {
    request.cache_prompt.then(|| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(request.system.as_deref().unwrap_or_default().as_bytes());
        for tool in &request.tools {
            hasher.update(&[0]).update(tool.name.as_bytes());
        }
        format!("etude-{}", &hasher.finalize().to_hex()[..24])
    })
}

#[cfg(test)]
mod tests;
