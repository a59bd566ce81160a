//! Numbers in digits: any script, separators, and the possible readings of a text.

/// Zeros of the scripts whose ten digits are consecutive code points.
const ZEROS: &[u32] = &[
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x17e0, 0x1810, 0xff10,
];

/// ASCII digit for a decimal digit of any script.
pub(super) fn digit(c: char) -> Option<char> {
    let code = c as u32;
    let zero = ZEROS.iter().find(|&&zero| (zero..zero + 10).contains(&code))?;
    char::from_u32(0x30 + code - zero)
}

/// `text` with digits and separators of all scripts in ASCII.
pub(super) fn ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '٫' => '.',
            '٬' | '，' => ',',
            '．' => '.',
            '\u{a0}' | '\u{202f}' | '\u{2009}' => ' ',
            '’' => '\'',
            '−' | '－' => '-',
            c => digit(c).unwrap_or(c),
        })
        .collect()
}

/// Sign between whole part and fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decimals {
    /// A decimal point.
    Point,
    /// A decimal comma, as in the language of the request.
    Comma,
}

/// Readings of `text` (ASCII digits and separators) as a number: one if it is clear, several if it is ambiguous, none if it
/// is not a number.
pub(super) fn readings(text: &str, decimals: Decimals) -> Vec<String> {
    let (sign, body) = match text.strip_prefix('-') {
        Some(body) => ("-", body),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !body.starts_with(|c: char| c.is_ascii_digit()) || !body.ends_with(|c: char| c.is_ascii_digit()) {
        return Vec::new();
    }
    let mut found: Vec<String> = Vec::new();
    for reading in unsigned(body, decimals) {
        let reading = canonical(&format!("{sign}{reading}"));
        if !found.contains(&reading) {
            found.push(reading);
        }
    }
    found
}

fn unsigned(body: &str, decimals: Decimals) -> Vec<String> {
    let separators: String = body.chars().filter(|c| !c.is_ascii_digit()).collect();
    let bare = |text: &str| text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect::<String>();
    let mut kinds: Vec<char> = separators.chars().collect();
    kinds.dedup();
    match kinds[..] {
        [] => vec![body.to_owned()],
        ['\''] | ['_'] | [' '] if is_grouped(body, kinds[0]) => vec![bare(body)],
        [one @ (',' | '.')] if separators.len() > 1 && is_grouped(body, one) => vec![bare(&body.replace(one, ""))],
        // `1,000` and `1.000` have thousands in some countries, and a fraction in others.
        [','] if separators.len() == 1 => match (is_grouped(body, ','), decimals) {
            (true, Decimals::Point) => vec![body.replace(',', "")],
            (true, Decimals::Comma) => vec![body.replace(',', "."), body.replace(',', "")],
            (false, Decimals::Comma) => vec![body.replace(',', ".")],
            // A list of two numbers, if points are decimal.
            (false, Decimals::Point) => {
                let (first, second) = body.split_once(',').unwrap_or_default();
                vec![body.replace(',', "."), first.to_owned(), second.to_owned()]
            }
        },
        ['.'] if separators.len() == 1 => match (is_grouped(body, '.'), decimals) {
            (true, Decimals::Comma) => vec![body.replace('.', "")],
            (true, Decimals::Point) => vec![body.to_owned(), body.replace('.', "")],
            (false, _) => vec![body.to_owned()],
        },
        [group, point @ ('.' | ',')] if group != point && separators.matches(point).count() == 1 => {
            let (whole, fraction) = body.rsplit_once(point).unwrap_or_default();
            match is_grouped(whole, group) {
                true => vec![format!("{}.{fraction}", bare(&whole.replace(group, "")))],
                false => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// True for one to three digits, followed by groups of three.
fn is_grouped(text: &str, separator: char) -> bool {
    let mut groups = text.split(separator);
    let is_digits = |group: &str| group.bytes().all(|b| b.is_ascii_digit());
    let first = groups.next().unwrap_or_default();
    let mut rest = groups.peekable();
    (1..=3).contains(&first.len())
        && first != "0"
        && is_digits(first)
        && rest.peek().is_some()
        && rest.all(|group| group.len() == 3 && is_digits(group))
}

/// Decimal number without redundant signs, zeros and exponent; other texts stay as they are.
pub(super) fn canonical(number: &str) -> String {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (sign, body) = mantissa.strip_prefix('-').map_or(("", mantissa), |body| ("-", body));
    let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
    let exponent: i64 = match exponent.trim_start_matches('+').parse() {
        Ok(exponent) if (-400..=400).contains(&exponent) => exponent,
        _ => return number.to_owned(),
    };
    let mut digits = format!("{whole}{fraction}");
    let mut point = whole.len() as i64 + exponent;
    while point < 0 {
        digits.insert(0, '0');
        point += 1;
    }
    while (digits.len() as i64) < point {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at(point as usize);
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    match (whole, fraction) {
        ("0", "") => "0".to_owned(),
        (whole, "") => format!("{sign}{whole}"),
        (whole, fraction) => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_read_where_they_are_clear() {
        for (text, point, comma) in [
            ("2", &["2"][..], &["2"][..]),
            ("1,000", &["1000"], &["1", "1000"]),
            ("1.000", &["1", "1000"], &["1000"]),
            ("1.000.000", &["1000000"], &["1000000"]),
            ("1,234.50", &["1234.5"], &["1234.5"]),
            ("1.234,5", &["1234.5"], &["1234.5"]),
            ("1'000", &["1000"], &["1000"]),
            ("1_000", &["1000"], &["1000"]),
            ("2.5", &["2.5"], &["2.5"]),
            ("1,5", &["1.5", "1", "5"], &["1.5"]),
            ("-3", &["-3"], &["-3"]),
            ("007", &["7"], &["7"]),
            ("1.2.3", &[], &[]),
            ("12,34,56", &[], &[]),
            ("0.500", &["0.5"], &["0.5"]),
        ] {
            assert_eq!(readings(text, Decimals::Point), point, "{text}");
            assert_eq!(readings(text, Decimals::Comma), comma, "{text}");
        }
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (text, wanted) in
            [("2.0", "2"), ("1e3", "1000"), ("1.5e-1", "0.15"), ("-0", "0"), ("100e-2", "1"), ("00.10", "0.1")]
        {
            assert_eq!(canonical(text), wanted, "{text}");
        }
        assert_eq!(ascii("١٢ ४ ３"), "12 4 3");
    }
}
