//! Values and tests of declarative hooks (`b-stages` §20.3).

use serde_json::Value;

use crate::condition::Op;
use crate::template::Segment;

crate::words! {
    /// Source of a value in a declarative hook (B-20.3).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Root {
        /// The run's input.
        Input = "input",
        /// The stage's context.
        Ctx = "ctx",
        /// The data of the state slot.
        Slot = "slot",
        /// The results of the predecessors.
        Upstream = "upstream",
        /// Ids of the run.
        Run = "run",
        /// The completion's payload; missing without a completion.
        Parsed = "parsed",
        /// The stage's result.
        Result = "result",
        /// Outcome of each attempt, in order.
        Attempts = "attempts",
        /// True if the last attempt ended at the turn cap.
        CapHit = "capHit",
    }
}

/// A path to a value: a root, then members and elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Start of the path in the run's data.
    pub root: Root,
    /// Members by name and elements by index, from the root on.
    pub segments: Vec<Segment>,
}

/// A value of a declarative hook.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A literal of the rule.
    Literal(Value),
    /// A value of the run; `null` if there is none.
    From(Path),
}

/// A comparison in `when`.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// The left side: a value of the run.
    pub path: Path,
    /// The comparison. Without a value, only `notEquals` and `exists: false` hold (§20.3).
    pub op: Op,
    /// The right side, as it is written in the rule.
    pub literal: Value,
}

/// A rule of a declarative gate or assert: the first rule whose tests all hold decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule<T> {
    /// Tests that must all hold; empty: always.
    pub when: Vec<Test>,
    /// The outcome or verdict.
    pub then: T,
    /// The author's reason for results and logs, as a sentence; `None` if there is none.
    pub reason: Option<String>,
}
