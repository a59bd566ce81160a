//! Warm interpreters: a step costs a fork instead of the start of an interpreter (X-2 `worker`).
//!
//! A fork server is an interpreter that has started, has imported its modules, and waits. A step is a copy of it, in a group
//! of its own, with its own arguments, environment, directory and pipes. No step sees anything of another. The interpreter,
//! the directory and the variables that a new process would start with select the server. If no server is available, a new
//! process runs the step, and the outcome gives the reason.

mod command;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cancel::{Cancel, Cancelled};
use super::os;
use super::program::Launch;
use super::sandbox::Enclosure;

pub(super) use command::{Python, python};

/// Source text of a Python server.
const SERVER: &str = include_str!("worker/python.py");

/// Maximum number of servers of a run: one for each combination of interpreter, directory and variables.
const MAX_COUNT: usize = 4;

/// Space for the mark of a step in the environment that its server was started with, in bytes.
const MARK: usize = 256;

/// Pause between two checks for a cancellation, while a step waits for a busy server.
const LOOK: Duration = Duration::from_millis(20);

/// Names of variables that a Python interpreter reads when it starts; a name with `*` is a prefix.
const LOOKED_AT: [&str; 16] = [
    "PYTHON*", "PYENV*", "LC_*", "LD_*", "DYLD_*", "MALLOC_*", "GLIBC_*", "OPENSSL_*", "PATH", "HOME", "LANG",
    "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__",
];

/// Configuration of the warm Python interpreter of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PythonWorker {
    /// Modules that the interpreter imports before the first step.
    pub preload: Vec<String>,
    /// True if the interpreter runs every step that is a single Python process, not only those that ask for it.
    pub every_step: bool,
}

/// Identity of a server in a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    program: PathBuf,
    /// The name of the interpreter and its flags.
    words: Vec<String>,
    dir: PathBuf,
    variables: BTreeMap<OsString, OsString>,
    /// The rules of its sandbox.
    rules: Option<String>,
}

/// The servers of a run.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) python: PythonWorker,
    slots: Mutex<BTreeMap<Key, Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    New,
    /// A thread starts the server, or forks from it.
    Busy,
    Idle(os::Server),
    /// The server failed, with the reason.
    Broken(String),
}

/// Request to run a step in a server.
pub(super) struct Ask<'a> {
    pub(super) python: &'a Python,
    pub(super) dir: &'a Path,
    /// All variables of the step. A later one of the same name wins.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// True if the step has input on stdin.
    pub(super) has_stdin: bool,
    /// The sandbox that the server and all its steps are in.
    pub(super) enclosure: Option<&'a Enclosure>,
}

impl Workers {
    pub(super) fn new(python: PythonWorker) -> Self {
        Self { python, slots: Mutex::default() }
    }

    /// Forks a step. `Ok(Err(why))` if a new process must run it.
    pub(super) fn fork(
        &self,
        ask: &Ask<'_>,
        cancel: &Cancel,
        alarm: &os::Alarm,
    ) -> Result<Result<os::Launched, String>, Cancelled> {
        let Some(request) = fields(&head(ask), &ask.variables) else {
            return Ok(Err("an argument or a variable has a NUL character".to_owned()));
        };
        let slot = match self.slot(ask) {
            Some(slot) => slot,
            None => return Ok(Err(format!("the run already has {MAX_COUNT} warm interpreters"))),
        };
        let mut server = match slot.take(cancel)? {
            Ok(Some(server)) => server,
            Ok(None) => match self.start(ask, alarm) {
                Ok(server) => server,
                Err(trouble) => return slot.give_up(trouble, cancel),
            },
            Err(why) => return Ok(Err(why)),
        };
        match server.fork(&request, ask.has_stdin, alarm) {
            Ok(launched) => {
                slot.put(State::Idle(server));
                Ok(Ok(launched))
            }
            Err(trouble) => slot.give_up(trouble, cancel),
        }
    }

    /// Ends all servers. Steps that were forked from them continue.
    pub(super) fn end(&self) {
        self.slots().clear();
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, ask: &Ask<'_>) -> Option<Arc<Slot>> {
        // A sandboxed step cannot overwrite the variables of its server, and must not find the variables of another step
        // there.
        let is_own = |name: &OsStr| ask.enclosure.is_some() && !name.as_encoded_bytes().starts_with(b"ETUDE_");
        let looked_at = ask.variables.iter().filter(|(name, _)| is_looked_at(name) || is_own(name)).cloned();
        let key = Key {
            program: ask.python.program.clone(),
            words: ask.python.words[..=ask.python.flags].to_vec(),
            dir: ask.dir.to_owned(),
            variables: looked_at.collect(),
            rules: ask.enclosure.map(|enclosure| enclosure.key.clone()),
        };
        let mut slots = self.slots();
        let is_full = slots.len() >= MAX_COUNT;
        match slots.entry(key) {
            std::collections::btree_map::Entry::Vacant(_) if is_full => None,
            entry => Some(Arc::clone(entry.or_default())),
        }
    }

    fn start(&self, ask: &Ask<'_>, alarm: &os::Alarm) -> Result<os::Server, os::Trouble> {
        // The server is not a step. Its effect id is a placeholder, so that a step's own id fits there.
        let given: Vec<(OsString, OsString)> = ask
            .variables
            .iter()
            .filter(|(name, _)| name != "ETUDE_ATTEMPT")
            .map(|(name, value)| match name == "ETUDE_EFFECT_ID" {
                true => (name.clone(), "-".repeat(MARK).into()),
                false => (name.clone(), value.clone()),
            })
            .collect();
        let modules = &self.python.preload;
        let head = std::iter::once(modules.len().to_string()).chain(modules.iter().cloned()).map(String::into_bytes);
        let message = fields(&head.collect::<Vec<_>>(), &given)
            .ok_or_else(|| os::Trouble::Broken("the name of a module has a NUL character".to_owned()))?;
        let flags = &ask.python.words[1..=ask.python.flags];
        let args = flags.iter().cloned().chain(["-c".to_owned(), boot()]).collect();
        let launch = Launch { program: ask.python.program.clone(), name: ask.python.words[0].clone(), args };
        let Some(enclosure) = ask.enclosure else {
            return os::Server::start(&launch, os::At::Path(ask.dir), given, [SERVER.as_bytes(), &message], alarm);
        };
        let launch = enclosure.around(&launch, false).map_err(os::Trouble::Broken)?;
        let at = os::At::Given(&enclosure.given);
        os::Server::start(&launch, at, enclosure.hide(given), [SERVER.as_bytes(), &message], alarm)
    }
}

/// The boot code of the interpreter: it reads its program from the socket, which is its stdin.
fn boot() -> String {
    let length = SERVER.len();
    format!(
        "import os\nd=b''\nwhile len(d)<{length}:d+=os.read(0,{length}-len(d))or os._exit(0)\n\
         exec(compile(d,'<worker>','exec'),{{'__name__':'<worker>'}})"
    )
}

impl Slot {
    /// Takes the server; `None` if it must be started. The slot is busy until [`Slot::put`].
    fn take(&self, cancel: &Cancel) -> Result<Result<Option<os::Server>, String>, Cancelled> {
        let mut state = self.state();
        loop {
            if cancel.is_cancelled() {
                return Err(Cancelled::default());
            }
            match std::mem::replace(&mut *state, State::Busy) {
                State::New => return Ok(Ok(None)),
                State::Idle(server) => return Ok(Ok(Some(server))),
                State::Broken(why) => {
                    *state = State::Broken(why.clone());
                    return Ok(Err(why));
                }
                State::Busy => state = self.free.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0,
            }
        }
    }

    fn put(&self, state: State) {
        *self.state() = state;
        self.free.notify_all();
    }

    /// Records the loss of the server. It is permanent, unless only this step was cancelled meanwhile.
    fn give_up<T>(&self, trouble: os::Trouble, cancel: &Cancel) -> Result<Result<T, String>, Cancelled> {
        match trouble {
            os::Trouble::Rung => self.put(State::New),
            os::Trouble::Broken(why) if !cancel.is_cancelled() => {
                self.put(State::Broken(why.clone()));
                return Ok(Err(why));
            }
            os::Trouble::Broken(_) => self.put(State::New),
        }
        Err(Cancelled::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_looked_at(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    LOOKED_AT.iter().any(|known| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == known.as_bytes(),
    })
}

/// The fields of a request before the variables.
fn head(ask: &Ask<'_>) -> Vec<Vec<u8>> {
    let Python { words, flags, .. } = ask.python;
    let counts = [words.len(), *flags].map(|count| count.to_string().into_bytes());
    let words = words.iter().map(|word| word.clone().into_bytes());
    counts.into_iter().chain(words).chain([ask.dir.as_os_str().as_encoded_bytes().to_vec()]).collect()
}

/// Builds a message in the format of `worker/python.py`: fields, the last of which are variables. `None` if a field contains a
/// NUL itself.
fn fields(head: &[Vec<u8>], variables: &[(OsString, OsString)]) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(4096);
    for field in head {
        message.extend_from_slice(field);
        message.push(0);
    }
    for (name, value) in variables {
        message.extend_from_slice(name.as_encoded_bytes());
        message.push(b'=');
        message.extend_from_slice(value.as_encoded_bytes());
        message.push(0);
    }
    let ends = message.iter().filter(|byte| **byte == 0).count();
    (ends == head.len() + variables.len()).then_some(message)
}
