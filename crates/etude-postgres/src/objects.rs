//! Object storage: large values and bundles outside the database, under their hash, in a bucket or in a directory that
//! the machines share.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etude_core::digest::Digest;
use etude_core::service_url::is_loopback;
use etude_runtime::blob::Unavailable;
use url::Url;

mod bucket;
mod directory;

use bucket::Bucket;
use directory::Directory;

/// Content of a probe.
const PROBE: &[u8] = b"etude engine check\n";

/// Credentials of object storage.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Variables that begin with `AWS_`, as names and values.
    pub variables: Vec<(String, String)>,
    /// Set once values are in a bucket: no step gets these variables then (K-53).
    pub are_used: Arc<AtomicBool>,
}

/// Storage of large values, in the form of `engine.blobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `s3://bucket/prefix?region=…&endpoint=…`.
    Bucket {
        /// The name of the bucket.
        bucket: String,
        /// Prefix of the names of all objects; may be empty.
        prefix: String,
        /// The region; `None` if the URL names none.
        region: Option<String>,
        /// The server; `None` for the one of AWS.
        endpoint: Option<String>,
    },
    /// `file:///dir`.
    Directory(PathBuf),
}

impl Location {
    /// Reads a value of `engine.blobs`.
    ///
    /// # Errors
    /// The reason why the text is not a storage of values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(
                "the URL of object storage has credentials in it; set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"
                    .to_owned(),
            );
        }
        match url.scheme() {
            "s3" => Self::bucket(&url),
            "file" if url.query().is_none() => {
                let path = url.to_file_path().ok().filter(|path| path.is_absolute());
                path.map(Self::Directory)
                    .ok_or_else(|| format!("`{text}` is not a directory of this machine: `file:///dir`"))
            }
            _ => Err(format!("`{text}` is neither `s3://bucket/prefix` nor `file:///dir`")),
        }
    }

    fn bucket(url: &Url) -> Result<Self, String> {
        let bucket = url.host_str().filter(|name| !name.is_empty() && url.port().is_none());
        let bucket = bucket.ok_or_else(|| format!("`{url}` has no bucket: `s3://bucket/prefix`"))?.to_owned();
        let prefix = url.path().trim_matches('/').to_owned();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=".contains(letter);
        if !prefix.chars().all(is_plain) || prefix.split('/').any(|part| part == "..") || prefix.contains("//") {
            return Err(format!("the prefix `{prefix}` may have letters, digits, `-`, `_`, `.`, `=` and `/`"));
        }
        let (mut region, mut endpoint) = (None, None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "region" => region = Some(value.into_owned()),
                "endpoint" => endpoint = Some(server(&value)?),
                _ => {
                    return Err(format!(
                        "`{name}` is not a parameter of `s3://`; parameters are `region` and `endpoint`"
                    ));
                }
            }
        }
        Ok(Self::Bucket { bucket, prefix, region, endpoint })
    }
}

/// Checks the address of a server. Without TLS, values may not leave this machine.
fn server(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| format!("the endpoint `{text}` is not a URL: {error}"))?;
    match url.scheme() {
        "https" => Ok(text.to_owned()),
        "http" if is_loopback(&url) => Ok(text.to_owned()),
        _ => Err(format!("the endpoint `{text}` must be `https`; `http` is for servers on this machine")),
    }
}

/// Treatment of an existing object of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The object stays, unless its length shows that it is damaged (K-46).
    Kept,
    /// The object is replaced: a reader has found that its bytes do not match its name.
    Replaced,
}

/// Object storage in use.
#[derive(Debug)]
pub(crate) enum Objects {
    Bucket(Bucket),
    Directory(Directory),
}

impl Objects {
    /// Opens object storage. It connects at the first use.
    pub(crate) fn open(url: &str, credentials: &Credentials) -> io::Result<Self> {
        match Location::parse(url).map_err(refused)? {
            Location::Directory(path) => Ok(Self::Directory(Directory::new(path))),
            Location::Bucket { bucket, prefix, region, endpoint } => {
                credentials.are_used.store(true, Ordering::Relaxed);
                Ok(Self::Bucket(Bucket::open(&bucket, prefix, region, endpoint, &credentials.variables)?))
            }
        }
    }

    /// Keeps the `len` bytes of a file.
    pub(crate) async fn put(&self, name: &str, from: &mut File, len: u64, existing: Existing) -> io::Result<()> {
        match self {
            Self::Bucket(bucket) => bucket.put(name, from, len, existing).await,
            Self::Directory(directory) => directory.put(name, from, len, existing),
        }
    }

    /// True if there is an object of this length.
    pub(crate) async fn has(&self, name: &str, len: u64) -> io::Result<bool> {
        match self {
            Self::Bucket(bucket) => bucket.has(name, len).await,
            Self::Directory(directory) => directory.has(name, len),
        }
    }

    /// Writes the bytes of an object to a file and returns their hash and length; `None` if there is no such object.
    pub(crate) async fn get(&self, name: &str, to: &mut File) -> io::Result<Option<(Digest, u64)>> {
        match self {
            Self::Bucket(bucket) => bucket.get(name, to).await,
            Self::Directory(directory) => directory.get(name, to),
        }
    }

    /// Removes an object. A missing object is fine.
    pub(crate) async fn delete(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Bucket(bucket) => bucket.delete(name).await,
            Self::Directory(directory) => directory.delete(name),
        }
    }

    /// Removes what dead processes have left. In a bucket, its rule for unfinished uploads does that.
    pub(crate) fn clean(&self) -> io::Result<()> {
        match self {
            Self::Bucket(_) => Ok(()),
            Self::Directory(directory) => ["values", "bundles"].iter().try_for_each(|shelf| directory.clean(shelf)),
        }
    }

    /// Reads an object that need not exist, as a test of access.
    pub(crate) async fn reach(&self) -> io::Result<()> {
        self.get("values/.probe", &mut tempfile::tempfile()?).await.map(drop)
    }

    /// Writes, reads and removes a probe object.
    pub(crate) async fn probe(&self) -> io::Result<()> {
        use std::io::Write as _;
        let name = format!("values/.probe-{:016x}", crate::store::random());
        let mut file = tempfile::tempfile()?;
        file.write_all(PROBE)?;
        self.put(&name, &mut file, PROBE.len() as u64, Existing::Kept).await?;
        let mut back = tempfile::tempfile()?;
        let read = self.get(&name, &mut back).await?;
        self.delete(&name).await?;
        match read {
            Some((digest, _)) if digest == Digest::of(PROBE) => Ok(()),
            Some(_) => Err(refused("the value read back differs from the value written")),
            None => Err(refused("the value just written cannot be read")),
        }
    }
}

/// An error that may be gone later: no run fails because of it.
pub(crate) fn unavailable(why: impl Into<String>) -> io::Error {
    io::Error::other(Unavailable { why: why.into(), is_refused: false })
}

/// An error of a store that answers: access to it is configured wrongly, here or there.
pub(crate) fn refused(why: impl Into<String>) -> io::Error {
    io::Error::other(Unavailable { why: why.into(), is_refused: true })
}
