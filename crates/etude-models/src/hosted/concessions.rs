//! Changes to a request whose model refuses one of its members, for another attempt.
//!
//! The members that a model accepts are known only from its refusals. Services rename and withdraw members from model to
//! model, and other servers implement the API of their time. A refusal of the value, and not of the member, stays a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use serde_json::Value;

use super::{Call, Hosted};
use crate::dialect::ProviderSchema;
use crate::kind::ProviderKind;
use crate::transport::{Failed, FailedAs};
use crate::wire::Decoded;
use crate::wire::openai_chat::THOUGHTS;

/// A change to the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Concession {
    /// Removes the sampling temperature.
    Temperature,
    /// Renames the limit of the response to its other name.
    LimitName,
    /// Raises the limit of the response to the minimum of the service.
    LeastLimit,
    /// Does not request encrypted reasoning.
    Sealed,
    /// Does not send reasoning back.
    Thoughts,
    /// Marks messages without reasoning as such.
    NoThoughts,
}

use Concession::{LeastLimit, LimitName, NoThoughts, Sealed, Temperature, Thoughts};

/// Minimum `max_output_tokens` of the Responses API.
const LEAST_OUTPUT_TOKENS: u64 = 16;

/// Words of refusals of a member itself.
const UNKNOWN: &[&str] = &[
    "unsupported", "not support", "unrecognized", "unknown", "unexpected", "not permitted", "not allowed",
    "extra inputs", "extra fields", "deprecated", "instead",
];

/// Words of refusals of a value.
const OUT_OF_RANGE: &[&str] = &[
    "range", "between", "greater than", "less than", "at most", "at least", "maximum", "minimum", "exceed", "<=", ">=",
];

impl Concession {
    const ALL: [Self; 6] = [Temperature, LimitName, LeastLimit, Sealed, NoThoughts, Thoughts];

    /// The change that a refusal of `body` requires; `None` if no change helps.
    pub(super) fn asked_by(failed: &Failed, kind: ProviderKind, body: &Value) -> Option<Self> {
        let FailedAs::Rejected(400 | 422) = failed.kind else { return None };
        let message = failed.message.to_lowercase();
        Self::ALL.into_iter().find(|concession| concession.is_asked(&message, kind, body))
    }

    fn is_asked(self, message: &str, kind: ProviderKind, body: &Value) -> bool {
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        match self {
            Temperature => {
                let is_sent = body.get("temperature").or(body.pointer("/generationConfig/temperature")).is_some();
                is_sent && message.contains("temperature") && !says(OUT_OF_RANGE)
            }
            LimitName => {
                let is_chat = !matches!(kind, ProviderKind::Anthropic | ProviderKind::OpenAi | ProviderKind::Gemini);
                let names = ["max_tokens", "max_completion_tokens"];
                let sent = names.iter().find(|name| body.get(**name).is_some());
                is_chat && sent.is_some_and(|name| message.contains(name)) && says(UNKNOWN)
            }
            LeastLimit => {
                let sent = body.get("max_output_tokens").and_then(Value::as_u64);
                message.contains("max_output_tokens") && sent.is_some_and(|sent| sent < LEAST_OUTPUT_TOKENS)
            }
            Sealed => {
                let is_sent = body.get("include").is_some() || items(body).any(|item| item["type"] == "reasoning");
                is_sent && (message.contains("encrypted") || message.contains("include") && says(UNKNOWN))
            }
            NoThoughts => {
                let wanted = message.contains("reasoning_content") && says(&["passed back", "missing"]);
                wanted && responses(body).any(|response| response.get("reasoning_content").is_none())
            }
            Thoughts => {
                let is_sent = |name: &str| responses(body).any(|response| response.get(name).is_some());
                let is_refused = says(UNKNOWN) && THOUGHTS.iter().any(|name| message.contains(name) && is_sent(name));
                // The signature may be of another account, or of another service behind the same address.
                let is_unknown = message.contains("thinking") && says(&["signature", "modified"]);
                is_refused || is_unknown && responses(body).any(has_blocks)
            }
        }
    }

    /// Applies the change to a body.
    pub(super) fn apply(self, body: &mut Value) {
        let Some(members) = body.as_object_mut() else { return };
        match self {
            Temperature => {
                members.shift_remove("temperature");
                if let Some(Value::Object(config)) = members.get_mut("generationConfig") {
                    config.shift_remove("temperature");
                }
            }
            LimitName => {
                let names = [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")];
                for (name, other) in names {
                    if let Some(limit) = members.shift_remove(name) {
                        members.insert(other.to_owned(), limit);
                        break;
                    }
                }
            }
            LeastLimit => {
                members.insert("max_output_tokens".to_owned(), LEAST_OUTPUT_TOKENS.into());
            }
            Sealed => {
                members.shift_remove("include");
                if let Some(Value::Array(items)) = members.get_mut("input") {
                    items.retain(|item| item["type"] != "reasoning");
                }
            }
            NoThoughts | Thoughts => {
                let messages = members.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten();
                let responses =
                    messages.filter(|message| message["role"] == "assistant").filter_map(Value::as_object_mut);
                for response in responses {
                    if self == NoThoughts {
                        response.entry("reasoning_content").or_insert_with(|| "".into());
                    } else {
                        if let Some(Value::Array(blocks)) = response.get_mut("content") {
                            blocks.retain(|block| !is_thought(block));
                        }
                        THOUGHTS.iter().for_each(|name| drop(response.shift_remove(*name)));
                    }
                }
            }
        }
    }

    /// A sentence about the change and the refusal that required it.
    pub(super) fn note(self, failed: &Failed) -> String {
        let what = match self {
            Temperature => "the provider rejected `temperature`, so it was removed",
            LimitName => "the provider rejected the name of the token limit, so the other name is used",
            LeastLimit => "the provider rejected the token limit, so it was raised to 16 tokens",
            Sealed => "the provider rejected encrypted reasoning, so it is no longer requested",
            Thoughts => "the provider rejected reasoning in messages, so it is not sent back",
            NoThoughts => "the provider rejected messages without reasoning, so empty reasoning is sent",
        };
        format!("{what}: {}", failed.message)
    }
}

impl Hosted {
    /// Sends one request, and repeats it without the members that its model refuses.
    pub(super) async fn send(
        &self,
        model: &str,
        call: Call<'_>,
        provider_schema: Option<&ProviderSchema>,
    ) -> Result<(Decoded, Vec<String>), Failed> {
        let known = self.conceded().get(model).cloned().unwrap_or_default();
        let mut conceded = known.clone();
        let mut earlier = Vec::new();
        loop {
            let mut body = self.encode(model, call, provider_schema);
            conceded.iter().for_each(|concession| concession.apply(&mut body));
            match self.send_body(model, call, &body).await {
                Ok((decoded, later)) => {
                    if conceded != known {
                        self.conceded().entry(model.to_owned()).or_default().extend(conceded);
                    }
                    return Ok((decoded, [earlier, later].concat()));
                }
                // An error from a content filter counts as a refusal by the model.
                Err(failed) if failed.kind == FailedAs::Filtered => {
                    return Ok((Decoded::refusal(failed.message), [earlier, failed.earlier].concat()));
                }
                Err(mut failed) => {
                    let concession = Concession::asked_by(&failed, self.kind, &body);
                    earlier.append(&mut failed.earlier);
                    match concession.filter(|concession| conceded.insert(*concession)) {
                        Some(concession) => earlier.push(concession.note(&failed)),
                        None => return Err(Failed { earlier, ..failed }),
                    }
                }
            }
        }
    }

    fn conceded(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<Concession>>> {
        self.conceded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The items of a conversation with the Responses API.
fn items(body: &Value) -> impl Iterator<Item = &Value> {
    body.get("input").and_then(Value::as_array).into_iter().flatten()
}

fn has_blocks(response: &Value) -> bool {
    response.get("content").and_then(Value::as_array).is_some_and(|blocks| blocks.iter().any(is_thought))
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// The messages of the model in a conversation.
fn responses(body: &Value) -> impl Iterator<Item = &Value> {
    let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten();
    messages.filter(|message| message["role"] == "assistant")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CHAT: ProviderKind = ProviderKind::OpenAiCompatible;

    fn asked(status: u16, message: &str, kind: ProviderKind, body: &Value) -> Option<Concession> {
        let failed = Failed {
            kind: FailedAs::Rejected(status),
            message: format!("status {status}: {message}"),
            earlier: Vec::new(),
        };
        Concession::asked_by(&failed, kind, body)
    }

    /// Shortened messages of services.
    #[test]
    fn refusals_of_a_member_are_known_from_those_of_its_value() {
        let warm = json!({"temperature": 0.2, "max_tokens": 9});
        for message in [
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
            "`temperature` is deprecated for this model.",
            "`temperature` may only be set to 1 when thinking is enabled",
            "invalid temperature: only 1 is allowed for this model",
        ] {
            assert_eq!(asked(400, message, CHAT, &warm), Some(Temperature), "{message}");
            assert_eq!(asked(400, message, CHAT, &json!({})), None, "it was not sent");
            assert_eq!(asked(404, message, CHAT, &warm), None);
        }
        let gemini = json!({"generationConfig": {"temperature": 0.2}});
        assert_eq!(asked(400, "temperature is not supported", ProviderKind::Gemini, &gemini), Some(Temperature));
        let limit = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        assert_eq!(asked(400, limit, CHAT, &warm), Some(LimitName));
        assert_eq!(
            asked(
                422,
                "extra inputs are not permitted: max_completion_tokens",
                ProviderKind::OpenAiChat,
                &json!({"max_completion_tokens": 9})
            ),
            Some(LimitName)
        );
        assert_eq!(asked(400, limit, ProviderKind::Anthropic, &warm), None);
        let least =
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 8 instead.";
        assert_eq!(asked(400, least, ProviderKind::OpenAi, &json!({"max_output_tokens": 8})), Some(LeastLimit));
        assert_eq!(asked(400, least, ProviderKind::OpenAi, &json!({"max_output_tokens": 16})), None);
        for message in [
            "temperature: range: 0..1",
            "max_tokens is too large: 99999",
            "`max_tokens` or `max_completion_tokens` is too large",
            "the schema is unsupported",
        ] {
            assert_eq!(asked(400, message, CHAT, &warm), None, "{message}");
        }
    }

    #[test]
    fn refusals_of_thoughts_are_known() {
        let said = |name: &str| json!({"messages": [{"role": "user"}, {"role": "assistant", name: "hm"}]});
        for (name, message) in [
            ("reasoning_content", "property 'messages.1.assistant.reasoning_content' is unsupported"),
            ("reasoning", "for 'role: assistant': property 'reasoning' is unsupported"),
        ] {
            assert_eq!(asked(400, message, CHAT, &said(name)), Some(Thoughts), "{message}");
            assert_eq!(asked(400, message, CHAT, &said("content")), None, "none were sent");
        }
        for message in [
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "Missing `reasoning_content` field in the assistant message at message index 1.",
        ] {
            assert_eq!(asked(400, message, CHAT, &said("content")), Some(NoThoughts), "{message}");
        }
        let sealed = "Encrypted content is not supported with this model.";
        for sent in [json!({"include": []}), json!({"input": [{"type": "reasoning"}]})] {
            assert_eq!(asked(400, sealed, ProviderKind::OpenAi, &sent), Some(Sealed));
        }
        assert_eq!(asked(400, "must include a word", ProviderKind::OpenAi, &json!({"include": []})), None);
        let signed = json!({"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]});
        let invalid = "messages.1.content.0: Invalid `signature` in `thinking` block";
        assert_eq!(asked(400, invalid, ProviderKind::Anthropic, &signed), Some(Thoughts));
        assert_eq!(asked(400, invalid, ProviderKind::Anthropic, &json!({"messages": []})), None);
    }

    #[test]
    fn a_change_is_made_to_the_member_that_was_sent() {
        for (concession, body, changed) in [
            (Temperature, json!({"temperature": 1, "a": 1}), json!({"a": 1})),
            (Temperature, json!({"generationConfig": {"temperature": 1}}), json!({"generationConfig": {}})),
            (LimitName, json!({"max_tokens": 9}), json!({"max_completion_tokens": 9})),
            (LimitName, json!({"max_completion_tokens": 9}), json!({"max_tokens": 9})),
            (LeastLimit, json!({"max_output_tokens": 8}), json!({"max_output_tokens": 16})),
            (
                Sealed,
                json!({"include": [], "input": [{"type": "reasoning"}, {"type": "message"}]}),
                json!({"input": [{"type": "message"}]}),
            ),
            (
                Thoughts,
                json!({"messages": [{"role": "assistant", "content": [{"type": "thinking"}, {"type": "tool_use"}]}]}),
                json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}),
            ),
            (
                Thoughts,
                json!({"messages": [{"role": "assistant", "reasoning": "hm", "content": "a"}]}),
                json!({"messages": [{"role": "assistant", "content": "a"}]}),
            ),
            (
                NoThoughts,
                json!({"messages": [{"role": "user"}, {"role": "assistant"}, {"role": "assistant", "reasoning_content": "hm"}]}),
                json!({"messages": [
                    {"role": "user"}, {"role": "assistant", "reasoning_content": ""},
                    {"role": "assistant", "reasoning_content": "hm"},
                ]}),
            ),
        ] {
            let mut found = body.clone();
            concession.apply(&mut found);
            assert_eq!(found, changed, "{body}");
        }
    }
}
