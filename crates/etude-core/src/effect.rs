//! Effects: the requests of a run to the outside world, as plain data.

use std::fmt;
use std::sync::Arc;

use crate::data::Json;
use crate::digest::{Digest, Hasher};
use crate::model::{Part, Request, Role};
use crate::tool::{ToolCall, ToolSelection};

/// A stable, readable name of an effect inside its run: the path from the pipeline to the attempt, such as
/// `code-review/review[3]/validate#2`. The same on every resume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectId(Arc<str>);

impl EffectId {
    /// An id from its text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An operation outside the machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run a process.
    Process(Box<ProcessCall>),
    /// Call a model.
    Model(Box<Request>),
    /// Find the tools that an agent may call.
    Open(Arc<ToolSelection>),
    /// One call that an agent or a tool step makes, through the tool port.
    Tool(Box<ToolCall>),
    /// Scan a model's input for secrets (B-IS2).
    Scan(Box<Scan>),
    /// Let time pass.
    Sleep {
        /// Duration in milliseconds.
        ms: u64,
        /// True for a deadline, which goes on counting while the run waits outside any process.
        deadline: bool,
    },
    /// Wait for a person's decision. Nothing runs meanwhile: the run may leave its process.
    Gate(Gate),
    /// Look up the output of an earlier run.
    Recall {
        /// Hash of everything the output depends on.
        key: Digest,
        /// Maximum age in milliseconds; `None`: any age.
        ttl_ms: Option<u64>,
    },
    /// Keep an output in the cache for later runs.
    Remember {
        /// Hash of everything the output depends on.
        key: Digest,
        /// The output of the step that succeeded.
        output: Json,
    },
}

/// A process to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessCall {
    /// The program or line of shell text that is started.
    pub command: Command,
    /// Working directory, relative to the app's directory.
    pub dir: String,
    /// Variables beyond those that every script gets, in order.
    pub env: Vec<(String, String)>,
    /// The idempotency key: the value of `ETUDE_EFFECT_ID` without the run's id. The same for every attempt of a step.
    pub key: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Content of stdin.
    pub stdin: Stdin,
    /// Form that stdout must have.
    pub protocol: Protocol,
    /// Environment of the process: worker, variables and sandbox.
    pub setting: Setting,
}

/// The environment that a process runs in. By default a new process with all permissions of the user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setting {
    /// The warm interpreter that runs the process where possible. The result is the same with and without one.
    pub worker: Option<Worker>,
    /// Pairs of a variable's name and the name of the variable in etude's own environment that provides its value. The
    /// values are looked up when the process starts, and are in no digest and no record, because they may be keys
    ///
    pub env_from: Vec<(String, String)>,
    /// Access rights of the process. If they cannot be enforced, the process does not start.
    pub sandbox: Option<Box<Sandbox>>,
    /// Variables that the process inherits from etude's own environment; not part of the digest either.
    pub inherits: Inherits,
}

/// The variables of etude's own environment that a process inherits. Keys are never among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inherits {
    /// All of them: the process acts for the user.
    #[default]
    All,
    /// The variables by which programs are found and started, and learn their user's language and directories (B-20.4).
    Basics,
}

/// A warm interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Worker {
    /// Python: the process is forked from a started interpreter.
    Python,
}

/// Access of a sandboxed process beyond the app, the system's programs and a directory of its own run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    /// True if the process may use the network.
    pub network: bool,
    /// Files and directories that the process may read, relative to its working directory; `~/` is the user's home.
    pub read: Vec<String>,
    /// Files and directories that the process may read and write.
    pub write: Vec<String>,
}

/// The command of a process, with or without a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments, started without a shell.
    Direct(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
    /// A script file, relative to the working directory: started directly if it is executable, else by the
    /// interpreter for its extension.
    Script(String),
}

/// The command on one line, for people. Quotes are left out, so it may differ from the line in the definition.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(words) => f.write_str(&words.join(" ")),
            Self::Shell(line) | Self::Script(line) => f.write_str(line),
        }
    }
}

/// The form of stdout that the process must have; anything else fails its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One JSON object with `output`.
    Step,
    /// One JSON value.
    Document,
    /// UTF-8 text: a string, without the line break at its end.
    Text,
}

/// The content of a process's stdin: pieces that are written one after the other, never joined.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stdin(pub Vec<Chunk>);

/// A piece of stdin.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// Text that is written as UTF-8.
    Text(Arc<str>),
    /// Bytes of the user, which need not be text.
    Bytes(Arc<[u8]>),
    /// A JSON value, which may be kept in a store.
    Json(Json),
}

/// A text to search for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The texts that the model is about to receive, joined by line breaks.
    pub text: String,
    /// Text that the user has typed: a secret in it was meant for the model.
    pub typed: String,
}

/// A question to people (X-3 `approval`).
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The question, rendered as people read it.
    pub message: String,
    /// JSON Schema of a structured answer.
    pub schema: Option<Arc<serde_json::Value>>,
    /// Names of the people who may decide; empty: anyone.
    pub approvers: Vec<String>,
    /// Kind and topic of the question.
    pub subject: Subject,
}

/// Topic of a question.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Subject {
    /// A step of type `approval`.
    #[default]
    Approval,
    /// A step of type `approval` before steps that change the outside world. The names of those steps are not part of
    /// the question's digest.
    Before {
        /// The names of the steps that change the outside world.
        effects: Vec<String>,
    },
    /// Another question, with its word in `waiting[].kind` and its facts.
    Other {
        /// `tool`, `grantStageTool`, `Confirm`, `parked`.
        kind: &'static str,
        /// Facts for programs: a JSON object.
        payload: Json,
    },
}

impl Subject {
    /// The word in `waiting[].kind`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Approval | Self::Before { .. } => "approval",
            Self::Other { kind, .. } => kind,
        }
    }
}

impl Effect {
    const PROCESS: &'static str = "process";

    /// One word for the kind of effect, for people and records.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => Self::PROCESS,
            Self::Model(_) => "model",
            Self::Open(_) => "open",
            Self::Tool(_) => "tool",
            Self::Scan(_) => "scan",
            Self::Sleep { .. } => "sleep",
            Self::Gate(_) => "gate",
            Self::Recall { .. } => "recall",
            Self::Remember { .. } => "remember",
        }
    }

    /// Hash of the request. A record in the journal answers an effect only if it was made for the same hash.
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new(self.kind());
        match self {
            Self::Process(call) => return call.digest_with(call.stdin.digest()),
            Self::Model(request) => hash_request(request, &mut hasher),
            Self::Open(tool_selection) => tool_selection.hash(&mut hasher),
            Self::Tool(call) => call.hash(&mut hasher),
            Self::Scan(scan) => {
                hasher.field(scan.text.as_bytes()).field(scan.typed.as_bytes());
            }
            Self::Sleep { ms, .. } => {
                hasher.field(&ms.to_le_bytes());
            }
            Self::Gate(gate) => {
                hasher.field(gate.message.as_bytes());
                hasher.field(gate.schema.as_ref().map(|s| s.to_string()).unwrap_or_default().as_bytes());
                for name in &gate.approvers {
                    hasher.field(name.as_bytes());
                }
                if let Subject::Other { kind, payload } = &gate.subject {
                    hasher.field(kind.as_bytes()).field(payload.digest().as_bytes());
                }
            }
            Self::Recall { key, .. } => {
                hasher.field(key.as_bytes());
            }
            Self::Remember { key, output } => {
                hasher.field(key.as_bytes()).field(output.digest().as_bytes());
            }
        }
        hasher.finish()
    }
}

impl ProcessCall {
    /// The digest of this call as an effect, for callers that know the hash of its stdin.
    pub(crate) fn digest_with(&self, stdin: Digest) -> Digest {
        let mut hasher = Hasher::new(Effect::PROCESS);
        self.hash(stdin, &mut hasher);
        hasher.finish()
    }

    fn hash(&self, stdin: Digest, hasher: &mut Hasher) {
        match &self.command {
            Command::Direct(words) => {
                hasher.field(b"direct").field(&words.len().to_le_bytes());
                for word in words {
                    hasher.field(word.as_bytes());
                }
            }
            Command::Shell(line) => {
                hasher.field(b"shell").field(line.as_bytes());
            }
            Command::Script(path) => {
                hasher.field(b"script").field(path.as_bytes());
            }
        }
        hasher.field(self.dir.as_bytes()).field(&self.env.len().to_le_bytes());
        for (name, value) in &self.env {
            hasher.field(name.as_bytes()).field(value.as_bytes());
        }
        for (name, source) in &self.setting.env_from {
            hasher.field(b"from").field(name.as_bytes()).field(source.as_bytes());
        }
        hasher.field(stdin.as_bytes());
        // The worker of a process is not part of the request. Its sandbox is.
        if let Some(sandbox) = &self.setting.sandbox {
            hasher.field(&[u8::from(sandbox.network)]);
            for paths in [&sandbox.read, &sandbox.write] {
                hasher.field(&paths.len().to_le_bytes());
                for path in paths {
                    hasher.field(path.as_bytes());
                }
            }
        }
        // Digests of the other protocols stay as they were before this protocol existed.
        if self.protocol == Protocol::Text {
            hasher.field(b"text");
        }
    }
}

impl ToolSelection {
    fn hash(&self, hasher: &mut Hasher) {
        hasher.field(&[u8::from(self.allowed.is_some()), u8::from(self.lists_skills)]);
        for pattern in self.allowed.iter().flatten() {
            hasher.field(pattern.as_bytes());
        }
        hasher.field(self.tier.word().as_bytes()).field(self.dir.as_bytes());
        if self.lists_in_tools {
            hasher.field(b"tells in tools");
        }
    }
}

impl ToolCall {
    fn hash(&self, hasher: &mut Hasher) {
        self.tool_selection.hash(hasher);
        hasher.field(self.name.as_bytes()).field(self.arguments.as_bytes()).field(self.id.as_bytes());
        hasher.field(&[u8::from(self.is_approved)]);
        hasher.field(self.stage_execution.as_deref().unwrap_or_default().as_bytes());
    }
}

/// Hash of a stdin that is built piece by piece. A clone continues on its own, so the common beginning of many steps is
/// hashed once.
#[derive(Debug, Clone, Default)]
pub(crate) struct StdinHash(blake3::Hasher);

impl StdinHash {
    pub(crate) fn text(&mut self, piece: &str) {
        self.0.update(piece.as_bytes());
    }

    pub(crate) fn json(&mut self, json: &Json) {
        match json.inline() {
            Some(piece) => self.text(piece),
            None => drop(self.0.update(json.digest().as_bytes())),
        }
    }

    pub(crate) fn chunk(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::Text(piece) => self.text(piece),
            Chunk::Bytes(piece) => drop(self.0.update(piece)),
            Chunk::Json(json) => self.json(json),
        }
    }

    pub(crate) fn finish(&self) -> Digest {
        let mut hasher = Hasher::new("stdin");
        hasher.field(self.0.finalize().as_bytes());
        hasher.finish()
    }
}

impl Stdin {
    /// Hash of the pieces. The boundaries between pieces of text do not matter, the positions of stored values do.
    pub fn digest(&self) -> Digest {
        let mut hash = StdinHash::default();
        self.0.iter().for_each(|chunk| hash.chunk(chunk));
        hash.finish()
    }

    /// Total size in bytes.
    pub fn len(&self) -> u64 {
        self.0
            .iter()
            .map(|chunk| match chunk {
                Chunk::Text(text) => text.len() as u64,
                Chunk::Bytes(bytes) => bytes.len() as u64,
                Chunk::Json(json) => json.len(),
            })
            .sum()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn hash_request(request: &Request, hasher: &mut Hasher) {
    hasher.field(request.tier.word().as_bytes());
    hasher.field(request.system.as_deref().unwrap_or_default().as_bytes());
    for message in &request.messages {
        hasher.field(match message.role {
            Role::User => b"user",
            Role::Assistant => b"assistant",
            Role::Tool => b"tool",
        });
        for part in &message.parts {
            match part {
                Part::Text(text) => hasher.field(b"text").field(text.as_bytes()),
                Part::Image { path } => hasher.field(b"image").field(path.as_bytes()),
                Part::ToolCall { id, name, arguments } => {
                    hasher.field(b"call").field(id.as_bytes()).field(name.as_bytes()).field(arguments.as_bytes())
                }
                Part::ToolResult { id, content } => {
                    hasher.field(b"result").field(id.as_bytes()).field(content.as_bytes())
                }
                Part::Reasoning(reasoning) => {
                    hasher.field(b"reasoning").field(reasoning.model.as_bytes()).field(reasoning.json.as_bytes())
                }
            };
        }
    }
    if let Some(schema) = &request.schema {
        hasher.field(b"schema").field(schema.name.as_bytes()).field(schema.schema.to_string().as_bytes());
    }
    for tool in &request.tools {
        hasher.field(b"tool").field(tool.name.as_bytes()).field(tool.description.as_bytes());
        hasher.field(tool.parameters.to_string().as_bytes());
    }
    if let Some(name) = &request.must_call {
        hasher.field(b"must call").field(name.as_bytes());
    }
    hasher.field(&request.temperature.unwrap_or(-1.0).to_le_bytes());
    hasher.field(&request.max_tokens.unwrap_or(0).to_le_bytes());
}
