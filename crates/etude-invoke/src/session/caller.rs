//! Tools without a file: their functions, and the access of a function to its session.

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
    /// Description for models and listings. A tool with one takes precedence over skills of its name (D-9.1).
    pub description: Option<String>,
    /// URI of the tool; `None` if it has none.
    pub uri: Option<String>,
    /// Metadata, used unless a skill of the same name has some.
    pub metadata: Map<String, Value>,
    /// The function that runs when the tool is invoked.
    pub handler: Arc<dyn Handler>,
}

/// Answers questions, as a person or a policy does. Blocks.
pub trait Gateway: Send + Sync {
    /// The answer; `None` if no one answered.
    fn ask(&self, question: &Value) -> Option<Value>;
}

/// The function of a tool that has no file: the effect at the end of a chain.
pub trait Handler: Send + Sync {
    /// Runs the function. Tools that it invokes through `caller` have their own chains.
    fn run(&self, args: Arc<Value>, caller: Caller) -> Boxed<Outcome>;
}

/// The access of a function to its session.
#[derive(Clone)]
pub struct Caller {
    call: CallId,
    served: Option<ContextId>,
    /// Name of the served tool.
    pub serves: Option<Arc<str>>,
    session: Handle,
    /// Cancelled when the call is abandoned or the session is stopped.
    pub cancel: CancellationToken,
    /// The host for the function's programs.
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

    /// The scope in which chains of the session are compiled.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The project's directory.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Invokes a tool on behalf of the served tool, whose `allowed-tools` apply.
    pub async fn invoke(&self, name: &str, args: Value) -> Outcome {
        self.request(Ask::Invoke { name: name.to_owned(), args }, name).await
    }

    /// Asks the gateway a question of the function.
    pub async fn ask(&self, question: Value) -> Outcome {
        self.request(Ask::Question(question), GATEWAY).await
    }

    /// Stores the conversation of an agent in `locals.agent.trace` of the served tool (D-8).
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
