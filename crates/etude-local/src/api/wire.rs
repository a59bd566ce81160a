//! Bodies of requests in their wire format.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The body of `POST /v1/chat/completions`. Members that a local model cannot use are ignored.
#[derive(Deserialize)]
pub(super) struct Body {
    pub(super) messages: Vec<WireMessage>,
    #[serde(default)]
    pub(super) tools: Option<Vec<WireTool>>,
    #[serde(default)]
    pub(super) tool_choice: Value,
    #[serde(default)]
    pub(super) response_format: Value,
    pub(super) temperature: Option<f64>,
    pub(super) max_tokens: Option<u32>,
    pub(super) max_completion_tokens: Option<u32>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub(super) stop: Value,
    pub(super) seed: Option<i64>,
    pub(super) n: Option<u32>,
    pub(super) logprobs: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    pub(super) include_usage: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct WireMessage {
    pub(super) role: String,
    #[serde(default)]
    pub(super) content: Value,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<WireCall>>,
    #[serde(default)]
    pub(super) tool_call_id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireCall {
    #[serde(default)]
    pub(super) id: String,
    pub(super) function: WireFunction,
}

#[derive(Deserialize)]
pub(super) struct WireFunction {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: String,
}

#[derive(Deserialize)]
pub(super) struct WireTool {
    pub(super) function: WireDeclaration,
}

#[derive(Deserialize)]
pub(super) struct WireDeclaration {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) parameters: Option<Value>,
}

/// The body of `POST /v1/embeddings`.
#[derive(Deserialize)]
pub(super) struct EmbeddingBody {
    pub(super) input: Input,
    #[serde(default)]
    pub(super) encoding_format: Option<String>,
    #[serde(default)]
    pub(super) dimensions: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Input {
    Text(String),
    Texts(Vec<String>),
    Other(IgnoredAny),
}
