//! Unix sockets in a directory that only its owner can enter.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use etude_files::private;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// Accepts the requests of one call.
pub(crate) struct Listener(UnixListener);

/// Binds a socket that only its owner may open.
pub(crate) fn listen(path: &Path) -> io::Result<Listener> {
    let listener = UnixListener::bind(path)?;
    private::restrict(path)?;
    Ok(Listener(listener))
}

/// Maximum length of a request, in bytes.
const MAX_LENGTH: u64 = 16 << 20;

impl Listener {
    /// Answers every line of every connection with the result of `answer`, until it is dropped.
    pub(crate) async fn serve<F, A>(self, answer: F)
    where
        F: Fn(String) -> A + Clone + Send + 'static,
        A: Future<Output = String> + Send,
    {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = self.0.accept().await {
            let answer = answer.clone();
            connections.spawn(async move {
                let (read, mut write) = stream.into_split();
                let mut read = tokio::io::BufReader::new(read);
                loop {
                    let mut line = String::new();
                    // Reading one byte beyond the limit shows that a line is too long; the rest is not read.
                    let got = (&mut read).take(MAX_LENGTH + 1).read_line(&mut line).await;
                    if !got.is_ok_and(|got| got > 0 && got as u64 <= MAX_LENGTH) {
                        break;
                    }
                    let line = line.trim_end_matches(['\n', '\r']).to_owned();
                    let reply = answer(line).await + "\n";
                    if write.write_all(reply.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    }
}

/// Sends one request to the host at `path`. Blocks until the reply arrives.
///
/// # Errors
/// No host listens there, or the reply is not JSON.
pub fn ask(path: &Path, request: &Value) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// An endless request is cut off at the maximum length, so memory stays bounded.
    #[tokio::test]
    async fn a_request_without_end_is_not_read_to_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let server = tokio::spawn(listen(&path).expect("a socket").serve(|line| async move { line.len().to_string() }));
        let ended = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(path).expect("a listener");
            stream.write_all(b"\"four\"\n").expect("it is taken");
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).expect("an answer");
            let piece = vec![b'x'; 1 << 20];
            let taken = (0..64).take_while(|_| stream.write_all(&piece).is_ok()).count();
            (answer, taken)
        });
        let (answer, taken) = ended.await.expect("it has ended");
        server.abort();
        assert_eq!(&answer, b"6\n");
        assert!(taken < 20, "{taken} MiB were taken");
    }
}
