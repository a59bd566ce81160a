//! A bucket, over the S3 protocol.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use etude_core::digest::Digest;
use etude_http::causes;
use futures_util::StreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload, RetryConfig};
use reqwest::{ClientBuilder, Url};

use super::{Existing, refused, unavailable};

/// Size of the parts in which longer objects are sent, so that none is in memory as a whole.
const PART: u64 = 16 * 1024 * 1024;

/// Maximum time for a connection to open.
const CONNECT: Duration = Duration::from_secs(5);

/// Maximum time between two pieces of a response.
const SILENCE: Duration = Duration::from_secs(30);

/// Maximum time for the repetitions of a request. After that the run is left for later.
const RETRY: Duration = Duration::from_secs(20);

/// URL of AWS, for which certificates are loaded.
const AWS: &str = "https://s3.amazonaws.com";

/// The region of a server other than AWS that names none.
const REGION: &str = "us-east-1";

/// Variables of credentials. Other variables must not change the meaning of the URL.
const VARIABLES: [AmazonS3ConfigKey; 9] = [
    AmazonS3ConfigKey::AccessKeyId,
    AmazonS3ConfigKey::SecretAccessKey,
    AmazonS3ConfigKey::Token,
    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    AmazonS3ConfigKey::ContainerCredentialsFullUri,
    AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
    AmazonS3ConfigKey::WebIdentityTokenFile,
    AmazonS3ConfigKey::RoleArn,
    AmazonS3ConfigKey::RoleSessionName,
];

#[derive(Debug)]
pub(crate) struct Bucket {
    store: AmazonS3,
    prefix: String,
}

/// The program's own HTTP client: it follows no redirection of signed requests.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

impl Bucket {
    pub(super) fn open(
        bucket: &str,
        prefix: String,
        region: Option<String>,
        endpoint: Option<String>,
        variables: &[(String, String)],
    ) -> io::Result<Self> {
        let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http:"));
        let settings = |client: ClientBuilder| {
            let client = client.connect_timeout(CONNECT).read_timeout(SILENCE).no_gzip();
            // A server without TLS is on this network, which is not behind a proxy.
            if is_plain { client.no_proxy() } else { client }
        };
        let url = Url::parse(endpoint.as_deref().unwrap_or(AWS)).map_err(|error| refused(error.to_string()))?;
        let client = etude_http::client(&url, settings).map_err(refused)?;
        let retry = RetryConfig { max_retries: 4, retry_timeout: RETRY, ..RetryConfig::default() };
        let of = |wanted: &str| variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(region.as_deref().or(of("AWS_REGION")).or(of("AWS_DEFAULT_REGION")).unwrap_or(REGION))
            .with_retry(retry)
            .with_allow_http(is_plain)
            .with_http_connector(Connector(client));
        let mut has_credentials = false;
        for (name, value) in variables {
            let key = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>().ok();
            if let Some(key) = key.filter(|key| VARIABLES.contains(key)) {
                has_credentials = true;
                builder = builder.with_config(key, value);
            }
        }
        if !has_credentials {
            return Err(refused(
                "there are no credentials for object storage; set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`",
            ));
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| refused(error.to_string()))?;
        Ok(Self { store, prefix })
    }

    fn path(&self, name: &str) -> Path {
        match self.prefix.is_empty() {
            true => Path::from(name),
            false => Path::from(format!("{}/{name}", self.prefix)),
        }
    }

    pub(super) async fn put(&self, name: &str, from: &mut File, len: u64, existing: Existing) -> io::Result<()> {
        from.seek(SeekFrom::Start(0))?;
        let path = self.path(name);
        let is_kept = existing == Existing::Kept;
        if len > PART {
            return match is_kept && self.length(&path).await? == Some(len) {
                true => Ok(()),
                false => self.put_parts(&path, from, len).await,
            };
        }
        if !is_kept {
            return self.replace(&path, from, len).await;
        }
        let payload = PutPayload::from(part(from, len)?);
        match self.store.put_opts(&path, payload, PutMode::Create.into()).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => match self.length(&path).await? {
                // Another process has put the same bytes there (K-47).
                Some(found) if found == len => Ok(()),
                _ => self.replace(&path, from, len).await,
            },
            Err(error) => Err(failed(&error)),
        }
    }

    /// Replaces a damaged object with the right bytes (K-46).
    async fn replace(&self, path: &Path, from: &mut File, len: u64) -> io::Result<()> {
        from.seek(SeekFrom::Start(0))?;
        let payload = PutPayload::from(part(from, len)?);
        self.store.put_opts(path, payload, PutMode::Overwrite.into()).await.map(drop).map_err(|error| failed(&error))
    }

    /// Sends an object in parts. Two concurrent uploads write the same bytes.
    async fn put_parts(&self, path: &Path, from: &mut File, len: u64) -> io::Result<()> {
        let mut upload = self.store.put_multipart(path).await.map_err(|error| failed(&error))?;
        let mut left = len;
        while left > 0 {
            let count = left.min(PART);
            let sent = match part(from, count) {
                Ok(part) => upload.put_part(part.into()).await.map_err(|error| failed(&error)),
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                // The bucket's rule for unfinished uploads removes the rest.
                let _ = upload.abort().await;
                return Err(error);
            }
            left -= count;
        }
        upload.complete().await.map(drop).map_err(|error| failed(&error))
    }

    pub(super) async fn has(&self, name: &str, len: u64) -> io::Result<bool> {
        Ok(self.length(&self.path(name)).await? == Some(len))
    }

    async fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    pub(super) async fn get(&self, name: &str, to: &mut File) -> io::Result<Option<(Digest, u64)>> {
        let found = match self.store.get(&self.path(name)).await {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let (mut hasher, mut len, mut pieces) = (blake3::Hasher::new(), 0, found.into_stream());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| failed(&error))?;
            hasher.update(&piece);
            to.write_all(&piece)?;
            len += piece.len() as u64;
        }
        Ok(Some((Digest::from_bytes(*hasher.finalize().as_bytes()), len)))
    }

    pub(super) async fn delete(&self, name: &str) -> io::Result<()> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn part(from: &mut File, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// True if the bucket answers that it has no such object. A missing bucket proves nothing about its objects.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !has_no_bucket(error)
}

/// True if the bucket itself is missing; the error's kind is the same as for a missing object.
fn has_no_bucket(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && causes(error).contains("NoSuchBucket")
}

fn failed(error: &Error) -> io::Error {
    let is_refused = matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
    match is_refused || has_no_bucket(error) {
        true => refused(causes(error)),
        false => unavailable(causes(error)),
    }
}
