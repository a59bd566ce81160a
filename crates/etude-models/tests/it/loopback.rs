//! Scripted HTTP servers on loopback: requests are kept, and a script responds to them. The tests of the binary use this file
//! as well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A received request.
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
pub(crate) struct Loopback {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Loopback {
    /// A server that calls `answer` for each request, with the number of the request, from 0.
    pub(crate) fn by(response: impl Fn(&mut TcpStream, &Seen, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (shared, response) = (Arc::clone(&seen), Arc::new(response));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (response, seen) = (Arc::clone(&response), Arc::clone(&shared));
                thread::spawn(move || {
                    let Some(request) = receive(&stream) else { return };
                    let number = note(&seen, &request);
                    response(&mut stream, &request, number);
                });
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

fn note(seen: &Mutex<Vec<Seen>>, request: &Seen) -> usize {
    let mut seen = seen.lock().expect("no thread panicked");
    seen.push(request.clone());
    seen.len() - 1
}

/// A URL without a listener.
pub(crate) fn unreachable_url() -> String {
    "http://127.0.0.1:1".to_owned()
}

/// Reads a request with a JSON body. `None` if the client sends nothing, or something else.
pub(crate) fn receive(stream: &TcpStream) -> Option<Seen> {
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

/// Sends the first `bytes` of a response whose head announces all of `body`.
pub(crate) fn send(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, String)],
    body: &str,
    bytes: usize,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "content-type") {
        head.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body.as_bytes()[..bytes])
}
