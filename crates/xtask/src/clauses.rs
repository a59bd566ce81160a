//! Table of clauses and the tests that cite them, generated from the doc comments of tests.
//!
//! A test cites its clauses: `/// A-3.3: stdout is one document.` `cargo run -p xtask -- clauses` generates the tables in
//! `docs/spec` from these, between two marks. The text around the tables is hand-written.

mod cited;
mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use crate::rust::{is_word, line_of, mask, occurrences, package};
use crate::tree::{Tree, Violation, root};

pub use cited::cited;
pub use list::{Clause, LISTS, Line, List, Standing, clauses};

const BEGIN: &str = "<!-- Made by `cargo run -p xtask -- clauses`. -->";
const END: &str = "<!-- End of what is made. -->";
const HEAD: &str = "| clause | says | tests |\n|---|---|---|\n";

/// A test that cites clauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// The test's crate.
    pub package: String,
    /// Name of the test function.
    pub test: String,
    /// The file of the test, from the repository's root.
    pub path: String,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// The clauses, such as `A-3.3`.
    pub clauses: BTreeSet<String>,
}

/// All tests of all crates that cite a clause in their doc comments, except ignored tests. Also the stages of `.ci/run` that
/// cite one in their descriptions.
pub fn citations(tree: &Tree) -> Vec<Citation> {
    let files =
        tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/") && !path.starts_with("crates/xtask/"));
    files.flat_map(|(path, text)| in_file(path, text)).chain(stages(tree)).collect()
}

/// Scripts that `.ci/run` runs, with the clauses at the beginnings of their lines: `S-138: the official suites pass`.
fn stages(tree: &Tree) -> Vec<Citation> {
    let run = tree.text(".ci/run").unwrap_or_default();
    let is_stage = |path: &str| path != ".ci/run" && run.split_whitespace().any(|word| word == path);
    let scripts = tree.texts().filter(|(path, _)| path.starts_with(".ci/") && is_stage(path));
    let stage = |(path, text): (&str, &str)| {
        let ids = |line: &str| {
            let (ids, _) = line.trim_start_matches(['#', '"', ' ']).split_once(": ")?;
            let found = cited(ids);
            (found.join(", ") == ids).then_some(found)
        };
        let clauses: BTreeSet<String> = text.lines().filter_map(ids).flatten().collect();
        let test = path.trim_start_matches(".ci/").to_owned();
        let citation = Citation { package: ".ci".to_owned(), test, path: path.to_owned(), line: 1, clauses };
        (!citation.clauses.is_empty()).then_some(citation)
    };
    scripts.filter_map(stage).collect()
}

fn in_file(path: &str, text: &str) -> Vec<Citation> {
    let tests = documented(text).into_iter().filter_map(|(test, line, docs)| {
        let clauses: BTreeSet<String> = cited(&docs).into_iter().collect();
        let citation = Citation { package: package(path).to_owned(), test, path: path.to_owned(), line, clauses };
        (!citation.clauses.is_empty()).then_some(citation)
    });
    tests.collect()
}

/// Names of the tests in a source text, without ignored ones.
pub(crate) fn tests_of(text: &str) -> Vec<String> {
    documented(text).into_iter().map(|(test, _, _)| test).collect()
}

/// Tests in a source text that run: name, line of the `fn`, doc comment.
fn documented(text: &str) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let code = mask(text).0;
    for at in occurrences(&code, "fn") {
        let line = line_of(&code, at);
        let above = above(&lines[..line - 1]);
        let is_ignored = above.iter().any(|line| line.starts_with("#[ignore"));
        if !is_ignored && above.iter().any(|line| is_test_attribute(line)) {
            let test = code[at + 2..].trim_start().bytes().take_while(|byte| is_word(*byte)).map(char::from).collect();
            found.push((test, line, above.iter().rev().filter_map(|line| line.strip_prefix("///")).collect()));
        }
    }
    found
}

/// Comments and attributes at the end of `lines`, last first.
fn above<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    lines.iter().rev().copied().take_while(|line| line.starts_with("//") || line.starts_with('#')).collect()
}

/// True for the attribute that makes a function a test.
pub(crate) fn is_test_attribute(line: &str) -> bool {
    let name: String =
        line.trim_start_matches("#[").chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
    line.starts_with("#[") && (name == "test" || name.ends_with("::test"))
}

/// Tables of a document, as Markdown.
pub fn table(list: &List, citations: &[Citation]) -> String {
    let mut holders: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for citation in citations {
        for clause in &citation.clauses {
            let of_clause = holders.entry(clause).or_default();
            of_clause.entry(&citation.package).or_default().insert(&citation.test);
        }
    }
    let mut out = String::new();
    for line in list.lines().flatten() {
        match line {
            Line::Title(title) => {
                let gap = if out.is_empty() { "" } else { "\n" };
                out.push_str(&format!("{gap}### {title}\n\n{HEAD}"));
            }
            Line::Clause(clause) => {
                if out.is_empty() {
                    out.push_str(HEAD);
                }
                let tests = match (holders.get(clause.id), clause.standing) {
                    (Some(tests), _) => cell(tests),
                    (None, Standing::Untested(reason)) => format!("no test: {reason}"),
                    (None, _) => "none yet".to_owned(),
                };
                out.push_str(&format!("| {} | {} | {tests} |\n", clause.id, clause.says.replace('|', "\\|")));
            }
        }
    }
    out
}

fn cell(holders: &BTreeMap<&str, BTreeSet<&str>>) -> String {
    let names = |tests: &BTreeSet<&str>| tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ");
    holders.iter().map(|(package, tests)| format!("{package}: {}", names(tests))).collect::<Vec<_>>().join("<br>")
}

/// Checks the clauses: each held clause has a test, each clause with a reason for no test has none, tests cite only existing
/// clauses, and the tables are up to date.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let citations = citations(tree);
    let known: BTreeSet<&str> = clauses().map(|clause| clause.id).collect();
    let mut found = Vec::new();
    for citation in &citations {
        for id in citation.clauses.iter().filter(|id| !known.contains(id.as_str())) {
            let what = format!("there is no clause `{id}`; see `crates/xtask/clauses`");
            found.push(Violation::at(&citation.path, citation.line, what));
        }
    }
    found.extend(LISTS.iter().flat_map(|list| of_list(tree, list, &citations)));
    found
}

fn of_list(tree: &Tree, list: &List, citations: &[Citation]) -> Vec<Violation> {
    let of = |what: String| Violation::of(list.document, what);
    let mut found = Vec::new();
    for clause in list.clauses() {
        let is_cited = citations.iter().any(|citation| citation.clauses.contains(clause.id));
        match clause.standing {
            Standing::Held if !is_cited => found.push(of(format!("no test cites {}: {}", clause.id, clause.says))),
            Standing::Untested(_) if list.is_whole => {
                found.push(of(format!("{} is untested, and every clause of this list has a test", clause.id)));
            }
            Standing::Untested(_) if is_cited => {
                found.push(of(format!("{} has a test and a reason for none; drop the reason", clause.id)));
            }
            _ => {}
        }
    }
    match tree.text(list.document).map(|text| replaced(text, &table(list, citations))) {
        Some(Some(new)) if Some(new.as_str()) == tree.text(list.document) => {}
        Some(Some(_)) => found.push(of("the table is stale: `cargo run -p xtask -- clauses`".to_owned())),
        Some(None) => found.push(of("the marks around the table are gone".to_owned())),
        None => found.push(of("there is no such document".to_owned())),
    }
    found
}

/// The document with its table replaced; `None` if its marks are missing.
fn replaced(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

/// Generates the tables again and reports their gaps on stderr.
pub fn write() -> ExitCode {
    let tree = Tree::of_repository();
    let citations = citations(&tree);
    for list in LISTS {
        let document = list.document;
        let new = tree.text(document).and_then(|text| replaced(text, &table(list, &citations)));
        let Some(new) = new else {
            eprintln!("`{document}` is gone, or the marks around its table are");
            return ExitCode::FAILURE;
        };
        if let Err(error) = fs::write(root().join(document), new) {
            eprintln!("`{document}` cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    check(&Tree::of_repository()).iter().for_each(|violation| eprintln!("{violation}"));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests;
