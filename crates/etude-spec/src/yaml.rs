//! YAML trees with the source position of every node.
//!
//! Plain scalars follow the core schema of YAML 1.2: `yes`, `no`, `on` and `off` are strings, `017` is 17, `1_000` is a
//! string. Merge keys (`<<`), tags beyond the core schema and several documents in one file are refused. Anchors and
//! aliases are expanded within a budget.

mod build;
pub(crate) mod diagnose;
mod field;
mod locate;
mod node;
mod scalar;
mod simple;
mod syntax;

pub(crate) use build::parse_part;
pub use build::{MAX_DEPTH, MAX_EXPANSION, parse};
pub(crate) use field::{Text, boolean, integer, number, place, place_in, text, texts};
pub use locate::Locator;
pub use node::{Entries, Node, Scalar, Style, Value};
pub use scalar::Plain;

#[cfg(test)]
mod tests;
