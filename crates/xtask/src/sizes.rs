//! Limits for the sizes of files and functions.

use crate::rust::{Source, functions};
use crate::tree::{Tree, Violation};

/// Maximum number of lines of a file outside tests.
pub const FILE: usize = 800;
/// Maximum number of lines for nine in ten files.
pub const NINE_IN_TEN: usize = 400;
/// Maximum number of lines of a function outside tests.
pub const FUNCTION: usize = 70;
/// Maximum number of lines of a `main.rs`.
pub const MAIN: usize = 19;

/// Finds files, functions and `main.rs` that are too long.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        let limit = if source.path.ends_with("/src/main.rs") { MAIN } else { FILE };
        if source.lines() > limit {
            found.push(Violation::of(&source.path, format!("{} lines outside tests; at most {limit}", source.lines())));
        }
        for function in functions(&source.code).iter().filter(|function| function.lines > FUNCTION) {
            let what = format!("`{}` has {} lines; at most {FUNCTION}", function.name, function.lines);
            found.push(Violation::at(&source.path, function.line, what));
        }
    }
    found
}

/// Distribution of file lengths outside tests: the median, the 90th percentile, and the maximum, in lines. `None` without
/// files.
pub fn spread(tree: &Tree) -> Option<(usize, usize, usize)> {
    let mut lines: Vec<usize> = tree.sources().iter().map(Source::lines).collect();
    lines.sort_unstable();
    let at = |part: usize| lines.get((lines.len().saturating_sub(1)) * part / 100).copied();
    Some((at(50)?, at(90)?, at(100)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::made_up(&[(path, text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn long_files_are_seen_and_their_tests_do_not_count() {
        let long = "// x\n".repeat(FILE);
        assert_eq!(seen("crates/a/src/a.rs", &long), [0; 0]);
        assert_eq!(seen("crates/a/src/a.rs", &format!("{long}fn f() {{}}\n")), [0]);
        assert_eq!(seen("crates/a/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")), [0; 0]);
        assert_eq!(seen("crates/a/tests/it/a.rs", &format!("{long}{long}")), [0; 0]);
        assert_eq!(seen("crates/a/src/main.rs", &"// x\n".repeat(20)), [0]);
    }

    #[test]
    fn long_functions_are_seen() {
        let function = |lines: usize| format!("struct S;\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        assert_eq!(seen("crates/a/src/a.rs", &function(70)), [0; 0]);
        assert_eq!(seen("crates/a/src/a.rs", &function(71)), [2]);
    }

    #[test]
    fn the_spread_is_that_of_the_files() {
        let texts: Vec<(String, String)> =
            (1..=11).map(|n| (format!("crates/a/src/f{n}.rs"), "x\n".repeat(n))).collect();
        let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert_eq!(spread(&Tree::made_up(&files)), Some((6, 10, 11)));
        assert_eq!(spread(&Tree::made_up(&[])), None);
    }
}
