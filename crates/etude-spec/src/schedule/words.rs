//! Descriptions of patterns in plain English.

const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
];
const WEEKDAYS: [&str; 8] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const NTH: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

/// Maximum number of times of day that are listed.
const MAX_TIMES: usize = 6;

/// Describes a cron pattern in words, such as `at 02:30 from Monday to Friday`. An unusual field is shown as written.
pub fn words(pattern: &str) -> String {
    let text = pattern.trim().to_ascii_uppercase();
    let whole = super::cron::expanded(&text).unwrap_or(&text);
    let fields: Vec<&str> = whole.split_whitespace().collect();
    let &[minute, hour, day, month, weekday] = fields.as_slice() else { return pattern.to_owned() };
    let mut parts = vec![time(minute, hour)];
    match (is_any(day), is_any(weekday)) {
        (true, true) if parts[0].starts_with("at ") => parts.push("every day".to_owned()),
        (true, true) => {}
        (false, true) => parts.push(format!("on {}", days(day))),
        (true, false) => parts.push(weekdays(weekday)),
        (false, false) => parts.push(format!("on {} or {}", days(day), weekdays(weekday))),
    }
    if !is_any(month) {
        parts.push(format!(
            "in {}",
            list(month, |part| named(
                part,
                &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
                1,
                &MONTHS
            ))
        ));
    }
    parts.join(" ")
}

/// Describes an interval in words, such as `every 6 hours`.
pub fn interval(ms: u64) -> String {
    let (count, unit) =
        in_units(ms, &[("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)]);
    every(count, if unit.is_empty() { "millisecond" } else { unit })
}

/// The largest unit that divides `ms`, with its count.
fn in_units(ms: u64, units: &[(&'static str, u64)]) -> (u64, &'static str) {
    units.iter().find(|(_, size)| ms.is_multiple_of(*size)).map_or((ms, ""), |(unit, size)| (ms / size, *unit))
}

fn every(count: u64, unit: &str) -> String {
    if count == 1 { format!("every {unit}") } else { format!("every {count} {unit}s") }
}

fn is_any(field: &str) -> bool {
    field == "*"
}

/// The number in `*/15`.
fn step(field: &str) -> Option<u64> {
    field.strip_prefix("*/")?.parse().ok()
}

/// The numbers in `1,2`; `None` for any other field.
fn numbers(field: &str) -> Option<Vec<u32>> {
    field.split(',').map(|part| part.parse().ok()).collect()
}

fn time(minute: &str, hour: &str) -> String {
    let minutes = match (numbers(minute), step(minute)) {
        (_, Some(count)) => Some(every(count, "minute")),
        _ if is_any(minute) => Some(every(1, "minute")),
        (Some(minutes), _) => {
            if let Some(hours) = numbers(hour).filter(|hours| hours.len() * minutes.len() <= MAX_TIMES) {
                let of_hour =
                    |hour: &u32| minutes.iter().map(|minute| format!("{hour:02}:{minute:02}")).collect::<Vec<_>>();
                return format!("at {}", joined(&hours.iter().flat_map(of_hour).collect::<Vec<_>>()));
            }
            None
        }
        (None, None) => None,
    };
    let past = || match minute {
        "0" => String::new(),
        _ => format!(" at minute {}", list(minute, plain)),
    };
    match (minutes, step(hour)) {
        (Some(minutes), None) if is_any(hour) => minutes,
        (Some(minutes), _) => format!("{minutes} in {}", hours(hour)),
        (None, None) if is_any(hour) => format!("every hour{}", past()),
        (None, Some(count)) => format!("{}{}", every(count, "hour"), past()),
        (None, None) => format!("every hour from {}{}", list(hour, plain), past()),
    }
}

fn hours(field: &str) -> String {
    match step(field) {
        Some(count) => format!("every {count} hours"),
        None => format!("the hours {}", list(field, plain)),
    }
}

fn days(field: &str) -> String {
    list(field, |part| match part {
        "L" => "the last day of the month".to_owned(),
        "LW" => "the last weekday of the month".to_owned(),
        part => match (part.strip_suffix('W'), step(part)) {
            (Some(day), _) => format!("the weekday nearest to day {day}"),
            (None, Some(count)) => format!("every {count} days of the month"),
            (None, None) => format!("day {}", plain(part)),
        },
    })
}

fn weekdays(field: &str) -> String {
    let name = |part: &str| named(part, &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"], 0, &WEEKDAYS);
    let text = list(field, |part| match (part.split_once('#'), part.strip_suffix('L')) {
        (Some((day, nth)), _) => {
            let nth = nth.parse::<usize>().ok().and_then(|nth| NTH.get(nth.checked_sub(1)?));
            format!("the {} {}", nth.unwrap_or(&"last"), name(day))
        }
        (None, Some(day)) if !day.is_empty() => format!("the last {}", name(day)),
        _ => name(part),
    });
    if field.contains('-') && !field.contains(',') { format!("from {text}") } else { format!("on {text}") }
}

/// Replaces a number, name or range by full names.
fn named(part: &str, short: &[&str], first: usize, long: &[&str]) -> String {
    let one = |part: &str| {
        let at = part.parse::<usize>().ok().and_then(|number| number.checked_sub(first));
        let at = at.or_else(|| short.iter().position(|name| *name == part));
        at.and_then(|at| long.get(at)).map_or_else(|| part.to_owned(), |name| (*name).to_owned())
    };
    match part.split_once('-') {
        Some((from, to)) => format!("{} to {}", one(from), one(to)),
        None => one(part),
    }
}

fn plain(part: &str) -> String {
    part.replacen('-', " to ", 1)
}

fn list(field: &str, each: impl Fn(&str) -> String) -> String {
    joined(&field.split(',').map(each).collect::<Vec<_>>())
}

fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{interval, words};

    #[test]
    fn intervals_are_said_in_words() {
        let said = [1_000, 90_000, 5_400_000, 21_600_000, 86_400_000, 1_500].map(interval);
        let wanted = ["every second", "every 90 seconds", "every 90 minutes", "every 6 hours", "every day"];
        assert_eq!((&said[..5], said[5].as_str()), (&wanted.map(str::to_owned)[..], "every 1500 milliseconds"));
    }

    #[test]
    fn patterns_are_said_in_words() {
        for (pattern, wanted) in [
            ("30 2 * * *", "at 02:30 every day"),
            ("@daily", "at 00:00 every day"),
            ("@hourly", "every hour"),
            ("0 9,17 * * MON-FRI", "at 09:00 and 17:00 from Monday to Friday"),
            ("*/15 * * * *", "every 15 minutes"),
            ("* * * * *", "every minute"),
            ("*/15 9-17 * * *", "every 15 minutes in the hours 9 to 17"),
            ("5 * * * *", "every hour at minute 5"),
            ("0 */6 * * *", "every 6 hours"),
            ("0 8 1,15 * *", "at 08:00 on day 1 and day 15"),
            ("0 8 L * *", "at 08:00 on the last day of the month"),
            ("0 8 15W 1 *", "at 08:00 on the weekday nearest to day 15 in January"),
            ("0 8 * * 5#2", "at 08:00 on the second Friday"),
            ("0 8 * JAN,JUL FRIL", "at 08:00 on the last Friday in January and July"),
            ("0 8 13 * FRI", "at 08:00 on day 13 or on Friday"),
            ("not a pattern", "not a pattern"),
        ] {
            assert_eq!(words(pattern), wanted, "{pattern}");
        }
    }
}
