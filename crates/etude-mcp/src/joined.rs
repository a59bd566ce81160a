//! Runs whose call ended before they did. An equal call joins such a run instead of starting another one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::catalog::Target;

/// Time in which an equal call joins a run.
const JOIN: Duration = Duration::from_secs(600);

/// Maximum nesting of arguments whose members are sorted.
const MAX_DEPTH: usize = 32;

/// Hash of caller, tool and arguments of a call.
pub(crate) type Key = [u8; 32];

/// The runs of calls that ended without a result.
#[derive(Debug, Default)]
pub struct Unfinished {
    runs: Mutex<BTreeMap<Key, (String, Instant)>>,
}

impl Unfinished {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<Key, (String, Instant)>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|_, (_, at)| at.elapsed() < JOIN);
        runs
    }

    /// Takes the run that an equal call joins.
    pub(crate) fn take(&self, key: &Key) -> Option<String> {
        self.runs().remove(key).map(|(run_id, _)| run_id)
    }

    pub(crate) fn leave(&self, key: Key, run_id: &str) {
        self.runs().insert(key, (run_id.to_owned(), Instant::now()));
    }
}

/// The key of a call. The order of its arguments does not matter. Numbers are compared by their digits: two ids are two runs.
pub(crate) fn key(caller: &str, target: &Target, arguments: &str) -> Key {
    let whole =
        serde_json::json!([caller, target.app, target.kind, target.of, sorted(arguments, MAX_DEPTH)]).to_string();
    *blake3::hash(whole.as_bytes()).as_bytes()
}

/// JSON with sorted members and without blanks. Values below `depth`, and invalid ones, stay as they are written.
fn sorted(text: &str, depth: usize) -> String {
    let text = text.trim();
    let inner = |value: &RawValue| sorted(value.get(), depth - 1);
    let ordered = match text.as_bytes().first() {
        Some(b'{') if depth > 0 => serde_json::from_str(text).map(|members: BTreeMap<String, &RawValue>| {
            let members = members.into_iter().map(|(name, value)| format!("{}:{}", Value::from(name), inner(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }),
        Some(b'[') if depth > 0 => serde_json::from_str(text)
            .map(|items: Vec<&RawValue>| format!("[{}]", items.into_iter().map(inner).collect::<Vec<_>>().join(","))),
        Some(b'"') => serde_json::from_str(text).map(|text: String| Value::from(text).to_string()),
        _ => return text.to_owned(),
    };
    ordered.unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of members and the blanks between them do not change a call; each digit of a number does.
    #[test]
    fn equal_arguments_are_one_call() {
        let text = |arguments: &str| sorted(arguments, MAX_DEPTH);
        assert_eq!(
            text(r#" {"b": [1, {"d": "\u0078", "c": null}], "a": 1} "#),
            r#"{"a":1,"b":[1,{"c":null,"d":"x"}]}"#
        );
        let id = |id: &str| text(&format!(r#"{{"id": {id}}}"#));
        assert_ne!(id("123456789012345678901"), id("123456789012345678902"));
        assert_ne!(text(r#"["a,b"]"#), text(r#"["a","b"]"#));
    }

    /// Arguments of any depth make a key text that does not exceed their own length.
    #[test]
    fn deep_arguments_stay_small() {
        let deep = format!("{}{{\"b\":1,\"a\":2}}{}", "[".repeat(300), "]".repeat(300));
        assert!(sorted(&deep, MAX_DEPTH).len() <= deep.len());
    }
}
