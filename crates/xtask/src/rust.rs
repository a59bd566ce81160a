//! Minimal analysis of Rust source text: code, tests, and the paths that code names.

mod functions;
mod mask;
mod paths;

use std::collections::BTreeSet;

use crate::tree::Tree;

pub use functions::{Function, functions};
pub use mask::{Literal, mask};
pub use paths::{Named, paths};

/// A source file of the product, with its code apart from comments, strings and tests.
#[derive(Debug)]
pub struct Source {
    /// Path from the repository's root.
    pub path: String,
    /// Complete text of the file.
    pub text: String,
    /// Text with comments, the content of strings and test items blanked; lines keep their numbers.
    pub code: String,
    /// All paths in the code, with their offsets.
    pub paths: Vec<Named>,
    /// String literals outside tests.
    pub literals: Vec<Literal>,
    /// Number of lines inside tests.
    test_lines: usize,
}

impl Source {
    /// All sources of all crates, without files that contain only tests. Use [`Tree::sources`], which caches them.
    pub(crate) fn all(tree: &Tree) -> Vec<Self> {
        let tests = test_modules(tree);
        let is_product = |path: &str| is_in_src(path) && !is_test(path) && !tests.contains(path);
        tree.ending(".rs").filter(|(path, _)| is_product(path)).map(|(path, text)| Self::parse(path, text)).collect()
    }

    fn parse(path: &str, text: &str) -> Self {
        let (masked, literals) = mask(text);
        let (code, cut) = without_tests(&masked);
        let literals = literals.into_iter().filter(|l| !cut.iter().any(|cut| cut.contains(&l.offset))).collect();
        let test_lines = cut.into_iter().map(|cut| text[cut].lines().count()).sum();
        let paths = paths(&code);
        Self { path: path.to_owned(), text: text.to_owned(), code, paths, literals, test_lines }
    }

    /// The crate's name.
    pub fn package(&self) -> &str {
        package(&self.path)
    }

    /// Path below the crate's `src`, such as `machine/scope.rs`.
    pub fn module_path(&self) -> &str {
        self.path.split_once("/src/").map_or(&self.path, |(_, below)| below)
    }

    /// Number of lines outside tests.
    pub fn lines(&self) -> usize {
        self.text.lines().count() - self.test_lines
    }
}

/// Name of the crate that a file belongs to.
pub fn package(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// Line number of a byte, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// True if `byte` can be part of an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Offsets of `word` in `code` as a whole word.
pub fn occurrences<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let after = at + word.len();
        let starts = *at == 0 || !is_word(bytes[at - 1]) || !is_word(word.as_bytes()[0]);
        let ends = after >= bytes.len() || !is_word(bytes[after]) || !is_word(word.as_bytes()[word.len() - 1]);
        starts && ends
    })
}

fn is_in_src(path: &str) -> bool {
    path.starts_with("crates/") && path.split('/').nth(2) == Some("src")
}

/// True for test files by their path: `tests.rs`, or below `tests` or `benches`.
pub fn is_test(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "benches", "tests.rs"].contains(&part))
}

/// Files of modules that are declared for tests only.
fn test_modules(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| is_in_src(path)) {
        let code = mask(text).0;
        for cut in test_items(&code) {
            let item = code[cut].trim_end_matches(';').trim();
            if let Some((before, name)) = item.rsplit_once(char::is_whitespace)
                && occurrences(before, "mod").next().is_some()
            {
                let dir = match path.rsplit_once('/') {
                    Some((dir, "lib.rs" | "main.rs" | "mod.rs")) => dir.to_owned(),
                    _ => path.trim_end_matches(".rs").to_owned(),
                };
                found.insert(format!("{dir}/{name}.rs"));
            }
        }
    }
    found
}

/// Blanks items that are compiled for tests only, and returns their ranges.
fn without_tests(code: &str) -> (String, Vec<std::ops::Range<usize>>) {
    let mut bytes = code.as_bytes().to_vec();
    let cut: Vec<_> = test_items(code).collect();
    for byte in cut.iter().cloned().flat_map(|range| range.into_iter()) {
        if bytes[byte] != b'\n' {
            bytes[byte] = b' ';
        }
    }
    // Only whole items were replaced, byte by byte with blanks.
    (String::from_utf8(bytes).unwrap_or_default(), cut)
}

fn test_items(code: &str) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| code[from..].find(mark)).min()?;
        let start = from + found;
        let end = item_end(code.as_bytes(), start);
        from = end;
        Some(start..end)
    })
}

/// End of the item whose first attribute begins at `start`.
fn item_end(code: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "//! Doc.\nfn a() { let x = \"std::fs\"; }\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nfn b() {}\n";

    #[test]
    fn modules_for_tests_are_no_part_of_the_code() {
        let source = Source::parse("crates/c/src/a.rs", FILE);
        assert!(source.code.contains("fn a") && source.code.contains("fn b"));
        assert!(!source.code.contains("std::fs"));
        assert_eq!(source.code.lines().count(), FILE.lines().count());
        assert_eq!(source.lines(), 3);
    }

    #[test]
    fn files_of_test_modules_are_no_sources() {
        let tree = Tree::made_up(&[
            ("crates/c/src/lib.rs", "#[cfg(test)]\nmod fixture;\n#[cfg(test)]\nmod tests;\nmod a;"),
            ("crates/c/src/fixture.rs", ""),
            ("crates/c/src/tests.rs", ""),
            ("crates/c/src/a.rs", ""),
            ("crates/c/tests/it.rs", ""),
        ]);
        let found: Vec<&str> = tree.sources().iter().map(|source| source.path.as_str()).collect();
        assert_eq!(found, ["crates/c/src/a.rs", "crates/c/src/lib.rs"]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(occurrences("async asynchronous r_async async!", "async").count(), 2);
        assert_eq!(occurrences("println!(); eprintln!()", "println!").count(), 1);
    }
}
