//! OpenAI's embeddings API.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::wire::{EmbeddingBody, Input};

/// Maximum number of texts in one request, as in OpenAI's API.
const MAX_TEXTS: usize = 2048;

/// A request for vectors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EmbeddingRequest {
    pub(crate) texts: Vec<String>,
    /// True to send vectors as base64 of little-endian 32-bit numbers instead of lists.
    pub(crate) is_base64: bool,
}

/// Vectors in the order of their texts.
#[derive(Debug)]
pub(crate) struct Vectors {
    pub(crate) rows: Vec<Vec<f32>>,
    pub(crate) tokens: usize,
}

/// Parses the body of a request. The error is the reason for status 400.
pub(crate) fn decode_embedding(body: &[u8]) -> Result<EmbeddingRequest, String> {
    let body: EmbeddingBody =
        serde_json::from_slice(body).map_err(|error| format!("the body is not a valid embedding request: {error}"))?;
    let texts = match body.input {
        Input::Text(text) => vec![text],
        Input::Texts(texts) => texts,
        Input::Other(_) => return Err("`input` must be a text or a list of texts".into()),
    };
    if texts.is_empty() || texts.len() > MAX_TEXTS || texts.iter().any(String::is_empty) {
        return Err(format!("`input` must have 1 to {MAX_TEXTS} texts, none of them empty"));
    }
    if !body.dimensions.is_null() {
        return Err("`dimensions` is not supported".into());
    }
    let is_base64 = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => return Err(format!("`encoding_format` must not be `{other}`")),
    };
    Ok(EmbeddingRequest { texts, is_base64 })
}

/// The body of a response.
pub(crate) fn embeddings(model: &str, vectors: &Vectors, is_base64: bool) -> Value {
    let data = vectors.rows.iter().enumerate().map(|(index, row)| {
        let embedding = match is_base64 {
            true => json!(STANDARD.encode(row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())),
            false => json!(row),
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    let usage = json!({"prompt_tokens": vectors.tokens, "total_tokens": vectors.tokens});
    json!({"object": "list", "data": data.collect::<Vec<_>>(), "model": model, "usage": usage})
}
