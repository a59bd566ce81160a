//! Records of the journal, which another program may have written, or written halfway.

use std::io;
use std::sync::Arc;

use etude_core::data::Blob;
use etude_core::digest::Digest;
use etude_core::effect::EffectId;
use etude_process::blob::{BlobStore, Scratch};
use etude_runtime::engine::{Record, Signal};
use etude_runtime::record;

use super::text;

/// A blob store that has lost everything.
#[derive(Debug)]
pub(super) struct NoBlobs;

impl BlobStore for NoBlobs {
    fn scratch(&self) -> io::Result<Scratch> {
        Err(io::Error::other("nothing is kept here"))
    }

    fn keep(&self, _: Scratch, _: Digest, _: u64) -> io::Result<Arc<dyn Blob>> {
        Err(io::Error::other("nothing is kept here"))
    }

    fn open(&self, _: Digest) -> io::Result<Arc<dyn Blob>> {
        Err(io::Error::other("nothing is kept here"))
    }
}

pub(super) fn record(data: &[u8]) {
    let body = text(data).into_owned();
    let request = Digest::of(b"request");
    let record = Record { key: "p/step".to_owned(), request, body: body.clone(), blobs: Vec::new() };
    record::to_prompt(&record);
    record::at_ms(&record);
    record::cancel_reason(&body);
    record::to_decision(&Signal { key: "p/gate@question".to_owned(), body });
    record::to_deadline(&Record { key: "!deadline/p/step!timeout".to_owned(), ..record.clone() });
    let Ok(completed) = record::to_outcome(&record, &NoBlobs) else { return };
    // A readable record can be written and read again, with the same result.
    let again = record::of_outcome(&EffectId::new("p/step"), request, &completed, None, 1);
    let read = record::to_outcome(&again, &NoBlobs).expect("what was written can be read");
    assert_eq!(format!("{read:?}"), format!("{completed:?}"));
}
