//! The other end of the socket: asks, and starts the model's process if there is none.

use std::io;
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Request};

use crate::protocol::{self, Call, FailureKind, Reply, Status};
use crate::settings::Settings;
use crate::socket::{self, Stream};

/// How long a started process may take until it listens; it loads nothing before that.
const START: Duration = Duration::from_secs(15);
/// After how long without a socket another process is started: the one before may have been ending just then.
const RESTART: Duration = Duration::from_secs(2);
/// Between two looks at the socket.
const LOOK: Duration = Duration::from_millis(20);
/// How often an ending process is left for another one.
const TRIES: usize = 3;

/// A connection to a model's process, good for one call.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    label: String,
}

/// Gives a call up from another thread.
#[derive(Debug)]
pub struct Canceller(Stream);

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The process cannot be started, or does not listen.
    #[error("the local model's process cannot be started: {0}")]
    Start(io::Error),
    /// The process is gone.
    #[error(
        "the local model's process ended while it was asked, as it does when memory runs out; the next call starts it \
         again"
    )]
    Gone,
    /// The process is about to end; another one has to be started.
    #[error("the local model's process is about to end; ask again")]
    Ending,
    /// The weights are missing or broken.
    #[error("{0}")]
    Environment(String),
    /// The request is at fault.
    #[error("{0}")]
    Request(String),
    /// The model's machinery failed.
    #[error("{0}")]
    Engine(String),
}

impl ClientError {
    /// The failure of a call of `model`, which is `local/` and an id.
    pub fn failure(&self, model: &str) -> CallFailure {
        let kind = match self {
            Self::Start(_) | Self::Environment(_) => CallFailureKind::Environment,
            Self::Gone | Self::Ending | Self::Request(_) | Self::Engine(_) => CallFailureKind::Model,
        };
        CallFailure { kind, message: self.to_string(), model: Some(model.to_owned()), transport_failures: Vec::new() }
    }
}

impl Canceller {
    /// Gives the call up: the model stops within a token.
    pub fn cancel(&self) {
        // If it is closed already, there is nothing to give up.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

impl Client {
    /// Connects to the process that serves `settings`; `None` if there is none.
    ///
    /// # Errors
    /// The runtime directory is not private, or sockets are not to be had.
    pub fn connect(settings: &Settings) -> io::Result<Option<Self>> {
        match socket::connect(&settings.socket()) {
            Ok(stream) => Ok(Some(Self { stream, label: format!("local/{}", settings.id) })),
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// As [`Client::connect`]; if there is no process, has `start` start one and waits until it listens. `start` comes
    /// back at once, and may be called again when a process that was ending was in the way.
    ///
    /// # Errors
    /// [`ClientError::Start`].
    pub fn connect_or_start(settings: &Settings, start: &dyn Fn() -> io::Result<()>) -> Result<Self, ClientError> {
        let begun = Instant::now();
        let mut started: Option<Instant> = None;
        loop {
            if let Some(client) = Self::connect(settings).map_err(ClientError::Start)? {
                return Ok(client);
            }
            if begun.elapsed() > START {
                let why = format!("it did not listen at {} within {} s", settings.socket().display(), START.as_secs());
                return Err(ClientError::Start(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            if started.is_none_or(|at| at.elapsed() > RESTART) {
                start().map_err(ClientError::Start)?;
                started = Some(Instant::now());
            }
            thread::sleep(LOOK);
        }
    }

    /// Asks the process that serves `settings`, which is started if need be. `who` asks: callers with different names
    /// take turns.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ask(
        settings: &Settings,
        who: &str,
        request: &Request,
        start: &dyn Fn() -> io::Result<()>,
    ) -> Result<ModelResponse, ClientError> {
        Self::ask_cancellable(settings, who, request, start, &mut |_| true)
    }

    /// As [`Client::ask`]. What gives the call up goes to `connected` before anything is asked, on every connection;
    /// if that says that it is too late already, nothing is asked.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ask_cancellable(
        settings: &Settings,
        who: &str,
        request: &Request,
        start: &dyn Fn() -> io::Result<()>,
        connected: &mut dyn FnMut(Canceller) -> bool,
    ) -> Result<ModelResponse, ClientError> {
        let mut tries = TRIES;
        loop {
            let client = Self::connect_or_start(settings, start)?;
            if !connected(client.canceller().map_err(ClientError::Start)?) {
                return Err(ClientError::Gone);
            }
            tries -= 1;
            match client.generate(who, request) {
                Err(ClientError::Ending) if tries > 0 => {}
                other => return other,
            }
        }
    }

    /// What abandons the call that is about to be made.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn canceller(&self) -> io::Result<Canceller> {
        self.stream.try_clone().map(Canceller)
    }

    /// The name of the model as answers have it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Has the model answer `request`; it waits its turn. Dropping the thread's stream through a [`Canceller`] ends it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn generate(self, who: &str, request: &Request) -> Result<ModelResponse, ClientError> {
        match self.exchange(&Call::generate(who, request))? {
            Reply::Answer { answer } => Ok(answer.into()),
            Reply::Ending => Err(ClientError::Ending),
            Reply::Failed { kind: FailureKind::Environment, message } => Err(ClientError::Environment(message)),
            Reply::Failed { kind: FailureKind::Request, message } => Err(ClientError::Request(message)),
            Reply::Failed { kind: FailureKind::Engine, message } => Err(ClientError::Engine(message)),
            Reply::Status(_) | Reply::Stopping => Err(ClientError::Gone),
        }
    }

    /// What the process is doing.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn status(self) -> Result<Status, ClientError> {
        match self.exchange(&Call::Status)? {
            Reply::Status(status) => Ok(status),
            _ => Err(ClientError::Gone),
        }
    }

    /// Tells the process to end after the calls that wait.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn stop(self) -> Result<(), ClientError> {
        self.exchange(&Call::Stop).map(drop)
    }

    fn exchange(mut self, call: &Call) -> Result<Reply, ClientError> {
        match protocol::send(&mut self.stream, call) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(ClientError::Request(format!("the request cannot be sent to the local model: {error}")));
            }
            // It may have replied before it closed.
            _ => {}
        }
        protocol::receive(&mut self.stream).ok().flatten().ok_or(ClientError::Gone)
    }
}
