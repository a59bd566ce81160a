//! The table of clauses and the tests that hold them, made from the doc comments of tests.
//!
//! A test says which clauses it holds: `/// A-3.3: stdout is one document.` The table in `docs/spec/a-pipelines.md` is made
//! from these with `cargo run -p xtask -- clauses`, between two marks; what stands around them is written by hand.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use crate::rust::{is_word, line_of, mask, occurrences, package};
use crate::tree::{Tree, Violation, root};

pub use table::{CLAUSES, Clause};

/// The document that holds the table.
pub const DOCUMENT: &str = "docs/spec/a-pipelines.md";

const BEGIN: &str = "<!-- Made by `cargo run -p xtask -- clauses`. -->";
const END: &str = "<!-- End of what is made. -->";

/// A test that cites clauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// The test's crate.
    pub package: String,
    /// The test's name.
    pub test: String,
    /// Where it is.
    pub path: String,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// The clauses, such as `A-3.3`.
    pub clauses: BTreeSet<String>,
}

/// Every test of every crate that cites a clause in its doc comment, but for tests that are not run.
pub fn citations(tree: &Tree) -> Vec<Citation> {
    let files =
        tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/") && !path.starts_with("crates/xtask/"));
    files.flat_map(|(path, text)| in_file(path, text)).collect()
}

fn in_file(path: &str, text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    if cited(text).is_empty() {
        return found;
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let code = mask(text).0;
    for at in occurrences(&code, "fn") {
        let line = line_of(&code, at);
        let above = above(&lines[..line - 1]);
        let is_ignored = above.iter().any(|line| line.starts_with("#[ignore"));
        let is_test = above.iter().any(|line| is_test_attribute(line)) && !is_ignored;
        let docs = above.iter().filter_map(|line| line.strip_prefix("///"));
        let clauses: BTreeSet<String> = docs.flat_map(cited).collect();
        if is_test && !clauses.is_empty() {
            let test = code[at + 2..].trim_start().bytes().take_while(|byte| is_word(*byte)).map(char::from).collect();
            found.push(Citation { package: package(path).to_owned(), test, path: path.to_owned(), line, clauses });
        }
    }
    found
}

/// Comments and attributes at the end of `lines`.
fn above<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    lines.iter().rev().copied().take_while(|line| line.starts_with("//") || line.starts_with('#')).collect()
}

/// True for the attribute that makes a function a test.
pub(crate) fn is_test_attribute(line: &str) -> bool {
    let name: String =
        line.trim_start_matches("#[").chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
    line.starts_with("#[") && (name == "test" || name.ends_with("::test"))
}

/// Clause ids in a text: `A-3.3` of the protocol, `X-2` of its extensions.
fn cited(text: &str) -> Vec<String> {
    let is_id = |word: &&str| match word.split_once('-') {
        Some(("A", rest)) => rest.split_once('.').is_some_and(|(a, b)| is_number(a) && is_number(b)),
        Some(("X", rest)) => is_number(rest),
        _ => false,
    };
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.');
    words.map(|word| word.trim_end_matches(['.', '-'])).filter(is_id).map(str::to_owned).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The table, as Markdown.
pub fn table(citations: &[Citation]) -> String {
    let mut holders: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for citation in citations {
        for clause in &citation.clauses {
            let of_clause = holders.entry(clause).or_default();
            of_clause.entry(&citation.package).or_default().insert(&citation.test);
        }
    }
    let mut out = String::from("| clause | says | tests |\n|---|---|---|\n");
    for clause in CLAUSES {
        let tests = holders.get(clause.id).map_or_else(|| "none yet".to_owned(), cell);
        out.push_str(&format!("| {} | {} | {tests} |\n", clause.id, clause.says));
    }
    out
}

fn cell(holders: &BTreeMap<&str, BTreeSet<&str>>) -> String {
    let names = |tests: &BTreeSet<&str>| tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ");
    holders.iter().map(|(package, tests)| format!("{package}: {}", names(tests))).collect::<Vec<_>>().join("<br>")
}

/// Every clause that must be held is, no test cites a clause that does not exist, and the table is up to date.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let citations = citations(tree);
    let mut found = Vec::new();
    for citation in &citations {
        for id in citation.clauses.iter().filter(|id| !CLAUSES.iter().any(|clause| clause.id == **id)) {
            found.push(Violation::at(
                &citation.path,
                citation.line,
                format!("there is no clause `{id}`; see `CLAUSES`"),
            ));
        }
    }
    for clause in CLAUSES.iter().filter(|clause| clause.must_be_held) {
        if !citations.iter().any(|citation| citation.clauses.contains(clause.id)) {
            found.push(Violation::of(DOCUMENT, format!("no test cites {}: {}", clause.id, clause.says)));
        }
    }
    match tree.text(DOCUMENT).map(|text| replaced(text, &table(&citations))) {
        Some(Some(new)) if Some(new.as_str()) == tree.text(DOCUMENT) => {}
        Some(Some(_)) => found.push(Violation::of(DOCUMENT, "the table is stale: `cargo run -p xtask -- clauses`")),
        Some(None) => found.push(Violation::of(DOCUMENT, "the marks around the table are gone")),
        None => found.push(Violation::of(DOCUMENT, "there is no such document")),
    }
    found
}

/// The document with another table; `None` if its marks are gone.
fn replaced(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

/// Makes the table anew and says on stderr what it lacks.
pub fn write() -> ExitCode {
    let tree = Tree::of_repository();
    let new = tree.text(DOCUMENT).and_then(|text| replaced(text, &table(&citations(&tree))));
    let Some(new) = new else {
        eprintln!("`{DOCUMENT}` is gone, or the marks around its table are");
        return ExitCode::FAILURE;
    };
    if let Err(error) = fs::write(root().join(DOCUMENT), new) {
        eprintln!("`{DOCUMENT}` cannot be written: {error}");
        return ExitCode::FAILURE;
    }
    check(&Tree::of_repository()).iter().for_each(|violation| eprintln!("{violation}"));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests;
