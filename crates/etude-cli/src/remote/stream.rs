//! Streams of events (`text/event-stream`), continued after the last event where a connection ends.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, sleep_until};

use super::Remote;
use crate::problem::Problem;

/// The time before a reconnect.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a server may be away, such as during an update.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest line, with all that it may carry.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// The last event of an attempt.
pub(super) const ENDED: &str = "ended";

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: Option<String>,
    pub(super) event: String,
    pub(super) data: String,
}

/// A stream that reconnects. Dropping [`Stream::next`] loses nothing.
pub(super) struct Stream<'r> {
    remote: &'r Remote,
    path: String,
    /// The id of the last event.
    pub(super) last: Option<String>,
    open: Option<Response>,
    parser: Parser,
    next_try: Instant,
    /// Since when no connection succeeds.
    away: Option<Instant>,
}

impl<'r> Stream<'r> {
    pub(super) fn new(remote: &'r Remote, path: &str, last: Option<String>) -> Self {
        Self {
            remote,
            path: path.to_owned(),
            last,
            open: None,
            parser: Parser::default(),
            next_try: Instant::now(),
            away: None,
        }
    }

    /// The next event; `None` when the server has closed the stream, which the next call opens again.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Problem> {
        loop {
            if let Some(message) = self.parser.next() {
                // The end of one attempt is the middle of a run that goes on.
                if message.id.is_some() && message.event != ENDED {
                    self.last.clone_from(&message.id);
                }
                return Ok(Some(message));
            }
            if self.open.is_none() && !self.connect().await? {
                return Ok(None);
            }
            let Some(response) = &mut self.open else { continue };
            match response.chunk().await {
                Ok(Some(piece)) if self.parser.rest.len() + piece.len() <= MAX_LINE => self.parser.push(&piece),
                Ok(Some(_)) => return Err(self.remote.foreign("has an endless line")),
                // What is incomplete comes again.
                Ok(None) | Err(_) => {
                    self.close();
                    return Ok(None);
                }
            }
        }
    }

    /// Opens the stream. False if there is nothing more to come.
    async fn connect(&mut self) -> Result<bool, Problem> {
        sleep_until(self.next_try).await;
        let mut request = self.remote.request(Method::GET, &self.path).header("accept", "text/event-stream");
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        match self.remote.send(request).await {
            Ok(response) if response.status() == StatusCode::NO_CONTENT => {
                self.close();
                Ok(false)
            }
            Ok(response) => {
                self.away = None;
                self.open = Some(response);
                Ok(true)
            }
            Err(problem) => {
                let since = *self.away.get_or_insert_with(Instant::now);
                // A server that responds and refuses will do so again.
                if problem.exit != crate::exit::Exit::Environment || since.elapsed() > PATIENCE {
                    return Err(problem);
                }
                self.remote.find_again().await;
                self.close();
                Ok(false)
            }
        }
    }

    fn close(&mut self) {
        self.open = None;
        self.parser = Parser::default();
        self.next_try = Instant::now() + PAUSE;
    }
}

/// Takes bytes, gives events.
#[derive(Debug, Default)]
struct Parser {
    rest: Vec<u8>,
    /// Bytes of `rest` that are taken.
    taken: usize,
    message: Message,
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) {
        self.rest.drain(..self.taken);
        self.taken = 0;
        self.rest.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<Message> {
        while let Some(end) = self.rest[self.taken..].iter().position(|byte| *byte == b'\n') {
            let line = &self.rest[self.taken..self.taken + end];
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
            self.taken += end + 1;
            if line.is_empty() {
                let message = std::mem::take(&mut self.message);
                if !message.data.is_empty() {
                    return Some(message);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.message.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut self.message.event),
                "data" => {
                    if !self.message.data.is_empty() {
                        self.message.data.push('\n');
                    }
                    self.message.data.push_str(value);
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&str]) -> Vec<(Option<String>, String, String)> {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        for piece in pieces {
            parser.push(piece.as_bytes());
            while let Some(Message { id, event, data }) = parser.next() {
                found.push((id, event, data));
            }
        }
        found
    }

    #[test]
    fn events_come_in_any_pieces() {
        let whole = "retry: 1000\n\n:\n\nid: 1.1\nevent: a\ndata: {\"x\":1}\n\nevent: gap\r\ndata: {}\r\n\r\nid: 1.2\nevent: b\nda";
        let expected = vec![
            (Some("1.1".to_owned()), "a".to_owned(), "{\"x\":1}".to_owned()),
            (None, "gap".to_owned(), "{}".to_owned()),
        ];
        assert_eq!(all(&[whole]), expected);
        let bytes: Vec<String> = whole.chars().map(String::from).collect();
        assert_eq!(all(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }
}
