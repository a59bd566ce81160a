//! Bundles of apps in the database that machines share.

#[cfg(feature = "serve")]
pub(crate) mod workspace;

use std::path::Path;

use etude_core::digest::Digest;
use etude_process::blob;
use etude_runtime::engine::{Boxed, Engine, Entry, Error, Expected, Write};
use etude_tools::bundle::Bundle;
use serde_json::json;

use crate::context::Problem;

/// The book of the ledger that lists bundles.
const BOOK: &str = "bundles";

/// The word of a bundle that is there.
const PUSHED: &str = "pushed";

/// A bundle in the database.
pub(crate) struct Pushed {
    pub(crate) digest: Digest,
    pub(crate) name: String,
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// It was not there before.
    pub(crate) uploaded: bool,
}

/// Packs the app in `dir` and keeps the bundle in the database, unless it is there.
pub(crate) fn push(engine: &dyn Engine, dir: &Path) -> Result<Pushed, Problem> {
    let bundle = Bundle::pack(dir).map_err(|error| Problem::usage(error.to_string()))?;
    let digest = bundle.digest();
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let uploaded = engine.blobs().open(digest).is_err();
    let failed = |why: &dyn std::fmt::Display| Problem::environment(format!("the bundle cannot be kept: {why}"));
    if uploaded {
        blob::put(&*engine.blobs(), bundle.bytes()).map_err(|error| failed(&error))?;
    }
    let pushed = Pushed { digest, name, files: bundle.entries().len(), bytes: bundle.bytes().len() as u64, uploaded };
    let entry = Entry {
        book: BOOK.to_owned(),
        key: digest.to_string(),
        at_ms: etude::clock::now_ms(),
        state: PUSHED.to_owned(),
        body: json!({"name": pushed.name, "files": pushed.files, "bytes": pushed.bytes}).to_string(),
        ..Entry::default()
    };
    let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
    let written: Boxed<'_, Result<_, Error>> = engine.write(&write);
    crate::context::block_on(written)?.map_err(|error| failed(&error))?;
    Ok(pushed)
}
