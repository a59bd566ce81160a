//! Tools without a file: their functions, and the way from a function back to its session.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_process::ProcessHost;
use etude_spec::cascade::Scope;
use etude_spec::cascade::search::Catalog;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Handle, State};
use crate::Boxed;
use crate::chain::{CallId, ContextId, Outcome, Throw, ThrowKind};
use crate::middleware::{GATEWAY, Shared};
use crate::script_host::Ask;

/// A tool without a file.
#[derive(Clone)]
pub struct BuiltinTool {
    /// What it is for. A tool that says so itself comes before skills of its name (D-9.1).
    pub description: Option<String>,
    /// Its address, if it has one.
    pub uri: Option<String>,
    /// Its metadata, if no skill of its name is there that has some.
    pub metadata: Map<String, Value>,
    /// The function that runs when it is invoked.
    pub handler: Arc<dyn Handler>,
}

/// Answers questions, as a person or a policy does. Blocks.
pub trait Gateway: Send + Sync {
    /// The answer; `None` if there is none.
    fn ask(&self, question: &Value) -> Option<Value>;
}

/// The function of a tool that has no file: the effect at the end of a chain.
pub trait Handler: Send + Sync {
    /// Performs it. What it invokes through `caller` passes chains of its own.
    fn run(&self, args: Arc<Value>, caller: Caller) -> Boxed<Outcome>;
}

/// The way from a function back to its session.
#[derive(Clone)]
pub struct Caller {
    call: CallId,
    served: Option<ContextId>,
    /// The name of the tool that is served.
    pub serves: Option<Arc<str>>,
    session: Handle,
    /// Is cancelled when the session is stopped.
    pub cancel: CancellationToken,
    /// Runs its programs.
    pub processes: Arc<ProcessHost>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
    /// The session's own directory.
    pub scratch: PathBuf,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("call", &self.call).field("served", &self.served).finish_non_exhaustive()
    }
}

impl Caller {
    /// The skills that can be called.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    /// What chains of the session are compiled with.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The project's directory.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Invokes a tool on behalf of the tool that is served: its `allowed-tools` hold.
    pub async fn invoke(&self, name: &str, args: Value) -> Outcome {
        self.request(Ask::Invoke { name: name.to_owned(), args }, name).await
    }

    /// The answer of the gateway to a question of the function.
    pub async fn ask(&self, question: Value) -> Outcome {
        self.request(Ask::Question(question), GATEWAY).await
    }

    /// Leaves the conversation of an agent in `locals.agent.trace` of the tool that is served (D-8).
    pub fn leave_trace(&self, trace: Value) {
        self.session.update(|state| {
            let Some(served) = self.served.and_then(|id| state.machine.context_mut(id)) else { return };
            let agent = served.locals.entry("agent").or_insert_with(|| json!({}));
            if !agent.is_object() {
                *agent = json!({});
            }
            agent["trace"] = trace;
        });
    }

    async fn request(&self, ask: Ask, name: &str) -> Outcome {
        let over = || Err(Throw::new(ThrowKind::Failed, name, "the session is over"));
        match self.session.update(|state| state.asked(self.call, ask, self.served)) {
            Some(reply) => reply.await.unwrap_or_else(|_| over()),
            None => over(),
        }
    }
}

impl State {
    pub(super) fn caller(&mut self, call: CallId, served: Option<ContextId>) -> Caller {
        let serves = served.and_then(|id| self.machine.context(id)).map(|context| Arc::clone(&context.tool.name));
        Caller {
            call,
            served,
            serves,
            session: self.own.clone(),
            cancel: self.token_of(call),
            processes: self.processes(),
            shared: Arc::clone(&self.table.shared),
            scope: Arc::clone(&self.table.scope),
            scratch: self.scratch.clone(),
        }
    }
}
