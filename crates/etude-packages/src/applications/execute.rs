//! Execution of a command of a package, and its result (C-1.13).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_core::effect::{Chunk, Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::{Exit, Stderr};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{Bounded, Cancel, Cancelled, ChildEnvironment, HostSettings, ProcessHost, Redaction};
use etude_spec::application::findings;
use etude_spec::json_fault;
use serde_json::value::RawValue;

use super::call::argv;
use super::carry::carry_over;
use super::{CommandCall, Envelope, Status, schemas};
use crate::deadline::Deadline;
use crate::trust::{Content, Snapshot, StateIn, Store};
use etude_runtime::run_id;

/// Default time limit of a command.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Default limit of stdout, in bytes.
pub const DEFAULT_OUTPUT: usize = 8 << 20;

/// Shown length of an unusable output, in characters.
const HEAD: usize = 2_000;

/// Limits of a command, and requirements for its output.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Time limit, after which the command and its children are killed.
    pub timeout: Duration,
    /// Maximum size of stdout, in bytes.
    pub output: usize,
    /// True if the output is text, not JSON.
    pub is_text: bool,
    /// True if an output that does not match its schema is a failure.
    pub is_strict: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: DEFAULT_TIMEOUT, output: DEFAULT_OUTPUT, is_text: false, is_strict: false }
    }
}

/// Environment of a command.
#[derive(Debug, Clone, Default)]
pub struct ProgramContext {
    /// Variables that the command inherits: a small selection (C-1.13).
    pub environment: Vec<(OsString, OsString)>,
    /// Names of the variables that the caller has added: a confirmation covers their values.
    pub granted: Vec<String>,
    /// Bytes on stdin, passed unchanged; `None`: empty stdin.
    pub stdin: Option<Arc<[u8]>>,
    /// A directory for scratch files.
    pub scratch: PathBuf,
    /// Token with which the caller stops the command.
    pub cancel: Cancel,
    /// The effect of a run that the command implements; `None` outside of runs.
    pub run_effect: Option<RunEffect>,
}

impl ProgramContext {
    /// The variables that the caller has added, if they have a value.
    pub(super) fn granted(&self) -> BTreeMap<&str, &OsStr> {
        let value = |name: &str| self.environment.iter().rfind(|(known, _)| known == name).map(|(_, value)| &**value);
        self.granted.iter().filter_map(|name| Some((name.as_str(), value(name)?))).collect()
    }
}

/// An effect of a run, by which a command recognizes its repetition after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEffect {
    /// Id of the run that calls the command.
    pub run_id: String,
    /// Idempotency key of the effect, without the run's id.
    pub key: String,
}

impl fmt::Display for RunEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run_id, self.key)
    }
}

/// A program that is ready to run.
pub(super) struct Program {
    host: ProcessHost,
    call: ProcessCall,
    cancel: Cancel,
    limits: Limits,
    is_within_run: bool,
}

/// The end of a program.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) ended: Result<Bounded, Cancelled>,
    /// True if the time limit was exceeded.
    pub(super) is_over: bool,
    pub(super) took: Duration,
    /// True if the program was started.
    pub(super) has_begun: bool,
}

impl Ran {
    /// The end of a program that was not started.
    pub(super) fn not_started(exit: Exit) -> Self {
        let ended = Bounded { exit, stdout: Vec::new(), is_too_large: false, stderr: Stderr::default() };
        Self { ended: Ok(ended), is_over: false, took: Duration::ZERO, has_begun: false }
    }
}

impl Program {
    /// Runs the program. Its leftover processes are killed at its end; within a run, at the end of the run. Blocks.
    pub(super) fn run(&self) -> Ran {
        let begin = Instant::now();
        let deadline = Deadline::start(self.limits.timeout, &self.cancel);
        let ended = self.host.run_bounded(&self.call, deadline.cancel(), self.limits.output);
        let has_begun = !matches!(&ended, Ok(Bounded { exit: Exit::NotStarted(_), .. }));
        let ran = Ran { ended, is_over: deadline.is_over(), took: begin.elapsed(), has_begun };
        if !self.is_within_run {
            self.host.kill_leftovers();
        }
        ran
    }
}

impl CommandCall {
    /// Runs the command in `root`, the package's directory or a copy, as a test of the package: without confirmation and
    /// without middleware. Blocks.
    pub(super) fn run_in(&self, root: &Path, program_context: &ProgramContext, limits: &Limits) -> Envelope {
        let ran = self.program(root, program_context, limits).run();
        self.envelope_of(ran, None, limits)
    }

    /// Runs the command as it was approved or confirmed: an approved package from a private copy of the approved content, any
    /// other in its own directory. `content` is the content that a confirmation was bound to. Blocks.
    ///
    /// # Errors
    /// The package has changed since, or the command's changes cannot be stored.
    pub(super) fn run_approved(
        &self,
        content: Option<&Content>,
        program_context: &ProgramContext,
        limits: &Limits,
        store: Option<&Store>,
    ) -> io::Result<Ran> {
        let Some(approved) = &self.access.content else {
            // The package needs no approval, but the confirmed content must still be the one that runs.
            return match content {
                Some(content) if self.package.content()? != *content => {
                    Err(io::Error::other("the package has changed since it was confirmed"))
                }
                _ => Ok(self.program(&self.package.root, program_context, limits).run()),
            };
        };
        let copy = self.copy(approved, StateIn::Place, program_context)?;
        let ran = self.program(copy.root(), program_context, limits).run();
        if ran.has_begun {
            let conflicts = carry_over(&copy, &self.package, approved, store, &program_context.scratch)?;
            if let Some(path) = conflicts.first() {
                let path = self.package.root.join(path);
                let why = format!(
                    "`{}` has changed while the command ran; what the command wrote there is lost",
                    path.display()
                );
                return Err(io::Error::other(why));
            }
        }
        Ok(ran)
    }

    /// A copy of the package with exactly the approved content.
    pub(super) fn copy(
        &self,
        approved: &Content,
        state: StateIn,
        program_context: &ProgramContext,
    ) -> io::Result<Snapshot> {
        let paths = self.package.contract.state_paths();
        Snapshot::take(&self.package.root, approved, Some((&paths, state)), &program_context.scratch)
            .map_err(io::Error::other)
    }

    /// The command line for `root`. In a copy, words of the entry that are absolute paths into the package refer to the copy.
    fn argv_in(&self, root: &Path) -> Vec<String> {
        let of_entry = argv(&self.package.contract.entry, &self.command, &[]).len();
        let moved = |(n, word): (usize, &String)| match Path::new(word).strip_prefix(&self.package.root) {
            Ok(path) if n < of_entry => root.join(path).display().to_string(),
            _ => word.clone(),
        };
        self.argv.iter().enumerate().map(moved).collect()
    }

    /// Runs the command without changing anything but state: in a copy, if the package needs approval. Blocks.
    pub(super) fn measure(&self, program_context: &ProgramContext, limits: &Limits) -> io::Result<Envelope> {
        let Some(approved) = &self.access.content else {
            return Ok(self.run_in(&self.package.root, program_context, limits));
        };
        let copy = self.copy(approved, StateIn::Place, program_context)?;
        Ok(self.run_in(copy.root(), program_context, limits))
    }

    pub(super) fn program(&self, root: &Path, program_context: &ProgramContext, limits: &Limits) -> Program {
        let is_within_run = program_context.run_effect.is_some();
        let run_effect =
            program_context.run_effect.clone().unwrap_or_else(|| RunEffect { run_id: run_id::new(), key: self.name() });
        let settings = HostSettings {
            run_id: run_effect.run_id,
            app_dir: root.to_owned(),
            blobs: Arc::new(FileBlobs::new(&program_context.scratch, false)),
        };
        let environment = ChildEnvironment::only(program_context.environment.clone());
        let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused)
            .guest(is_within_run)
            .build();
        let chunks = program_context.stdin.iter().map(|bytes| Chunk::Bytes(Arc::clone(bytes))).collect();
        let call = ProcessCall {
            command: Command::Direct(self.argv_in(root)),
            dir: String::new(),
            env: vec![
                ("AGENT_APP_ROOT".to_owned(), root.display().to_string()),
                ("AGENT_APP_SLUG".to_owned(), self.package.contract.slug.clone()),
            ],
            key: run_effect.key,
            attempt: 1,
            stdin: Stdin(chunks),
            protocol: Protocol::Document,
            setting: Setting::default(),
        };
        Program { host, call, cancel: program_context.cancel.clone(), limits: limits.clone(), is_within_run }
    }

    /// Name of the command outside of its package.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.package.contract.slug, self.command.replace(' ', "."))
    }

    /// The document about the end of the command. `fault` is the mismatch with the output schema.
    pub(super) fn envelope_of(&self, ran: Ran, fault: Option<&str>, limits: &Limits) -> Envelope {
        let mut envelope = match ran.ended {
            Ok(ended) => self.judged(ended, ran.has_begun, fault, limits),
            Err(_) => self.given_up(ran.is_over, limits),
        };
        envelope.duration_ms = u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX);
        envelope
    }

    fn given_up(&self, is_over: bool, limits: &Limits) -> Envelope {
        let path = self.package.file();
        let limit = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
        let mut envelope = match is_over {
            true => self.envelope(Status::TimedOut, vec![findings::timed_out(&path, limit)]),
            false => self.envelope(Status::Failed, vec![findings::ended_by_signal(&path, "a cancellation")]),
        };
        envelope.signal = Some("SIGTERM".to_owned());
        envelope
    }

    /// The outcome matrix of a command that was not abandoned.
    fn judged(&self, ended: Bounded, has_begun: bool, fault: Option<&str>, limits: &Limits) -> Envelope {
        let path = self.package.file();
        let mut envelope = self.envelope(Status::Failed, Vec::new());
        envelope.stderr = ended.stderr.tail;
        if ended.is_too_large {
            envelope.signal = Some("SIGTERM".to_owned());
            envelope.diagnostics.push(findings::too_large(&path, limits.output as u64));
            return envelope;
        }
        match ended.exit {
            Exit::NotStarted(why) if has_begun => envelope.diagnostics.push(findings::result_refused(&path, &why)),
            Exit::NotStarted(why) => envelope.diagnostics.push(findings::spawn(&path, &why)),
            Exit::Signal { name, .. } => {
                envelope.diagnostics.push(findings::ended_by_signal(&path, &name));
                envelope.signal = Some(name);
            }
            Exit::Status(0) if limits.is_text => {
                envelope.exit_code = Some(0);
                match text_of(&ended.stdout) {
                    Ok(output) => (envelope.status, envelope.output) = (Status::Succeeded, Some(output)),
                    Err(why) => self.no_contract(&mut envelope, &ended.stdout, &why),
                }
            }
            Exit::Status(0) => {
                envelope.exit_code = Some(0);
                match one_value(&ended.stdout) {
                    Ok(output) => self.succeeded(&mut envelope, output, fault, limits),
                    Err(why) => self.no_contract(&mut envelope, &ended.stdout, &why),
                }
            }
            Exit::Status(status) => {
                envelope.exit_code = Some(status);
                match one_value(&ended.stdout) {
                    Ok(output) => envelope.output = Some(output),
                    Err(_) => {
                        envelope.stdout_head = head(&ended.stdout);
                        envelope.diagnostics.push(findings::unstructured_error(&path));
                    }
                }
            }
        }
        envelope
    }

    fn succeeded(&self, envelope: &mut Envelope, output: Box<RawValue>, fault: Option<&str>, limits: &Limits) {
        envelope.status = Status::Succeeded;
        if is_not_ok(&output) {
            envelope.diagnostics.push(findings::contradiction(&self.package.file()));
        }
        if let Some(fault) = fault {
            if limits.is_strict {
                envelope.status = Status::Failed;
            }
            let fault = schemas::mismatch(&self.package, &self.command, fault, limits.is_strict);
            envelope.diagnostics.push(fault);
        }
        envelope.output = Some(output);
    }

    fn no_contract(&self, envelope: &mut Envelope, stdout: &[u8], why: &str) {
        envelope.status = Status::ContractError;
        envelope.stdout_head = head(stdout);
        envelope.diagnostics.push(findings::no_json(&self.package.file(), why));
    }
}

/// Stdout as exactly one JSON value, or the reason why it is not.
fn one_value(stdout: &[u8]) -> Result<Box<RawValue>, String> {
    let text = std::str::from_utf8(stdout).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    serde_json::from_str::<&RawValue>(text).map(ToOwned::to_owned).map_err(|error| json_fault(text, &error))
}

/// Stdout as a JSON string, without the final line break.
fn text_of(stdout: &[u8]) -> Result<Box<RawValue>, String> {
    let text = std::str::from_utf8(stdout).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    serde_json::value::to_raw_value(text).map_err(|error| error.to_string())
}

fn is_not_ok(output: &RawValue) -> bool {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let is_false = |members: Members<'_>| members.get("ok").is_some_and(|ok| ok.get() == "false");
    output.get().starts_with('{') && serde_json::from_str::<Members<'_>>(output.get()).is_ok_and(is_false)
}

fn head(stdout: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&stdout[..stdout.len().min(4 * HEAD)]);
    let head: String = text.chars().take(HEAD).collect();
    (!head.is_empty()).then_some(head)
}
