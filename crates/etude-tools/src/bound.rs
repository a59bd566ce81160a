//! Text of bounded length: the beginning and the end of a long text, with a line about the omission.

use std::collections::VecDeque;

use etude_core::hidden::stripped;

/// Shortens `text` to at most `limit` bytes; `how` describes how to get the rest.
pub(crate) fn clip(text: &str, limit: usize, how: &str) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut ends = Ends::new(limit);
    ends.push(text.as_bytes());
    ends.finish(how)
}

/// The first and last bytes of a stream, with bounded memory.
#[derive(Debug)]
pub(crate) struct Ends {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// Maximum length of the line about the omission, in bytes.
const NOTICE: usize = 200;

impl Ends {
    /// Keeps enough bytes for a text of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(4 * NOTICE), head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Total number of bytes pushed.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let free = self.half().saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..free]);
        let rest = &bytes[free..];
        // A text that just fits is kept whole: the tail holds all that the limit leaves.
        let most = self.limit - self.half();
        self.tail.extend(&rest[rest.len().saturating_sub(most)..]);
        let over = self.tail.len().saturating_sub(most);
        self.tail.drain(..over);
    }

    /// The text, with invalid UTF-8 replaced, at most `limit` bytes long.
    pub(crate) fn finish(mut self, how: &str) -> String {
        let tail = self.tail.make_contiguous();
        let whole = self.head.len() as u64 + tail.len() as u64 == self.total;
        if whole {
            self.head.extend_from_slice(tail);
            let text = String::from_utf8_lossy(&self.head);
            return if text.len() <= self.limit {
                text.into_owned()
            } else {
                shorten(&text, self.limit, self.total, how)
            };
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(tail));
        join(&head, &tail, self.limit, self.total, how)
    }

    fn half(&self) -> usize {
        self.limit / 2
    }
}

/// Shortens a text that grew because replacement characters are longer than the bytes they replace.
fn shorten(text: &str, limit: usize, total: u64, how: &str) -> String {
    let middle = text.floor_char_boundary(text.len() / 2);
    join(&text[..middle], &text[middle..], limit, total, how)
}

/// Joins whole lines of both ends, if there are any, with the notice between them.
fn join(head: &str, tail: &str, limit: usize, total: u64, how: &str) -> String {
    let each = (limit - NOTICE) / 2;
    let head = &head[..head.floor_char_boundary(each.min(head.len()))];
    let head = head.rfind('\n').filter(|at| *at > each / 2).map_or(head, |at| &head[..at]);
    let tail = &tail[tail.ceil_char_boundary(tail.len() - each.min(tail.len()))..];
    let tail = tail.find('\n').filter(|at| *at < each / 2).map_or(tail, |at| &tail[at + 1..]);
    let left = total.saturating_sub((head.len() + tail.len()) as u64);
    let how = if how.is_empty() { String::new() } else { format!("; {how}") };
    let how = &how[..how.floor_char_boundary((NOTICE - 80).min(how.len()))];
    format!("{head}\n[… {left} bytes of {total} left out here{how} …]\n{tail}")
}

/// A foreign sentence on one line, without control characters and of bounded length.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    plain(&line, limit)
}

/// A foreign text of bounded length without hidden characters, which hide the real text.
pub(crate) fn plain(text: &str, limit: usize) -> String {
    etude_core::report::clip(&stripped(&text.replace("\r\n", "\n")), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_unchanged() {
        assert_eq!(clip("a\nb", 1_000, "x"), "a\nb");
        let mut ends = Ends::new(1_000);
        for _ in 0..100 {
            ends.push(b"0123456789");
        }
        assert_eq!(ends.finish("x"), "0123456789".repeat(100));
    }

    /// a result that was cut says so, says how to get the rest, and shows both ends in whole lines.
    #[test]
    fn both_ends_remain_and_the_omission_is_reported() {
        let text: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        for size in [1, 7, 4_096, text.len()] {
            let mut ends = Ends::new(2_000);
            text.as_bytes().chunks(size).for_each(|chunk| ends.push(chunk));
            let shown = ends.finish("use `offset`");
            assert!(shown.len() <= 2_000, "{}", shown.len());
            assert!(shown.starts_with("line 0\nline 1\n") && shown.ends_with("\nline 9999\n"), "{shown}");
            assert!(shown.contains(&format!("bytes of {} left out here; use `offset`", text.len())), "{shown}");
            assert!(shown.lines().all(|line| line.starts_with("line ") || line.starts_with("[… ")), "{shown}");
        }
    }

    #[test]
    fn characters_are_never_cut() {
        let shown = clip(&"é".repeat(5_000), 1_001, "");
        assert!(shown.len() <= 1_001 && !shown.contains('\u{fffd}'), "{shown}");
        let mut invalid = Ends::new(1_000);
        invalid.push(&[0xff; 900]);
        assert!(invalid.finish("").len() <= 1_000);
    }

    #[test]
    fn control_and_invisible_characters_are_removed() {
        assert_eq!(plain("a\u{1b}[31m\u{202e}b\u{200b}\r\nc\td\0", 100), "a[31mb\nc\td");
        assert_eq!(one_line(" a\n b\t\u{7}c ", 100), "a b c");
        assert_eq!(plain("abcdef", 3), "ab…");
    }
}
