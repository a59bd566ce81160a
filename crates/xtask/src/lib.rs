//! Rules and chores of this repository as a program: laws, sizes, words, documents, the table of clauses, packages and
//! releases.
//!
//! Each check takes a [`tree::Tree`] and returns the violations of its rule. `tests/tidy.rs` runs them all on the repository.
//! The tests beside each check show that it can fail, on made-up trees.

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
