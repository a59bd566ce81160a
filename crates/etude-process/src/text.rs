//! Reads stdout as text: a JSON string, escaped piece by piece, so that no copy of a long text is in memory.

use std::io::{self, Read, Seek, SeekFrom};

use etude_core::data::{Json, Stored};
use etude_core::outcome::Stdout;

use super::capture::{Capture, Captured};
use super::{diagnosis, document};
use crate::blob::{BlobStore, Scratch};

/// Number of bytes per read.
const PIECE: usize = 64 * 1024;

/// The string value of the text in a scratch file of `len` bytes.
pub(super) fn read_file(mut scratch: Scratch, len: u64, store: &dyn BlobStore) -> Stdout {
    let mut open = || {
        let file = scratch.file();
        let before = len.saturating_sub(2);
        let mut end = Vec::new();
        file.seek(SeekFrom::Start(before))?;
        file.read_to_end(&mut end)?;
        file.seek(SeekFrom::Start(0))?;
        Ok::<_, io::Error>(content(&end, before))
    };
    match open() {
        Ok(len) => read(scratch.file(), len, store),
        Err(error) => document::unkept(&error.to_string()),
    }
}

/// Length of the content of a text in bytes, without one trailing line break. `end` is its last part, and `before` bytes
/// precede it.
pub(super) fn content(end: &[u8], before: u64) -> u64 {
    let kept = end.strip_suffix(b"\r\n").or_else(|| end.strip_suffix(b"\n")).unwrap_or(end);
    before + kept.len() as u64
}

/// The string value of the first `len` bytes of `source`.
pub(super) fn read(source: &mut dyn Read, len: u64, store: &dyn BlobStore) -> Stdout {
    match escape(&mut source.take(len), store) {
        Ok(Ok(escaped)) => keep(escaped.finish(), store),
        Ok(Err(unusable)) => unusable,
        Err(error) => document::unkept(&error.to_string()),
    }
}

fn keep(escaped: Captured, store: &dyn BlobStore) -> Stdout {
    match escaped {
        Captured::Memory(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Stdout::Value(Json::trusted(text)),
            Err(error) => document::unkept(&error.to_string()),
        },
        Captured::File { scratch, digest, len } => match store.keep(scratch, digest, len) {
            Ok(source) => Stdout::Value(Json::stored(Stored { blob: digest, offset: 0, len, digest, source })),
            Err(error) => document::unkept(&error.to_string()),
        },
        Captured::Lost(why) => document::unkept(&why),
    }
}

/// Escapes the text of `source` as a JSON string. `Ok(Err)` if it is not UTF-8.
fn escape<'s>(source: &mut dyn Read, store: &'s dyn BlobStore) -> io::Result<Result<Capture<'s>, Stdout>> {
    let mut escaped = Capture::new(store);
    escaped.push(b"\"");
    let (mut piece, mut before) = (Vec::with_capacity(PIECE), 0);
    loop {
        let room = (PIECE - piece.len()) as u64;
        let is_over = (&mut *source).take(room).read_to_end(&mut piece)? == 0;
        let valid = match std::str::from_utf8(&piece) {
            Ok(text) => text,
            // The next piece completes this character.
            Err(error) if error.error_len().is_none() && !is_over => {
                std::str::from_utf8(&piece[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => return Ok(Err(diagnosis::not_utf8(&piece, error.valid_up_to(), before))),
        };
        let quoted = serde_json::to_string(valid)?;
        escaped.push(&quoted.as_bytes()[1..quoted.len() - 1]);
        let done = valid.len();
        before += done as u64;
        piece.drain(..done);
        if is_over {
            escaped.push(b"\"");
            return Ok(Ok(escaped));
        }
    }
}
