//! Settings and requests of the tests, and responses as each provider writes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::model::{Message, Request, ResponseSchema, Tier};
use etude_models::{ModelId, Models, ProviderKind, ProviderSettings, Secret, Settings, TransportPolicy};
use serde_json::{Value, json};

pub(crate) const KEY: &str = "sk-canary-7f3a9";

/// All kinds that use HTTP.
pub(crate) const HTTP_KINDS: [ProviderKind; 5] = [
    ProviderKind::Anthropic,
    ProviderKind::OpenAi,
    ProviderKind::OpenAiChat,
    ProviderKind::Gemini,
    ProviderKind::OpenAiCompatible,
];

/// A provider named `p` with a key.
pub(crate) fn provider(kind: ProviderKind, url: &str) -> ProviderSettings {
    let mut provider = ProviderSettings::new("p", kind);
    provider.base_url = Some(url.into());
    provider.api_key = Some(Secret::new(KEY));
    provider
}

/// Settings that map `standard` to the model `m` of each provider in turn, with short waits.
pub(crate) fn settings(providers: Vec<ProviderSettings>) -> Settings {
    let ids = providers.iter().map(|provider| ModelId { provider: provider.name.clone(), model: "m".to_owned() });
    Settings {
        mapping: BTreeMap::from([(Tier::Standard, ids.collect())]),
        transport: TransportPolicy { tries: 3, base_wait_ms: 1, max_wait_ms: 5 },
        app_dir: std::env::temp_dir(),
        providers,
        ..Settings::default()
    }
}

pub(crate) fn models(providers: Vec<ProviderSettings>) -> Models {
    Models::new(settings(providers)).expect("the settings hold")
}

pub(crate) fn ask(text: &str) -> Request {
    Request { messages: vec![Message::user(text)], ..Request::default() }
}

pub(crate) fn ask_for(schema: Value) -> Request {
    let schema = ResponseSchema { name: "answer".to_owned(), schema: Arc::new(schema) };
    Request { schema: Some(schema), ..ask("count the words") }
}

/// A response as the provider writes it.
pub(crate) fn response(kind: ProviderKind, text: &str) -> Value {
    match kind {
        ProviderKind::Anthropic => json!({
            "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": text }],
            "stop_reason": "end_turn",
            "usage": { "input_tokens": 10, "output_tokens": 7, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2 },
        }),
        ProviderKind::OpenAi => json!({
            "status": "completed", "error": null,
            "output": [
                { "type": "reasoning", "summary": [] },
                { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] },
            ],
            "usage": {
                "input_tokens": 16, "output_tokens": 7,
                "input_tokens_details": { "cached_tokens": 4 }, "output_tokens_details": { "reasoning_tokens": 3 },
            },
        }),
        ProviderKind::Gemini => json!({
            "candidates": [{
                "content": { "role": "model", "parts": [{ "text": "hm", "thought": true }, { "text": text }] },
                "finishReason": "STOP",
            }],
            "usageMetadata": {
                "promptTokenCount": 16, "candidatesTokenCount": 4, "cachedContentTokenCount": 4, "thoughtsTokenCount": 3,
            },
        }),
        _ => json!({
            "choices": [{ "message": { "role": "assistant", "content": text, "refusal": null }, "finish_reason": "stop" }],
            "usage": {
                "prompt_tokens": 16, "completion_tokens": 7, "prompt_tokens_details": { "cached_tokens": 4 },
                "completion_tokens_details": { "reasoning_tokens": 3 },
            },
        }),
    }
}
