//! The bytes of an effect's stream, of which only the requested part is read.

use std::sync::Arc;

use etude_core::data::{Blob, Json};
use etude_core::digest::Digest;
use etude_core::outcome::{Outcome, ProcessEnd, Stdout};
use etude_process::blob::BlobStore;
use etude_runtime::engine::RunView;
use etude_runtime::record;

use super::{Stream, read};

/// The bytes of a stream. Large streams stay in the store until they are read.
#[derive(Debug)]
pub struct Bytes(Source);

#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    Stored { blob: Arc<dyn Blob>, digest: Digest, offset: u64, len: u64 },
}

/// The bytes of a stream of an effect; `None` if the effect has no such stream. [`super::stdin`] has the stdin of a process.
///
/// # Errors
/// The journal is damaged.
pub fn bytes(view: &RunView, effect: &str, stream: Stream, blobs: &dyn BlobStore) -> Result<Option<Bytes>, String> {
    let Some(record) = view.records.iter().rev().find(|record| record.key == effect) else { return Ok(None) };
    let (blob, digest, offset, len) =
        match (stream, record::to_outcome(record, blobs).map_err(|e| e.to_string())?.outcome) {
            (Stream::Stderr, Outcome::Process(ProcessEnd { stderr, .. }) | Outcome::Stopped(stderr)) => {
                match stderr.blob {
                    Some(digest) => (blobs.open(digest).map_err(|e| e.to_string())?, digest, 0, stderr.bytes),
                    None => return Ok(Some(Bytes::from(stderr.tail.into_bytes()))),
                }
            }
            (Stream::Stdout, Outcome::Process(ProcessEnd { stdout: Stdout::Value(json), .. }))
                if json.as_stored().is_some() =>
            {
                return Ok(Some(Bytes::from(&json)));
            }
            _ => return read(view, effect, stream, blobs).map(|bytes| bytes.map(Bytes::from)),
        };
    Ok(Some(Bytes(Source::Stored { blob, digest, offset, len })))
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Source::Memory(bytes))
    }
}

impl From<&Json> for Bytes {
    /// The text of a value.
    fn from(json: &Json) -> Self {
        Self(match json.as_stored() {
            Some(stored) => Source::Stored {
                blob: Arc::clone(&stored.source),
                digest: stored.digest,
                offset: stored.offset,
                len: stored.len,
            },
            None => Source::Memory(json.inline().unwrap_or("null").into()),
        })
    }
}

impl Bytes {
    /// Number of bytes, without reading them.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::Stored { len, .. } => *len,
        }
    }

    /// Digest of the bytes. The digest of stored bytes was kept with them, so they are not read.
    pub fn digest(&self) -> Digest {
        match &self.0 {
            Source::Memory(bytes) => Digest::of(bytes),
            Source::Stored { digest, .. } => *digest,
        }
    }

    /// True if the stream has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `from` up to `to` (exclusive).
    ///
    /// # Errors
    /// The store fails, or has fewer bytes than were recorded.
    pub fn read(&self, from: u64, to: u64) -> Result<Vec<u8>, String> {
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| "it is larger than memory".to_owned());
        let shorter = || "the stored bytes have been truncated".to_owned();
        if to > self.len() {
            return Err(shorter());
        }
        match &self.0 {
            Source::Memory(bytes) => bytes.get(size(from)?..size(to)?).map(<[u8]>::to_vec).ok_or_else(shorter),
            Source::Stored { blob, offset, .. } => {
                let mut bytes = vec![0; size(to.saturating_sub(from))?];
                let mut filled = 0;
                while filled < bytes.len() {
                    match blob.read_at(offset + from + filled as u64, &mut bytes[filled..])? {
                        0 => return Err(shorter()),
                        got => filled += got,
                    }
                }
                Ok(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Text(&'static [u8]);

    impl Blob for Text {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, String> {
            // A store may return fewer bytes than requested.
            let rest = self.0.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
            let got = rest.len().min(into.len()).min(3);
            into[..got].copy_from_slice(&rest[..got]);
            Ok(got)
        }
    }

    /// S-59: parts of stored bytes equal the same parts of their text, at any offset in the store.
    #[test]
    fn parts_are_those_of_the_whole() {
        let (blob, digest) = (Arc::new(Text(b"..0123456789..")), Digest::of(b"0123456789"));
        let stored = Bytes(Source::Stored { blob, digest, offset: 2, len: 10 });
        let memory = Bytes::from(b"0123456789".to_vec());
        for bytes in [&stored, &memory] {
            assert_eq!((bytes.len(), bytes.is_empty(), bytes.digest()), (10, false, digest));
            assert_eq!(bytes.read(0, 10).expect("all"), b"0123456789");
            assert_eq!(bytes.read(3, 8).expect("a part"), b"34567");
            assert_eq!(bytes.read(4, 4).expect("nothing"), b"");
            assert!(bytes.read(8, 13).is_err(), "{bytes:?}");
        }
    }
}
