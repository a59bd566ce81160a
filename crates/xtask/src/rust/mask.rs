//! Masking of comments and the content of literals, so that the remaining text can be searched for tokens.

/// A string literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    /// Start, as a byte offset.
    pub offset: usize,
    /// Text between its quotes, escapes as written.
    pub text: String,
}

/// Replaces comments and the content of literals by blanks, byte by byte. Returns the result and the string literals.
pub fn mask(text: &str) -> (String, Vec<Literal>) {
    let mut masker = Masker { text, bytes: text.as_bytes(), out: text.as_bytes().to_vec(), literals: Vec::new() };
    let mut at = 0;
    while at < masker.bytes.len() {
        at = masker.step(at);
    }
    // Blanked ranges begin and end at ASCII characters, so the rest is still UTF-8.
    (String::from_utf8_lossy(&masker.out).into_owned(), masker.literals)
}

struct Masker<'t> {
    text: &'t str,
    bytes: &'t [u8],
    out: Vec<u8>,
    literals: Vec<Literal>,
}

impl Masker<'_> {
    /// Handles the token at `at` and returns the offset of the next one.
    fn step(&mut self, at: usize) -> usize {
        let rest = &self.bytes[at..];
        if rest.starts_with(b"//") {
            let end = at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            return self.blank(at, end);
        }
        if rest.starts_with(b"/*") {
            let end = self.comment_end(at);
            return self.blank(at, end);
        }
        match rest[0] {
            b'"' => self.string(at),
            b'r' if !self.follows_word(at) => self.raw_string(at),
            b'\'' => self.character(at),
            _ => at + 1,
        }
    }

    fn blank(&mut self, start: usize, end: usize) -> usize {
        for byte in &mut self.out[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        end
    }

    fn follows_word(&self, at: usize) -> bool {
        let is_prefix = |byte: u8| byte == b'b' || byte == b'c';
        match at.checked_sub(1).map(|before| self.bytes[before]) {
            // `br"…"` and `cr"…"`, if the letter is not the end of a longer word.
            Some(byte) if is_prefix(byte) => at >= 2 && super::is_word(self.bytes[at - 2]),
            Some(byte) => super::is_word(byte),
            None => false,
        }
    }

    fn comment_end(&self, start: usize) -> usize {
        let (mut depth, mut at) = (0_usize, start);
        while at < self.bytes.len() {
            if self.bytes[at..].starts_with(b"/*") {
                depth += 1;
                at += 2;
            } else if self.bytes[at..].starts_with(b"*/") {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            } else {
                at += 1;
            }
        }
        at
    }

    fn string(&mut self, start: usize) -> usize {
        let mut at = start + 1;
        while at < self.bytes.len() && self.bytes[at] != b'"' {
            at += if self.bytes[at] == b'\\' { 2 } else { 1 };
        }
        self.literal(start, start + 1, at.min(self.bytes.len()), 1)
    }

    fn raw_string(&mut self, start: usize) -> usize {
        let hashes = self.bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
        let open = start + 1 + hashes;
        if self.bytes.get(open) != Some(&b'"') {
            return start + 1;
        }
        let close = format!("\"{}", "#".repeat(hashes));
        let end = self.text[open + 1..].find(&close).map_or(self.bytes.len(), |found| open + 1 + found);
        self.literal(start, open + 1, end, close.len())
    }

    fn literal(&mut self, offset: usize, from: usize, to: usize, close: usize) -> usize {
        let text = self.text.get(from..to).unwrap_or_default().to_owned();
        self.literals.push(Literal { offset, text });
        self.blank(from, to);
        (to + close).min(self.bytes.len())
    }

    /// Handles a character literal, or a lifetime, which has no closing quote behind its first character.
    fn character(&mut self, start: usize) -> usize {
        let Some(first) = self.text[start + 1..].chars().next() else {
            return start + 1;
        };
        let end = if first == '\\' {
            let body = &self.bytes[(start + 3).min(self.bytes.len())..];
            body.iter().position(|byte| *byte == b'\'').map(|found| start + 3 + found)
        } else {
            let after = start + 1 + first.len_utf8();
            (self.bytes.get(after) == Some(&b'\'')).then_some(after)
        };
        match end {
            Some(end) => self.blank(start + 1, end) + 1,
            None => start + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        mask(text).0.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        for (text, left) in [
            ("a // todo\nb", "a b"),
            ("a /* x /* y */ z */ b", "a b"),
            (r#"f("std::fs \" // no") g"#, "f(\" \") g"),
            ("f(r#\"a \" b\"#) g", "f(r#\" \"#) g"),
            ("f(br\"x\") r#fn br", "f(br\" \") r#fn br"),
            ("fn f<'a>(x: &'a str) { '{' }", "fn f<'a>(x: &'a str) { ' ' }"),
            ("['\\'', '\"', 'é'] x", "[' ', ' ', ' '] x"),
            ("b'{' '\\u{7d}' }", "b' ' ' ' }"),
        ] {
            assert_eq!(masked(text), left, "{text}");
        }
    }

    #[test]
    fn nothing_moves() {
        let text = "é // é\n\"é\n\" fn";
        let (code, literals) = mask(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.find("fn"), text.find("fn"));
        assert_eq!(literals, [Literal { offset: 9, text: "é\n".to_owned() }]);
    }
}
