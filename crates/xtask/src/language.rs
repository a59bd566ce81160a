//! Check for words that the project does not use, in identifiers and in prose. The message has the word to use instead.

mod table;

use crate::rust::{functions, is_test, line_of, mask};
use crate::tree::{Tree, Violation};
use table::{ALLOWED, BARE_TYPES, FUNCTIONS, IDENTIFIERS, LIMITS, PROSE, Retired, TEMPLATES, UNREAD};

/// Finds retired words in identifiers, function names that do not say what the function does, and public types whose name
/// lacks its subject, tests included.
pub fn identifiers(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/")) {
        let code = mask(text).0;
        for function in functions(&code) {
            if let Some(retired) = FUNCTIONS.iter().find(|retired| retired.word == function.name) {
                found.push(Violation::at(path, function.line, refusal(&format!("fn {}", function.name), retired)));
            }
        }
        for (offset, name) in public_types(&code).filter(|(_, name)| BARE_TYPES.contains(name)) {
            let what = format!("`pub {name}`: write its subject, too: `Run{name}` (docs/style.md, Language)");
            found.push(Violation::at(path, line_of(&code, offset), what));
        }
        for (offset, name) in words(&code) {
            if ALLOWED.iter().any(|(at, allowed)| path.contains(at) && *allowed == name) {
                continue;
            }
            let parts = parts(name);
            let retired = IDENTIFIERS.iter().find(|retired| parts.iter().any(|part| part == retired.word));
            let limit =
                LIMITS.iter().find(|limit| is_constant(name) && parts.first().is_some_and(|part| part == limit.word));
            if let Some(retired) = retired.or(limit) {
                found.push(Violation::at(path, line_of(&code, offset), refusal(name, retired)));
            }
        }
    }
    found
}

/// Finds retired words and phrases in comments, messages and documents.
pub fn prose(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let is_template = |path: &str| TEMPLATES.iter().any(|dir| path.starts_with(dir)) && !path.ends_with(".rs");
    for (path, text) in tree.ending("").filter(|(path, _)| is_template(path) || path.ends_with(".md") && is_read(path))
    {
        refuse(&mut found, path, text, 0..text.len());
    }
    for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/") && is_read(path)) {
        let (_, literals) = mask(text);
        for (start, line) in comments(text, &literals) {
            refuse(&mut found, path, text, start..start + line.len());
        }
        // Literals of tests are data: scripts, documents and responses of models.
        for literal in literals.iter().filter(|literal| !is_test(path) && literal.text.contains(' ')) {
            refuse(&mut found, path, text, literal.offset..literal.offset + literal.text.len() + 1);
        }
    }
    found.sort();
    found.dedup();
    found
}

fn is_read(path: &str) -> bool {
    !UNREAD.iter().any(|unread| path.starts_with(unread))
}

/// Line comments of a file that are not inside a literal, with their offsets.
fn comments<'t>(text: &'t str, literals: &[crate::rust::Literal]) -> Vec<(usize, &'t str)> {
    let mut at = 0;
    let mut found = Vec::new();
    for line in text.split_inclusive('\n') {
        let start = line.find("//").map(|column| (at + column, &line[column..]));
        let is_literal =
            |offset: usize| literals.iter().any(|l| (l.offset..=l.offset + l.text.len() + 1).contains(&offset));
        found.extend(start.filter(|(offset, _)| !is_literal(*offset)));
        at += line.len();
    }
    found
}

fn refuse(found: &mut Vec<Violation>, path: &str, text: &str, range: std::ops::Range<usize>) {
    let prose = text[range.clone()].to_ascii_lowercase();
    for retired in PROSE {
        let mut from = 0;
        while let Some(at) = prose[from..].find(retired.word).map(|at| from + at) {
            from = at + retired.word.len();
            let is_edge = |byte: Option<&u8>| byte.is_none_or(|b| !b.is_ascii_alphanumeric() && !b"_`-/".contains(b));
            let bytes = prose.as_bytes();
            if is_edge(at.checked_sub(1).and_then(|before| bytes.get(before))) && is_edge(bytes.get(from)) {
                let line = line_of(text, range.start + at);
                found.push(Violation::at(path, line, refusal(retired.word, retired)));
            }
        }
    }
}

fn refusal(name: &str, retired: &Retired) -> String {
    format!("`{name}`: write {} (docs/style.md, Language)", retired.instead)
}

fn is_constant(name: &str) -> bool {
    !name.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Identifiers in code, with their offsets.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + code[from..].find(is_part)?;
        let end = code[start..].find(|c| !is_part(c)).map_or(code.len(), |length| start + length);
        from = end;
        Some((start, &code[start..end]))
    })
}

/// Names of the types in code that other crates can name, with their offsets.
fn public_types(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let names: Vec<_> = words(code).collect();
    let is_type = |window: &&[(usize, &str)]| {
        let [(at, visible), (_, kind), (name, _)] = window else { return false };
        // `pub(crate)` has a third word before the name.
        *visible == "pub" && matches!(*kind, "enum" | "struct" | "trait" | "type") && !code[*at..*name].contains('(')
    };
    names.windows(3).filter(is_type).map(|window| window[2]).collect::<Vec<_>>().into_iter()
}

/// Words of an identifier in lower case: `RedactedStream` and `redacted_stream` have two each.
pub(crate) fn parts(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for piece in name.split('_').filter(|piece| !piece.is_empty()) {
        let mut part = String::new();
        let mut was_lower = false;
        for c in piece.chars() {
            if c.is_uppercase() && was_lower {
                parts.push(std::mem::take(&mut part));
            }
            was_lower = c.is_lowercase() || c.is_ascii_digit();
            part.extend(c.to_lowercase());
        }
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(check: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<String> {
        check(&Tree::made_up(&[(path, text)])).into_iter().map(|violation| violation.to_string()).collect()
    }

    /// Each retired word is refused, and the message has the word to use.
    #[test]
    fn every_retired_word_is_refused_when_it_is_put_back() {
        for retired in IDENTIFIERS {
            let word = retired.word;
            let camel = word[..1].to_uppercase() + &word[1..];
            for name in [word.to_owned(), format!("has_{word}"), format!("{camel}Kind")] {
                let seen = refused(identifiers, "crates/a/tests/a.rs", &format!("//! A.\nfn {name}() {{}}\n"));
                assert!(
                    seen.len() == 1 && seen[0].contains(retired.instead) && seen[0].contains(":2:"),
                    "{name}: {seen:?}"
                );
            }
        }
        for retired in FUNCTIONS {
            let name = retired.word;
            let code = format!("impl A {{\n    fn {name}(&self) {{}}\n}}\nlet {name} = a.{name}_of();\n");
            let seen = refused(identifiers, "crates/a/src/a.rs", &code);
            assert!(seen.len() == 1 && seen[0].contains(retired.instead) && seen[0].contains(":2:"), "{seen:?}");
        }
        for name in BARE_TYPES {
            let code = format!(
                "struct {name};\npub enum {name} {{ A }}\npub(crate) type {name} = u8;\npub struct Run{name};\n"
            );
            let seen = refused(identifiers, "crates/a/src/a.rs", &code);
            assert!(seen.len() == 1 && seen[0].contains(":2:"), "{name}: {seen:?}");
        }
        for retired in LIMITS {
            let name = format!("{}_BYTES", retired.word.to_uppercase());
            assert_eq!(refused(identifiers, "crates/a/src/a.rs", &format!("const {name}: u8 = 1;")).len(), 1, "{name}");
        }
        for retired in PROSE {
            let word = retired.word;
            for (path, text) in [
                ("docs/a.md", format!("A word, {word}.\n")),
                ("crates/etude-cli/src/command/new/a/a.yaml", format!("# A word, {word}.\n")),
                ("crates/a/src/a.rs", format!("/// It, {word}.\nfn a() {{}}\n")),
                ("crates/a/src/a.rs", format!("fn a() {{ b(\"it, {word}\") }}\n")),
            ] {
                let seen = refused(prose, path, &text);
                assert!(!seen.is_empty() && seen[0].contains(retired.instead), "{text}: {seen:?}");
            }
        }
    }

    #[test]
    fn other_words_and_data_pass() {
        let code = "fn unfold(most: usize) { let a = \"told\"; run(\"told setup\"); }";
        assert_eq!(refused(identifiers, "crates/a/src/a.rs", code), [""; 0]);
        assert_eq!(refused(prose, "crates/a/tests/a.rs", code), [""; 0]);
        assert_eq!(refused(prose, "docs/a.md", "`told` is a word of a file, and so is `nobody`.\n"), [""; 0]);
        assert_eq!(parts("HTTPServer_of_2ndTry"), ["httpserver", "of", "2nd", "try"]);
    }
}
