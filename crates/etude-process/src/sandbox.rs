//! Sandboxes: the rights of a sandboxed process, and their enforcement (X-2 `sandbox`).
//!
//! Etude starts its own program in place of the step's. That program gives up every right that the step must not have
//! ([`enter`]), and then becomes the step's program. Rules cannot be set between a fork and an exec without code that runs in
//! a copy of a process with threads. A sandbox that cannot be enforced does not start.
//!
//! Every reachable path is opened once, when it is checked. The descriptors go to that program over a socket, and its rules
//! and its working directory are made of them. A link that is put in the way later changes nothing.

mod reach;
mod wire;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use etude_core::effect::Sandbox;
use etude_core::outcome::{Exit, ProcessEnd};

use super::Unstarted;
use super::program::Launch;
use etude_files::beneath::{Dir, Handle, Root, identity};
use wire::Rules;

mod unix;

pub(super) use unix::send;

/// The first argument of the program that is started in place of a sandboxed one.
pub const WORD: &str = "__sandbox";

/// Exit status of a sandbox that could not be set up, and the prefix of its message.
const REFUSED: u8 = 125;
const MARK: &str = "etude sandbox: ";

/// Prefix that hides the names of variables that the loader of etude's own program would follow.
const HIDDEN: &str = "ETUDE_HIDDEN_";

/// Program, directory and isolation of the sandboxes of a host.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// The program that calls [`enter`] with the arguments that follow [`WORD`].
    pub program: PathBuf,
    /// Parent directory for the directory of the run's sandboxed processes.
    pub scratch: PathBuf,
    /// True if the run sees nothing of others on this machine (K-55). Its steps have no `/proc`, no programs from directories
    /// that only the step names, and no interpreter that needs either.
    pub is_isolated: bool,
}

/// Treatment of calls that ask for a sandbox.
#[derive(Debug, Clone)]
pub enum SandboxPolicy {
    /// Calls run in their sandbox, or not at all.
    Enforced(SandboxSettings),
    /// Calls are refused: this host runs no calls of steps.
    Refused,
}

impl From<Option<SandboxSettings>> for SandboxPolicy {
    /// `None` refuses calls that ask for a sandbox.
    fn from(settings: Option<SandboxSettings>) -> Self {
        settings.map_or(Self::Refused, Self::Enforced)
    }
}

/// Sandbox features that this machine can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// ABI version of Landlock.
    landlock: u32,
}

impl Support {
    /// True if a sandboxed process can be kept from sending signals to other processes of the same user.
    pub const fn keeps_signals(self) -> bool {
        self.landlock >= unix::SIGNALS
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Landlock ABI {}, seccomp", self.landlock)
    }
}

/// Probes the sandbox features of this machine.
///
/// # Errors
/// The machine cannot enforce a sandbox. The error gives the cause and the requirement.
pub fn support() -> Result<Support, String> {
    unix::landlock().and_then(|landlock| match landlock {
        0 => Err("this kernel has no Landlock: Linux 6.2 or newer is needed, with `landlock` among its security modules"
            .to_owned()),
        1..3 => Err(format!(
            "the Landlock of this kernel (ABI {landlock}) cannot keep files from being truncated: Linux 6.2 or newer is needed"
        )),
        _ => Ok(Support { landlock }),
    })
}

/// Gives up the rights that the sandbox removes, and becomes its program. `words` are the arguments after [`WORD`]; the
/// descriptors come over `stdin`. Returns only on failure: the message for the caller to print, and its exit status.
pub fn enter(words: Vec<OsString>, stdin: io::Stdin) -> (String, u8) {
    let Err(why) = try_enter(words, stdin);
    (format!("{MARK}{why}"), REFUSED)
}

fn try_enter(words: Vec<OsString>, socket: io::Stdin) -> Result<std::convert::Infallible, String> {
    let mut words = words.into_iter();
    let mut next = || words.next().ok_or("usage: RULES STDIN PROGRAM NAME");
    let (rules, stdin, program, name) = (next()?, next()?, next()?, next()?);
    let rules = rules.to_str().and_then(Rules::parse).ok_or("the rules cannot be parsed")?;
    let given = unix::receive(socket, &rules, stdin == PASSED)
        .map_err(|error| format!("it received too few file descriptors: {error}"))?;
    unix::restrict(&rules, &given)?;
    let shown = hidden_variables();
    Err(unix::replace(&program, &name, words, shown, given.stdin))
}

/// The variables that were hidden from etude's own loader: hidden name, original name, value.
fn hidden_variables() -> Vec<(OsString, OsString, OsString)> {
    super::environment::inherited()
        .filter_map(|(name, value)| {
            let own = name.to_str()?.strip_prefix(HIDDEN)?.to_owned();
            Some((name, own.into(), value))
        })
        .collect()
}

/// Hides a variable that the loader of etude's own program would follow before any rules apply.
fn hidden(name: OsString) -> OsString {
    let is_followed = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    if !["LD_", "DYLD_", "GLIBC_", "MALLOC_", "MIMALLOC_"].iter().any(is_followed) {
        return name;
    }
    let mut hidden = OsString::from(HIDDEN);
    hidden.push(name);
    hidden
}

/// Source of the program's stdin: one of the passed descriptors, or the socket itself.
const PASSED: &str = "passed";
const SOCKET: &str = "socket";

/// Descriptors that a sandbox receives besides its arguments.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems have no sandboxes"))]
struct Given {
    /// The program's stdin, unless it is the socket.
    stdin: Option<Handle>,
    /// The working directory.
    dir: Handle,
    read: Vec<Handle>,
    write: Vec<Handle>,
}

/// The sandboxes of a run, with their common directory.
#[derive(Debug)]
pub(super) struct Sandboxes {
    policy: SandboxPolicy,
    /// The run's scratch directory, created for the first sandboxed process.
    scratch: Mutex<Option<Scratch>>,
}

/// The scratch directory of a run, opened when it was created.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
    dir: Dir,
}

/// A sandbox, ready for a process.
#[derive(Debug, Clone)]
pub(super) struct Enclosure {
    program: PathBuf,
    /// The rules as text.
    rules: String,
    /// Key that is equal for processes that may share one interpreter.
    pub(super) key: String,
    /// Descriptors to pass: the working directory, readable paths, writable paths.
    pub(super) given: Arc<Vec<Handle>>,
    /// Variables of a sandboxed process that replace inherited ones.
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// Description of the enforced rules, for the record.
    pub(super) enforced: String,
}

/// Process that a sandbox is made for.
pub(super) struct Inmate<'a> {
    pub(super) launch: &'a Launch,
    pub(super) app: &'a Root,
    /// The working directory, relative to the app's.
    pub(super) dir: &'a str,
    /// The search path, whose directories become readable.
    pub(super) path: Option<&'a std::ffi::OsStr>,
    pub(super) home: Option<&'a Path>,
}

impl Sandboxes {
    pub(super) fn new(policy: SandboxPolicy) -> Self {
        Self { policy, scratch: Mutex::default() }
    }

    /// True if sandboxed processes see nothing of other runs (K-55).
    pub(super) fn are_isolated(&self) -> bool {
        matches!(&self.policy, SandboxPolicy::Enforced(settings) if settings.is_isolated)
    }

    /// Builds the sandbox that `asked` describes, or returns the reason why it is not available.
    pub(super) fn enclose(&self, asked: &Sandbox, inmate: &Inmate<'_>) -> Result<Enclosure, Unstarted> {
        self.build(asked, inmate).map_err(|why| match why {
            Unstarted::Refused(why) => Unstarted::Refused(format!("its sandbox cannot be enforced: {why}")),
            short => short,
        })
    }

    fn build(&self, asked: &Sandbox, inmate: &Inmate<'_>) -> Result<Enclosure, Unstarted> {
        let SandboxPolicy::Enforced(settings) = &self.policy else {
            return Err("sandboxes are not available in this process".to_owned().into());
        };
        let support = support()?;
        let (scratch, scratch_dir) =
            self.scratch(settings).map_err(|error| reach::failed("cannot create a directory", &error))?;
        let declared = reach::declared(asked, inmate)?;
        let enforced = describe(support, asked) + if settings.is_isolated { "; isolated" } else { "" };
        let mut variables = vec![("TMPDIR", scratch.clone().into_os_string())];
        // An unreadable home is replaced: programs that may not read their settings give up.
        let is_declared =
            |home: &PathBuf| declared.read.iter().chain(&declared.write).any(|place| home.starts_with(&place.real));
        if !inmate.home.is_some_and(|home| reach::names(home).iter().any(is_declared)) {
            variables.push(("HOME", scratch.clone().into_os_string()));
        }
        let mut read = reach::programs(inmate, settings.is_isolated)?;
        read.extend(declared.read);
        let mut write = vec![reach::Place { real: scratch, fd: scratch_dir.into() }];
        write.extend(declared.write);
        let system = reach::system(settings.is_isolated);
        let rules =
            Rules { landlock: support.landlock, network: asked.network, system, read: read.len(), write: write.len() };
        let rules = rules.to_text()?;
        let mut key = rules.clone();
        let mut given = vec![reach::working_dir(inmate)?];
        for place in read.into_iter().chain(write) {
            let (device, file) =
                identity(&place.fd).map_err(|error| reach::failed("a directory cannot be inspected", &error))?;
            key.push_str(&format!(" {device}:{file}"));
            given.push(place.fd);
        }
        Ok(Enclosure { program: settings.program.clone(), rules, key, given: Arc::new(given), variables, enforced })
    }

    fn scratch(&self, settings: &SandboxSettings) -> io::Result<(PathBuf, Dir)> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.is_none() {
            let (path, dir) = unix::private_dir(&settings.scratch)?;
            *scratch = Some(Scratch { path: path.canonicalize()?, dir });
        }
        let made = scratch.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok((made.path.clone(), made.dir.try_clone()?))
    }
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        let scratch = self.scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = scratch.take() {
            // A directory that cannot be removed is left to the cleaner of temporary files.
            let _ = std::fs::remove_dir_all(made.path);
        }
    }
}

impl Enclosure {
    /// Builds the launch that starts the sandbox in place of `launch`. Its stdin is the socket that brings its descriptors.
    /// With `is_passed`, the first descriptor is the stdin of `launch`.
    pub(super) fn around(&self, launch: &Launch, is_passed: bool) -> Result<Launch, String> {
        let program =
            launch.program.to_str().ok_or("the program's path is not UTF-8, which a sandbox cannot express")?;
        let stdin = if is_passed { PASSED } else { SOCKET };
        let words = [WORD, &self.rules, stdin, program, &launch.name].map(str::to_owned);
        let args = words.into_iter().chain(launch.args.iter().cloned()).collect();
        Ok(Launch { program: self.program.clone(), name: "etude".to_owned(), args })
    }

    /// Hides variables from the loader of the program that is started in place.
    pub(super) fn hide(&self, variables: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
        variables.into_iter().map(|(name, value)| (hidden(name), value)).collect()
    }
}

/// Turns a failure to set up the sandbox into a process that was not started. Without a sandbox, such a message is the
/// process's own.
pub(super) fn settle(mut end: ProcessEnd) -> ProcessEnd {
    if end.conditions.sandbox.is_some()
        && end.exit == Exit::Status(REFUSED.into())
        && let Some(why) = end.stderr.tail.strip_prefix(MARK)
    {
        end.exit = Exit::NotStarted(why.trim_end().to_owned());
    }
    end
}

/// Description of the rules that are enforced for `asked`, as records keep it; `None` if this machine cannot enforce any.
pub fn enforced(asked: &Sandbox) -> Option<String> {
    support().ok().map(|support| describe(support, asked))
}

fn describe(support: Support, asked: &Sandbox) -> String {
    let mut text = format!("{}network, no other processes", if asked.network { "" } else { "no " });
    if !support.keeps_signals() {
        text.push_str(" except signals to them");
    }
    for (what, paths) in [("may read", &asked.read), ("may write", &asked.write)] {
        if !paths.is_empty() {
            text.push_str(&format!("; {what} {}", paths.join(", ")));
        }
    }
    format!("{text} ({support})")
}
