//! Tests of the engine through its public interface.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

use std::path::Path;

use etude_sqlite::{Settings, Sqlite, Sync};

mod conformance;
mod contention;
mod crash;
mod files;
mod lists;
mod queue;
mod together; // appends of many runs at once

/// Opens the journal in a directory.
fn open(dir: &Path, sync: Sync) -> Sqlite {
    Sqlite::open(Settings { dir: dir.to_owned(), sync }).expect("a journal can be opened")
}
