//! Execution of effects: processes on blocking threads, model calls and timers as futures.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_core::effect::{Effect, EffectId, ProcessCall};
use etude_core::model::{CallFailure, ModelResponse, Piece, Request, Tier};
use etude_core::outcome::{Completed, Outcome, ProcessEnd};
use etude_core::tool::{ToolCall, ToolCalling, ToolList, ToolReply, ToolResult, ToolSelection};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::{self, CacheLabel, Engine};
use crate::stream_buffer::StreamBuffer;
use etude_process::{Cancel, Cancelled, Permit, ProcessHost};

/// A future that can be sent to another thread.
pub type Boxed<T> = engine::Boxed<'static, T>;

/// Receives a response delta by delta. It must not block.
pub type OnDelta = Arc<dyn Fn(Piece<'_>) + Send + Sync>;

/// Port that answers model calls. Dropping the future abandons the call at once.
pub trait ModelPort: Send + Sync + fmt::Debug {
    /// Answers one call.
    fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>>;

    /// Answers one call and streams the response if the model allows it. The response is the same as from
    /// [`ModelPort::call`]; deltas are optional, and none follows after the future has ended.
    fn call_streaming(&self, request: Request, _on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        self.call(request)
    }

    /// Answers one call like [`ModelPort::call`] and reports the waits of the transport as [`Piece::Waiting`].
    fn call_watched(&self, request: Request, _on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        self.call(request)
    }

    /// The same port with one model, `provider/name`, for all tiers; `None` if that cannot be chosen here.
    fn only(&self, _model: &str) -> Option<Arc<dyn ModelPort>> {
        None
    }

    /// The names of the secrets that stand in `text` and not in what the user has typed.
    fn secrets_in(&self, _text: &str, _typed: &str) -> Vec<String> {
        Vec::new()
    }

    /// The model of a tier, as `provider/model`, and the reliability of its tool calls.
    fn tool_calling(&self, _tier: Tier) -> Boxed<(String, ToolCalling)> {
        Box::pin(std::future::ready((String::new(), ToolCalling::Hard)))
    }

    /// Context window of a tier's model in tokens, if known.
    fn window_tokens(&self, _tier: Tier) -> Boxed<Option<u64>> {
        Box::pin(std::future::ready(None))
    }

    /// The models, as `provider/model`, that may answer for a tier and whose responses have no known price: no limit of
    /// money bounds them.
    fn unpriced(&self, _tier: Tier) -> Boxed<Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// Finds and calls the tools of agents.
pub trait ToolPort: Send + Sync + fmt::Debug {
    /// The tools of an agent, from the tools that its step names.
    fn open(&self, tool_selection: Arc<ToolSelection>) -> Boxed<ToolList>;

    /// Calls one tool. A cancelled call ends soon, after everything that it started is gone.
    fn call(&self, call: ToolCall, cancel: CancellationToken) -> Boxed<ToolReply>;
}

/// Runs a process. Blocks.
pub type RunProcess = Box<dyn FnOnce() -> Result<ProcessEnd, Cancelled> + Send>;

/// Sends a request to a model.
pub type SendRequest = Box<dyn FnOnce(Request) -> Boxed<Result<ModelResponse, CallFailure>> + Send>;

/// Middleware of an app around the processes and model calls of its runs. Unchanged calls and outcomes pass as they
/// are. Tool calls pass the middleware in their [`ToolPort`].
pub trait EffectMiddleware: Send + Sync + fmt::Debug {
    /// True if nothing sees processes. The host then runs them itself, and [`EffectMiddleware::process`] is not called.
    fn ignores_processes(&self) -> bool {
        false
    }

    /// End of a call whose process `run_effect` runs, once or never. `given_up` also abandons everything that the
    /// middleware has begun.
    fn process(
        &self,
        call: &ProcessCall,
        given_up: CancellationToken,
        run_effect: RunProcess,
    ) -> Boxed<Result<ProcessEnd, Cancelled>>;

    /// Response to a request that `ask` sends, once or never.
    fn model(&self, effect: &EffectId, request: Request, ask: SendRequest)
    -> Boxed<Result<ModelResponse, CallFailure>>;
}

/// No tools: for runs without agents.
#[derive(Debug)]
pub struct NoTools;

impl ToolPort for NoTools {
    fn open(&self, _tool_selection: Arc<ToolSelection>) -> Boxed<ToolList> {
        Box::pin(std::future::ready(ToolList::default()))
    }

    fn call(&self, call: ToolCall, _cancel: CancellationToken) -> Boxed<ToolReply> {
        let message = format!("no tool `{}` is available", call.name);
        let result = ToolResult::terminal("ToolNotRegistered", &message);
        Box::pin(std::future::ready(ToolReply::Done(result)))
    }
}

/// The ports and settings with which effects run.
#[derive(Debug, Clone)]
pub struct Host {
    /// The port to processes.
    pub processes: Arc<ProcessHost>,
    /// The port through which steps and agents ask providers.
    pub models: Arc<dyn ModelPort>,
    /// Finds and calls the tools of agents.
    pub tools: Arc<dyn ToolPort>,
    /// Keeps cached outputs.
    pub engine: Arc<dyn Engine>,
    /// Use of cached outputs by this run.
    pub cache: CacheUse,
    /// Middleware around processes and model calls; `None` if there is none.
    pub effect_middleware: Option<Arc<dyn EffectMiddleware>>,
}

/// A run's use of cached outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// The app's directory, for listings.
    pub app: String,
    /// Owner of the outputs that are looked up and stored: tenants share none.
    pub tenant: Option<String>,
    /// True to look up nothing: every step runs again, and its output is stored.
    pub refresh: bool,
}

impl CacheUse {
    /// The key of an output, which differs for each tenant (K-56).
    fn key(&self, key: Digest) -> Digest {
        match &self.tenant {
            None => key,
            Some(tenant) => Digest::of(&[&key.as_bytes()[..], tenant.as_bytes()].concat()),
        }
    }

    /// Origin of an output that the effect `id` stores.
    fn label(&self, id: &EffectId) -> CacheLabel {
        let place = id.as_str().split('!').next().unwrap_or_default();
        let (pipeline, step) = place.split_once('/').unwrap_or((place, ""));
        CacheLabel { app: self.app.clone(), pipeline: pipeline.to_owned(), step: step.to_owned() }
    }
}

/// Channels back from effects under way. Ends have a channel of their own: a process that floods stderr delays neither
/// its own timeout nor the end of another effect.
#[derive(Debug, Clone)]
pub(crate) struct EffectSinks {
    /// End of an effect; `None` if its task panicked.
    pub(crate) ends: mpsc::UnboundedSender<(EffectId, Option<Completed>)>,
    /// Output of processes on stderr. The channel is short, so that the process waits for the observer.
    pub(crate) stderr: mpsc::Sender<(EffectId, Vec<u8>)>,
    /// Deltas and waits of model calls.
    pub(crate) stream_buffer: Arc<StreamBuffer>,
    /// True if models stream their responses.
    pub(crate) streams_completions: bool,
}

/// Handle of an effect under way.
#[derive(Debug)]
pub(crate) enum Handle {
    Process(Cancel, CancellationToken),
    Task(CancellationToken),
    /// A short effect that cannot be cancelled.
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
    /// Begins an effect. Its end arrives as a message; after a cancellation that is [`Outcome::Abandoned`] or
    /// [`Outcome::Stopped`], once everything that the effect had started is gone.
    pub(crate) fn begin(&self, id: EffectId, effect: Effect, out: EffectSinks) -> Handle {
        match effect {
            Effect::Process(call) => self.begin_process(id, *call, out),
            Effect::Model(request) => self.begin_call(id, *request, out),
            Effect::Open(tool_selection) => {
                let tool_list = self.tools.open(tool_selection);
                begin_future(id, out, async move { Outcome::Opened(Box::new(tool_list.await)) })
            }
            Effect::Tool(call) => self.begin_tool(id, *call, out),
            Effect::Scan(scan) => {
                let models = Arc::clone(&self.models);
                begin_short(id, out, move || Outcome::Scanned(models.secrets_in(&scan.text, &scan.typed)))
            }
            Effect::Sleep { ms, .. } => begin_sleep(id, ms, out),
            Effect::Recall { key, ttl_ms } => {
                let key = self.cache.key(key);
                let engine = (!self.cache.refresh).then(|| Arc::clone(&self.engine));
                // A failing cache counts as a miss: the step can always run.
                let recall = move || engine.and_then(|engine| engine.recall(key, ttl_ms).unwrap_or_default());
                begin_short(id, out, move || Outcome::Recalled(recall()))
            }
            Effect::Remember { key, output } => {
                let (engine, label) = (Arc::clone(&self.engine), self.cache.label(&id));
                let key = self.cache.key(key);
                begin_short(id, out, move || {
                    let _ = engine.remember(key, &output, &label);
                    Outcome::Remembered
                })
            }
            // The driver answers gates; nothing runs.
            Effect::Gate(_) => Handle::Short,
        }
    }

    fn begin_call(&self, id: EffectId, request: Request, out: EffectSinks) -> Handle {
        let (models, on_delta) = (Arc::clone(&self.models), out.stream_buffer.on_delta(&id));
        let is_streaming = out.streams_completions;
        let ask = move |request| {
            let response = match is_streaming {
                true => models.call_streaming(request, on_delta),
                false => models.call_watched(request, on_delta),
            };
            // Innermost: anything around the call has a permit of its own, and waits for this one.
            let in_turn = async move {
                let _turn = Permit::ready().await;
                response.await
            };
            Box::pin(in_turn) as _
        };
        let response = match &self.effect_middleware {
            Some(effect_middleware) => effect_middleware.model(&id, request, Box::new(ask)),
            None => ask(request),
        };
        begin_future(id, out, async move {
            match response.await {
                Ok(response) => Outcome::Response(Box::new(response)),
                Err(failure) => Outcome::CallFailed(failure),
            }
        })
    }

    /// Begins a tool call. A tool is asked to end, not dropped: everything it has started must be gone first.
    fn begin_tool(&self, id: EffectId, call: ToolCall, out: EffectSinks) -> Handle {
        let cancel = CancellationToken::new();
        let handle = Handle::Task(cancel.clone());
        let reply = self.tools.call(call, cancel.clone());
        let effect_guard = EffectGuard::of(id, out);
        begin_here(async move {
            let reply = reply.await;
            let outcome = if cancel.is_cancelled() { Outcome::Abandoned } else { Outcome::Tool(Box::new(reply)) };
            effect_guard.finish(outcome);
        });
        handle
    }

    fn begin_process(&self, id: EffectId, call: ProcessCall, out: EffectSinks) -> Handle {
        let (cancel, given_up) = (Cancel::new(), CancellationToken::new());
        let handle = Handle::Process(cancel.clone(), given_up.clone());
        let (effect, stderr) = (id.clone(), out.stderr.clone());
        // Blocks until the observer takes the piece.
        let mut on_stderr = move |bytes: &[u8]| {
            let _ = stderr.blocking_send((effect.clone(), bytes.to_vec()));
        };
        let processes = Arc::clone(&self.processes);
        let outcome_of = move |ended| match ended {
            Ok(end) => Outcome::Process(end),
            Err(Cancelled(stderr)) if stderr.bytes == 0 => Outcome::Abandoned,
            Err(Cancelled(stderr)) => Outcome::Stopped(stderr),
        };
        let Some(effect_middleware) = self.effect_middleware.as_ref().filter(|seen| !seen.ignores_processes()) else {
            // Without a task of the runtime, whose thread would first have to wake up, at the beginning and at the end.
            begin_short(id, out, move || match processes.run(&call, &cancel, &mut on_stderr) {
                Ok(end) if given_up.is_cancelled() => outcome_of(Err(Cancelled(end.stderr))),
                ended => outcome_of(ended),
            });
            return handle;
        };
        let call = Arc::new(call);
        let own = Arc::clone(&call);
        let run_effect = Box::new(move || processes.run(&own, &cancel, &mut on_stderr));
        let ended = effect_middleware.process(&call, given_up, run_effect);
        let effect_guard = EffectGuard::of(id, out);
        begin_here(async move { effect_guard.finish(outcome_of(ended.await)) });
        handle
    }
}

/// Begins work on this thread, and leaves the rest to the runtime: a process at its beginning does not wait until another thread
/// has woken up.
fn begin_here(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    // The runtime polls the work again with a waker of its own.
    let mut begin = || work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // After a panic, the guard of the effect has reported its end.
    if catch_unwind(AssertUnwindSafe(&mut begin)).is_ok_and(|polled| polled.is_pending()) {
        tokio::spawn(work);
    }
}

/// Begins work that may be dropped at any time.
fn begin_future(id: EffectId, out: EffectSinks, work: impl Future<Output = Outcome> + Send + 'static) -> Handle {
    let cancel = CancellationToken::new();
    let handle = Handle::Task(cancel.clone());
    let effect_guard = EffectGuard::of(id, out);
    tokio::spawn(async move {
        effect_guard.finish(tokio::select! {
            outcome = work => outcome,
            () = cancel.cancelled() => Outcome::Abandoned,
        });
    });
    handle
}

fn begin_sleep(id: EffectId, ms: u64, out: EffectSinks) -> Handle {
    let cancel = CancellationToken::new();
    let handle = Handle::Task(cancel.clone());
    let effect_guard = EffectGuard::of(id, out);
    tokio::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => effect_guard.finish(Outcome::Slept),
            // The driver has already removed a timer that it abandons.
            () = cancel.cancelled() => {}
        }
    });
    handle
}

/// Runs `work` on a thread where it may block.
fn begin_short(id: EffectId, out: EffectSinks, work: impl FnOnce() -> Outcome + Send + 'static) -> Handle {
    let effect_guard = EffectGuard::of(id, out);
    tokio::task::spawn_blocking(move || effect_guard.finish(work()));
    Handle::Short
}

/// Guard of an effect under way. It reports the end also on a panic: otherwise the run would wait for ever.
struct EffectGuard {
    id: Option<EffectId>,
    start: Instant,
    out: EffectSinks,
}

impl EffectGuard {
    fn of(id: EffectId, out: EffectSinks) -> Self {
        Self { id: Some(id), start: Instant::now(), out }
    }

    /// Reports the end. The receiver is gone once the run has stopped.
    fn finish(mut self, outcome: Outcome) {
        let elapsed_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Some(id) = self.id.take() {
            let _ = self.out.ends.send((id, Some(Completed { outcome, elapsed_ms })));
        }
    }
}

impl Drop for EffectGuard {
    fn drop(&mut self) {
        if let (true, Some(id)) = (std::thread::panicking(), self.id.take()) {
            let _ = self.out.ends.send((id, None));
        }
    }
}
