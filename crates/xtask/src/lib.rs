//! The rules of this repository as a program: laws, sizes, words, documents, and the table of clauses. And its chores:
//! packages and releases.
//!
//! Each check takes a [`tree::Tree`] and returns what breaks its rule. `tests/tidy.rs` runs them all on the repository;
//! beside each check stand tests that show that it can fail, on trees that are made up.

#![expect(clippy::disallowed_methods, reason = "chores start cargo and git")]

pub mod acceptance;
pub mod chores;
pub mod clauses;
pub mod comments;
pub mod crash;
pub mod documents;
pub mod language;
pub mod laws;
pub mod manifest;
pub mod package;
pub mod platform;
pub mod recipes;
pub mod release;
pub mod rust;
pub mod sizes;
pub mod threats;
pub mod tree;
pub mod words;
