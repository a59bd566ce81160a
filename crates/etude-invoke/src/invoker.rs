//! The one way by which the host invokes anything: a chain of layers with a function at its end (D-7).
//!
//! Code steps, hooks and guards of stages, answers of models, tools of agents and of stages, commands of applications:
//! each is an [`Invocation`] of a [`Kind`]. A kind has the layers that are part of the program; the main skill of an app
//! adds its own, in any language. What comes out of a chain as its function gave it is passed on bit by bit ([`Form`]).

mod call;
mod kind;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chain::{Outcome, Throw, ThrowKind, Tool};
use etude_core::tree;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
pub use tokio_util::sync::CancellationToken;

use crate::Boxed;
use crate::project::Project;
use crate::session::{Access, Incoming, Session, Watch};

pub use call::{Asker, Checks, Confirms, Expected};
pub use kind::Kind;

pub(crate) use call::{HostCall, work_of};

use kind::{Chains, tool_name};

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
    /// The end as whoever invoked it wants it.
    type End: Send + 'static;

    /// What layers see. If `is_seen` is false no layer looks at a result, and none need be made.
    fn outcome(&self, end: &Self::End, name: &str, is_seen: bool) -> Outcome;

    /// True if layers have left the end as it was.
    fn is_same(&self, before: &Outcome, after: &Outcome) -> bool {
        before == after
    }

    /// The end after layers have made something else of it, or have not let the function run.
    fn changed(&self, own: Option<Self::End>, outcome: Outcome) -> Self::End;
}

/// One call by the host.
pub struct Invocation {
    /// Selects the chain.
    pub kind: Kind,
    /// What is called, in the words of whoever calls; layers see it as a name of a tool.
    pub name: String,
    /// For events: the effect of the run that it is.
    pub key: String,
    /// A JSON object, as middleware sees it.
    pub args: Value,
    /// What the program's own layers check.
    pub checks: Checks,
    /// Gives it up, layers included.
    pub given_up: CancellationToken,
}

/// The chains of one app for as long as something runs. Clones are the same.
#[derive(Clone)]
pub struct Invoker(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    chains: Chains,
    watch: Mutex<Option<Box<dyn Watch>>>,
    is_observed: bool,
    /// What the session is made of, until something has to pass it.
    ground: Mutex<Option<(Project, Access)>>,
    session: Mutex<Option<Serving>>,
}

/// A session at work.
struct Serving {
    to: mpsc::UnboundedSender<Incoming>,
    task: JoinHandle<()>,
    /// Gives up what no invocation waits for: handlers of events.
    stop: CancellationToken,
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
        let (ground, watch) = (Mutex::new(Some((project, access))), Mutex::new(Some(watch)));
        Self(Arc::new(Inner { dir: dir.to_owned(), chains, watch, is_observed, ground, session: Mutex::default() }))
    }

    /// What comes out of the chain of an invocation, at whose end stands `perform`, once or not at all.
    pub async fn invoke<F: Form>(
        &self,
        invocation: Invocation,
        form: F,
        run_effect: impl FnOnce() -> Boxed<F::End> + Send + 'static,
    ) -> F::End {
        let Invocation { kind, name, key, args, checks, given_up } = invocation;
        let (chain, is_seen) = match self.0.chains.of(kind) {
            Ok(chain) if chain.is_idle && !self.0.is_observed => return run_effect().await,
            Ok(chain) => (chain, chain.is_seen || checks.returns.is_some()),
            Err(throw) => return form.changed(None, Err(throw.clone())),
        };
        let name = tool_name(&name);
        let tool = chain.named(&name, &checks);
        let (form, kept) = (Arc::new(form), Arc::new(tokio::sync::Mutex::new(None)));
        let (own_form, keeps) = (Arc::clone(&form), Arc::clone(&kept));
        let work = move || -> Boxed<Outcome> {
            // Whoever waits for the chain also waits for what it has begun: a layer need not. So this is taken at once, not when
            // the future is first polled.
            let kept = keeps.try_lock_owned();
            Box::pin(async move {
                let Ok(mut kept) = kept else {
                    return Err(Throw::new(ThrowKind::Failed, &name, "its invocation is over"));
                };
                let end = run_effect().await;
                let outcome = own_form.outcome(&end, &name, is_seen);
                *kept = Some((end, outcome.clone()));
                outcome
            })
        };
        let call = Arc::new(HostCall::new(key, checks, Box::new(work)));
        let outcome = self.pass(tool, args, Arc::clone(&call), given_up).await;
        // What somebody has to be asked about was not done, whatever layers make of that.
        let outcome = call.held().map_or(outcome, Err);
        match kept.lock().await.take() {
            Some((end, before)) if form.is_same(&before, &outcome) => end,
            own => form.changed(own.map(|(end, _)| end), outcome),
        }
    }

    /// True if a layer may look at arguments or results of this kind: else they need not be made.
    pub fn is_seen(&self, kind: Kind) -> bool {
        self.0.chains.of(kind).is_ok_and(|chain| chain.is_seen)
    }

    /// Has the session run an invocation.
    async fn pass(&self, tool: Arc<Tool>, args: Value, call: Arc<HostCall>, given_up: CancellationToken) -> Outcome {
        let name = Arc::clone(&tool.name);
        let broken = |why: String| Err(Throw::new(ThrowKind::Environment, &name, why));
        let (reply, answer) = oneshot::channel();
        match self.send(Incoming { tool, args, call, given_up, reply }) {
            Ok(()) => answer.await.unwrap_or_else(|_| broken("its chain broke down".to_owned())),
            Err(why) => broken(why),
        }
    }

    fn send(&self, incoming: Incoming) -> Result<(), String> {
        let mut session = self.session();
        if session.is_none() {
            let ground = self.0.ground.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (project, access) = ground.ok_or("everything has been closed")?;
            let made = Session::new(project, access, self.0.is_observed)
                .map_err(|error| format!("`{}` cannot be opened: {error}", self.0.dir.display()))?;
            let (to, calls) = mpsc::unbounded_channel();
            let stop = made.stopper();
            let watch = self.0.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut watch = watch.ok_or("everything has been closed")?;
            let task = tokio::spawn(async move { made.serve(calls, &mut *watch).await });
            *session = Some(Serving { to, task, stop });
        }
        let serving = session.as_ref().ok_or("everything has been closed")?;
        serving.to.send(incoming).map_err(|_| "its chain broke down".to_owned())
    }

    /// Waits for what events have begun, as long as nothing is `stopped`, and ends what layers have left running.
    pub async fn close(&self, stopped: impl Future<Output = ()>) {
        let serving = self.session().take();
        let Some(Serving { to, mut task, stop }) = serving else { return };
        drop(to);
        tokio::select! {
            // A session that broke down has nothing left to close.
            _ = &mut task => return,
            () = stopped => stop.cancel(),
        }
        let _ = task.await;
    }

    fn session(&self) -> MutexGuard<'_, Option<Serving>> {
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner)
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
