//! Files that are there as a whole or not at all: written beside their place, then renamed to it. A reader has the old content
//! or the new one, whatever happens meanwhile.

#[cfg(unix)]
#[path = "whole/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "whole/windows.rs"]
mod os;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::private;

/// The mode of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only the user may read and write it.
    Owner,
    /// As for every new file of the user's: the mask of the process decides.
    Mask,
}

/// What a new file outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process. The system writes it to the disk when it likes.
    Process,
    /// A loss of power: its content and its name are on the disk.
    Power,
}

/// Puts `content` in the place of the file `place`, or creates that. A symbolic link is replaced, not followed.
///
/// # Errors
/// It cannot be written. What was there is there.
pub fn replace(place: &Path, content: &[u8], access: Access, durability: Durability) -> io::Result<()> {
    let part = Part::beside(place, access)?;
    part.file().write_all(content)?;
    part.put_in_place(durability)
}

/// Brings the names of the files in a directory to the disk, where the system can do that.
///
/// # Errors
/// The disk fails.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    os::sync_dir(path)
}

/// A new file beside its place, which goes away unless it is put there. Its name begins with a dot and the name of the place,
/// and is no one else's.
#[derive(Debug)]
pub struct Part<'p> {
    file: File,
    path: PathBuf,
    place: &'p Path,
    is_in_place: bool,
}

impl<'p> Part<'p> {
    /// Creates an empty one, in the directory of `place`.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn beside(place: &'p Path, access: Access) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
        let name = place.file_name().ok_or_else(no_file)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut part = OsString::from(".");
            part.push(name);
            part.push(format!(".{}-{number}", std::process::id()));
            let path = place.with_file_name(part);
            let made = match access {
                Access::Owner => private::create_new(&path),
                Access::Mask => File::create_new(&path),
            };
            match made {
                Ok(file) => return Ok(Self { file, path, place, is_in_place: false }),
                // A process that had this id has left it behind, or one of another machine has it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it the name of its place. What was there is gone.
    ///
    /// # Errors
    /// The disk fails, or a directory is there.
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
            // What cannot be removed is hidden, and no one reads it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
