//! Large values: in object storage or, without it, as chunks in the database; with copies on this machine.
//!
//! The row of a value is written before the value: no store has a value without a row, so a prune finds everything. The
//! record that refers to the value comes last (K-45).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::{Arc, Mutex};

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_runtime::blob::{BlobStore, INLINE_LIMIT, Scratch, put};
use etude_runtime::engine::Error;

use crate::copies::Copies;
use crate::error::Fault;
use crate::link::{Connection, Link, attempt, lock};
use crate::objects::{Credentials, Existing, Objects, unavailable};
use crate::{rows, uploads};

/// Maximum size of a value in the database, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Size of a chunk, in bytes.
pub(crate) const CHUNK: usize = 1024 * 1024;

etude_core::words! {
    /// Kind of a value, which is the first part of its object's name. Values up to [`INLINE_LIMIT`] bytes, such as the
    /// files of definitions, are always in the database.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Shelf {
        Values = "values",
        Bundles = "bundles",
    }
}

/// Values of all runs, or bundles. The copies on this machine may be removed at any time.
#[derive(Debug)]
pub(crate) struct Blobs {
    depot: Arc<Depot>,
    shelf: Shelf,
}

/// Storage of values, for both shelves.
#[derive(Debug)]
pub(crate) struct Depot {
    copies: Copies,
    link: Arc<Link>,
    credentials: Credentials,
    objects: Mutex<Option<(String, Arc<Objects>)>>,
    /// Values whose objects were damaged when this process read them (K-46).
    damaged: Mutex<BTreeSet<Digest>>,
    /// The tenant that uploads (K-56). Its uploads go to the database, even with object storage: only a worker needs
    /// access to that.
    tenant: Option<String>,
}

/// Place of a value, by its row in the database.
#[derive(Debug)]
struct Place {
    /// The shelf in object storage; `None`: the value is in the database.
    shelf: Option<String>,
    /// URL of object storage, as last applied.
    url: Option<String>,
    /// True if the value is announced for the first time.
    is_new: bool,
}

impl Depot {
    pub(crate) fn new(copies: Copies, link: Arc<Link>, credentials: Credentials, tenant: Option<String>) -> Self {
        Self { copies, link, credentials, objects: Mutex::default(), damaged: Mutex::default(), tenant }
    }

    /// Object storage at `url`; another process may have changed the URL since the last use.
    pub(crate) fn objects(&self, url: Option<&str>) -> io::Result<Arc<Objects>> {
        let url = url
            .ok_or_else(|| unavailable("the value is in object storage, but the database has no object storage URL"))?;
        let mut current = lock(&self.objects);
        if let Some((_, objects)) = current.as_ref().filter(|(of, _)| of == url) {
            return Ok(Arc::clone(objects));
        }
        let objects = Arc::new(Objects::open(url, &self.credentials)?);
        *current = Some((url.to_owned(), Arc::clone(&objects)));
        Ok(objects)
    }

    /// Hides the variables of object storage from the steps of this process, if the database names a bucket.
    pub(crate) fn follow(&self, url: Option<&str>) {
        // Object storage that cannot be opened is reported where a value is needed.
        let _ = url.map(|url| self.objects(Some(url)));
    }

    fn keep(&self, mut scratch: Scratch, digest: Digest, len: u64, shelf: Shelf) -> io::Result<Arc<dyn Blob>> {
        let written = scratch.file().metadata()?.len();
        if written != len {
            return Err(io::Error::other(format!("the temporary file has {written} bytes instead of {len}")));
        }
        // A value that cannot be kept is not announced: its row would prevent a change of object storage.
        if len > MAX_BYTES && !self.link.wait(self.has_storage()).map_err(|cause| unavailable(cause.to_string()))? {
            return Err(too_large(len));
        }
        if self.tenant.is_some() {
            self.insert(&mut scratch, digest, len)?;
            return self.copies.keep(scratch, digest, len);
        }
        let place =
            self.link.wait(self.announce(digest, len, shelf)).map_err(|cause| unavailable(cause.to_string()))?;
        if let Some(shelf) = &place.shelf {
            let (objects, name) = (self.objects(place.url.as_deref())?, name(shelf, digest));
            let is_damaged = lock(&self.damaged).contains(&digest);
            let existing = if is_damaged { Existing::Replaced } else { Existing::Kept };
            self.link.wait(async {
                if place.is_new || is_damaged || !objects.has(&name, len).await? {
                    objects.put(&name, scratch.file(), len, existing).await?;
                }
                Ok::<_, io::Error>(())
            })?;
            lock(&self.damaged).remove(&digest);
        } else if !self.link.wait(self.has_chunks(digest)).map_err(|cause| unavailable(cause.to_string()))? {
            self.insert(&mut scratch, digest, len)?;
        }
        self.copies.keep(scratch, digest, len)
    }

    /// Keeps a value in the database.
    fn insert(&self, scratch: &mut Scratch, digest: Digest, len: u64) -> io::Result<()> {
        let bytes = read(scratch.file(), len)?;
        self.link.wait(self.upload(digest, &bytes)).map_err(|cause| unavailable(cause.to_string()))
    }

    /// Opens a local copy of a value, or fetches the value. Both are checked against the value's name (K-46).
    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        match self.copies.open(digest)? {
            Some(blob) => Ok(blob),
            None => self.fetch(digest),
        }
    }

    fn fetch(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        let away = |cause: Error| unavailable(cause.to_string());
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the value {digest} is missing"));
        let place = self.link.wait(self.locate(digest)).map_err(away)?;
        let damaged = || {
            let message = format!("the stored value {digest} does not match its hash");
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let Some((shelf, url)) = place.and_then(|place| Some((place.shelf?, place.url))) else {
            let bytes = self.link.wait(self.download(digest)).map_err(away)?.ok_or_else(missing)?;
            if Digest::of(&bytes) != digest {
                return Err(damaged());
            }
            return put(&self.copies, &bytes).map(|(_, blob)| blob);
        };
        let objects = self.objects(url.as_deref())?;
        let mut scratch = self.copies.scratch()?;
        let found = self.link.wait(objects.get(&name(&shelf, digest), scratch.file()))?;
        let (read, len) = found.ok_or_else(missing)?;
        if read != digest {
            lock(&self.damaged).insert(digest);
            return Err(damaged());
        }
        self.copies.keep(scratch, digest, len)
    }

    async fn announce(&self, digest: Digest, len: u64, shelf: Shelf) -> Result<Place, Error> {
        let is_small = shelf == Shelf::Values && len <= INLINE_LIMIT as u64;
        let shelf = (!is_small).then_some(shelf);
        Ok(attempt!(self.link, |connection| announce(connection, digest, len, shelf)))
    }

    /// True if values from here go to object storage.
    async fn has_storage(&self) -> Result<bool, Error> {
        if self.tenant.is_some() {
            return Ok(false);
        }
        Ok(attempt!(self.link, |connection| has_storage(connection)))
    }

    async fn renew(&self, digest: Digest) -> Result<bool, Error> {
        Ok(attempt!(self.link, |connection| renew(connection, digest)))
    }

    async fn has_chunks(&self, digest: Digest) -> Result<bool, Error> {
        Ok(attempt!(self.link, |connection| has_chunks(connection, digest)))
    }

    async fn upload(&self, digest: Digest, bytes: &[u8]) -> Result<(), Error> {
        match &self.tenant {
            None => attempt!(self.link, |connection| upload(connection, digest, bytes)),
            Some(tenant) => attempt!(self.link, |connection| uploads::keep(connection, tenant, digest, bytes)),
        }
        Ok(())
    }

    async fn locate(&self, digest: Digest) -> Result<Option<Place>, Error> {
        Ok(attempt!(self.link, |connection| locate(connection, digest)))
    }

    async fn download(&self, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
        let found = attempt!(self.link, |connection| download(connection, digest));
        if found.as_ref().is_some_and(|bytes| Digest::of(bytes) == digest) {
            return Ok(found);
        }
        Ok(attempt!(self.link, |connection| uploads::find(connection, digest)).or(found))
    }
}

impl Blobs {
    pub(crate) fn new(depot: &Arc<Depot>, shelf: Shelf) -> Self {
        Self { depot: Arc::clone(depot), shelf }
    }

    /// Wraps a value whose copy may be removed during use.
    fn lasting(&self, digest: Digest, copy: Arc<dyn Blob>) -> Arc<dyn Blob> {
        Arc::new(Lasting { depot: Arc::clone(&self.depot), digest, copy })
    }
}

impl BlobStore for Blobs {
    fn scratch(&self) -> io::Result<Scratch> {
        self.depot.copies.scratch()
    }

    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> io::Result<Arc<dyn Blob>> {
        let copy = self.depot.keep(scratch, digest, len, self.shelf)?;
        Ok(self.lasting(digest, copy))
    }

    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        let copy = self.depot.open(digest)?;
        Ok(self.lasting(digest, copy))
    }

    /// A copy on this machine proves nothing about the database, and an object may still be on its way.
    fn has(&self, digest: Digest) -> bool {
        self.depot.link.wait(self.depot.renew(digest)).unwrap_or(false)
    }
}

/// A value that is fetched again if its copy is gone (K-49).
#[derive(Debug)]
struct Lasting {
    depot: Arc<Depot>,
    digest: Digest,
    copy: Arc<dyn Blob>,
}

impl Blob for Lasting {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, String> {
        self.copy.read_at(offset, into).or_else(|_| {
            let copy = self.depot.fetch(self.digest).map_err(|error| error.to_string())?;
            copy.read_at(offset, into)
        })
    }
}

/// The name of an object.
pub(crate) fn name(shelf: &str, digest: Digest) -> String {
    format!("{shelf}/{digest}")
}

fn too_large(len: u64) -> io::Error {
    let message = format!(
        "the value has {len} bytes; PostgreSQL stores at most {MAX_BYTES} bytes; use object storage for larger values (`engine.blobs`)"
    );
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

fn read(file: &mut File, len: u64) -> io::Result<Vec<u8>> {
    if len > MAX_BYTES {
        return Err(too_large(len));
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Announces that a value is about to be stored, or is needed again. For a day from now on, no prune removes it (K-48).
///
/// If a prune is removing the value from object storage at this moment, the value goes to the database: the removal may
/// be on its way.
async fn announce(connection: &mut Connection, digest: Digest, len: u64, shelf: Option<Shelf>) -> Result<Place, Fault> {
    let sql = "insert into blobs (hash, length, uploaded_at, place)
        select $1, $2, clock_timestamp(), case when url is not null then $3 end from storage
        on conflict (hash) do update set uploaded_at = excluded.uploaded_at,
            place = case when blobs.is_going then null else blobs.place end, is_going = false
        returning place, (select url from storage), xmax::text = '0'";
    let row = connection
        .query_opt(sql, &[&&digest.as_bytes()[..], &rows::from_length(len), &shelf.map(Shelf::word)])
        .await?
        .ok_or_else(|| rows::damaged("the table `storage` has no row".to_owned()))?;
    Ok(Place { shelf: row.try_get(0)?, url: row.try_get(1)?, is_new: row.try_get(2)? })
}

async fn has_storage(connection: &mut Connection) -> Result<bool, Fault> {
    Ok(connection.query_opt("select 1 from storage where url is not null", &[]).await?.is_some())
}

/// Renews a value. True if it is in the database as a whole. For a day from now on, no prune removes it.
async fn renew(connection: &mut Connection, digest: Digest) -> Result<bool, Fault> {
    let sql = "update blobs set uploaded_at = clock_timestamp()
        where hash = $1 and place is null and exists (select 1 from chunks where chunks.hash = blobs.hash)";
    Ok(connection.execute(sql, &[&&digest.as_bytes()[..]]).await? > 0)
}

async fn has_chunks(connection: &mut Connection, digest: Digest) -> Result<bool, Fault> {
    let sql = "select 1 from chunks where hash = $1 limit 1";
    Ok(connection.query_opt(sql, &[&&digest.as_bytes()[..]]).await?.is_some())
}

/// Keeps a value in the database. If two processes upload the same value, one waits and writes no chunk.
async fn upload(connection: &mut Connection, digest: Digest, bytes: &[u8]) -> Result<(), Fault> {
    let hash = &digest.as_bytes()[..];
    connection.begin();
    connection.query("select 1 from blobs where hash = $1 for update", &[&hash]).await?;
    if !has_chunks(connection, digest).await? {
        for (number, chunk) in (0_i32..).zip(bytes.chunks(CHUNK)) {
            let sql = "insert into chunks (hash, chunk, body) values ($1, $2, $3)";
            connection.execute(sql, &[&hash, &number, &chunk]).await?;
        }
    }
    connection.commit().await
}

async fn locate(connection: &mut Connection, digest: Digest) -> Result<Option<Place>, Fault> {
    let sql = "select place, (select url from storage) from blobs where hash = $1";
    let row = connection.query_opt(sql, &[&&digest.as_bytes()[..]]).await?;
    row.map(|row| Ok(Place { shelf: row.try_get(0)?, url: row.try_get(1)?, is_new: false })).transpose()
}

async fn download(connection: &mut Connection, digest: Digest) -> Result<Option<Vec<u8>>, Fault> {
    let hash = &digest.as_bytes()[..];
    let rows = connection.query("select body from chunks where hash = $1 order by chunk", &[&hash]).await?;
    if rows.is_empty() && digest != Digest::of(b"") {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    for row in rows {
        bytes.extend_from_slice(row.try_get(0)?);
    }
    Ok(Some(bytes))
}
