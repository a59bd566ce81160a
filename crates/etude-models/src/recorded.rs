//! Recorded responses, found by the content of the request.
//!
//! A recording is a JSON object: `format`, `model` (the responding model, for the reader), `request`, and `answer` or
//! `answers` (given in order, the last one repeatedly). A directory holds one per file; a single file may hold one, or many
//! below `recordings`. Absent fields of the request have their defaults, so that recordings can be written by hand; texts may
//! be arrays of lines.

mod format;
mod nearest;
mod read;
mod store;
mod write;

pub(crate) use nearest::fields;
pub(crate) use store::{Recordings, digests};

/// Reads the text of a file and returns the number of recordings in it.
pub(crate) fn check(text: &str) -> Result<usize, String> {
    read::read(text, "recording").map(|recordings| recordings.len())
}
