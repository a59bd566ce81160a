//! Events of chains: invocations, their middleware, and the messages of middleware.

use std::time::Duration;

use etude_runtime::driver::{MiddlewareEvent, MiddlewareEventKind};
use serde_json::{Value, json};

use super::text::harmless;

/// Log levels in ascending importance; `silent` is above all messages.
pub(crate) use etude_spec::cascade::log::LEVELS;

/// Index of `debug` in [`LEVELS`].
pub(crate) const DEBUG: usize = 1;

/// Index of `info` in [`LEVELS`].
pub(crate) const INFO: usize = 2;

/// Index of that word in [`LEVELS`].
pub(crate) fn named_level(word: &str) -> Option<usize> {
    LEVELS.iter().position(|known| *known == word)
}

/// Index of a message's level in [`LEVELS`]; unknown words count as `info`.
pub(crate) fn level(word: &str) -> usize {
    named_level(word).unwrap_or(INFO)
}

/// Milliseconds, rounded to the microsecond: most middleware takes less than one millisecond.
pub(crate) fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

/// Name and members of the event.
pub(crate) fn event(middleware_event: &MiddlewareEvent) -> (&'static str, Value) {
    let (tool, serves) = (&middleware_event.tool, &middleware_event.serves);
    match &middleware_event.what {
        MiddlewareEventKind::Started => ("invocation_started", json!({"tool": tool, "serves": serves})),
        MiddlewareEventKind::Ended { took, error } => {
            let (took, error) = (millis(*took), error.as_ref().map(|(_, why)| why));
            ("invocation_ended", json!({"tool": tool, "serves": serves, "duration_ms": took, "error": error}))
        }
        MiddlewareEventKind::Log { level, text } => ("log", json!({"tool": tool, "level": level, "text": text})),
        MiddlewareEventKind::Emitted { event } => {
            ("emitted", json!({"tool": tool, "emitted": serde_json::from_str::<Value>(event).unwrap_or_default()}))
        }
        MiddlewareEventKind::Stderr { text } => ("stderr", json!({"tool": tool, "text": text})),
    }
}

/// Human-readable line of an event; `None` if it is not important enough.
pub(crate) fn line(middleware_event: &MiddlewareEvent) -> Option<String> {
    let tool = harmless(&middleware_event.tool);
    let serves =
        middleware_event.serves.as_deref().map(|served| format!(" for {}", harmless(served))).unwrap_or_default();
    match &middleware_event.what {
        MiddlewareEventKind::Started => None,
        MiddlewareEventKind::Ended { took, error } => {
            let why = error.as_ref().map(|(_, why)| format!(": {}", harmless(why))).unwrap_or_default();
            let word = if error.is_some() { "failed" } else { "passed" };
            Some(format!("    {word} {tool}{serves} after {:.1} ms{why}", millis(*took)))
        }
        MiddlewareEventKind::Log { level: word, text } => {
            (level(word) >= INFO).then(|| format!("    {}: {tool}: {}", harmless(word), harmless(text)))
        }
        MiddlewareEventKind::Emitted { .. } => None,
        MiddlewareEventKind::Stderr { text } => {
            let text = harmless(text.trim_end());
            let lines: Vec<String> = text.lines().map(|line| format!("    {tool} | {line}")).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        }
    }
}
