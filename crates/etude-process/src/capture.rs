//! Capture of the output of a process with bounded memory.

use std::io::{self, Write};

use etude_core::digest::Digest;
use etude_core::outcome::Stderr;

use crate::blob::{self, BlobStore, INLINE_LIMIT, Scratch};

/// Length of the end of stderr that is kept for messages, in bytes.
const TAIL_LIMIT: usize = 8 * 1024;

/// Length of the end of stderr from which the tail is cut, in bytes. It exceeds the tail, so that the start of the tail's
/// first line is seen.
const RECENT_LIMIT: usize = 2 * TAIL_LIMIT;

/// Maximum length in bytes of the stderr that is kept as a whole. The stderr of a step never fails it, so the step goes on.
const MAX_KEPT: u64 = 512 << 20;

/// Line after the stderr that is kept, if there was more.
const LEFT_OUT: &str = "\n[etude: the rest of stderr is not kept; only its last lines are]\n";

/// Bytes in memory up to [`INLINE_LIMIT`], in a scratch file beyond it.
#[derive(Debug)]
pub(super) struct Capture<'s> {
    store: &'s dyn BlobStore,
    memory: Vec<u8>,
    spill: Option<Box<Spill>>,
    /// Reason why the bytes are lost. The process continues, but nothing more is kept.
    lost: Option<String>,
    /// Maximum number of bytes to keep, all in memory. `None`: no maximum, and long output goes to a file.
    limit: Option<usize>,
    /// Number of bytes that may still come before the output is over, if `limit` is `None`.
    left: u64,
    /// True if more was printed than is kept.
    is_over: bool,
}

#[derive(Debug)]
struct Spill {
    scratch: Scratch,
    hasher: blake3::Hasher,
    len: u64,
}

/// Complete output of a stream.
#[derive(Debug)]
pub(super) enum Captured {
    /// Short output, in memory.
    Memory(Vec<u8>),
    /// Long output, in a scratch file.
    File { scratch: Scratch, digest: Digest, len: u64 },
    /// Output that could not be kept, with the reason.
    Lost(String),
}

impl<'s> Capture<'s> {
    pub(super) fn new(store: &'s dyn BlobStore) -> Self {
        Self { store, memory: Vec::new(), spill: None, lost: None, limit: None, left: u64::MAX, is_over: false }
    }

    /// A capture like [`Capture::new`] that is over when more than `most` bytes have come.
    pub(super) fn at_most(store: &'s dyn BlobStore, most: u64) -> Self {
        Self { left: most, ..Self::new(store) }
    }

    /// A capture that keeps the first `limit` bytes in memory and discards the rest.
    pub(super) fn bounded(store: &'s dyn BlobStore, limit: usize) -> Self {
        Self { limit: Some(limit), ..Self::new(store) }
    }

    /// True if more was printed than is kept.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let Some(limit) = self.limit {
            let room = limit - self.memory.len();
            self.is_over |= bytes.len() > room;
            self.memory.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return;
        }
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => self.left = left,
            None => self.is_over = true,
        }
        if self.lost.is_some() || self.is_over {
            return;
        }
        if self.spill.is_none() && self.memory.len() + bytes.len() <= INLINE_LIMIT {
            self.memory.extend_from_slice(bytes);
        } else if let Err(error) = self.push_to_file(bytes) {
            self.lost = Some(error.to_string());
            self.memory = Vec::new();
            self.spill = None;
        }
    }

    fn push_to_file(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.spill.is_none() {
            let spill = Spill { scratch: self.store.scratch()?, hasher: blake3::Hasher::new(), len: 0 };
            let spill = self.spill.insert(Box::new(spill));
            spill.push(&std::mem::take(&mut self.memory))?;
        }
        self.spill.as_mut().map_or(Ok(()), |spill| spill.push(bytes))
    }

    pub(super) fn finish(self) -> Captured {
        if let Some(why) = self.lost {
            return Captured::Lost(why);
        }
        match self.spill {
            None => Captured::Memory(self.memory),
            Some(spill) => {
                let Spill { scratch, hasher, len } = *spill;
                Captured::File { scratch, digest: Digest::from_bytes(*hasher.finalize().as_bytes()), len }
            }
        }
    }
}

impl Spill {
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        self.scratch.file().write_all(bytes)
    }
}

/// Capture of stderr: all of it up to a maximum, its last lines, and its size.
#[derive(Debug)]
pub(super) struct Diagnostics<'s> {
    all: Capture<'s>,
    /// The last bytes; at least [`RECENT_LIMIT`] of them unless stderr is shorter.
    recent: Vec<u8>,
    newlines: u64,
    bytes: u64,
    ends_in_line: bool,
    /// Maximum of bytes in `all`, without the line about those left out.
    most: u64,
}

impl<'s> Diagnostics<'s> {
    pub(super) fn new(store: &'s dyn BlobStore) -> Self {
        Self {
            all: Capture::new(store),
            recent: Vec::new(),
            newlines: 0,
            bytes: 0,
            ends_in_line: false,
            most: MAX_KEPT,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        let room = usize::try_from(self.most.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        self.all.push(&bytes[..bytes.len().min(room)]);
        if self.bytes <= self.most && room < bytes.len() {
            self.all.push(LEFT_OUT.as_bytes());
        }
        self.bytes += bytes.len() as u64;
        self.newlines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.ends_in_line = *last != b'\n';
        self.recent.extend_from_slice(&bytes[bytes.len().saturating_sub(RECENT_LIMIT)..]);
        if self.recent.len() > 2 * RECENT_LIMIT {
            self.recent.drain(..self.recent.len() - RECENT_LIMIT);
        }
    }

    /// A capture that keeps the last lines only.
    pub(super) fn tail_only(store: &'s dyn BlobStore) -> Self {
        Self { all: Capture::bounded(store, 0), ..Self::new(store) }
    }

    /// The captured stderr. If the tail is only a part of it, the whole is kept in the store. If the store fails, only the
    /// tail remains, and the step does not fail.
    pub(super) fn finish(self) -> Stderr {
        let (tail, cut) = tail_of(&self.recent);
        let whole = !cut && self.bytes == self.recent.len() as u64;
        let store = self.all.store;
        let is_tail_only = self.all.limit.is_some();
        let blob = match self.all.finish() {
            _ if whole || is_tail_only => None,
            Captured::Memory(bytes) => blob::put(store, &bytes).ok().map(|(digest, _)| digest),
            Captured::File { scratch, digest, len } => store.keep(scratch, digest, len).ok().map(|_| digest),
            Captured::Lost(_) => None,
        };
        Stderr { tail, lines: self.newlines + u64::from(self.ends_in_line), bytes: self.bytes, blob }
    }
}

/// The last lines of `bytes` as text, and true if anything was left out.
fn tail_of(bytes: &[u8]) -> (String, bool) {
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= TAIL_LIMIT {
        return (text.into_owned(), false);
    }
    let start = text.ceil_char_boundary(text.len() - TAIL_LIMIT);
    let mut tail = &text[start..];
    let starts_a_line = text[..start].ends_with('\n');
    if let (false, Some(newline)) = (starts_a_line, tail.find('\n'))
        && newline + 1 < tail.len()
    {
        tail = &tail[newline + 1..];
    }
    (tail.to_owned(), true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::FileBlobs;

    fn stderr_of(chunks: &[&[u8]]) -> (Stderr, FileBlobs, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("dir");
        let store = FileBlobs::new(dir.path(), false);
        let mut stderr = Diagnostics::new(&store);
        for chunk in chunks {
            stderr.push(chunk);
        }
        let stderr = stderr.finish();
        (stderr, store, dir)
    }

    #[test]
    fn short_stderr_is_its_own_tail() {
        let (stderr, ..) = stderr_of(&[b"one\ntw", b"o"]);
        assert_eq!(stderr, Stderr { tail: "one\ntwo".to_owned(), lines: 2, bytes: 7, blob: None });
        assert_eq!(stderr_of(&[]).0, Stderr::default());
    }

    /// ADR 0222: stderr without an end does not fill the disk.
    #[test]
    fn stderr_is_kept_up_to_a_maximum() {
        let (dir, chunk) = (tempfile::tempdir().expect("a directory"), "line\n".repeat(20_000));
        let store = FileBlobs::new(dir.path(), false);
        let mut stderr = Diagnostics { most: 250_000, ..Diagnostics::new(&store) };
        for _ in 0..5 {
            stderr.push(chunk.as_bytes());
        }
        stderr.push(b"end\n");
        let stderr = stderr.finish();
        assert_eq!((stderr.lines, stderr.bytes), (100_001, 500_004));
        assert!(stderr.tail.ends_with("line\nend\n"), "{}", stderr.tail);
        let kept = format!("{}{LEFT_OUT}", "line\n".repeat(50_000));
        assert_eq!(stderr.blob, Some(Digest::of(kept.as_bytes())));
    }

    /// the tail consists of whole lines, and all of stderr is in the store.
    #[test]
    fn long_stderr_has_a_tail_of_whole_lines_and_a_blob() {
        let text: String = (0..200_000).map(|line| format!("line {line}\n")).collect();
        for size in [1_000, 65_536] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let (stderr, store, _dir) = stderr_of(&chunks);
            assert_eq!((stderr.lines, stderr.bytes), (200_000, text.len() as u64));
            assert!(stderr.tail.starts_with("line ") && stderr.tail.ends_with("line 199999\n"));
            assert!(stderr.tail.len() <= TAIL_LIMIT && stderr.tail.len() > TAIL_LIMIT - 20);
            assert_eq!(stderr.blob, Some(Digest::of(text.as_bytes())));
            assert_eq!(store.list().expect("listed").len(), 1);
        }
    }

    #[test]
    fn tail_of_invalid_text_stays_within_its_limit() {
        let (stderr, ..) = stderr_of(&[&[0xff; 8_000]]);
        assert!(stderr.tail.len() <= TAIL_LIMIT && stderr.tail.chars().all(|c| c == '\u{fffd}'));
        assert!(stderr.blob.is_some(), "the tail does not show everything");
    }

    #[test]
    fn one_endless_line_is_cut_inside_the_line() {
        let (stderr, ..) = stderr_of(&["é".repeat(10_000).as_bytes()]);
        assert!(stderr.tail.len() > TAIL_LIMIT - 4 && stderr.tail.chars().all(|c| c == 'é'));
    }

    #[test]
    fn output_that_cannot_be_kept_is_lost_with_the_reason() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        let store = FileBlobs::new(&file, false);
        let mut capture = Capture::new(&store);
        capture.push(&vec![b'x'; INLINE_LIMIT]);
        capture.push(b"x");
        capture.push(b"y");
        assert!(matches!(capture.finish(), Captured::Lost(why) if why.contains("directory") || why.contains("exists")));
    }
}
