//! Decoding of provider bytes without a provider, for tests with bytes that no provider would send.

use etude_core::model::{Message, Part, Request, ResponseSchema, Role, Stop, Tier, ToolCall};
use etude_core::tree;

use crate::dialect::{self, Dialect, Reversal};
use crate::kind::ProviderKind;
use crate::wire::stream::{self, Body, Reader};
use crate::wire::{DecodeError, Decoded, decode};

/// A response decoded from a provider's bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedCompletion {
    /// The text of the response, without tool calls and reasoning.
    pub text: String,
    /// Tool calls that the model requests.
    pub tool_calls: Vec<ToolCall>,
    /// The reason why the response ended.
    pub stop: Stop,
}

/// Decodes the body of a complete response.
///
/// # Errors
/// The body is not a response. The error gives the reason.
pub fn read_completion(kind: ProviderKind, body: &[u8]) -> Result<DecodedCompletion, String> {
    let value = tree::parse_response(body).map_err(|error| error.to_string())?;
    decoded_completion(decode(kind, &value, &request()))
}

/// Decodes a streamed response, and emits its text as it comes.
///
/// # Errors
/// The stream is not a response. The error gives the reason.
pub fn read_stream<'b>(
    kind: ProviderKind,
    pieces: impl IntoIterator<Item = &'b [u8]>,
    emit: &mut (dyn FnMut(&str) + Send),
) -> Result<DecodedCompletion, String> {
    let mut reader = Reader::new(stream::assembler(kind));
    for piece in pieces {
        if reader.push(piece, &mut *emit).map_err(|broken| format!("{broken:?}"))? {
            break;
        }
    }
    match reader.end(emit).map_err(|broken| format!("{broken:?}"))? {
        Body::Whole(body) => read_completion(kind, &body),
        Body::Assembled(value) => decoded_completion(decode(kind, &value, &request())),
    }
}

/// Prepares a schema for a provider of `kind`, and converts responses to it back into the form of the schema.
pub fn prepare_schema(kind: ProviderKind, schema: &ResponseSchema, responses: &[&str]) -> Vec<String> {
    let prepared = dialect::prepare(schema, Dialect::of(kind));
    let back = |reversal: &Reversal| responses.iter().map(|text| reversal.apply((*text).to_owned())).collect();
    back(&prepared.reversal)
}

/// Reads a file of recordings and returns their number.
///
/// # Errors
/// The file is invalid. The error is a sentence about the first fault.
pub fn check_recording(text: &str) -> Result<usize, String> {
    crate::recorded::check(text)
}

fn decoded_completion(decoded: Result<Decoded, DecodeError>) -> Result<DecodedCompletion, String> {
    let Decoded { text, tool_calls, stop, .. } = decoded.map_err(|error| format!("{error:?}"))?;
    Ok(DecodedCompletion { text, tool_calls, stop })
}

fn request() -> Request {
    Request {
        tier: Tier::Standard,
        system: None,
        messages: vec![Message { role: Role::User, parts: vec![Part::Text("hello".to_owned())] }],
        schema: None,
        tools: Vec::new(),
        must_call: None,
        temperature: None,
        max_tokens: None,
        cache_prompt: false,
    }
}
