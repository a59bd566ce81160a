//! Text of others on the user's terminal: nothing in it may steer the terminal.

use std::fmt::Write;

/// `text` without escape sequences and with other control characters made visible. Line breaks and tabs stay.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in anstream::adapter::strip_str(text).to_string().chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => {}
            c if c.is_control() || is_bidirectional(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Characters that turn the direction of text around, and so can make it look like other text.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn escapes_and_control_characters_do_not_reach_the_terminal() {
        assert_eq!(harmless("\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7} ok\tx\n"), "red ok\tx\n");
        assert_eq!(harmless("a\u{8}b\u{202e}c"), "ab\\u{202e}c");
    }
}
