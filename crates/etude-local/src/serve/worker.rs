//! The thread that owns the models.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use etude_core::model::ModelResponse;
use tokio::sync::mpsc::UnboundedSender;

use super::{Generator, WhenIdle};
use crate::api::{ChatRequest, Vectors};
use crate::embed::Embedder;
use crate::generate::GenerateError;
use crate::gguf::OpenError;

/// Maximum idle time that the system's clock can add.
const MAX_IDLE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Number of texts that are embedded between two checks for a cancellation.
const EMBEDDED_AT_ONCE: usize = 64;
const NO_EMBEDDING: &str = "the embedding model is not downloaded; run `etude model pull \
                            all-minilm-l6-v2` and restart the server";

/// A queued request.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) events: UnboundedSender<Event>,
    pub(super) is_cancelled: Arc<AtomicBool>,
}

/// The work of a request.
pub(super) enum Work {
    Chat(ChatRequest),
    /// The embedding of these texts.
    Embed(Vec<String>),
}

/// Progress of a request; the last event is a response, vectors or a failure.
pub(super) enum Event {
    Delta(String),
    Response(Box<ModelResponse>),
    Vectors(Vectors),
    Failed(Failure),
}

/// A failure in the terms of the API.
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

    /// The failure of a model that cannot be loaded.
    fn unavailable(message: String) -> Self {
        Self { status: 404, code: "model_not_found", message }
    }
}

/// Loads the models that requests need, and runs them.
pub(super) struct Worker<G, L> {
    load: L,
    embedding: Option<PathBuf>,
    model: Option<G>,
    embedder: Option<Embedder>,
    is_loaded: Arc<AtomicBool>,
}

impl<G, L> Worker<G, L>
where
    G: Generator,
    L: Fn() -> Result<G, OpenError>,
{
    /// `load` loads the model; `embedding` is the directory of the embedding model.
    pub(super) fn new(load: L, embedding: Option<PathBuf>, is_loaded: Arc<AtomicBool>) -> Self {
        Self { load, embedding, model: None, embedder: None, is_loaded }
    }

    /// Runs jobs one after another. `idle` is the time without a request after which `when_idle` applies.
    pub(super) fn run(mut self, jobs: &Receiver<Job>, idle: Duration, when_idle: WhenIdle) {
        loop {
            let job = match jobs.recv_timeout(idle.min(MAX_IDLE)) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) if when_idle == WhenIdle::Unload => {
                    (self.model, self.embedder) = (None, None);
                    self.is_loaded.store(false, Ordering::Relaxed);
                    let Ok(job) = jobs.recv() else { return };
                    job
                }
                Err(_) => return,
            };
            if job.is_cancelled.load(Ordering::Relaxed) {
                continue;
            }
            let event = match &job.work {
                Work::Chat(chat) => self.chat(chat, &job),
                Work::Embed(texts) => self.embed(texts, &job.is_cancelled).map(Event::Vectors),
            };
            // A client that has disconnected does not read the event.
            drop(job.events.send(event.unwrap_or_else(Event::Failed)));
        }
    }

    fn chat(&mut self, chat: &ChatRequest, job: &Job) -> Result<Event, Failure> {
        let model = match &mut self.model {
            Some(model) => model,
            none => none.insert((self.load)().map_err(|error| Failure::unavailable(error.to_string()))?),
        };
        self.is_loaded.store(true, Ordering::Relaxed);
        let on_delta = |text: &str| drop(job.events.send(Event::Delta(text.to_owned())));
        let response = model.generate(chat, &|| job.is_cancelled.load(Ordering::Relaxed), &on_delta);
        response.map(|response| Event::Response(Box::new(response))).map_err(|error| Failure::new(&error))
    }

    fn embed(&mut self, texts: &[String], is_cancelled: &AtomicBool) -> Result<Vectors, Failure> {
        let dir = self.embedding.as_ref().ok_or_else(|| Failure::unavailable(NO_EMBEDDING.into()))?;
        let embedder = match &mut self.embedder {
            Some(embedder) => embedder,
            none => none.insert(Embedder::load(dir).map_err(|error| Failure::unavailable(error.to_string()))?),
        };
        let mut vectors = Vectors { rows: Vec::new(), tokens: 0 };
        for texts in texts.chunks(EMBEDDED_AT_ONCE) {
            if is_cancelled.load(Ordering::Relaxed) {
                return Err(Failure::new(&GenerateError::Cancelled));
            }
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            vectors.tokens += texts.iter().map(|text| embedder.tokens(text)).sum::<usize>();
            let rows =
                embedder.embed(&texts).map_err(|error| Failure::new(&GenerateError::Engine(error.to_string())))?;
            vectors.rows.extend(rows);
        }
        Ok(vectors)
    }
}
