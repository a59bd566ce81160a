//! Numbers and days in the notations in which people write them: `1,011.50`, `1 011,5`, `May 11, 2026`, `11.05.2026`.
//!
//! Texts are in the form of [`normal`](etude_core::verbatim::normal). Every reading of an ambiguous notation counts.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use etude_core::verbatim::{is_spaceless, normal};
use serde_json::Value;

/// Names of the months; a text may have only their first letters.
const MONTHS: [&str; 12] = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
];
/// Minimum number of letters that name a month.
const MONTH_LETTERS: usize = 3;
/// Number of digits of a group.
const GROUP: usize = 3;
/// Minimum length of a number, in characters: a shorter one may be in a text by chance.
const MIN_NUMBER: usize = 3;
/// Maximum number of words and numbers of a day: `11 th of May , 2026`.
const MAX_DAY: usize = 6;
/// Currency signs beside an amount.
const CURRENCIES: [char; 5] = ['$', '€', '£', '¥', '₹'];

/// Years in which a value counts as a point in time. Outside of them it may be a number or a name by chance.
const YEARS: RangeInclusive<u32> = 2001..=2100;
/// `YEARS` in seconds since 1970.
const SECONDS: Range<f64> = 978_307_200.0..4_133_980_800.0;
/// Number of digits of the earliest second in `SECONDS`.
const EPOCH_DIGITS: usize = 9;

/// A day; a text may leave the year out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day {
    year: Option<u32>,
    month: u32,
    day: u32,
    /// True if the year has four digits.
    is_dated: bool,
}

impl Day {
    fn new(year: Option<u32>, month: u32, day: u32) -> Option<Self> {
        let is_year = year.is_none_or(|year| (1000..=9999).contains(&year));
        let is_day = is_year && (1..=12).contains(&month) && (1..=31).contains(&day);
        is_day.then_some(Self { year, month, day, is_dated: year.is_some() })
    }

    /// True if both may be the same day; a missing year matches every year.
    pub(crate) fn may_be(self, other: Self) -> bool {
        let is_same_year = self.year.is_none() || other.year.is_none() || self.year == other.year;
        is_same_year && (self.month, self.day) == (other.month, other.day)
    }
}

/// Every number in a text, as [`amount`] writes it.
pub(crate) fn numbers(text: &str) -> BTreeSet<String> {
    numbers_at(text).into_iter().map(|(_, number)| number).collect()
}

/// Every reading of numbers in a text, with its byte range.
fn numbers_at(text: &str) -> Vec<(Range<usize>, String)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(|c: char| c.is_ascii_digit()).map(|at| at + from) {
        let left = text[..at].chars().next_back();
        let end = end_of(&text[at..]) + at;
        let run = &text[at..end];
        let after = text[end..].chars().next();
        let is_letter = |c: char| c.is_alphanumeric() && !is_spaceless(c);
        let thousands = text[end..].starts_with('k') && !text[end + 1..].starts_with(is_letter);
        if !left.is_some_and(is_letter) && (thousands || !after.is_some_and(is_letter)) {
            let placed = |(place, number): (Range<usize>, String)| (place.start + at..place.end + at, number);
            found.extend(readings(run).into_iter().map(placed));
            if thousands {
                let last = run.rfind(' ').map_or(0, |blank| blank + 1);
                let number = decimal(&run[last..]).map(|(whole, part)| in_thousands(&whole, &part));
                found.extend(number.map(|number| (at + last..end + 1, number)));
            }
        }
        from = end;
    }
    found
}

/// Byte ranges in which a text has the number or the day of a value, in any notation. The text must be in lower case.
pub(crate) fn places(text: &str, value: &Value) -> Vec<Range<usize>> {
    let (numbers, days) = match value {
        Value::Number(number) => (amount(&number.to_string()).into_iter().collect(), Vec::new()),
        Value::String(own) => (number(&normal(own)), day(&normal(own))),
        _ => (BTreeSet::new(), Vec::new()),
    };
    let is_it = |number: &String| number.len() >= MIN_NUMBER && numbers.contains(number);
    let of_numbers = numbers_at(text).into_iter().filter(|(_, number)| is_it(number)).map(|(place, _)| place);
    let of_days = || days_in(text).into_iter().filter(|(_, found)| days.iter().any(|own| own.may_be(*found)));
    let mut found: Vec<Range<usize>> = of_numbers.collect();
    if !days.is_empty() {
        found.extend(of_days().map(|(place, _)| place));
    }
    // Keep the longest of overlapping places.
    found.sort_by_key(|place| (Reverse(place.len()), place.start));
    let mut kept: Vec<Range<usize>> = Vec::new();
    for place in found {
        if kept.iter().all(|known| place.end <= known.start || known.end <= place.start) {
            kept.push(place);
        }
    }
    kept.sort_by_key(|place| place.start);
    kept
}

/// Readings of a whole text as one number, apart from a sign and a currency.
pub(crate) fn number(text: &str) -> BTreeSet<String> {
    let bare =
        text.trim_matches(|c: char| CURRENCIES.contains(&c) || c.is_whitespace() || matches!(c, '-' | '+' | '−'));
    let mut found = BTreeSet::new();
    if bare.starts_with(|c: char| c.is_ascii_digit()) && end_of(bare) == bare.len() {
        // With blanks, only the joined digits are one number.
        match bare.contains(' ') {
            true => found.extend(joined(bare)),
            false => found.extend(readings(bare).into_iter().map(|(_, number)| number)),
        }
    }
    found
}

/// Number without its sign and without leading and trailing zeros; `None` in another notation, such as with an exponent.
pub(crate) fn amount(number: &str) -> Option<String> {
    let number = number.trim_start_matches('-');
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_plain = |digits: &str| digits.chars().all(|c| c.is_ascii_digit());
    (!whole.is_empty() && is_plain(whole) && is_plain(part)).then(|| plain(whole, part))
}

fn plain(whole: &str, part: &str) -> String {
    let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
}

fn in_thousands(whole: &str, part: &str) -> String {
    let (moved, part) = part.split_at(part.len().min(GROUP));
    plain(&format!("{whole}{moved:0<GROUP$}"), part)
}

/// End of digits that points, commas, apostrophes or blanks join, as a byte offset.
fn end_of(text: &str) -> usize {
    let mut end = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let is_joint = is_separator(c) && chars.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        if !c.is_ascii_digit() && !is_joint {
            break;
        }
        if c.is_ascii_digit() {
            end = at + 1;
        }
    }
    end
}

const fn is_separator(c: char) -> bool {
    matches!(c, '.' | ',' | '\'' | '’' | ' ')
}

/// Every reading of joined digits, with its byte range.
fn readings(run: &str) -> Vec<(Range<usize>, String)> {
    let mut starts = vec![0];
    starts.extend(run.match_indices(' ').map(|(blank, _)| blank + 1));
    let end = |n: usize| starts.get(n + 1).map_or(run.len(), |next| next - 1);
    let mut found = Vec::new();
    for (n, start) in starts.iter().enumerate() {
        let part = &run[*start..end(n)];
        let alone = decimal(part).map(|(whole, part)| plain(&whole, &part)).into_iter().chain(grouped(part));
        found.extend(alone.map(|number| (*start..end(n), number)));
        for last in n + 1..starts.len() {
            found.extend(joined(&run[*start..end(last)]).map(|number| (*start..end(last), number)));
        }
    }
    found
}

/// Whole part and decimals of a number. Its groups, if it has any, must have another separator than its decimals.
fn decimal(text: &str) -> Option<(String, String)> {
    let signs: Vec<char> = text.chars().filter(|c| !c.is_ascii_digit()).collect();
    match signs.split_last() {
        None => Some((text.to_owned(), String::new())),
        Some(('.' | ',', others)) => {
            let (whole, part) = text.rsplit_once(['.', ','])?;
            let is_other = others.iter().all(|sign| Some(sign) != signs.last());
            (others.is_empty() || is_other).then_some(())?;
            let whole = if others.is_empty() { whole.to_owned() } else { grouped(whole)? };
            Some((whole, part.to_owned()))
        }
        Some(_) => None,
    }
}

/// Number in groups of three digits; `None` for other texts.
fn grouped(text: &str) -> Option<String> {
    let sign = text.chars().find(|c| !c.is_ascii_digit())?;
    let groups: Vec<&str> = text.split(sign).collect();
    let (first, others) = groups.split_first()?;
    let is_group = |group: &&str| group.len() == GROUP && group.chars().all(|c| c.is_ascii_digit());
    let is_grouped = (1..=GROUP).contains(&first.len()) && others.iter().all(is_group);
    is_grouped.then(|| plain(&groups.concat(), ""))
}

/// Number in groups that blanks separate, with decimals or without.
fn joined(text: &str) -> Option<String> {
    let (whole, part) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let whole = grouped(whole)?;
    part.chars().all(|c| c.is_ascii_digit()).then(|| plain(&whole, part))
}

/// Run of digits or of letters, and the text up to the next run.
type Token<'t> = (&'t str, &'t str);

fn tokens(text: &str) -> Vec<Token<'_>> {
    tokens_at(text).into_iter().map(|(_, token)| token).collect()
}

/// Tokens of a text with their byte offsets.
fn tokens_at(text: &str) -> Vec<(usize, Token<'_>)> {
    let class = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
    let is_token = |c: char| class(c) != (false, false);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(is_token).map(|at| at + from) {
        let rest = &text[at..];
        let of = rest.chars().next().map(class);
        let end = rest.find(|c: char| Some(class(c)) != of).unwrap_or(rest.len());
        let next = rest[end..].find(is_token).map_or(rest.len(), |n| n + end);
        found.push((at, (&rest[..end], rest[end..next].trim())));
        from = at + next;
    }
    found
}

/// Every day in a text.
pub(crate) fn days(text: &str) -> Vec<Day> {
    let tokens = tokens(text);
    let mut found: Vec<Day> = (0..tokens.len()).flat_map(|n| days_at(&tokens[n..])).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Every day in a text with its byte range, without words that add nothing to the day.
fn days_in(text: &str) -> Vec<(Range<usize>, Day)> {
    let (starts, tokens): (Vec<usize>, Vec<Token<'_>>) = tokens_at(text).into_iter().unzip();
    let mut found = Vec::new();
    for first in 0..tokens.len() {
        for last in first..tokens.len().min(first + MAX_DAY) {
            let known = if last == first { Vec::new() } else { days_at(&tokens[first..last]) };
            let added = days_at(&tokens[first..=last]).into_iter().filter(|day| !known.contains(day));
            found.extend(added.map(|day| (starts[first]..starts[last] + tokens[last].0.len(), day)));
        }
    }
    found
}

/// Readings of a whole text as a day; a time of day may follow.
pub(crate) fn day(text: &str) -> Vec<Day> {
    let tokens = tokens(text);
    let is_number = |n: usize| tokens.get(n).is_some_and(|(token, _)| token.starts_with(|c: char| c.is_ascii_digit()));
    let is_month = |n: usize| tokens.get(n).is_some_and(|(token, _)| month(token).is_some());
    if is_number(0) || is_month(0) && is_number(1) { days_at(&tokens) } else { Vec::new() }
}

/// True if a value is or contains a point in time within `YEARS`: a date with its year, an epoch, or a time of day as the
/// whole text.
pub(crate) fn has_time(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(is_epoch),
        Value::String(text) => {
            let text = normal(text);
            let is_dated = |day: &Day| day.is_dated && day.year.is_some_and(|year| YEARS.contains(&year));
            let is_stamp = |(token, _): &Token<'_>| token.len() >= EPOCH_DIGITS && token.parse().is_ok_and(is_epoch);
            days(&text).iter().any(is_dated) || tokens(&text).iter().any(is_stamp) || is_month_or_time(&text)
        }
        Value::Array(items) => items.iter().any(has_time),
        _ => false,
    }
}

/// True for a month or a time: `2026-11`, `10:30`, `10:30:00z`.
fn is_month_or_time(text: &str) -> bool {
    let numbers: Vec<&str> = text.trim_end_matches('z').split(['-', ':', '.', '+']).collect();
    let has = |n: usize, range: RangeInclusive<u32>, len: usize| {
        numbers.get(n).is_some_and(|part| part.len() == len && part.parse().is_ok_and(|one| range.contains(&one)))
    };
    let is_month = numbers.len() == 2 && text.contains('-') && has(0, YEARS, 4) && has(1, 1..=12, 2);
    let is_time = text.as_bytes().get(2) == Some(&b':') && has(0, 0..=23, 2) && has(1, 0..=59, 2);
    is_month || is_time
}

/// True for seconds or milliseconds within `SECONDS`.
fn is_epoch(number: f64) -> bool {
    SECONDS.contains(&number) || SECONDS.contains(&(number / 1000.0))
}

/// Readings of the first tokens as a day.
fn days_at(tokens: &[Token<'_>]) -> Vec<Day> {
    let (first, sign) = tokens.first().copied().unwrap_or_default();
    let digits = |n: usize, len: RangeInclusive<usize>| -> Option<u32> {
        let (token, _) = tokens.get(n)?;
        len.contains(&token.len()).then(|| token.parse().ok()).flatten()
    };
    let is_joined =
        |n: usize| tokens.get(n).is_some_and(|(_, joint)| *joint == sign && ["-", "/", "."].contains(&sign));
    let mut found = Vec::new();
    if first.len() == 8 && first.is_ascii() && first.parse::<u32>().is_ok() {
        let of = |range: Range<usize>| first[range].parse().unwrap_or(0);
        found.extend(Day::new(Some(of(0..4)), of(4..6), of(6..8)));
    }
    if let (Some(year), Some(month), Some(day), true) =
        (digits(0, 4..=4), digits(1, 1..=2), digits(2, 1..=2), is_joined(1))
    {
        found.extend(Day::new(Some(year), month, day));
    }
    if let (Some(one), Some(other), true) = (digits(0, 1..=2), digits(1, 1..=2), is_joined(0)) {
        let short = digits(2, 2..=2).map(|year| 2000 + year).filter(|_| is_joined(1));
        let year = digits(2, 4..=4).filter(|_| is_joined(1)).or(short);
        // Without a year, the point may be a decimal point.
        if year.is_some()
            || sign == "/"
            || tokens.get(1).is_some_and(|(_, after)| after.starts_with('.')) && sign == "."
        {
            let both = [Day::new(year, other, one), Day::new(year, one, other).filter(|_| sign != ".")];
            found
                .extend(both.into_iter().flatten().map(|day| Day { is_dated: day.is_dated && short.is_none(), ..day }));
        }
    }
    let has_ordinal = |n: usize| tokens.get(n).is_some_and(|(token, _)| ["st", "nd", "rd", "th"].contains(token));
    if let (Some(month), Some(day)) = (month(first), digits(1, 1..=2)) {
        let year = digits(2 + usize::from(has_ordinal(2)), 4..=4);
        found.extend(Day::new(year, month, day));
    }
    if let Some(day) = digits(0, 1..=2) {
        let mut at = 1 + usize::from(has_ordinal(1));
        at += usize::from(tokens.get(at).is_some_and(|(token, _)| *token == "of"));
        let named = tokens.get(at).and_then(|(token, _)| month(token));
        found.extend(named.and_then(|month| Day::new(digits(at + 1, 4..=4), month, day)));
    }
    found
}

fn month(word: &str) -> Option<u32> {
    let is_it = |name: &str| word.len() >= MONTH_LETTERS && name.starts_with(word);
    let at = MONTHS.iter().position(|name| is_it(name))?;
    u32::try_from(at + 1).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Every notation of a number is read as the same number; parts of words and of other numbers are not read.
    #[test]
    fn numbers_are_compared_by_what_they_are() {
        let has = |text: &str, number: &str| numbers(text).contains(number);
        for text in
            ["1011.50", "1011.5", "1,011.50", "1.011,50", "1 011,50", "1'011.5", "$1,011.50.", "€1011,50", "(1011.50)"]
        {
            assert!(has(text, "1011.5"), "{text}: {:?}", numbers(text));
            assert!(!has(text, "1011") && !has(text, "101150"), "{text}: {:?}", numbers(text));
        }
        for text in ["1011", "1,011", "1.011", "1 011", "1011.00", "$1011, please", "2 1 011"] {
            assert!(has(text, "1011"), "{text}: {:?}", numbers(text));
        }
        assert!(has("about 5k", "5000") && has("1.25k", "1250") && has("7 5k", "5000"));
        assert!(has("1,234,567.80", "1234567.8") && has("-5.0 degrees", "5"));
        assert!(!has("a1011", "1011") && !has("1011b", "1011") && !has("11011", "1011"));
        assert_eq!(amount("-1011.50").as_deref(), Some("1011.5"));
        assert_eq!((amount("1e21"), number("$1,011.50").contains("1011.5")), (None, true));
        assert!(number("49 17").is_empty() && number("12 abc").is_empty() && !number("1 011").is_empty());
    }

    /// The same day is found in several notations; `05/11` has both readings.
    #[test]
    fn days_are_compared_by_what_they_are() {
        let is_in = |text: &str| {
            days(text).into_iter().any(|one| day("2026-05-11t10:30:00z").into_iter().any(|own| own.may_be(one)))
        };
        for text in [
            "to may 11, 2026", "11 may 2026", "the 11th of may", "11.05.2026", "05/11/2026", "11/05/2026", "2026/5/11",
            "5/11", "on 11.5.", "may 11th 2026", "20260511", "11-may-2026", "11.05.26", "2026-05-11",
            "mon, 11 may at ten",
        ] {
            assert!(is_in(text), "{text}: {:?}", days(text));
        }
        for text in
            ["may 12, 2026", "may 11, 2025", "11.05 dollars", "11 maybe", "2026-05", "order 11, 2026", "12/11/2026"]
        {
            assert!(!is_in(text), "{text}: {:?}", days(text));
        }
        assert!(days("5/11/26").iter().all(|day| !day.is_dated));
        assert!(day("order of may 11").is_empty() && !day("may 11, 2026").is_empty());
    }

    /// A place has all of a number or a day, and nothing else.
    #[test]
    fn places_have_the_whole_of_a_value() {
        let at = |text: &'static str, value: Value| -> Vec<&str> {
            places(text, &value).into_iter().map(|at| &text[at]).collect()
        };
        assert_eq!(at("pay $1,000.50 now, not 100.5 or 1 000,50.", json!(1000.5)), ["1,000.50", "1 000,50"]);
        assert_eq!(at("pay 5k for 12 of order 5000-1", json!(5000)), ["5k", "5000"]);
        assert_eq!(at("pay 12 now", json!(12)), [""; 0], "too short");
        assert_eq!(
            at("on may 11, 2026, or the 11th of may; not may 12", json!("2026-05-11")),
            ["may 11, 2026", "11th of may"]
        );
        assert_eq!(at("before 05/11/2026 at ten", json!("2026-05-11")), ["05/11/2026"]);
        assert_eq!(at("pay all", json!(true)), [""; 0]);
    }

    /// Points in time are found in every form; names, versions and other numbers are not points in time.
    #[test]
    fn points_in_time_are_seen() {
        for text in [
            "2026-11-28", "2026-11-28T10:30:00Z", "Paid on 2026-11-28.", "Nov 28, 2026", "11/28/2026", "2026-11",
            "10:30", "10:30:05.5Z", "1764000000", "at 1764000000123",
        ] {
            assert!(has_time(&json!(text)), "{text}");
        }
        for text in [
            "1.12.26", "gold", "12/24", "ORD-2026", "W-20991", "5551234", "9641764000", "2026", "1850-01-01", "may 3",
            "10:75", "",
        ] {
            assert!(!has_time(&json!(text)), "{text}");
        }
        assert!(
            has_time(&json!(1_764_000_000))
                && has_time(&json!(1_764_000_000_123_u64))
                && has_time(&json!(["2026-11-28"]))
        );
        assert!(!has_time(&json!(42)) && !has_time(&json!(true)) && !has_time(&json!(17_640_000_000_i64)));
    }
}
