//! A scripted HTTP server on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// What the server does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A whole answer.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// The head and half of the body, then nothing.
    CutOff(String),
    /// A stream of events, and then the end.
    Events(String),
    /// A stream whose pieces come apart by this many milliseconds.
    Slow(Vec<String>, u64),
    /// A stream that is silent after its beginning, until the client goes away.
    Stalls(String),
    /// The connection closes without a byte.
    Drop,
    /// Nothing happens until the client goes away; then the sender is told.
    Hang(Sender<()>),
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.to_string() }
    }

    pub(crate) fn text(body: &str) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.to_owned() }
    }

    pub(crate) fn status(status: u16, message: &str) -> Self {
        let body = serde_json::json!({ "error": { "message": message } }).to_string();
        Self::Answer { status, headers: Vec::new(), body }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A running server. Its threads end with the process.
pub(crate) struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// A server that gives `replies` in order and repeats the last one.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (replies, seen) = (replies.clone(), Arc::clone(&shared));
                thread::spawn(move || serve(stream, &replies, &seen));
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no thread panicked").clone()
    }
}

/// An address where nobody listens.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    format!("http://{}", listener.local_addr().expect("it is bound"))
}

fn serve(mut stream: TcpStream, replies: &[Reply], seen: &Mutex<Vec<Seen>>) {
    let Some(request) = receive(&stream) else { return };
    let number = {
        let mut seen = seen.lock().expect("no thread panicked");
        seen.push(request);
        seen.len() - 1
    };
    let written = match &replies[number.min(replies.len() - 1)] {
        Reply::Answer { status, headers, body } => send(&mut stream, *status, headers, body, body.len()),
        Reply::CutOff(body) => send(&mut stream, 200, &[], body, body.len() / 2),
        Reply::Events(events) => stream_out(&mut stream, &[events.as_str()], 0),
        Reply::Slow(pieces, ms) => stream_out(&mut stream, &pieces.iter().map(String::as_str).collect::<Vec<_>>(), *ms),
        Reply::Stalls(events) => stream_out(&mut stream, &[events.as_str()], 0).map(|()| {
            let _ = stream.read(&mut [0; 1]);
        }),
        Reply::Drop => Ok(()),
        Reply::Hang(gone) => {
            // Reading ends when the client closes its side.
            let _ = stream.read(&mut [0; 1]);
            let _ = gone.send(());
            Ok(())
        }
    };
    drop(written);
}

fn receive(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { path, headers, body: serde_json::from_slice(&body).ok()? })
}

fn send(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, String)],
    body: &str,
    bytes: usize,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body.as_bytes()[..bytes])
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
