//! Requests of an agent to its tools and their results, independent of the tools' origin.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::data::Json;
use crate::exact::{Exact, is_long};
use crate::model::{Tier, Tool};
use crate::tree;

/// The name under which a step calls a command of an application. It is in no model's tool list.
pub const APPLICATION_CALL: &str = "!application";

/// The tools that an agent asks for. The host knows their origin: built in, the app's `tools/`, or MCP servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSelection {
    /// Patterns as in `allowed-tools`, which narrow the available tools; `None`: all of them (A-7.1).
    pub allowed: Option<Vec<String>>,
    /// True to list the available skills by name and description, so that the model can read them on demand (A-7.1).
    pub lists_skills: bool,
    /// True to list skills and applications in the descriptions of tools: the caller's model receives no text but the
    /// caller's own (B-A2).
    pub lists_in_tools: bool,
    /// Tier of the model that will call the tools.
    pub tier: Tier,
    /// The directory of the agent's skill, relative to the app's; the agent may read it.
    pub dir: String,
}

/// The host's reply to a [`ToolSelection`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolList {
    /// The tools, in the order in which the model receives them.
    pub tools: Vec<AvailableTool>,
    /// Text for the agent besides its own instructions: the catalogs of skills and applications that it can activate.
    pub context: String,
    /// Context window of the model that will respond, in tokens; `None` if unknown.
    pub window_tokens: Option<u64>,
    /// Reasons why some tools are missing, one sentence each.
    pub problems: Vec<String>,
    /// The model that will respond, as `provider/model`; empty if unknown.
    pub model: String,
    /// Reliability of that model's tool calls.
    pub tool_calling: ToolCalling,
}

crate::words! {
    /// Reliability of a model's tool calls: calls in a form that differs from text, and with faults that can be
    /// reported back to it (B-CN2, B-CN5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum ToolCalling {
        /// Tool calls are guaranteed.
        #[default]
        Hard = "hard",
        /// Tool calls must be probed.
        Probed = "probed",
        /// The model usually calls tools.
        Preferred = "preferred",
        /// The model cannot call tools.
        Absent = "absent",
    }
}

/// A tool of a [`ToolList`].
#[derive(Debug, Clone, PartialEq)]
pub struct AvailableTool {
    /// Name, description and schema, as the model receives them.
    pub tool: Tool,
    /// True for a learned pipeline, which the machine runs itself (L-77).
    pub is_pipeline: bool,
    /// True if calls change things: they run one after the other and never beside another call of the same turn.
    pub is_exclusive: bool,
    /// True if results always stay in the conversation: activated skills and contracts.
    pub is_kept: bool,
    /// Template for the key that approvals of calls are kept under, with `{{args.name}}` as placeholders; `None`: the
    /// tool's name.
    pub approval_key: Option<String>,
}

/// A call of a tool, as the tool port receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The selection that the agent works with.
    pub tool_selection: Arc<ToolSelection>,
    /// The tool's name as the model or the step wrote it; it may not be in the tool list.
    pub name: String,
    /// Arguments as the model wrote them: JSON text, not checked.
    pub arguments: String,
    /// The model's id for the call.
    pub id: String,
    /// The idempotency key of everything that the call starts: the effect's path, without the run's id.
    pub key: String,
    /// True if the call needs no approval by the policy: a person has approved it, or the envelope of a stage allows it.
    pub is_approved: bool,
    /// True if a person has confirmed exactly this call, which waited for that.
    pub is_confirmed: bool,
    /// The key of the question that a person has approved: the call must still have that key.
    pub approved_key: Option<String>,
    /// Id of the stage execution that makes the call, if a stage does (B-ID1).
    pub stage_execution: Option<String>,
}

impl ToolCall {
    /// True if a step of type `tool` makes the call, not a model (L-43).
    pub fn is_of_step(&self) -> bool {
        self.id == self.key && self.name != APPLICATION_CALL
    }
}

/// The tool port's reply to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolReply {
    /// The call is over.
    Done(ToolResult),
    /// Nothing was done: a person must decide first (A-7.3).
    Held {
        /// Approval key, equal for all calls that one decision may cover.
        key: String,
        /// The question as the person sees it.
        question: String,
        /// True if the decision is for this one call: a confirmation, which no earlier decision and no policy can
        /// replace (C-1.14).
        is_once: bool,
    },
}

/// The result of a call, which always has text for the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// Text for the model.
    pub content: String,
    /// The error; `None` on success.
    pub error: Option<ToolError>,
    /// The enforced sandbox rules of the called program, in words; `None` without rules or without a program (X-2).
    pub sandbox: Option<String>,
}

/// The error of a call. Callers match on class and code, never on the text (`b-stages` §18).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// Class of the error, by which callers decide whether to repeat the call.
    pub class: ErrorClass,
    /// A word such as `InputInvalid`.
    pub code: String,
    /// One sentence for people and models.
    pub message: String,
}

crate::words! {
    /// The classes of errors of tool calls (`b-stages` §18).
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

    /// The error `Cancellation/ToolCancelled`.
    pub fn cancelled() -> Self {
        let message = "the call was given up".to_owned();
        Self { class: ErrorClass::Cancellation, code: "ToolCancelled".to_owned(), message }
    }

    /// The error `ToolTerminal/ToolExecutionFailed`: the tool ran and failed.
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
    /// A successful call.
    pub fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), ..Self::default() }
    }

    /// A call that failed, with `content` for the model.
    pub fn failed_with(content: String, error: ToolError) -> Self {
        Self { content, error: Some(error), sandbox: None }
    }

    /// A refused call, with the text that the model reads.
    pub fn denied(message: &str) -> Self {
        Self::terminal("ApprovalDenied", message)
    }

    /// A call that a person has denied. `key` is the approval key of the question; `None`: a stage asked before the
    /// call of `tool` began.
    pub fn denied_by_user(tool: &str, key: Option<&str>, reason: Option<&str>) -> Self {
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        match key {
            Some(key) => Self::denied(&format!("the user said no to `{key}`{reason}")),
            None => Self::denied(&format!("the user did not allow `{tool}`{reason}")),
        }
    }

    /// The error code of a call that a model has not confirmed (L-64).
    pub const NOT_CONFIRMED: &str = "NotConfirmed";

    /// A call that was cancelled.
    pub fn cancelled() -> Self {
        let error = ToolError::cancelled();
        Self::failed_with(error.message.clone(), error)
    }

    /// A failed call that would fail again.
    pub fn terminal(code: &str, message: &str) -> Self {
        ToolError::terminal(code, message).into()
    }

    /// True if the call failed.
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }
}

/// The arguments of a call as a JSON object; `None` if they are not one. An empty text means no arguments.
pub fn arguments(text: &str) -> Option<Json> {
    match text.trim() {
        "" => Some(Json::trusted("{}")),
        text => Json::parse(text).ok().filter(|json| json.inline().is_some_and(|text| text.starts_with('{'))),
    }
}

/// The arguments of a call as people and programs see them: as JSON, or as the plain text if they are not JSON. An
/// empty text means no arguments.
pub fn shown_arguments(text: &str) -> Value {
    match text.trim() {
        "" => Value::Object(Map::new()),
        _ => tree::parse_response(text).unwrap_or_else(|_| Value::from(text)),
    }
}

/// The first version of the interpreter that shows, judges and binds arguments with all digits of their numbers.
const KEEPS_DIGITS: u32 = 14;

/// The arguments of a call with all digits of their numbers. `None` if [`shown_arguments`] keeps them, if they are not
/// JSON, or in a run that an earlier `abi` began.
pub(crate) fn exact_arguments(text: &str, abi: u32) -> Option<Exact> {
    if abi < KEEPS_DIGITS || !is_long(text) { None } else { Exact::parse(text).ok() }
}

/// The arguments of a call for a question: as [`shown_arguments`], with a text of its digits in place of each number
/// that a tree would round.
pub(crate) fn asked_arguments(text: &str, abi: u32) -> Value {
    exact_arguments(text, abi).map_or_else(|| shown_arguments(text), |exact| exact.shown())
}

/// The arguments of a call with all digits of their numbers, as their tool gets them. `None` if a tree keeps all numbers,
/// or if the arguments are not JSON.
pub fn all_digits(text: &str) -> Option<Exact> {
    exact_arguments(text, KEEPS_DIGITS)
}

/// The arguments as written, or with the last of its values for a member that is there twice: programs differ in which
/// of them they read, and `judged`, which patterns and people have seen, has the last one.
pub fn written_once(text: String, judged: &Value) -> String {
    if colons(&text) == members(judged) {
        return text;
    }
    Exact::parse(&text).map_or(text, |exact| exact.to_string())
}

/// Number of members in the objects of a JSON text, with those that are there twice.
fn colons(text: &str) -> usize {
    let (bytes, mut at, mut count) = (text.as_bytes(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = tree::end_of_string(bytes, at),
            b':' => count += 1,
            _ => {}
        }
    }
    count
}

fn members(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(members).sum(),
        Value::Object(all) => all.len() + all.values().map(members).sum::<usize>(),
        _ => 0,
    }
}

/// Fills in the `{{args.x}}` of an approval key; missing arguments become empty (`b-stages` §20.5).
pub fn approval_key(template: &str, args: &Map<String, Value>) -> String {
    filled(template, args, |text, _| text)
}

/// The approval key under which an answer is remembered. Other arguments have another key: an argument that contains the
/// text behind its place, and could be taken for two arguments, stands there as a JSON string.
pub fn remembered_key(template: &str, args: &Map<String, Value>) -> String {
    filled(template, args, |text, until| {
        let ends = |until: &str| !until.is_empty() && format!("{text}{until}").find(until) == Some(text.len());
        let is_plain = !text.starts_with('"') && until.is_none_or(ends);
        if is_plain { text } else { Value::from(text).to_string() }
    })
}

/// Fills in a template. `write` gets the text of each argument, and the text between it and the next one, if there is
/// one.
fn filled(template: &str, args: &Map<String, Value>, write: impl Fn(String, Option<&str>) -> String) -> String {
    let next = |rest: &str| -> Option<(usize, usize)> {
        let start = rest.find("{{")?;
        Some((start, start + 2 + rest[start + 2..].find("}}")?))
    };
    let mut text = String::new();
    let mut rest = template;
    while let Some((start, end)) = next(rest) {
        let (before, more) = (&rest[..start], &rest[end + 2..]);
        text.push_str(before);
        let key = rest[start + 2..end].trim();
        let found = match argument_at(args, key.strip_prefix("args.").unwrap_or(key)) {
            Some(Value::String(found)) => found.clone(),
            Some(found) => found.to_string(),
            None => String::new(),
        };
        text.push_str(&write(found, next(more).map(|(start, _)| &more[..start])));
        rest = more;
    }
    text + rest
}

/// The argument at `key`: a path into an argument, such as `files[0].name`, or the name of one. A path wins over an
/// argument whose name looks like it, because a call could carry both, and its tool reads only the one at the path.
pub fn argument_at<'a>(args: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    readings(args, key).next()
}

/// All meanings of `key` in a call: the value at the path, and the argument of that name.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A-7.3: digits that a tree would round are shown as text; all other arguments stay as they are.
    #[test]
    fn rounded_numbers_are_shown_with_their_digits() {
        for (text, expected) in [
            (r#"{"n":12345678901234567890123}"#, Some(json!({"n": "12345678901234567890123"}))),
            (r#"{"n":[0.12345678901234567891,1.5,1e2]}"#, Some(json!({"n": ["0.12345678901234567891", 1.5, 100.0]}))),
            (r#"{"n":1e400}"#, Some(json!({"n": "1e400"}))),
            (r#"{"n":12345678901234567,"t":"12345678901234567890123"}"#, None),
            ("12345678901234567890123 is not JSON", None),
            ("", None),
        ] {
            assert_eq!(all_digits(text).map(|exact| exact.shown()), expected, "{text}");
        }
        let args = r#"{"n":12345678901234567890123}"#;
        assert_eq!(asked_arguments(args, KEEPS_DIGITS - 1), json!({"n": 1.234_567_890_123_456_8e22}));
    }

    /// A-7.3: what is remembered for one call covers no other, however its arguments are distributed over the key.
    #[test]
    fn a_remembered_key_is_for_one_list_of_arguments() {
        let key = |template: &str, a: &str, b: &str| {
            let args = json!({"a": a, "b": b});
            let args = args.as_object().expect("an object");
            (approval_key(template, args), remembered_key(template, args))
        };
        for (template, one, other) in [
            ("k({{args.a}} {{args.b}})", ("get all", "x"), ("get", "all x")),
            ("{{a}}{{b}}", ("x", "yz"), ("xy", "z")),
            ("{{a}}, {{b}}", ("x", "y, z"), ("x, y", "z")),
            ("{{a}}aa{{b}}", ("x", "ay"), ("xa", "y")),
        ] {
            let (one, other) = (key(template, one.0, one.1), key(template, other.0, other.1));
            assert_eq!(one.0, other.0, "{template}");
            assert_ne!(one.1, other.1, "{template}");
        }
        assert_ne!(key("{{a}} {{b}}", "x y", "z").1, key("{{a}} {{b}}", "\"x y\"", "z").1);
        // A key that is clear stays as it is written.
        for (template, a, b) in
            [("send({{args.a}}, {{b}})", "ada@x", "hi, you"), ("t for {{a}}", "a b", ""), ("{{a}} {{b", "a b", "")]
        {
            let (written, remembered) = key(template, a, b);
            assert_eq!(written, remembered, "{template}");
        }
    }

    /// A tool gets the value that was judged, also if its own parser would read the first of two members.
    #[test]
    fn a_tool_gets_each_member_once() {
        let of = |text: &str| written_once(text.to_owned(), &shown_arguments(text));
        for text in ["", r#"{"a":{"a":":"}, "b":[{"a":1},{"a":2.50}]}"#, r#"{"n":12345678901234567890123}"#] {
            assert_eq!(of(text), text);
        }
        assert_eq!(of(r#"{"env":"prod","env":"staging"}"#), r#"{"env":"staging"}"#);
        assert_eq!(
            of(r#"{"b":[{"a":1,"\u0061":12345678901234567890123}]}"#),
            r#"{"b":[{"a":12345678901234567890123}]}"#
        );
    }
}
