//! The places where commands and workers find apps of bundles.

use std::fs;
use std::path::PathBuf;

use etude_core::digest::Digest;
use etude_runtime::engine::{Engine, NewRun};
use etude_runtime::run_id;
use etude_tools::bundle::Bundle;

use super::Unusable;
use crate::paths;

/// Digits of a bundle's hash that name the directory of a run's app: another app is another directory.
const DIGITS: usize = 16;

/// The directory of a run that brings its app along, with a copy of its own (K-50). A run that has taken another app gets another one.
///
/// # Errors
/// The bundle is not kept, or is not what its name says (K-46).
pub(crate) fn make(engine: &dyn Engine, run: &NewRun, digest: Digest) -> Result<PathBuf, Unusable> {
    unpacked(engine, digest, place_of(&run.id)?.join(&digest.to_string()[..DIGITS]))
}

/// The directory of a bundle that commands read and none writes to.
///
/// # Errors
/// As those of [`make`].
pub(crate) fn shared(engine: &dyn Engine, digest: Digest) -> Result<PathBuf, Unusable> {
    unpacked(engine, digest, paths::cache_dir()?.join("fleet").join("apps").join(digest.to_string()))
}

/// The bundle as a directory in `dir`.
fn unpacked(engine: &dyn Engine, digest: Digest, dir: PathBuf) -> Result<PathBuf, Unusable> {
    let app = dir.join("app");
    if app.is_dir() {
        return Ok(app);
    }
    let failed = |why: &dyn std::fmt::Display| format!("the bundle {digest} cannot be used: {why}");
    let bundle = Bundle::read(super::bytes(engine, digest)?).map_err(|error| failed(&error))?;
    etude_files::private::create_dir_all(&dir).map_err(|error| failed(&error))?;
    // A copy that is not whole is none.
    let part = dir.join(format!("part-{}", run_id::new()));
    bundle.unpack(&part).map_err(|error| failed(&error))?;
    match fs::rename(&part, &app) {
        Ok(()) => {}
        // Another process was faster.
        Err(_) if app.is_dir() => drop(fs::remove_dir_all(&part)),
        Err(error) => return Err(failed(&error).into()),
    }
    Ok(app)
}

/// Removes the directory of a run that is over.
pub(crate) fn remove(run_id: &str) {
    // What stays is a copy, which may be removed at any time.
    let _ = place_of(run_id).map(fs::remove_dir_all);
}

fn place_of(run_id: &str) -> Result<PathBuf, String> {
    // Others write the database, and this is the name of a directory that is made and removed.
    if !run_id::is_id(run_id) {
        return Err(format!("`{run_id}` is no id of a run"));
    }
    Ok(paths::cache_dir()?.join("fleet").join("runs").join(run_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SECURITY.md: what a database names as a run names no other directory.
    #[test]
    fn only_ids_of_runs_name_directories() {
        for id in ["", ".", "..", "../../state", "/etc", "8dmwnz5ebmypx8x0/..", "8DMWNZ5EBMYPX8X0"] {
            assert!(place_of(id).is_err(), "{id}");
        }
        assert!(place_of(&run_id::new()).is_ok_and(|place| place.ends_with(place.file_name().expect("a name"))));
    }
}
