//! The client at the other end: notifications and requests to it, and its introduction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

/// A client, or one of its requests if each request has a separate connection.
#[derive(Debug)]
pub struct Peer {
    out: mpsc::UnboundedSender<String>,
    pending: Mutex<BTreeMap<String, oneshot::Sender<Result<Value, String>>>>,
    next: AtomicU64,
    /// The capabilities and the name of the client, from `initialize`.
    greeting: Mutex<Option<Greeting>>,
    /// True once the client has closed its stream.
    has_gone: watch::Sender<bool>,
}

/// The introduction of a client.
#[derive(Debug, Clone)]
pub(crate) struct Greeting {
    pub(crate) revision: crate::Revision,
    pub(crate) capabilities: Value,
    pub(crate) client: String,
}

impl Peer {
    /// A client that receives messages through `out`.
    pub fn new(out: mpsc::UnboundedSender<String>) -> Self {
        Self {
            out,
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            greeting: Mutex::new(None),
            has_gone: watch::Sender::new(false),
        }
    }

    /// Notes that the client has closed its stream.
    pub(crate) fn leave(&self) {
        self.has_gone.send_replace(true);
    }

    /// Waits until the client has closed its stream.
    pub(crate) async fn gone(&self) {
        // The sender belongs to this peer.
        let _ = self.has_gone.subscribe().wait_for(|gone| *gone).await.map(drop);
    }

    pub(crate) fn greeting(&self) -> Option<Greeting> {
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn greet(&self, greeting: Greeting) {
        *self.greeting.lock().unwrap_or_else(PoisonError::into_inner) = Some(greeting);
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        // A client that has gone reads nothing.
        let _ = self.out.send(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a request to the client. Returns the result of its response; an error is the message of that.
    pub(crate) async fn request(&self, method: &str, params: &Value) -> Result<Value, String> {
        let id = format!("etude-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        let key = Value::from(id.as_str()).to_string();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(key, sender);
        let _ = self.out.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        receiver.await.unwrap_or_else(|_| Err("the client has disconnected".to_owned()))
    }

    /// Handles a response to one of this server's requests.
    pub(crate) fn answered(&self, id: &str, result: Result<Value, String>) {
        let sender = self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(sender) = sender {
            let _ = sender.send(result);
        }
    }
}
