//! An agent: a model that goes on calling tools until it is done; and applications, which agents and steps call.

use std::sync::Arc;

use crate::data::Json;
use crate::model::{Tier, Tool};
use crate::plan::{Binding, Sequence};
use crate::schema::Schema;
use crate::template::Template;
use crate::tool::ToolSelection;

/// An agent with tools and a most number of turns. Skill mode and steps of type `skill` are agents.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The skill whose instructions it follows.
    pub skill: String,
    /// The capability that is needed.
    pub tier: Tier,
    /// Its instructions: the skill's body.
    pub system: Template,
    /// What it is asked to do.
    pub prompt: Template,
    /// The tools that its skill allows; the others are not shown to the model.
    pub tool_selection: Arc<ToolSelection>,
    /// Schema of the answer; without one the answer is text.
    pub schema: Option<Arc<Schema>>,
    /// Most answers of the model, those that only call tools included.
    pub turn_cap: u32,
    /// Most calls of tools; without it turns alone bound them (D-14).
    pub step_cap: Option<u32>,
    /// Most tokens of one answer.
    pub max_tokens: Option<u32>,
    /// Learned pipelines that it may call, those of them that the host offers as tools (L-77).
    pub pipelines: Vec<Arc<PipelineTool>>,
}

/// A learned pipeline as a tool of an agent (L-77).
#[derive(Debug, Clone)]
pub struct PipelineTool {
    /// What the model sees: the pipeline's name and description, its parameters as the schema.
    pub tool: Tool,
    /// The pipeline's steps; their effects stand below the agent's call.
    pub sequence: Arc<Sequence>,
    /// The JSON Schema of the whole input object, against which arguments of a call are checked.
    pub input: Arc<Schema>,
    /// Values of parameters that a call leaves out.
    pub defaults: Vec<(String, Json)>,
}

/// A call of a tool that the pipeline's author wrote down: the call that an agent would make (L-43).
#[derive(Debug, Clone)]
pub struct ToolStep {
    /// The name of the tool, as agents know it.
    pub tool: String,
    /// Arguments by name, each a value of the run or a written one.
    pub args: Vec<(String, Binding)>,
    /// What may be called: the tools that the app's skill allows.
    pub tool_selection: Arc<ToolSelection>,
    /// The tool changes something, or it is not known that it does not.
    pub writes: bool,
}

/// A command of an Agent Application (X-3 `application`).
#[derive(Debug, Clone)]
pub struct Application {
    /// The package, by its slug.
    pub application: String,
    /// The declared command; may be several words.
    pub command: String,
    /// Its arguments: each is one argument, whatever it holds.
    pub args: Vec<Template>,
}
