//! Timing of schedules: patterns, time zones and the instants that they name.
//!
//! All functions here are pure. Instants are milliseconds since 1970 in UTC.

mod cron;
#[cfg(test)]
mod tests;
mod words;

pub use cron::{Cron, CronError};
pub use words::{interval, words};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Minimum interval of `every`, in milliseconds.
pub const MIN_INTERVAL_MS: u64 = 1_000;

/// Times of a schedule, without its policies.
#[derive(Debug, Clone, PartialEq)]
pub enum Timing {
    /// The times of a cron pattern in a time zone.
    Cron(Cron, TimeZone),
    /// Each multiple of an interval, in milliseconds, counted from midnight UTC.
    Every(u64),
}

impl Timing {
    /// The first `max` ticks with `after < tick <= until`, oldest first.
    pub fn between(&self, after_ms: i64, until_ms: i64, max: usize) -> Vec<i64> {
        match self {
            Self::Every(interval) => {
                let interval = i64::try_from(*interval).unwrap_or(i64::MAX);
                let first = after_ms.div_euclid(interval).saturating_add(1);
                let ticks = (first..).map_while(|count| count.checked_mul(interval));
                ticks.take_while(|at| *at <= until_ms).take(max).collect()
            }
            Self::Cron(cron, zone) => cron.between(zone, after_ms, until_ms, max),
        }
    }

    /// The newest `max` ticks with `after < tick <= until`, oldest first.
    pub fn newest(&self, after_ms: i64, until_ms: i64, max: usize) -> Vec<i64> {
        // The window grows from the end, because the beginning may be far away.
        let mut width = 60_000_i64;
        loop {
            let from = until_ms.saturating_sub(width).max(after_ms);
            let mut ticks = self.between(from, until_ms, usize::MAX);
            if ticks.len() >= max || from <= after_ms {
                return ticks.split_off(ticks.len().saturating_sub(max));
            }
            width = width.saturating_mul(8);
        }
    }

    /// The first tick after an instant; `None` if there is none within ten years.
    pub fn next(&self, after_ms: i64) -> Option<i64> {
        self.between(after_ms, after_ms.saturating_add(TEN_YEARS_MS), 1).first().copied()
    }

    /// Day of an instant, as `YYYY-MM-DD`, in the schedule's zone or in UTC.
    pub fn date(&self, at_ms: i64) -> String {
        let zone = match self {
            Self::Cron(_, zone) => zone.clone(),
            Self::Every(_) => TimeZone::UTC,
        };
        local(at_ms, &zone).map(|time| time.date().to_string()).unwrap_or_default()
    }
}

const TEN_YEARS_MS: i64 = 3_653 * 24 * 60 * 60 * 1_000;

/// Looks up a time zone: a name of the IANA database, `UTC`, or `local` for the machine's own.
pub fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" => Some(TimeZone::UTC),
        "local" => Some(TimeZone::system()),
        // A POSIX string or an offset does not count as a name.
        name if name.starts_with(|c: char| c.is_ascii_alphabetic()) => TimeZone::get(name).ok(),
        _ => None,
    }
}

fn local(at_ms: i64, zone: &TimeZone) -> Option<Zoned> {
    Timestamp::from_millisecond(at_ms).ok().map(|at| at.to_zoned(zone.clone()))
}
