//! Copies of large values on this machine, up to a size limit in bytes (K-49).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_runtime::blob::{BlobStore, FileBlobs, Scratch, each_piece};

/// Fraction of the limit, as a divisor, that may be written before the directory is scanned.
const PART: u64 = 8;

/// A directory of files that may be removed at any time, by this program or by anyone.
#[derive(Debug)]
pub(crate) struct Copies {
    files: FileBlobs,
    limit: u64,
    /// Bytes written since the last scan of the directory. Other processes write there as well.
    written: AtomicU64,
}

impl Copies {
    pub(crate) fn new(dir: PathBuf, limit: u64) -> Self {
        // The first copy of a process triggers a scan: an earlier process may have left too much.
        Self { files: FileBlobs::new(dir, false), limit, written: AtomicU64::new(u64::MAX / 2) }
    }

    /// Opens the copy of a value if its bytes match its name; a damaged copy is removed.
    pub(crate) fn open(&self, digest: Digest) -> io::Result<Option<Arc<dyn Blob>>> {
        let blob = match self.files.open(digest) {
            Ok(blob) => blob,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A copy that is removed while it is read counts as missing.
        if hash(&*blob).is_ok_and(|read| read == digest) {
            return Ok(Some(blob));
        }
        self.files.remove(digest)?;
        Ok(None)
    }

    /// Removes the oldest copies if their size exceeds the limit.
    fn bound(&self, len: u64) {
        let written = self.written.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if written <= self.limit / PART {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        // A file that cannot be removed now is removed at the next scan.
        let Ok(mut all) = self.files.list() else { return };
        all.sort_by_key(|kept| kept.modified);
        let mut total: u64 = all.iter().map(|kept| kept.len).sum();
        // The newest copy is in use.
        let oldest = all.len().saturating_sub(1);
        for kept in &all[..oldest] {
            if total <= self.limit - self.limit / PART {
                break;
            }
            if self.files.remove(kept.digest).is_ok() {
                total = total.saturating_sub(kept.len);
            }
        }
        let _ = self.files.clean();
    }
}

impl BlobStore for Copies {
    fn scratch(&self) -> io::Result<Scratch> {
        self.files.scratch()
    }

    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> io::Result<Arc<dyn Blob>> {
        let blob = self.files.keep(scratch, digest, len)?;
        self.bound(len);
        Ok(blob)
    }

    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        self.files.open(digest)
    }
}

fn hash(blob: &dyn Blob) -> Result<Digest, String> {
    let mut hasher = blake3::Hasher::new();
    each_piece(blob, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    Ok(Digest::from_bytes(*hasher.finalize().as_bytes()))
}
