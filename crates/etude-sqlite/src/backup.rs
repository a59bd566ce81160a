//! A consistent copy of a journal in one file: a tar archive of the journal's directory.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_files::whole::{Access, Durability, Part};
use etude_runtime::archive::{self, BLOCK, MAX_SIZE};
use etude_runtime::blob::{BlobStore as _, Scratch};
use etude_runtime::clock;
use etude_runtime::engine::Error;
use rusqlite::Connection;

use crate::error::{file_error, store_error};
use crate::journal::Journal;
use crate::rows;

/// The counts of a backup, taken from the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backup {
    /// Number of runs.
    pub runs: u64,
    /// Number of large values that lie beside the database.
    pub blobs: u64,
    /// Size of the archive in bytes.
    pub bytes: u64,
}

/// A copy of the database, its number of runs, and the values that they need.
type Snapshot = (Scratch, u64, BTreeSet<Digest>);

impl Journal {
    /// Writes the archive. It gets its name when it is whole and on the disk.
    pub(crate) fn backup(&self, file: &Path) -> Result<Backup, Error> {
        let fail = |cause: io::Error| file_error(file, &cause);
        if fs::symlink_metadata(file).is_ok() {
            return Err(fail(io::ErrorKind::AlreadyExists.into()));
        }
        let part = Part::create(file, Access::Owner).map_err(fail)?;
        let backup = self.write_backup(file, part.file())?;
        part.put_in_place(Durability::Power).map_err(fail)?;
        Ok(backup)
    }

    fn write_backup(&self, file: &Path, out: &File) -> Result<Backup, Error> {
        let fail = |cause: io::Error| file_error(file, &cause);
        let (scratch, runs, blobs) = self.hold_snapshot(&Self::snapshot)?;
        let copy = scratch.path().to_owned();
        let mut tar = Tar { out: BufWriter::new(out), bytes: 0 };
        // The values go first: a missing value is found before the larger part is written.
        for digest in &blobs {
            let lost = |why: String| Error::Damaged {
                path: self.dir.join("blobs").display().to_string(),
                why: format!("the value {digest} cannot be read: {why}"),
            };
            let (blob, len) = self.blob(*digest).map_err(|cause| lost(cause.to_string()))?;
            let name = digest.to_string();
            tar.begin(&format!("blobs/{}/{name}", &name[..2]), len).map_err(fail)?;
            let mut done = 0;
            let mut piece = vec![0; 256 * 1024];
            while done < len {
                let got = blob.read_at(done, &mut piece).map_err(lost)?;
                if got == 0 {
                    return Err(lost(format!("it ends after {done} of {len} bytes")));
                }
                tar.write_all(&piece[..got]).map_err(fail)?;
                done += got as u64;
            }
            tar.end(len).map_err(fail)?;
        }
        let database = File::open(&copy).map_err(|cause| file_error(&copy, &cause))?;
        let len = database.metadata().map_err(|cause| file_error(&copy, &cause))?.len();
        tar.begin("journal.db", len).map_err(fail)?;
        let copied = io::copy(&mut database.take(len), &mut tar).map_err(fail)?;
        tar.end(copied).map_err(fail)?;
        let bytes = tar.finish().map_err(fail)?;
        Ok(Backup { runs, blobs: blobs.len() as u64, bytes })
    }

    /// A copy of the database whose values are not removed while they are read. If a prune came between the copy and the hold on
    /// its values, another copy is made.
    pub(crate) fn hold_snapshot(&self, snapshot: &dyn Fn(&Self) -> Result<Snapshot, Error>) -> Result<Snapshot, Error> {
        let mut lost = None;
        loop {
            let copied = snapshot(self)?;
            let missing = copied.2.iter().copied().filter(|digest| !self.blobs.has(*digest)).min();
            // A value that the next copy refers to as well is lost, or belongs to another user; reading it tells which.
            if missing.is_none() || missing == lost {
                return Ok(copied);
            }
            lost = missing;
        }
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        // The copy is in the journal's own directory, which is private; if this process dies now, it is removed later.
        let scratch = self.blobs.scratch().map_err(|cause| file_error(&self.dir.join("blobs"), &cause))?;
        let copy = scratch.path().to_owned();
        let at = copy.display().to_string();
        self.pool.aside(|connection| connection.execute("vacuum into ?1", [&at]).map(drop))?;
        let (runs, mut blobs, inputs) = contents(&copy).map_err(|cause| store_error(&copy, cause))?;
        // In earlier versions, `runs prune` removed the large input of a run that had not ended. Such a journal can still be
        // copied.
        blobs.extend(inputs.into_iter().filter(|input| self.blob(*input).is_ok()));
        Ok((scratch, runs, blobs))
    }

    fn blob(&self, digest: Digest) -> io::Result<(std::sync::Arc<dyn Blob>, u64)> {
        let name = digest.to_string();
        let len = fs::metadata(self.dir.join("blobs").join(&name[..2]).join(&name))?.len();
        Ok((self.blobs.open(digest)?, len))
    }
}

/// The number of runs in a copy of the database, the values that their records and the cache need, and those that their headers
/// name.
fn contents(copy: &Path) -> rusqlite::Result<(u64, BTreeSet<Digest>, BTreeSet<Digest>)> {
    let connection = Connection::open(copy)?;
    let runs = connection.query_row("select count(*) from runs", [], |row| rows::length(row, 0))?;
    let sql = "select blob from blob_refs union select blob from cache where blob is not null";
    let mut statement = connection.prepare(sql)?;
    let blobs = statement.query_map([], |row| rows::digest(row, 0))?.collect::<rusqlite::Result<_>>()?;
    Ok((runs, blobs, rows::of_headers(&connection)?))
}

/// An archive in the `ustar` format.
struct Tar<W: Write> {
    out: W,
    bytes: u64,
}

impl<W: Write> Tar<W> {
    /// Begins a file that only its owner can read.
    fn begin(&mut self, name: &str, len: u64) -> io::Result<()> {
        if len > MAX_SIZE {
            return Err(io::Error::other(format!("`{name}` has {len} bytes; an archive can hold files up to 8 GiB")));
        }
        let now = u64::try_from(clock::now_ms() / 1000).unwrap_or(0);
        self.write_all(&archive::header(name, len, now))
    }

    /// Pads the last block of a file of `len` bytes.
    fn end(&mut self, len: u64) -> io::Result<()> {
        self.write_all(&[0; BLOCK][..archive::padding(len)])
    }

    /// Ends the archive. Returns its size in bytes.
    fn finish(mut self) -> io::Result<u64> {
        self.write_all(&[0; 2 * BLOCK])?;
        self.flush()?;
        Ok(self.bytes)
    }
}

impl<W: Write> Write for Tar<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
