//! Wire formats: pure functions from a request to a JSON body, and from a JSON body to a response.

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

/// Maximum length of a response in bytes. A larger one does not come from a model.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Input of a codec.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The provider's name of the model.
    pub(crate) model: &'a str,
    /// `provider/model`, as configured.
    pub(crate) id: &'a str,
    /// The conversation, including any note about the schema.
    pub(crate) request: &'a Request,
    /// Contents of the images in the request, by path.
    pub(crate) images: &'a Images,
    /// The schema in the provider's dialect, if its own structured output is used.
    pub(crate) provider_schema: Option<&'a ProviderSchema>,
}

/// A decoded response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    pub(crate) tool_calls: Vec<ToolCall>,
    /// Reasoning that the model must get back, in the form of its API.
    pub(crate) reasoning: Option<Value>,
    pub(crate) stop: Stop,
    pub(crate) tokens: TokenCount,
}

impl Decoded {
    /// A response that was withheld for `reason`.
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

/// Tokens of one response, counted alike for all providers: `input` includes those read from and written to a cache, `output`
/// includes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TokenCount {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
    pub(crate) cache_written: u64,
    pub(crate) reasoning: u64,
    /// Cost in US dollars, if the provider states it.
    pub(crate) cost_usd: Option<f64>,
}

impl TokenCount {
    /// True if tokens were counted. A program that does not count its tokens still has a cost, which is then unknown.
    pub(crate) fn is_counted(&self) -> bool {
        *self != Self { cost_usd: self.cost_usd, ..Self::default() }
    }
}

/// Reason why a successful HTTP response cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The body is not a response.
    Unreadable(String),
    /// The response has more values than the limit.
    TooMuch(String),
    /// The body reports a failure of the provider, with the equivalent HTTP status.
    Failed { status: u16, message: String },
}

impl DecodeError {
    fn missing(what: &str) -> Self {
        Self::Unreadable(format!("the response has no `{what}`"))
    }
}

/// Decodes the body of a response by the rules of the provider's kind.
pub(crate) fn decode(kind: ProviderKind, body: &Value, request: &Request) -> Result<Decoded, DecodeError> {
    let mut decoded = match kind {
        ProviderKind::Anthropic => anthropic::decode(body),
        ProviderKind::OpenAi => openai_responses::decode(body),
        ProviderKind::Gemini => gemini::decode(body, request),
        ProviderKind::OpenAiChat => openai_chat::decode(body),
        // Servers of open models leave it to their clients to separate reasoning from the response.
        _ => openai_chat::decode(body).map(|mut decoded| {
            openai_chat::cut_thoughts(&mut decoded);
            decoded
        }),
    }
    // Gateways of any kind report failures with status 200.
    .map_err(|error| match error {
        DecodeError::Unreadable(_) => openai_chat::failure_of(body).unwrap_or(error),
        other => other,
    })?;
    identify(&mut decoded.tool_calls, request);
    Ok(decoded)
}

/// Gives an id to calls without one, and a new id to calls whose id occurred in the conversation: results refer to calls by id
/// alone.
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

/// The value at a pointer through objects, such as `/usage/input_tokens`, without escapes. Each response needs a dozen of
/// these, and general JSON pointers cost allocations.
fn value_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    debug_assert!(pointer.is_empty() || pointer.starts_with('/'));
    pointer.split('/').skip(1).try_fold(value, |value, key| value.get(key))
}

/// The text at such a pointer.
fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value_at(value, pointer).and_then(Value::as_str)
}

/// Maximum count of a response. The sum over all responses of a run does not overflow.
const MAX_COUNT: u64 = 1 << 40;

/// A count as a provider or a program states it; 0 if there is none. Some gateways write `12.0`.
pub(crate) fn count(value: Option<&Value>) -> u64 {
    // A float becomes the nearest integer in range, and a negative one 0.
    let of = |value: &Value| value.as_u64().or_else(|| value.as_f64().map(|count| count as u64));
    value.and_then(of).unwrap_or(0).min(MAX_COUNT)
}

/// The count at such a pointer; 0 if there is none.
fn count_at(value: &Value, pointer: &str) -> u64 {
    count(value_at(value, pointer))
}

/// The array at a key; empty if there is none.
fn array_at<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The whole text of a message, its parts on separate lines.
fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The tool results of a message, as id and content. A message of the role `tool` without any is a result without an id, which
/// no provider accepts.
fn results_of(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolResult { id, content } => Some((id.as_str(), content.as_str())),
        _ => None,
    })
}

/// True if a message has anything besides tool results.
fn has_own_content(message: &Message) -> bool {
    message.role != Role::Tool
        && (message.parts.is_empty() || message.parts.iter().any(|part| !matches!(part, Part::ToolResult { .. })))
}

/// An id that every provider accepts. The responding provider creates ids, and a conversation may continue with another one,
/// whose rules are narrower.
fn plain_id(id: &str) -> String {
    let plain = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { id.to_owned() } else { format!("call_{}", &blake3::hash(id.as_bytes()).to_hex()[..24]) }
}

/// A tool name that every provider accepts. A model may have called a tool by a name that no tool has.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(plain).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Arguments as an object, for the providers whose wire format requires one. Arguments that are not an object are kept as
/// text, so that the model sees what it wrote.
fn arguments_object(arguments: &str) -> Value {
    match tree::parse_response(arguments) {
        Ok(value @ Value::Object(_)) => value,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "arguments": arguments }),
    }
}

/// Arguments as text, for the providers whose wire format requires that. Some servers parse that text in every request, and
/// refuse a conversation in which it is not an object.
fn arguments_text(arguments: &str) -> String {
    match tree::parse_response(arguments) {
        Ok(Value::Object(_)) => arguments.to_owned(),
        _ => arguments_object(arguments).to_string(),
    }
}

/// The arguments of a call as a provider wrote them: as text, or as the object itself.
fn written_arguments(arguments: Option<&Value>) -> String {
    match arguments {
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => "{}".to_owned(),
    }
}

/// Adds `value` under `key`, if it is present.
fn set(body: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(key.to_owned(), value.into());
    }
}

/// A cache key, under which an OpenAI service keeps the unchanging start of conversations.
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
