//! Runs whose call ended before they did. An equal call joins such a run instead of starting another.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::catalog::Target;

/// How long an equal call joins a run.
const JOIN: Duration = Duration::from_secs(600);

/// Caller, tool and arguments of a call, hashed.
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

    /// The run that an equal call joins.
    pub(crate) fn take(&self, key: &Key) -> Option<String> {
        self.runs().remove(key).map(|(run_id, _)| run_id)
    }

    pub(crate) fn leave(&self, key: Key, run_id: &str) {
        self.runs().insert(key, (run_id.to_owned(), Instant::now()));
    }
}

/// The key of a call. The order of its arguments does not matter.
pub(crate) fn key(caller: &str, target: &Target, arguments: &str) -> Key {
    let sorted = serde_json::from_str::<Value>(arguments).map_or_else(|_| arguments.to_owned(), |value| sorted(&value));
    let whole = serde_json::json!([caller, target.app, target.kind, target.of, sorted]).to_string();
    *blake3::hash(whole.as_bytes()).as_bytes()
}

fn sorted(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<&String, String> =
                members.iter().map(|(name, value)| (name, sorted(value))).collect();
            format!("{members:?}")
        }
        Value::Array(items) => format!("{:?}", items.iter().map(sorted).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}
