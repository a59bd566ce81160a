//! Third-party text on the user's terminal: no part of it may control the terminal, or be invisible.

use std::fmt::Write;

use etude_core::hidden::is_hidden;

/// `text` without escape sequences, and with all other invisible characters escaped. Line breaks and tabs stay.
pub(crate) fn harmless(text: &str) -> String {
    if is_ordinary(text) {
        return text.to_owned();
    }
    let stripped = anstream::adapter::strip_str(text).to_string();
    visible(&stripped.replace('\r', ""))
}

/// `text` with all invisible characters escaped, including escape sequences: for content that a person must approve, where
/// nothing may be left out. Line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        push(&mut out, c, is_hidden(text, at, c));
    }
    out
}

/// True for plain ASCII, which needs no escaping. Most text is of this kind, and programs may print a lot.
fn is_ordinary(text: &str) -> bool {
    ordinary(text) == text.len()
}

/// Length of the prefix of `text` that is plain ASCII, in bytes.
fn ordinary(text: &str) -> usize {
    text.bytes().position(|byte| !matches!(byte, b' '..=b'~' | b'\n' | b'\t')).unwrap_or(text.len())
}

fn push(out: &mut String, c: char, is_hidden: bool) {
    if is_hidden {
        let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// `text` of this program itself: its own colours stay, all other sequences that control the terminal are escaped. This is the
/// last of two guards: code that inserts third-party text into a sentence calls [`harmless`] on it.
pub(crate) fn screened(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (plain, other) = rest.split_at(ordinary(rest));
        out.push_str(plain);
        rest = other;
        let Some(c) = rest.chars().next() else { return out };
        let color = color(rest);
        if color > 0 {
            out.push_str(&rest[..color]);
            rest = &rest[color..];
        } else {
            push(&mut out, c, is_hidden(text, text.len() - rest.len(), c));
            rest = &rest[c.len_utf8()..];
        }
    }
}

/// Length of the colour sequence at the start of `text`; 0 if there is none. Styles that hide text do not count: concealed,
/// reversed, black.
fn color(text: &str) -> usize {
    let Some(after) = text.strip_prefix("\u{1b}[") else { return 0 };
    let Some(end) = after.find(|c: char| !c.is_ascii_digit() && c != ';') else { return 0 };
    let is_ours = |code: &str| {
        matches!(code, "" | "0" | "1" | "2" | "3" | "4" | "22" | "39")
            || code.parse().is_ok_and(|code: u8| matches!(code, 31..=37 | 91..=97))
    };
    match after[end..].starts_with('m') && after[..end].split(';').all(is_ours) {
        true => "\u{1b}[".len() + end + 1,
        false => 0,
    }
}

/// One or more JSON documents, for a terminal: the same values, with all invisible characters in strings written as JSON
/// escapes. Outside its strings a document has none.
pub(crate) fn visible_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if !is_hidden(text, at, c) || c == '\r' {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_control_characters_do_not_reach_the_terminal() {
        assert_eq!(harmless("\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7} ok\tx\n"), "red ok\tx\n");
        assert_eq!(harmless("a\u{8}b\u{202e}c\u{9b}31m"), "ab\\u{202e}c\\u{9b}31m");
    }

    /// Content that a person must approve is shown to its last character: an escape sequence may carry a command.
    #[test]
    fn nothing_is_left_out_of_what_is_made_visible() {
        assert_eq!(visible("ls \u{1b}]0;$(rm x)\u{7}\r\u{200b}"), "ls \\u{1b}]0;$(rm x)\\u{7}\\u{d}\\u{200b}");
        assert_eq!(
            visible("r\u{e9}sum\u{e9} \u{1f468}\u{200d}\u{1f469}\n"),
            "r\u{e9}sum\u{e9} \u{1f468}\u{200d}\u{1f469}\n"
        );
    }

    /// Joiners and selectors stay in emoji and scripts, and nowhere else: a command with one looks like a command without.
    #[test]
    fn joiners_and_selectors_stay_where_they_are_written_only() {
        for kept in [
            "\u{2764}\u{fe0f}\u{200d}\u{1f525}",
            "1\u{fe0f}\u{20e3}",
            "\u{645}\u{6cc}\u{200c}\u{62e}",
            "\u{2714}\u{fe0e}",
        ] {
            assert_eq!(visible(kept), kept);
            assert_eq!(screened(kept), kept);
        }
        for (hidden, shown) in [
            ("rm\u{fe0f} x", "rm\\u{fe0f} x"),
            ("a\u{200d}b", "a\\u{200d}b"),
            ("\u{fe0e}", "\\u{fe0e}"),
            ("1\u{fe0f}", "1\\u{fe0f}"),
            ("\u{e9}\u{200c}\u{200d}\u{200c}", "\u{e9}\u{200c}\\u{200d}\\u{200c}"),
        ] {
            assert_eq!(visible(hidden), shown);
            assert_eq!(screened(hidden), shown);
        }
    }

    #[test]
    fn our_colours_stay_and_nothing_else_that_steers_does() {
        let ours = "\u{1b}[1m\u{1b}[91merror\u{1b}[0m \u{1b}[38;5;9m";
        assert_eq!(screened(ours), "\u{1b}[1m\u{1b}[91merror\u{1b}[0m \\u{1b}[38;5;9m");
        for steering in [
            "\u{1b}[8m", "\u{1b}[2J", "\u{1b}[30m", "\u{1b}[7m", "\u{1b}]0;t\u{7}", "\u{1b}[3", "\u{1b}", "\u{9b}2J",
            "\r", "\u{7}",
        ] {
            let shown = screened(steering);
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn documents_on_a_terminal_have_the_same_values() {
        let value = serde_json::json!({"a\u{9b}": "\u{202e}\u{e0041}\u{7f}\u{1b}é"});
        let shown = visible_json(&value.to_string());
        assert!(!etude_core::hidden::hides(&shown), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("it is still a document"), value);
    }
}
