//! Messages that are too long for memory: the id is extracted, so that the request gets a response.

use serde::de::IgnoredAny;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use crate::wire::is_id;

/// Maximum length of an id, in bytes.
const MAX_ID: usize = 256;

/// State of the scan of a message.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// The current name or value at the top level, up to a limit.
    text: Vec<u8>,
    /// True if `text` is the value of `id`.
    is_of_id: bool,
    id: Option<String>,
}

impl Scan {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.take(*byte);
        }
    }

    fn take(&mut self, byte: u8) {
        if self.is_in_string {
            self.keep(byte);
            self.is_in_string = self.is_escaped || byte != b'"';
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return;
        }
        match byte {
            b'"' => {
                self.is_in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_member(),
            b':' if self.depth == 1 => self.is_of_id = std::mem::take(&mut self.text) == b"\"id\"",
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.text.len() < MAX_ID {
            self.text.push(byte);
        }
    }

    /// Ends a member of the message. A truncated value is invalid JSON, and ignored.
    fn end_member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let text = String::from_utf8(std::mem::take(&mut self.text)).unwrap_or_default();
        if self.is_of_id && is_id(&text) && serde_json::from_str::<IgnoredAny>(&text).is_ok() {
            self.id = Some(text);
        }
        self.is_of_id = false;
    }
}

/// Reads the rest of a line that begins with `start`, and drops it. Returns the id of the request, if it has one.
pub(super) async fn skip(start: &[u8], input: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut scan = Scan::default();
    scan.read(start);
    loop {
        let buffer = input.fill_buf().await?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.unwrap_or(buffer.len());
        scan.read(&buffer[..length]);
        input.consume(end.map_or(length, |end| end + 1));
        if end.is_some() || length == 0 {
            return Ok(scan.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a valid id of the message itself counts, at any position.
    #[tokio::test]
    async fn the_id_of_a_long_message_is_found() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"id":1}}"#, Some("7")),
            (r#"{"params": {"id": 1, "a": ["}", "\"id\":2,"]}, "method": "a\\", "id" : "s-1" }"#, Some("\"s-1\"")),
            (r#"{"method":"x","params":{"id":3},"name":"id"}"#, None),
            (r#"{"id":null,"method":"x"}"#, None),
            (r#"{"id":"cut"#, None),
        ];
        for (text, id) in cases {
            for at in 0..text.len() {
                let rest = format!("{}\nnext", &text[at..]);
                let mut input = rest.as_bytes();
                let found = skip(&text.as_bytes()[..at], &mut input).await.expect("read");
                assert_eq!((found.as_deref(), input), (id, &b"next"[..]), "{text} from {at}");
            }
        }
        let long = format!("{{\"id\":\"{}\",\"method\":\"x\"}}", "i".repeat(MAX_ID));
        assert_eq!(skip(long.as_bytes(), &mut &b""[..]).await.expect("read"), None);
    }
}
