//! JSON for people: indented, and bounded for a page.

use etude_core::hidden::{is_hidden, is_joiner};

/// Maximum size of a value on a page, in bytes.
pub(super) const MAX_SHOWN: usize = 64 * 1024;

/// Maximum number of lines of a value on a page. A browser lays all of them out before it paints.
const MAX_LINES: usize = 1_000;

/// The end of a truncated value. The text of a whole value never ends so.
const CUT: &str = "\n…";

/// True if [`indented`] has not truncated the text.
pub(super) fn is_whole(shown: &str) -> bool {
    !shown.ends_with(CUT)
}

/// The indented text of a JSON value, with hidden characters made visible.
pub(super) fn pretty(text: &str, max: usize) -> String {
    super::text::visible(&indented(text, max)).into_owned()
}

/// The text of a JSON value with indents, its numbers as they are written, and its letters instead of their escapes. It is
/// truncated after `max` bytes or [`MAX_LINES`], with a mark at its end.
pub(super) fn indented(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max) + 64);
    let (mut depth, mut lines, mut is_string, mut is_escaped) = (0_usize, 1_usize, false, false);
    let mut chars = text.trim().chars();
    let line = |out: &mut String, lines: &mut usize, depth: usize| {
        *lines += 1;
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(40)));
    };
    while let Some(c) = chars.next() {
        if out.len() >= max || lines > MAX_LINES {
            out.push_str(CUT);
            break;
        }
        if is_string {
            if c == '\\'
                && !is_escaped
                && let Some((letter, len)) = letter(chars.as_str())
            {
                out.push(letter);
                chars = chars.as_str()[len..].chars();
                continue;
            }
            out.push(c);
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => is_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => {
                is_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                let rest = chars.as_str().trim_ascii_start();
                chars = rest.chars();
                if let Some(end @ ('}' | ']')) = rest.chars().next() {
                    chars.next();
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, &mut lines, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, &mut lines, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, &mut lines, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// The letter of the escape `\uXXXX` (or of two for one letter) whose text after the backslash is `rest`, and the length of that
/// text. `None` for ASCII, for hidden characters except joiners, and for half a letter: these stay escapes.
fn letter(rest: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u16::from_str_radix(rest.get(at..at + 4)?, 16).ok();
    let first = unit(1).filter(|_| rest.starts_with('u'))?;
    let second = unit(7).filter(|_| rest.get(5..7) == Some("\\u")).unwrap_or_default();
    let letter = char::decode_utf16([first, second]).next()?.ok()?;
    // The rest of the text decides about joiners.
    let is_shown = is_joiner(letter) || !is_hidden("", 0, letter);
    (!letter.is_ascii() && is_shown).then_some((letter, if letter.len_utf16() == 2 { 11 } else { 5 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many programs escape all letters beyond ASCII. Readers see the letters; hidden characters and broken escapes stay escapes.
    #[test]
    fn letters_are_shown_instead_of_their_escapes() {
        let text = r#"{"\u0645": "\u4f60\u597d \ud83d\ude00 \u0041\n \\u4f60 \u202e \ud83d \u12"}"#;
        let shown = "{\n  \"م\": \"你好 😀 \\u0041\\n \\\\u4f60 \\u202e \\ud83d \\u12\"\n}";
        assert_eq!(pretty(text, 1_000), shown);
        // A joiner stays where letters need it.
        assert_eq!(pretty(r#""\u06cc\u200c\u062e a\u200db""#, 1_000), "\"ی\u{200c}خ a⟨U+200D⟩b\"");
    }

    /// S-33: numbers keep their digits on pages too.
    #[test]
    fn values_are_indented_and_keep_their_digits() {
        let text = r#"{"n":123456789012345678901234567890, "a":[1,{}],"s":"a, \"{b"}"#;
        let lines =
            "{\n  \"n\": 123456789012345678901234567890,\n  \"a\": [\n    1,\n    {}\n  ],\n  \"s\": \"a, \\\"{b\"\n}";
        assert_eq!(pretty(text, 1_000), lines);
        assert!(is_whole(lines));
    }

    /// S-131: a value on a page is bounded in bytes and in lines, and marked as truncated.
    #[test]
    fn long_values_are_cut() {
        let long = format!("[{}1]", "1,".repeat(10_000));
        let by_bytes = pretty(&long, 100);
        assert!(by_bytes.len() < 120 && !is_whole(&by_bytes));
        let by_lines = pretty(&long, 1_000_000);
        assert!((MAX_LINES..MAX_LINES + 3).contains(&by_lines.lines().count()));
        assert!(!is_whole(&by_lines));
        assert!(is_whole(&pretty(&format!("[{}1]", "1,".repeat(900)), 1_000_000)));
    }
}
