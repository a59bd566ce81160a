//! Waits before the next attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{HeaderMap, HeaderName};

use super::policy::TransportPolicy;

/// Factor on the waits for a busy provider: limits and overloads last many seconds.
const BUSY_FACTOR: u64 = 4;

/// A random part of the doubled wait, so that clients that failed together do not return together. A busy provider gets at
/// least half of a longer wait.
fn wait(policy: &TransportPolicy, failed_tries: u32, is_busy: bool) -> Duration {
    let doublings = failed_tries.saturating_sub(1).min(20);
    let base = policy.base_wait_ms.saturating_mul(if is_busy { BUSY_FACTOR } else { 1 });
    let longest = base.saturating_mul(1 << doublings).min(policy.max_wait_ms);
    let least = if is_busy { longest / 2 } else { 0 };
    // The keys of a `RandomState` differ with every instance, which is random enough for this.
    let random = RandomState::new().hash_one(failed_tries);
    Duration::from_millis(least + random % (longest - least + 1))
}

/// The wait before the next attempt: the one that the provider asked for, or else [`wait`]. A provider that asks for none gets
/// the waits of one that is not busy, so that its failure does not use up all attempts at once.
pub(super) fn next(policy: &TransportPolicy, failed_tries: u32, is_busy: bool, asked: Option<Duration>) -> Duration {
    match asked {
        Some(asked) if !asked.is_zero() => asked,
        Some(_) => wait(policy, failed_tries, false),
        None => wait(policy, failed_tries, is_busy),
    }
}

/// The wait that a provider asks for: `retry-after-ms`, or `retry-after` in seconds or as a date.
pub(super) fn asked(headers: &HeaderMap, policy: &TransportPolicy, now: Timestamp) -> Option<Duration> {
    let text = |name: &'static str| headers.get(HeaderName::from_static(name))?.to_str().ok().map(str::trim);
    let ms = match text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        Some(ms) => ms,
        None => {
            let after = text("retry-after")?;
            match after.parse::<f64>() {
                Ok(seconds) => seconds * 1000.0,
                Err(_) => date(after)?.duration_since(now).as_millis_f64(),
            }
        }
    };
    // A float becomes the nearest integer in range: a date in the past means 0, and a huge number is the longest one.
    ms.is_finite().then(|| Duration::from_millis((ms as u64).min(policy.max_wait_ms)))
}

fn date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

/// True if the provider says that another attempt is pointless.
pub(super) fn forbids(headers: &HeaderMap) -> bool {
    headers.get("x-should-retry").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), (*value).parse().expect("a header value")))
            .collect()
    }

    /// each form of `Retry-After` is read.
    #[test]
    fn every_form_of_retry_after_is_read() {
        let policy = TransportPolicy::default();
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().expect("a time");
        type Case = (&'static [(&'static str, &'static str)], Option<u64>);
        let cases: &[Case] = &[
            (&[], None),
            (&[("retry-after", "2")], Some(2_000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "7"), ("retry-after-ms", "30")], Some(30)),
            (&[("retry-after", "Sat, 21 Nov 2026 08:00:09 GMT")], Some(9_000)),
            (&[("retry-after", "Sat, 21 Nov 2026 07:00:00 GMT")], Some(0)),
            (&[("retry-after", "3600")], Some(60_000)),
            (&[("retry-after", "-3")], Some(0)),
            (&[("retry-after", "soon")], None),
        ];
        for (pairs, expected) in cases {
            let pairs: Vec<_> = pairs.to_vec();
            assert_eq!(asked(&headers(&pairs), &policy, now), expected.map(Duration::from_millis), "{pairs:?}");
        }
    }

    #[test]
    fn waits_double_and_stay_below_the_longest() {
        let policy = TransportPolicy { base_wait_ms: 100, max_wait_ms: 350, ..TransportPolicy::default() };
        for (failed, longest) in [(1, 100), (2, 200), (3, 350), (60, 350)] {
            for _ in 0..50 {
                assert!(wait(&policy, failed, false) <= Duration::from_millis(longest));
            }
        }
    }

    /// five attempts at an overloaded provider are spread over many seconds.
    #[test]
    fn a_busy_provider_is_left_alone_for_longer() {
        let policy = TransportPolicy::default();
        for (failed, least, longest) in [(1, 1_000, 2_000), (2, 2_000, 4_000), (4, 8_000, 16_000), (60, 30_000, 60_000)]
        {
            for _ in 0..50 {
                let wait = wait(&policy, failed, true).as_millis();
                assert!((least..=longest).contains(&wait), "{failed}: {wait}");
            }
        }
    }

    /// `Retry-After: 0` does not use up all attempts at once.
    #[test]
    fn a_provider_that_asks_for_no_wait_gets_the_usual_one() {
        let policy = TransportPolicy::default();
        let waits = |asked: Option<u64>| {
            (0..50)
                .map(move |_| next(&policy, 1, true, asked.map(Duration::from_millis)).as_millis())
                .max()
                .unwrap_or(0)
        };
        assert_eq!(waits(Some(30)), 30);
        assert!((1..=500).contains(&waits(Some(0))), "{}", waits(Some(0)));
        assert!((1_000..=2_000).contains(&waits(None)), "{}", waits(None));
    }

    #[test]
    fn a_provider_can_forbid_another_attempt() {
        assert!(forbids(&headers(&[("x-should-retry", "false")])));
        assert!(!forbids(&headers(&[("x-should-retry", "true")])));
        assert!(!forbids(&headers(&[])));
    }
}
