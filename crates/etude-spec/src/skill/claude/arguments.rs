//! Splitting of a skill's arguments into words, with the quotes of a shell (C-3.3).

/// Splits `text` into words. Quotes keep words together; an unclosed quote takes the rest.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let escaped = chars.next();
                let into = word.get_or_insert_default();
                match escaped {
                    Some(next) if quote.is_none() || matches!(next, '"' | '\\' | '$' | '`') => into.push(next),
                    Some(next) => into.extend(['\\', next]),
                    None => into.push('\\'),
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-3.3: arguments are split as a shell would.
    #[test]
    fn words_are_split_as_in_a_shell() {
        assert_eq!(words(r#""hello world" b 'c "d"' e\ f """#), ["hello world", "b", "c \"d\"", "e f", ""]);
        assert_eq!(words("don't stop"), ["dont stop"]);
        assert!(words("  ").is_empty());
    }
}
