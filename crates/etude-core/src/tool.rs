//! What an agent asks of its tools and what they give back, without knowing where a tool comes from.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::data::Json;
use crate::model::{Tier, Tool};
use crate::tree;

/// The name under which a step calls a command of an application. No model is offered it.
pub const APPLICATION_CALL: &str = "!application";

/// Which tools an agent asks for. The host knows where they come from: built in, the app's `tools/`, MCP servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSelection {
    /// Patterns as `allowed-tools` lists them, which narrow what is in reach; `None`: all of it.
    pub allowed: Option<Vec<String>>,
    /// Skills in reach are offered by name and description, to be read on demand.
    pub lists_skills: bool,
    /// What can be activated is listed in the descriptions of tools: the caller shows its model no text but its own
    /// (B-A2).
    pub lists_in_tools: bool,
    /// Which model will call them.
    pub tier: Tier,
    /// The directory of the skill whose agent this is, relative to the app's: it may be read.
    pub dir: String,
}

/// What the host found for a [`ToolSelection`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolList {
    /// The tools, in the order in which a model shall see them.
    pub tools: Vec<AvailableTool>,
    /// What an agent is given besides its own instructions: the catalogs of what it can activate.
    pub context: String,
    /// How many tokens the model that will answer takes in all, where that is known.
    pub window_tokens: Option<u64>,
    /// Why some tools are missing, one sentence each.
    pub problems: Vec<String>,
    /// The model that will answer, as `provider/model`; empty if that is not known.
    pub model: String,
    /// How surely that model calls tools.
    pub tool_calling: ToolCalling,
}

crate::words! {
    /// How surely a model calls tools: in a form that differs from text, and with faults that can be reported back to it
    /// (B-CN2, B-CN5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum ToolCalling {
        /// Guaranteed.
        #[default]
        Hard = "hard",
        /// Has to be tried.
        Probed = "probed",
        /// Usually.
        Preferred = "preferred",
        /// Not at all.
        Absent = "absent",
    }
}

/// A tool of a [`ToolList`].
#[derive(Debug, Clone, PartialEq)]
pub struct AvailableTool {
    /// Name, description and schema, as the model receives them.
    pub tool: Tool,
    /// It is a learned pipeline, which the machine runs itself (L-77).
    pub is_pipeline: bool,
    /// Its calls change things: they run one after the other and never beside another call of the same turn.
    pub is_exclusive: bool,
    /// Its results stay in the conversation whatever happens: activated skills and contracts.
    pub is_kept: bool,
    /// What answers about its calls are known by, as a text with `{{args.name}}` in it; `None`: its name.
    pub approval_key: Option<String>,
}

/// A call of a tool, as the tool port receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// What the agent was offered.
    pub tool_selection: Arc<ToolSelection>,
    /// The tool's name as the model or the step wrote it; it may be none of `tool_selection`.
    pub name: String,
    /// Arguments as the model wrote them: JSON text, not checked.
    pub arguments: String,
    /// The model's id for the call.
    pub id: String,
    /// The idempotency key of whatever the call starts: the effect's path, without the run's id.
    pub key: String,
    /// It may be done without asking the policy: somebody has been asked, or the envelope of a stage allows it.
    pub is_approved: bool,
    /// A person has said yes to this very call, which was held for it.
    pub is_confirmed: bool,
    /// The key of the question that a person has said yes to: the call must still be that one.
    pub approved_key: Option<String>,
    /// Which execution of a stage calls, if one does (B-ID1).
    pub stage_execution: Option<String>,
}

impl ToolCall {
    /// True if a step of type `tool` makes the call, and no model (L-43).
    pub fn is_of_step(&self) -> bool {
        self.id == self.key && self.name != APPLICATION_CALL
    }
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolReply {
    /// It is over.
    Done(ToolResult),
    /// Nothing was done: somebody has to be asked first.
    Held {
        /// The same for calls that one answer may cover.
        key: String,
        /// The question for a person, as it is shown.
        question: String,
        /// The answer is for this one call: a confirmation, which no earlier answer and no policy stands in for
        /// (C-1.14).
        is_once: bool,
    },
}

/// The end of a call, with text for the model in any case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// Text for the model.
    pub content: String,
    /// What went wrong, if something did.
    pub error: Option<ToolError>,
    /// What was enforced on the program that did it, in words; `None`: nothing, or no program did.
    pub sandbox: Option<String>,
}

/// What went wrong with a call: to be matched by class and code, never by text (`b-stages` §18).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// Whether the same call may succeed later; callers decide by it whether to repeat.
    pub class: ErrorClass,
    /// A word such as `InputInvalid`.
    pub code: String,
    /// One sentence for people and models.
    pub message: String,
}

crate::words! {
    /// The classes of errors that a call of a tool may have (`b-stages` §18).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ErrorClass {
        /// The same call would fail again.
        ToolTerminal = "ToolTerminal",
        /// The same call may succeed later.
        ToolTransient = "ToolTransient",
        /// The call was cancelled on request.
        Cancellation = "Cancellation",
    }
}

impl ToolError {
    /// An error of the class [`ErrorClass::ToolTerminal`].
    pub fn terminal(code: &str, message: impl Into<String>) -> Self {
        Self { class: ErrorClass::ToolTerminal, code: code.to_owned(), message: message.into() }
    }

    /// An error of the class [`ErrorClass::ToolTransient`].
    pub fn transient(code: &str, message: impl Into<String>) -> Self {
        Self { class: ErrorClass::ToolTransient, code: code.to_owned(), message: message.into() }
    }

    /// `Cancellation/ToolCancelled`.
    pub fn cancelled() -> Self {
        let message = "the call was given up".to_owned();
        Self { class: ErrorClass::Cancellation, code: "ToolCancelled".to_owned(), message }
    }

    /// `ToolTerminal/ToolExecutionFailed`: the tool ran and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::terminal("ToolExecutionFailed", message)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}: {}", self.class.word(), self.code, self.message)
    }
}

impl From<ToolError> for ToolResult {
    fn from(error: ToolError) -> Self {
        Self::failed_with(error.to_string(), error)
    }
}

impl ToolResult {
    /// A call that did what was asked.
    pub fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), ..Self::default() }
    }

    /// A call that failed, with `content` for the model.
    pub fn failed_with(content: String, error: ToolError) -> Self {
        Self { content, error: Some(error), sandbox: None }
    }

    /// A call that was refused, as the model reads it.
    pub fn denied(message: &str) -> Self {
        Self::terminal("ApprovalDenied", message)
    }

    /// A call that a person has denied. `key`: what was asked about; `None`: a stage asked before the call of `tool` was begun.
    pub fn denied_by_user(tool: &str, key: Option<&str>, reason: Option<&str>) -> Self {
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        match key {
            Some(key) => Self::denied(&format!("the user said no to `{key}`{reason}")),
            None => Self::denied(&format!("the user did not allow `{tool}`{reason}")),
        }
    }

    /// The code of a call that a model has not confirmed (L-64).
    pub const NOT_CONFIRMED: &str = "NotConfirmed";

    /// A call that was cancelled.
    pub fn cancelled() -> Self {
        let error = ToolError::cancelled();
        Self::failed_with(error.message.clone(), error)
    }

    /// A call that would fail again.
    pub fn terminal(code: &str, message: &str) -> Self {
        ToolError::terminal(code, message).into()
    }

    /// The call did not do what was asked.
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }
}

/// The arguments of a call as a value; `None` if they are no JSON object. No text means no arguments.
pub fn arguments(text: &str) -> Option<Json> {
    match text.trim() {
        "" => Some(Json::trusted("{}")),
        text => Json::parse(text).ok().filter(|json| json.inline().is_some_and(|text| text.starts_with('{'))),
    }
}

/// The arguments of a call as they are reported to people and programs: as JSON, or as the text that they are if they are
/// none. No text means no arguments.
pub fn shown_arguments(text: &str) -> Value {
    match text.trim() {
        "" => Value::Object(Map::new()),
        _ => tree::of_answer(text).unwrap_or_else(|_| Value::from(text)),
    }
}

/// An approval key with its `{{args.x}}` filled in; what is missing is left empty (`b-stages` §20.5).
pub fn approval_key(template: &str, args: &Map<String, Value>) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((reference, more)) = after.split_once("}}") else { break };
        text.push_str(before);
        let key = reference.trim();
        match argument_at(args, key.strip_prefix("args.").unwrap_or(key)) {
            Some(Value::String(found)) => text.push_str(found),
            Some(found) => text.push_str(&found.to_string()),
            None => {}
        }
        rest = more;
    }
    text + rest
}

/// The argument at `key`: a path such as `files[0].name` into one, or the name of one. A name that looks like a path hides nothing:
/// a call could have an argument of that name beside the one that its tool reads.
pub fn argument_at<'a>(args: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    readings(args, key).next()
}

/// All that `key` can mean in a call: what is at the path, and the argument of that name.
pub fn readings<'a>(args: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    let is_path = key.contains(['.', '[']);
    let found = if is_path { at_path(args, key) } else { None };
    found.into_iter().chain(args.get(key))
}

fn at_path<'a>(args: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut parts = key.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    let first = args.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}
