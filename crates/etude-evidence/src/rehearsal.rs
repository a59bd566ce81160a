//! Runs without effects: recorded results replace their tools and models, and their writes are only noted.
//!
//! Cases of learned pipelines run in this way (`learn.md` 1.4): no tool is started and no model is asked. A shadow runs in
//! this way as well, with live reads and models (1.2).

mod models;
mod tools;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use etude_core::data::bare;
use etude_core::exact::same;
use etude_core::schema::Schema;
use etude_core::tool::{ErrorClass, ToolError, ToolResult};
use etude_spec::tool::AppTool;
use serde_json::{Map, Value, json};

use crate::trace::effect_class;

pub use models::Answers;
pub use tools::Rehearsed;

/// Recorded call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The name of the tool.
    pub tool: String,
    /// The arguments as JSON; the result is for the same arguments only.
    pub arguments: Value,
    /// Result of the call, as a value (1.3).
    pub result: Value,
    /// Error of the call: `{"class", "code", "message"}`, or the message alone; `null` if it did not fail.
    pub error: Value,
}

impl Recorded {
    /// Reads a call in the form of cases: `{"tool", "arguments", "result", "error"}`.
    pub fn parse(value: &Value) -> Self {
        let arguments = value.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let tool = value["tool"].as_str().unwrap_or_default().to_owned();
        Self { tool, arguments, result: value["result"].clone(), error: value["error"].clone() }
    }

    fn reply(&self) -> ToolResult {
        match &self.error {
            Value::Null => ToolResult::ok(bare(&self.result).into_owned()),
            Value::String(message) => ToolError::failed(message.as_str()).into(),
            error => {
                let text = |member: &str| error[member].as_str().unwrap_or_default();
                let class = ErrorClass::from_word(text("class")).unwrap_or(ErrorClass::ToolTerminal);
                ToolError { class, code: text("code").to_owned(), message: text("message").to_owned() }.into()
            }
        }
    }
}

/// A call, without its result.
#[derive(Debug, Clone, PartialEq)]
pub struct RehearsedCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments as JSON.
    pub arguments: Value,
}

impl RehearsedCall {
    /// JSON object `{"tool", "arguments"}`.
    pub fn to_json(&self) -> Value {
        json!({"tool": self.tool, "arguments": self.arguments})
    }
}

/// Result of a rehearsal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Made {
    /// The calls that would have changed something, in order.
    pub writes: Vec<RehearsedCall>,
    /// Calls without a recorded result.
    pub unrecorded: Vec<RehearsedCall>,
}

/// Programs of steps that may run in a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Programs {
    /// All programs, also without a sandbox.
    #[default]
    All,
    /// Programs that run in a sandbox.
    Sandboxed,
    /// No programs.
    Nothing,
}

/// Replacement for the tools and models of one run.
#[derive(Debug, Default)]
pub struct Rehearsal {
    /// Recorded calls, each used in its turn; the last of equal calls is used again.
    recorded: Vec<Recorded>,
    /// Recorded answers of models by step; `None` if the models are asked.
    answers: Option<Map<String, Value>>,
    /// Tools of the app, which define if they only read.
    tools: Vec<AppTool>,
    /// True if reads without a recorded result are made, unless they need an approval.
    is_live: bool,
    /// Programs of steps that may run.
    programs: Programs,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of uses of each recorded call, by its index.
    used: BTreeMap<usize, usize>,
    made: Made,
}

impl Rehearsal {
    /// Rehearsal of a case: no tool is started. Without `answers` the models of the run are asked. `tools` are those of the
    /// app.
    pub fn of_case(recorded: Vec<Recorded>, answers: Option<Map<String, Value>>, tools: Vec<AppTool>) -> Self {
        Self { recorded, answers, tools, ..Self::default() }
    }

    /// Rehearsal of a shadow: reads that the agent did not make are made if they need no approval, and models are asked.
    pub fn of_shadow(recorded: Vec<Recorded>, tools: Vec<AppTool>, programs: Programs) -> Self {
        Self { recorded, tools, programs, is_live: true, ..Self::default() }
    }

    /// Writes and unrecorded calls so far.
    pub fn calls_made(&self) -> Made {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).made.clone()
    }

    fn reads(&self, tool: &str) -> bool {
        effect_class(tool, &self.tools) == "reads"
    }

    /// True if the tool reads, and its description requires no approval (L-52).
    fn needs_no_approval(&self, tool: &str) -> bool {
        let own = self.tools.iter().find(|own| own.name == tool);
        self.reads(tool) && own.is_none_or(|own| !own.gated)
    }

    /// The refusal of a call whose arguments do not match the tool's schema, which may have changed since the call was
    /// recorded. `None` if they match, or if the tool is not in the app.
    fn misfit(&self, call: &RehearsedCall) -> Option<ToolResult> {
        let tool = self.tools.iter().find(|tool| tool.name == call.tool)?;
        let schema = Schema::compile(&*tool.name, tool.input_schema.clone(), BTreeMap::new()).ok()?;
        let violation = schema.violations(&call.arguments).first()?.to_string();
        let why = format!("the arguments of `{}` do not match its input schema: {violation}", call.tool);
        Some(ToolError::terminal("InputInvalid", why).into())
    }

    /// Recorded result of a call, in the order of equal calls.
    fn result_of(&self, call: &RehearsedCall) -> Option<ToolResult> {
        let is_same = |known: &Recorded| known.tool == call.tool && same(&known.arguments, &call.arguments);
        let places: Vec<usize> = (0..self.recorded.len()).filter(|at| is_same(&self.recorded[*at])).collect();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = places.iter().find(|at| !state.used.contains_key(*at)).or(places.last())?;
        *state.used.entry(*next).or_default() += 1;
        Some(self.recorded[*next].reply())
    }

    fn note(&self, call: &RehearsedCall, is_write: bool, is_recorded: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.made.writes.extend(is_write.then(|| call.clone()));
        state.made.unrecorded.extend((!is_recorded).then(|| call.clone()));
    }
}
