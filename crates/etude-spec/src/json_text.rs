//! Lookup of places in JSON text.

use std::ops::Range;

use etude_core::pointer::unescaped;

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
