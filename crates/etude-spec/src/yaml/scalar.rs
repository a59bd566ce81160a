//! Resolution of plain scalars by the core schema of YAML 1.2.

use crate::yaml::node::{Scalar, Style};

/// Resolved form of a scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plain {
    /// `null`, `~`, or left out.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number, as JSON writes it; of any size.
    Int(String),
    /// Any other number, as JSON writes it.
    Float(String),
    /// `.inf` or `.nan`, which JSON does not have.
    NotFinite,
    /// Any other text.
    Text,
}

impl Scalar<'_> {
    /// Resolves the scalar. Quoted scalars and blocks are always text.
    pub fn resolve(&self) -> Plain {
        if self.style == Style::Plain { resolve(&self.text) } else { Plain::Text }
    }
}

fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Bool(true),
        "false" | "False" | "FALSE" => return Plain::Bool(false),
        _ => {}
    }
    let first = text.as_bytes()[0];
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Plain::Text;
    }
    let radix = |digits: &str, radix| u128::from_str_radix(digits, radix).map(|n| Plain::Int(n.to_string()));
    if let Some(digits) = text.strip_prefix("0x").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())) {
        return radix(digits, 16).unwrap_or(Plain::Text);
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|d| d.bytes().all(|b| (b'0'..=b'7').contains(&b))) {
        return radix(digits, 8).unwrap_or(Plain::Text);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Plain::NotFinite;
    }
    number(text.starts_with('-'), unsigned).unwrap_or(Plain::Text)
}

/// Converts a decimal number without its sign to the form of JSON.
fn number(negative: bool, text: &str) -> Option<Plain> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let exponent_digits = exponent.map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    let has_digits = !whole.is_empty() || fraction.is_some_and(|f| !f.is_empty());
    if !has_digits
        || !digits(whole)
        || !fraction.is_none_or(digits)
        || !exponent_digits.is_none_or(|e| !e.is_empty() && digits(e))
    {
        return None;
    }
    let mut out = String::from(if negative { "-" } else { "" });
    let whole = whole.trim_start_matches('0');
    out.push_str(if whole.is_empty() { "0" } else { whole });
    if fraction.is_none() && exponent.is_none() {
        return Some(Plain::Int(out));
    }
    if let Some(fraction) = fraction.filter(|f| !f.is_empty()) {
        out.push('.');
        out.push_str(fraction);
    }
    if let Some(exponent) = exponent {
        out.push('e');
        out.push_str(exponent);
    }
    Some(Plain::Float(out))
}
