//! JSON for people: indented, and never larger than a page bears.

/// Characters of a value that a page shows.
pub(super) const MAX_SHOWN: usize = 64 * 1024;

/// The text of a JSON value with indents, its numbers as they are written. At most `max` bytes and what ends them.
pub(super) fn pretty(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max) + 64);
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    let mut chars = text.trim().chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(40)));
    };
    while let Some(c) = chars.next() {
        if out.len() >= max {
            out.push_str("\n…");
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
                        line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    super::text::visible(&out).into_owned()
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
        assert!(pretty(&format!("[{}]", "1,".repeat(10_000)), 100).len() < 120);
    }
}
