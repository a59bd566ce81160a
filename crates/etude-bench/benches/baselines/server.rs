//! A model server on loopback that sends the same response to every chat request, after a fixed latency. It does as little as
//! possible, because it shares the machine with the measured program.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Starts a server in its own thread; it ends with the process.
pub(crate) fn start(latency: Duration) -> SocketAddr {
    let (emit, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
            // A thousand clients connect at once; one that finds the queue full would try again after a second.
            let listener = socket.listen(4096).expect("a listener");
            emit.send(listener.local_addr().expect("an address")).expect("somebody waits for it");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, latency));
            }
        });
    });
    address.recv().expect("the server has started")
}

/// The whole response, head and body.
fn answer() -> String {
    let body = r#"{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"I think that it is fine."},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":8,"total_tokens":28}}"#;
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn serve(mut stream: TcpStream, latency: Duration) {
    let _ = stream.set_nodelay(true);
    let answer = answer();
    let mut read = Vec::with_capacity(8 * 1024);
    loop {
        let Some(length) = whole_request(&read) else {
            match stream.read_buf(&mut read).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        read.drain(..length);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The length of the request at the start of `read`; `None` if it is incomplete.
fn whole_request(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&read[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = head + length.unwrap_or(0);
    (read.len() >= whole).then_some(whole)
}
