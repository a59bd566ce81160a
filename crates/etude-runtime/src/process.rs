//! Running the processes of a run: no deadlock, no lost byte, no orphan.
//!
//! Everything here is synchronous: one thread attends one process, with a single `poll` over its three pipes, its end,
//! and the cancellation. A process is started without a fork of our memory (`posix_spawn`), which is why nothing here
//! runs code between fork and exec.
//!
//! Two assumptions about the process we are in. `SIGPIPE` is ignored, as the Rust runtime sets it up: a step that does
//! not read its stdin must not end us. `SIGCHLD` is not ignored, else exit statuses are lost. Children get the default
//! action for `SIGPIPE` and an empty signal mask from the standard library, whatever ours are.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use etude_core::effect::{Command, ProcessCall, Protocol, Worker};
use etude_core::outcome::{Conditions, Exit, ProcessEnd, Stderr, Stdout, Warmth};

use crate::blob::BlobStore;
use etude_files::beneath::Root;

mod bounded;
mod cancel;
mod capture;
mod diagnosis;
mod document;
mod environment;
mod exempted;
mod permits;
mod program;
mod redactor;
mod stdin;
mod text;
#[cfg(unix)]
mod unix;
mod worker;
#[cfg(unix)]
use unix as os;

#[cfg(not(unix))]
compile_error!("processes are run on Unix only: a port is a `process/windows.rs` with the items of `process/unix.rs`");

pub use bounded::Bounded;
pub use cancel::{Cancel, Cancelled};
pub use environment::PROVIDER_KEYS;
pub use exempted::exempt;
/// Keeps memory and initial environment of this process from other processes of the same user, who could read them in
/// `/proc` else. Linux only: there is no core dump then, and only root can attach a debugger.
pub use os::keep_private;
pub use redactor::StreamRedactor;
pub use worker::PythonWorker;

pub mod sandbox;

use capture::{Capture, Diagnostics};
use environment::Environment;
use permits::Patience;
pub(crate) use permits::Permit;
use program::Launch;
use redactor::RedactedStream;
use sandbox::{Enclosure, Inmate, SandboxSettings, Sandboxes};
use worker::Workers;

/// How long a process has between `SIGTERM` and `SIGKILL` by default.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How long what a validator, a guard, a hook or a skill's program prints may be, in bytes: it is looked into, which takes a
/// multiple of it in memory.
pub const MAX_DOCUMENT: u64 = 16 << 20;

/// What a process means that printed `bytes` and nothing else.
pub fn stdout_of(protocol: Protocol, bytes: Vec<u8>, store: &dyn BlobStore) -> Stdout {
    document::read(protocol, capture::Captured::Memory(bytes), store)
}

/// What a [`ProcessHost`] is made of.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// The run's id: `ETUDE_RUN_ID`.
    pub run_id: String,
    /// The app's directory.
    pub app_dir: PathBuf,
    /// Names of variables that scripts do not get besides [`PROVIDER_KEYS`]: the secrets that etude itself uses.
    pub withheld_env: Vec<String>,
    /// Variables that scripts get besides the inherited ones.
    pub extra_env: Vec<(String, OsString)>,
    /// How long a process has between `SIGTERM` and `SIGKILL`.
    pub grace: Duration,
    /// Where long outputs are kept.
    pub blobs: Arc<dyn BlobStore>,
}

/// Runs the processes of one run, and ends what they leave behind.
///
/// Dropping a host sweeps, so that a run that ends by a panic leaves nothing behind either.
#[derive(Debug)]
pub struct ProcessHost {
    app_dir: PathBuf,
    app_root: Mutex<Option<Arc<Root>>>,
    grace: Duration,
    blobs: Arc<dyn BlobStore>,
    environment: Environment,
    run_id: String,
    exclusive: bool,
    is_guest: bool,
    started: Mutex<Started>,
    /// Held for reading while a process is started, for writing during a sweep: a sweep knows every running step.
    starting: RwLock<()>,
    workers: Workers,
    sandboxes: Sandboxes,
    redactor: Option<Arc<dyn StreamRedactor>>,
    /// Why the machine has no room for another process, once that is so.
    shortage: OnceLock<String>,
    /// A variable that a call takes a value from and that is not set.
    unset_variable: OnceLock<String>,
}

/// Why a process was not started.
#[derive(Debug)]
enum Unstarted {
    /// It cannot be.
    Refused(String),
    /// There is too little of something at the moment.
    Short(String),
}

impl From<String> for Unstarted {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

/// Where a process is started.
struct Place {
    launch: Launch,
    dir: PathBuf,
    enclosure: Option<Enclosure>,
}

/// What this host has started and not seen the end of.
#[derive(Debug, Default)]
struct Started {
    /// Processes of steps that are running now.
    live: HashSet<os::Id>,
    /// Groups in which something went on after their step had ended.
    left: HashSet<os::Id>,
}

impl ProcessHost {
    /// A host for one run. The environment is taken now, once.
    pub fn new(settings: HostSettings) -> Self {
        let HostSettings { run_id, app_dir, withheld_env, extra_env, grace, blobs } = settings;
        os::adopt_orphans();
        // A path that cannot be made absolute (there is no current directory) fails with a clear message at the spawn.
        let app_dir = std::path::absolute(&app_dir).unwrap_or(app_dir);
        let environment = Environment::new(&run_id, &app_dir, &withheld_env, extra_env);
        Self {
            app_dir,
            app_root: Mutex::default(),
            grace,
            blobs,
            environment,
            run_id,
            exclusive: false,
            is_guest: false,
            started: Mutex::default(),
            starting: RwLock::default(),
            workers: Workers::default(),
            sandboxes: Sandboxes::default(),
            redactor: None,
            shortage: OnceLock::new(),
            unset_variable: OnceLock::new(),
        }
    }

    /// How the warm Python interpreter is used, besides what calls ask for.
    #[must_use]
    pub fn with_python_worker(mut self, python: PythonWorker) -> Self {
        self.workers.python = python;
        self
    }

    /// Runs calls in the sandboxes that they ask for. Without this they are refused.
    #[must_use]
    pub fn with_sandboxes(mut self, settings: SandboxSettings) -> Self {
        self.sandboxes = Sandboxes::new(settings);
        self
    }

    /// What processes print on stderr goes through `redactor`, if there is one, before it is shown, kept or quoted.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Option<Arc<dyn StreamRedactor>>) -> Self {
        self.redactor = redactor;
        self
    }

    /// Says that this process starts children through this host only. Then [`ProcessHost::sweep`] also ends orphans
    /// that left their group *and* cleared their environment, which nothing else marks as this run's (Linux).
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Says that this host works for a run beside the run's own host, which alone knows what else runs there. Then this one
    /// sweeps nothing: what its calls leave running ends with the run.
    #[must_use]
    pub fn guest(mut self) -> Self {
        self.is_guest = true;
        self
    }

    /// Lets children inherit `variables` and nothing else of our environment. What is named in
    /// [`HostSettings::withheld_env`] is for the caller to leave out.
    #[must_use]
    pub fn with_environment(mut self, variables: Vec<(OsString, OsString)>) -> Self {
        self.environment.only(variables);
        self
    }

    /// Lets children inherit only what is called by these names.
    #[must_use]
    pub fn keeping_variables(mut self, names: &[&str]) -> Self {
        self.environment.keep(names);
        self
    }

    /// Runs a process to its end and hands every piece of its stderr to `on_stderr` as it comes. Blocks.
    ///
    /// What the process leaves running in the background goes on: a constructor may start a server for later steps.
    /// [`ProcessHost::sweep`] ends it.
    ///
    /// # Errors
    /// The call was cancelled. Then the process and everything that it had started is gone.
    pub fn run(
        &self,
        call: &ProcessCall,
        cancel: &Cancel,
        on_stderr: &mut dyn FnMut(&[u8]),
    ) -> Result<ProcessEnd, Cancelled> {
        let stdout = match call.protocol {
            Protocol::Step | Protocol::Text => Capture::new(&*self.blobs),
            Protocol::Document => Capture::at_most(&*self.blobs, MAX_DOCUMENT),
        };
        let step = os::Step {
            feed: stdin::Feed::new(&call.stdin),
            stdout,
            stderr: Diagnostics::new(&*self.blobs),
            on_stderr,
            with_redactor: RedactedStream::new(self.redactor.as_deref()),
        };
        let (ended, conditions) = match self.attend(call, step, cancel)? {
            Ok(ended) => ended,
            Err(why) => return Ok(not_started(why)),
        };
        if ended.stdout.is_over() {
            return Ok(too_long(ended.stderr.finish(), conditions));
        }
        Ok(sandbox::settle(ProcessEnd {
            exit: ended.exit,
            stdout: document::read(call.protocol, ended.stdout.finish(), &*self.blobs),
            stderr: ended.stderr.finish(),
            conditions,
        }))
    }

    /// Starts a process and attends it to its end; `Ok(Err(why))` if it did not start.
    fn attend<'s>(
        &'s self,
        call: &ProcessCall,
        step: os::Step<'s>,
        cancel: &Cancel,
    ) -> Result<Result<(os::Ended<'s>, Conditions), String>, Cancelled> {
        if cancel.is_cancelled() {
            return Err(Cancelled::default());
        }
        if let Some(name) = Environment::unset(call) {
            let name = self.unset_variable.get_or_init(|| name.to_owned());
            return Ok(Err(format!("the environment variable `{name}` is not set")));
        }
        let mut idle_waits = 0;
        // The turn ends with this call, after the process.
        let (_turn, launched, conditions, alarm) = loop {
            let permit = Permit::take(cancel, self.is_guest)?;
            let launched = match cancel.alarm() {
                Ok(alarm) => self.launch(call, cancel, &alarm)?.map(|(launched, under)| (launched, under, alarm)),
                Err(error) => Err(Unstarted::Short(format!("a cancellation could not be waited for: {error}"))),
            };
            match launched {
                Ok((launched, conditions, alarm)) => break (permit, launched, conditions, alarm),
                Err(Unstarted::Refused(why)) => return Ok(Err(why)),
                Err(Unstarted::Short(why)) => {
                    if permit.yield_permit(cancel, &mut idle_waits)? == Patience::Over {
                        return Ok(Err(self.shortage.get_or_init(|| why).clone()));
                    }
                }
            }
        };
        let id = launched.id();
        let mark = format!("ETUDE_EFFECT_ID={}", self.environment.effect_id(call));
        let ended = launched.attend(step, cancel, &alarm, self.grace, mark);
        // Its descriptor is the turn's.
        drop(alarm);
        let mut started = self.started();
        started.live.remove(&id);
        if ended.as_ref().is_ok_and(|ended| ended.left_something) {
            started.left.insert(id);
        }
        drop(started);
        ended.map(|ended| Ok((ended, conditions)))
    }

    /// Why a process could not be started for which the machine had no room, although nothing was left to wait for. What is
    /// said to have come of it then is no outcome of a step.
    pub fn shortage(&self) -> Option<&str> {
        self.shortage.get().map(String::as_str)
    }

    /// A variable that a call was to take a value from and that is not set: the call did not begin.
    pub fn unset_variable(&self) -> Option<&str> {
        self.unset_variable.get().map(String::as_str)
    }

    /// Ends everything that finished steps of this run left running: `SIGTERM`, the grace period, `SIGKILL`. Returns
    /// when all of it is gone; at once if there is nothing.
    ///
    /// It is for the end of a run. A step that is running is spared, but not what it has sent out of its group; a step
    /// that is to start waits until the sweep is over.
    pub fn kill_leftovers(&self) {
        self.workers.end();
        if self.is_guest {
            return;
        }
        let _sweeping = self.starting.write().unwrap_or_else(PoisonError::into_inner);
        let (mut live, left) = {
            let mut started = self.started();
            (started.live.clone(), std::mem::take(&mut started.left))
        };
        live.extend(exempted::all());
        os::kill_leftovers(left, live, format!("ETUDE_RUN_ID={}", self.run_id), self.exclusive, self.grace);
    }

    /// Starts a process, or says why it did not start; and under what it runs.
    fn launch(
        &self,
        call: &ProcessCall,
        cancel: &Cancel,
        alarm: &os::Alarm,
    ) -> Result<Result<(os::Launched, Conditions), Unstarted>, Cancelled> {
        let _starting = self.starting.read().unwrap_or_else(PoisonError::into_inner);
        let place = match self.place(call) {
            Ok(place) => place,
            Err(why) => return Ok(Err(why)),
        };
        let sandbox = place.enclosure.as_ref().map(|enclosure| enclosure.enforced.clone());
        let (launched, worker) = match self.fork(&place, call, cancel, alarm)? {
            Some(Ok(launched)) => (Ok(launched), Some(Warmth::Warm)),
            Some(Err(why)) => (self.start(&place, call), Some(Warmth::Cold(why))),
            None => (self.start(&place, call), None),
        };
        if let Ok(launched) = &launched {
            self.started().live.insert(launched.id());
        }
        Ok(launched.map(|launched| (launched, Conditions { worker, sandbox })))
    }

    /// What to start, where, and in which sandbox.
    fn place(&self, call: &ProcessCall) -> Result<Place, Unstarted> {
        let dir = self.app_dir.join(&call.dir);
        let path = self.environment.path(call);
        let mut launch = program::resolve(&call.command, &dir, path)?;
        if call.setting.sandbox.is_some() {
            launch = program::in_place(launch, &call.command, &dir, path)?;
        }
        let enclosure = match &call.setting.sandbox {
            Some(asked) => {
                let home = self.environment.home();
                let app = self.app_root()?;
                let inmate = Inmate { launch: &launch, app: &app, dir: &call.dir, path, home };
                Some(self.sandboxes.enclose(asked, &inmate)?)
            }
            None => None,
        };
        Ok(Place { launch, dir, enclosure })
    }

    /// The app's directory, opened when the first sandbox needs it.
    fn app_root(&self) -> Result<Arc<Root>, Unstarted> {
        let mut root = self.app_root.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = &*root {
            return Ok(Arc::clone(root));
        }
        let opened = Root::open(&self.app_dir).map_err(|error| {
            let why = format!("the app's directory cannot be opened: {error}");
            if os::is_shortage(&error) { Unstarted::Short(why) } else { Unstarted::Refused(why) }
        })?;
        Ok(Arc::clone(root.insert(Arc::new(opened))))
    }

    /// All variables of the call's process; a later one of the same name wins.
    fn variables(&self, place: &Place, call: &ProcessCall) -> Vec<(OsString, OsString)> {
        let own = place.enclosure.as_ref().map(|enclosure| enclosure.variables.as_slice()).unwrap_or_default();
        let all = self.environment.of(call, &place.dir, own);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Forks the process from a warm interpreter: `None` if none was asked for, an error if a new process has to do.
    fn fork(
        &self,
        place: &Place,
        call: &ProcessCall,
        cancel: &Cancel,
        alarm: &os::Alarm,
    ) -> Result<Option<Result<os::Launched, String>>, Cancelled> {
        let is_asked = call.setting.worker == Some(Worker::Python);
        if !is_asked && !self.workers.python.every_step {
            return Ok(None);
        }
        let Some(python) = worker::python(&place.launch, &place.dir, self.environment.path(call)) else {
            let why = "the command is not a single Python process, or has unusual options";
            return Ok(is_asked.then(|| Err(why.to_owned())));
        };
        let ask = worker::Ask {
            python: &python,
            dir: &place.dir,
            variables: self.variables(place, call),
            has_stdin: !call.stdin.is_empty(),
            enclosure: place.enclosure.as_ref(),
        };
        self.workers.fork(&ask, cancel, alarm).map(Some)
    }

    /// Starts a new process.
    fn start(&self, place: &Place, call: &ProcessCall) -> Result<os::Launched, Unstarted> {
        let explain = |launch: &Launch, error: &io::Error| {
            let why = program::explain(launch, &place.dir, error);
            if os::is_shortage(error) { Unstarted::Short(why) } else { Unstarted::Refused(why) }
        };
        match self.spawn(&place.launch, place, call)? {
            // A script with the execute bit but without a `#!` line goes by its extension.
            Err(error) if os::is_no_program(&error) && matches!(call.command, Command::Script(_)) => {
                let launch = program::interpreted(&place.launch.name, &place.dir, self.environment.path(call))?;
                self.spawn(&launch, place, call)?.map_err(|error| explain(&launch, &error))
            }
            result => result.map_err(|error| explain(&place.launch, &error)),
        }
    }

    fn spawn(&self, launch: &Launch, place: &Place, call: &ProcessCall) -> Result<io::Result<os::Launched>, String> {
        let has_stdin = !call.stdin.is_empty();
        let variables = self.variables(place, call);
        let Some(enclosure) = &place.enclosure else {
            return Ok(os::spawn(launch, os::At::Path(&place.dir), variables, has_stdin));
        };
        let launch = enclosure.around(launch, true)?;
        Ok(os::spawn(&launch, os::At::Given(&enclosure.given), enclosure.hide(variables), has_stdin))
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProcessHost {
    fn drop(&mut self) {
        // Nothing is attended any more: what still counts as running was left by a panic in `on_stderr`.
        let started = self.started.get_mut().unwrap_or_else(PoisonError::into_inner);
        let live = std::mem::take(&mut started.live);
        started.left.extend(live);
        self.kill_leftovers();
    }
}

/// Ends the processes that a dead runner of the run `run_id` left behind, found by their environment, before the run
/// is resumed. Does nothing where the operating system does not show the environment of processes.
pub fn reap_survivors_of(run_id: &str) {
    os::reap_survivors(format!("ETUDE_RUN_ID={run_id}"), DEFAULT_GRACE);
}

fn not_started(why: String) -> ProcessEnd {
    let stdout = Stdout::Unusable { problem: "the process was not started".to_owned(), found: String::new() };
    ProcessEnd { exit: Exit::NotStarted(why), stdout, stderr: Stderr::default(), conditions: Conditions::default() }
}

/// A process that was ended because it printed too much. It has run, and must not look like what never began, which a resume
/// does again; `found` is not empty, so that no hook takes it for one that says nothing.
fn too_long(stderr: Stderr, conditions: Conditions) -> ProcessEnd {
    let most = MAX_DOCUMENT >> 20;
    let problem = format!("stdout has more than {most} MiB, and the process was ended");
    let stdout = Stdout::Unusable { problem, found: format!("more than {most} MiB; the program was ended") };
    ProcessEnd { exit: Exit::Status(0), stdout, stderr, conditions }
}
