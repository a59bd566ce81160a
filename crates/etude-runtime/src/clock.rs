//! The time of day, as a number and as text.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Milliseconds since 1970 in UTC.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Now, as RFC 3339 in UTC.
pub fn now_rfc3339() -> String {
    rfc3339(now_ms())
}

/// A time as RFC 3339 in UTC, from milliseconds since 1970.
pub fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// Milliseconds since 1970 of an RFC 3339 time.
pub fn from_rfc3339(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// A time in the user's own zone, to the second.
pub fn local(ms: i64) -> String {
    let Ok(time) = Timestamp::from_millisecond(ms) else { return String::new() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_printed_to_the_millisecond_in_utc() {
        assert_eq!(super::rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(super::from_rfc3339("2023-11-14T22:13:20.123Z"), Some(1_700_000_000_123));
        assert_eq!(super::from_rfc3339("yesterday"), None);
    }
}
