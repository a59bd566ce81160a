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
    /// Where it begins.
    pub root: Root,
    /// How it goes on.
    pub segments: Vec<Segment>,
}

/// A value of a declarative hook.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Written down.
    Literal(Value),
    /// Taken from the run; `null` where there is none.
    From(Path),
}

/// One comparison of `when`.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// What is compared.
    pub path: Path,
    /// How.
    pub op: Op,
    /// With what.
    pub literal: Value,
}

/// A case of a declarative gate or assert: the first whose tests all hold decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule<T> {
    /// All must hold; none: always.
    pub when: Vec<Test>,
    /// What is decided.
    pub then: T,
    /// Why.
    pub reason: Option<String>,
}
