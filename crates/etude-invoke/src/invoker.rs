//! The invoker: the host's only way to call anything, through a middleware chain with a function at its end (D-7).
//!
//! Code steps, hooks and guards of stages, model calls of steps, tools of agents and stages, and commands of applications: each
//! is an [`Invocation`] of an [`InvocationKind`]. The program adds its own middleware to a kind; the main skill of an app adds
//! more, in any language. A result that no middleware changed is passed on bit by bit ([`Form`]).

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
use crate::kind::{Chains, InvocationKind, tool_name};
use crate::project::Project;
use crate::session::{Access, Session, Signal, Watch};

/// Directories and variables for middleware.
#[derive(Debug, Clone, Default)]
pub struct MiddlewareSettings {
    /// A directory for sockets and long values while programs run.
    pub scratch: PathBuf,
    /// Variables for programs of middleware, besides those of the run's scripts.
    pub extra_env: Vec<(String, OsString)>,
}

impl MiddlewareSettings {
    /// Access for middleware in a session without a gateway for questions.
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

/// Conversion between the result of a function and the outcome that middleware sees.
pub trait Form: Send + Sync + 'static {
    /// The result as the caller wants it.
    type End: Send + 'static;

    /// The outcome for middleware. If `is_seen` is false, no middleware looks at a result, and the value may be left out.
    fn outcome(&self, end: &Self::End, name: &str, is_seen: bool) -> Outcome;

    /// True if middleware left the result unchanged. Middleware in another process passes on the output of `etude host next`:
    /// of a throw only the message, and `null` for an undefined result.
    fn is_same(&self, before: &Outcome, after: &Outcome) -> bool {
        match (before, after) {
            (Err(before), Err(after)) => before.message == after.message,
            (Ok(None), Ok(Some(Value::Null))) => true,
            (before, after) => before == after,
        }
    }

    /// The result after middleware changed the outcome or did not run the function.
    fn changed(&self, own: Option<Self::End>, outcome: Outcome) -> Self::End;
}

/// One call by the host.
pub struct Invocation {
    /// Selects the chain.
    pub kind: InvocationKind,
    /// Name of the called function, in the caller's terms; middleware sees it as a tool name.
    pub name: String,
    /// Effect of the run that makes the call, for events.
    pub key: String,
    /// Arguments for middleware and tools, a JSON object.
    pub args: Arc<Value>,
    /// Checks of etude's own middleware.
    pub checks: Checks,
    /// Abandons the call with its middleware.
    pub given_up: CancellationToken,
}

/// The chains and the session of one app. Clones share both.
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
    /// Its parts, until the first invocation needs a session.
    Unopened(Box<(Project, Access, Box<dyn Watch>)>),
    Open(Session),
    Closed,
}

impl Invoker {
    /// The chains for the app in `dir`: those of its project if its main skill declares one, otherwise those of the program
    /// alone. `watch` receives the output of middleware, and every invocation if `is_observed`.
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

    /// Runs an invocation through its chain, with `run_effect` at the end, which runs at most once. Dropping the future
    /// abandons the function.
    pub async fn invoke<F: Form, W: Future<Output = F::End>>(
        &self,
        invocation: Invocation,
        form: F,
        run_effect: impl FnOnce() -> W,
    ) -> F::End {
        let Invocation { kind, name, key, args, checks, given_up } = invocation;
        let (chain, is_seen) = match self.0.chains.of(kind) {
            Ok(_) if self.is_idle(kind) => return run_effect().await,
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
                        None => Err(Throw::new(ThrowKind::Failed, &name, "it has already run")),
                    };
                    begun.end(id, outcome);
                }
            }
        };
        // A held call was not made, whatever middleware makes of the throw.
        let outcome = call.held().map_or(outcome, Err);
        match own {
            Some((end, before)) if form.is_same(&before, &outcome) => end,
            own => form.changed(own.map(|(end, _)| end), outcome),
        }
    }

    /// True if middleware may look at arguments or results of this kind. Otherwise they need not be built.
    pub fn is_seen(&self, kind: InvocationKind) -> bool {
        self.0.chains.of(kind).is_ok_and(|chain| chain.is_seen)
    }

    /// True if an invocation of this kind is its function alone: no middleware is around it, and no event reports it.
    pub fn is_idle(&self, kind: InvocationKind) -> bool {
        !self.0.is_observed && self.0.chains.of(kind).is_ok_and(|chain| chain.is_idle)
    }

    /// The session, opened for the first invocation.
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
            Stage::Closed => Err("internal error: the session is closed".to_owned()),
        }
    }

    /// Waits for the handlers of events until `stopped` ends, and kills the leftovers of middleware.
    pub async fn close(&self, stopped: impl Future<Output = ()>) {
        let stage =
            std::mem::replace(&mut *self.0.session.lock().unwrap_or_else(PoisonError::into_inner), Stage::Closed);
        let Stage::Open(session) = stage else { return };
        session.settle(stopped).await;
        // Leftovers of the last event handlers are killed by blocking calls.
        let _ = tokio::task::spawn_blocking(move || session.close()).await;
    }
}

impl fmt::Debug for Invoker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invoker").field("dir", &self.0.dir).finish_non_exhaustive()
    }
}

/// A text as middleware sees it: the parsed value if it is JSON, otherwise a string.
pub fn as_value(text: &str) -> Value {
    tree::parse(text).unwrap_or_else(|_| json!(text))
}
