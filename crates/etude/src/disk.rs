//! The files of an app on disk. Nothing outside the app's directory is ever read, whatever links point there.

#[cfg(unix)]
#[path = "disk/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "disk/windows.rs"]
mod os;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};

/// An app's directory.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    dir: os::Dir,
}

impl Disk {
    /// The directory `root`, which must exist.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(root)?;
        let dir = os::Dir::open(&root)?;
        Ok(Self { root, dir })
    }

    /// The directory, absolute and without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn open_file(&self, path: &str) -> Result<File, ReadFailure> {
        match self.dir.open_beneath(path) {
            Ok(file) => Ok(file),
            Err(os::Refused::Outside) => os::open(&self.resolve(path)?).map_err(failure),
            Err(os::Refused::Failed(error)) => Err(failure(error)),
        }
    }

    /// The place that `path` leads to through all links, if that is inside.
    fn resolve(&self, path: &str) -> Result<PathBuf, ReadFailure> {
        let place = fs::canonicalize(self.root.join(path)).map_err(failure)?;
        if place.starts_with(&self.root) { Ok(place) } else { Err(ReadFailure::Outside) }
    }
}

impl Sources for Disk {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        let file = self.open_file(path)?;
        let meta = file.metadata().map_err(failure)?;
        if !meta.is_file() {
            return Err(ReadFailure::WrongKind);
        }
        if meta.len() > limit {
            return Err(ReadFailure::TooLarge { len: meta.len() });
        }
        let mut bytes = vec![0; usize::try_from(meta.len()).unwrap_or(usize::MAX)];
        let mut file = file;
        // The file may shrink or grow while it is read; what it holds at its old length is one state of it.
        let mut done = 0;
        while done < bytes.len() {
            match file.read(&mut bytes[done..]).map_err(failure)? {
                0 => break,
                got => done += got,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn list(&self, dir: &str) -> Result<Vec<Entry>, ReadFailure> {
        let place = if dir.is_empty() { self.root.clone() } else { self.resolve(dir)? };
        let mut entries = Vec::new();
        for entry in fs::read_dir(place).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            // A name that is not UTF-8 cannot be written in a pipeline file either.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type().map_err(failure)?;
            let kind = if kind.is_dir() {
                FileKind::Dir
            } else if kind.is_symlink() {
                let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
                self.kind(&path).unwrap_or(FileKind::Other)
            } else if kind.is_file() {
                // Whether it can be executed costs a look at the file; who needs that asks for its kind.
                FileKind::File { executable: false }
            } else {
                FileKind::Other
            };
            entries.push(Entry { name, kind });
        }
        Ok(entries)
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        let meta = match self.dir.metadata_beneath(path) {
            Ok(meta) => meta,
            Err(os::Refused::Outside) => fs::metadata(self.resolve(path)?).map_err(failure)?,
            Err(os::Refused::Failed(error)) => return Err(failure(error)),
        };
        Ok(if meta.is_dir() {
            FileKind::Dir
        } else if meta.is_file() {
            FileKind::File { executable: os::is_executable(&meta) }
        } else {
            FileKind::Other
        })
    }
}

/// The text of a regular file of at most `limit` bytes, wherever it lies. A pipe or a device in its place is an error: it
/// would hold whoever reads it, or never end.
///
/// # Errors
/// It cannot be read, is no regular file, is larger, or is no UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let file = os::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

fn failure(error: io::Error) -> ReadFailure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadFailure::Missing,
        io::ErrorKind::IsADirectory => ReadFailure::WrongKind,
        _ => ReadFailure::Other(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
