//! The files of an app on disk. Nothing outside the app's directory is ever read, even through links.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use etude_files::beneath::{self, EntryKind, Root, Spot, Unresolved};
use etude_spec::source::{Entry, FileKind, ReadFailure, Sources};

/// Maximum number of names in a directory of an app.
const MAX_ENTRIES: usize = 1_000_000;

/// An app's directory.
#[derive(Debug)]
pub struct Disk(Root);

impl Disk {
    /// Opens the directory `root`, which must exist.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self(Root::open(root)?))
    }

    /// The absolute path of the directory, without links.
    pub fn root(&self) -> &Path {
        self.0.real()
    }

    fn find(&self, path: &str) -> Result<Spot, ReadFailure> {
        self.resolve(path).map_err(unresolved)
    }

    fn resolve(&self, path: &str) -> Result<Spot, Unresolved> {
        beneath::resolve(std::slice::from_ref(&self.0), &self.root().join(path))
    }

    fn open_resolved(&self, path: &str) -> Result<(File, Metadata), ReadFailure> {
        let spot = self.find(path)?;
        match spot.kind() {
            None => return Err(ReadFailure::Missing),
            Some(EntryKind::File) => {}
            Some(_) => return Err(ReadFailure::WrongKind),
        }
        let file = spot.open().map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        Ok((file, metadata))
    }
}

impl Sources for Disk {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        let (mut file, metadata) = match self.0.open_straight(Path::new(path)) {
            Some(opened) => opened,
            None => self.open_resolved(path)?,
        };
        let len = metadata.len();
        if len > limit {
            return Err(ReadFailure::TooLarge { len });
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        // The file may shrink or grow while it is read. Its content up to its old length is one state of it.
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
        let spot = self.resolve(dir).map_err(|why| match why {
            // The directory is there for its author, so it is not merely missing.
            Unresolved::Dangling => ReadFailure::Other("a symbolic link in its path has no target".to_owned()),
            why => unresolved(why),
        })?;
        let Some(open) = spot.as_dir() else {
            return Err(if spot.kind().is_some() { ReadFailure::WrongKind } else { ReadFailure::Missing });
        };
        let mut entries = Vec::new();
        for (name, kind) in open.entries(MAX_ENTRIES).map_err(failure)? {
            // A name that is not UTF-8 cannot be written in a pipeline file either.
            let Ok(name) = name.into_string() else { continue };
            let kind = match kind {
                EntryKind::Dir => FileKind::Dir,
                EntryKind::Link => {
                    let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
                    self.kind(&path).unwrap_or(FileKind::Other)
                }
                // The execute permission would cost a look at the file; callers that need it ask for its kind.
                EntryKind::File => FileKind::File { executable: false },
                EntryKind::Other => FileKind::Other,
            };
            entries.push(Entry { name, kind });
        }
        Ok(entries)
    }

    fn kind(&self, path: &str) -> Result<FileKind, ReadFailure> {
        // Most queries are for files that may exist, such as learn.yaml.
        if let Some(found) = self.0.status_straight(Path::new(path)) {
            let found = found.map_err(failure)?;
            return Ok(match found.kind {
                EntryKind::Dir => FileKind::Dir,
                EntryKind::File => FileKind::File { executable: found.mode & 0o111 != 0 },
                _ => FileKind::Other,
            });
        }
        let spot = self.find(path)?;
        Ok(match (spot.kind(), spot.entry()) {
            (None, _) => return Err(ReadFailure::Missing),
            (Some(EntryKind::Dir), _) => FileKind::Dir,
            (Some(EntryKind::File), Some((dir, name))) => {
                FileKind::File { executable: dir.status(name).map_err(failure)?.mode & 0o111 != 0 }
            }
            (Some(_), _) => FileKind::Other,
        })
    }
}

fn unresolved(why: Unresolved) -> ReadFailure {
    match why {
        Unresolved::Outside(_) => ReadFailure::Outside,
        Unresolved::Dangling | Unresolved::NotADirectory => ReadFailure::Missing,
        Unresolved::Loop => ReadFailure::Other("the path has too many symbolic links".to_owned()),
        Unresolved::Failed(error) => failure(error),
    }
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
