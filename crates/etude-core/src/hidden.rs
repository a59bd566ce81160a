//! Characters in foreign text that a reader does not see, or that change how other text reads.

/// True if `c`, at the byte `at` of `text`, is hidden: control characters except line breaks and tabs, characters that change
/// the direction of text, and characters without a width that make two names look alike or carry hidden text.
///
/// Joiners and the two presentation selectors have no width either. Emoji and scripts use them, one at a time and after a
/// character beyond ASCII. They are hidden anywhere else.
pub fn is_hidden(text: &str, at: usize, c: char) -> bool {
    if !is_joiner(c) {
        return hides_anywhere(c);
    }
    let before = text[..at].chars().next_back().unwrap_or(' ');
    let is_keycap = || before.is_ascii_digit() || matches!(before, '#' | '*');
    match c {
        '\u{200d}' if before == '\u{fe0f}' => false,
        '\u{fe0f}' if is_keycap() => !text[at + c.len_utf8()..].starts_with('\u{20e3}'),
        _ => before.is_ascii() || hides_anywhere(before) || is_joiner(before),
    }
}

/// True if `text` has a hidden character: see [`is_hidden`].
pub fn hides(text: &str) -> bool {
    text.char_indices().any(|(at, c)| is_hidden(text, at, c))
}

/// `text` without its hidden characters: see [`is_hidden`].
pub fn stripped(text: &str) -> String {
    text.char_indices().filter(|(at, c)| !is_hidden(text, *at, *c)).map(|(_, c)| c).collect()
}

/// True for joiners and presentation selectors, which are hidden at some places only.
pub fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
}

fn hides_anywhere(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_control() && !matches!(c, '\n' | '\t'),
        false => c.is_control() || is_bidirectional(c) || is_invisible(c),
    }
}

/// Characters that change the direction of text, and so can make it look like other text.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Characters without a width that make two names look alike, and characters that carry hidden text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{34f}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{ffa0}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0080}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md: all faces hide, escape or remove the same characters.
    #[test]
    fn control_and_invisible_characters_are_hidden() {
        for c in [
            '\0', '\r', '\u{1b}', '\u{7f}', '\u{9b}', '\u{ad}', '\u{61c}', '\u{180e}', '\u{200b}', '\u{200e}',
            '\u{2028}', '\u{202e}', '\u{2060}', '\u{2065}', '\u{2069}', '\u{206f}', '\u{3164}', '\u{fe00}', '\u{feff}',
            '\u{e0041}',
        ] {
            assert!(hides(&format!("é{c}é")), "{c:?}");
        }
        assert!(!hides("a\n\t~ é 日本 👨\u{200d}👩 می\u{200c}خواهم 1\u{fe0f}\u{20e3} \u{2764}\u{fe0f}\u{200d}🔥"));
        assert_eq!(stripped("a\u{1b}[31m\u{202e}b\u{200b}c\u{200d}d é\u{200c}\u{200d}"), "a[31mbcd é\u{200c}");
    }
}
