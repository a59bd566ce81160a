//! Events of system B, without secrets and with texts of bounded length (`b-stages` §16, §17).

use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use crate::data::Json;
use crate::machine::Cx;
use crate::report::Event;

/// Maximum length of a text in an event, in bytes (B-IS3).
const MAX_LENGTH: usize = 64 * 1024;

/// Emits an event.
pub(super) fn emit(cx: &mut Cx, name: &'static str, mut payload: Value) {
    clean(&mut payload);
    cx.emit(Event::Stage { name, payload: Json::of(&payload) });
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(cleaned) = cleaned(text) {
                *text = cleaned;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        _ => {}
    }
}

/// The text with key-shaped parts redacted, cut to the maximum length; `None` if it stays unchanged.
fn cleaned(text: &str) -> Option<String> {
    let without = keys().map(|keys| keys.replace_all(text, "<redacted>"));
    let without = without.as_deref().unwrap_or(text);
    if without.len() <= MAX_LENGTH {
        return (without != text).then(|| without.to_owned());
    }
    let end = without.floor_char_boundary(MAX_LENGTH);
    Some(format!("{}… [cut, {} bytes in all]", &without[..end], without.len()))
}

/// Pattern of the keys of well-known services.
fn keys() -> Option<&'static Regex> {
    static KEYS: OnceLock<Option<Regex>> = OnceLock::new();
    let forms = r"\b(?:sk-[A-Za-z0-9_-]{6,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,})";
    KEYS.get_or_init(|| Regex::new(forms).ok()).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// B-IS3: key-shaped texts are redacted and long ones are cut, anywhere in the payload.
    #[test]
    fn events_hold_neither_keys_nor_endless_texts() {
        let mut payload = json!({"parsed": {"a": ["use sk-abc123 now"], "long": "é".repeat(40_000)}, "n": 1});
        clean(&mut payload);
        assert_eq!(payload["parsed"]["a"][0], "use <redacted> now");
        let long = payload["parsed"]["long"].as_str().unwrap_or_default();
        assert!(long.len() < MAX_LENGTH + 64 && long.ends_with("[cut, 80000 bytes in all]"), "{}", long.len());
        assert_eq!(cleaned("risk-free task-list"), None);
    }
}
