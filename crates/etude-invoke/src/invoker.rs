//! The one way by which the host invokes anything: a chain of layers with a function at its end (D-7).
//!
//! Code steps, hooks and guards of stages, answers of models, tools of agents and of stages, commands of applications:
//! each is an [`Invocation`] of a [`Kind`]. A kind has the layers that are part of the program; the main skill of an app
//! adds its own, in any language. What comes out of a chain as its function gave it is passed on bit by bit ([`Form`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::{Outcome, Throw, ThrowKind};
use etude_core::tree;
use serde_json::{Value, json};
pub use tokio_util::sync::CancellationToken;

use crate::call::{Checks, HostCall};
use crate::kind::{Chains, Kind, tool_name};
use crate::project::Project;
use crate::session::{Access, Session, Signal, Watch};

/// The directories and variables that layers get from the host.
#[derive(Debug, Clone, Default)]
pub struct LayerSettings {
    /// A directory for what they need while they run: sockets and long values.
    pub scratch: PathBuf,
    /// Variables for their programs besides those of the run's scripts.
    pub extra_env: Vec<(String, OsString)>,
}

impl LayerSettings {
    /// What layers may use, without anybody who answers questions.
    pub fn access(&self, withheld_env: Vec<String>, yolo: bool) -> Access {
        Access {
            run_id: None,
            scratch: self.scratch.clone(),
            yolo,
            env: BTreeMap::new(),
            withheld_env,
            redactor: None,
            extra_env: self.extra_env.clone(),
            gateway: None,
            handlers: BTreeMap::new(),
        }
    }
}

/// How the end of a function looks to layers, and what its caller gets when they have changed it.
pub trait Form: Send + Sync + 'static {
    /// The end as anyone who invoked it wants it.
    type End: Send + 'static;

    /// What layers see. If `is_seen` is false no layer looks at a result, and none need be made.
    fn outcome(&self, end: &Self::End, name: &str, is_seen: bool) -> Outcome;

    /// True if middleware has left the end as it was. One in another process passes on what `next` has given: a throw with
    /// the same words and nothing else, and `null` for nothing, which is what `etude host next` prints.
    fn is_same(&self, before: &Outcome, after: &Outcome) -> bool {
        match (before, after) {
            (Err(before), Err(after)) => before.message == after.message,
            (Ok(None), Ok(Some(Value::Null))) => true,
            (before, after) => before == after,
        }
    }

    /// The end after layers have made something else of it, or have not let the function run.
    fn changed(&self, own: Option<Self::End>, outcome: Outcome) -> Self::End;
}

/// One call by the host.
pub struct Invocation {
    /// Selects the chain.
    pub kind: Kind,
    /// What is called, in the words of the caller; layers see it as a name of a tool.
    pub name: String,
    /// For events: the effect of the run that it is.
    pub key: String,
    /// A JSON object: what middleware sees, and what a tool gets.
    pub args: Arc<Value>,
    /// What the program's own layers check.
    pub checks: Checks,
    /// Abandons it, layers included.
    pub given_up: CancellationToken,
}

/// The chains of one app for as long as something runs. Clones are the same.
#[derive(Clone)]
pub struct Invoker(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    chains: Chains,
    is_observed: bool,
    session: Mutex<Stage>,
}

/// The session of an invoker.
enum Stage {
    /// What it is made of, until something has to pass it.
    Unopened(Box<(Project, Access, Box<dyn Watch>)>),
    Open(Session),
    Closed,
}

impl Invoker {
    /// The chains for the app in `dir`: those of its project if its main skill says that it is one, else those of the
    /// program alone. `watch` sees what middleware emits, and every invocation if `is_observed`.
    pub fn open(
        dir: &Path,
        project: Option<Project>,
        access: Access,
        watch: Box<dyn Watch>,
        is_observed: bool,
    ) -> Self {
        let (project, chains) = match project {
            Some(mut project) => {
                let chains = Chains::compile(&mut project);
                (project, chains)
            }
            None => (Project::bare(dir), Chains::standard()),
        };
        let session = Mutex::new(Stage::Unopened(Box::new((project, access, watch))));
        Self(Arc::new(Inner { dir: dir.to_owned(), chains, is_observed, session }))
    }

    /// What comes out of the chain of an invocation, at whose end stands `perform`, once or not at all. Dropping the future
    /// gives the function up.
    pub async fn invoke<F: Form, W: Future<Output = F::End>>(
        &self,
        invocation: Invocation,
        form: F,
        run_effect: impl FnOnce() -> W,
    ) -> F::End {
        let Invocation { kind, name, key, args, checks, given_up } = invocation;
        let (chain, is_seen) = match self.0.chains.of(kind) {
            Ok(chain) if chain.is_idle && !self.0.is_observed => return run_effect().await,
            Ok(chain) => (chain, chain.is_seen || checks.returns.is_some()),
            Err(throw) => return form.changed(None, Err(throw.clone())),
        };
        let name = tool_name(&name);
        let session = match self.session() {
            Ok(session) => session,
            Err(why) => return form.changed(None, Err(Throw::new(ThrowKind::Environment, &name, why))),
        };
        let tool = chain.named(&name, &checks);
        let call = Arc::new(HostCall::new(key, checks));
        let mut begun = session.open(tool, args, Arc::clone(&call), given_up);
        let (mut run_effect, mut own) = (Some(run_effect), None);
        let outcome = loop {
            match begun.next().await {
                Signal::Finished(outcome, _) => break outcome,
                Signal::Run(id) => {
                    let outcome = match run_effect.take() {
                        Some(run_effect) => {
                            let end = run_effect().await;
                            let outcome = form.outcome(&end, &name, is_seen);
                            own = Some((end, outcome.clone()));
                            outcome
                        }
                        None => Err(Throw::new(ThrowKind::Failed, &name, "it has run already")),
                    };
                    begun.end(id, outcome);
                }
            }
        };
        // What somebody has to be asked about was not done, whatever layers make of that.
        let outcome = call.held().map_or(outcome, Err);
        match own {
            Some((end, before)) if form.is_same(&before, &outcome) => end,
            own => form.changed(own.map(|(end, _)| end), outcome),
        }
    }

    /// True if a layer may look at arguments or results of this kind: else they need not be made.
    pub fn is_seen(&self, kind: Kind) -> bool {
        self.0.chains.of(kind).is_ok_and(|chain| chain.is_seen)
    }

    /// The session, opened for the first invocation that passes it.
    fn session(&self) -> Result<Session, String> {
        let mut stage = self.0.session.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *stage, Stage::Closed) {
            Stage::Unopened(parts) => {
                let (project, access, watch) = *parts;
                let opened = Session::new(project, access, watch, self.0.is_observed)
                    .map_err(|error| format!("`{}` cannot be opened: {error}", self.0.dir.display()))?;
                *stage = Stage::Open(opened.clone());
                Ok(opened)
            }
            Stage::Open(session) => {
                *stage = Stage::Open(session.clone());
                Ok(session)
            }
            Stage::Closed => Err("everything has been closed".to_owned()),
        }
    }

    /// Waits for what events have begun, as long as nothing is `stopped`, and ends what layers have left running.
    pub async fn close(&self, stopped: impl Future<Output = ()>) {
        let stage =
            std::mem::replace(&mut *self.0.session.lock().unwrap_or_else(PoisonError::into_inner), Stage::Closed);
        let Stage::Open(session) = stage else { return };
        session.settle(stopped).await;
        // What handlers of the last events have left running is ended by blocking calls.
        let _ = tokio::task::spawn_blocking(move || session.close()).await;
    }
}

impl fmt::Debug for Invoker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invoker").field("dir", &self.0.dir).finish_non_exhaustive()
    }
}

/// A text as layers see it: the value, if it is JSON.
pub fn as_value(text: &str) -> Value {
    tree::of(text).unwrap_or_else(|_| json!(text))
}
