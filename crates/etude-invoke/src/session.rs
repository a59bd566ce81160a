//! Runs invocations: drives the chain machine, runs the functions of tools, and serves their requests.
//!
//! The machine of a session is behind a lock. A new invocation, the end of a function and a request of a program each take the
//! lock and run the only loop, `State::pump`, until the machine waits again. An invocation has one channel, on which the
//! session reports when its own function is due and when it is over.

mod caller;
mod events;
mod process;
mod requests;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use crate::chain::{
    CallId, Command, Context, ContextId, Event, EventKind, Machine, Options, Outcome, Payload, Swallowed, Throw,
    ThrowKind, Token, Tool,
};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{ChildEnvironment, HostSettings, ProcessHost, Redaction, StreamRedactor};
use etude_spec::cascade::skill::SkillHandler;
use etude_spec::cascade::strategy::{EntryArguments, SwallowedThrow};
use etude_spec::cascade::{Skill, Skills};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::call::HostCall;
use crate::middleware::{CONFIRMATION, Decisions, GATEWAY, Shared};
use crate::project::Project;
use crate::table::Table;
use etude_runtime::clock::now_ms;
use etude_runtime::run_id;

pub use caller::{BuiltinTool, Caller, Gateway, Handler};
pub use watch::{Silent, Watch};

/// The directive that runs a script.
const SCRIPT: &str = "script";

/// Resources and permissions of a session.
#[derive(Clone)]
pub struct Access {
    /// The run that the session belongs to. Programs of middleware carry its id, by which a resume finds those that outlived a
    /// dead runner.
    pub run_id: Option<String>,
    /// A directory for sockets and long outputs. The session makes its own folder in it, and removes it at the end.
    pub scratch: PathBuf,
    /// Skips the questions of trust rules; denials still hold.
    pub yolo: bool,
    /// Variables for `:env[…]`.
    pub env: BTreeMap<String, String>,
    /// Variables hidden from code tools.
    pub withheld_env: Vec<String>,
    /// Redacts the stderr of code tools.
    pub redactor: Option<Arc<dyn StreamRedactor>>,
    /// Variables that code tools get besides the inherited ones.
    pub extra_env: Vec<(String, OsString)>,
    /// The gateway that answers questions; `None`: no one can be asked.
    pub gateway: Option<Arc<dyn Gateway>>,
    /// Functions of tools without a file, by name.
    pub handlers: BTreeMap<String, BuiltinTool>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("scratch", &self.scratch).field("yolo", &self.yolo).finish_non_exhaustive()
    }
}

/// Result of an invocation from outside.
#[derive(Debug)]
pub struct Ended {
    /// The result of the tool, or the throw that ended it.
    pub outcome: Outcome,
    /// `{"tool", "args", "timestamp"}` of each invocation that led here, oldest first.
    pub history: Vec<Value>,
    /// True if the user stopped it.
    pub is_cancelled: bool,
}

/// The invocations of one project, in one machine. Clones share them.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Notified when the session becomes idle.
    idle: Notify,
    /// Cancels all invocations of the session.
    stop: CancellationToken,
}

/// A weak reference to a session, for work that it has started and that must not keep it alive.
#[derive(Clone)]
struct Handle(Weak<Inner>);

/// A message to an invocation.
#[derive(Debug)]
pub(crate) enum Signal {
    /// The invocation's own function is due.
    Run(CallId),
    /// The invocation is over.
    Finished(Outcome, Option<Box<Context>>),
}

pub(crate) struct Begun {
    session: Session,
    signals: mpsc::UnboundedReceiver<Signal>,
    running: Option<CallId>,
}

/// The machine of a session, with everything that its invocations need.
struct State {
    machine: Machine,
    table: Table,
    access: Access,
    watch: Box<dyn Watch>,
    /// Started for the first program.
    processes: Option<Arc<ProcessHost>>,
    run_id: String,
    /// Distinguishes its programs from those of other sessions of the same run.
    own_id: String,
    dir: PathBuf,
    scratch: PathBuf,
    own: Handle,
    /// Invocations from outside that have not ended.
    waiting: BTreeMap<ContextId, mpsc::UnboundedSender<Signal>>,
    /// Ended functions that the machine has not received yet.
    ends: VecDeque<(CallId, Outcome)>,
    replies: BTreeMap<Token, oneshot::Sender<Outcome>>,
    /// Tasks that run beside a function and end with it.
    beside: BTreeMap<CallId, Vec<JoinHandle<()>>>,
    /// Tokens that abandon an invocation from outside, with everything that it has begun.
    tokens: BTreeMap<ContextId, CancellationToken>,
    /// Start times of invocations, for observers.
    begun: BTreeMap<ContextId, Instant>,
    /// Handlers of events that have not ended.
    handlers: Vec<ContextId>,
    events: events::Events,
    stop: CancellationToken,
    /// Number of sockets opened so far.
    sockets: u64,
}

impl Session {
    /// A session of a project. With `is_observed`, `watch` receives every invocation.
    ///
    /// # Errors
    /// The session's directory cannot be opened.
    pub fn new(project: Project, access: Access, watch: Box<dyn Watch>, is_observed: bool) -> io::Result<Self> {
        let mut state = State::new(project, access, watch, is_observed)?;
        let stop = state.stop.clone();
        Ok(Self(Arc::new_cyclic(|own| {
            state.own = Handle(Weak::clone(own));
            Inner { state: Mutex::new(state), idle: Notify::new(), stop }
        })))
    }

    /// Invokes a skill and waits for everything that follows, including handlers of its events. When `stopped` ends, the rest
    /// is abandoned.
    pub async fn invoke(&self, name: &str, args: Value, stopped: impl Future<Output = ()>) -> Ended {
        tokio::pin!(stopped);
        let begin = |state: &mut State| state.machine.invoke(&mut state.table, name, args, Options::default());
        let mut begun = self.begin(begin, None);
        let (outcome, context) = loop {
            tokio::select! {
                signal = begun.next() => match signal {
                    Signal::Run(call) => begun.end(call, Err(Throw::new(ThrowKind::Unknown, name, "it has no handler"))),
                    Signal::Finished(outcome, context) => break (outcome, context),
                },
                // The resulting throws end the invocation.
                () = &mut stopped, if !self.0.stop.is_cancelled() => self.stop(),
            }
        };
        self.settle(stopped).await;
        let history = context.map(|context| context.history()).unwrap_or_default();
        Ended { outcome, history, is_cancelled: self.0.stop.is_cancelled() }
    }

    /// Begins an invocation of the host. `given_up` abandons it, with the programs of its middleware.
    pub(crate) fn open(
        &self,
        tool: Arc<Tool>,
        args: Arc<Value>,
        call: Arc<HostCall>,
        given_up: CancellationToken,
    ) -> Begun {
        let options = Options { payload: Some(Payload(call)), ..Options::default() };
        self.begin(|state| state.machine.invoke_tool(tool, args, options), Some(given_up))
    }

    fn begin(&self, begin: impl FnOnce(&mut State) -> ContextId, given_up: Option<CancellationToken>) -> Begun {
        let (to, signals) = mpsc::unbounded_channel();
        self.0.update(|state| {
            state.set_time();
            let id = begin(state);
            state.waiting.insert(id, to);
            given_up.map(|given_up| state.tokens.insert(id, given_up));
        });
        Begun { session: self.clone(), signals, running: None }
    }

    /// Waits until the session is idle. When `stopped` ends, the rest is abandoned.
    pub async fn settle(&self, stopped: impl Future<Output = ()>) {
        tokio::pin!(stopped);
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            idle.as_mut().enable();
            if self.0.state().is_idle() {
                return;
            }
            tokio::select! {
                () = idle => {}
                () = &mut stopped, if !self.0.stop.is_cancelled() => self.stop(),
            }
        }
    }

    fn stop(&self) {
        self.0.stop.cancel();
        self.0.update(State::stop_waiting);
    }

    /// Kills leftover processes and removes the directory of sockets. Blocks.
    pub fn close(&self) {
        let (processes, scratch) = {
            let mut state = self.0.state();
            std::mem::take(&mut state.beside).into_values().flatten().for_each(|task| task.abort());
            (state.processes.clone(), state.scratch.clone())
        };
        if let Some(processes) = processes {
            processes.kill_leftovers();
        }
        // A directory that cannot be removed now lies among temporary files.
        let _ = std::fs::remove_dir_all(scratch);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change and runs the machine.
    fn update<T>(&self, news: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let given = news(&mut state);
        state.pump();
        if state.is_idle() {
            self.idle.notify_waiters();
        }
        given
    }
}

impl Handle {
    /// Applies a change to the session; `None` if the session is gone.
    fn update<T>(&self, news: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.0.upgrade().map(|session| session.update(news))
    }

    /// Reports the end of a function.
    fn end(&self, call: CallId, outcome: Outcome) {
        self.update(|state| state.end(call, outcome));
    }
}

impl Begun {
    /// The next signal. None follows [`Signal::Finished`].
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = self.signals.recv().await;
        if let Some(Signal::Run(call)) = &signal {
            self.running = Some(*call);
        }
        signal.unwrap_or_else(|| {
            let why = "internal error: the middleware chain ended without an outcome";
            Signal::Finished(Err(Throw::new(ThrowKind::Environment, "host", why)), None)
        })
    }

    /// Reports the end of the invocation's own function.
    pub(crate) fn end(&mut self, call: CallId, outcome: Outcome) {
        self.running = None;
        self.session.0.update(|state| state.end(call, outcome));
    }
}

impl Drop for Begun {
    /// Dropping an invocation abandons its function; one that is due afterwards does not run.
    fn drop(&mut self) {
        self.signals.close();
        let mut left: Vec<CallId> = self.running.take().into_iter().collect();
        while let Ok(signal) = self.signals.try_recv() {
            if let Signal::Run(call) = signal {
                left.push(call);
            }
        }
        for call in left {
            let over = Err(Throw::new(ThrowKind::Failed, "host", "its invocation has ended"));
            self.session.0.update(|state| state.end(call, over));
        }
    }
}

impl State {
    fn new(mut project: Project, access: Access, watch: Box<dyn Watch>, is_observed: bool) -> io::Result<Self> {
        let own_id = run_id::new();
        // Two processes may continue one run, one after the other: each has its own directory.
        let scratch = access.scratch.join(format!("etude-{own_id}"));
        let run_id = access.run_id.clone().unwrap_or_else(|| own_id.clone());
        register(&mut project, &access);
        let globals = project.globals();
        let strategy = project.scope.strategy;
        let dir = project.dir.clone();
        let shared = Shared {
            roots: etude_tools::Roots::new(&project.dir, &[], &[])?,
            dir: project.dir,
            strategy,
            catalog: project.catalog,
            searched: project.searched,
            config: project.scope.overrides.config.clone(),
            env: access.env.clone(),
            yolo: access.yolo,
            decisions: Mutex::new(Decisions::default()),
            schemas: Mutex::default(),
        };
        let mut machine = Machine::new(globals);
        machine.is_observed = is_observed;
        machine.entries_get_values = strategy.entry_arguments == EntryArguments::Value;
        machine.swallowed = match strategy.swallowed_throw {
            SwallowedThrow::Ends => Swallowed::Ends,
            SwallowedThrow::GoesOn => Swallowed::GoesOn,
        };
        Ok(Self {
            machine,
            table: Table::new(Arc::new(shared), project.scope),
            access,
            watch,
            processes: None,
            run_id,
            own_id,
            dir,
            scratch,
            own: Handle(Weak::new()),
            waiting: BTreeMap::new(),
            ends: VecDeque::new(),
            replies: BTreeMap::new(),
            beside: BTreeMap::new(),
            tokens: BTreeMap::new(),
            begun: BTreeMap::new(),
            handlers: Vec::new(),
            events: events::Events::default(),
            stop: CancellationToken::new(),
            sockets: 0,
        })
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.handlers.is_empty()
    }

    /// Executes the machine's commands until it waits. The only loop of a session.
    fn pump(&mut self) {
        self.set_time();
        loop {
            while let Some(command) = self.machine.poll(&mut self.table) {
                self.execute_commands(command);
            }
            let Some((call, outcome)) = self.ends.pop_front() else { return };
            self.machine.finish(call, outcome);
        }
    }

    fn execute_commands(&mut self, command: Command) {
        match command {
            Command::Run { call, context } => self.run(call, context),
            Command::Reply { token, outcome, .. } => {
                if let Some(reply) = self.replies.remove(&token) {
                    // A script that closed its socket needs no reply.
                    let _ = reply.send(outcome);
                }
            }
            Command::Finished { context, outcome } if self.handlers.contains(&context) => {
                self.handled(context, outcome);
            }
            Command::Finished { context, outcome } => {
                let taken = self.machine.take(context).map(Box::new);
                self.tokens.remove(&context);
                if let Some(to) = self.waiting.remove(&context) {
                    // The caller may have been dropped.
                    let _ = to.send(Signal::Finished(outcome, taken));
                }
            }
            Command::Event(event) => self.report(&event),
        }
    }

    fn report(&mut self, event: &Event) {
        let took = match event.kind {
            EventKind::Started => {
                self.begun.insert(event.context, Instant::now());
                None
            }
            EventKind::Ended | EventKind::Failed(_) => self.begun.remove(&event.context).map(|begun| begun.elapsed()),
        };
        self.watch.event(event, took);
    }

    /// The host of the session's programs, started on first use.
    fn processes(&mut self) -> Arc<ProcessHost> {
        let made = self.processes.get_or_insert_with(|| {
            let settings = HostSettings {
                run_id: self.run_id.clone(),
                app_dir: self.dir.clone(),
                blobs: Arc::new(FileBlobs::new(self.scratch.join("values"), false)),
            };
            let environment = ChildEnvironment::without_keys(&self.access.withheld_env);
            let environment = environment.with(self.access.extra_env.iter().cloned());
            let redaction = Redaction::from(self.access.redactor.clone());
            let host = ProcessHost::builder(settings, environment, redaction, SandboxPolicy::Refused);
            // Processes that middleware leaves running end with the run.
            Arc::new(host.guest(self.access.run_id.is_some()).build())
        });
        Arc::clone(made)
    }

    /// The session's directory for sockets, accessible to its owner only.
    fn scratch(&self) -> io::Result<&Path> {
        etude_files::private::create_missing_dirs(&self.scratch)?;
        Ok(&self.scratch)
    }

    fn set_time(&mut self) {
        self.machine.set_time(u64::try_from(now_ms()).unwrap_or(0));
    }

    fn handled(&mut self, context: ContextId, outcome: Outcome) {
        self.handlers.retain(|handler| *handler != context);
        let taken = self.machine.take(context);
        if let (Some(context), Err(throw)) = (taken, outcome) {
            self.watch.log(&context.tool.name, "error", &throw.message);
        }
    }

    /// Reports the end of a function.
    fn end(&mut self, call: CallId, outcome: Outcome) {
        self.beside.remove(&call).into_iter().flatten().for_each(|task| task.abort());
        self.ends.push_back((call, outcome));
    }

    /// Runs the function of a tool.
    fn run(&mut self, call: CallId, context: ContextId) {
        let Some(context) = self.machine.context(context) else { return };
        if *context.tool.name == *CONFIRMATION {
            return self.begin_confirmation(call);
        }
        if HostCall::of(context).is_some() {
            let to = self.waiting.get(&context.id);
            if to.is_none_or(|to| to.send(Signal::Run(call)).is_err()) {
                let over = Throw::new(ThrowKind::Failed, &context.tool.name, "its invocation has ended");
                self.end(call, Err(over));
            }
            return;
        }
        let (tool, args) = (Arc::clone(&context.tool), Arc::clone(&context.args));
        let skill = self.table.skill(&tool);
        let is_native = skill.as_ref().is_some_and(|skill| skill.body == SkillHandler::BuiltinTool);
        if is_native && self.access.handlers.contains_key(&*tool.name) {
            return self.begin_native(call, &tool.name, args);
        }
        if is_native && events::is_tool(&tool.name) {
            return self.begin_event(call, &tool.name, &args);
        }
        if is_native && *tool.name == *SCRIPT {
            return self.begin_script(call, &args);
        }
        match skill {
            Some(skill) if *tool.name == *GATEWAY && skill.dir.is_empty() => self.begin_question(call, (*args).clone()),
            Some(skill) => self.begin_process(call, &skill),
            None => self.end(call, Err(Throw::new(ThrowKind::Unknown, &tool.name, "it has no handler"))),
        }
    }

    /// Asks a person to confirm the served call.
    fn begin_confirmation(&mut self, call: CallId) {
        let served = self.machine.contexts_of(call).and_then(|(_, target)| HostCall::of(target));
        let Some(confirmation) = served.and_then(|served| served.checks.confirmation.clone()) else {
            return self.end(call, Ok(None));
        };
        let own = self.own.clone();
        tokio::task::spawn_blocking(move || own.end(call, confirmation.confirm().map(|()| None)));
    }

    fn begin_native(&mut self, call: CallId, name: &str, args: Arc<Value>) {
        let context = self.machine.contexts_of(call).map(|(context, _)| context);
        let served = context.and_then(|context| context.caller.or(context.parent)).map(|parent| self.served(parent));
        let caller = self.caller(call, served);
        let Some(builtin_tools) = self.access.handlers.get(name) else { return };
        let (work, own) = (builtin_tools.handler.run(args, caller), self.own.clone());
        tokio::spawn(async move { own.end(call, work.await) });
    }

    /// The token that abandons the outer invocation of a running function.
    fn token_of(&self, call: CallId) -> CancellationToken {
        let mut at = self.machine.contexts_of(call).map(|(own, _)| own);
        while let Some(parent) = at.and_then(|context| self.machine.context(context.parent?)) {
            at = Some(parent);
        }
        at.and_then(|root| self.tokens.get(&root.id)).unwrap_or(&self.stop).clone()
    }

    /// The tool that an entry serves, directly or through other entries.
    fn served(&self, id: ContextId) -> ContextId {
        let mut at = id;
        while let Some(target) = self.machine.context(at).and_then(|context| context.target) {
            at = target;
        }
        at
    }

    fn begin_question(&mut self, call: CallId, question: Value) {
        let (gateway, own) = (self.access.gateway.clone(), self.own.clone());
        tokio::task::spawn_blocking(move || {
            let answer = gateway.and_then(|gateway| gateway.ask(&question));
            let no_one = || Throw::new(ThrowKind::Waiting, GATEWAY, "no answer was given");
            own.end(call, answer.map(Some).ok_or_else(no_one));
        });
    }
}

/// Registers the tools without a file.
fn register(project: &mut Project, access: &Access) {
    if access.gateway.is_some() && project.catalog.find(GATEWAY).is_none() {
        let hidden = ("visibility".to_owned(), json!("hidden"));
        let metadata = Map::from_iter([hidden, ("params".to_owned(), json!({"type": "object"}))]);
        project.catalog.register(Skill::programmatic(GATEWAY, "Asks the user.", metadata));
    }
    for (name, builtin_tools) in &access.handlers {
        // Some of them are described in the library.
        if builtin_tools.description.is_some() || project.catalog.find(name).is_none() {
            let description = builtin_tools.description.as_deref().unwrap_or_default();
            let mut skill = Skill::programmatic(name, description, builtin_tools.metadata.clone());
            if let Some(uri) = &builtin_tools.uri {
                skill = skill.at(uri);
            }
            project.catalog.register(skill);
        }
    }
}

#[cfg(test)]
mod tests;
