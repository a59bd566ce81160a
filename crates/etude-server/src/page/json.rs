//! JSON for people: indented, and bounded for a page.

pub(super) use etude_core::indent::is_whole;

/// Maximum size of a value on a page, in bytes.
pub(super) const MAX_SHOWN: usize = 64 * 1024;

/// Maximum number of lines of a value on a page. A browser lays all of them out before it paints.
const MAX_LINES: usize = 1_000;

/// The indented text of a JSON value, with hidden characters made visible.
pub(super) fn pretty(text: &str, max: usize) -> String {
    super::text::visible(&indented(text, max)).into_owned()
}

/// The text of a JSON value with indents, truncated after `max` bytes or [`MAX_LINES`].
pub(super) fn indented(text: &str, max: usize) -> String {
    etude_core::indent::indented(text, max, MAX_LINES)
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
