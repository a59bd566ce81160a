//! Documents of any size: small ones are in the table, large ones in the blob store.

use std::sync::Arc;

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_runtime::blob::{BlobStore, INLINE_LIMIT, put};
use etude_runtime::engine::Error;

use crate::error::file_error;
use crate::journal::Journal;

/// The place of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// In the table.
    Inline(&'a str),
    /// In the blob store.
    Blob(Digest),
}

impl Place<'_> {
    /// The value of the column `body`.
    pub(crate) fn body(&self) -> Option<&str> {
        match self {
            Self::Inline(text) => Some(text),
            Self::Blob(_) => None,
        }
    }

    /// The digest of the blob; `None` for a document in the table.
    pub(crate) fn digest(&self) -> Option<Digest> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(digest) => Some(*digest),
        }
    }
}

impl Journal {
    /// Stores a large document as a blob; a small one goes into the table.
    pub(crate) fn place<'a>(&self, text: &'a str) -> Result<Place<'a>, Error> {
        if text.len() <= INLINE_LIMIT {
            return Ok(Place::Inline(text));
        }
        let kept = put(&*self.blobs, text.as_bytes());
        let (digest, _) = kept.map_err(|cause| file_error(&self.dir.join("blobs"), &cause))?;
        Ok(Place::Blob(digest))
    }

    /// Reads a document from the blob store.
    pub(crate) fn fetch(&self, digest: Digest, len: u64) -> Result<String, Error> {
        let source = self.blobs.open(digest).map_err(|cause| file_error(&self.dir.join("blobs"), &cause))?;
        let stored = Json::stored(Stored { blob: digest, offset: 0, len, digest, source: Arc::clone(&source) });
        let unreadable = |why: String| Error::Damaged { path: self.dir.join("blobs").display().to_string(), why };
        let text = stored.text().map_err(|cause| unreadable(cause.to_string()))?;
        if Digest::of(text.as_bytes()) != digest {
            return Err(unreadable(format!("the stored value {digest} does not match its hash")));
        }
        Ok(text.to_string())
    }
}
