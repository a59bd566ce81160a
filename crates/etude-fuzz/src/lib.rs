//! Everything that reads what others wrote, as functions from bytes to nothing.
//!
//! A target panics if its input makes the code under it break a promise: it panicked, a place lies outside its file,
//! what was written cannot be read again, the same bytes in other pieces mean something else. Whether it is too slow,
//! or takes too much memory, is for the caller of it to notice.
//!
//! The same targets run in three ways: over the corpus and over mutations of it, by `cargo test`; and guided by coverage, by
//! `fuzz/` with cargo-fuzz.
//! `docs/hostile-input.md` has the commands.

mod bundle;
pub mod corpus;
pub mod targets;

pub use targets::{TARGETS, Target, target};

/// Runs the target `name` over `data`; the entry point of cargo-fuzz.
///
/// # Panics
/// There is no such target, or a promise is broken.
pub fn run(name: &str, data: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("there is no target `{name}`"));
    (target.run)(data);
}
