//! The `frontmatter` export of a JavaScript module, read without running the module.

use serde_json::{Map, Value};

/// Maximum nesting depth of a literal.
const MAX_DEPTH: usize = 64;

/// Frontmatter of a module with the source `text`: an empty object if the module exports none. `None` if the export is
/// not a plain object literal, so that only running the module can evaluate it.
///
/// The accepted form is `export const frontmatter = {…}`, once, outside of any block, and without any other use of the
/// name. Anything that could change the exported value gives `None`.
pub fn frontmatter(text: &str) -> Option<Value> {
    // Names can be written with escapes, and a module can export everything of another one.
    if text.contains("\\u") {
        return None;
    }
    match text.matches("frontmatter").count() {
        0 if !is_forwarding(text) => return Some(Value::Object(Map::new())),
        1 => {}
        _ => return None,
    }
    let mut scan =
        Scan { rest: text.strip_prefix("#!").map_or(text, |rest| rest.split_once('\n').map_or("", |(_, r)| r)) };
    let literal = loop {
        scan.skip_blank()?;
        if let Some(after) = declared(scan.rest) {
            break after;
        }
        scan.skip_token()?;
    };
    let mut scan = Scan { rest: literal };
    if !literal.starts_with('{') {
        return None;
    }
    scan.skip_token()?;
    let object = &literal[..literal.len() - scan.rest.len()];
    if !is_end(scan.rest) {
        return None;
    }
    json5::from_str(object).ok().filter(Value::is_object)
}

fn is_forwarding(text: &str) -> bool {
    let mut parts = text.split("export").skip(1);
    parts.any(|rest| rest.trim_start().starts_with(['*', '/']))
}

/// The text after `export const frontmatter =` at the start of `text`.
fn declared(text: &str) -> Option<&str> {
    let word = |text: &'_ str, word: &str| -> Option<usize> {
        let rest = text.strip_prefix(word)?;
        let trimmed = rest.trim_start();
        (trimmed.len() < rest.len()).then_some(text.len() - trimmed.len())
    };
    let rest = &text[word(text, "export")?..];
    // Without `const`, the value may be assigned again before it is read.
    let rest = rest[word(rest, "const")?..].strip_prefix("frontmatter")?.trim_start();
    let rest = rest.strip_prefix('=')?;
    (!rest.starts_with(['=', '>'])).then(|| rest.trim_start())
}

/// True if a statement ends before `rest`.
fn is_end(rest: &str) -> bool {
    let mut scan = Scan { rest };
    if scan.skip_blank().is_none() {
        return false;
    }
    let is_new_line = rest[..rest.len() - scan.rest.len()].contains('\n');
    let is_word = scan.rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$');
    let goes_on = ["in", "instanceof"].iter().any(|word| {
        let after = scan.rest.strip_prefix(word);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$'))
    });
    scan.rest.is_empty() || scan.rest.starts_with(';') || (is_new_line && is_word && !goes_on)
}

/// Token-by-token scan of a source, without a grammar.
struct Scan<'t> {
    rest: &'t str,
}

impl Scan<'_> {
    /// Skips white space and comments; `None` at an unclosed comment.
    fn skip_blank(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = comment.find(['\n', '\r', '\u{2028}', '\u{2029}']).map_or("", |end| &comment[end..]);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = &comment[comment.find("*/")? + 2..];
            } else {
                return Some(());
            }
        }
    }

    /// Skips a string, a word, a sign, or everything between brackets; `None` at the end, or if only a grammar could
    /// classify the token.
    fn skip_token(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            self.skip_blank()?;
            let first = self.rest.chars().next()?;
            match first {
                '"' | '\'' => self.skip_string(first)?,
                // `/` begins a regular expression or a division, and a template may contain code.
                '/' | '`' => return None,
                '{' | '[' | '(' if depth == MAX_DEPTH => return None,
                '{' | '[' | '(' => {
                    depth += 1;
                    self.rest = &self.rest[1..];
                }
                '}' | ']' | ')' => {
                    depth = depth.checked_sub(1)?;
                    self.rest = &self.rest[1..];
                }
                _ => {
                    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                    let length = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len()).max(first.len_utf8());
                    self.rest = &self.rest[length..];
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn skip_string(&mut self, quote: char) -> Option<()> {
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => drop(characters.next()),
                '\n' => return None,
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plain_literal_is_read() {
        for (text, expected) in [
            (
                "export const frontmatter = {name: 'greet', metadata: {params: {type: \"object\"}, n: [1, -2.5,],}};\n",
                json!({"name": "greet", "metadata": {"params": {"type": "object"}, "n": [1, -2.5]}}),
            ),
            (
                "#!/usr/bin/env node\n// its\n/* own */ import fs from 'node:fs';\nfunction f() { return {a: 1}; }\nexport const frontmatter={}\nexport default () => 1 / 2;\n",
                json!({}),
            ),
            (
                "export const frontmatter = {a: '}', /* { */ \"b\": \"\\\"}\", // }\n c: true}",
                json!({"a": "}", "b": "\"}", "c": true}),
            ),
            ("export default () => `${1}`;\n", json!({})),
        ] {
            assert_eq!(frontmatter(text), Some(expected), "{text}");
        }
    }

    /// A module that could export something else gives no frontmatter.
    #[test]
    fn what_only_running_shows_is_not_guessed() {
        for text in [
            "export const frontmatter = make();",
            "export const frontmatter = {name};",
            "export const frontmatter = {name: NAME};",
            "export const frontmatter = {...other};",
            "export const frontmatter = {get name() { return 'x'; }};",
            "export const frontmatter = {name: `x`};",
            "export const frontmatter = {a: 1}.b;",
            "export const frontmatter = {a: 1}\n.b;",
            "export const frontmatter = {a: 1}\nin x;",
            "export const frontmatter = {a: 1}\n|| 2;",
            "export const frontmatter = {a: 1}, other = 2;",
            "export let frontmatter = {a: 1};",
            "export const frontmatter = {a: 1};\nfrontmatter.a = 2;",
            "/* export const frontmatter = {a: 1}; */ export {x as frontmatter};",
            "// export const frontmatter = {a: 1};\nexport * from './other.mjs';",
            "export * from './other.mjs';",
            "export/**/* from './other.mjs';",
            "const a = 'export const frontmatter = {a: 1};';",
            "const a = `\nexport const frontmatter = {a: 1};\n`;",
            "const a = /[`]/; export const frontmatter = {a: 1};",
            "if (x) {\nexport const frontmatter = {a: 1};\n}",
            "export const fr\\u006fntmatter = {a: 1};",
            "export const frontmatter = {a: 1",
            "/* frontmatter",
            "export const frontmatter => {a: 1}",
        ] {
            assert_eq!(frontmatter(text), None, "{text}");
        }
        let deep = format!("export const frontmatter = {}1{};", "{a:".repeat(100_000), "}".repeat(100_000));
        assert_eq!(frontmatter(&deep), None);
    }
}
