//! Placeholders of a body, and their values (C-3.3).

use super::Values;
use super::arguments::words;
use super::quotes::Line;

/// Inserts values into pieces of a body, and remembers if there was a placeholder for arguments.
pub(super) struct Substitution<'v> {
    values: &'v Values<'v>,
    words: Vec<String>,
    has_placeholder: bool,
}

/// A placeholder that begins with `$`.
struct Token {
    /// Length in bytes, including the `$`.
    length: usize,
    /// The replacement; `None` leaves the placeholder as written.
    value: Option<String>,
    /// True for arguments: their `$` can be escaped, and in commands they stay text.
    is_argument: bool,
}

impl<'v> Substitution<'v> {
    pub(super) fn new(values: &'v Values<'v>) -> Self {
        Self { values, words: words(values.arguments.unwrap_or_default()), has_placeholder: false }
    }

    /// True if any piece so far has a placeholder for arguments.
    pub(super) fn has_placeholder(&self) -> bool {
        self.has_placeholder
    }

    /// Fills in a piece of prose.
    pub(super) fn text(&mut self, piece: &str) -> String {
        self.put_into(piece, |line, value| line.push(value))
    }

    /// Fills in a command: arguments are never read as shell syntax.
    pub(super) fn command(&mut self, line: &str) -> String {
        self.put_into(line, Line::argument)
    }

    fn put_into(&mut self, piece: &str, put: impl Fn(&mut Line, &str)) -> String {
        let mut out = Line::default();
        let mut rest = piece;
        while let Some(at) = rest.find(['$', '{']) {
            out.push(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{baseDir}") {
                out.push(self.values.skill_dir);
                rest = after;
                continue;
            }
            let token = rest.strip_prefix('$').and_then(|after| self.token(after));
            let Some(token) = token else {
                out.push(&rest[..1]);
                rest = &rest[1..];
                continue;
            };
            if token.is_argument && out.backslashes() % 2 == 1 {
                out.pop();
                out.push(&rest[..token.length]);
            } else {
                self.has_placeholder |= token.is_argument;
                match token.value {
                    Some(value) if token.is_argument => put(&mut out, &value),
                    Some(value) => out.push(&value),
                    None => out.push(&rest[..token.length]),
                }
            }
            rest = &rest[token.length..];
        }
        out.push(rest);
        out.into_text()
    }

    /// Reads the placeholder after a `$`.
    fn token(&self, after: &str) -> Option<Token> {
        if let Some(braced) = after.strip_prefix('{') {
            let name = &braced[..braced.find('}')?];
            let value = match name {
                "CLAUDE_SKILL_DIR" => Some(self.values.skill_dir),
                "CLAUDE_PROJECT_DIR" => Some(self.values.project_dir),
                "CLAUDE_SESSION_ID" => self.values.session_id,
                "CLAUDE_EFFORT" => self.values.effort,
                _ => return None,
            };
            return Some(Token { length: name.len() + 3, value: value.map(str::to_owned), is_argument: false });
        }
        if let Some(rest) = after.strip_prefix("ARGUMENTS") {
            let indexed = rest.strip_prefix('[').and_then(|rest| {
                let (index, length) = number(rest)?;
                rest[length..].starts_with(']').then_some((index, length + 2))
            });
            if let Some((index, length)) = indexed {
                let value = self.words.get(index).cloned();
                return Some(Token { length: 10 + length, value, is_argument: true });
            }
            if !goes_on(rest) {
                let value = self.values.arguments.unwrap_or_default().to_owned();
                return Some(Token { length: 10, value: Some(value), is_argument: true });
            }
        }
        if let Some((index, length)) = number(after) {
            return Some(Token { length: 1 + length, value: self.words.get(index).cloned(), is_argument: true });
        }
        // The longest name wins: `$issue_id` is not `$issue`.
        let fits = |name: &&String| after.strip_prefix(name.as_str()).is_some_and(|rest| !goes_on(rest));
        let name =
            self.values.names.iter().filter(|name| !name.is_empty()).filter(fits).max_by_key(|name| name.len())?;
        let at = self.values.names.iter().position(|known| known == name)?;
        let value = self.words.get(at).cloned().unwrap_or_default();
        Some(Token { length: 1 + name.len(), value: Some(value), is_argument: true })
    }
}

/// The number at the start of `text`, with its count of digits.
fn number(text: &str) -> Option<(usize, usize)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..length].parse().ok().map(|number| (number, length))
}

/// True if a name would continue here.
fn goes_on(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}
