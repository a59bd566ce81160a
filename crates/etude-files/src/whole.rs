//! Files that appear as a whole or not at all: written beside their place, then renamed to it. A reader sees the old
//! content or the new one, even during a replacement.

mod unix;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::private;

/// End of the name of a part, which no file of a user has by chance.
const SUFFIX: &str = ".part";

/// Minimum age of a part that may be abandoned. A younger one may not be marked yet as one of a living process.
const MIN_AGE: Duration = Duration::from_secs(60);

/// The mode of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only the user may read and write it.
    Owner,
    /// As for every new file of the user's: the mask of the process decides.
    Mask,
}

/// Events that a new file survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process. The system writes the file to the disk at a time of its choice.
    Process,
    /// A loss of power: the file's content and name are on the disk.
    Power,
}

/// Replaces the file `place` by one with `content`, or creates it. A symbolic link is replaced, not followed.
///
/// # Errors
/// The file cannot be written. The old file is unchanged, unless only the last sync of the directory failed.
pub fn replace(place: &Path, content: &[u8], access: Access, durability: Durability) -> io::Result<()> {
    let part = Part::create(place, access)?;
    part.file().write_all(content)?;
    part.put_in_place(durability)
}

/// Writes the names of the files in a directory to the disk, where the system can do that.
///
/// # Errors
/// The disk fails.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    unix::sync_dir(path)
}

/// A new file beside its place, which is removed unless it is put there. Its name begins with a dot and the name of the
/// place, and is unique.
#[derive(Debug)]
pub struct Part<'p> {
    file: File,
    path: PathBuf,
    place: &'p Path,
    is_in_place: bool,
}

impl<'p> Part<'p> {
    /// Creates an empty file in the directory of `place`.
    ///
    /// # Errors
    /// The file cannot be created, or `place` has no file name.
    pub fn create(place: &'p Path, access: Access) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it has no file name");
        let name = place.file_name().ok_or_else(no_file)?;
        let mut beginning = OsString::from(".");
        beginning.push(name);
        beginning.push(".");
        remove_abandoned(crate::parent(place), &beginning);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut part = beginning.clone();
            part.push(format!("{}-{number}{SUFFIX}", std::process::id()));
            let path = place.with_file_name(part);
            let made = match access {
                Access::Owner => private::create_new(&path),
                Access::Mask => File::create_new(&path),
            };
            match made {
                Ok(file) => {
                    unix::mark(&file);
                    return Ok(Self { file, path, place, is_in_place: false });
                }
                // A dead process with this id has left it behind, or a process of another machine uses it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the file to its place. The old file there is gone.
    ///
    /// # Errors
    /// The disk fails, or a directory has that name.
    pub fn put_in_place(mut self, durability: Durability) -> io::Result<()> {
        if durability == Durability::Power {
            self.file.sync_all()?;
        }
        fs::rename(&self.path, self.place)?;
        self.is_in_place = true;
        match durability {
            Durability::Power => sync_dir(crate::parent(self.place)),
            Durability::Process => Ok(()),
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            // A file that cannot be removed now is hidden, and no one reads it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the parts of dead processes whose names begin so. A part that cannot be removed now stays.
fn remove_abandoned(dir: &Path, beginning: &OsStr) {
    let is_part = |name: &OsStr| {
        let rest = name.as_encoded_bytes().strip_prefix(beginning.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        number.is_some_and(|number| number.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| is_part(&entry.file_name())) {
        let modified = entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|found| found.modified().ok());
        let is_old = modified.is_some_and(|at| at.elapsed().is_ok_and(|age| age > MIN_AGE));
        if is_old && unix::is_abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
