//! JSON for people: indented, and bounded.

use crate::hidden::{is_hidden, is_joiner};

/// The end of a truncated value. The text of a whole value never ends so.
const CUT: &str = "\n…";

/// True if [`indented`] has not truncated the text.
pub fn is_whole(shown: &str) -> bool {
    !shown.ends_with(CUT)
}

/// The text of a JSON value with indents, its numbers as they are written, and its letters instead of their escapes. It is
/// truncated after `max` bytes or `max_lines`, with a mark at its end.
pub fn indented(text: &str, max: usize, max_lines: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    let (mut depth, mut lines, mut is_string, mut is_escaped) = (0_usize, 1_usize, false, false);
    let mut chars = text.trim().chars();
    let line = |out: &mut String, lines: &mut usize, depth: usize| {
        *lines += 1;
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(40)));
    };
    while let Some(c) = chars.next() {
        if out.len() >= max || lines > max_lines {
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

    /// A-3.3: people read numbers with all their digits, and letters instead of escapes. Hidden characters and broken escapes
    /// stay escapes.
    #[test]
    fn an_indented_value_is_the_same_value() {
        let text = r#" {"id": 12345678901234567890123,"f":1.00, "s":"\u00e9 \"{,}\\" ,"e":[ ],"l":[-1e5 ,{"t":"\ud800 \u202e"}]} "#;
        let lines = [
            "{",
            r#"  "id": 12345678901234567890123,"#,
            r#"  "f": 1.00,"#,
            r#"  "s": "é \"{,}\\","#,
            r#"  "e": [],"#,
            r#"  "l": ["#,
            "    -1e5,",
            "    {",
            r#"      "t": "\ud800 \u202e""#,
            "    }",
            "  ]",
            "}",
        ];
        assert_eq!(indented(text, 1_000, 20), lines.join("\n"));
        assert_eq!(indented("[1,2,3]", 1_000, 2), "[\n  1,\n  \n…");
        assert!(is_whole(&indented("[1]", 1_000, 3)) && !is_whole(&indented("[1,2,3]", 5, 20)));
    }
}
