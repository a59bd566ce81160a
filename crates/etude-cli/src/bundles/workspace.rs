//! The places where runs of workers find their apps.

use std::fs;
use std::path::PathBuf;

use etude_core::digest::Digest;
use etude_runtime::engine::{Engine, NewRun};
use etude_tools::bundle::Bundle;

use crate::paths;

/// The directory of a run that brings its app along, with a copy of its own (K-50).
///
/// # Errors
/// The bundle is not kept, or is not what its name says (K-46).
pub(crate) fn make(engine: &dyn Engine, run: &NewRun, digest: Digest) -> Result<PathBuf, String> {
    let dir = place_of(&run.id)?;
    let app = dir.join("app");
    if app.is_dir() {
        return Ok(app);
    }
    let failed = |why: &dyn std::fmt::Display| format!("the bundle {digest} cannot be used: {why}");
    let mut bytes = Vec::new();
    let blob = engine.blobs().open(digest).map_err(|error| failed(&error))?;
    let mut part = vec![0; 64 * 1024];
    loop {
        let count = blob.read_at(bytes.len() as u64, &mut part).map_err(|error| failed(&error))?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..count]);
    }
    if Digest::of(&bytes) != digest {
        return Err(failed(&"its bytes have another hash"));
    }
    let bundle = Bundle::read(bytes).map_err(|error| failed(&error))?;
    etude::private::create_dir_all(&dir).map_err(|error| failed(&error))?;
    // A copy that is not whole is none.
    let part = dir.join(format!("part-{}", etude_runtime::run_id::new()));
    bundle.unpack(&part).map_err(|error| failed(&error))?;
    fs::rename(&part, &app).map_err(|error| failed(&error))?;
    Ok(app)
}

/// Removes the directory of a run that is over.
pub(crate) fn remove(run_id: &str) {
    // What stays is a copy, which may be removed at any time.
    let _ = place_of(run_id).map(fs::remove_dir_all);
}

fn place_of(run_id: &str) -> Result<PathBuf, String> {
    Ok(paths::cache_dir()?.join("fleet").join("runs").join(run_id))
}
