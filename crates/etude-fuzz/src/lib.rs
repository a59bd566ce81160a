//! Fuzz targets: every reader of foreign input, as a function from bytes to nothing.
//!
//! A target panics if its input makes the code under it break a promise: the code panics, a span lies outside its file, written
//! data cannot be read again, or the same bytes in other pieces have another meaning. The caller must notice excessive time or
//! memory.
//!
//! The same targets run in three ways: `cargo test` runs them over the corpus and over mutations of it, and `fuzz/` runs them
//! with cargo-fuzz, guided by coverage. `docs/hostile-input.md` has the commands.

mod bundle;
pub mod corpus;
pub mod targets;

pub use targets::{TARGETS, Target, target};

/// Runs the target `name` over `data`; the entry point of cargo-fuzz.
///
/// # Panics
/// The target does not exist, or a promise is broken.
pub fn run(name: &str, data: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("there is no target `{name}`"));
    (target.run)(data);
}
