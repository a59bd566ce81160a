//! Lookup of places in JSON text, and the faults of texts that are not JSON.

use std::ops::Range;

use etude_core::pointer::unescaped;

use crate::wording::quoted;

/// Byte range of the value at a JSON pointer in `text`, which must be valid JSON. If the pointer leads nowhere, the
/// range is that of the innermost value on its path.
pub(crate) fn locate(text: &str, pointer: &str) -> Range<usize> {
    let mut cursor = Cursor { text: text.as_bytes(), at: 0 };
    cursor.blanks();
    let mut start = cursor.at;
    for token in pointer.split('/').skip(1) {
        let token = unescaped(token);
        let entered = match cursor.peek() {
            Some(b'{') => cursor.member(&token),
            Some(b'[') => token.parse().is_ok_and(|index| cursor.element(index)),
            _ => false,
        };
        if !entered {
            cursor.at = start;
            break;
        }
        start = cursor.at;
    }
    cursor.skip();
    start..cursor.at
}

/// Maximum length of the part of a text that a message repeats, in characters.
const MAX_SHOWN: usize = 30;

/// The fault of a text that is not one JSON value: the part that does not belong there, with its place. `error` is the
/// parser's for this text.
pub fn json_fault(text: &str, error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let at = text.floor_char_boundary((before + column.saturating_sub(1)).min(text.len()));
    if text.trim().is_empty() {
        return "it is empty".to_owned();
    }
    if error.is_eof() {
        return format!("it ends inside a value, at line {line} column {column}");
    }
    // The parser stops inside a word.
    let in_word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let start = text[..at].trim_end_matches(in_word).len();
    let rest = text[start..].chars();
    let word: String = rest.clone().take_while(|c| in_word(*c)).take(MAX_SHOWN).collect();
    let shown = if word.is_empty() { rest.take(1).collect() } else { word };
    let column = text[before..start].chars().count() + 1;
    let what = error.to_string();
    let rule = match () {
        () if what.starts_with("trailing characters") => " after the end of the value",
        () if what.starts_with("key must be a string") => " where a name in double quotes must be",
        () if what.starts_with("control character") => " inside a string, where it must be escaped",
        () => "",
    };
    format!("unexpected {}{rule}, at line {line} column {column}", quoted(&shown))
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace() || b == b',' || b == b':') {
            self.at += 1;
        }
    }

    /// Moves to the value of a member.
    fn member(&mut self, name: &str) -> bool {
        self.at += 1;
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return false;
            }
            let start = self.at;
            self.string();
            let key = std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
            let found = serde_json::from_str::<String>(key).is_ok_and(|key| key == name);
            self.blanks();
            if found {
                return true;
            }
            self.skip();
        }
    }

    /// Moves to an element.
    fn element(&mut self, index: usize) -> bool {
        self.at += 1;
        for _ in 0..index {
            self.blanks();
            if matches!(self.peek(), None | Some(b']')) {
                return false;
            }
            self.skip();
        }
        self.blanks();
        !matches!(self.peek(), None | Some(b']'))
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(b) = self.peek() {
            self.at += if b == b'\\' { 2 } else { 1 };
            if b == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.text.len());
    }

    /// Moves past the value.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(b) = self.peek() {
            match b {
                b'"' => self.string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b if depth == 0 && (b == b',' || b.is_ascii_whitespace()) => return,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that is not JSON is described by the part that does not belong there, and its place.
    #[test]
    fn faults_name_what_was_found_and_where() {
        let fault = |text: &str| {
            let error = serde_json::from_str::<serde_json::Value>(text).expect_err(text);
            json_fault(text, &error)
        };
        for (text, expected) in [
            ("", "it is empty"),
            ("hello there", "unexpected `hello`, at line 1 column 1"),
            ("none", "unexpected `none`, at line 1 column 1"),
            ("{\"a\":\n 'x'}", "unexpected `'`, at line 2 column 2"),
            ("{a: 1}", "unexpected `a` where a name in double quotes must be, at line 1 column 2"),
            ("[1] more", "unexpected `more` after the end of the value, at line 1 column 5"),
            ("[1, ", "it ends inside a value, at line 1 column 4"),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn pointers_lead_to_places() {
        let text = r#"{ "a": [1, {"b/c": "x\"}"}], "d": {} }"#;
        let at = |pointer| &text[locate(text, pointer)];
        assert_eq!(at(""), text);
        assert_eq!(at("/a/0"), "1");
        assert_eq!(at("/a/1/b~1c"), r#""x\"}""#);
        assert_eq!(at("/d"), "{}");
        assert_eq!(at("/d/none"), "{}");
        assert_eq!(at("/a/7"), r#"[1, {"b/c": "x\"}"}]"#);
    }
}
