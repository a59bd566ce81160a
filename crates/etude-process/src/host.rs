//! The processes of one run: starts and attends them, and kills their leftovers.

mod bounded;
mod builder;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use etude_core::effect::{Command, ProcessCall, Protocol, Worker};
use etude_core::outcome::{Conditions, Exit, ProcessEnd, Stderr, Stdout, Warmth};
use etude_files::beneath::Root;

use crate::blob::{BlobStore, Watched};
use crate::cancel::{Cancel, Cancelled};
use crate::capture::{Capture, Captured, Diagnostics};
use crate::environment::{Environment, mark_of_run};
use crate::permits::{Patience, Permit};
use crate::program::Launch;
use crate::redactor::{RedactedStream, Redaction};
use crate::sandbox::{Enclosure, Inmate, Sandboxes};
use crate::worker::Workers;
use crate::{document, exempted, os, program, sandbox, stdin, worker};

pub use bounded::Bounded;
pub use builder::{HostBuilder, HostSettings};

/// Default time between `SIGTERM` and `SIGKILL`.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// Maximum length in bytes of the output of a validator, a guard, a hook or a skill's program. The output is parsed, which
/// takes a multiple of it in memory.
pub const MAX_DOCUMENT: u64 = 16 << 20;

/// Maximum length of the stdout of a step, in bytes: all of it is in memory once, while it is checked. A step that prints
/// more is killed, so that it does not fill the disk either.
pub const MAX_OUTPUT: u64 = 512 << 20;

/// The stdout of a process that printed exactly `bytes`.
pub fn stdout_of(protocol: Protocol, bytes: Vec<u8>, store: &dyn BlobStore) -> Stdout {
    document::read(protocol, Captured::Memory(bytes), store)
}

/// Runs the processes of one run, and kills their leftovers.
///
/// Dropping a host kills leftovers too, so that a run that ends by a panic leaves nothing behind.
#[derive(Debug)]
pub struct ProcessHost {
    app_dir: PathBuf,
    app_root: Mutex<Option<Arc<Root>>>,
    grace: Duration,
    blobs: Watched,
    environment: Environment,
    run_id: String,
    exclusive: bool,
    is_guest: bool,
    /// Maximum length of the stdout of a step, in bytes.
    max_output: u64,
    started: Mutex<Started>,
    /// Held for reading while a process is started, and for writing while leftovers are killed, so that every running step is
    /// known then.
    starting: RwLock<()>,
    workers: Workers,
    sandboxes: Sandboxes,
    redaction: Redaction,
    /// Reason why the machine has no room for another process, once that happened.
    shortage: OnceLock<String>,
    /// The first variable that a call takes a value from and that is not set.
    unset_variable: OnceLock<String>,
}

/// Reason why a process was not started.
#[derive(Debug)]
pub(crate) enum Unstarted {
    /// The process cannot be started.
    Refused(String),
    /// A resource is short at the moment.
    Short(String),
}

impl From<String> for Unstarted {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

/// Program, directory and sandbox of a process to start.
struct Place {
    launch: Launch,
    dir: PathBuf,
    enclosure: Option<Enclosure>,
}

/// Processes that this host has started and not yet seen the end of.
#[derive(Debug, Default)]
struct Started {
    /// Processes of running steps.
    live: HashSet<os::Id>,
    /// Groups in which something continued after their step had ended.
    left: HashSet<os::Id>,
}

impl ProcessHost {
    /// Runs a process to its end and passes each piece of its stderr to `on_stderr` as it comes. Blocks.
    ///
    /// Processes that it leaves running in the background continue: a constructor may start a server for later steps.
    /// [`ProcessHost::kill_leftovers`] ends them.
    ///
    /// # Errors
    /// The call was cancelled. Then the process and everything that it had started are gone.
    pub fn run(
        &self,
        call: &ProcessCall,
        cancel: &Cancel,
        on_stderr: &mut dyn FnMut(&[u8]),
    ) -> Result<ProcessEnd, Cancelled> {
        let most = match call.protocol {
            Protocol::Step | Protocol::Text => self.max_output,
            Protocol::Document => MAX_DOCUMENT,
        };
        let stdout = Capture::at_most(&self.blobs, most);
        let step = os::Step {
            feed: stdin::Feed::new(&call.stdin),
            stdout,
            stderr: Diagnostics::new(&self.blobs),
            on_stderr,
            with_redactor: RedactedStream::new(&self.redaction),
        };
        let (ended, conditions) = match self.attend(call, step, cancel)? {
            Ok(ended) => ended,
            Err(why) => return Ok(not_started(why)),
        };
        if ended.stdout.is_over() {
            return Ok(too_long(most, ended.stderr.finish(), conditions));
        }
        Ok(sandbox::settle(ProcessEnd {
            exit: ended.exit,
            stdout: document::read(call.protocol, ended.stdout.finish(), &self.blobs),
            stderr: ended.stderr.finish(),
            conditions,
        }))
    }

    /// Starts a process and attends it to its end. `Ok(Err(why))` if it did not start.
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
        // The permit is released with this call, after the process.
        let (_turn, launched, conditions, alarm) = loop {
            let permit = Permit::take(cancel, self.is_guest)?;
            let launched = match cancel.alarm() {
                Ok(alarm) => self.launch(call, cancel, &alarm)?.map(|(launched, under)| (launched, under, alarm)),
                Err(error) => Err(Unstarted::Short(format!("cannot watch for a cancellation: {error}"))),
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
        let ended = launched.attend(step, cancel, &alarm, self.grace, vec![mark]);
        // The descriptor of the alarm is part of the permit.
        drop(alarm);
        let mut started = self.started();
        started.live.remove(&id);
        if ended.as_ref().is_ok_and(|ended| ended.left_something) {
            started.left.insert(id);
        }
        drop(started);
        ended.map(|ended| Ok((ended, conditions)))
    }

    /// Reason why a process did not start because the machine had no room, although no other process was left to wait for. The
    /// reported result is then not an outcome of the step.
    pub fn shortage(&self) -> Option<&str> {
        self.shortage.get().map(String::as_str)
    }

    /// Reason why large values could not be kept or read; `None` without an outage. The store may be back later.
    pub fn outage(&self) -> Option<&str> {
        self.blobs.outage()
    }

    /// A variable that a call takes a value from and that is not set. The call did not begin.
    pub fn unset_variable(&self) -> Option<&str> {
        self.unset_variable.get().map(String::as_str)
    }

    /// Ends everything that finished steps of this run left running: `SIGTERM`, the grace period, `SIGKILL`. Returns when all
    /// of it is gone, or at once if there is nothing.
    ///
    /// Called at the end of a run. A running step is exempt, but not the processes that left its group. A step that wants to
    /// start waits until the leftovers are gone.
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
        os::kill_leftovers(left, live, vec![mark_of_run(&self.run_id)], self.exclusive, self.grace);
    }

    /// Starts a process, warm or cold, with the conditions that it runs under; else the reason why it did not start.
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

    /// Resolves the program, the directory and the sandbox of a call.
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
                // An isolated step's own variables must not open directories to it.
                let path = if self.sandboxes.are_isolated() { self.environment.own_path() } else { path };
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

    /// Forks the process from a warm interpreter. `None` if no worker was requested; `Some(Err(why))` if a new process must
    /// run the call.
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
        if place.enclosure.is_some() && self.sandboxes.are_isolated() {
            return Ok(is_asked
                .then(|| Err("a warm interpreter needs `/proc`, which the sandbox of the step hides".to_owned())));
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

    /// Starts a new process for the call.
    fn start(&self, place: &Place, call: &ProcessCall) -> Result<os::Launched, Unstarted> {
        let explain = |launch: &Launch, error: &io::Error| {
            let why = program::explain(launch, &place.dir, error);
            if os::is_shortage(error) { Unstarted::Short(why) } else { Unstarted::Refused(why) }
        };
        match self.spawn(&place.launch, place, call)? {
            // A script with the execute bit but without a `#!` line is started by its extension.
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
        // No thread attends a process now, so an entry in `live` was left by a panic in `on_stderr`.
        let started = self.started.get_mut().unwrap_or_else(PoisonError::into_inner);
        let live = std::mem::take(&mut started.live);
        started.left.extend(live);
        self.kill_leftovers();
    }
}

/// Ends the processes that earlier holders of the run `run_id` left behind, before the run is resumed. They are found by their
/// environment. The caller owns the run and has not started anything of it yet. Does nothing where the operating system does
/// not show the environment of processes.
pub fn reap_survivors_of(run_id: &str) {
    os::reap_survivors(vec![mark_of_run(run_id)], DEFAULT_GRACE);
}

/// Ends the processes of the run `run_id` that this process has started, at once.
pub fn end_children_of(run_id: &str) {
    os::kill_leftovers(HashSet::new(), HashSet::new(), vec![mark_of_run(run_id)], false, Duration::ZERO);
}

fn not_started(why: String) -> ProcessEnd {
    let stdout = Stdout::Unusable { problem: "the process was not started".to_owned(), found: String::new() };
    ProcessEnd { exit: Exit::NotStarted(why), stdout, stderr: Stderr::default(), conditions: Conditions::default() }
}

/// The end of a process that was stopped because it printed too much. The process has run, so it must not look like one that
/// never began, which a resume runs again. `found` is not empty, so that no hook takes the output for an empty one.
fn too_long(most: u64, stderr: Stderr, conditions: Conditions) -> ProcessEnd {
    let most = match most >> 20 {
        0 => format!("{most} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    };
    let problem = format!("stdout has more than {most}, so the process was killed");
    let stdout = Stdout::Unusable { problem, found: format!("more than {most}; the program was killed") };
    ProcessEnd { exit: Exit::Status(0), stdout, stderr, conditions }
}
