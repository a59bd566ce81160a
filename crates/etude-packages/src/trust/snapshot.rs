//! A private copy of an approved package or skill, written from the hashed bytes: the approved content is the one that runs.
//!
//! State is not copied but linked to its place in the package. A copy is made for one use and removed after it. The copy of a
//! dead process is removed by the next process, which sees by its lock that it is not in use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use etude_spec::application::StatePaths;

use super::Content;
use super::manifest::{Manifest, Reading, holds, is_version_control, set_mode, stamp, symlink};
use etude_files::private;
use etude_runtime::run_id;

/// Prefix of the names of directories that contain copies.
const PREFIX: &str = "approved-";

/// Name of the lock file in such a directory, which the process that uses the copy holds.
const LOCK: &str = "lock";

/// Location of a package's state during the use of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateIn {
    /// The package.
    Place,
    /// The copy: changes of the state are discarded with it.
    Copy,
}

/// A copy of approved content. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    directory: PathBuf,
    root: PathBuf,
    manifest: Manifest,
    stamps: BTreeMap<PathBuf, Stamp>,
    state: Option<StatePaths>,
    _lock: File,
}

/// File metadata that reveals a change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp(Vec<u64>);

/// Reason why a copy could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// The content differs from the approved one.
    #[error("`{}` has changed since it was approved", .0.display())]
    Changed(PathBuf),
    /// The content cannot be read or copied.
    #[error("`{}` cannot be copied to run it: {source}", path.display())]
    Io {
        /// Path of the failed operation, in the package or in the copy.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
}

impl Snapshot {
    /// Copies `place` to a new directory below `scratch`, if its content is `expected`.
    ///
    /// # Errors
    /// The content differs, or cannot be copied.
    pub(crate) fn take(
        place: &Path,
        expected: &Content,
        state: Option<(&[String], StateIn)>,
        scratch: &Path,
    ) -> Result<Self, SnapshotError> {
        let failed = |source| SnapshotError::Io { path: place.to_owned(), source };
        let (directory, lock) = reserve(scratch).map_err(failed)?;
        let root = directory.join(place.file_name().unwrap_or(place.as_os_str()));
        let mut copy = Self {
            directory,
            root,
            manifest: Manifest::default(),
            stamps: BTreeMap::new(),
            state: state.map(|(paths, _)| StatePaths::new(paths)),
            _lock: lock,
        };
        copy.fill(place, state.is_none_or(|(_, state)| state == StateIn::Place)).map_err(failed)?;
        match copy.manifest.approvable() {
            Ok(content) if content == *expected => Ok(copy),
            _ => Err(SnapshotError::Changed(place.to_owned())),
        }
    }

    fn fill(&mut self, place: &Path, is_linked: bool) -> io::Result<()> {
        fs::create_dir(&self.root)?;
        self.root = fs::canonicalize(&self.root)?;
        let reading = Reading { state: self.state.as_ref(), copy: Some(&self.root), keep: None };
        self.manifest = reading.read(place)?;
        self.stamps = stamps(&self.root)?;
        let Some(state) = &self.state else { return Ok(()) };
        if is_linked {
            // A command may expect its state directory to exist or create it; a dangling link allows neither.
            for directory in state.directories() {
                let parent = place.join(directory);
                if parent.parent().is_some_and(is_real_directory) && fs::symlink_metadata(&parent).is_err() {
                    fs::create_dir(&parent)?;
                }
            }
        }
        self.add_state(place, Path::new(""), is_linked)
    }

    /// Links or copies all state into the copy.
    fn add_state(&self, place: &Path, path: &Path, is_linked: bool) -> io::Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        for entry in fs::read_dir(place.join(path))? {
            let entry = entry?;
            let (path, kind) = (path.join(entry.file_name()), entry.file_type()?);
            let copy = self.root.join(&path);
            if holds(state, &path) {
                match is_linked {
                    true => symlink(&entry.path(), &copy)?,
                    false => copy_state(&entry.path(), &copy)?,
                }
            } else if kind.is_dir() && is_real_directory(&copy) {
                self.add_state(place, &path, is_linked)?;
            }
        }
        Ok(())
    }

    /// The copied directory, absolute.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The manifest of the copied content.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Paths that a command has changed, created or removed in the copy, including files in place of links to state.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub(crate) fn changes(&self) -> io::Result<BTreeSet<PathBuf>> {
        let now = stamps(&self.root)?;
        let all: BTreeSet<&PathBuf> = now.keys().chain(self.stamps.keys()).collect();
        let is_changed = |path: &&PathBuf| now.get(*path) != self.stamps.get(*path) && !is_version_control(path);
        let is_link_to_state = |path: &&PathBuf| {
            self.is_state(path) && fs::symlink_metadata(self.root.join(path)).is_ok_and(|meta| meta.is_symlink())
        };
        Ok(all.into_iter().filter(is_changed).filter(|path| !is_link_to_state(path)).cloned().collect())
    }

    /// True if `path` belongs to the state.
    pub(crate) fn is_state(&self, path: &Path) -> bool {
        self.state.as_ref().is_some_and(|state| path.ancestors().any(|above| holds(state, above)))
    }

    /// Reads the current content of the copy.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub(crate) fn now(&self) -> io::Result<Manifest> {
        Reading { state: self.state.as_ref(), ..Reading::default() }.read(&self.root)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // The next process removes what cannot be removed now.
        let _ = remove(&self.directory);
    }
}

/// Creates a directory for a copy. Removes directories of dead processes on the way.
fn reserve(scratch: &Path) -> io::Result<(PathBuf, File)> {
    private::create_dir_all(scratch)?;
    for entry in fs::read_dir(scratch)?.flatten() {
        let is_copy = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_copy && File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = remove(&entry.path());
        }
    }
    let directory = scratch.join(format!("{PREFIX}{}", run_id::new()));
    private::create_dir_all(&directory)?;
    let early = directory.join("lock.new");
    let lock = private::create_new(&early)?;
    lock.lock()?;
    // From here on, other processes see the directory as used.
    fs::rename(early, directory.join(LOCK))?;
    Ok((directory, lock))
}

/// Removes a directory with everything in it, including write-protected directories.
fn remove(directory: &Path) -> io::Result<()> {
    let Err(error) = fs::remove_dir_all(directory) else { return Ok(()) };
    let mut left = vec![directory.to_owned()];
    while let Some(place) = left.pop() {
        set_mode(&place, 0o700)?;
        let below = fs::read_dir(&place)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(below.map(|entry| entry.path()));
    }
    fs::remove_dir_all(directory).map_err(|_| error)
}

fn is_real_directory(place: &Path) -> bool {
    fs::symlink_metadata(place).is_ok_and(|meta| meta.is_dir())
}

/// Copies state for a trial. Links stay unchanged; special files are left out.
fn copy_state(from: &Path, to: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        fs::create_dir(to)?;
        return fs::read_dir(from)?.try_for_each(|entry| {
            let entry = entry?;
            copy_state(&entry.path(), &to.join(entry.file_name()))
        });
    }
    match (kind.is_file(), kind.is_symlink()) {
        (true, _) => fs::copy(from, to).map(|_| ()),
        (_, true) => symlink(&fs::read_link(from)?, to),
        _ => Ok(()),
    }
}

/// Stamps of everything below `root`, without opening files.
fn stamps(root: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(root.join(&path))? {
            let path = path.join(entry?.file_name());
            let meta = fs::symlink_metadata(root.join(&path))?;
            if meta.is_dir() {
                left.push(path.clone());
            }
            found.insert(path, Stamp::new(&meta));
        }
    }
    Ok(found)
}

impl Stamp {
    fn new(meta: &Metadata) -> Self {
        Self(stamp(meta))
    }
}
