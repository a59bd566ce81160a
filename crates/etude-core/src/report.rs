//! Reports of a run: events while it is in progress, and a result when it is over.

use crate::data::Json;
use crate::effect::EffectId;
use crate::failure::{Failure, Phase, Reason, RejectedBy};
use crate::model::Usage;

mod items;
mod json;

pub use items::{Item, Items};
pub use json::{error_json, fell_back_json, items_json, result_json, usage_json};

crate::words! {
    /// State or end of a run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Status {
        /// The run waits for a decision.
        Waiting = "waiting",
        /// The run waits for a time, and needs no process until then (K-43).
        Sleeping = "sleeping",
        /// Everything worked.
        Succeeded = "succeeded",
        /// Something failed.
        Failed = "failed",
        /// The run was cancelled.
        Cancelled = "cancelled",
    }
}

/// The result of a run, with all content of its result document.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// State of the run; an unfinished run waits or sleeps.
    pub status: Status,
    /// The pipeline's output; kept even if the destructor failed.
    pub output: Option<Json>,
    /// The failures, the business failure first; empty on success.
    pub errors: Vec<Failure>,
    /// A row per step of the plan, in plan order.
    pub steps: Vec<StepRow>,
    /// Tokens and money of the whole run.
    pub usage: Usage,
    /// Executions of the stages of machines.
    pub stages: Stages,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Work left for another attempt.
    pub remains: Remains,
    /// Set if the run has left its pipeline and continued in skill mode.
    pub fell_back: Option<FellBack>,
    /// Pipelines that the run's agents called as tools and that deviated, in order (L-79).
    pub deviations: Vec<CallDeviation>,
}

/// The deviation of a pipeline that an agent called as a tool (L-77).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDeviation {
    /// The name of the called pipeline.
    pub pipeline: String,
    /// The step that deviated; empty if the pipeline has none.
    pub step: String,
    /// The word of a deviation reason, or of a kind of failure.
    pub reason: &'static str,
}

/// The transition of a run from its pipeline into skill mode (L-67).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FellBack {
    /// The name of the pipeline that the run began with.
    pub pipeline: String,
    /// The step that deviated.
    pub step: String,
    /// The class of the deviation (L-50).
    pub reason: Reason,
    /// Number of calls of the pipeline that have changed something, or may have.
    pub writes_done: usize,
}

/// Work left for another attempt at a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remains {
    /// The parts of the pipeline that began and did not succeed, as prefixes of effect ids: see [`Remains::covers`].
    pub unfinished: Vec<String>,
    /// True if the scope has ended: its constructor did not succeed, or its destructor has begun.
    pub is_scope_over: bool,
}

impl Remains {
    /// True if the effect `id` belongs to a part that did not succeed.
    pub fn covers(&self, id: &str) -> bool {
        self.unfinished.iter().any(|part| is_below(id, part))
    }
}

/// True if the effect `id` is `part` itself or inside it.
pub fn is_below(id: &str, part: &str) -> bool {
    id.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '!', '@', '[']))
}

/// Executions of the stages of machines, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stages {
    /// A row per execution.
    pub rows: Vec<StageRow>,
    /// The StageResult of the stage that finished last.
    pub last: Option<Json>,
}

/// The state of one execution of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRow {
    /// The stage's id in its machine.
    pub stage_id: String,
    /// The id of the execution, `RUN/STAGE#N` for the Nth visit of the stage (B-ID2). In a machine that a step runs, it
    /// is `RUN/PIPELINE/STEP/STAGE#N`.
    pub stage_execution_id: String,
    /// State of the execution.
    pub status: StageStatus,
    /// The final verdict; `None` before there is one.
    pub verdict: Option<&'static str>,
    /// True if the last attempt ended at the turn cap.
    pub cap_hit: bool,
    /// Number of attempts.
    pub attempt_count: u32,
}

crate::words! {
    /// State of a stage's execution.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StageStatus {
        /// The stage is in progress.
        Running = "running",
        /// The stage reached its exit.
        Completed = "completed",
        /// The stage's gate is not open.
        Suspended = "parked",
        /// The stage waits for an answer.
        Halted = "halted",
        /// The stage ended with an error.
        Failed = "failed",
        /// The stage was cancelled.
        Cancelled = "cancelled",
    }
}

/// State of one step, as a row of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRow {
    /// Constructor, business or destructor.
    pub phase: Phase,
    /// The step's name in its pipeline.
    pub name: String,
    /// The step's `type`.
    pub kind: &'static str,
    /// State of the step; with `for_each`, of all elements together.
    pub status: StepStatus,
    /// Number of attempts, of all elements together.
    pub attempts: u32,
    /// Number of attempts that followed a rejected or failed one.
    pub retries: u32,
    /// Time that the step was at work, in milliseconds: effects that ran at the same time count once.
    pub duration_ms: u64,
    /// True if the output came from an earlier run; with `for_each`, the output of every element.
    pub cached: bool,
    /// The elements of the step's `for_each`; `None` without one, or before it began.
    pub items: Option<Items>,
    /// Tokens and money of the step.
    pub usage: Usage,
    /// The model that responded last, as `provider/model`.
    pub model: Option<String>,
    /// Ids of the step's effects, in the order in which they ended.
    pub effects: Vec<EffectId>,
}

impl StepRow {
    /// The row of a step that has not started.
    pub fn new(phase: Phase, name: String, kind: &'static str) -> Self {
        Self {
            phase,
            name,
            kind,
            status: StepStatus::NotStarted,
            attempts: 0,
            retries: 0,
            duration_ms: 0,
            cached: false,
            items: None,
            usage: Usage::default(),
            model: None,
            effects: Vec::new(),
        }
    }
}

crate::words! {
    /// State of a step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StepStatus {
        /// The step never started.
        NotStarted = "not_started",
        /// The step is in progress.
        Running = "running",
        /// The step succeeded.
        Succeeded = "succeeded",
        /// The step failed, after all its attempts.
        Failed = "failed",
        /// The step's condition did not hold.
        Skipped = "skipped",
        /// The step was cancelled.
        Cancelled = "cancelled",
    }
}

/// A progress event of a run. The same run yields the same events, also when it is replayed.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A phase begins.
    PhaseStarted(Phase),
    /// The pipeline has deviated, and the run continues in skill mode.
    FellBack {
        /// The pipeline, the step that deviated, and the reason.
        fell_back: FellBack,
        /// The failure, as a sentence fragment.
        message: String,
    },
    /// A step begins.
    StepStarted {
        /// Index of the step in [`RunResult::steps`].
        row: usize,
        /// The element that the step works on; `None` outside a group with `for_each`.
        item: Option<Item>,
    },
    /// An attempt of a step was rejected and is repeated.
    AttemptRejected {
        /// Row of the step, or of the step that calls its pipeline.
        row: usize,
        /// The element that the attempt works on.
        item: Option<Item>,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Maximum number of attempts.
        max_attempts: u32,
        /// The schema, validator or transport that rejected the attempt.
        rejected_by: RejectedBy,
        /// One sentence per fault; the model receives them with the next attempt.
        reasons: Vec<String>,
    },
    /// A step is over.
    StepEnded {
        /// Index of the step in [`RunResult::steps`], whose facts are those of all elements together.
        row: usize,
        /// The element that the step worked on; `None` outside a group with `for_each`.
        item: Option<Item>,
        /// The end of the step, for this element.
        status: StepStatus,
        /// Time that the step was at work on this element, in milliseconds.
        duration_ms: u64,
    },
    /// A model that calls tools has responded.
    AgentText {
        /// Row of the step.
        row: usize,
        /// Number of the response, from 1.
        turn: u32,
        /// The response's text besides its calls; may be empty.
        text: String,
    },
    /// A tool is about to be called.
    ToolStarted {
        /// Row of the step.
        row: usize,
        /// The effect of the call.
        effect: EffectId,
        /// The tool's name.
        name: String,
        /// The arguments as the model wrote them.
        arguments: String,
    },
    /// A tool call is over.
    ToolEnded {
        /// Row of the step.
        row: usize,
        /// The effect of the call.
        effect: EffectId,
        /// The tool's name.
        name: String,
        /// Error of the call as `class/code: message`; `None` on success.
        error: Option<String>,
        /// Duration of the call, in milliseconds.
        elapsed_ms: u64,
    },
    /// A step could not run as its definition asks, and ran in another way with the same result.
    Detour {
        /// Row of the step.
        row: usize,
        /// The reason, as a sentence.
        why: String,
    },
    /// Tools of an agent are missing: it continues without them and is informed.
    ToolsMissing {
        /// Row of the step.
        row: usize,
        /// Reasons, one sentence for each source of tools.
        problems: Vec<String>,
    },
    /// Older results and arguments were left out of the model's request, to keep it within the context window.
    ContextTrimmed {
        /// Row of the step.
        row: usize,
        /// Total number left out so far.
        left_out: usize,
    },
    /// An event of a stage machine (`b-stages` §17).
    Stage {
        /// The name of the event.
        name: &'static str,
        /// Facts of the event: a JSON object.
        payload: Json,
    },
    /// An element of a `for_each` begins.
    ItemStarted {
        /// Row of the step.
        row: usize,
        /// The element by its index.
        item: Item,
    },
    /// An element of a `for_each` is over.
    ItemEnded {
        /// Row of the step.
        row: usize,
        /// The element by its index.
        item: Item,
        /// The final state of the element.
        status: StepStatus,
        /// True if the output came from an earlier run.
        cached: bool,
        /// Reason of the failure; `None` on success.
        error: Option<String>,
        /// Number of elements that are over, this one included.
        done: usize,
        /// Number of elements of the array.
        total: usize,
    },
}

/// A whole number in groups of three digits: `1,048,576`.
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A duration for people: `350 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 if ms.is_multiple_of(1000) => format!("{seconds} s"),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Shortens a text to at most `max` characters, with an ellipsis as the mark of a cut.
pub fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some(_) => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// A number of bytes for people: `512 B`, `1.4 KiB`, `3.0 MiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}
