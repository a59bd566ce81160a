//! Scalars of the YAML that etude writes, on one line.

/// Writes a text as a YAML scalar: plain if every reader takes it for that text, else in double quotes.
pub fn quote(text: &str) -> String {
    const KEYWORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts && text.chars().all(is_word) && !KEYWORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    // A JSON string is a YAML string, except for characters that must be escaped in YAML.
    serde_json::Value::from(text).to_string().chars().map(escaped).collect()
}

fn escaped(c: char) -> String {
    match c {
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_plain_or_quoted() {
        for text in ["a", "a-b_c/d.e", "A1"] {
            assert_eq!(quote(text), text);
        }
        for text in ["", "1", "No", "nan", "a b", "a: b", "-a", "a#"] {
            assert_eq!(quote(text), format!("\"{text}\""));
        }
        assert_eq!(quote("a\"\n"), r#""a\"\n""#);
        // L-12: characters that YAML does not allow in a quoted scalar are escaped.
        assert_eq!(quote("a\u{7f}b\u{85}c\u{9b}\u{2028}\u{feff}"), r#""a\u007fb\u0085c\u009b\u2028\ufeff""#);
    }
}
