//! The clauses, each in a line of a text in `crates/xtask/clauses`. The full text is the specification's; this is to find
//! one's way.
//!
//! A line is `held what it says`. `held`: some test must cite it. `known`: a test may. `untested`: no test can, and
//! ` -- ` stands before the reason. `# Cases` begins another table.

/// A document of the promises, and the clauses that it lists.
#[derive(Debug)]
pub struct List {
    /// The path of the table that is written from the list, from the repository's root.
    pub document: &'static str,
    pub(super) text: &'static str,
    /// Every clause has a test: no reason stands in for one.
    pub is_whole: bool,
}

/// Every document with a table of clauses.
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

/// What a line of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A title above the clauses that follow.
    Title(&'static str),
    /// A clause with its sentence and its reason, if it has one.
    Clause(Clause),
}

/// A clause of a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    /// The id as tests cite it, such as `A-3.3`.
    pub id: &'static str,
    /// What it says, in a line.
    pub says: &'static str,
    /// Whether a test must hold it.
    pub standing: Standing,
}

/// Who must hold a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A test must.
    Held,
    /// A test may.
    Known,
    /// No test does, for this reason.
    Untested(&'static str),
}

impl List {
    /// The lines, in order. A line that is none of them is a `None`.
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

/// Every clause of every list, in order.
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
