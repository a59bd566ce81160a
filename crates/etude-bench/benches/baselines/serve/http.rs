//! A minimal HTTP client: requests as bytes, responses by their length.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The bytes of a request. Without a body it has no `content-length`.
pub(crate) fn request(port: u16, token: &str, what: &str, headers: &str, body: Option<&str>) -> Vec<u8> {
    let body_headers = body.map(|body| format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    let head = format!("{what} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n{headers}");
    format!("{head}{}\r\n{}", body_headers.unwrap_or_default(), body.unwrap_or_default()).into_bytes()
}

/// A response with a `content-length`.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// A connection that is kept open.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, read: Vec::with_capacity(64 * 1024) }
    }

    /// Sends a request and waits for the whole response.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Response {
        self.stream.write_all(request).await.expect("written");
        self.read.clear();
        loop {
            if let Some((status, head, length)) = head_of(&self.read)
                && self.read.len() >= head + length
            {
                return Response { status, body: self.read[head..head + length].to_vec() };
            }
            let read = self.stream.read_buf(&mut self.read).await.expect("read");
            assert!(read > 0, "the server closed: {}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Sends a request and passes on each piece of the response until the stream ends.
    pub(crate) async fn follow(mut self, request: &[u8], mut piece: impl FnMut(&[u8])) {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        self.stream.write_all(request).await.expect("written");
        self.read.clear();
        loop {
            // The end may come in parts, so a possible beginning of it is kept.
            self.read.drain(..self.read.len().saturating_sub(END.len() - 1));
            let before = self.read.len();
            match self.stream.read_buf(&mut self.read).await {
                Ok(0) | Err(_) => return,
                Ok(_) => piece(&self.read[before..]),
            }
            if self.read.ends_with(END) {
                return;
            }
        }
    }
}

/// The status, the offset of the body, and its length.
fn head_of(read: &[u8]) -> Option<(u16, usize, usize)> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&read[..head]).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((status, head, length.unwrap_or(0)))
}

/// Sends one request on a new connection.
pub(crate) async fn once(port: u16, request: &[u8]) -> Response {
    Connection::open(port).await.ask(request).await
}

/// Sends the same request `each` times on each of `connections`.
pub(crate) async fn load(port: u16, request: &[u8], connections: usize, each: usize) {
    let one = || {
        let request = request.to_vec();
        async move {
            let mut connection = Connection::open(port).await;
            for _ in 0..each {
                let response = connection.ask(&request).await;
                let why = String::from_utf8_lossy(&response.body);
                assert!((200..300).contains(&response.status), "{}: {why}", response.status);
            }
        }
    };
    let tasks: Vec<_> = (0..connections).map(|_| tokio::spawn(one())).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}
