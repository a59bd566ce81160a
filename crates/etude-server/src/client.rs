//! The client of a server's socket, for the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;

use crate::listen::socket;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// The sockets in `dir`, the newest first. A socket may have no server behind it.
pub fn sockets(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "sock"));
    let age = |path: &PathBuf| std::fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
    let mut sockets: Vec<PathBuf> = sockets.collect();
    sockets.sort_by_key(|path| std::cmp::Reverse(age(path)));
    sockets
}

/// Removes abandoned sockets in `dir`: sockets of killed servers, which refuse a connection and are older than `age`. The age
/// matters because a server that is about to listen refuses one for a moment.
pub(crate) async fn remove_abandoned(dir: &Path, age: Duration) {
    for path in sockets(dir) {
        let made = std::fs::symlink_metadata(&path).and_then(|meta| meta.modified()).ok();
        let is_old = made.and_then(|made| made.elapsed().ok()).is_some_and(|since| since >= age);
        if is_old && socket::connect(&path).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // A failure is harmless: clients find no server behind the socket either.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Sends `body` to the route `path` of the server behind `socket`. Returns the status and the body of the response.
///
/// # Errors
/// No server is behind the socket, or it does not respond in HTTP.
pub async fn post(socket: &Path, path: &str, token: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
    send(Method::POST, socket, path, token, body).await
}

/// Reads the document at `path` of the server behind `socket`. Returns the status and the body of the response.
///
/// # Errors
/// No server is behind the socket, or it does not respond in HTTP.
pub async fn get(socket: &Path, path: &str, token: &str) -> io::Result<(u16, Vec<u8>)> {
    send(Method::GET, socket, path, token, "").await
}

async fn send(method: Method, socket: &Path, path: &str, token: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
    let stream = socket::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()))
        .map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status().as_u16();
    let body = http_body_util::Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
    connection.abort();
    Ok((status, body.map_err(io::Error::other)?.to_bytes().to_vec()))
}
