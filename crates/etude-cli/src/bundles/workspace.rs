//! Directories into which commands and workers unpack the apps of bundles.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etude_core::digest::Digest;
use etude_files::{private, whole};
use etude_runtime::engine::{Engine, Error, NewRun};
use etude_runtime::run_id;
use etude_tools::bundle::Bundle;

use super::Unusable;
use crate::args::Global;
use crate::problem::Problem;
use crate::{engine, paths};

/// Number of hash digits in the directory name of a run's app. Another app gets another directory.
const DIGITS: usize = 16;

/// File beside the copies of a run that names its engine. Only that engine knows whether the run is over.
const OWNER: &str = "engine";

/// Name prefix of directories that are being removed.
const REMOVED: &str = "removed-";

/// Age after which a copy of an earlier version is removed if its run is unknown.
const EARLIER_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Unpacks the app of a run that brings its own bundle, as a private copy (K-50). If the run has changed its app, the new one
/// gets a new directory.
///
/// # Errors
/// The bundle is not stored, or its content does not match its digest (K-46).
pub(crate) fn make(global: &Global, engine: &dyn Engine, run: &NewRun, digest: Digest) -> Result<PathBuf, Unusable> {
    let name = engine::name(global).map_err(|problem| problem.message())?;
    Copies::new()?.make(engine, &name, &run.id, digest)
}

/// Unpacks a bundle for commands that only read it; they share the directory.
///
/// # Errors
/// The same as those of [`make`].
pub(crate) fn shared(engine: &dyn Engine, digest: Digest) -> Result<PathBuf, Unusable> {
    unpacked(engine, digest, &paths::cache_dir()?.join("fleet").join("apps").join(digest.to_string()))
}

/// Removes the directory of a run that is over.
pub(crate) fn remove(run_id: &str) {
    // `remove_unneeded` removes any remaining files.
    let _ = Copies::new().map(|copies| copies.remove(run_id));
}

/// Removes the copies of runs that are over or unknown to their engine. They remain after a process was killed or its run ended
/// elsewhere. `name` is that of the engine, which must see all of its runs.
pub(crate) fn remove_unneeded(engine: &dyn Engine, name: &str) {
    let _ = Copies::new().map(|copies| copies.remove_unneeded(engine, name));
}

/// Checks that this process can make copies of runs.
///
/// # Errors
/// The directory is not writable.
pub(crate) fn check() -> Result<(), Problem> {
    Copies::new().map_err(Problem::environment)?.check()
}

/// Directory of the copies of runs. It is not a cache: a live run needs its copy (K-49).
struct Copies {
    dir: PathBuf,
    /// Directory that earlier versions used.
    earlier: PathBuf,
}

impl Copies {
    fn new() -> Result<Self, String> {
        let below = |base: PathBuf| base.join("fleet").join("runs");
        Ok(Self { dir: below(paths::state_dir()?), earlier: below(paths::cache_dir()?) })
    }

    fn make(&self, engine: &dyn Engine, name: &str, run_id: &str, digest: Digest) -> Result<PathBuf, Unusable> {
        let place = place_of(&self.dir, run_id)?;
        let failed = |error: io::Error| format!("`{}` cannot be used: {error}", place.display());
        if !place.is_dir() {
            private::create_dir_all(&self.dir).map_err(failed)?;
            // Files that steps of an earlier version left beside the app stay with the run. Without them, the app is unpacked
            // again.
            let _ = fs::rename(self.earlier.join(run_id), &place);
        }
        private::create_dir_all(&place).map_err(failed)?;
        let owner = place.join(OWNER);
        if fs::read(&owner).ok().as_deref() != Some(name.as_bytes()) {
            let written = whole::replace(&owner, name.as_bytes(), whole::Access::Owner, whole::Durability::Process);
            written.map_err(failed)?;
        }
        unpacked(engine, digest, &place.join(&digest.to_string()[..DIGITS]))
    }

    fn remove(&self, run_id: &str) {
        for dir in [&self.dir, &self.earlier] {
            if let Ok(place) = place_of(dir, run_id) {
                discard(&place);
            }
        }
    }

    fn remove_unneeded(&self, engine: &dyn Engine, name: &str) {
        for dir in [&self.dir, &self.earlier] {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let (id, place) = (entry.file_name(), entry.path());
                let Some(id) = id.to_str() else { continue };
                if id.starts_with(REMOVED) {
                    let _ = fs::remove_dir_all(&place);
                    continue;
                }
                // Earlier versions did not record the engine of a run.
                let is_earlier = *dir == self.earlier;
                let is_own = is_earlier || fs::read(place.join(OWNER)).is_ok_and(|owner| owner == name.as_bytes());
                if !is_own || !run_id::is_id(id) {
                    continue;
                }
                match engine.row(id) {
                    Ok(row) if row.state.is_final() => discard(&place),
                    Err(Error::Unknown(_)) if !is_earlier || is_old(&place) => discard(&place),
                    Ok(_) | Err(Error::Unknown(_)) => {}
                    // The next call removes the rest.
                    Err(_) => return,
                }
            }
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let made = private::create_dir_all(&self.dir).and_then(|()| tempfile::tempfile_in(&self.dir));
        made.map(drop).map_err(|error| {
            let message = format!("cannot unpack the apps of runs in `{}`: {error}", self.dir.display());
            Problem::environment(message).hint(paths::WRITABLE)
        })
    }
}

/// Directory of a run's copies.
fn place_of(dir: &Path, run_id: &str) -> Result<PathBuf, String> {
    // Other programs write the database, and the id becomes the name of a directory that is created and removed.
    if !run_id::is_id(run_id) {
        return Err(format!("`{run_id}` is not a run id"));
    }
    Ok(dir.join(run_id))
}

/// Removes a directory. It is renamed first, so another attempt at the run never finds half of an app.
fn discard(place: &Path) {
    let removed = place.with_file_name(format!("{REMOVED}{}", run_id::new()));
    if fs::rename(place, &removed).is_ok() {
        // A later cleanup removes any remaining files.
        let _ = fs::remove_dir_all(removed);
    }
}

fn is_old(place: &Path) -> bool {
    let modified = fs::metadata(place).and_then(|found| found.modified()).ok();
    modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > EARLIER_LIFETIME)
}

/// Unpacks the bundle into a directory below `dir`.
fn unpacked(engine: &dyn Engine, digest: Digest, dir: &Path) -> Result<PathBuf, Unusable> {
    let app = dir.join("app");
    if app.is_dir() {
        return Ok(app);
    }
    let failed = |why: &dyn std::fmt::Display| format!("the bundle {digest} cannot be used: {why}");
    let bundle = Bundle::read(super::bytes(engine, digest)?).map_err(|error| failed(&error))?;
    private::create_dir_all(dir).map_err(|error| failed(&error))?;
    // Unpack under another name, so that an incomplete copy is never used. Its files are on the disk before it has its name.
    let part = dir.join(format!("part-{}", run_id::new()));
    bundle.unpack(&part).map_err(|error| failed(&error))?;
    match fs::rename(&part, &app) {
        Ok(()) => whole::sync_dir(dir).map_err(|error| failed(&error))?,
        // Another process was first.
        Err(_) if app.is_dir() => drop(fs::remove_dir_all(&part)),
        Err(error) => return Err(failed(&error).into()),
    }
    Ok(app)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etude_runtime::blob::{self, FileBlobs};
    use etude_runtime::engine::{Placement, RunState};
    use etude_runtime::memory::MemoryEngine;

    use super::*;

    /// An engine that has the bundle of an app, with directories for copies.
    struct World {
        dir: tempfile::TempDir,
        engine: MemoryEngine,
        copies: Copies,
        bundle: Digest,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let app = dir.path().join("app");
            fs::create_dir(&app).expect("a directory");
            fs::write(app.join("SKILL.md"), "x").expect("a file");
            let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().join("blobs"), false)));
            let bundle = Bundle::pack(&app).expect("a bundle");
            blob::put(&*engine.bundles(), bundle.bytes()).expect("it is kept");
            let copies =
                Copies { dir: dir.path().join("state/fleet/runs"), earlier: dir.path().join("cache/fleet/runs") };
            Self { dir, engine, copies, bundle: bundle.digest() }
        }

        /// A run with an active session (`None`), or one in the given state.
        fn run(&self, state: Option<RunState>) -> String {
            let id = run_id::new();
            let run = NewRun {
                id: id.clone(),
                app: "/app".to_owned(),
                target: "p".to_owned(),
                abi: 1,
                created_at_ms: 0,
                header: "{}".to_owned(),
                placement: Placement::default(),
            };
            crate::runtime::block_on(async {
                let session = self.engine.create(&run).await.expect("a run");
                if let Some(state) = state {
                    session.set_state(state, Some("{}")).await.expect("it ends");
                }
            })
            .expect("a runtime");
            id
        }

        fn make(&self, name: &str, run_id: &str) -> PathBuf {
            self.copies.make(&self.engine, name, run_id, self.bundle).expect("a copy")
        }
    }

    /// SECURITY.md: a run id from a database cannot name a directory outside the copies.
    #[test]
    fn only_ids_of_runs_name_directories() {
        let dir = Path::new("/state");
        for id in ["", ".", "..", "../../state", "/etc", "8dmwnz5ebmypx8x0/..", "8DMWNZ5EBMYPX8X0"] {
            assert!(place_of(dir, id).is_err(), "{id}");
        }
        assert!(place_of(dir, &run_id::new()).is_ok_and(|place| place.parent() == Some(dir)));
    }

    /// K-49: live runs need nothing from the cache. A copy is made once, and again after its run was over.
    #[test]
    fn copies_of_runs_are_not_in_the_cache() {
        let world = World::new();
        let id = world.run(None);
        let app = world.make("x", &id);
        assert!(app.starts_with(&world.copies.dir) && app.join("SKILL.md").is_file());
        assert!(!world.dir.path().join("cache").exists());
        fs::write(app.join("left"), "x").expect("a file");
        assert_eq!(world.make("x", &id), app);
        assert!(app.join("left").is_file());
        world.copies.remove(&id);
        assert_eq!(fs::read_dir(&world.copies.dir).expect("a directory").count(), 0);
        assert!(!world.make("x", &id).join("left").exists());
    }

    /// The copies of a killed process are removed once its run is over or unknown; those of another engine stay.
    #[test]
    fn copies_that_no_run_needs_are_removed() {
        let world = World::new();
        let (live, ended, waiting) =
            (world.run(None), world.run(Some(RunState::Failed)), world.run(Some(RunState::Waiting)));
        let (unknown, other, foreign) = (run_id::new(), run_id::new(), world.run(Some(RunState::Failed)));
        let all = [&live, &ended, &waiting, &unknown].map(|id| world.make("x", id));
        let others = [&other, &foreign].map(|id| world.make("y", id));
        let half = world.copies.dir.join(format!("{REMOVED}{}", run_id::new()));
        fs::create_dir(&half).expect("a directory");
        world.copies.remove_unneeded(&world.engine, "x");
        assert_eq!(all.map(|app| app.exists()), [true, false, true, false]);
        assert_eq!(others.map(|app| app.exists()), [true, true]);
        assert!(!half.exists());
    }

    /// After an update: earlier versions kept copies in the cache. Files that steps left there stay with a run that resumes.
    #[test]
    fn earlier_copies_move_or_go() {
        let world = World::new();
        let digits = &world.bundle.to_string()[..DIGITS];
        let (waiting, live, ended) =
            (world.run(Some(RunState::Waiting)), world.run(None), world.run(Some(RunState::Succeeded)));
        let (unknown, fresh) = (run_id::new(), run_id::new());
        let earlier = |id: &String| world.copies.earlier.join(id);
        for id in [&waiting, &live, &ended, &unknown, &fresh] {
            let app = earlier(id).join(digits).join("app");
            fs::create_dir_all(&app).expect("a directory");
            fs::write(app.join("left"), "x").expect("a file");
        }
        let old = std::time::SystemTime::now() - EARLIER_LIFETIME - Duration::from_secs(60);
        let place = fs::File::open(earlier(&unknown)).expect("a directory");
        place.set_modified(old).expect("it is ours");
        world.copies.remove_unneeded(&world.engine, "x");
        assert_eq!(
            [&waiting, &live, &ended, &unknown, &fresh].map(|id| earlier(id).exists()),
            [true, true, false, false, true]
        );
        assert!(world.make("x", &waiting).join("left").is_file());
        assert!(!earlier(&waiting).exists());
    }

    /// A worker that cannot unpack apps reports so when it starts, and fails no run.
    #[test]
    fn a_place_that_cannot_be_written_is_reported() {
        let world = World::new();
        assert!(world.copies.check().is_ok());
        fs::write(world.dir.path().join("file"), "x").expect("a file");
        let copies = Copies { dir: world.dir.path().join("file/runs"), earlier: world.copies.earlier.clone() };
        let refused = copies.check().expect_err("it is a file");
        assert_eq!((refused.exit as i32, &refused.hints[..]), (4, &[paths::WRITABLE.to_owned()][..]));
    }
}
