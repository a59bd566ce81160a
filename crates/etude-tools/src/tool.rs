//! Tools, the context of a call, and its result.

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

/// The members of arguments; empty if they are not an object.
pub fn members(args: &Value) -> &Args {
    static NONE: LazyLock<Args> = LazyLock::new(Args::new);
    args.as_object().unwrap_or(&NONE)
}

/// A future that can be sent to another thread.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Description of a tool that an agent may call. [`crate::Found::call`] calls it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Name of the form `[A-Za-z0-9_-]{1,64}`, unique in its set.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments, which are an object.
    pub input_schema: Arc<Value>,
    /// Effect of a call on the world.
    pub effect: Effect,
    /// True if a call needs a decision of the policy; false for tools declared `gated: false` (`b-stages` AP6).
    pub gated: bool,
    /// The text that patterns of a policy are matched with.
    pub approval_key: ApprovalKey,
    /// Tags that patterns such as `#files` select by.
    pub tags: Vec<String>,
    /// Source of the tool, for messages and traces.
    pub origin: Origin,
    pub(crate) schema: Option<Arc<Schema>>,
}

/// Effect of a tool on the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Reads files that it may read, and changes nothing: needs no approval.
    Reads,
    /// Changes files.
    Writes,
    /// Runs a program, which may do anything.
    Executes,
    /// Acts outside this machine's control: an MCP server, whatever it says about itself.
    External,
}

/// Source of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Part of this program.
    BuiltIn,
    /// The app's `tools/`: the file that describes the tool, or the script itself.
    App {
        /// Path relative to the app.
        file: String,
    },
    /// An MCP server.
    Mcp {
        /// Name of the server in the configuration.
        server: String,
        /// Name of the tool on the server.
        tool: String,
    },
}

/// Form of a call's approval key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalKey {
    /// The tool's name alone.
    Name,
    /// The name with a command line: `Bash(git status)`.
    Command(&'static str),
    /// The name with a path: `Write(src/main.rs)`. A missing path means the base folder.
    Path(&'static str),
    /// Text with `{{args.x}}`: `deploy({{args.env}})`.
    Template(String),
}

impl ApprovalKey {
    /// The key of the tool `name` as a template with `{{args.x}}`; `None` for the name alone.
    pub fn template(&self, name: &str) -> Option<String> {
        match self {
            Self::Name => None,
            Self::Command(argument) | Self::Path(argument) => Some(format!("{name}({{{{args.{argument}}}}})")),
            Self::Template(template) => Some(template.clone()),
        }
    }
}

/// Context of a call, besides its arguments.
#[derive(Clone, Default)]
pub struct CallContext {
    /// Cancels the call. Everything that it started is ended first.
    pub cancel: CancellationToken,
    /// The model's id of the call, the same when it is repeated after a crash.
    pub call_id: String,
    /// The idempotency key of a program that the call runs, unique in its run. If empty, `call_id` is used.
    pub key: String,
    /// Id of the run, for tools that must be idempotent.
    pub workflow_run_id: String,
    /// Id of the stage execution, if a stage makes the call.
    pub stage_execution_id: Option<String>,
    /// The judged path of the call. Without it, the tool resolves its argument itself.
    pub path: Option<Arc<PathArgument>>,
    /// Receives the output of a program as it comes.
    pub on_output: Option<OnOutput>,
    /// Files that a tool which searches folders must leave out.
    pub withheld: Arc<Withheld>,
    /// The text of the arguments, if they are unchanged: their tree may have lost digits (A-3.3).
    pub written: Option<Arc<str>>,
    /// True if a step makes the call and takes the result as a value: it is not shortened for a model.
    pub is_whole: bool,
}

/// An observer of a program's output, in pieces of any length.
pub type OnOutput = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Maximum length of a tool's result that a model reads, in bytes.
pub(crate) const MAX_SHOWN: usize = 30_000;

impl CallContext {
    /// Maximum length of the result in bytes.
    pub(crate) fn max_result(&self) -> usize {
        if self.is_whole { usize::MAX } else { MAX_SHOWN }
    }

    /// The idempotency key of a program that the call runs. Two calls without an id never share one.
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
    /// A tool that is called elsewhere, for patterns only: they match its name, its tags and the names of its arguments.
    pub fn named(name: &str, tags: Vec<String>, input_schema: Value) -> Self {
        let mut tool = Self::new(name, "", input_schema, Effect::Executes, Origin::BuiltIn);
        tool.approval_key = ApprovalKey::Name;
        tool.tags = tags;
        tool
    }

    /// A tool whose name is its approval key. Its calls are gated unless it only reads.
    pub fn new(name: &str, description: &str, input_schema: Value, effect: Effect, origin: Origin) -> Self {
        // An invalid schema is the fault of the tool's author, whose tool then checks its arguments itself.
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

    /// The path that a call with `args` names; `None` if the tool takes no path.
    pub fn path<'a>(&self, args: &'a Args) -> Option<&'a str> {
        let ApprovalKey::Path(name) = &self.approval_key else { return None };
        Some(args.get(*name).and_then(Value::as_str).unwrap_or("."))
    }

    /// The tool in the form for models.
    pub fn for_model(&self) -> etude_core::model::Tool {
        etude_core::model::Tool {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: Arc::clone(&self.input_schema),
        }
    }

    /// Parses the arguments that a model wrote. Empty text means no arguments.
    ///
    /// # Errors
    /// `ToolTerminal/InputInvalid`: the text is not a JSON object. [`Tool::misfit`] checks it against the schema.
    pub fn arguments(&self, text: &str) -> Result<Value, ToolError> {
        let invalid =
            |why: String| ToolError::terminal("InputInvalid", format!("the arguments of `{}` {why}", self.name));
        match text.trim() {
            "" => Ok(Value::Object(Map::new())),
            text => match tree::parse_response(text) {
                Ok(args @ Value::Object(_)) => Ok(args),
                Ok(_) => Err(invalid("are not a JSON object".to_owned())),
                Err(error) if tree::is_json(text) => Err(invalid(format!("cannot be parsed: {error}"))),
                Err(error) => Err(invalid(format!("are not JSON: {error}"))),
            },
        }
    }

    /// All violations of the input schema, one per line; `None` if there are none.
    pub fn misfit(&self, args: &Value) -> Option<String> {
        let violations = self.schema.as_ref()?.violations(args);
        let all: Vec<String> = violations.iter().map(|violation| format!("- {violation}")).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

/// Maximum length of a result's content, in bytes.
pub const MAX_CONTENT: usize = 64 * 1024;

/// Implementation of a tool.
pub(crate) trait Run: Send + Sync + fmt::Debug {
    /// Runs one call with arguments that satisfy the schema.
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
        assert!(message(r#"{"n": 1e400}"#).starts_with("the arguments of `t` cannot be parsed: "));
        assert!(message(r#"{"n": 1e400"#).starts_with("the arguments of `t` are not JSON: "));
    }
}
