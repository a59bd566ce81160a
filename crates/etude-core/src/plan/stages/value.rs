//! What declarative hooks compare and take (`b-stages` §20.3).

use serde_json::Value;

use crate::condition::Op;
use crate::template::Segment;

crate::words! {
    /// Where a declarative hook takes a value from (B-20.3).
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
        /// The completion's payload.
        Parsed = "parsed",
        /// The stage's result.
        Result = "result",
        /// What became of each attempt.
        Attempts = "attempts",
        /// Whether the last attempt ended at the turn cap.
        CapHit = "capHit",
    }
}

/// A way to a value: a root, then members and elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The part of the run's data in which the way begins.
    pub root: Root,
    /// Members by name and elements by place, from the root on.
    pub segments: Vec<Segment>,
}

/// A value of a declarative hook.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A value that stands in the rule as it is.
    Literal(Value),
    /// Taken from the run; `null` where there is none.
    From(Path),
}

/// One comparison of `when`.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// The left side: a value of the run.
    pub path: Path,
    /// The comparison; without a value only `notEquals` and `exists: false` hold (§20.3).
    pub op: Op,
    /// The right side, as it is written in the rule.
    pub literal: Value,
}

/// A case of a declarative gate or assert: the first whose tests all hold decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule<T> {
    /// All must hold; none: always.
    pub when: Vec<Test>,
    /// The outcome or verdict.
    pub then: T,
    /// A sentence of the author's for results and logs; `None`: none was given.
    pub reason: Option<String>,
}
