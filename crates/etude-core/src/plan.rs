//! The plan: the definition of a run as pure data. Every front end lowers to it, and the machine interprets nothing else.

mod agent;
pub mod stages;

use std::sync::Arc;

use crate::condition::Condition;
use crate::data::Json;
use crate::digest::Digest;
use crate::effect::{Command, Protocol, Worker};
use crate::failure::Phase;
use crate::model::Tier;
use crate::schema::Schema;
use crate::template::{Reference, Template};

pub use agent::{Agent, Application, PipelineTool, ToolStep};
use stages::{SlotForms, StageMachine};

/// A scope: the constructor, the work itself, and the destructor, which runs whatever happened (protocol 6.2).
#[derive(Debug, Clone)]
pub struct Plan {
    /// The constructor. If it fails, neither `body` nor `after` runs.
    pub before: Option<Arc<Sequence>>,
    /// The business pipeline.
    pub body: Arc<Sequence>,
    /// The destructor. It runs however `body` ended.
    pub after: Option<Arc<Sequence>>,
    /// The phase of the body in reports: a pipeline's business, or skill mode.
    pub phase: Phase,
    /// Continuation after a deviation of the body; `None`: a deviation is a failure (L-50).
    pub fallback: Option<Arc<Fallback>>,
}

/// Skill mode, in which a run continues after a deviation (L-67).
#[derive(Debug, Clone)]
pub struct Fallback {
    /// One agent, which follows the app's own skill. `{{run.request}}` is its task.
    pub sequence: Arc<Sequence>,
    /// The pipeline's description: together with the input it replaces a missing request.
    pub description: String,
}

impl Fallback {
    /// Prefix of the fallback's effect ids. It is below the pipeline, so that another attempt keeps these effects like
    /// those of steps. No step has such a name.
    pub fn root(pipeline: &str) -> String {
        format!("{pipeline}@skill")
    }
}

impl Plan {
    /// Every step, those of groups and of other pipelines included, in the order of their definitions.
    pub fn steps(&self) -> impl Iterator<Item = &Arc<Step>> {
        let parts = [self.before.as_ref(), Some(&self.body), self.after.as_ref()];
        let mut open: Vec<&Arc<Step>> = Vec::new();
        parts.into_iter().flatten().rev().for_each(|sequence| open.extend(sequence.steps.iter().rev()));
        std::iter::from_fn(move || {
            let step = open.pop()?;
            open.extend(step.kind.inner().iter().rev());
            Some(step)
        })
    }

    /// The pipelines that agents may call as tools (L-77).
    pub fn pipeline_tools(&self) -> impl Iterator<Item = &Arc<PipelineTool>> {
        let agents = self.steps().filter_map(|step| match &step.kind {
            StepKind::Skill(agent) => Some(agent),
            _ => None,
        });
        agents.flat_map(|agent| &agent.pipelines)
    }

    /// Every stage machine that a step runs, without stages that stand alone.
    pub fn machines(&self) -> Vec<&Arc<StageMachine>> {
        let machines = self.steps().filter_map(|step| match &step.kind {
            StepKind::Machine(call) if !call.is_stage => Some(&call.machine),
            _ => None,
        });
        machines.collect()
    }

    /// True if any step calls a tool, or a model in a stage or following a skill does.
    pub fn calls_tools(&self) -> bool {
        let calls = |kind: &StepKind| {
            matches!(kind, StepKind::Machine(_) | StepKind::Skill(_) | StepKind::Application(_) | StepKind::Tool(_))
        };
        self.steps().any(|step| calls(&step.kind))
    }

    /// True if any step with `for_each` has a cache.
    pub fn caches_elements(&self) -> bool {
        self.steps().any(|step| step.for_each.is_some() && step.cache.is_some())
    }

    /// True if any model that follows a skill has an output schema.
    pub fn has_agents_with_schema(&self) -> bool {
        self.steps().any(|step| matches!(&step.kind, StepKind::Skill(agent) if agent.schema.is_some()))
    }

    /// True if any question is asked together with others after it (L-49).
    pub fn asks_together(&self) -> bool {
        let is_joint = |step: &Arc<Step>| {
            let choose = match &step.kind {
                StepKind::Llm(llm) => llm.choose.as_ref(),
                _ => None,
            };
            choose.is_some_and(|choose| !choose.together.is_empty() || choose.beside.iter().any(|all| !all.is_empty()))
        };
        self.steps().any(is_joint)
    }

    /// The slot forms of the stage machines.
    pub fn slots(&self) -> SlotForms {
        self.machines().into_iter().map(|machine| (machine.id.clone(), machine.slot.form())).collect()
    }
}

/// The wait after an attempt, counted from 1, in milliseconds. It grows by `factor` with each attempt, up to `max_ms`.
pub(crate) fn growing(first_ms: u64, factor: f64, max_ms: u64, attempt: u32) -> f64 {
    let grown = first_ms as f64 * factor.powi(attempt.saturating_sub(1).min(64) as i32);
    grown.min(max_ms as f64).max(0.0)
}

/// Steps that run one after the other: a pipeline.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The pipeline's name; effect ids begin with it.
    pub name: String,
    /// The pipeline's directory, relative to the app's, with `/` between its parts.
    pub dir: String,
    /// The steps, in the order in which they run.
    pub steps: Vec<Arc<Step>>,
    /// The source of the pipeline's output: its last step, or a step or child of a group by name.
    pub output: OutputOf,
    /// The pipeline's description, if one of its steps refers to the request: together with the input it replaces a
    /// missing request.
    pub description: Option<String>,
}

/// The step that provides a pipeline's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputOf {
    /// The last step.
    Last,
    /// The step of that name, at the top level or in a group.
    Step(String),
}

/// A step of any kind, with the fields that all kinds have.
#[derive(Debug, Clone)]
pub struct Step {
    /// The step's name, unique in its pipeline.
    pub name: String,
    /// The kind, with its own fields.
    pub kind: StepKind,
    /// Condition for running the step; if it does not hold, the step is skipped with output `null`.
    pub when: Option<Condition>,
    /// Condition for starting the step; if it does not hold, the run deviates (L-46).
    pub require: Option<Requirement>,
    /// Array whose elements the step runs for, once each.
    pub for_each: Option<ForEach>,
    /// Maximum time for the whole step, all its attempts included, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Reuse of the output of an earlier run.
    pub cache: Option<Cache>,
    /// True if the step changes the outside world.
    pub effects: bool,
    /// File and line of the step, for failures.
    pub origin: Origin,
}

impl Step {
    /// A step that runs once, unconditionally and without a cache. Only a skill counts as changing the outside world.
    pub fn plain(name: String, kind: StepKind, origin: Origin) -> Self {
        let effects = matches!(kind, StepKind::Skill(_));
        Self { name, kind, when: None, require: None, for_each: None, timeout_ms: None, cache: None, effects, origin }
    }

    /// Number of rows in the report: the step's own and those of its children.
    pub fn rows(&self) -> usize {
        1 + match &self.kind {
            StepKind::Parallel(group) => group.steps.iter().map(|child| child.rows()).sum(),
            _ => 0,
        }
    }

    /// A plan of this step alone. `name` and `dir` are those of the plan's one sequence.
    pub fn alone(self, name: String, dir: String, phase: Phase) -> Plan {
        let body = Sequence { name, dir, steps: vec![Arc::new(self)], output: OutputOf::Last, description: None };
        Plan { before: None, body: Arc::new(body), after: None, phase, fallback: None }
    }
}

/// A condition that must hold before a step starts.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// The condition over outputs of earlier steps; the run deviates if it does not hold (L-46).
    pub condition: Condition,
    /// The condition as the definition has it.
    pub written: String,
}

/// The kind of a step: the word under `type`, with the members of the kind.
#[derive(Debug, Clone)]
pub enum StepKind {
    /// Runs a program.
    Code(Code),
    /// Asks a model.
    Llm(Box<Llm>),
    /// Runs several steps at once.
    Parallel(Parallel),
    /// Runs the steps of another pipeline.
    Pipeline(SubPipeline),
    /// Waits for a person's decision.
    Approval(Box<Approval>),
    /// Runs a stage machine, or a single stage.
    Machine(Box<MachineCall>),
    /// Follows a skill with a model that calls tools.
    Skill(Box<Agent>),
    /// Runs a command of an Agent Application.
    Application(Box<Application>),
    /// Calls a tool (L-43).
    Tool(Box<ToolStep>),
}

impl StepKind {
    /// The steps inside a step: the children of a group, or the steps of another pipeline.
    pub fn inner(&self) -> &[Arc<Step>] {
        match self {
            Self::Parallel(group) => &group.steps,
            Self::Pipeline(call) => &call.sequence.steps,
            _ => &[],
        }
    }

    /// The word for `type` in a pipeline file.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Code(_) => "code",
            Self::Llm(_) => "llm",
            Self::Parallel(_) => "parallel",
            Self::Pipeline(_) => "pipeline",
            Self::Approval(_) => "approval",
            Self::Machine(call) if call.is_stage => "stage",
            Self::Machine(_) => "machine",
            Self::Skill(_) => "skill",
            Self::Application(_) => "application",
            Self::Tool(_) => "tool",
        }
    }
}

/// A code step.
#[derive(Debug, Clone)]
pub struct Code {
    /// The command, already split into words if no shell is needed.
    pub command: Command,
    /// Protocol of stdout: [`Protocol::Step`] or [`Protocol::Text`].
    pub protocol: Protocol,
    /// Additional environment variables.
    pub env: Vec<(String, Template)>,
    /// Pairs of a variable's name and the name of the variable in etude's own environment that provides its value.
    pub env_from: Vec<(String, String)>,
    /// Exit statuses that count as success; normally just 0.
    pub allow_exit: Vec<i32>,
    /// Schema of the output. A violation fails the step without a retry.
    pub schema: Option<Arc<Schema>>,
    /// Retries of failed attempts.
    pub retry: Option<CodeRetry>,
    /// The warm interpreter that runs the step where possible.
    pub worker: Option<Worker>,
    /// Access rights of the process; `None`: those of the user.
    pub sandbox: Option<Box<SandboxRules>>,
}

/// Access of a sandboxed code step beyond the app and the system's programs.
#[derive(Debug, Clone)]
pub struct SandboxRules {
    /// True if the step may use the network.
    pub network: bool,
    /// Paths that the step may read, relative to its working directory.
    pub read: Vec<Template>,
    /// Paths that the step may read and write, relative to its working directory.
    pub write: Vec<Template>,
}

/// Retries of a code step.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeRetry {
    /// Maximum number of retries, which are attempts beyond the first.
    pub max: u32,
    /// Wait before the first retry, in milliseconds.
    pub backoff_ms: u64,
    /// Factor by which the wait grows with every retry.
    pub factor: f64,
    /// Maximum wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// True to vary each wait by a fraction that is derived from the effect id.
    pub jitter: bool,
    /// Failures that are retried; empty: all of them.
    pub on: Vec<RetryOn>,
}

/// A failure that may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// This exit status.
    Status(i32),
    /// The process did not end in time. (The step's own `timeout` includes all attempts; it is never retried.)
    Timeout,
    /// The process died of a signal.
    Signal,
}

/// An llm step.
#[derive(Debug, Clone)]
pub struct Llm {
    /// Capability level of the model.
    pub tier: Tier,
    /// The system prompt, with its references; `None` if there is none.
    pub system: Option<Template>,
    /// The user message, with its references.
    pub prompt: Template,
    /// Schema of the response.
    pub schema: Option<Arc<Schema>>,
    /// The content validator: a script, relative to the pipeline's directory, or a command that runs there.
    pub validate: Option<Command>,
    /// Maximum number of retries after a rejected response.
    pub retry: u32,
    /// Sampling temperature; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// Maximum number of tokens of a response.
    pub max_tokens: Option<u32>,
    /// True to ask the provider to cache the start of the prompt.
    pub cache_prompt: bool,
    /// Image files to show, as paths relative to the pipeline's directory.
    pub images: Vec<Template>,
    /// Closed question: the output must come from a list.
    pub choose: Option<Choose>,
}

/// A closed question: the output of an llm step is one element of a list, or several of them (L-47).
#[derive(Debug, Clone)]
pub struct Choose {
    /// Source of the list.
    pub from: Binding,
    /// The field whose values the model chooses from; `None`: the elements are scalars.
    pub by: Option<String>,
    /// True if several elements may be chosen: the output is then a list of elements.
    pub many: bool,
    /// True to ask even if the list has only one element.
    pub always: bool,
    /// The steps right after this one whose questions go into the same call (L-49).
    pub together: Vec<Arc<Step>>,
    /// For a child of a group, the children after it whose questions go into the same call; `None` outside of groups.
    pub beside: Option<Vec<Arc<Step>>>,
}

/// Steps that run at the same time.
#[derive(Debug, Clone)]
pub struct Parallel {
    /// The children. They see the steps before the group, not each other.
    pub steps: Vec<Arc<Step>>,
    /// Maximum number of children that run at once; `None`: all.
    pub max_parallel: Option<usize>,
    /// Effect of a child's failure on the other children.
    pub on_failure: OnFailure,
}

/// Effect of a failure on siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// They are cancelled.
    Stop,
    /// They run to their end; then the group fails.
    Wait,
}

/// A step that runs once per element of an array.
#[derive(Debug, Clone)]
pub struct ForEach {
    /// Source of the array.
    pub items: Binding,
    /// Maximum number of elements at once, at least 1.
    pub max_parallel: usize,
    /// Maximum length of the array; a longer one fails before anything runs.
    pub max_items: usize,
    /// True to continue after a failure; the output then has `{"output"}` or `{"error"}` per element.
    pub collect: bool,
    /// The arrays that an element represents in cache keys: that of `items`, and the arrays that its elements come from
    /// in turn.
    pub stands_for: Vec<Reference>,
}

/// A value that is either a literal or taken from the run.
#[derive(Debug, Clone)]
pub enum Binding {
    /// Exactly one reference: the value keeps its JSON type.
    Reference(Reference),
    /// Text with references: a string.
    Template(Template),
    /// A JSON value of the definition.
    Literal(Json),
}

/// A call of another pipeline as a step.
#[derive(Debug, Clone)]
pub struct SubPipeline {
    /// The called pipeline, without constructor and destructor.
    pub sequence: Arc<Sequence>,
    /// Input per parameter, defaults filled in. Values are checked against `schema` when the step starts.
    pub input: Vec<(String, Binding)>,
    /// JSON Schema of the whole input object.
    pub schema: Arc<Schema>,
}

/// A call of a stage machine as a step.
#[derive(Debug, Clone)]
pub struct MachineCall {
    /// The stage machine as it was loaded; with `is_stage` a machine made for a single stage.
    pub machine: Arc<stages::StageMachine>,
    /// Values of the parameters: those of the surrounding pipeline, or bound ones.
    pub input: MachineInput,
    /// True for a step of type `stage`: the machine consists of that stage.
    pub is_stage: bool,
    /// True if a last verdict of `skip` is not a failure: in runs of a machine, not in steps.
    pub may_skip: bool,
}

/// Input of a stage machine.
#[derive(Debug, Clone)]
pub enum MachineInput {
    /// The input of the surrounding pipeline.
    Same,
    /// These parameters, checked against the schema when the step starts.
    Bound {
        /// Values per parameter, defaults filled in.
        values: Vec<(String, Binding)>,
        /// JSON Schema of the whole input object.
        schema: Arc<Schema>,
    },
}

/// A question to people, as a step.
#[derive(Debug, Clone)]
pub struct Approval {
    /// The question, with its references; it is rendered when the step starts.
    pub message: Template,
    /// Schema of a structured answer.
    pub schema: Option<Arc<Schema>>,
    /// Names of the people who may decide; empty: anyone.
    pub approvers: Vec<String>,
    /// Result if the step's `timeout` passes without an answer.
    pub on_timeout: OnTimeout,
    /// True if a denial is a result, not a failure.
    pub continue_on_deny: bool,
    /// Names of the steps before the next question that declare that they change the outside world.
    pub effects: Vec<String>,
}

/// Result of an approval that no one answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The step fails.
    Fail,
    /// The approval counts as denied.
    Deny,
    /// The approval counts as approved.
    Approve,
}

/// Reuse of earlier outputs.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Maximum age of an output, in milliseconds; `None`: any age.
    pub ttl_ms: Option<u64>,
    /// Cache key that replaces the input; `None`: the output depends on the input.
    pub key: Option<Template>,
    /// Hash of the step's definition, scripts and schemas.
    pub fingerprint: Digest,
    /// True if the step refers to `{{index}}`: the same element at another index is then another input.
    pub uses_index: bool,
}

/// A position in a source file, for errors at run time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The file, relative to the app's directory.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
}
