//! Numbers as text, checked without rounding.

/// JSON text of a whole number of any size; `None` if `text` is not one. Leading zeros are dropped.
pub(super) fn integer(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let trimmed = digits.trim_start_matches('0');
    Some(format!("{sign}{}", if trimmed.is_empty() { "0" } else { trimmed }))
}

/// True if the JSON number `text` is a whole number in the sense of JSON Schema, such as `1.0` and `1e3`.
pub(super) fn is_whole(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = whole.trim_start_matches('-');
    if fraction.is_empty() && digits.trim_matches('0').is_empty() {
        return true;
    }
    // An exponent beyond 64 bits exceeds any number of digits.
    let exponent = exponent.trim_start_matches('+').parse::<i64>();
    let exponent = exponent.unwrap_or(if text.contains("e-") || text.contains("E-") { i64::MIN } else { i64::MAX });
    let trailing = if fraction.is_empty() { digits.len() - digits.trim_end_matches('0').len() } else { 0 };
    let needed = i64::try_from(fraction.len()).unwrap_or(i64::MAX) - i64::try_from(trailing).unwrap_or(0);
    exponent >= needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_all_their_digits() {
        assert_eq!(integer("-123456789012345678901234567890").as_deref(), Some("-123456789012345678901234567890"));
        assert_eq!(integer("007").as_deref(), Some("7"));
        for text in ["", "-", "+1", "1.0", "1e3", " 1", "1_000", "0x10", "١"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_whole_by_its_value() {
        for text in ["1", "-1.0", "1e3", "1.50e1", "0.0", "0e-5", "100e-2", "1e99999999999999999999"] {
            assert!(is_whole(text), "{text}");
        }
        for text in ["1.5", "1e-1", "100e-3", "1.25e1", "1e-99999999999999999999"] {
            assert!(!is_whole(text), "{text}");
        }
    }
}
