//! The model's process: it listens, loads at the first call, answers one call at a time, and ends when no one asks.

mod connection;
mod shared;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use etude_core::model::{ModelResponse, Request};

use crate::generate::{GenerateError, Model};
use crate::gguf::OpenError;
use crate::protocol::{FailureKind, Reply};
use crate::settings::Settings;
use crate::socket;
use shared::{Job, Shared};

/// Who answers; a model, or in tests something that takes its time on purpose.
pub(crate) trait Generator {
    /// Answers, unless `is_cancelled` says at some token that no one waits any more.
    fn generate(&mut self, request: &Request, is_cancelled: &dyn Fn() -> bool) -> Result<ModelResponse, GenerateError>;
}

impl Generator for Model {
    fn generate(&mut self, request: &Request, is_cancelled: &dyn Fn() -> bool) -> Result<ModelResponse, GenerateError> {
        Self::generate(self, request, is_cancelled)
    }
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// No one had asked for as long as the settings say.
    Idle,
    /// It was asked to.
    Stopped,
    /// Another process serves the same settings.
    AlreadyServed,
}

/// Serves the model of `settings` until no one asks any more. The caller has given this process the environment that
/// [`crate::environment`] names, and nothing else to do.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(settings: &Settings) -> io::Result<Ended> {
    let (weights, id, context) = (settings.weights.clone(), settings.id.clone(), settings.context_tokens);
    serve_with(settings, move || Model::load(&weights, &id, context))
}

/// As [`serve`], with whatever `load` gives.
pub(crate) fn serve_with<G, L>(settings: &Settings, load: L) -> io::Result<Ended>
where
    G: Generator + 'static,
    L: Fn() -> Result<G, OpenError> + Send + 'static,
{
    socket::make_dir(&settings.runtime_dir)?;
    let lock = File::options().create(true).truncate(false).write(true).open(settings.lock())?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Ended::AlreadyServed),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let listener = socket::listen(&settings.socket())?;
    let shared = Arc::new(Shared::new(settings.id.clone()));
    let worker = {
        let farewell = Farewell { shared: Arc::clone(&shared), socket: settings.socket() };
        let idle = settings.idle;
        thread::spawn(move || {
            // What is declared later is dropped earlier: the model is gone before anybody observes of the end.
            let mut model = None;
            let shared = &farewell.shared;
            shared.work(idle, |job| answer(&mut model, &load, job, shared))
        })
    };
    while !shared.is_ending() {
        let Ok((stream, _)) = listener.accept() else { continue };
        let shared = Arc::clone(&shared);
        thread::spawn(move || connection::attend(stream, &shared));
    }
    let ended = worker.join().map_err(|_| io::Error::other("the thread that asks the model panicked"));
    // Anyone who connected before the socket was removed must start another process.
    listener.set_nonblocking(true)?;
    while let Ok((stream, _)) = listener.accept() {
        stream.set_nonblocking(false)?;
        connection::attend(stream, &shared);
    }
    drop(lock);
    ended
}

/// Ends the process even if the model panics.
struct Farewell {
    shared: Arc<Shared>,
    socket: PathBuf,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.shared.end();
        // The main thread waits for somebody to connect. If it does not wait, nothing is lost.
        drop(socket::connect(&self.socket));
        drop(fs::remove_file(&self.socket));
    }
}

fn answer<G: Generator>(
    model: &mut Option<G>,
    load: &impl Fn() -> Result<G, OpenError>,
    job: &Job,
    shared: &Shared,
) -> Reply {
    if model.is_none() {
        match load() {
            Ok(loaded) => *model = Some(loaded),
            Err(error) => return Reply::Failed { kind: FailureKind::Environment, message: error.to_string() },
        }
        shared.set_loaded();
    }
    match model {
        Some(model) => Reply::of(model.generate(&job.request, &|| job.is_given_up())),
        None => Reply::Failed { kind: FailureKind::Engine, message: "the model is not loaded".into() },
    }
}

#[cfg(all(test, unix))]
mod tests;
