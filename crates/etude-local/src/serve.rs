//! The server process: an OpenAI-compatible API over a Unix socket, and over TCP on request. The weights load at the first
//! request; requests run one at a time in the order of their arrival; an idle process exits, or frees the weights.

mod http;
mod worker;

use std::convert::Infallible;
use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use etude_core::model::ModelResponse;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::api::ChatRequest;
use crate::generate::{GenerateError, Model};
use crate::gguf::OpenError;
use crate::settings::Settings;
use crate::socket;
use http::{Guard, Server};
use worker::Worker;

/// Pause after a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A generator of responses: a model, or a scripted one in tests.
pub(crate) trait Generator {
    /// Generates a response and emits its text as it grows. Stops if `is_cancelled` is true before a token.
    fn generate(
        &mut self,
        chat: &ChatRequest,
        is_cancelled: &dyn Fn() -> bool,
        on_delta: &dyn Fn(&str),
    ) -> Result<ModelResponse, GenerateError>;
}

impl Generator for Model {
    fn generate(
        &mut self,
        chat: &ChatRequest,
        is_cancelled: &dyn Fn() -> bool,
        on_delta: &dyn Fn(&str),
    ) -> Result<ModelResponse, GenerateError> {
        self.generate_streaming(&chat.request, &chat.options, is_cancelled, on_delta)
    }
}

/// A TCP address for clients other than etude.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The bearer token that every request must carry. Required unless `address` is a loopback address.
    pub token: Option<String>,
}

/// Reaction to the idle time of the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenIdle {
    /// The process ends.
    #[default]
    End,
    /// The process frees the weights, and loads them again at the next request.
    Unload,
}

/// The options of a serving process.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// An address beside the socket. If another process has the socket, this one serves only the address.
    pub listen: Option<Listen>,
    /// The reaction to the idle time.
    pub when_idle: WhenIdle,
    /// The directory of the embedding model; without one, requests for embeddings fail.
    pub embedding: Option<PathBuf>,
}

/// The addresses on which a process accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The Unix socket, unless another process has it.
    pub socket: Option<PathBuf>,
    /// The TCP address.
    pub address: Option<SocketAddr>,
}

/// The reason why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// No request came for the idle time of the settings.
    Idle,
    /// Another process serves the same settings.
    AlreadyServed,
}

/// Serves the model of `settings`. The caller gives this process the variables of [`crate::environment`]. `ready` is
/// called once, when connections are accepted.
///
/// # Errors
/// The socket or the address cannot be bound, or an address beyond loopback has no token.
pub fn serve(settings: &Settings, serving: &Serving, ready: &dyn Fn(&Ready)) -> io::Result<Ended> {
    let (weights, id, context) = (settings.weights.clone(), settings.id.clone(), settings.context_tokens);
    serve_with(settings, serving, ready, move || Model::load(&weights, &id, context))
}

/// Like [`serve`], with the generator that `load` returns.
pub(crate) fn serve_with<G, L>(
    settings: &Settings,
    serving: &Serving,
    ready: &dyn Fn(&Ready),
    load: L,
) -> io::Result<Ended>
where
    G: Generator + 'static,
    L: Fn() -> Result<G, OpenError> + Send + 'static,
{
    serving.listen.as_ref().map_or(Ok(()), Listen::check)?;
    socket::make_dir(&settings.runtime_dir)?;
    let lock = File::options().create(true).truncate(false).write(true).open(settings.lock())?;
    let is_owner = match lock.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) if serving.listen.is_some() => false,
        Err(TryLockError::WouldBlock) => return Ok(Ended::AlreadyServed),
        Err(TryLockError::Error(error)) => return Err(error),
    };
    let local = is_owner.then(|| socket::listen(&settings.socket())).transpose()?;
    // Dropped before the lock, so that it never removes the socket of another process.
    let socket = RemoveSocket(is_owner.then(|| settings.socket()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let listeners = Listeners::new(local, serving.listen.as_ref()).await?;
        let address = listeners.tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        let (jobs, received) = std::sync::mpsc::channel();
        let server = Arc::new(Server::new(settings.id.clone(), serving.embedding.is_some(), jobs));
        let (embedding, is_loaded) = (serving.embedding.clone(), Arc::clone(&server.is_loaded));
        let (idle, when_idle) = (settings.idle, serving.when_idle);
        let (done, ended) = oneshot::channel();
        thread::Builder::new().name("model".into()).spawn(move || {
            Worker::new(load, embedding, is_loaded).run(&received, idle, when_idle);
            // The receiver lives as long as this process serves.
            let _ = done.send(());
        })?;
        ready(&Ready { socket: socket.0.clone(), address });
        tokio::select! {
            never = listeners.accept(&server) => match never {},
            done = ended => {
                let panicked = |_| io::Error::other("internal error: the model thread panicked");
                done.map(|()| Ended::Idle).map_err(panicked)
            }
        }
    });
    drop(socket);
    drop(lock);
    result
}

impl Listen {
    /// Checks the address: without a token, only programs on this machine may connect.
    fn check(&self) -> io::Result<()> {
        if self.token.is_some() || self.address.ip().is_loopback() {
            return Ok(());
        }
        let why = format!("{} is not a loopback address: a token is required", self.address);
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

struct Listeners {
    local: Option<socket::AsyncListener>,
    tcp: Option<TcpListener>,
    guard: Arc<Guard>,
}

impl Listeners {
    async fn new(local: Option<socket::Listener>, listen: Option<&Listen>) -> io::Result<Self> {
        let tcp = match listen {
            Some(listen) => Some(TcpListener::bind(listen.address).await?),
            None => None,
        };
        let local = local.map(|listener| {
            listener.set_nonblocking(true)?;
            socket::AsyncListener::from_std(listener)
        });
        let guard = Arc::new(Guard::tcp(listen.and_then(|listen| listen.token.as_deref())));
        Ok(Self { local: local.transpose()?, tcp, guard })
    }

    /// Serves every connection in the background, forever.
    async fn accept(&self, server: &Arc<Server>) -> Infallible {
        let open = Arc::new(Guard::none());
        loop {
            let failed = tokio::select! {
                stream = accept_local(self.local.as_ref()) => stream.map(|stream| http::attend(stream, server, &open)),
                stream = accept_tcp(self.tcp.as_ref()) => stream.map(|stream| http::attend(stream, server, &self.guard)),
            };
            if failed.is_err() {
                // The process has run out of descriptors: connections that end free some.
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn accept_local(listener: Option<&socket::AsyncListener>) -> io::Result<socket::AsyncStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn accept_tcp(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Removes the socket on drop, even after a panic.
struct RemoveSocket(Option<PathBuf>);

impl Drop for RemoveSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests;
