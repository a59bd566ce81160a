//! The plan: what is run, as pure data. Every front end lowers to it; the machine interprets nothing else.

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

/// A scope: what is done before, the work itself, and what is done after whatever happened (protocol 6.2).
#[derive(Debug, Clone)]
pub struct Plan {
    /// The constructor. If it fails, neither `body` nor `after` runs.
    pub before: Option<Arc<Sequence>>,
    /// The business pipeline.
    pub body: Arc<Sequence>,
    /// The destructor. It runs however `body` ended.
    pub after: Option<Arc<Sequence>>,
    /// What reports call the body: a pipeline's business, or skill mode.
    pub phase: Phase,
    /// What a deviation of the body leads to; without it, a deviation is a failure (L-50).
    pub fallback: Option<Arc<Fallback>>,
}

/// Skill mode, in which a run continues after a deviation (L-67).
#[derive(Debug, Clone)]
pub struct Fallback {
    /// One agent, which follows the app's own skill. `{{run.request}}` is what it is asked.
    pub sequence: Arc<Sequence>,
    /// What the pipeline does: with the input it stands for a request that there is not.
    pub description: String,
}

impl Fallback {
    /// What the ids of its effects begin with. They are below the pipeline, so that another attempt keeps them as it keeps
    /// those of steps, and no step has such a name.
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

    /// Every machine of stages that a step goes through, stages that stand alone left out.
    pub fn machines(&self) -> Vec<&Arc<StageMachine>> {
        let machines = self.steps().filter_map(|step| match &step.kind {
            StepKind::Machine(call) if !call.is_stage => Some(&call.machine),
            _ => None,
        });
        machines.collect()
    }

    /// True if a tool is called somewhere: by a model in a stage or following a skill, or by a step.
    pub fn calls_tools(&self) -> bool {
        let calls = |kind: &StepKind| {
            matches!(kind, StepKind::Machine(_) | StepKind::Skill(_) | StepKind::Application(_) | StepKind::Tool(_))
        };
        self.steps().any(|step| calls(&step.kind))
    }

    /// True if a step with `for_each` has a cache somewhere.
    pub fn caches_elements(&self) -> bool {
        self.steps().any(|step| step.for_each.is_some() && step.cache.is_some())
    }

    /// True if a model that follows a skill must give its output by a schema.
    pub fn has_agents_with_schema(&self) -> bool {
        self.steps().any(|step| matches!(&step.kind, StepKind::Skill(agent) if agent.schema.is_some()))
    }

    /// True if a question is asked together with others after it (L-49).
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

    /// The forms of the slots of these machines.
    pub fn slots(&self) -> SlotForms {
        self.machines().into_iter().map(|machine| (machine.id.clone(), machine.slot.form())).collect()
    }
}

/// The wait after an attempt, counted from 1, in milliseconds: each is longer than the one before by `factor`, up to
/// `max_ms`.
pub(crate) fn growing(first_ms: u64, factor: f64, max_ms: u64, attempt: u32) -> f64 {
    let grown = first_ms as f64 * factor.powi(attempt.saturating_sub(1).min(64) as i32);
    grown.min(max_ms as f64).max(0.0)
}

/// Steps that are done one after the other: a pipeline.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The pipeline's name; effect ids begin with it.
    pub name: String,
    /// The pipeline's directory, relative to the app's, with `/` between its parts.
    pub dir: String,
    /// In the order in which they run.
    pub steps: Vec<Arc<Step>>,
    /// Which step's output is the pipeline's: an index into `steps`, or a child of a group by name.
    pub output: OutputOf,
    /// What it does, if one of its steps refers to the request: with the input it stands for a request that there is not.
    pub description: Option<String>,
    /// File and line of the definition, for diagnostics and failures.
    pub origin: Origin,
}

/// Which step gives a pipeline its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputOf {
    /// The last step.
    Last,
    /// The step of that name, at the top level or in a group.
    Step(String),
}

/// A step of any kind, with the members that all kinds have.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name, unique in its pipeline.
    pub name: String,
    /// The kind, with the fields of its own.
    pub kind: StepKind,
    /// It runs only if this holds; else it is skipped with output `null`.
    pub when: Option<Condition>,
    /// It may start only if this holds; else the run deviates (L-46).
    pub require: Option<Requirement>,
    /// It runs once for each element of an array.
    pub for_each: Option<ForEach>,
    /// Longest time for the whole step, all its attempts included, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Reuse of the output of an earlier run.
    pub cache: Option<Cache>,
    /// It changes the outside world.
    pub effects: bool,
    /// File and line of the step, for failures.
    pub origin: Origin,
}

impl Step {
    /// A step that runs once, whatever came before, and that nothing is kept of. Only a skill changes the outside world.
    pub fn plain(name: String, kind: StepKind, origin: Origin) -> Self {
        let effects = matches!(kind, StepKind::Skill(_));
        Self { name, kind, when: None, require: None, for_each: None, timeout_ms: None, cache: None, effects, origin }
    }

    /// How many rows it has in the report: its own and those of its children.
    pub fn rows(&self) -> usize {
        1 + match &self.kind {
            StepKind::Parallel(group) => group.steps.iter().map(|child| child.rows()).sum(),
            _ => 0,
        }
    }

    /// A plan of this step alone.
    ///
    /// `name` and `dir` are those of the plan's one sequence.
    pub fn alone(self, name: String, dir: String, phase: Phase) -> Plan {
        let origin = self.origin.clone();
        let body =
            Sequence { name, dir, steps: vec![Arc::new(self)], output: OutputOf::Last, description: None, origin };
        Plan { before: None, body: Arc::new(body), after: None, phase, fallback: None }
    }
}

/// What must hold before a step starts.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// The condition over outputs of earlier steps; the run deviates if it does not hold (L-46).
    pub condition: Condition,
    /// The condition as it is written in the definition.
    pub written: String,
}

/// The kind of a step: the word under `type`, with the members of the kind.
#[derive(Debug, Clone)]
pub enum StepKind {
    /// Runs a program.
    Code(Code),
    /// Asks a model.
    Llm(Box<Llm>),
    /// Does several steps at once.
    Parallel(Parallel),
    /// Does the steps of another pipeline.
    Pipeline(SubPipeline),
    /// Waits for a person's decision.
    Approval(Box<Approval>),
    /// Goes through the stages of a machine, or does one stage.
    Machine(Box<MachineCall>),
    /// Follows a skill with a model that calls tools.
    Skill(Box<Agent>),
    /// Runs a command of an Agent Application.
    Application(Box<Application>),
    /// Calls a tool (L-43).
    Tool(Box<ToolStep>),
}

impl StepKind {
    /// The steps inside it: the children of a group, the steps of another pipeline.
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
    /// What to run, split into words already where no shell is needed.
    pub command: Command,
    /// How its stdout is read: [`Protocol::Step`] or [`Protocol::Text`].
    pub protocol: Protocol,
    /// Additional environment variables.
    pub env: Vec<(String, Template)>,
    /// Variables with the name of the variable of etude's own environment that gives each its value.
    pub env_from: Vec<(String, String)>,
    /// Exit statuses that are results; normally just 0.
    pub allow_exit: Vec<i32>,
    /// Schema of the output. A violation fails the step without a retry.
    pub schema: Option<Arc<Schema>>,
    /// When and how often a failed attempt is repeated.
    pub retry: Option<CodeRetry>,
    /// The warm interpreter that runs it where it can.
    pub worker: Option<Worker>,
    /// What the process may reach; `None`: what the user may.
    pub sandbox: Option<Box<SandboxRules>>,
}

/// What a sandboxed code step may reach besides the app and the system's programs.
#[derive(Debug, Clone)]
pub struct SandboxRules {
    /// It may use the network.
    pub network: bool,
    /// What it may read, from its working directory.
    pub read: Vec<Template>,
    /// What it may read and write, from its working directory.
    pub write: Vec<Template>,
}

/// Retries of a code step.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeRetry {
    /// Most retries: attempts beyond the first.
    pub max: u32,
    /// Wait before the first retry, in milliseconds.
    pub backoff_ms: u64,
    /// The wait grows by this factor with every retry.
    pub factor: f64,
    /// Longest wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// Vary each wait by a fraction that is derived from the effect id.
    pub jitter: bool,
    /// Failures that are retried; empty: all of them.
    pub on: Vec<RetryOn>,
}

/// A failure that may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// This exit status.
    Status(i32),
    /// The process did not end in time. (The step's own `timeout` includes all tries; it is never retried.)
    Timeout,
    /// The process died of a signal.
    Signal,
}

/// An llm step.
#[derive(Debug, Clone)]
pub struct Llm {
    /// The capability that is needed.
    pub tier: Tier,
    /// The system prompt, with its references; `None`: none is sent.
    pub system: Option<Template>,
    /// The user message, with its references.
    pub prompt: Template,
    /// Schema of the answer.
    pub schema: Option<Arc<Schema>>,
    /// The content validator: a script, relative to the pipeline's directory, or a command that runs there.
    pub validate: Option<Command>,
    /// Most retries after a rejected answer.
    pub retry: u32,
    /// Sampling temperature; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// Most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// Ask the provider to cache the start of the prompt.
    pub cache_prompt: bool,
    /// Image files to show, as paths relative to the pipeline's directory.
    pub images: Vec<Template>,
    /// The answer is one of a list.
    pub choose: Option<Choose>,
}

/// A closed question: the output of an llm step is one element of a list, or several of them (L-47).
#[derive(Debug, Clone)]
pub struct Choose {
    /// Yields the list.
    pub from: Binding,
    /// The field whose values are the answers; `None`: the elements are scalars.
    pub by: Option<String>,
    /// The output is a list of elements.
    pub many: bool,
    /// It is asked even if the list has one element only.
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
    /// How many run at once; `None`: all.
    pub max_parallel: Option<usize>,
    /// What a failure of one does to the others.
    pub on_failure: OnFailure,
}

/// What a failure does to siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// They are cancelled.
    Stop,
    /// They run to their end; then the group fails.
    Wait,
}

/// A step per element.
#[derive(Debug, Clone)]
pub struct ForEach {
    /// Yields the array.
    pub items: Binding,
    /// How many run at once, from 1.
    pub max_parallel: usize,
    /// A longer array fails before anything runs.
    pub max_items: usize,
    /// Keep going after a failure and put `{"output"}` or `{"error"}` per element.
    pub collect: bool,
    /// The arrays that an element stands for in cache keys: that of `items`, and those that its elements come from in turn.
    pub stands_for: Vec<Reference>,
}

/// A value that is either written down or taken from the run.
#[derive(Debug, Clone)]
pub enum Binding {
    /// Exactly one reference: the value keeps its JSON type.
    Reference(Reference),
    /// Text with references: a string.
    Template(Template),
    /// A JSON value that stands in the definition as it is.
    Literal(Json),
}

/// Another pipeline's steps.
#[derive(Debug, Clone)]
pub struct SubPipeline {
    /// That pipeline, without constructor and destructor.
    pub sequence: Arc<Sequence>,
    /// Its input, per parameter, defaults filled in. Values are checked against `schemas` when they are known.
    pub input: Vec<(String, Binding)>,
    /// JSON Schema of the whole input object.
    pub schema: Arc<Schema>,
}

/// A machine of stages.
#[derive(Debug, Clone)]
pub struct MachineCall {
    /// The machine of stages as it was loaded; with `is_stage` one that stands for a single stage.
    pub machine: Arc<stages::StageMachine>,
    /// Its input, per parameter.
    pub input: MachineInput,
    /// It stands for a single stage: a step of type `stage`.
    pub is_stage: bool,
    /// A last verdict of `skip` is no failure: in runs of a machine, not in steps.
    pub may_skip: bool,
}

/// What a machine is given.
#[derive(Debug, Clone)]
pub enum MachineInput {
    /// The input of the pipeline that it is a step of.
    Same,
    /// These parameters, checked against the schema when they are known.
    Bound {
        /// Per parameter, defaults filled in.
        values: Vec<(String, Binding)>,
        /// JSON Schema of the whole input object.
        schema: Arc<Schema>,
    },
}

/// A question to people.
#[derive(Debug, Clone)]
pub struct Approval {
    /// The question, with its references; it is rendered when the step starts.
    pub message: Template,
    /// Schema of a structured answer.
    pub schema: Option<Arc<Schema>>,
    /// Who may answer; empty: anybody.
    pub approvers: Vec<String>,
    /// What happens when the step's `timeout` passes without an answer.
    pub on_timeout: OnTimeout,
    /// A denial is a result, not a failure.
    pub continue_on_deny: bool,
    /// The steps up to the next question that change the outside world, as they say of themselves.
    pub effects: Vec<String>,
}

/// What an approval does when no one answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The step fails.
    Fail,
    /// As if denied.
    Deny,
    /// As if approved.
    Approve,
}

/// Reuse of earlier outputs.
#[derive(Debug, Clone)]
pub struct Cache {
    /// How old an output may be, in milliseconds; `None`: any age.
    pub ttl_ms: Option<u64>,
    /// Replaces the input as that which the output depends on.
    pub key: Option<Template>,
    /// Hash of the step's definition, scripts and schemas.
    pub fingerprint: Digest,
    /// The step refers to `{{index}}`: an element in another place is another input.
    pub uses_index: bool,
}

/// A place in a source file: what errors at run time point at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The file, relative to the app's directory.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
}
