//! A content-addressed store for values that are too large for memory or for a journal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_files::{private, whole};

mod watched;

mod unix;

pub use watched::{Unavailable, Watched};

/// Maximum length in bytes of a value that is held in memory. A longer value lies in a [`BlobStore`].
pub const INLINE_LIMIT: usize = 256 * 1024;

/// Lock file of the stores with values that no record refers to yet; each holds a shared lock. [`FileBlobs::alone`] sees from it
/// if a store may be about to refer to a value.
const USERS: &str = "users.lock";

/// Time for which a kept value is protected without a record that refers to it.
pub const GRACE: Duration = Duration::from_secs(60 * 60);

/// Maximum age of a scratch file. Older ones belong to dead processes and are removed.
const SCRATCH_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Keeps byte strings under their hash. Cheap to share between threads.
pub trait BlobStore: Send + Sync + Debug {
    /// Creates an empty temporary file that the store can keep without copying it.
    ///
    /// # Errors
    /// The file cannot be created.
    fn scratch(&self) -> io::Result<Scratch>;

    /// Keeps the `len` bytes of `scratch`, whose hash is `digest`. Bytes that are already kept are not written again.
    ///
    /// # Errors
    /// The file cannot be moved into its place, or its length is not `len`.
    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> io::Result<Arc<dyn Blob>>;

    /// The bytes whose hash is `digest`.
    ///
    /// # Errors
    /// The store has no such bytes, or they cannot be read.
    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>>;

    /// True if a record may refer to the bytes whose hash is `digest` without keeping them again.
    fn has(&self, digest: Digest) -> bool {
        self.open(digest).is_ok()
    }
}

/// All bytes of a value.
///
/// # Errors
/// The bytes cannot be read. The error is a sentence fragment with the reason.
pub fn bytes(blob: &dyn Blob) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    each_piece(blob, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// Calls `take` with the bytes of a value, piece by piece.
///
/// # Errors
/// The bytes cannot be read, or `take` fails. The error is a sentence fragment with the reason.
pub fn each_piece(blob: &dyn Blob, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let (mut done, mut piece) = (0, vec![0; 64 * 1024]);
    loop {
        match blob.read_at(done, &mut piece)? {
            0 => return Ok(()),
            count => {
                take(&piece[..count])?;
                done += count as u64;
            }
        }
    }
}

/// Keeps `bytes` in `store` and returns their hash.
///
/// # Errors
/// As [`BlobStore::scratch`] and [`BlobStore::keep`].
pub fn put(store: &dyn BlobStore, bytes: &[u8]) -> io::Result<(Digest, Arc<dyn Blob>)> {
    let digest = Digest::of(bytes);
    let mut scratch = store.scratch()?;
    scratch.file.write_all(bytes).map_err(|error| at(&scratch.path, &error))?;
    let blob = store.keep(scratch, digest, bytes.len() as u64)?;
    Ok((digest, blob))
}

/// A temporary file that is removed on drop unless a store keeps it.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl Scratch {
    /// A scratch file from an opened file; `path` is removed on drop.
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, kept: false }
    }

    /// The open file, for reading and writing.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// The path of the file, below the directory of blobs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the file as moved into its place, so that drop does not remove it.
    pub fn mark_kept(&mut self) {
        self.kept = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            // A file that cannot be removed now is removed by `FileBlobs::clean` later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Blobs as files `DIR/ab/abcdef…`, named by their hash, readable by their owner only.
#[derive(Debug)]
pub struct FileBlobs {
    dir: PathBuf,
    strict: bool,
    next: AtomicU64,
    pending: Mutex<Pending>,
    /// True once the name of the directory is on the disk.
    has_name: AtomicBool,
}

/// The values of a store that no record refers to yet.
#[derive(Debug, Default)]
struct Pending {
    /// The number of times that each was kept or found, and the last of these times.
    values: BTreeMap<Digest, (u32, Instant)>,
    /// The shared lock on [`USERS`], held while there are values. `None` also where files cannot be locked.
    lock: Option<File>,
}

impl Pending {
    /// Forgets values that are not protected any more, and the lock with the last one.
    fn expire(&mut self) {
        self.values.retain(|_, (_, since)| since.elapsed() < GRACE);
        if self.values.is_empty() {
            self.lock = None;
        }
    }
}

/// Proof that no store is about to refer to a value in the directory, and that none can keep or find one until this is dropped.
#[derive(Debug)]
pub struct Alone {
    _lock: File,
}

/// Entry of a blob in a [`FileBlobs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The digest, which is also the file name.
    pub digest: Digest,
    /// Length in bytes.
    pub len: u64,
    /// Time of the last write. Old blobs are removed by it.
    pub modified: SystemTime,
}

impl FileBlobs {
    /// A store in `dir`, which is created when the first value is kept. With `strict`, a blob is on the disk when
    /// [`BlobStore::keep`] returns, not only in the page cache of the operating system.
    pub fn new(dir: impl Into<PathBuf>, strict: bool) -> Self {
        let (next, pending, has_name) = Default::default();
        Self { dir: dir.into(), strict, next, pending, has_name }
    }

    /// `Some` if every value that an open store has kept or found was let go of: no process is about to refer to a value that
    /// nothing refers to yet. `None` also where files cannot be locked.
    ///
    /// # Errors
    /// The lock file cannot be opened.
    pub fn alone(&self) -> io::Result<Option<Alone>> {
        if !self.dir.is_dir() {
            return Ok(None);
        }
        self.pending().expire();
        let file = self.users_file()?;
        Ok(file.try_lock().is_ok().then_some(Alone { _lock: file }))
    }

    /// Ends the protection of values that were kept or found, once for each time: records refer to them now.
    pub fn let_go<'d>(&self, digests: impl IntoIterator<Item = &'d Digest>) {
        let mut pending = self.pending();
        for digest in digests {
            if let Some((count, _)) = pending.values.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    pending.values.remove(digest);
                }
            }
        }
        pending.expire();
    }

    /// Protects a value until it is let go of. Waits while another store removes values.
    fn hold(&self, digest: Digest) {
        let mut pending = self.pending();
        if pending.lock.is_none() {
            drop(pending);
            let lock = self.users_file().ok().filter(|file| file.lock_shared().is_ok());
            pending = self.pending();
            pending.lock = pending.lock.take().or(lock);
        }
        let (count, since) = pending.values.entry(digest).or_insert((0, Instant::now()));
        (*count, *since) = (*count + 1, Instant::now());
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn users_file(&self) -> io::Result<File> {
        let path = self.dir.join(USERS);
        match private::append(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private::create_missing_dirs(&self.dir)?;
                private::append(&path)
            }
            opened => opened,
        }
    }

    /// Removes a blob. A missing blob is not an error.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, digest: Digest) -> io::Result<()> {
        absent_is(fs::remove_file(self.place(digest)), ())
    }

    /// Removes a blob whose last write was before `before`, beside stores that may keep or find it at this moment. True if it
    /// was removed.
    ///
    /// # Errors
    /// The file cannot be examined or removed.
    pub fn remove_older(&self, digest: Digest, before: SystemTime) -> io::Result<bool> {
        let place = self.place(digest);
        let is_older = || Ok::<_, io::Error>(fs::metadata(&place)?.modified()? < before);
        if !absent_is(is_older(), false)? {
            return Ok(false);
        }
        // A store that renews or replaces the blob locks it meanwhile: it is young afterwards, or has lost its name before.
        let Some(file) = absent_is(File::open(&place).map(Some), None)? else { return Ok(false) };
        if file.try_lock().is_err() || !absent_is(is_older(), false)? {
            return Ok(false);
        }
        absent_is(fs::remove_file(&place).map(|()| true), false)
    }

    /// All blobs, in no particular order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<Kept>> {
        let mut all = Vec::new();
        for shelf in entries(&self.dir)? {
            if shelf.file_name().len() != 2 {
                continue;
            }
            for entry in entries(&shelf.path())? {
                let Some(digest) = entry.file_name().to_str().and_then(Digest::from_hex) else {
                    continue;
                };
                let Some(found) = absent_is(entry.metadata().map(Some), None)? else {
                    continue;
                };
                all.push(Kept { digest, len: found.len(), modified: found.modified()? });
            }
        }
        Ok(all)
    }

    /// Removes scratch files of dead processes, which are those older than a day. Returns their number.
    ///
    /// # Errors
    /// The directory cannot be read or a file cannot be removed.
    pub fn clean(&self) -> io::Result<u64> {
        let now = SystemTime::now();
        let mut removed = 0;
        for entry in entries(&self.scratch_dir())? {
            let Some(found) = absent_is(entry.metadata().map(Some), None)? else {
                continue;
            };
            if now.duration_since(found.modified()?).is_ok_and(|age| age > SCRATCH_LIFETIME) {
                absent_is(fs::remove_file(entry.path()), ())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Syncs blobs to the disk, for a store that is not strict and leaves that to the operating system. A missing blob is no
    /// error.
    ///
    /// A synced blob is made read-only, so that it is recognized the next time: the files of a definition belong to every run
    /// of it.
    ///
    /// # Errors
    /// The disk reports an error.
    pub fn sync<'d>(&self, digests: impl IntoIterator<Item = &'d Digest>) -> io::Result<()> {
        let mut synced = Vec::new();
        let mut shelves = BTreeSet::new();
        for digest in digests {
            let place = self.place(*digest);
            let Some(file) = absent_is(File::open(&place).map(Some), None)? else { continue };
            let mut permissions = file.metadata()?.permissions();
            if permissions.readonly() {
                continue;
            }
            file.sync_all()?;
            shelves.extend(place.parent().map(Path::to_owned));
            permissions.set_readonly(true);
            synced.push((file, permissions));
        }
        if synced.is_empty() {
            return Ok(());
        }
        for shelf in shelves {
            sync_dir(&shelf)?;
        }
        self.sync_shelves()?;
        for (file, permissions) in synced {
            // Without the mark the blob is synced again, which does no harm.
            let _ = file.set_permissions(permissions);
        }
        Ok(())
    }

    /// Writes the names of the shelves to the disk, and the first time the name of the directory itself.
    fn sync_shelves(&self) -> io::Result<()> {
        sync_dir(&self.dir)?;
        if !self.has_name.load(Ordering::Relaxed) {
            self.dir.parent().filter(|dir| !dir.as_os_str().is_empty()).map_or(Ok(()), sync_dir)?;
            self.has_name.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// True if a power failure lost content of a blob: its name was on the disk, some of its bytes were not. A synced blob is
    /// marked read-only, so it is never taken for lost.
    pub fn is_lost(&self, digest: Digest) -> bool {
        let place = self.place(digest);
        fs::metadata(&place).is_ok_and(|found| !is_synced(&found)) && hash(&place).is_ok_and(|found| found != digest)
    }

    /// Sets the time of a blob that is kept again to now. Pruning exempts recent blobs, because their record may be about to
    /// be written.
    ///
    /// # Errors
    /// There is no such blob, or a prune has just removed it.
    fn renew(&self, place: &Path) -> io::Result<()> {
        let file = File::open(place)?;
        // Where files cannot be locked, nothing removes a blob beside other stores.
        let _ = file.lock_shared();
        file.set_modified(SystemTime::now())?;
        fs::metadata(place).map(drop)
    }

    /// Renews an existing blob, after checks that a synced blob does not need.
    fn find(&self, digest: Digest) -> io::Result<()> {
        let place = self.place(digest);
        if !is_synced(&fs::metadata(&place)?) {
            if hash(&place)? != digest {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            if self.strict {
                self.sync([&digest])?;
            }
        }
        self.renew(&place)
    }

    fn place(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.dir.join(&name[..2]).join(name)
    }

    fn scratch_dir(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Copies an open file that has lost its name to another scratch file.
    fn copied(&self, from: &mut File) -> io::Result<Scratch> {
        let mut scratch = self.scratch()?;
        from.seek(SeekFrom::Start(0))?;
        io::copy(from, &mut scratch.file)?;
        if self.strict {
            scratch.file.sync_all()?
        }
        Ok(scratch)
    }

    fn put_in_place(&self, scratch: &mut Scratch, place: &Path) -> io::Result<()> {
        let shelf = place.parent().unwrap_or(&self.dir);
        let replaced = File::open(place).ok();
        // Another store may have synced the file that is replaced.
        if self.strict || place.exists() {
            scratch.file.sync_all()?;
        }
        // A store that removes old blobs would remove the new one under the same name.
        let _ = replaced.as_ref().map(File::lock_shared);
        if let Err(error) = fs::rename(&scratch.path, place) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            private::create_missing_dirs(shelf)?;
            match fs::rename(&scratch.path, place) {
                // Directories of copies may be removed at any time (K-49). The open file still has the bytes.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    *scratch = self.copied(&mut scratch.file)?;
                    private::create_missing_dirs(shelf)?;
                    fs::rename(&scratch.path, place)?;
                }
                renamed => renamed?,
            }
        }
        scratch.mark_kept();
        if self.strict {
            sync_dir(shelf)?;
            self.sync_shelves()?;
        }
        Ok(())
    }
}

impl BlobStore for FileBlobs {
    fn scratch(&self) -> io::Result<Scratch> {
        let dir = self.scratch_dir();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{}-{number}", std::process::id()));
            match private::create_new(&path) {
                Ok(file) => return Ok(Scratch::new(file, path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => private::create_missing_dirs(&dir)?,
                // The file belongs to another store in this directory, or to a dead process that had the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at(&path, &error)),
            }
        }
    }

    fn keep(&self, mut scratch: Scratch, digest: Digest, len: u64) -> io::Result<Arc<dyn Blob>> {
        let written = scratch.file.metadata()?.len();
        if written != len {
            return Err(io::Error::other(format!("the temporary file has {written} bytes instead of {len}")));
        }
        let place = self.place(digest);
        self.hold(digest);
        // A file that is not marked as synced may have lost bytes: in a power failure, or in a failed sync, which the disk
        // reports only once. It is replaced.
        let is_kept = |there: fs::Metadata| there.len() == len && is_synced(&there);
        if !fs::metadata(&place).is_ok_and(is_kept) || self.renew(&place).is_err() {
            let put = self.put_in_place(&mut scratch, &place);
            put.inspect_err(|_| self.let_go([&digest])).map_err(|error| at(&place, &error))?;
        }
        Ok(Arc::new(FileBlob { path: place }))
    }

    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        let path = self.place(digest);
        fs::metadata(&path)?;
        Ok(Arc::new(FileBlob { path }))
    }

    /// Renews an existing value: until a record refers to it, nothing else protects it from removal.
    fn has(&self, digest: Digest) -> bool {
        self.hold(digest);
        self.find(digest).inspect_err(|_| self.let_go([&digest])).is_ok()
    }
}

/// A blob in a file. The file is opened for each read. A run may hold thousands of values, but a process only about a thousand
/// open files, and an `open` costs nothing next to the read that follows.
#[derive(Debug)]
struct FileBlob {
    path: PathBuf,
}

impl Blob for FileBlob {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, String> {
        let mut read = || {
            let file = File::open(&self.path)?;
            let mut done = 0;
            while done < into.len() {
                match unix::read_at(&file, offset + done as u64, &mut into[done..]) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        };
        read().map_err(|error: io::Error| format!("`{}`: {error}", self.path.display()))
    }
}

/// True if the blob and its name are on the disk.
fn is_synced(found: &fs::Metadata) -> bool {
    found.permissions().readonly()
}

/// The hash of a file.
fn hash(path: &Path) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let take = |piece: &[u8]| {
        hasher.update(piece);
        Ok(())
    };
    each_piece(&FileBlob { path: path.to_owned() }, take).map_err(io::Error::other)?;
    Ok(Digest::from_bytes(*hasher.finalize().as_bytes()))
}

fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    whole::sync_dir(path)
}

/// Adds the file to an error.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// The entries of `dir`; empty if the directory does not exist.
fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Turns "no such file" into `instead`: another process removed the file first.
fn absent_is<T>(result: io::Result<T>, instead: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(instead),
        other => other,
    }
}

#[cfg(test)]
mod tests;
