//! Starts and resumes runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use etude_core::effect::EffectId;
use etude_core::effect::Gate;
use etude_core::failure::Failure;
use etude_core::machine::{ABI, Limits, Machine};
use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Tier, Usage};
use etude_core::report::{self, Status};
use etude_models::Redactor;
use etude_process::sandbox::SandboxSettings;
use etude_process::{ChildEnvironment, HostSettings, ProcessHost, PythonWorker, Redaction};
use etude_runtime::driver::{self, Drive, Driven, MiddlewareEvent, Progress, Stop};
use etude_runtime::engine::{self, Engine, NewRun, Placement, RunState, Session};
use etude_runtime::host::{Boxed, CacheUse, EffectMiddleware, Host, ModelPort, ToolPort};
use etude_runtime::meter::{Meter, Metered};
use etude_runtime::record::{self, Continuation};
use etude_spec::source::Sources;
use serde_json::Map;
use tokio::sync::{mpsc, watch};

use crate::active;
use crate::agent::{Grants, RunTools};
use crate::budget::{self, Unpriced};
use crate::definition::Definition;
use crate::event_redactor::EventRedactor;
use crate::invocation::{EventRelay, Passing, agent::Agent};
use crate::queue;
use crate::resume_plan::{Facts, ResumePlan, files_of, refused_slot};
use etude_evidence::rehearsal::{Answers, Rehearsed};
use etude_invoke::{Access, BuiltinTool, Modules, Project};
use etude_invoke::{Invoker, MiddlewareSettings};
use etude_runs::document::Document;
use etude_runs::header::Header;
pub use etude_runs::header::Request;
use etude_runs::pins::{Change, Pins, Unreadable};
use etude_runs::target::Target;
use etude_runtime::clock::now_ms;
use etude_runtime::run_id;

/// Time that a process has to end after it was asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });

/// Engine, models, grants and process settings, shared by all runs of a program.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Journal and blobs of all runs of this runner.
    pub engine: Arc<dyn Engine>,
    /// The port to the providers, shared by steps and agents.
    pub models: Arc<dyn ModelPort>,
    /// Permissions that the user gives to agents.
    pub grants: Grants,
    /// Variables hidden from scripts: the provider keys that `etude` itself uses.
    pub withheld_env: Vec<String>,
    /// Variables that scripts get besides the inherited ones.
    pub extra_env: Vec<(String, OsString)>,
    /// Settings of the middleware of an app.
    pub middleware: MiddlewareSettings,
    /// Settings of the warm Python interpreter, besides those of steps.
    pub python_worker: PythonWorker,
    /// Settings of sandboxes. `None`: steps that ask for a sandbox fail.
    pub sandboxes: Option<SandboxSettings>,
    /// True if this process starts children only for its runs, so that every leftover child can be killed.
    pub is_exclusive: bool,
}

/// A model port without models: every call fails.
#[derive(Debug, Clone, Copy)]
pub struct NoModels;

impl ModelPort for NoModels {
    fn call(&self, _: etude_core::model::Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        let failure = CallFailure {
            kind: CallFailureKind::Environment,
            message: "no model is configured".to_owned(),
            model: None,
            transport_failures: Vec::new(),
        };
        Box::pin(std::future::ready(Err(failure)))
    }
}

/// Options of a resume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resume {
    /// Accepts a changed definition; effects whose request it changes run again.
    pub accept_changes: bool,
    /// Starts another attempt, or gives the current one new limits ([`crate::attempts`]).
    pub attempt: Option<Continuation>,
}

/// The observer of a run, and the means to stop it.
pub struct Watch<'a> {
    /// Receives each event, including those that a replay repeats (`is_replay`). It must not block.
    pub emit: &'a mut (dyn FnMut(Progress<'_>) + Send),
    /// Receives the user's requests to stop the run.
    pub stop: watch::Receiver<Stop>,
    /// Streams the completions of models ([`Progress::ModelResponse`]). Providers are then asked to stream.
    pub streams_completions: bool,
    /// Reports every invocation with its middleware ([`Progress::Middleware`]). Otherwise only the output of middleware is
    /// reported.
    pub observes_invocations: bool,
}

impl<'a> Watch<'a> {
    /// Passes events to `emit`. The run cannot be stopped from outside.
    pub fn new(emit: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Self {
        Self { emit, stop: watch::channel(Stop::No).1, streams_completions: false, observes_invocations: false }
    }
}

/// The result of a run that has ended or waits.
#[derive(Debug)]
pub struct RunResult {
    /// The run's id in `etude runs`.
    pub run_id: String,
    /// The document that `--format json` prints, also for a run that waits.
    pub document: Document,
    /// Failures in the order of occurrence.
    pub errors: Vec<Failure>,
    /// Open gates: the decisions and times that the run waits for.
    pub gates: Vec<(EffectId, Gate)>,
    /// Limits of the whole run, for all attempts together.
    pub limits: Limits,
}

/// Reason why a run could not be started or continued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal failed, or another process has the run.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The run was stopped by an error.
    #[error("run `{run_id}` stopped: {source}")]
    Drive {
        /// Id of the run, which can be resumed.
        run_id: String,
        /// The error that stopped the driver; the journal up to it is kept.
        source: driver::Error,
    },
    /// A file that defines the run cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The run's definition has changed since it began.
    #[error("the definition of run `{run_id}` has changed since it began")]
    Changed {
        /// Id of the run; nothing was written to it.
        run_id: String,
        /// Pinned files that differ now, ordered by path.
        changes: Vec<Change>,
    },
    /// Another version of the interpreter wrote the run.
    #[error("run `{run_id}` was started by version {found} of the interpreter; this is version {ABI}")]
    OtherAbi {
        /// Id of the run; nothing was written to it.
        run_id: String,
        /// The interpreter version (`ABI`) that the run was begun with.
        found: u32,
    },
    /// The run's machine cannot continue under the current conditions. The run is unchanged.
    #[error("run `{run_id}` cannot continue: {}", failure.message)]
    Refused {
        /// Id of the run that cannot continue.
        run_id: String,
        /// The failure that the run would have ended with, with its code.
        failure: Box<Failure>,
    },
    /// A cost limit that could not be enforced. Nothing has started.
    #[error(transparent)]
    Unpriced(#[from] Unpriced),
    /// The header of the run cannot be read.
    #[error("the header of run `{run_id}` is damaged: {why}")]
    Header {
        /// The run whose header was read.
        run_id: String,
        /// The fault that the reader of the header found, as a sentence fragment.
        why: String,
    },
}

impl Error {
    /// The error of the journal, if that stopped the run.
    pub fn of_engine(&self) -> Option<&engine::Error> {
        match self {
            Self::Engine(error) | Self::Drive { source: driver::Error::Engine(error), .. } => Some(error),
            _ => None,
        }
    }
}

impl Runner {
    /// A runner without grants for agents and without sandboxes for steps. `scratch` is a directory for sockets and long values
    /// of middleware.
    pub fn new(engine: Arc<dyn Engine>, models: Arc<dyn ModelPort>, scratch: PathBuf) -> Self {
        Self {
            engine,
            models,
            grants: Grants::default(),
            withheld_env: Vec::new(),
            extra_env: Vec::new(),
            middleware: MiddlewareSettings { scratch, extra_env: Vec::new() },
            python_worker: PythonWorker::default(),
            sandboxes: None,
            is_exclusive: false,
        }
    }

    /// Starts a run and drives it until it has ended or waits.
    ///
    /// # Errors
    /// The run cannot be started, or the journal fails.
    pub async fn start(
        &self,
        definition: &Definition,
        sources: &dyn Sources,
        request: Request,
        watch: Watch<'_>,
    ) -> Result<RunResult, Error> {
        self.priced(definition, &request.limits, &request.spent).await?;
        let blobs = self.engine.blobs();
        let project = Project::of_app(&definition.app, Modules::Run);
        let pins = Pins::take(sources, &files_of(definition, project.as_ref()), &*blobs)?;
        let placement = Placement { again_of: request.again_of.clone(), ..Placement::default() };
        let header = Header { request, tick: None, learned: definition.learned_now(&*self.engine) };
        let run = NewRun {
            id: run_id::new(),
            app: definition.app.display().to_string(),
            target: definition.target.to_string(),
            abi: ABI,
            created_at_ms: now_ms(),
            header: header.to_text(&*blobs).map_err(|why| engine::Error::Store { path: "input".to_owned(), why })?,
            placement,
        };
        let session = self.engine.create(&run).await?;
        let pinned = pins.to_record(&definition.plan.slots());
        session.append(pinned.clone()).await?;
        let begin = ResumePlan::first(header, project, vec![pinned]);
        self.drive(definition, &*session, &run, begin, watch).await
    }

    /// Begins a queued run that this process has claimed. A run with records is resumed.
    ///
    /// # Errors
    /// The errors of [`Runner::resume`].
    pub async fn begin(
        &self,
        session: Box<dyn Session>,
        definition: &Definition,
        sources: &dyn Sources,
        watch: Watch<'_>,
    ) -> Result<RunResult, Error> {
        // A signal may have arrived before the run began; a resume reads signals first.
        if !session.records()?.is_empty() || !session.signals()?.is_empty() {
            return self.resume(session, definition, sources, Resume::default(), watch).await;
        }
        let run = session.run().clone();
        let project = Project::of_app(&definition.app, Modules::Run);
        let plan = ResumePlan::queued(&run, definition, project, sources, &*self.engine);
        let plan = noting(&*session, plan)?;
        if let Err(unpriced) = self.priced(definition, &plan.header.request.limits, &plan.header.request.spent).await {
            let (failure, limits) = (unpriced.failure(), plan.header.request.limits);
            let document = queue::end(&*self.engine, &*session, Some(definition), failure.clone()).await?;
            return Ok(RunResult { run_id: run.id, document, errors: vec![failure], gates: Vec::new(), limits });
        }
        for record in &plan.records {
            session.append(record.clone()).await?;
        }
        self.drive(definition, &*session, &run, plan, watch).await
    }

    /// Continues a run that was interrupted or waits, or starts another attempt at one that has ended.
    ///
    /// `definition` must be the current one. A machine whose slot has a new version decides itself about a change (B-ST3).
    ///
    /// # Errors
    /// Another process has the run, its definition has changed, or the journal fails.
    pub async fn resume(
        &self,
        session: Box<dyn Session>,
        definition: &Definition,
        sources: &dyn Sources,
        resume: Resume,
        watch: Watch<'_>,
    ) -> Result<RunResult, Error> {
        let run = session.run().clone();
        let facts = Facts::gather(&run, definition, sources, session.records()?, &*self.engine);
        let facts = noting(&*session, facts)?;
        // A run may be cancelled in any condition.
        let is_going_on = !matches!(*watch.stop.borrow(), Stop::Cancel(_) | Stop::Kill(_));
        if is_going_on {
            if let Some(refused) = facts.refused_slot() {
                return Err(refused_slot(&run.id, definition, facts.stored(), refused, &mut *watch.emit));
            }
            self.check_model(definition, &run.id).await?;
            // The current attempt continues with the limits that it began with.
            if resume.attempt.is_some()
                && let Err(unpriced) = self.priced(definition, &facts.limits(&resume), &Usage::default()).await
            {
                return Err(Error::Refused { run_id: run.id, failure: Box::new(unpriced.failure()) });
            }
        }
        let plan = facts.decide(resume, is_going_on)?;
        self.drive(definition, &*session, &run, plan, watch).await
    }

    /// Continues a run after a decision, in the process that has just run it and with the definition that it has. Changes that
    /// the run made to its own files are compared by a later resume.
    ///
    /// # Errors
    /// Another process has the run, or the journal fails.
    pub async fn proceed(
        &self,
        session: Box<dyn Session>,
        definition: &Definition,
        watch: Watch<'_>,
    ) -> Result<RunResult, Error> {
        let run = session.run().clone();
        let plan = ResumePlan::unchanged(&run, definition, session.records()?, &*self.engine)?;
        self.drive(definition, &*session, &run, plan, watch).await
    }

    /// Checks that the machine of a run whose target is a machine can continue with the current model (B-CN3).
    async fn check_model(&self, definition: &Definition, run_id: &str) -> Result<(), Error> {
        let (Target::Machine(_), Some(machine)) = (&definition.target, definition.plan.machines().into_iter().next())
        else {
            return Ok(());
        };
        let (model, claim) = self.models.tool_calling(machine.tier).await;
        let refused = |failure| Error::Refused { run_id: run_id.to_owned(), failure: Box::new(failure) };
        Machine::refused_model(machine, &model, claim).map_or(Ok(()), |failure| Err(refused(failure)))
    }

    /// Refuses a cost limit that this runner cannot enforce for want of model prices. The cost of routing counts towards the
    /// limit.
    async fn priced(&self, definition: &Definition, limits: &Limits, spent: &Usage) -> Result<(), Unpriced> {
        let mut tiers = definition.all_tiers();
        if spent.calls > 0 && spent.cost_usd.is_none() {
            tiers.insert(Tier::Lite);
        }
        budget::priced(&*self.models, tiers, limits).await
    }

    /// Models for calls that are not effects of the run; the meter counts their usage as well.
    fn metered(&self) -> (Arc<Meter>, Arc<dyn ModelPort>) {
        let meter = Arc::new(Meter::default());
        let models = Metered::new(Arc::clone(&self.models), Arc::clone(&meter));
        (meter, Arc::new(models))
    }

    /// The invoker for all middleware chains of the run.
    fn invoker(
        &self,
        run: &NewRun,
        (definition, project): (&Definition, Option<Project>),
        (yolo, models): (bool, &Arc<dyn ModelPort>),
        middleware_events: mpsc::UnboundedSender<MiddlewareEvent>,
        is_observed: bool,
    ) -> Invoker {
        let extra_env = [self.extra_env.clone(), self.middleware.extra_env.clone()].concat();
        let run_id = Some(run.id.clone());
        let redactor = Redactor::for_stderr(self.grants.secrets.iter());
        let mut access =
            Access { run_id, extra_env, redactor, ..self.middleware.access(self.withheld_env.clone(), yolo) };
        // A prompt may be middleware.
        let agent = BuiltinTool {
            description: None,
            uri: None,
            metadata: Map::new(),
            handler: Arc::new(Agent {
                models: Arc::clone(models),
                redactor: Arc::new(Redactor::new(self.grants.secrets.iter())),
            }),
        };
        access.handlers.insert("agent".to_owned(), agent);
        Invoker::open(&definition.app, project, access, Box::new(EventRelay::new(middleware_events)), is_observed)
    }

    fn processes(&self, definition: &Definition, run: &NewRun, header: &Header) -> ProcessHost {
        // A run without a caller's directory is called from the app's directory.
        let caller_dir = match header.request.caller_dir.as_str() {
            "" => definition.app.clone().into_os_string(),
            caller_dir => caller_dir.into(),
        };
        let caller_dir = ("ETUDE_CALLER_DIR".to_owned(), caller_dir);
        let settings =
            HostSettings { run_id: run.id.clone(), app_dir: definition.app.clone(), blobs: self.engine.blobs() };
        let environment = ChildEnvironment::without_keys(&self.withheld_env);
        let tick = header.tick.clone().map(|tick| ("ETUDE_TICK".to_owned(), tick.into()));
        let environment = environment.with(self.extra_env.iter().cloned().chain([caller_dir]).chain(tick));
        let redaction = Redaction::from(Redactor::for_stderr(self.grants.secrets.iter()));
        ProcessHost::builder(settings, environment, redaction, self.sandboxes.clone().into())
            .grace(GRACE)
            .python_worker(self.python_worker.clone())
            .exclusive(self.is_exclusive)
            .build()
    }

    /// The ports for tool calls and effects; in a rehearsal they lead to the rehearsal.
    fn ports(&self, tools: &Arc<RunTools>, invoker: &Invoker) -> (Arc<dyn ToolPort>, Arc<dyn EffectMiddleware>) {
        let tools = Arc::clone(tools) as Arc<dyn ToolPort>;
        let passing = Arc::new(Passing(invoker.clone())) as Arc<dyn EffectMiddleware>;
        match &self.grants.rehearsal {
            Some(rehearsal) => (
                Arc::new(Rehearsed { rehearsal: Arc::clone(rehearsal), tools }),
                Arc::new(Answers { rehearsal: Arc::clone(rehearsal), inner: passing }),
            ),
            None => (tools, passing),
        }
    }

    async fn drive(
        &self,
        definition: &Definition,
        session: &dyn Session,
        run: &NewRun,
        mut plan: ResumePlan,
        mut watch: Watch<'_>,
    ) -> Result<RunResult, Error> {
        let start = plan.start(run, &definition.app, &*self.engine.blobs());
        let (records, project) = (std::mem::take(&mut plan.records), plan.project.take());
        let (header, is_resumed) = (&plan.header, plan.is_resumed);
        let (forwarding, middleware_events) = mpsc::unbounded_channel();
        let (meter, metered) = self.metered();
        let manner = (header.request.granted.yolo, &metered);
        let invoker = self.invoker(run, (definition, project), manner, forwarding, watch.observes_invocations);
        let processes = Arc::new(self.processes(definition, run, header));
        let tools = Arc::new(RunTools::new(
            self.grants.with(&header.request.granted),
            definition,
            (run, header),
            Arc::clone(&processes),
            (metered, Arc::clone(&self.engine)),
            invoker.clone(),
        ));
        let (active, began_at_ms) = active::begun(&*self.engine, run, &records, (session.began_at_ms(), is_resumed));
        let attempt = Continuation::last(&records).map(|(_, last)| last);
        let refresh = header.request.refresh || attempt.as_ref().is_some_and(|attempt| attempt.refresh);
        let (port, effect_middleware) = self.ports(&tools, &invoker);
        let host = Host {
            cache: CacheUse { app: run.app.clone(), tenant: run.placement.tenant.clone(), refresh },
            processes: Arc::clone(&processes),
            models: Arc::clone(&self.models),
            tools: port,
            engine: Arc::clone(&self.engine),
            effect_middleware: Some(effect_middleware),
        };
        let drive = Drive {
            plan: &definition.plan,
            start,
            session,
            records,
            host: &host,
            stop: watch.stop.clone(),
            on_mismatch: plan.on_mismatch,
            streams_completions: watch.streams_completions,
            is_resumed,
            middleware_events: Some(middleware_events),
            meter: Some(Arc::clone(&meter)),
        };
        let passing = EventRedactor::new(&self.grants.secrets);
        let Watch { emit, stop, .. } = &mut watch;
        let mut pass_on = |progress: Progress<'_>| passing.pass_on(progress, emit);
        let opened = plan.open(drive, definition, active, &mut pass_on).await;
        let driven = noting(session, opened)?.run(&mut pass_on).await;
        invoker.close(stopped(stop)).await;
        tools.close().await;
        processes.kill_leftovers();
        let driven = noting(session, driven.map_err(|source| Error::Drive { run_id: run.id.clone(), source }))?;
        let (mut result, gates, wakes_at_ms) = parts(driven);
        result.usage.add(&book(session, &meter).await?);
        passing.redact(&mut result);
        let took = active.saturating_add(u64::try_from(now_ms() - began_at_ms).unwrap_or(0));
        let mut document = Document::of(&run.id, &definition.target, &result, &gates, took);
        document.again_of.clone_from(&header.request.again_of);
        note_end(session, state_of(&result), wakes_at_ms, &document).await?;
        let limits = attempt.map_or(header.request.limits, |attempt| attempt.limits);
        Ok(RunResult { run_id: run.id.clone(), document, errors: result.errors, gates, limits })
    }
}

/// Postpones a run that stops because its large values are unreachable.
fn noting<T>(session: &dyn Session, done: Result<T, Error>) -> Result<T, Error> {
    done.inspect_err(|error| {
        if matches!(error.of_engine(), Some(engine::Error::ValuesAway(_))) {
            session.postpone();
        }
    })
}

async fn note_end(
    session: &dyn Session,
    state: RunState,
    wakes_at_ms: Option<i64>,
    document: &Document,
) -> Result<(), engine::Error> {
    match state {
        RunState::Waiting | RunState::Sleeping => session.suspend(state, wakes_at_ms, &document.to_journal()).await,
        state => session.set_state(state, Some(&document.to_journal())).await,
    }
}

/// Journals the model calls of middleware since the run ended, and returns their usage.
async fn book(session: &dyn Session, meter: &Meter) -> Result<Usage, Error> {
    let mut usage = Usage::default();
    for aside in meter.take() {
        let at_ms = u64::try_from(session.now_ms().saturating_sub(session.began_at_ms())).unwrap_or(0);
        session.append(record::of_aside(&aside, at_ms)).await?;
        usage.add(&aside.usage);
    }
    Ok(usage)
}

/// The result so far, the open gates, and the earliest time at which a gate times out.
fn parts(driven: Driven) -> (report::RunResult, Vec<(EffectId, Gate)>, Option<i64>) {
    match driven {
        Driven::Finished(result) => (result, Vec::new(), None),
        Driven::Waiting { so_far, gates, wakes_at_ms } => (so_far, gates, wakes_at_ms),
    }
}

/// Waits until the user stops the run; forever if the sender is gone.
async fn stopped(stop: &mut watch::Receiver<Stop>) {
    if stop.wait_for(|said| *said != Stop::No).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn state_of(result: &report::RunResult) -> RunState {
    match result.status {
        Status::Waiting => RunState::Waiting,
        Status::Sleeping => RunState::Sleeping,
        Status::Succeeded => RunState::Succeeded,
        Status::Failed => RunState::Failed,
        Status::Cancelled => RunState::Cancelled,
    }
}
