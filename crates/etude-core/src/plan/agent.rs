//! Agents, which are models that call tools until they are done, and applications, which agents and steps call.

use std::sync::Arc;

use crate::data::Json;
use crate::model::{Tier, Tool};
use crate::plan::{Binding, Sequence};
use crate::schema::Schema;
use crate::template::Template;
use crate::tool::ToolSelection;

/// An agent with tools and a turn limit. Skill mode and steps of type `skill` are agents.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Name of the skill whose instructions the agent follows.
    pub skill: String,
    /// Capability level of the model.
    pub tier: Tier,
    /// The instructions: the skill's body.
    pub system: Template,
    /// The task, as the first message to the model.
    pub prompt: Template,
    /// The tools that the skill allows; the model does not receive any others.
    pub tool_selection: Arc<ToolSelection>,
    /// Schema of the answer; `None`: the answer is text.
    pub schema: Option<Arc<Schema>>,
    /// Maximum number of responses of the model, including those that only call tools.
    pub turn_cap: u32,
    /// Maximum number of tool calls; `None`: only turns are limited (D-14).
    pub step_cap: Option<u32>,
    /// Learned pipelines that the agent may call if the host lists them as tools (L-77).
    pub pipelines: Vec<Arc<PipelineTool>>,
}

/// A learned pipeline as a tool of an agent (L-77).
#[derive(Debug, Clone)]
pub struct PipelineTool {
    /// The tool as the model receives it: the pipeline's name and description, with its parameters as the schema.
    pub tool: Tool,
    /// The pipeline's steps; their effect ids are below the agent's call.
    pub sequence: Arc<Sequence>,
    /// The JSON Schema of the whole input object; arguments of a call are checked against it.
    pub input: Arc<Schema>,
    /// Values of parameters that a call leaves out.
    pub defaults: Vec<(String, Json)>,
}

/// A tool call that the pipeline's author wrote, like one that an agent would make (L-43).
#[derive(Debug, Clone)]
pub struct ToolStep {
    /// The name of the tool, as agents know it.
    pub tool: String,
    /// Arguments by name, each a value of the run or a literal.
    pub args: Vec<(String, Binding)>,
    /// The tools that the app's skill allows; the step can call only these.
    pub tool_selection: Arc<ToolSelection>,
    /// True if the tool changes something, or may.
    pub writes: bool,
}

/// A command of an Agent Application (X-3 `application`).
#[derive(Debug, Clone)]
pub struct Application {
    /// The package, by its slug.
    pub application: String,
    /// The declared command; may be several words.
    pub command: String,
    /// Templates of the arguments: each yields exactly one argument, whatever its text.
    pub args: Vec<Template>,
}
