//! Durations: `500ms`, `30s`, `5m`, `1h`, or a bare number of seconds.

use crate::yaml::{Entries, Node, Plain};

/// Maximum duration: about ten years, so that sums of durations stay far from overflow.
const MAX_MS: f64 = 315_360_000_000.0;

/// Units with their milliseconds, the everyday ones first.
const UNITS: [(&str, f64); 6] =
    [("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3_600e3), ("d", 86_400e3), ("w", 7.0 * 86_400e3)];

/// Parses a duration into milliseconds, rounded to the nearest one.
///
/// # Errors
/// The reason why `text` is invalid, as a sentence fragment.
pub fn parse(text: &str) -> Result<u64, &'static str> {
    read(text, &UNITS[..4])
}

/// Same as [`parse`], also with days and weeks: `7d`, `8w`.
///
/// # Errors
/// The reason why `text` is invalid, as a sentence fragment.
pub fn parse_long(text: &str) -> Result<u64, &'static str> {
    read(text, &UNITS)
}

fn read(text: &str, units: &[(&str, f64)]) -> Result<u64, &'static str> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (amount, unit) = text.split_at(digits);
    let Ok(amount) = amount.parse::<f64>() else {
        return Err(if text.starts_with('-') { "it is negative" } else { "it does not begin with a number" });
    };
    let unit = if unit.is_empty() { "s" } else { unit.trim() };
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(match units.len() {
            4 => "its unit is none of `ms`, `s`, `m` and `h`",
            5 => "its unit is none of `ms`, `s`, `m`, `h` and `d`",
            _ => "its unit is none of `ms`, `s`, `m`, `h`, `d` and `w`",
        });
    };
    let ms = (amount * factor).round();
    if ms < 1.0 && amount > 0.0 {
        return Err("it is shorter than one millisecond");
    }
    if ms > MAX_MS {
        return Err("it is longer than ten years");
    }
    // The bounds above make the conversion exact.
    Ok(ms as u64)
}

/// Formats `ms` as the shortest text that [`parse_long`] accepts: `90m` for an hour and a half.
pub fn text(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let unit = units.into_iter().find(|(_, size)| ms > 0 && ms.is_multiple_of(*size));
    unit.map_or_else(|| format!("{ms}ms"), |(unit, size)| format!("{}{unit}", ms / size))
}

/// Duration in a field, in milliseconds; `None` if it is missing or invalid.
pub(crate) fn of_field(entries: &Entries<'_>, field: &str) -> Option<u64> {
    of_node(entries.get(field)?).ok()
}

/// Duration in a value, in milliseconds; it may have days.
pub(crate) fn long_of_node(node: &Node<'_>) -> Result<u64, &'static str> {
    match node.as_text() {
        Some(text) => read(text, &UNITS[..5]),
        None => of_node(node),
    }
}

/// Duration in a value, in milliseconds, without days.
pub(crate) fn of_node(node: &Node<'_>) -> Result<u64, &'static str> {
    match (node.as_plain(), node.as_text()) {
        (Some(Plain::Int(text) | Plain::Float(text)), _) => parse(&text),
        (_, Some(text)) => parse(text),
        _ => Err("it is neither text nor a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `500ms`, `30s`, `5m`, `1h`; a bare number is seconds.
    #[test]
    fn durations_have_units_and_bare_numbers_are_seconds() {
        assert_eq!(parse("500ms"), Ok(500));
        assert_eq!(parse("30s"), Ok(30_000));
        assert_eq!(parse("5m"), Ok(300_000));
        assert_eq!(parse("1.5h"), Ok(5_400_000));
        assert_eq!(parse("2"), Ok(2_000));
        assert_eq!(parse("0.25"), Ok(250));
        assert_eq!(parse("0"), Ok(0));
        assert_eq!((parse_long("1.5 d"), parse_long("8w")), (Ok(129_600_000), Ok(4_838_400_000)));
        for text in ["", "s", "5 days", "-1s", "0.1ms", "1e9h", "99999999h", "1..5s", "1d", "1e3s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
