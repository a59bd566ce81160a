//! Retry policies: the wait grows from `interval_sec` by `backoff` up to `max_interval_sec`, without variation.

use etude_spec::yaml::Entries;
use serde_json::{Value, json};

use super::super::text_of;
use super::{field, list, snake};

const KNOWN: [&str; 5] = ["limit", "interval_sec", "exit_code", "backoff", "max_interval_sec"];

/// Maximum number of retries, maximum factor, and maximum wait in seconds of a code step.
const MAX_RETRIES: u64 = 1_000;
const MAX_FACTOR: f64 = 100.0;
const MAX_SECONDS: f64 = 315_360_000.0;

/// Default of `max_backoff`, in seconds.
const DEFAULT_MAX: f64 = 30.0;

/// Retry policy as `retry` of a code step.
///
/// # Errors
/// The part that has no exact equivalent.
pub(super) fn convert(policy: &Entries<'_>) -> Result<Value, String> {
    let names = || policy.0.iter().filter_map(|(key, _)| key.as_text());
    if let Some(other) = names().find(|name| !KNOWN.contains(&snake(name).as_str())) {
        return Err(format!("`{other}` of its retry policy has no equivalent"));
    }
    let lost = |name: &str| format!("`{name}` of its retry policy has no exact equivalent");
    let number = |name: &str| match field(policy, name) {
        None => Ok(None),
        Some(node) => text_of(node).and_then(|text| text.parse::<u64>().ok()).map(Some).ok_or_else(|| lost(name)),
    };
    let limit = number("limit")?.filter(|limit| *limit <= MAX_RETRIES).ok_or_else(|| lost("limit"))?;
    let interval = number("interval_sec")?.unwrap_or(0);
    let factor = match field(policy, "backoff").map(|node| text_of(node).unwrap_or_default()).as_deref() {
        None | Some("false" | "0") => 1.0,
        Some("true") => 2.0,
        Some(other) => {
            let factor = other.parse::<f64>().ok().filter(|factor| *factor > 1.0 && *factor <= MAX_FACTOR);
            factor.ok_or_else(|| lost("backoff"))?
        }
    };
    let grown = interval as f64 * factor.powf(limit.saturating_sub(1) as f64);
    // Without `backoff` the wait does not grow, and Dagu does not use its limit.
    let longest = number("max_interval_sec")?.filter(|max| *max > 0 && factor > 1.0);
    let longest = longest.map_or(grown, |max| grown.min(max as f64));
    if longest > MAX_SECONDS {
        return Err(lost("backoff"));
    }
    let mut retry = json!({"max": limit, "backoff": format!("{interval}s"), "factor": 1, "jitter": false});
    if factor > 1.0 {
        retry["factor"] = json!(factor);
    }
    if longest > DEFAULT_MAX || longest < grown {
        retry["max_backoff"] = json!(format!("{}s", longest.ceil()));
    }
    let statuses: Vec<String> = list(field(policy, "exit_code"));
    let is_listed = field(policy, "exit_code").is_some();
    let on: Vec<u8> = statuses.iter().filter_map(|status| status.parse().ok()).filter(|status| *status > 0).collect();
    if is_listed && (on.is_empty() || on.len() < statuses.len()) {
        return Err(lost("exit_code"));
    }
    if is_listed {
        retry["on"] = json!(on);
    }
    Ok(retry)
}
