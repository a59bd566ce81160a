//! List of clauses, one a line of a text in `crates/xtask/clauses`. The full text is in the specification; this list is an
//! index.
//!
//! A line is `held sentence`. `held`: some test must cite the clause. `known`: a test may cite it. `untested`: no test
//! can, and ` -- ` precedes the reason. `# Cases` begins another table.

/// A document of promises, with the clauses that it lists.
#[derive(Debug)]
pub struct List {
    /// Path of the table that is written from the list, from the repository's root.
    pub document: &'static str,
    pub(super) text: &'static str,
    /// True if every clause must have a test, so that no reason can replace one.
    pub is_whole: bool,
}

/// All documents with a table of clauses.
pub const LISTS: &[List] = &[
    List { document: "docs/spec/a-pipelines.md", text: include_str!("../../clauses/a-pipelines.txt"), is_whole: false },
    List { document: "docs/spec/b-stages.md", text: include_str!("../../clauses/b-stages.txt"), is_whole: false },
    List {
        document: "docs/spec/c-applications.md",
        text: include_str!("../../clauses/c-applications.txt"),
        is_whole: false,
    },
    List { document: "docs/spec/d-cascade.md", text: include_str!("../../clauses/d-cascade.txt"), is_whole: false },
    List { document: "docs/spec/s-serve.md", text: include_str!("../../clauses/s-serve.txt"), is_whole: true },
    List { document: "docs/spec/k-cluster.md", text: include_str!("../../clauses/k-cluster.txt"), is_whole: false },
];

/// A parsed line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A heading above the clauses that follow.
    Title(&'static str),
    /// A clause with its sentence, and its reason if it has one.
    Clause(Clause),
}

/// A clause of a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    /// Id as cited by tests, such as `A-3.3`.
    pub id: &'static str,
    /// Summary in one line.
    pub says: &'static str,
    /// Requirement for tests of this clause.
    pub standing: Standing,
}

/// Requirement for tests of a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A test must cite it.
    Held,
    /// A test may cite it.
    Known,
    /// No test can, for this reason.
    Untested(&'static str),
}

impl List {
    /// Parsed lines, in order; `None` for a malformed line.
    pub fn lines(&self) -> impl Iterator<Item = Option<Line>> {
        self.text.lines().filter(|line| !line.trim().is_empty()).map(read)
    }

    /// The clauses, in order.
    pub fn clauses(&self) -> impl Iterator<Item = Clause> {
        self.lines().filter_map(|line| match line {
            Some(Line::Clause(clause)) => Some(clause),
            _ => None,
        })
    }
}

/// All clauses of all lists, in order.
pub fn clauses() -> impl Iterator<Item = Clause> {
    LISTS.iter().flat_map(List::clauses)
}

fn read(line: &'static str) -> Option<Line> {
    if let Some(title) = line.strip_prefix("# ") {
        return Some(Line::Title(title));
    }
    let (word, rest) = line.split_once(' ')?;
    let (id, says) = rest.split_once(' ')?;
    let (says, standing) = match (word, says.split_once(" -- ")) {
        ("held", None) => (says, Standing::Held),
        ("known", None) => (says, Standing::Known),
        ("untested", Some((says, reason))) => (says, Standing::Untested(reason)),
        _ => return None,
    };
    Some(Line::Clause(Clause { id, says, standing }))
}
