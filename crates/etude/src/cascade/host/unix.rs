//! Unix sockets in a directory that only its owner can enter.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// Listens for the requests of one call.
pub(crate) struct Listener(UnixListener);

/// Makes the directory of a session's sockets.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Listens at `path`.
pub(crate) fn listen(path: &Path) -> io::Result<Listener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(Listener(listener))
}

/// The longest request, in bytes.
const LONGEST: usize = 16 << 20;

impl Listener {
    /// Answers every line of every connection with what `answer` gives for it, until it is dropped.
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
                let mut lines = tokio::io::BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if line.len() > LONGEST {
                        break;
                    }
                    let reply = answer(line).await + "\n";
                    if write.write_all(reply.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    }
}

/// Asks the host at `path` one thing. Blocks until it has answered.
///
/// # Errors
/// Nobody listens there, or what comes back is no document.
pub fn ask(path: &Path, request: &Value) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
