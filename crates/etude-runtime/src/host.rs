//! Performs effects: processes on blocking threads, model calls and timers as futures.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_core::effect::{Effect, EffectId, ProcessCall};
use etude_core::model::{Answer, CallFailure, Piece, Request, Tier};
use etude_core::outcome::{Completed, Outcome, ProcessEnd};
use etude_core::tool::{Offer, ToolCall, ToolCalling, ToolReply, ToolResult, Toolbox};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::{self, CacheLabel, Engine};
use crate::process::{Cancel, Cancelled, ProcessHost, Turn};
use crate::voices::Voices;

/// A future that can be sent to another thread.
pub type Boxed<T> = engine::Boxed<'static, T>;

/// Is told an answer piece by piece as it comes. It must not wait for anything.
pub type Listener = Arc<dyn Fn(Piece<'_>) + Send + Sync>;

/// Somebody who answers model calls. Dropping the future gives the call up at once.
pub trait ModelPort: Send + Sync + fmt::Debug {
    /// Answers one call.
    fn call(&self, request: Request) -> Boxed<Result<Answer, CallFailure>>;

    /// Answers one call and tells the answer as it comes, as far as the model allows it. The answer is the one that
    /// [`ModelPort::call`] would have given; nothing of it may be told, and nothing after the future has ended.
    fn call_aloud(&self, request: Request, _listener: Listener) -> Boxed<Result<Answer, CallFailure>> {
        self.call(request)
    }

    /// Answers one call like [`ModelPort::call`] and reports the waits of the transport as [`Piece::Waiting`].
    fn call_watched(&self, request: Request, _listener: Listener) -> Boxed<Result<Answer, CallFailure>> {
        self.call(request)
    }

    /// The names of the secrets that stand in `text` and not in what the user has typed.
    fn secrets_in(&self, _text: &str, _typed: &str) -> Vec<String> {
        Vec::new()
    }

    /// The model of a tier, as `provider/model`, and how surely it calls tools.
    fn tool_calling(&self, _tier: Tier) -> Boxed<(String, ToolCalling)> {
        Box::pin(std::future::ready((String::new(), ToolCalling::Hard)))
    }

    /// How many tokens the model of a tier takes in all, where it is known.
    fn window_tokens(&self, _tier: Tier) -> Boxed<Option<u64>> {
        Box::pin(std::future::ready(None))
    }
}

/// Somebody who finds and calls the tools of agents.
pub trait ToolPort: Send + Sync + fmt::Debug {
    /// The tools for a toolbox.
    fn open(&self, toolbox: Arc<Toolbox>) -> Boxed<Offer>;

    /// Calls one. A call that is cancelled ends soon, after everything that it started is gone.
    fn call(&self, call: ToolCall, cancel: CancellationToken) -> Boxed<ToolReply>;
}

/// What runs a process. Blocks.
pub type Perform = Box<dyn FnOnce() -> Result<ProcessEnd, Cancelled> + Send>;

/// Sends a request to a model.
pub type Ask = Box<dyn FnOnce(Request) -> Boxed<Result<Answer, CallFailure>> + Send>;

/// What everything passes that a run has somebody else do: the layers of its app. What they leave as it is comes out as
/// it was. Calls of tools pass them in their [`ToolPort`].
pub trait Passage: Send + Sync + fmt::Debug {
    /// What comes of a call whose process `perform` runs, once or not at all. `given_up` also gives up whatever the
    /// layers have begun.
    fn process(
        &self,
        call: &ProcessCall,
        given_up: CancellationToken,
        perform: Perform,
    ) -> Boxed<Result<ProcessEnd, Cancelled>>;

    /// What comes of a request that `ask` sends, once or not at all.
    fn model(&self, effect: &EffectId, request: Request, ask: Ask) -> Boxed<Result<Answer, CallFailure>>;
}

/// No tools: for runs without agents.
#[derive(Debug)]
pub struct NoTools;

impl ToolPort for NoTools {
    fn open(&self, _toolbox: Arc<Toolbox>) -> Boxed<Offer> {
        Box::pin(std::future::ready(Offer::default()))
    }

    fn call(&self, call: ToolCall, _cancel: CancellationToken) -> Boxed<ToolReply> {
        let message = format!("there is no tool `{}` here", call.name);
        let result = ToolResult::terminal("ToolNotRegistered", &message);
        Box::pin(std::future::ready(ToolReply::Done(result)))
    }
}

/// Everything that effects are performed with.
#[derive(Debug, Clone)]
pub struct Host {
    /// Runs processes.
    pub processes: Arc<ProcessHost>,
    /// Asks models.
    pub models: Arc<dyn ModelPort>,
    /// Finds and calls the tools of agents.
    pub tools: Arc<dyn ToolPort>,
    /// Keeps cached outputs.
    pub engine: Arc<dyn Engine>,
    /// How cached outputs are used.
    pub cache: CacheUse,
    /// What processes and answers of models pass; `None`: nothing.
    pub passage: Option<Arc<dyn Passage>>,
}

/// How a run uses cached outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// The app's directory, for listings.
    pub app: String,
    /// Nothing is looked up: every step is done again, and its output stored.
    pub refresh: bool,
}

impl CacheUse {
    /// Whose an output is that the effect `id` stores.
    fn label(&self, id: &EffectId) -> CacheLabel {
        let place = id.as_str().split('!').next().unwrap_or_default();
        let (pipeline, step) = place.split_once('/').unwrap_or((place, ""));
        CacheLabel { app: self.app.clone(), pipeline: pipeline.to_owned(), step: step.to_owned() }
    }
}

/// The way back from effects under way. Ends have a channel of their own: a process that floods stderr holds up
/// neither its own timeout nor anybody else's end.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    /// An effect came to its end; `None` if whoever performed it panicked.
    pub(crate) ends: mpsc::UnboundedSender<(EffectId, Option<Completed>)>,
    /// A process wrote to stderr. The channel is short, so that the process waits for whoever watches.
    pub(crate) stderr: mpsc::Sender<(EffectId, Vec<u8>)>,
    /// Where models tell their answers and waits.
    pub(crate) voices: Arc<Voices>,
    /// Models stream their answers.
    pub(crate) hears_answers: bool,
}

/// A hold on an effect under way.
#[derive(Debug)]
pub(crate) enum Handle {
    Process(Cancel, CancellationToken),
    Task(CancellationToken),
    /// It cannot be hurried, and does not take long.
    Short,
}

impl Handle {
    /// Asks the effect to end soon; its end still arrives as a message.
    pub(crate) fn cancel(&self) {
        match self {
            Self::Process(cancel, token) => {
                cancel.cancel();
                token.cancel();
            }
            Self::Task(token) => token.cancel(),
            Self::Short => {}
        }
    }
}

impl Host {
    /// Begins an effect. Its end arrives as a message; when it is cancelled that is [`Outcome::Abandoned`] or
    /// [`Outcome::Stopped`], after everything that it had started is gone.
    pub(crate) fn begin(&self, id: EffectId, effect: Effect, out: Way) -> Handle {
        match effect {
            Effect::Process(call) => self.begin_process(id, *call, out),
            Effect::Model(request) => self.begin_call(id, *request, out),
            Effect::Open(toolbox) => {
                let offer = self.tools.open(toolbox);
                begin_future(id, out, async move { Outcome::Opened(Box::new(offer.await)) })
            }
            Effect::Tool(call) => self.begin_tool(id, *call, out),
            Effect::Scan(scan) => {
                let models = Arc::clone(&self.models);
                begin_short(id, out, move || Outcome::Scanned(models.secrets_in(&scan.text, &scan.typed)))
            }
            Effect::Sleep { ms, .. } => begin_sleep(id, ms, out),
            Effect::Recall { key, ttl_ms } => {
                let engine = (!self.cache.refresh).then(|| Arc::clone(&self.engine));
                // A cache that fails is a cache that misses: the step can always be done.
                let recall = move || engine.and_then(|engine| engine.recall(key, ttl_ms).unwrap_or_default());
                begin_short(id, out, move || Outcome::Recalled(recall()))
            }
            Effect::Remember { key, output } => {
                let (engine, label) = (Arc::clone(&self.engine), self.cache.label(&id));
                begin_short(id, out, move || {
                    let _ = engine.remember(key, &output, &label);
                    Outcome::Remembered
                })
            }
            // Gates are answered by the driver; nothing is performed.
            Effect::Gate(_) => Handle::Short,
        }
    }

    fn begin_call(&self, id: EffectId, request: Request, out: Way) -> Handle {
        let (models, listener) = (Arc::clone(&self.models), out.voices.listener(&id));
        let is_streaming = out.hears_answers;
        let ask = move |request| {
            let answer = match is_streaming {
                true => models.call_aloud(request, listener),
                false => models.call_watched(request, listener),
            };
            // Innermost: whatever is around the call has a turn of its own, and waits for this one.
            let in_turn = async move {
                let _turn = Turn::ready().await;
                answer.await
            };
            Box::pin(in_turn) as _
        };
        let answer = match &self.passage {
            Some(passage) => passage.model(&id, request, Box::new(ask)),
            None => ask(request),
        };
        begin_future(id, out, async move {
            match answer.await {
                Ok(answer) => Outcome::Answer(Box::new(answer)),
                Err(failure) => Outcome::CallFailed(failure),
            }
        })
    }

    /// A tool is asked to end, not dropped: whatever it has started must be gone first.
    fn begin_tool(&self, id: EffectId, call: ToolCall, out: Way) -> Handle {
        let cancel = CancellationToken::new();
        let handle = Handle::Task(cancel.clone());
        let reply = self.tools.call(call, cancel.clone());
        let performance = Performance::of(id, out);
        tokio::spawn(async move {
            let reply = reply.await;
            let outcome = if cancel.is_cancelled() { Outcome::Abandoned } else { Outcome::Tool(Box::new(reply)) };
            performance.finish(outcome);
        });
        handle
    }

    fn begin_process(&self, id: EffectId, call: ProcessCall, out: Way) -> Handle {
        let (cancel, given_up) = (Cancel::new(), CancellationToken::new());
        let handle = Handle::Process(cancel.clone(), given_up.clone());
        let (effect, stderr) = (id.clone(), out.stderr.clone());
        // Waits for whoever watches.
        let mut hear = move |bytes: &[u8]| {
            let _ = stderr.blocking_send((effect.clone(), bytes.to_vec()));
        };
        let processes = Arc::clone(&self.processes);
        let outcome_of = move |ended| match ended {
            Ok(end) => Outcome::Process(end),
            Err(Cancelled(stderr)) if stderr.bytes == 0 => Outcome::Abandoned,
            Err(Cancelled(stderr)) => Outcome::Stopped(stderr),
        };
        let Some(passage) = &self.passage else {
            begin_short(id, out, move || outcome_of(processes.run(&call, &cancel, &mut hear)));
            return handle;
        };
        let call = Arc::new(call);
        let own = Arc::clone(&call);
        let perform = Box::new(move || processes.run(&own, &cancel, &mut hear));
        let ended = passage.process(&call, given_up, perform);
        let performance = Performance::of(id, out);
        tokio::spawn(async move { performance.finish(outcome_of(ended.await)) });
        handle
    }
}

/// Does what may be dropped at any time.
fn begin_future(id: EffectId, out: Way, work: impl Future<Output = Outcome> + Send + 'static) -> Handle {
    let cancel = CancellationToken::new();
    let handle = Handle::Task(cancel.clone());
    let performance = Performance::of(id, out);
    tokio::spawn(async move {
        performance.finish(tokio::select! {
            outcome = work => outcome,
            () = cancel.cancelled() => Outcome::Abandoned,
        });
    });
    handle
}

fn begin_sleep(id: EffectId, ms: u64, out: Way) -> Handle {
    let cancel = CancellationToken::new();
    let handle = Handle::Task(cancel.clone());
    let performance = Performance::of(id, out);
    tokio::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => performance.finish(Outcome::Slept),
            // The driver has already let go of a timer that it gives up.
            () = cancel.cancelled() => {}
        }
    });
    handle
}

/// Does `work` on a thread where it may block.
fn begin_short(id: EffectId, out: Way, work: impl FnOnce() -> Outcome + Send + 'static) -> Handle {
    let performance = Performance::of(id, out);
    tokio::task::spawn_blocking(move || performance.finish(work()));
    Handle::Short
}

/// An effect under way. It reports its end, also when it panics: a run that waits for it would wait for ever.
struct Performance {
    id: Option<EffectId>,
    start: Instant,
    out: Way,
}

impl Performance {
    fn of(id: EffectId, out: Way) -> Self {
        Self { id: Some(id), start: Instant::now(), out }
    }

    /// Reports the end. Nobody listens any more when the run has come to a stop.
    fn finish(mut self, outcome: Outcome) {
        let elapsed_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Some(id) = self.id.take() {
            let _ = self.out.ends.send((id, Some(Completed { outcome, elapsed_ms })));
        }
    }
}

impl Drop for Performance {
    fn drop(&mut self) {
        if let (true, Some(id)) = (std::thread::panicking(), self.id.take()) {
            let _ = self.out.ends.send((id, None));
        }
    }
}
