//! The chain around what runs outside of skills: code steps of pipelines, and the tools that agents call.
//!
//! An app whose main skill declares layers (`role: main`) has them around everything. The whole invocation, layers
//! included, is one effect of its run: the journal has what came out of the chain.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etude_chain::{Kind, Outcome, Throw};
use etude_core::data::Json;
use etude_core::effect::{Chunk, ProcessCall, Stdin};
use etude_core::outcome::{Exit, ProcessEnd, Stdout};
use etude_core::tool::{Offer, ToolCall, ToolReply, ToolResult, Toolbox};
use etude_runtime::driver::Stop;
use etude_runtime::host::{Boxed, ToolPort};
use etude_runtime::process::{Around, Cancel, Cancelled};
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::cascade::project::{Project, Setup};
use crate::cascade::session::{Access, Caller, Leaf, Native, Session, Silent};

/// What layers get.
#[derive(Debug, Clone, Default)]
pub struct LayerSettings {
    /// A directory for what they need while they run: sockets and long values.
    pub scratch: PathBuf,
    /// Variables for their programs besides those of the run's scripts.
    pub extra_env: Vec<(String, OsString)>,
}

impl LayerSettings {
    /// What layers may use, without anybody who answers questions.
    pub fn access(&self, scrub_env: Vec<String>, yolo: bool) -> Access {
        Access {
            scratch: self.scratch.clone(),
            yolo,
            env: BTreeMap::new(),
            scrub_env,
            extra_env: self.extra_env.clone(),
            gateway: None,
            leaves: BTreeMap::new(),
        }
    }
}

/// The chains of an app.
#[derive(Clone)]
pub struct Chains {
    project: Project,
    access: Access,
    handle: tokio::runtime::Handle,
}

impl Chains {
    /// The chains of the app in `dir`, if it has a main skill that says so. Called where a runtime is at hand.
    pub fn of(dir: &Path, access: Access) -> Option<Self> {
        let setup = Setup { start: dir.to_owned(), dir: Some(dir.to_owned()), ..Setup::default() };
        let handle = tokio::runtime::Handle::try_current().ok()?;
        let project = Project::open_marked(setup)?;
        Some(Self { project, access, handle })
    }

    /// Invokes `name`, at the end of whose chain stands `leaf`.
    async fn invoke(&self, name: &str, args: Value, leaf: Arc<dyn Leaf>, stop: watch::Receiver<Stop>) -> Outcome {
        let name = tool_name(name);
        // What runs here checks its own arguments.
        let metadata = Map::from_iter([("params".to_owned(), json!({}))]);
        let mut access = self.access.clone();
        access.leaves = BTreeMap::from([(name.clone(), Native { metadata, leaf })]);
        let failed =
            |error: std::io::Error| Throw::new(Kind::Environment, &name, format!("no socket can be made: {error}"));
        let mut session = Session::new(self.project.clone(), access).map_err(failed)?;
        let mut stop = stop;
        let ended = session.invoke(&name, args, &mut Silent, &mut stop).await;
        session.close();
        ended.outcome
    }
}

impl fmt::Debug for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chains").field("dir", &self.project.dir).finish_non_exhaustive()
    }
}

/// How often a step whose layers run looks whether it was given up.
const LOOK: Duration = Duration::from_millis(50);

/// A name that patterns and skills can have: `code-review/analyze_files[3]` is `code-review-analyze-files`.
fn tool_name(text: &str) -> String {
    let text = text.split(['[', '#']).next().unwrap_or_default();
    let mut name = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            name.extend(c.to_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.truncate(64);
    name.trim_end_matches('-').to_owned()
}

/// What a process at the end of a chain is asked, and what its thread answers.
enum Asked {
    /// Run it.
    Perform(oneshot::Sender<Outcome>),
    /// The chain has ended.
    Over(Outcome),
}

/// Has the thread of a process perform it: it may borrow from there.
struct ProcessLeaf(Mutex<mpsc::Sender<Asked>>);

impl Leaf for ProcessLeaf {
    fn run(&self, _args: Value, _caller: Caller) -> Boxed<Outcome> {
        let (reply, answer) = oneshot::channel();
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = to.send(Asked::Perform(reply));
        Box::pin(async move {
            let gone = || Throw::new(Kind::Failed, "process", "it was given up");
            sent.map_err(|_| gone())?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl Chains {
    /// What comes out of the chain of `name`, at whose end `perform` is called on this thread, once or not at all. Blocks.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn around(
        &self,
        name: &str,
        args: Value,
        cancel: &Cancel,
        perform: &mut dyn FnMut() -> Result<Outcome, Cancelled>,
    ) -> Result<Outcome, Cancelled> {
        let (to, from) = mpsc::channel();
        let leaf: Arc<dyn Leaf> = Arc::new(ProcessLeaf(Mutex::new(to.clone())));
        let (stopping, stop) = watch::channel(Stop::No);
        let (chains, key) = (self.clone(), name.to_owned());
        self.handle.spawn(async move {
            let outcome = chains.invoke(&key, args, leaf, stop).await;
            // Whoever waited may have been cancelled.
            let _ = to.send(Asked::Over(outcome));
        });
        loop {
            match from.recv_timeout(LOOK) {
                Ok(Asked::Perform(reply)) => {
                    let given_up = |_| Err(Throw::new(Kind::Failed, name, "it was given up"));
                    // A chain that has ended meanwhile no longer listens.
                    let _ = reply.send(perform().unwrap_or_else(given_up));
                }
                Ok(Asked::Over(_)) if cancel.is_cancelled() => return Err(Cancelled),
                Ok(Asked::Over(outcome)) => return Ok(outcome),
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                    let _ = stopping.send(Stop::Kill("it was given up".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Err(Throw::new(Kind::Failed, name, "its chain broke down")));
                }
            }
        }
    }
}

impl Around for Chains {
    fn process(
        &self,
        call: &ProcessCall,
        cancel: &Cancel,
        perform: &mut dyn FnMut() -> Result<ProcessEnd, Cancelled>,
    ) -> Result<ProcessEnd, Cancelled> {
        let mut performed: Option<(ProcessEnd, Outcome)> = None;
        let outcome = self.around(&call.key, document(&call.stdin), cancel, &mut || {
            let end = perform()?;
            let outcome = outcome_of(call, &end);
            performed = Some((end, outcome.clone()));
            Ok(outcome)
        })?;
        Ok(end_of(performed, outcome))
    }
}

/// The stdin of a step as arguments; nothing if it is kept elsewhere, because it is long.
fn document(stdin: &Stdin) -> Value {
    let mut text = String::new();
    for chunk in &stdin.0 {
        match chunk {
            Chunk::Text(piece) => text.push_str(piece),
            Chunk::Json(json) => match json.inline() {
                Some(piece) => text.push_str(piece),
                None => return json!({}),
            },
        }
    }
    serde_json::from_str(&text).unwrap_or_else(|_| json!({}))
}

fn outcome_of(call: &ProcessCall, end: &ProcessEnd) -> Outcome {
    let failed = |message: String| Err(Throw::new(Kind::Failed, &call.key, message));
    match (&end.exit, &end.stdout) {
        (Exit::Status(0), Stdout::Value(json)) => match json.value() {
            Ok(value) => Ok(Some(value)),
            Err(error) => failed(error.to_string()),
        },
        (Exit::Status(0), Stdout::Unusable { problem, .. }) => failed(problem.clone()),
        (Exit::NotStarted(why), _) => failed(why.clone()),
        (Exit::Status(status), _) => failed(format!("exited with status {status}")),
        (Exit::Signal { name, .. }, _) => failed(format!("was ended by {name}")),
    }
}

/// The end that a run is told: the process's own, unless a layer has changed what came of it.
fn end_of(performed: Option<(ProcessEnd, Outcome)>, outcome: Outcome) -> ProcessEnd {
    let (end, before) = performed.map_or((None, None), |(end, before)| (Some(end), Some(before)));
    if before.as_ref() == Some(&outcome)
        && let Some(end) = end
    {
        return end;
    }
    let (stderr, conditions) = end.map_or_else(Default::default, |end| (end.stderr, end.conditions));
    match outcome {
        Ok(value) => {
            let value = value.unwrap_or(Value::Null);
            ProcessEnd { exit: Exit::Status(0), stdout: Stdout::Value(Json::of(&value)), stderr, conditions }
        }
        Err(throw) => {
            let stdout = Stdout::Unusable { problem: "a layer refused it".to_owned(), found: String::new() };
            let why = format!("`{}` refused it: {}", throw.tool, throw.message);
            ProcessEnd { exit: Exit::NotStarted(why), stdout, stderr, conditions }
        }
    }
}

/// The tools of agents, each call through its chain.
#[derive(Debug)]
pub(crate) struct ChainedTools {
    pub(crate) chains: Arc<Chains>,
    pub(crate) inner: Arc<dyn ToolPort>,
}

/// Makes one call, and keeps what it gave as it was.
struct ToolLeaf {
    inner: Arc<dyn ToolPort>,
    call: ToolCall,
    cancel: CancellationToken,
    gave: Arc<Mutex<Option<(ToolReply, Outcome)>>>,
}

impl Leaf for ToolLeaf {
    fn run(&self, _args: Value, _caller: Caller) -> Boxed<Outcome> {
        let (work, gave) = (self.inner.call(self.call.clone(), self.cancel.clone()), Arc::clone(&self.gave));
        let name = self.call.name.clone();
        Box::pin(async move {
            let reply = work.await;
            let outcome = match &reply {
                ToolReply::Done(ToolResult { content, error: None }) => {
                    Ok(Some(serde_json::from_str(content).unwrap_or_else(|_| json!(content))))
                }
                ToolReply::Done(ToolResult { error: Some(error), .. }) => {
                    Err(Throw::new(Kind::Failed, &name, error.message.clone()))
                }
                ToolReply::Held { question, .. } => Err(Throw::new(Kind::Waiting, &name, question.clone())),
            };
            *gave.lock().unwrap_or_else(PoisonError::into_inner) = Some((reply, outcome.clone()));
            outcome
        })
    }
}

impl ToolPort for ChainedTools {
    fn open(&self, toolbox: Arc<Toolbox>) -> Boxed<Offer> {
        self.inner.open(toolbox)
    }

    fn call(&self, call: ToolCall, cancel: CancellationToken) -> Boxed<ToolReply> {
        let gave = Arc::new(Mutex::new(None));
        let args = etude_core::tool::arguments(&call.arguments).and_then(|json| json.value().ok());
        let (name, given_up) = (call.name.clone(), cancel.clone());
        let leaf = ToolLeaf { inner: Arc::clone(&self.inner), call, cancel, gave: Arc::clone(&gave) };
        let chains = Arc::clone(&self.chains);
        Box::pin(async move {
            let (stopping, stop) = watch::channel(Stop::No);
            let work = chains.invoke(&name, args.unwrap_or_else(|| json!({})), Arc::new(leaf), stop);
            tokio::pin!(work);
            let outcome = tokio::select! {
                outcome = &mut work => outcome,
                () = given_up.cancelled() => {
                    let _ = stopping.send(Stop::Kill("the call was given up".to_owned()));
                    work.await
                }
            };
            let gave = gave.lock().unwrap_or_else(PoisonError::into_inner).take();
            match (gave, outcome) {
                (Some((reply, before)), after) if before == after => reply,
                // Somebody has to be asked before anything is done, whatever layers make of that.
                (Some((reply @ ToolReply::Held { .. }, _)), _) => reply,
                (_, Ok(value)) => {
                    let content = match value.unwrap_or(Value::Null) {
                        Value::String(text) => text,
                        value => value.to_string(),
                    };
                    ToolReply::Done(ToolResult { content, error: None })
                }
                (_, Err(throw)) => {
                    let message = format!("`{}` refused it: {}", throw.tool, throw.message);
                    ToolReply::Done(ToolResult::terminal("ToolRefused", &message))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-2.4: steps and tools have names that patterns can match.
    #[test]
    fn names_of_steps_are_names_of_tools() {
        assert_eq!(tool_name("code-review/analyze_files[3]#2"), "code-review-analyze-files");
        assert_eq!(tool_name("mcp__github__get_issue"), "mcp-github-get-issue");
        assert_eq!(tool_name("Bash"), "bash");
    }
}
