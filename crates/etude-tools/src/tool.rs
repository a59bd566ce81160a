//! What a tool is, what a call of it is given, and what it gives back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use etude_core::schema::Schema;
pub use etude_core::tool::{ErrorClass, ToolError, ToolResult};
use etude_core::tree;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::confine::PathArgument;
use crate::pattern::Withheld;

/// The arguments of a call: a JSON object.
pub type Args = Map<String, Value>;

/// The members of arguments; none if they are no object.
pub fn members(args: &Value) -> &Args {
    static NONE: LazyLock<Args> = LazyLock::new(Args::new);
    args.as_object().unwrap_or(&NONE)
}

/// A future that can be sent to another thread.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A tool that an agent may call. A description only: [`crate::ToolSet::call`] calls it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// `[A-Za-z0-9_-]{1,64}`, unique in its set.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema (an object) of its arguments.
    pub input_schema: Arc<Value>,
    /// What it does to the world.
    pub effect: Effect,
    /// Whether a call asks the policy first; tools declared `gated: false` do not (`b-stages` AP6).
    pub gated: bool,
    /// What patterns of a policy are matched with.
    pub approval_key: ApprovalKey,
    /// Tags that patterns such as `#files` select by.
    pub tags: Vec<String>,
    /// The place that the tool is from, which messages and traces name.
    pub origin: Origin,
    pub(crate) schema: Option<Arc<Schema>>,
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It looks at files that it may look at, and changes nothing: needs no approval.
    Reads,
    /// It changes files.
    Writes,
    /// It runs a program, which may do anything.
    Executes,
    /// Something outside this machine's control does it: an MCP server, whatever it says about itself.
    External,
}

/// Where a tool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Part of this program.
    BuiltIn,
    /// The app's `tools/`; the file that describes it, or the script itself.
    App {
        /// Path relative to the app.
        file: String,
    },
    /// An MCP server.
    Mcp {
        /// Name of the server in the configuration.
        server: String,
        /// Name of the tool as the server knows it.
        tool: String,
    },
}

/// How the approval key of a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalKey {
    /// The tool's name alone.
    Name,
    /// The name with a command line: `Bash(git status)`.
    Command(&'static str),
    /// The name with a path: `Write(src/main.rs)`. The base folder stands in for a path that is left out.
    Path(&'static str),
    /// Text with `{{args.x}}`: `deploy({{args.env}})`.
    Template(String),
}

impl ApprovalKey {
    /// The key of the tool `name` as a text with `{{args.x}}`; `None` for the name alone.
    pub fn template(&self, name: &str) -> Option<String> {
        match self {
            Self::Name => None,
            Self::Command(argument) | Self::Path(argument) => Some(format!("{name}({{{{args.{argument}}}}})")),
            Self::Template(template) => Some(template.clone()),
        }
    }
}

/// What a call is given besides its arguments.
#[derive(Clone, Default)]
pub struct CallContext {
    /// Gives the call up; everything that it started is ended first.
    pub cancel: CancellationToken,
    /// The model's id of the call, the same when it is repeated after a crash.
    pub call_id: String,
    /// The idempotency key of a program that the call runs, unique in its run; empty: `call_id`.
    pub key: String,
    /// Which run this is, for tools that must be idempotent.
    pub workflow_run_id: String,
    /// Which execution of a stage, if it is one that calls.
    pub stage_execution_id: Option<String>,
    /// The path that the call names, as it was judged; without it the tool resolves its argument itself.
    pub path: Option<Arc<PathArgument>>,
    /// Gets what a program prints as it comes.
    pub on_output: Option<OnOutput>,
    /// Files that a tool which looks through folders leaves out.
    pub withheld: Arc<Withheld>,
    /// The text of the arguments, if they are as they were written: a tree of them may have lost digits (A-3.3).
    pub written: Option<Arc<str>>,
    /// A step calls, and takes the result as a value: it is not cut to what a model can read.
    pub is_whole: bool,
}

/// A listener for what a program prints, in pieces of any length.
pub type OnOutput = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Most bytes of the result of a tool that a model reads.
pub(crate) const MAX_SHOWN: usize = 30_000;

impl CallContext {
    /// Most bytes of the result.
    pub(crate) fn max_result(&self) -> usize {
        if self.is_whole { usize::MAX } else { MAX_SHOWN }
    }

    /// The idempotency key of a program that the call runs. Never the same for two calls that have no id.
    pub(crate) fn key(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match [&self.key, &self.call_id].into_iter().find(|id| !id.is_empty()) {
            Some(id) => id.clone(),
            None => format!("tool-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("call_id", &self.call_id)
            .field("workflow_run_id", &self.workflow_run_id)
            .field("stage_execution_id", &self.stage_execution_id)
            .finish_non_exhaustive()
    }
}

impl Tool {
    /// A tool that is called elsewhere, as patterns see it: by name, tags and the names of its arguments.
    pub fn named(name: &str, tags: Vec<String>, input_schema: Value) -> Self {
        let mut tool = Self::new(name, "", input_schema, Effect::Executes, Origin::BuiltIn);
        tool.approval_key = ApprovalKey::Name;
        tool.tags = tags;
        tool
    }

    /// A tool whose name is its approval key and whose calls are gated.
    pub fn new(name: &str, description: &str, input_schema: Value, effect: Effect, origin: Origin) -> Self {
        // A schema that is none is the fault of anyone who made the tool; that one then checks the arguments.
        let schema = Schema::compile(name, input_schema.clone(), std::collections::BTreeMap::new()).ok().map(Arc::new);
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: Arc::new(input_schema),
            effect,
            gated: effect != Effect::Reads,
            approval_key: ApprovalKey::Name,
            tags: Vec::new(),
            origin,
            schema,
        }
    }

    /// The path that a call with `args` names, if the tool takes one.
    pub fn path<'a>(&self, args: &'a Args) -> Option<&'a str> {
        let ApprovalKey::Path(name) = &self.approval_key else { return None };
        Some(args.get(*name).and_then(Value::as_str).unwrap_or("."))
    }

    /// The tool as a model sees it.
    pub fn for_model(&self) -> etude_core::model::Tool {
        etude_core::model::Tool {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: Arc::clone(&self.input_schema),
        }
    }

    /// The arguments in the text that a model wrote. No text means no arguments.
    ///
    /// # Errors
    /// `ToolTerminal/InputInvalid`: they are no JSON object. Whether they fit is for [`Tool::misfit`].
    pub fn arguments(&self, text: &str) -> Result<Value, ToolError> {
        let invalid =
            |why: String| ToolError::terminal("InputInvalid", format!("the arguments of `{}` {why}", self.name));
        match text.trim() {
            "" => Ok(Value::Object(Map::new())),
            text => match tree::of_answer(text) {
                Ok(args @ Value::Object(_)) => Ok(args),
                Ok(_) => Err(invalid("are not a JSON object".to_owned())),
                Err(error) if tree::is_json(text) => Err(invalid(format!("cannot be looked into: {error}"))),
                Err(error) => Err(invalid(format!("are not JSON: {error}"))),
            },
        }
    }

    /// Everything in which arguments do not fit the input schema, a line each.
    pub fn misfit(&self, args: &Value) -> Option<String> {
        let violations = self.schema.as_ref()?.violations(args);
        let all: Vec<String> = violations.iter().map(|violation| format!("- {violation}")).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

/// Most bytes of a result's content.
pub const MAX_CONTENT: usize = 64 * 1024;

/// Does what a tool promises.
pub(crate) trait Run: Send + Sync + fmt::Debug {
    /// One call with arguments that fit the schema.
    fn run(&self, args: Arc<Value>, cx: CallContext) -> Boxed<ToolResult>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool() -> Tool {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        Tool::new("t", "d", schema, Effect::Reads, Origin::BuiltIn)
    }

    /// `b-stages` §11.1 (5): arguments are checked against the tool's input schema, and all faults are reported at once.
    #[test]
    fn every_violation_of_the_input_schema_is_reported() {
        let misfit = |text: &str| tool().misfit(&tool().arguments(text).unwrap());
        assert_eq!(misfit(r#"{"n": "x"}"#).expect("two faults").lines().count(), 2);
        assert_eq!(misfit(r#"{"n": 1, "m": 2}"#), None);
    }

    #[test]
    fn arguments_that_are_no_object_are_refused_and_none_are_an_empty_one() {
        for text in ["[1]", "\"x\"", "{\"n\": 1", "null"] {
            let error = tool().arguments(text).expect_err(text);
            assert_eq!((error.class, error.code.as_str()), (ErrorClass::ToolTerminal, "InputInvalid"));
        }
        assert_eq!(tool().arguments(" \n").expect("none"), json!({}));
    }

    #[test]
    fn arguments_that_cannot_be_looked_into_are_not_called_no_json() {
        let message = |text: &str| tool().arguments(text).expect_err(text).message;
        assert!(message(r#"{"n": 1e400}"#).starts_with("the arguments of `t` cannot be looked into: "));
        assert!(message(r#"{"n": 1e400"#).starts_with("the arguments of `t` are not JSON: "));
    }
}
