//! Words of shell text.

/// A text as one word of a POSIX shell, in single quotes.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text as one word of a shell: in quotes only if a shell would divide or change it.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    // At its start, some shells take `=` for the path of a program.
    let needs_no_quotes = !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain);
    if needs_no_quotes { text.to_owned() } else { quoted(text) }
}

/// Words as a command line.
pub fn line<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|text| word(text.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(line(&["a-b_c", "x=1,y@z", "./p:q"]), "a-b_c x=1,y@z ./p:q");
        assert_eq!(
            line(&["", "a b", "it's", "call[1]", "hey!", "$x", "=a"]),
            r"'' 'a b' 'it'\''s' 'call[1]' 'hey!' '$x' '=a'"
        );
    }
}
