//! Input of a process, written piece by piece.

use std::io::IoSlice;

use etude_core::effect::{Chunk, Stdin};

/// Maximum length of a stored value's piece in memory, in bytes.
const STORED_PIECE: usize = 256 * 1024;

/// Maximum number of text pieces in one write.
const PIECES: usize = 64;

/// Walks over the pieces of a [`Stdin`] without joining them.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    chunks: &'a [Chunk],
    /// Number of bytes of the first chunk that are written.
    done: u64,
    /// A piece of the first chunk, if that is a stored value, and the number of its bytes that are written.
    piece: Vec<u8>,
    written: usize,
}

/// Next step of a write loop.
#[derive(Debug)]
pub(super) enum Next<'f> {
    /// Slices to write, in order.
    Slices(Vec<IoSlice<'f>>),
    /// Everything is written.
    Done,
}

impl<'a> Feed<'a> {
    pub(super) fn new(stdin: &'a Stdin) -> Self {
        Self { chunks: &stdin.0, done: 0, piece: Vec::new(), written: 0 }
    }

    /// The bytes to write next. A stored value that cannot be read is an error.
    pub(super) fn next(&mut self) -> Result<Next<'_>, String> {
        while let Some(first) = self.chunks.first() {
            if self.done < len(first) {
                break;
            }
            self.chunks = &self.chunks[1..];
            self.done = 0;
        }
        let Some(first) = self.chunks.first() else {
            return Ok(Next::Done);
        };
        if text(first).is_none() {
            self.load(first)?;
            return Ok(Next::Slices(vec![IoSlice::new(&self.piece[self.written..])]));
        }
        let skip = usize::try_from(self.done).unwrap_or(usize::MAX);
        let texts = self.chunks.iter().map_while(text).take(PIECES).enumerate();
        Ok(Next::Slices(texts.map(|(at, text)| IoSlice::new(&text[if at == 0 { skip } else { 0 }..])).collect()))
    }

    /// Marks `count` bytes of the slices from [`Feed::next`] as written.
    pub(super) fn advance(&mut self, count: usize) {
        let mut count = count as u64;
        if !self.piece.is_empty() {
            self.written += usize::try_from(count).unwrap_or(usize::MAX);
            if self.written >= self.piece.len() {
                self.piece.clear();
                self.written = 0;
            }
            self.done += count;
            return;
        }
        while let Some(first) = self.chunks.first() {
            let left = len(first) - self.done;
            if count < left {
                self.done += count;
                return;
            }
            count -= left;
            self.done = 0;
            self.chunks = &self.chunks[1..];
        }
    }

    /// Reads the next piece of the stored value `chunk`, unless the previous piece is not fully written.
    fn load(&mut self, chunk: &Chunk) -> Result<(), String> {
        if !self.piece.is_empty() {
            return Ok(());
        }
        let Chunk::Json(json) = chunk else { return Ok(()) };
        let Some(stored) = json.as_stored() else { return Ok(()) };
        let left = usize::try_from(stored.len - self.done).unwrap_or(usize::MAX);
        self.piece.resize(left.min(STORED_PIECE), 0);
        let got = stored.source.read_at(stored.offset + self.done, &mut self.piece)?;
        if got == 0 {
            return Err(format!("the stored value {} has been truncated", stored.blob));
        }
        self.piece.truncate(got);
        Ok(())
    }
}

fn text(chunk: &Chunk) -> Option<&[u8]> {
    match chunk {
        Chunk::Text(text) => Some(text.as_bytes()),
        Chunk::Bytes(bytes) => Some(bytes),
        Chunk::Json(json) => json.inline().map(str::as_bytes),
    }
}

fn len(chunk: &Chunk) -> u64 {
    match chunk {
        Chunk::Text(text) => text.len() as u64,
        Chunk::Bytes(bytes) => bytes.len() as u64,
        Chunk::Json(json) => json.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etude_core::data::{Blob, Json, Stored};
    use etude_core::digest::Digest;

    use super::*;

    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    impl Blob for Bytes {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, String> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    fn stored(text: &str, claimed: u64) -> Chunk {
        let digest = Digest::of(text.as_bytes());
        let source = Arc::new(Bytes(format!("..{text}").into_bytes()));
        Chunk::Json(Json::stored(Stored { blob: digest, offset: 2, len: claimed, digest, source }))
    }

    /// Reads everything in steps of at most `stride` bytes.
    fn drain(stdin: &Stdin, stride: usize) -> String {
        let mut feed = Feed::new(stdin);
        let mut all = Vec::new();
        while let Next::Slices(slices) = feed.next().expect("readable") {
            let joined: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(stride).collect();
            assert!(!joined.is_empty(), "a write of nothing would never end");
            all.extend_from_slice(&joined);
            feed.advance(joined.len());
        }
        String::from_utf8(all).expect("text")
    }

    /// partial writes at every possible position lose and repeat nothing.
    #[test]
    fn partial_writes_resume_where_they_ended() {
        let text = |text: &str| Chunk::Text(Arc::from(text));
        let inline = Chunk::Json(Json::trusted("[1,2]"));
        let stdin = Stdin(vec![text("{\"a\":"), inline, text(""), stored("\"large\"", 7), text(""), text("}")]);
        for stride in 1..20 {
            assert_eq!(drain(&stdin, stride), "{\"a\":[1,2]\"large\"}", "stride {stride}");
        }
    }

    #[test]
    fn stored_value_larger_than_one_piece_is_whole() {
        let long = "x".repeat(STORED_PIECE * 2 + 5);
        assert_eq!(drain(&Stdin(vec![stored(&long, long.len() as u64)]), usize::MAX), long);
    }

    #[test]
    fn stored_value_that_shrank_is_an_error() {
        let stdin = Stdin(vec![stored("abc", 9)]);
        let mut feed = Feed::new(&stdin);
        assert!(matches!(feed.next(), Ok(Next::Slices(_))));
        feed.advance(3);
        assert!(feed.next().expect_err("too short").contains("has been truncated"));
    }
}
