//! Cron patterns with five fields, and the times that they match.

use std::collections::BTreeSet;

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::local;

/// A pattern of minute, hour, day of the month, month and day of the week.
///
/// A time without `*` or `/` in minute and hour is fixed. In a gap of the clock it ticks right after the gap, and of
/// two equal times on the clock it takes the first. All other patterns follow real time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
    weekdays: Weekdays,
    /// True if both day and weekday are limited: then one of them is enough.
    is_either: bool,
    is_fixed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Days {
    set: u64,
    is_last: bool,
    /// `15W`: the weekday (Monday to Friday) nearest to the 15th, in the same month.
    near: u64,
    is_last_workday: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Weekdays {
    set: u64,
    /// `5#2`: the second Friday. Each pair once.
    nth: Vec<(i8, i8)>,
    /// `5L`: the last Friday.
    last: u64,
}

/// Reason why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The pattern does not have five fields.
    #[error("it has {0} fields; a pattern has five: minute, hour, day, month, weekday")]
    Fields(usize),
    /// The pattern begins with `@` but is not a known nickname.
    #[error("`{0}` is not `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`")]
    Nickname(String),
    /// A part of a field is invalid.
    #[error("the {field} cannot be `{part}`; {range}")]
    Part {
        /// The part as written.
        part: String,
        /// The field's name.
        field: &'static str,
        /// Valid values of the field, for the message.
        range: &'static str,
    },
    /// No date matches.
    #[error("no date matches the pattern")]
    Never,
}

struct Field {
    name: &'static str,
    range: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", range: "minutes are 0 to 59", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", range: "hours are 0 to 23", min: 0, max: 23, names: &[] };
const DAY: Field = Field { name: "day", range: "days are 1 to 31, `L`, `LW` and `15W`", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    range: "months are 1 to 12 or `JAN` to `DEC`",
    min: 1,
    max: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
const WEEKDAY: Field = Field {
    name: "weekday",
    range: "weekdays are 0 to 7 or `SUN` to `SAT`, `5L` and `5#2`",
    min: 0,
    max: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};

impl Cron {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A field is invalid, or no date matches.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let text = text.trim().to_ascii_uppercase();
        let whole = expanded(&text).ok_or_else(|| CronError::Nickname(text.to_ascii_lowercase()))?;
        let fields: Vec<&str> = whole.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(CronError::Fields(fields.len()));
        };
        let has_star = |field: &str| field.starts_with('*');
        let cron = Self {
            minutes: MINUTE.set(minute)?,
            hours: HOUR.set(hour)?,
            days: Days::parse(day)?,
            months: MONTH.set(month)?,
            weekdays: Weekdays::parse(weekday)?,
            is_either: !has_star(day) && !has_star(weekday),
            is_fixed: !format!("{minute}{hour}").contains(['*', '/']),
        };
        // Combinations of date and weekday repeat every 28 years, except across a century without a leap day.
        let first = jiff::civil::date(2000, 1, 1);
        let has_date = first.series(jiff::Span::new().days(1)).take(28 * 366).any(|date| cron.has_date(date));
        if has_date { Ok(cron) } else { Err(CronError::Never) }
    }

    /// The first `max` ticks with `after < tick <= until`, oldest first.
    pub(super) fn between(&self, zone: &TimeZone, after_ms: i64, until_ms: i64, max: usize) -> Vec<i64> {
        let (Some(after), Some(until)) = (local(after_ms, zone), local(until_ms, zone)) else { return Vec::new() };
        let mut ticks = Vec::new();
        // A clock change moves a tick by at most a day.
        let Ok(mut date) = after.date().yesterday() else { return ticks };
        let last = until.date().tomorrow().unwrap_or(Date::MAX);
        let mut newest = after_ms;
        while date <= last && ticks.len() < max {
            if self.has_date(date) {
                let of_day = self.on(date, zone);
                ticks.extend(of_day.into_iter().filter(|at| *at > newest && *at <= until_ms));
                newest = ticks.last().copied().unwrap_or(newest);
            }
            let Ok(next) = self.after(date) else { break };
            date = next;
        }
        ticks.truncate(max);
        ticks
    }

    /// The next day to check: months that do not match are skipped.
    fn after(&self, date: Date) -> Result<Date, jiff::Error> {
        match self.months & (1 << date.month()) {
            0 => date.last_of_month().tomorrow(),
            _ => date.tomorrow(),
        }
    }

    /// Ticks of one day, sorted and without duplicates.
    fn on(&self, date: Date, zone: &TimeZone) -> BTreeSet<i64> {
        let mut ticks = BTreeSet::new();
        for hour in (0..24_i8).filter(|hour| self.hours & (1 << hour) != 0) {
            for minute in (0..60_i8).filter(|minute| self.minutes & (1 << minute) != 0) {
                self.resolve(date.at(hour, minute, 0, 0), zone, &mut ticks);
            }
        }
        ticks
    }

    fn resolve(&self, time: DateTime, zone: &TimeZone, ticks: &mut BTreeSet<i64>) {
        let ambiguous = zone.to_ambiguous_timestamp(time);
        let (earlier, later) = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => (offset.to_timestamp(time).ok(), None),
            AmbiguousOffset::Fold { before, after } => {
                let second = if self.is_fixed { None } else { after.to_timestamp(time).ok() };
                (before.to_timestamp(time).ok(), second)
            }
            AmbiguousOffset::Gap { after, .. } if self.is_fixed => {
                // With the offset after the gap, the time lies before the gap; the next transition is its end.
                let before = after.to_timestamp(time).ok();
                (before.and_then(|at| zone.following(at).next()).map(|transition| transition.timestamp()), None)
            }
            AmbiguousOffset::Gap { .. } => (None, None),
        };
        ticks.extend([earlier, later].into_iter().flatten().map(jiff::Timestamp::as_millisecond));
    }

    fn has_date(&self, date: Date) -> bool {
        if self.months & (1 << date.month()) == 0 {
            return false;
        }
        let (day, weekday) = (self.days.has(date), self.weekdays.has(date));
        if self.is_either { day || weekday } else { day && weekday }
    }
}

/// The five fields of a pattern in capitals; `None` if it is an unknown nickname.
pub(super) fn expanded(pattern: &str) -> Option<&str> {
    Some(match pattern {
        "@HOURLY" => "0 * * * *",
        "@DAILY" | "@MIDNIGHT" => "0 0 * * *",
        "@WEEKLY" => "0 0 * * 0",
        "@MONTHLY" => "0 0 1 * *",
        "@YEARLY" | "@ANNUALLY" => "0 0 1 1 *",
        other if other.starts_with('@') => return None,
        other => other,
    })
}

impl Field {
    fn error(&self, part: &str) -> CronError {
        CronError::Part { part: part.to_ascii_lowercase(), field: self.name, range: self.range }
    }

    fn number(&self, text: &str) -> Option<u8> {
        if let Some(at) = self.names.iter().position(|name| *name == text) {
            return u8::try_from(at).ok().map(|at| at + self.min);
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_number && (self.min..=self.max).contains(number))
    }

    /// Parses a list into bits.
    fn set(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part).ok_or_else(|| self.error(part))?))
    }

    /// Parses `*`, `5` or `1-5`, each with an optional step, into bits.
    fn part(&self, part: &str) -> Option<u64> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u8>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (from, to) = match (range, range.split_once('-')) {
            ("*", _) => (self.min, self.max),
            (_, Some((from, to))) => (self.number(from)?, self.number(to)?),
            (_, None) => {
                let from = self.number(range)?;
                (from, if step.is_some() { self.max } else { from })
            }
        };
        let values = (from <= to).then(|| (from..=to).step_by(usize::from(step.unwrap_or(1))))?;
        Some(values.fold(0, |set, value| set | 1 << value))
    }
}

impl Days {
    fn parse(text: &str) -> Result<Self, CronError> {
        let mut days = Self::default();
        for part in text.split(',') {
            match part.strip_suffix('W') {
                Some("L") => days.is_last_workday = true,
                Some(day) => {
                    days.near |= 1 << DAY.number(day).ok_or_else(|| DAY.error(part))?;
                }
                None if part == "L" => days.is_last = true,
                None => days.set |= DAY.part(part).ok_or_else(|| DAY.error(part))?,
            }
        }
        Ok(days)
    }

    fn has(&self, date: Date) -> bool {
        let last = date.last_of_month();
        self.set & (1 << date.day()) != 0
            || self.is_last && date == last
            || self.is_last_workday && workday(last) == Some(date)
            || (1..=31_i8).filter(|day| self.near & (1 << day) != 0).any(|day| {
                let nominal = Date::new(date.year(), date.month(), day).ok();
                nominal.and_then(workday) == Some(date)
            })
    }
}

/// The day from Monday to Friday nearest to a date, in the same month.
fn workday(date: Date) -> Option<Date> {
    let days = match date.weekday() {
        Weekday::Saturday if date.day() == 1 => 2,
        Weekday::Saturday => -1,
        Weekday::Sunday if date == date.last_of_month() => -2,
        Weekday::Sunday => 1,
        _ => 0,
    };
    date.checked_add(jiff::Span::new().days(days)).ok()
}

impl Weekdays {
    fn parse(text: &str) -> Result<Self, CronError> {
        let mut weekdays = Self::default();
        for part in text.split(',') {
            let error = || WEEKDAY.error(part);
            let number = |text: &str| WEEKDAY.number(text).map(|day| day % 7).ok_or_else(error);
            if let Some((day, nth)) = part.split_once('#') {
                let nth = nth.parse().ok().filter(|nth| (1..=5).contains(nth)).ok_or_else(error)?;
                let pair = (number(day)?.cast_signed(), nth);
                if !weekdays.nth.contains(&pair) {
                    weekdays.nth.push(pair);
                }
            } else if let Some(day) = part.strip_suffix('L').filter(|day| !day.is_empty()) {
                weekdays.last |= 1 << number(day)?;
            } else {
                let set = WEEKDAY.part(part).ok_or_else(error)?;
                // Seven also means Sunday.
                weekdays.set |= (set | set >> 7) & 0x7f;
            }
        }
        Ok(weekdays)
    }

    fn has(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        self.set & (1 << weekday) != 0
            || self.last & (1 << weekday) != 0 && date.day() + 7 > date.days_in_month()
            || self.nth.contains(&(weekday, (date.day() - 1) / 7 + 1))
    }
}
