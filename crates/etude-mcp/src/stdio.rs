//! The protocol over a pair of streams: one message per line.

mod long;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::changes;
use crate::peer::Peer;
use crate::service::Service;
use crate::wire::{Incoming, Params, RpcError, parse};

/// Maximum size of a message, in bytes: an input of 16 MiB and its frame.
const MAX_LINE: u64 = 17 * 1024 * 1024;

/// Time that open requests have after the last message.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// Serves one client until it closes its stream or the server stops. Requests are served concurrently.
///
/// # Errors
/// A stream fails.
pub async fn serve(
    service: Arc<Service>,
    input: impl AsyncRead + Unpin + Send,
    mut output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, mut lines) = mpsc::unbounded_channel::<String>();
    let writer = tokio::spawn(async move {
        while let Some(mut line) = lines.recv().await {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
        }
        io::Result::Ok(())
    });
    let client = Client { service, peer: Arc::new(Peer::new(out.clone())), out, open: Arc::default() };
    let mut notified = JoinSet::new();
    notified.spawn(changes::notify(Arc::clone(&client.service), Arc::clone(&client.peer)));
    let mut requests = JoinSet::new();
    let mut stopping = client.service.api.stopping();
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = tokio::select! {
            length = async { (&mut input).take(MAX_LINE).read_until(b'\n', &mut line).await } => length?,
            Ok(_) = stopping.wait_for(|stop| *stop) => break,
        };
        if length == 0 || writer.is_finished() {
            break;
        }
        if length as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            // Open calls continue meanwhile.
            let id = long::skip(&std::mem::take(&mut line), &mut input).await?;
            let id = id.and_then(|id| RawValue::from_string(id).ok());
            let error = RpcError::new(RpcError::INVALID_REQUEST, format!("a message has at most {MAX_LINE} bytes"));
            client.send(Service::refuse(id.as_deref(), error).text);
            continue;
        }
        while requests.try_join_next().is_some() {}
        client.take(&line, &mut requests).await;
    }
    notified.shutdown().await;
    client.peer.leave();
    // The client may still read: quick requests get a response, open calls of a server that stops too, and the rest is abandoned.
    let answered = async { while requests.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_RESPONSES, answered).await.is_err() {
        requests.shutdown().await;
    }
    drop(client);
    match tokio::time::timeout(LAST_RESPONSES, writer).await {
        Ok(Ok(written)) => written,
        _ => Ok(()),
    }
}

/// The open requests of a client, by id.
type Open = Arc<Mutex<BTreeMap<String, AbortHandle>>>;

struct Client {
    service: Arc<Service>,
    peer: Arc<Peer>,
    out: mpsc::UnboundedSender<String>,
    open: Open,
}

impl Client {
    fn send(&self, text: String) {
        let _ = self.out.send(text);
    }

    async fn take(&self, line: &[u8], requests: &mut JoinSet<()>) {
        let Ok(text) = std::str::from_utf8(line) else {
            self.send(Service::refuse(None, RpcError::new(RpcError::PARSE, "the message is not UTF-8")).text);
            return;
        };
        if text.trim().is_empty() {
            return;
        }
        match parse(text.trim()) {
            Err((id, error)) => self.send(Service::refuse(id.as_deref(), error).text),
            Ok(Incoming::Response { id, result }) => self.peer.answered(&id, result),
            Ok(Incoming::Notification { method, params }) => self.notified(&method, &params),
            // Later messages depend on it.
            Ok(Incoming::Request { id, method, params }) if method == "initialize" => {
                self.send(self.service.respond(&self.peer, None, &id, &method, &params).await.text);
            }
            Ok(Incoming::Request { id, method, params }) => {
                let (service, peer, out) = (Arc::clone(&self.service), Arc::clone(&self.peer), self.out.clone());
                let (open, key) = (Arc::clone(&self.open), id.get().to_owned());
                let mut registered = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                let task = requests.spawn(async move {
                    let response = service.respond(&peer, None, &id, &method, &params).await;
                    open.lock().unwrap_or_else(PoisonError::into_inner).remove(id.get());
                    let _ = out.send(response.text);
                });
                registered.insert(key, task);
            }
        }
    }

    fn notified(&self, method: &str, params: &Params) {
        // Other notifications, such as `notifications/initialized`, change nothing.
        if method != "notifications/cancelled" {
            return;
        }
        let id = params.members.get("requestId").map(Value::to_string).unwrap_or_default();
        let task = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(task) = task {
            task.abort();
        }
    }
}
