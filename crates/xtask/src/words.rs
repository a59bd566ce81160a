//! Checks for refused words, required comments and good names.

use crate::clauses::is_test_attribute;
use crate::rust::{Source, is_test, line_of, mask, occurrences};
use crate::tree::{Tree, Violation};

/// Notes for later, in pieces, so that this file does not contain them.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Macros for unfinished code or leftovers of debugging.
const LEFT: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Vague names, under which anything fits.
const NAMES: &[&str] = &["manager", "helper", "helpers", "util", "utils", "common", "misc"];

/// Finds notes for later and unfinished code, tests included.
pub fn notes(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let code = mask(text).0;
        let noted = NOTES.iter().flat_map(|word| occurrences(text, word).map(move |at| (at, word)));
        let left = LEFT.iter().flat_map(|word| occurrences(&code, word).map(move |at| (at, word)));
        for (offset, word) in noted.chain(left) {
            found.push(Violation::at(path, line_of(text, offset), format!("`{word}`: an issue is a better place")));
        }
    }
    found
}

/// Finds source files that do not describe themselves at their top.
pub fn module_docs(tree: &Tree) -> Vec<Violation> {
    let missing = |source: &Source| !source.text.trim_start().starts_with("//!");
    let sources = tree.sources();
    let silent = sources.iter().filter(|source| missing(source) && !is_test(&source.path));
    silent
        .map(|source| Violation::of(&source.path, "there is no `//!` at its top that says what it is about"))
        .collect()
}

/// Finds vague names of files, folders and modules.
pub fn names(tree: &Tree) -> Vec<Violation> {
    let is_refused = |name: &str| {
        name.split(['_', '-', '.']).find(|part| NAMES.contains(&part.to_ascii_lowercase().as_str())).is_some()
    };
    let mut found = Vec::new();
    for path in tree.paths() {
        if let Some(part) = path.split('/').find(|part| is_refused(part)) {
            found.push(Violation::of(path, format!("`{part}` is a name that refuses nothing; say what is in it")));
        }
    }
    for (path, text) in tree.ending(".rs") {
        let code = mask(text).0;
        for offset in occurrences(&code, "mod") {
            let name: String =
                code[offset + 3..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if is_refused(&name) {
                found.push(Violation::at(
                    path,
                    line_of(&code, offset),
                    format!("a module named `{name}` refuses nothing"),
                ));
            }
        }
    }
    found
}

/// Finds names of tests that begin with `test`, since they must be claims.
pub fn test_names(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let mut is_test = false;
        for (number, line) in text.lines().map(str::trim).enumerate() {
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            if is_test && name.is_some_and(|name| name.starts_with("test_") || name.starts_with("it_")) {
                let what = "the name of a test is a claim, such as `destructor_failure_does_not_mask_step_failure`";
                found.push(Violation::at(path, number + 1, what));
            }
            let goes_on = line.starts_with("//") || line.starts_with("#[");
            is_test = is_test_attribute(line) || (is_test && goes_on);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_for_later_are_seen_in_comments_and_tests() {
        for word in NOTES {
            let text = format!("fn f() {{\n    // {word}: later\n}}\n");
            assert_eq!(notes(&Tree::made_up(&[("crates/a/tests/a.rs", &text)]))[0].line, 2);
        }
        for word in LEFT {
            let text = format!("fn f() {{ {word}() }}");
            assert_eq!(notes(&Tree::made_up(&[("crates/a/src/a.rs", &text)])).len(), 1, "{word}");
        }
        let text = "// a todo list, \"todo!\"\nconst A: &str = \"todo!\";";
        assert_eq!(notes(&Tree::made_up(&[("crates/a/src/a.rs", text)])), []);
    }

    #[test]
    fn a_file_without_a_word_about_itself_is_seen() {
        let seen = |path, text| module_docs(&Tree::made_up(&[(path, text)])).len();
        assert_eq!(seen("crates/a/src/a.rs", "// A.\nfn f() {}"), 1);
        assert_eq!(seen("crates/a/src/a.rs", ""), 1);
        assert_eq!(seen("crates/a/src/a.rs", "//! A.\nfn f() {}"), 0);
        assert_eq!(seen("crates/a/src/a/tests.rs", "fn f() {}"), 0);
    }

    #[test]
    fn names_that_refuse_nothing_are_seen() {
        let seen = |path, text| names(&Tree::made_up(&[(path, text)])).len();
        for path in
            ["crates/a/src/util.rs", "crates/a/src/run_manager.rs", "crates/a-common/src/lib.rs", "docs/misc/a.md"]
        {
            assert_eq!(seen(path, ""), 1, "{path}");
        }
        assert_eq!(seen("crates/a/src/a.rs", "mod string_utils { }"), 1);
        assert_eq!(seen("crates/a/src/commonly.rs", "mod utility;"), 0);
    }

    #[test]
    fn names_of_tests_that_are_no_claims_are_seen() {
        let seen = |text| test_names(&Tree::made_up(&[("crates/a/src/a.rs", text)])).len();
        assert_eq!(seen("#[test]\nfn test_a() {}"), 1);
        assert_eq!(seen("#[tokio::test]\n#[cfg(unix)]\nasync fn it_works() {}"), 1);
        assert_eq!(seen("#[test]\nfn a_holds() {}\nfn test_a() {}"), 0);
    }
}
