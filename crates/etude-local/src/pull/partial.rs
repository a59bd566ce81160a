//! A partial file, with a note of its completed parts.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Failure;

/// A partial file, one for each source. Beside it is a note: the number of complete parts in the file, and its length after the
/// last of them.
pub(super) struct Partial {
    path: PathBuf,
    note: PathBuf,
    file: File,
    parts: usize,
    len: u64,
}

impl Partial {
    /// Opens the partial file for `target` from the source with the number `source`, or creates one.
    pub(super) fn open(target: &Path, source: usize) -> Result<Self, Failure> {
        let [path, note] = names(target, source);
        let disk = |source| Failure::Disk { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(disk)?;
        let noted = fs::read_to_string(&note).unwrap_or_default();
        let mut numbers = noted.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let (parts, noted) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let there = file.metadata().map_err(disk)?.len();
        // Without parts, all bytes of the file count; with parts, only those of complete ones.
        let (parts, len) = match usize::try_from(parts) {
            Ok(0) => (0, there),
            Ok(parts) if noted <= there => (parts, noted),
            _ => (0, 0),
        };
        let mut partial = Self { path, note, file, parts, len };
        partial.cut(len)?;
        Ok(partial)
    }

    /// Removes the partial files of all `sources` sources.
    pub(super) fn clean(target: &Path, sources: usize) {
        for name in (0..sources).flat_map(|source| names(target, source)) {
            // A missing file needs no removal, and a failed removal is harmless.
            drop(fs::remove_file(name));
        }
    }

    /// The number of bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The number of complete parts.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// Truncates the file to `len` bytes.
    pub(super) fn cut(&mut self, len: u64) -> Result<(), Failure> {
        let cut = self.file.set_len(len).and_then(|()| self.file.seek(SeekFrom::Start(len)));
        cut.map_err(|source| self.disk(source))?;
        self.len = len;
        Ok(())
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|source| self.disk(source))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Notes that another part is complete.
    pub(super) fn end_part(&mut self) -> Result<(), Failure> {
        self.file.sync_data().map_err(|source| self.disk(source))?;
        self.parts += 1;
        self.write_note()
    }

    fn write_note(&self) -> Result<(), Failure> {
        let text = format!("{} {}\n", self.parts, self.len);
        fs::write(&self.note, text).map_err(|source| Failure::Disk { path: self.note.clone(), source })
    }

    /// Checks size and hash. A wrong file is truncated, so that the next attempt starts from zero.
    pub(super) fn verify(&mut self, size: u64, sha256: &str) -> Result<(), Failure> {
        if self.len != size {
            let why = format!("it has {} bytes instead of {size}", self.len);
            self.drop_all()?;
            return Err(Failure::Source(why));
        }
        let found = self.hash().map_err(|source| self.disk(source))?;
        if found != sha256 {
            self.drop_all()?;
            return Err(Failure::Source(format!("its SHA-256 is {found} instead of {sha256}")));
        }
        Ok(())
    }

    fn drop_all(&mut self) -> Result<(), Failure> {
        self.parts = 0;
        self.cut(0)?;
        self.write_note()
    }

    fn hash(&mut self) -> io::Result<String> {
        self.file.seek(SeekFrom::Start(0))?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
        loop {
            match self.file.read(&mut buffer)? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
        Ok(etude_core::digest::hex(&hash.finalize()))
    }

    /// Renames the complete file to `target`.
    pub(super) fn rename(self, target: &Path) -> Result<(), Failure> {
        let renamed = self.file.sync_all().and_then(|()| fs::rename(&self.path, target));
        renamed.map_err(|source| self.disk(source))
    }

    /// The directory `name` beside the file, for temporary parts.
    pub(super) fn with_name(&self, name: &str) -> PathBuf {
        self.path.with_extension(name)
    }

    pub(super) fn disk(&self, source: io::Error) -> Failure {
        Failure::Disk { path: self.path.clone(), source }
    }
}

/// The file and its note.
fn names(target: &Path, source: usize) -> [PathBuf; 2] {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    ["part", "note"].map(|kind| target.with_file_name(format!("{name}.{source}.{kind}")))
}
