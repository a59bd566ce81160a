//! Dates with a year. A date that depends on the current day has no value.

const MONTHS: [&[&str]; 12] = [
    &["january", "jan", "januar", "janvier", "enero"],
    &["february", "feb", "februar", "fevrier", "febrero"],
    &["march", "mar", "marz", "mars", "marzo"],
    &["april", "apr", "avril", "abril"],
    &["may", "mai", "mayo"],
    &["june", "jun", "juni", "juin", "junio"],
    &["july", "jul", "juli", "juillet", "julio"],
    &["august", "aug", "aout", "agosto"],
    &["september", "sep", "sept", "septembre", "septiembre"],
    &["october", "oct", "oktober", "okt", "octobre", "octubre"],
    &["november", "nov", "novembre", "noviembre"],
    &["december", "dec", "dezember", "dez", "decembre", "diciembre"],
];

/// Words for a day that depends on today.
pub(super) const RELATIVE: &[&str] = &[
    "today", "yesterday", "tomorrow", "tonight", "heute", "gestern", "morgen", "aujourdhui", "hier", "demain", "hoy",
    "ayer", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "montag", "dienstag",
    "mittwoch", "donnerstag", "freitag", "samstag", "sonntag", "今天", "昨天", "明天",
];

/// Number of the month that a folded word names.
pub(super) fn month(word: &str) -> Option<u32> {
    MONTHS.iter().position(|names| names.contains(&word)).map(|at| at as u32 + 1)
}

/// True if a word that names a month has another meaning as often.
pub(super) fn is_doubtful(word: &str) -> bool {
    matches!(word, "may" | "mar" | "march" | "mars" | "jan" | "sept" | "dec" | "oct")
}

/// ISO text of a date; `None` if the date does not exist.
pub(super) fn iso(year: u32, month: u32, day: u32) -> Option<String> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    ((1..=days).contains(&day) && (1000..=9999).contains(&year)).then(|| format!("{year:04}-{month:02}-{day:02}"))
}

/// Reading of a run of ASCII digits and separators as a date.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// A day in ISO 8601.
    Day(String),
    /// A moment in RFC 3339.
    Moment(String),
    /// A date that can be read in two ways, lacks something, or does not exist.
    Unclear,
}

/// Reads `text` as a date in digits; `None` if it does not look like one.
pub(super) fn written(text: &str) -> Option<Written> {
    if let Some((day, time)) = text.split_once(['T', 't'])
        && let Some(Written::Day(day)) = written(day)
    {
        let is_time = time.len() >= 5 && time.as_bytes()[2] == b':';
        return is_time.then(|| Written::Moment(format!("{day}T{time}")));
    }
    let separator = text.chars().find(|c| !c.is_ascii_digit())?;
    if !matches!(separator, '-' | '/' | '.') {
        return None;
    }
    let parts: Vec<&str> = text.split(separator).collect();
    if parts.iter().any(|part| part.is_empty() || part.len() > 4 || !part.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let number = |at: usize| parts[at].parse::<u32>().unwrap_or(0);
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let day = |year, month, day| Some(iso(year, month, day).map_or(Written::Unclear, Written::Day));
    match (separator, &lengths[..]) {
        ('-' | '/' | '.', [4, 1 | 2, 1 | 2]) => day(number(0), number(1), number(2)),
        // With points as separators, the day always comes first.
        ('.', [1 | 2, 1 | 2, 4]) => day(number(2), number(1), number(0)),
        ('-' | '/', [1 | 2, 1 | 2, 4]) => match (number(0), number(1)) {
            (first, second) if first == second => day(number(2), first, second),
            (first @ 13..=31, month) => day(number(2), month, first),
            (month, second @ 13..=31) => day(number(2), month, second),
            _ => Some(Written::Unclear),
        },
        ('-' | '/', [4, 2]) if (1..=12).contains(&number(1)) => Some(Written::Unclear),
        ('/', [1 | 2, 1 | 2, 2]) => Some(Written::Unclear),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_in_digits_are_read_where_they_are_clear() {
        let day = |text: &str| Some(Written::Day(text.to_owned()));
        assert_eq!(written("2026-03-01"), day("2026-03-01"));
        assert_eq!(written("2026/3/1"), day("2026-03-01"));
        assert_eq!(written("1.3.2026"), day("2026-03-01"));
        assert_eq!(written("03/31/2026"), day("2026-03-31"));
        assert_eq!(written("31/03/2026"), day("2026-03-31"));
        assert_eq!(written("03/04/2026"), Some(Written::Unclear));
        assert_eq!(written("2026-02-30"), Some(Written::Unclear));
        assert_eq!(written("2026-03"), Some(Written::Unclear));
        assert_eq!(written("2026-03-01T10:00:00Z"), Some(Written::Moment("2026-03-01T10:00:00Z".to_owned())));
        for none in ["5-10", "1/2", "1.2.3", "555-1234", "10", "192.168.0.1"] {
            assert_eq!(written(none), None, "{none}");
        }
    }
}
