//! Reads files as text.

use std::fs::File;
use std::io::Read;

use crate::builtin::Stop;
use crate::confine::ConfinedPath;
use crate::tool::ToolError;

/// Number of bytes at the start of a file that decide whether it is text.
const PROBE: usize = 8 * 1024;

/// Maximum size of a file that is changed or searched, in bytes.
pub(super) const MAX_SIZE: u64 = 16 << 20;

/// True if a file with this start is not text.
pub(super) fn is_binary(start: &[u8]) -> bool {
    start[..start.len().min(PROBE)].contains(&0)
}

/// Opens a file. The error for a directory names the tool for it.
pub(super) fn open(place: &ConfinedPath) -> Result<File, ToolError> {
    if place.as_dir().is_some() {
        return Err(ToolError::failed(format!("`{place}` is a directory; use `List` to see what is in it")));
    }
    place.open().map_err(|error| ToolError::failed(format!("`{place}` cannot be read: {error}")))
}

/// The whole content of a file as UTF-8 text.
pub(super) fn whole(place: &ConfinedPath, stop: &Stop) -> Result<String, ToolError> {
    let bytes = bytes(open(place)?, stop).map_err(|why| match why {
        Unread::TooLarge => ToolError::failed(format!("`{place}` is larger than {} MiB", MAX_SIZE >> 20)),
        Unread::Failed(error) => ToolError::failed(format!("`{place}` cannot be read: {error}")),
        Unread::Stopped(error) => error,
    })?;
    if is_binary(&bytes) {
        return Err(ToolError::failed(format!("`{place}` is a binary file")));
    }
    String::from_utf8(bytes).map_err(|_| ToolError::failed(format!("`{place}` is not UTF-8 text")))
}

/// Reason why a file was not read.
pub(super) enum Unread {
    TooLarge,
    Failed(std::io::Error),
    Stopped(ToolError),
}

/// The whole content of a file, up to the limit.
pub(super) fn bytes(mut file: File, stop: &Stop) -> Result<Vec<u8>, Unread> {
    let len = file.metadata().map_err(Unread::Failed)?.len();
    if len > MAX_SIZE {
        return Err(Unread::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    loop {
        stop.check().map_err(Unread::Stopped)?;
        // A file may grow while it is read, or report a length of zero and still have content.
        let read = file.by_ref().take(1 << 20).read_to_end(&mut bytes).map_err(Unread::Failed)?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(Unread::TooLarge);
        }
        if read == 0 {
            return Ok(bytes);
        }
    }
}

/// At most `limit` characters of a line, with a mark at the cut.
pub(super) fn cut(line: &str, limit: usize) -> String {
    match line.char_indices().nth(limit) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}… [line cut]", &line[..at]),
    }
}

/// Lines `from` to `to` (from 1, both included) with their numbers.
pub(super) fn numbered(text: &str, from: usize, to: usize) -> String {
    let lines = text.lines().enumerate().skip(from.saturating_sub(1)).take((to + 1).saturating_sub(from.max(1)));
    let lines: Vec<String> = lines.map(|(at, line)| format!("{:>6}\t{}", at + 1, cut(line, 500))).collect();
    lines.join("\n")
}
