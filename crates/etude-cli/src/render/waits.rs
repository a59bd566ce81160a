//! Waits of the transport between two attempts at a model call.

use std::collections::BTreeMap;

use etude_core::effect::EffectId;
use etude_core::model::TransportWait;
use etude_core::report::duration;
use serde_json::{Value, json};

use super::fan_out::counted;
use super::layout::clip;
use super::text::harmless;

/// Number of waits shown, by step: a fan-out against a busy provider has many.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<String, u32>);

impl Waits {
    /// Line about a wait: the call, and `429, next attempt in 2 s (2 of 5)`. `None` after many of one step.
    pub(super) fn line(
        &mut self,
        effect: &EffectId,
        wait: &TransportWait,
        is_verbose: bool,
    ) -> Option<(String, String)> {
        let call = effect.as_str().split_once('/').map_or(effect.as_str(), |(_, rest)| rest);
        let step = call.split(['/', '#', '[', '!']).next().unwrap_or(call);
        let TransportWait { status, reason, wait_ms, attempt, max_attempts } = wait;
        let what = status.map_or_else(|| clip(reason, 200), |status| status.to_string());
        let text = || format!("{what}, next attempt in {} ({attempt} of {max_attempts})", duration(*wait_ms));
        let shown = self.0.entry(step.to_owned()).or_default();
        let text = if is_verbose { Some(text()) } else { counted(shown, "waits", text) };
        text.map(|text| (harmless(call), text))
    }
}

/// Members of the event `transport_retry`.
pub(super) fn json(effect: &EffectId, wait: &TransportWait) -> Value {
    json!({
        "effect": effect.as_str(),
        "status": wait.status,
        "reason": wait.reason,
        "wait_ms": wait.wait_ms,
        "attempt": wait.attempt,
        "max_attempts": wait.max_attempts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(status: Option<u16>) -> TransportWait {
        let reason = "the connection to http://h/\u{1b}[31m was lost".to_owned();
        TransportWait { status, reason, wait_ms: 2_000, attempt: 2, max_attempts: 5 }
    }

    /// a wait is one line with the status, or with the reason if no response came.
    #[test]
    fn waits_of_the_transport_are_lines() {
        let mut waits = Waits::default();
        let mut line = |status, id: &str| {
            let (call, text) = waits.line(&EffectId::new(id), &wait(status), false).expect("a line");
            format!("{call} {text}")
        };
        assert_eq!(line(Some(429), "p/each[3]#1"), "each[3]#1 429, next attempt in 2 s (2 of 5)");
        let lost = line(None, "p/ask");
        assert!(lost.ends_with(" was lost, next attempt in 2 s (2 of 5)") && !lost.contains('\u{1b}'), "{lost}");
    }

    /// a fan-out against a busy provider does not fill the screen.
    #[test]
    fn waits_of_a_fan_out_are_bounded() {
        let mut waits = Waits::default();
        let mut count = |is_verbose| {
            let effects = (0..100).map(|element| EffectId::new(format!("p/each[{element}]")));
            effects.filter_map(|effect| waits.line(&effect, &wait(Some(429)), is_verbose)).count()
        };
        assert_eq!((count(false), count(false), count(true)), (20, 0, 100));
    }
}
