//! What a run has to say: events while it goes on, a result when it is over.

use crate::data::Json;
use crate::effect::EffectId;
use crate::failure::{Failure, Phase, Reason, RejectedBy};
use crate::model::Usage;

mod items;
mod json;

pub use items::{Item, Items};
pub use json::{error_json, fell_back_json, items_json, result_json, usage_json};

crate::words! {
    /// How a run ended, or that it has not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Status {
        /// It waits for a decision.
        Waiting = "waiting",
        /// It waits for a time, and needs no process until then (K-43).
        Sleeping = "sleeping",
        /// Everything worked.
        Succeeded = "succeeded",
        /// Something did not.
        Failed = "failed",
        /// Somebody stopped it.
        Cancelled = "cancelled",
    }
}

/// How a run ended, with all that its result document says.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// The state in which the run is: it also waits or sleeps.
    pub status: Status,
    /// The pipeline's output; kept where only the destructor failed.
    pub output: Option<Json>,
    /// What went wrong, the business failure first; empty on success.
    pub errors: Vec<Failure>,
    /// A row per step of the plan, in plan order.
    pub steps: Vec<StepRow>,
    /// Tokens and money of the whole run.
    pub usage: Usage,
    /// What became of the stages of machines.
    pub stages: Stages,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// What another attempt has to do.
    pub remains: Remains,
    /// The run has left its pipeline and continued in skill mode.
    pub fell_back: Option<FellBack>,
    /// Pipelines that its agents called as tools and that deviated, in order (L-79).
    pub deviations: Vec<CallDeviation>,
}

/// The deviation of a pipeline that an agent called as a tool (L-77).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDeviation {
    /// The name of the called pipeline.
    pub pipeline: String,
    /// The step that deviated; empty if the pipeline has none.
    pub step: String,
    /// Why: the word of a reason, or of a kind of failure.
    pub reason: &'static str,
}

/// How a run came from its pipeline into skill mode (L-67).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FellBack {
    /// The name of the pipeline that the run began with.
    pub pipeline: String,
    /// The step that deviated.
    pub step: String,
    /// The class of the deviation (L-50).
    pub reason: Reason,
    /// How many calls of the pipeline have changed something, or may have.
    pub writes_done: usize,
}

/// What another attempt at a run has to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remains {
    /// The parts of the pipeline that began and did not succeed, as beginnings of effect ids: see [`Remains::covers`].
    pub unfinished: Vec<String>,
    /// The scope has ended: its constructor did not succeed, or its destructor has begun.
    pub is_scope_over: bool,
}

impl Remains {
    /// True if the effect `id` belongs to a part that did not succeed.
    pub fn covers(&self, id: &str) -> bool {
        self.unfinished.iter().any(|part| is_below(id, part))
    }
}

/// True if the effect `id` is that of `part` or of something inside it.
pub fn is_below(id: &str, part: &str) -> bool {
    id.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '!', '@', '[']))
}

/// What became of the stages of machines, in the order of their execution.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stages {
    /// A row per execution.
    pub rows: Vec<StageRow>,
    /// The StageResult of the stage that finished last.
    pub last: Option<Json>,
}

/// What became of one execution of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRow {
    /// The stage's id in its machine.
    pub stage_id: String,
    /// The id of the execution, `RUN/STAGE#N` for the Nth visit of the stage (B-ID2).
    pub stage_execution_id: String,
    /// How far it has come.
    pub status: StageStatus,
    /// The final verdict, once there is one.
    pub verdict: Option<&'static str>,
    /// The last attempt ended at the turn cap.
    pub cap_hit: bool,
    /// How many attempts there were.
    pub attempt_count: u32,
}

crate::words! {
    /// How far an execution of a stage has come.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StageStatus {
        /// It is at work.
        Running = "running",
        /// It came to its exit.
        Completed = "completed",
        /// Its gate said not now.
        Suspended = "parked",
        /// It waits for an answer.
        Halted = "halted",
        /// It ended with an error.
        Failed = "failed",
        /// It was stopped.
        Cancelled = "cancelled",
    }
}

/// What became of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRow {
    /// Constructor, business or destructor.
    pub phase: Phase,
    /// The step's name in its pipeline.
    pub name: String,
    /// Its `type`.
    pub kind: &'static str,
    /// The state of the step; with elements that of all together.
    pub status: StepStatus,
    /// How many attempts there were, of all elements together.
    pub attempts: u32,
    /// How many of these repeated one that was rejected or had failed.
    pub retries: u32,
    /// For how long it was at work, in milliseconds: effects that ran at the same time count once.
    pub duration_ms: u64,
    /// Its output came from an earlier run; of a `for_each`, that of every element.
    pub cached: bool,
    /// The elements of its `for_each`, if it has one and did begin.
    pub items: Option<Items>,
    /// Tokens and money of the step.
    pub usage: Usage,
    /// The model that answered last, as `provider/model`.
    pub model: Option<String>,
    /// Its effects, in the order in which they ended.
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
    /// What became of a step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StepStatus {
        /// It never started.
        NotStarted = "not_started",
        /// It is at work.
        Running = "running",
        /// It ended well.
        Succeeded = "succeeded",
        /// It ended with a failure, after all its attempts.
        Failed = "failed",
        /// Its condition did not hold.
        Skipped = "skipped",
        /// It was stopped.
        Cancelled = "cancelled",
    }
}

/// Something worth telling while a run goes on. The same run gives the same events, also when it is replayed.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A phase begins.
    PhaseStarted(Phase),
    /// The pipeline has deviated, and the run continues in skill mode.
    FellBack {
        /// The pipeline, the step that deviated, and the reason.
        fell_back: FellBack,
        /// What went wrong, as a sentence fragment.
        message: String,
    },
    /// A step begins.
    StepStarted {
        /// Its row in [`RunResult::steps`].
        row: usize,
    },
    /// An attempt of a step was rejected and is repeated.
    AttemptRejected {
        /// Row of the step, or of the one that calls its pipeline.
        row: usize,
        /// The element that it works on.
        item: Option<Item>,
        /// Which attempt, from 1.
        attempt: u32,
        /// How many attempts there are at most.
        max_attempts: u32,
        /// Schema, validator or transport.
        rejected_by: RejectedBy,
        /// One sentence per fault; the model receives them with the next attempt.
        reasons: Vec<String>,
    },
    /// A step is over.
    StepEnded {
        /// Its row in [`RunResult::steps`].
        row: usize,
    },
    /// A model that calls tools has said something.
    AgentText {
        /// Row of the step.
        row: usize,
        /// Which of its answers, from 1.
        turn: u32,
        /// What it said besides its calls; may be empty.
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
        /// Its arguments as the model wrote them.
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
        /// What went wrong, if something did: `class/code: message`.
        error: Option<String>,
        /// How long it took, in milliseconds.
        elapsed_ms: u64,
    },
    /// A step went another way than its definition asks for, with the same result.
    Detour {
        /// Row of the step.
        row: usize,
        /// Why, as a sentence.
        why: String,
    },
    /// Tools of an agent are missing: it continues without them and is notified.
    ToolsMissing {
        /// Row of the step.
        row: usize,
        /// Why, one sentence for each source of tools.
        problems: Vec<String>,
    },
    /// Older results and arguments were left out of what the model is sent, to keep within its window.
    ContextTrimmed {
        /// Row of the step.
        row: usize,
        /// How many of them are left out by now.
        left_out: usize,
    },
    /// Something happened in a machine of stages (`b-stages` §17).
    Stage {
        /// The name of the event.
        name: &'static str,
        /// What there is to tell: a JSON object.
        payload: Json,
    },
    /// An element of a `for_each` begins.
    ItemStarted {
        /// Row of the step.
        row: usize,
        /// The element by its place.
        item: Item,
    },
    /// An element of a `for_each` is over.
    ItemEnded {
        /// Row of the step.
        row: usize,
        /// The element by its place.
        item: Item,
        /// The state in which it ended.
        status: StepStatus,
        /// Its output came from an earlier run.
        cached: bool,
        /// Why it failed, if it did.
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

/// A text, or the beginning of a long one: at most `max` characters with the mark of the cut.
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
