//! A scripted HTTP server on loopback.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::Value;

use crate::loopback::{Loopback, send};
pub(crate) use crate::loopback::{Seen, unreachable_url};

/// Scripted reaction to a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A whole response.
    Http { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// The head and half of the body, then nothing.
    CutOff(String),
    /// A stream of events, and then the end.
    Events(String),
    /// A stream with a pause of this many milliseconds between pieces.
    Slow(Vec<String>, u64),
    /// A stream that is silent after its beginning, until the client disconnects.
    Stalls(String),
    /// A stream that is shorter than its head announces.
    Lost(String),
    /// The connection closes without a byte.
    Drop,
    /// Nothing until the client disconnects; then the sender is notified.
    Hang(Sender<()>),
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Http { status: 200, headers: Vec::new(), body: body.to_string() }
    }

    pub(crate) fn text(body: &str) -> Self {
        Self::Http { status: 200, headers: Vec::new(), body: body.to_owned() }
    }

    pub(crate) fn status(status: u16, message: &str) -> Self {
        let body = serde_json::json!({ "error": { "message": message } }).to_string();
        Self::Http { status, headers: Vec::new(), body }
    }

    pub(crate) fn body(status: u16, body: Value) -> Self {
        Self::Http { status, headers: Vec::new(), body: body.to_string() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Http { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// A running server.
pub(crate) struct Server(Loopback);

impl Server {
    /// A server that sends `replies` in order and repeats the last one.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Self(Loopback::by(move |stream, _, number| serve(stream, &replies[number.min(replies.len() - 1)])))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.seen()
    }
}

fn serve(stream: &mut TcpStream, reply: &Reply) {
    let written = match reply {
        Reply::Http { status, headers, body } => send(stream, *status, headers, body, body.len()),
        Reply::CutOff(body) => send(stream, 200, &[], body, body.len() / 2),
        Reply::Events(events) => stream_out(stream, &[events.as_str()], 0),
        Reply::Slow(pieces, ms) => stream_out(stream, &pieces.iter().map(String::as_str).collect::<Vec<_>>(), *ms),
        Reply::Stalls(events) => stream_out(stream, &[events.as_str()], 0).map(|()| {
            let _ = stream.read(&mut [0; 1]);
        }),
        Reply::Lost(events) => send(stream, 200, &[], &format!("{events}\n"), events.len()),
        Reply::Drop => Ok(()),
        Reply::Hang(gone) => {
            // The read ends when the client closes its side.
            let _ = stream.read(&mut [0; 1]);
            let _ = gone.send(());
            Ok(())
        }
    };
    // Some scripts expect the client to disconnect.
    drop(written);
}

fn stream_out(stream: &mut TcpStream, pieces: &[&str], ms: u64) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    for piece in pieces {
        stream.write_all(piece.as_bytes())?;
        thread::sleep(std::time::Duration::from_millis(ms));
    }
    Ok(())
}

/// A channel for [`Reply::Hang`].
pub(crate) fn hang() -> (Reply, std::sync::mpsc::Receiver<()>) {
    let (sender, receiver) = channel();
    (Reply::Hang(sender), receiver)
}
