//! The thread that owns the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use etude_core::model::ModelResponse;
use tokio::sync::mpsc::UnboundedSender;

use super::Generator;
use crate::api::ChatRequest;
use crate::generate::GenerateError;
use crate::gguf::OpenError;

/// The longest idle time that the system's clock can add.
const MAX_IDLE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A queued request.
pub(super) struct Job {
    pub(super) chat: ChatRequest,
    pub(super) events: UnboundedSender<Event>,
    pub(super) is_cancelled: Arc<AtomicBool>,
}

/// Progress of a request; the last event is a response or a failure.
pub(super) enum Event {
    Delta(String),
    Response(Box<ModelResponse>),
    Failed(Failure),
}

/// A failure as the API reports it.
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Failure {
    fn new(error: &GenerateError) -> Self {
        let (status, code) = match error {
            GenerateError::TooLong { .. } => (400, "context_length_exceeded"),
            GenerateError::Template(_) | GenerateError::Grammar(_) => (400, "invalid_request"),
            GenerateError::Cancelled | GenerateError::Engine(_) => (500, "engine_failed"),
        };
        Self { status, code, message: error.to_string() }
    }
}

/// What the worker does when no request came for the idle time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenIdle {
    /// It ends, and the process with it.
    End,
    /// It frees the weights, and loads them again at the next request.
    Unload,
}

/// Runs jobs one after another. `idle` is the time without a request, and what follows it.
pub(super) fn work<G: Generator>(
    jobs: &Receiver<Job>,
    (idle, when_idle): (Duration, WhenIdle),
    is_loaded: &AtomicBool,
    load: impl Fn() -> Result<G, OpenError>,
) {
    let mut model = None;
    loop {
        let job = match jobs.recv_timeout(idle.min(MAX_IDLE)) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) if when_idle == WhenIdle::Unload => {
                model = None;
                is_loaded.store(false, Ordering::Relaxed);
                let Ok(job) = jobs.recv() else { return };
                job
            }
            Err(_) => return,
        };
        if job.is_cancelled.load(Ordering::Relaxed) {
            continue;
        }
        let event = match &mut model {
            Some(model) => run(model, &job),
            None => match load() {
                Ok(loaded) => {
                    is_loaded.store(true, Ordering::Relaxed);
                    run(model.insert(loaded), &job)
                }
                Err(error) => {
                    Event::Failed(Failure { status: 404, code: "model_not_found", message: error.to_string() })
                }
            },
        };
        // A client that disconnected does not read it.
        drop(job.events.send(event));
    }
}

fn run(model: &mut impl Generator, job: &Job) -> Event {
    let on_delta = |text: &str| drop(job.events.send(Event::Delta(text.to_owned())));
    match model.generate(&job.chat, &|| job.is_cancelled.load(Ordering::Relaxed), &on_delta) {
        Ok(response) => Event::Response(Box::new(response)),
        Err(error) => Event::Failed(Failure::new(&error)),
    }
}
