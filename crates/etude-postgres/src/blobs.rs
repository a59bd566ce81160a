//! Large values: chunks in the database, and files on this machine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_runtime::blob::{BlobStore, FileBlobs, Scratch, put};
use etude_runtime::engine::Error;

use crate::error::Fault;
use crate::link::{Connection, Link, attempt};
use crate::{rows, uploads};

/// A value in the database has no more bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of a chunk.
pub(crate) const CHUNK: usize = 1024 * 1024;

/// Values of all runs. The files may be removed at any time.
#[derive(Debug)]
pub(crate) struct Blobs {
    files: FileBlobs,
    link: Arc<Link>,
    /// The tenant that uploads.
    tenant: Option<String>,
}

impl Blobs {
    pub(crate) fn new(cache: PathBuf, link: Arc<Link>, tenant: Option<String>) -> Self {
        Self { files: FileBlobs::new(cache, false), link, tenant }
    }

    async fn upload(&self, digest: Digest, bytes: &[u8]) -> Result<(), Error> {
        match &self.tenant {
            None => attempt!(self.link, |connection| upload(connection, digest, bytes)),
            Some(tenant) => attempt!(self.link, |connection| uploads::keep(connection, tenant, digest, bytes)),
        }
        Ok(())
    }

    async fn download(&self, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
        let found = attempt!(self.link, |connection| download(connection, digest));
        if found.as_ref().is_some_and(|bytes| Digest::of(bytes) == digest) {
            return Ok(found);
        }
        Ok(attempt!(self.link, |connection| uploads::find(connection, digest)).or(found))
    }
}

impl BlobStore for Blobs {
    fn scratch(&self) -> io::Result<Scratch> {
        self.files.scratch()
    }

    fn keep(&self, scratch: Scratch, digest: Digest, len: u64) -> io::Result<Arc<dyn Blob>> {
        if len > MAX_BYTES {
            let message = format!("the value has {len} bytes; at most {MAX_BYTES} bytes are kept in PostgreSQL");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        let kept = self.files.keep(scratch, digest, len)?;
        let bytes = read(&*kept)?;
        self.link.wait(self.upload(digest, &bytes)).map_err(|cause| io::Error::other(cause.to_string()))?;
        Ok(kept)
    }

    fn open(&self, digest: Digest) -> io::Result<Arc<dyn Blob>> {
        match self.files.open(digest) {
            Ok(blob) if Digest::of(&read(&*blob)?) == digest => return Ok(blob),
            // A file that is not what it was is fetched again.
            Ok(_) => self.files.remove(digest)?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(cause),
        }
        let found = self.link.wait(self.download(digest)).map_err(|cause| io::Error::other(cause.to_string()))?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the database has no value {digest}"));
        let bytes = found.ok_or_else(missing)?;
        if Digest::of(&bytes) != digest {
            let message = format!("the stored value {digest} is not what it was");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        put(&self.files, &bytes).map(|(_, blob)| blob)
    }
}

fn read(blob: &dyn Blob) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match blob.read_at(bytes.len() as u64, &mut chunk).map_err(io::Error::other)? {
            0 => return Ok(bytes),
            len => bytes.extend_from_slice(&chunk[..len]),
        }
    }
}

/// Keeps a value, or notes that it is needed again. Of two that upload the same value, one waits and writes no chunk.
async fn upload(connection: &mut Connection, digest: Digest, bytes: &[u8]) -> Result<(), Fault> {
    let hash = &digest.as_bytes()[..];
    connection.batch("begin").await?;
    let sql = "insert into blobs (hash, length, uploaded_at) values ($1, $2, clock_timestamp())
        on conflict (hash) do update set uploaded_at = excluded.uploaded_at returning xmax::text = '0'";
    let row = connection.query_opt(sql, &[&hash, &rows::from_length(bytes.len() as u64)]).await?;
    if row.is_some_and(|row| row.get(0)) {
        for (number, chunk) in (0_i32..).zip(bytes.chunks(CHUNK)) {
            let sql = "insert into chunks (hash, chunk, body) values ($1, $2, $3)";
            connection.execute(sql, &[&hash, &number, &chunk]).await?;
        }
    }
    connection.batch("commit").await
}

async fn download(connection: &mut Connection, digest: Digest) -> Result<Option<Vec<u8>>, Fault> {
    let hash = &digest.as_bytes()[..];
    if connection.query_opt("select 1 from blobs where hash = $1", &[&hash]).await?.is_none() {
        return Ok(None);
    }
    let rows = connection.query("select body from chunks where hash = $1 order by chunk", &[&hash]).await?;
    let mut bytes = Vec::new();
    for row in rows {
        bytes.extend_from_slice(row.try_get(0)?);
    }
    Ok(Some(bytes))
}
