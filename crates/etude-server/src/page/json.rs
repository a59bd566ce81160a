//! JSON for people: indented, and bounded for a page.

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

/// The text of a JSON value with indents, its numbers as they are written. It is truncated after `max` bytes or [`MAX_LINES`],
/// with a mark at its end.
pub(super) fn indented(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max) + 64);
    let (mut depth, mut lines, mut is_string, mut is_escaped) = (0_usize, 1_usize, false, false);
    let mut chars = text.trim().chars().peekable();
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
                while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                out.push(c);
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        line(&mut out, &mut lines, depth);
                    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
