//! Runs invocations: drives the chain machine, performs the effects of tools, and answers what they ask for meanwhile.

mod events;
mod process;
mod requests;
mod serve;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::chain::{
    CallId, Command, ContextId, Event, EventKind, Machine, Options, Outcome, Swallowed, Throw, ThrowKind, Token,
};
use etude_runtime::blob::FileBlobs;
use etude_runtime::process::{HostSettings, ProcessHost, StreamRedactor};
use etude_spec::cascade::search::Catalog;
use etude_spec::cascade::skill::SkillHandler;
use etude_spec::cascade::strategy::{EntryArguments, SwallowedThrow};
use etude_spec::cascade::{Scope, Skill, Skills};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(crate) use events::add_handler;
pub(crate) use serve::Incoming;

use crate::Boxed;
use crate::middleware::{Decisions, GATEWAY, Shared};
use crate::project::Project;
use crate::script_host::Ask;
use crate::table::Table;
use etude_runtime::clock::now_ms;
use etude_runtime::run_id;

/// The directive that runs a script.
const SCRIPT: &str = "script";

/// What a session may use.
#[derive(Clone)]
pub struct Access {
    /// The run whose layers these are. Programs of layers then carry its id, by which a resume finds those that have outlived
    /// a dead runner.
    pub run_id: Option<String>,
    /// A directory for sockets and long outputs; a folder of its own in it is made and removed again.
    pub scratch: PathBuf,
    /// Calls that trust rules would ask about pass; denials still hold.
    pub yolo: bool,
    /// What `:env[…]` sees.
    pub env: BTreeMap<String, String>,
    /// Variables that code tools do not get.
    pub withheld_env: Vec<String>,
    /// What is taken out of what they print on stderr.
    pub redactor: Option<Arc<dyn StreamRedactor>>,
    /// Variables that they get besides the inherited ones.
    pub extra_env: Vec<(String, OsString)>,
    /// Who answers questions; `None`: nobody can be asked.
    pub gateway: Option<Arc<dyn Gateway>>,
    /// Functions of tools that have no file, by name.
    pub handlers: BTreeMap<String, BuiltinTool>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("scratch", &self.scratch).field("yolo", &self.yolo).finish_non_exhaustive()
    }
}

/// A tool without a file.
#[derive(Clone)]
pub struct BuiltinTool {
    /// What it is for. A tool that says so itself comes before skills of its name (D-9.1).
    pub description: Option<String>,
    /// Its address, if it has one.
    pub uri: Option<String>,
    /// Its metadata, if no skill of its name is there that has some.
    pub metadata: Map<String, Value>,
    /// Its function.
    pub handler: Arc<dyn Handler>,
}

/// Somebody who answers questions. Blocks.
pub trait Gateway: Send + Sync {
    /// The answer; `None` if there is none.
    fn ask(&self, question: &Value) -> Option<Value>;
}

/// The function of a tool that has no file: the effect at the end of a chain.
pub trait Handler: Send + Sync {
    /// Performs it. What it invokes through `caller` passes chains of its own.
    fn run(&self, args: Value, caller: Caller) -> Boxed<Outcome>;
}

/// The way from a function back to its session.
#[derive(Clone)]
pub struct Caller {
    call: CallId,
    served: Option<ContextId>,
    /// The name of the tool that is served.
    pub serves: Option<Arc<str>>,
    to: mpsc::UnboundedSender<Message>,
    /// Is cancelled when the session is stopped.
    pub cancel: CancellationToken,
    /// Runs its programs.
    pub processes: Arc<ProcessHost>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
    /// The session's own directory.
    pub scratch: PathBuf,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("call", &self.call).field("served", &self.served).finish_non_exhaustive()
    }
}

impl Caller {
    /// The skills that can be called.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    /// What chains of the session are compiled with.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The project's directory.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Invokes a tool on behalf of the tool that is served: its `allowed-tools` hold.
    pub async fn invoke(&self, name: &str, args: Value) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Invoke { name: name.to_owned(), args };
        let message = Message::Asked { call: self.call, ask, as_caller: self.served, reply };
        let gone = || Throw::new(ThrowKind::Failed, name, "the session is over");
        self.to.send(message).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// The answer of the gateway to a question of the function.
    pub async fn ask(&self, question: Value) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let gone = || Throw::new(ThrowKind::Failed, GATEWAY, "the session is over");
        let message = Message::Asked { call: self.call, ask: Ask::Question(question), as_caller: self.served, reply };
        self.to.send(message).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Is told what happens.
pub trait Watch: Send {
    /// An invocation began or ended; then `took` is how long it was.
    fn event(&mut self, event: &Event, took: Option<Duration>);
    /// A tool has something to say.
    fn log(&mut self, tool: &str, level: &str, text: &str);
    /// An event was emitted: `{id, topic, source, data, timestamp}`.
    fn emitted(&mut self, event: &Value);
    /// A code tool wrote to stderr.
    fn stderr(&mut self, tool: &str, text: &[u8]);
}

/// Is told, and says nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Watch for Silent {
    fn event(&mut self, _event: &Event, _took: Option<Duration>) {}
    fn log(&mut self, _tool: &str, _level: &str, _text: &str) {}
    fn emitted(&mut self, _event: &Value) {}
    fn stderr(&mut self, _tool: &str, _text: &[u8]) {}
}

/// How an invocation from outside ended.
#[derive(Debug)]
pub struct Ended {
    /// What came of it.
    pub outcome: Outcome,
    /// Its history.
    pub history: Vec<Value>,
    /// It was stopped by the user.
    pub is_cancelled: bool,
}

/// What comes back to the loop.
#[derive(Debug)]
enum Message {
    /// A function has ended.
    Ended(CallId, Outcome),
    /// A running function asks for something.
    Asked { call: CallId, ask: Ask, as_caller: Option<ContextId>, reply: oneshot::Sender<Outcome> },
    /// A code tool wrote to stderr.
    Stderr(Arc<str>, Vec<u8>),
    /// A call has waited for an event for as long as it wanted.
    WaitedLongEnough(CallId),
}

/// A project with everything that its invocations need.
pub struct Session {
    machine: Machine,
    table: Table,
    access: Access,
    /// Made for the first program.
    processes: OnceLock<Arc<ProcessHost>>,
    run_id: String,
    /// What tells its programs from those of other sessions of the same run.
    own_id: String,
    dir: PathBuf,
    scratch: PathBuf,
    to: mpsc::UnboundedSender<Message>,
    from: mpsc::UnboundedReceiver<Message>,
    replies: BTreeMap<Token, oneshot::Sender<Outcome>>,
    running: BTreeMap<CallId, Running>,
    /// Invocations from outside that have ended and that nobody was told of.
    ended: BTreeMap<ContextId, Outcome>,
    /// What gives up an invocation from outside, with everything that it has begun.
    tokens: BTreeMap<ContextId, CancellationToken>,
    /// When invocations began, if anybody wants to know how long they took.
    begun: BTreeMap<ContextId, Instant>,
    /// Handlers of events that have not ended.
    handlers: Vec<ContextId>,
    events: events::Events,
    stop: CancellationToken,
    /// How many sockets there were.
    sockets: u64,
}

/// A hold on what a call has started.
#[derive(Debug)]
struct Running {
    /// Passes on that its invocation was given up.
    watcher: tokio::task::JoinHandle<()>,
    server: Option<tokio::task::JoinHandle<()>>,
}

impl Session {
    /// A session of a project. `is_observed`: whoever watches it wants to hear of every invocation.
    ///
    /// # Errors
    /// Its own directory cannot be opened.
    pub fn new(mut project: Project, access: Access, is_observed: bool) -> io::Result<Self> {
        let own_id = run_id::new();
        // Two processes may go on with one run, one after the other: each has a directory of its own.
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
        let (to, from) = mpsc::unbounded_channel();
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
            processes: OnceLock::new(),
            run_id,
            own_id,
            dir,
            scratch,
            to,
            from,
            replies: BTreeMap::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            tokens: BTreeMap::new(),
            begun: BTreeMap::new(),
            handlers: Vec::new(),
            events: events::Events::default(),
            stop: CancellationToken::new(),
            sockets: 0,
        })
    }

    /// Invokes a skill and runs everything that follows, handlers of its events included, until `stopped` ends.
    pub async fn invoke(
        &mut self,
        name: &str,
        args: Value,
        watch: &mut dyn Watch,
        stopped: impl Future<Output = ()>,
    ) -> Ended {
        tokio::pin!(stopped);
        self.set_time();
        let id = self.machine.invoke(&mut self.table, name, args, Options::default());
        loop {
            self.pump(watch);
            if self.handlers.is_empty()
                && let Some(outcome) = self.ended.remove(&id)
            {
                let history = self.machine.take(id).map(|context| context.history()).unwrap_or_default();
                return Ended { outcome, history, is_cancelled: self.stop.is_cancelled() };
            }
            tokio::select! {
                message = self.from.recv() => match message {
                    Some(message) => self.take(message, watch),
                    None => continue,
                },
                // The throws that follow end the invocation.
                () = &mut stopped, if !self.stop.is_cancelled() => {
                    self.stop.cancel();
                    self.stop_waiting();
                }
            }
        }
    }

    /// Does what the machine wants until it wants nothing more.
    fn pump(&mut self, watch: &mut dyn Watch) {
        self.set_time();
        while let Some(command) = self.machine.poll(&mut self.table) {
            match command {
                Command::Run { call, context } => self.begin(call, context, watch),
                Command::Reply { token, outcome, .. } => {
                    if let Some(reply) = self.replies.remove(&token) {
                        // A script that no longer listens has what it wanted.
                        let _ = reply.send(outcome);
                    }
                }
                Command::Finished { context, outcome } if self.handlers.contains(&context) => {
                    self.handled(context, outcome, watch);
                }
                Command::Finished { context, outcome } => drop(self.ended.insert(context, outcome)),
                Command::Event(event) => self.notify(&event, watch),
            }
        }
    }

    fn notify(&mut self, event: &Event, watch: &mut dyn Watch) {
        let took = match event.kind {
            EventKind::Started => {
                self.begun.insert(event.context, Instant::now());
                None
            }
            EventKind::Ended | EventKind::Failed(_) => self.begun.remove(&event.context).map(|begun| begun.elapsed()),
        };
        watch.event(event, took);
    }

    /// Ends what is left, and removes the directory of sockets.
    pub fn close(self) {
        if let Some(processes) = self.processes.get() {
            processes.kill_leftovers();
        }
        // What cannot be removed now lies in a directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.scratch);
    }

    /// What runs programs.
    fn processes(&self) -> Arc<ProcessHost> {
        let made = self.processes.get_or_init(|| {
            let settings = HostSettings {
                run_id: self.run_id.clone(),
                app_dir: self.dir.clone(),
                withheld_env: self.access.withheld_env.clone(),
                extra_env: self.access.extra_env.clone(),
                grace: etude_runtime::process::DEFAULT_GRACE,
                blobs: Arc::new(FileBlobs::new(self.scratch.join("values"), false)),
            };
            let host = ProcessHost::new(settings).with_redactor(self.access.redactor.clone());
            // What is left of a run's layers ends with the run.
            Arc::new(if self.access.run_id.is_some() { host.guest() } else { host })
        });
        Arc::clone(made)
    }

    /// The directory of sockets, which only its owner can enter.
    fn scratch(&self) -> io::Result<&Path> {
        crate::script_host::make_dir(&self.scratch)?;
        Ok(&self.scratch)
    }

    fn set_time(&mut self) {
        self.machine.set_time(u64::try_from(now_ms()).unwrap_or(0));
    }

    fn handled(&mut self, context: ContextId, outcome: Outcome, watch: &mut dyn Watch) {
        self.handlers.retain(|handler| *handler != context);
        let taken = self.machine.take(context);
        if let (Some(context), Err(throw)) = (taken, outcome) {
            watch.log(&context.tool.name, "error", &throw.message);
        }
    }

    fn take(&mut self, message: Message, watch: &mut dyn Watch) {
        match message {
            Message::Ended(call, outcome) => {
                if let Some(Running { server, watcher }) = self.running.remove(&call) {
                    watcher.abort();
                    server.into_iter().for_each(|server| server.abort());
                }
                self.machine.finish(call, outcome);
            }
            Message::Asked { call, ask, as_caller, reply } => self.asked(call, ask, as_caller, reply, watch),
            Message::Stderr(tool, text) => watch.stderr(&tool, &text),
            Message::WaitedLongEnough(call) => self.waited_long_enough(call),
        }
    }

    /// Begins the effect of a tool.
    fn begin(&mut self, call: CallId, context: ContextId, watch: &mut dyn Watch) {
        let Some(context) = self.machine.context(context) else { return };
        if let Some(work) = crate::invoker::work_of(context, |id| self.machine.context(id)) {
            let to = self.to.clone();
            tokio::spawn(async move { drop(to.send(Message::Ended(call, work.await))) });
            return;
        }
        let (tool, args) = (Arc::clone(&context.tool), Arc::clone(&context.args));
        let skill = self.table.skill(&tool);
        let is_native = skill.as_ref().is_some_and(|skill| skill.body == SkillHandler::BuiltinTool);
        if let Some(builtin_tools) = self.access.handlers.get(&*tool.name).filter(|_| is_native) {
            let served = context.caller.or(context.parent).map(|parent| self.served(parent));
            let caller = self.caller(call, served);
            let (work, to) = (builtin_tools.handler.run((*args).clone(), caller), self.to.clone());
            tokio::spawn(async move { drop(to.send(Message::Ended(call, work.await))) });
            return;
        }
        if is_native && events::is_tool(&tool.name) {
            return self.begin_event(call, &tool.name, &args, watch);
        }
        if is_native && *tool.name == *SCRIPT {
            return self.begin_script(call, &args);
        }
        match skill {
            Some(skill) if *tool.name == *GATEWAY && skill.dir.is_empty() => self.begin_question(call, (*args).clone()),
            Some(skill) => self.begin_process(call, &skill),
            None => self.end(call, Err(Throw::new(ThrowKind::Unknown, &tool.name, "it has no function"))),
        }
    }

    fn caller(&self, call: CallId, served: Option<ContextId>) -> Caller {
        let serves = served.and_then(|id| self.machine.context(id)).map(|context| Arc::clone(&context.tool.name));
        Caller {
            call,
            served,
            serves,
            to: self.to.clone(),
            cancel: self.token_of(call),
            processes: self.processes(),
            shared: Arc::clone(&self.table.shared),
            scope: Arc::clone(&self.table.scope),
            scratch: self.scratch.clone(),
        }
    }

    /// What gives up the invocation from outside to which a running function belongs.
    fn token_of(&self, call: CallId) -> CancellationToken {
        let mut at = self.machine.contexts_of(call).map(|(own, _)| own);
        while let Some(parent) = at.and_then(|context| self.machine.context(context.parent?)) {
            at = Some(parent);
        }
        at.and_then(|root| self.tokens.get(&root.id)).unwrap_or(&self.stop).clone()
    }

    /// The tool that is served by an entry, and by what that entry serves.
    fn served(&self, id: ContextId) -> ContextId {
        let mut at = id;
        while let Some(target) = self.machine.context(at).and_then(|context| context.target) {
            at = target;
        }
        at
    }

    fn begin_question(&mut self, call: CallId, question: Value) {
        let (gateway, to) = (self.access.gateway.clone(), self.to.clone());
        tokio::task::spawn_blocking(move || {
            let answer = gateway.and_then(|gateway| gateway.ask(&question));
            let nobody = || Throw::new(ThrowKind::Waiting, GATEWAY, "nobody answered");
            let _ = to.send(Message::Ended(call, answer.map(Some).ok_or_else(nobody)));
        });
    }

    fn end(&self, call: CallId, outcome: Outcome) {
        // The other end is our own.
        let _ = self.to.send(Message::Ended(call, outcome));
    }
}

/// Adds the tools that have no file.
fn register(project: &mut Project, access: &Access) {
    if access.gateway.is_some() && project.catalog.find(GATEWAY).is_none() {
        let hidden = ("visibility".to_owned(), json!("hidden"));
        let metadata = Map::from_iter([hidden, ("params".to_owned(), json!({"type": "object"}))]);
        project.catalog.register(Skill::programmatic(GATEWAY, "Asks the user.", metadata));
    }
    for (name, builtin_tools) in &access.handlers {
        // The library describes some of them.
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
