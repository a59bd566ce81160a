//! Object storage in a directory that the machines share.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use etude_core::digest::Digest;

use super::{Existing, refused, unavailable};

/// Number of bytes that are copied at once.
const PIECE: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The path of an object. A missing root directory means a missing mount, which proves nothing about its contents.
    fn place(&self, name: &str) -> io::Result<PathBuf> {
        match fs::metadata(&self.root) {
            Ok(found) if found.is_dir() => Ok(self.root.join(name)),
            Ok(_) => Err(refused(format!("`{}` is not a directory", self.root.display()))),
            Err(error) => Err(failed(&self.root, &error)),
        }
    }

    pub(super) fn put(&self, name: &str, from: &mut File, len: u64, existing: Existing) -> io::Result<()> {
        let place = self.place(name)?;
        let failed = |error: io::Error| failed(&place, &error);
        let shelf = place.parent().unwrap_or(&self.root);
        match fs::create_dir(shelf) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let part = shelf.join(format!(".part-{:016x}", crate::store::random()));
        let written = (|| {
            let mut file = File::create_new(&part)?;
            from.seek(SeekFrom::Start(0))?;
            let copied = io::copy(&mut from.take(len), &mut file)?;
            if copied != len {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            file.sync_all()?;
            match fs::hard_link(&part, &place) {
                Err(_) if existing == Existing::Replaced => fs::rename(&part, &place)?,
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // An object of another length is damaged (K-46).
                Err(_) if fs::metadata(&place)?.len() != len => fs::rename(&part, &place)?,
                _ => {}
            }
            File::open(shelf)?.sync_all()
        })();
        // A leftover file is not part of any object.
        let _ = fs::remove_file(&part);
        written.map_err(failed)
    }

    pub(super) fn has(&self, name: &str, len: u64) -> io::Result<bool> {
        let place = self.place(name)?;
        match fs::metadata(&place) {
            Ok(found) => Ok(found.len() == len),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(&place, &error)),
        }
    }

    pub(super) fn get(&self, name: &str, to: &mut File) -> io::Result<Option<(Digest, u64)>> {
        let place = self.place(name)?;
        let failed = |error: io::Error| failed(&place, &error);
        let mut from = match File::open(&place) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let (mut hasher, mut len, mut piece) = (blake3::Hasher::new(), 0, vec![0; PIECE]);
        loop {
            let count = from.read(&mut piece).map_err(failed)?;
            if count == 0 {
                return Ok(Some((Digest::from_bytes(*hasher.finalize().as_bytes()), len)));
            }
            hasher.update(&piece[..count]);
            to.write_all(&piece[..count])?;
            len += count as u64;
        }
    }

    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        let place = self.place(name)?;
        match fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&place, &error)),
            _ => Ok(()),
        }
    }
}

fn failed(place: &Path, error: &io::Error) -> io::Error {
    let why = format!("`{}`: {error}", place.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => refused(why),
        _ => unavailable(why),
    }
}
