//! Date of a release.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// Current date in UTC, or that of `SOURCE_DATE_EPOCH`, such as `2026-01-31`.
pub(super) fn today() -> String {
    let given = env::var("SOURCE_DATE_EPOCH").ok().and_then(|given| given.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    of_epoch(given.unwrap_or_else(now))
}

/// Gregorian date of a time in seconds since 1970.
fn of_epoch(seconds: u64) -> String {
    let (mut days, mut year) = (seconds / 86_400, 1970);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |year: u64| if is_leap(year) { 366 } else { 365 };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let months = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::of_epoch;

    #[test]
    fn days_are_those_of_the_calendar() {
        let days = [0, 951_782_400, 1_709_251_199, 1_735_689_599, 4_107_542_400].map(of_epoch);
        assert_eq!(days, ["1970-01-01", "2000-02-29", "2024-02-29", "2024-12-31", "2100-03-01"]);
    }
}
