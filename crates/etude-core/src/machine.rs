//! The interpreter: a pure state machine over effects.
//!
//! [`Machine::poll`] returns the effects to start and to abandon; [`Machine::complete`] takes the outcome of an effect.
//! There is no clock, no randomness and no IO, so a run is replayed by feeding the recorded outcomes in their order.
//!
//! Inside, every construct is a `Task`: a value that is polled until it is ready, like a future, but without an
//! executor. A task requests an effect through `Cx::run_effect`, which starts it the first time and returns its
//! outcome once that has arrived. One file per construct: `code`, `llm`, `agent`, `fan_out`, `sub_pipeline`,
//! `pipeline_tool`, `approval`, `stages`. A construct names no other construct; `scope`, `sequence`, `step` and
//! `cached` combine them.

mod agent;
mod approval;
mod binding;
mod cached;
mod call;
mod code;
mod conversation;
mod cx;
mod deviation;
mod fan_out;
mod handover;
mod llm;
mod open_work;
mod outcome_error;
mod pipeline_tool;
mod scope;
mod sequence;
mod stages;
mod step;
mod step_context;
mod sub_pipeline;
mod validator;
mod values;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use crate::data::Json;
use crate::digest::Digest;
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind};
use crate::model::Usage;
use crate::outcome::Completed;
use crate::plan::Plan;
use crate::plan::stages::{Drift, SlotForms, StageMachine};
use crate::report::{Event, RunResult, Status, StepRow};
use crate::tool::ToolCalling;

pub(crate) use cx::{Cx, Facts};
use scope::ScopeTask;
pub use stages::guard;

/// Version of the interpreter's semantics. It grows whenever the same plan and outcomes would yield other commands. A
/// journal is replayed only if [`replays`] returns true.
pub const ABI: u32 = 15;

/// True if this version of the interpreter can continue a run that version `abi` began. Runs of earlier versions behave
/// as they did: see [`Start::abi`]. The versions differ as follows.
///
/// - Version 2 changed the instructions for models that call tools, the name under which a step calls an application,
///   and the number of faults of a response that a model is shown: 100 at most. The last change is accepted: an llm
///   step that was shown more is asked for its correction again.
/// - Version 3 gave each element of a fan-out its own cache entry.
/// - Version 4 changed the meaning of the text of an agent with a schema.
/// - Version 5 added `run.attempt` to the stdin of constructor and destructor: see [`Attempt::new`].
/// - Version 6 keeps the permissions of a stage while its calls wait for another answer, fails a group with the first
///   failure of its plan, and counts no time for an approval that timed out.
/// - Version 7 rejects `none` beside other choices, and ends a run if routing has exceeded its budget.
/// - Version 8 takes the last value in a response that fits the schema, instead of the longest. It ends an agent whose
///   responses are cut off repeatedly, and names the limit. It compares numbers to the last digit and at every depth,
///   keeps the digits of a chosen element, and inserts every string bare. It asks again after an empty response, and
///   names the value that cannot be looked into.
/// - Version 9 calls a pipeline only if the tool list has it as a pipeline. It refuses the agent that takes over a call
///   that a person has denied, and a call that was already made with its numbers written in another way.
/// - Version 10 deviates if the list to choose from is not a list. It counts the responses of models as the attempts of
///   an agent that calls pipelines and of a pipeline as a step. It leaves long arguments of older calls out of a
///   model's request, asks once whether a stage may run although its gate is not open, and warns of a `join` that a
///   script gives without `parallel`.
/// - Version 11 asks more questions in one call, also those of a group, and reports which of them has used up the
///   retries. If several stages fail side by side, it names the first of their list.
/// - Version 12 gives the executions of each machine in a run their own ids.
/// - Version 13 lifts the denials of the pipeline in the destructor. In conditions, it takes only zero for `0`. Its cache
///   keys keep the JSON types and all digits of values. The failure of an element keeps its own details.
/// - Version 14 binds the permission of a call to all digits of its numbers, and shows them in the question and in events.
///   Scripts of machines judge them.
/// - Version 15 names the faults of the last call of a completion tool if its stage fails at the turn limit. Failures of
///   stages have the place of the stage or of its hook, and those of a `require` the values that it reads.
pub fn replays(abi: u32, plan: &Plan) -> bool {
    match abi {
        4..=ABI => true,
        3 => !plan.has_agents_with_schema(),
        2 => !plan.caches_elements() && !plan.has_agents_with_schema(),
        1 => !plan.caches_elements() && !plan.calls_tools(),
        _ => false,
    }
}

/// The first version of the interpreter that ends a run whose budget was already exceeded at its start.
const COUNTS_ROUTING: u32 = 7;

/// The first version of the interpreter that takes the last value in a response that fits its schema.
pub(crate) const TAKES_LAST: u32 = 8;

/// The first version of the interpreter that ends an agent whose responses are cut off repeatedly, and names the limit.
const NAMES_LIMIT: u32 = 8;

/// The first version of the interpreter whose tool lists mark pipelines.
const MARKS_PIPELINES: u32 = 9;

/// The first version of the interpreter that refuses the agent that takes over the calls that a person has denied.
const KEEPS_DENIALS: u32 = 9;

/// The first version of the interpreter that compares calls by the values of their arguments (L-69).
const COMPARES_CALLS: u32 = 9;

/// The first version of the interpreter that counts responses of models if a pipeline is called.
const COUNTS_RESPONSES: u32 = 10;

/// The first version of the interpreter that leaves long arguments of older calls out of a model's request.
const TRIMS_ARGUMENTS: u32 = 10;

/// The first version of the interpreter that warns of a `join` without `parallel` from a script.
const WARNS_OF_JOIN: u32 = 10;

/// The first version of the interpreter that keeps the answer to the question at a gate.
const KEEPS_ENTRY: u32 = 10;

/// The first version of the interpreter that asks questions with a `when` or a `require` together with others, and
/// questions of a group in one call. It also sends the images of all of them, and reports which of them has used up the
/// retries (L-49).
const JOINS_QUESTIONS: u32 = 11;

/// The first version of the interpreter that names the first stage of a list if several have failed. It also lets
/// stages whose texts are searched for secrets reach their gates (B-P12).
const NAMES_FIRST_SIBLING: u32 = 11;

/// The first version of the interpreter whose ids of stage executions name the place of their machine (B-ID3).
const NAMES_MACHINES: u32 = 12;

/// The first version of the interpreter that lifts the denials of the pipeline in the destructor (A-5.3, L-69).
const LIFTS_DENIALS: u32 = 13;

/// The first version of the interpreter whose cache keys keep the JSON types and all digits of values.
const TYPES_KEYS: u32 = 13;

/// The first version of the interpreter that keeps the details of an element's failure, and adds the index to them.
const KEEPS_DETAILS: u32 = 13;

/// The first version of the interpreter that names the faults of the last call of a completion tool (B-R3).
const NAMES_LAST_FAULTS: u32 = 15;

/// The first version of the interpreter whose failures of stages have the place of the stage or of its hook.
const PLACES_STAGES: u32 = 15;

/// The first version of the interpreter whose failures of a `require` have the values that it reads (L-50).
const SHOWS_VALUES: u32 = 15;

/// Number of an attempt at a run, and of the attempt that began its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 1; every continuation of an ended run adds one.
    pub number: u32,
    /// The attempt whose constructor opened the current scope: an open scope is not opened again.
    pub scope: u32,
}

impl Attempt {
    /// The attempt `number`, in a scope that the attempt `scope` opened.
    pub const fn new(number: u32, scope: u32) -> Self {
        Self { number, scope }
    }
}

impl Default for Attempt {
    fn default() -> Self {
        Self::new(1, 1)
    }
}

/// Parameters of a run besides its plan.
#[derive(Debug, Clone)]
pub struct Start {
    /// The run's id, passed to constructor and destructor.
    pub run_id: String,
    /// The version of the interpreter that began the run: its differences are replayed.
    pub abi: u32,
    /// The business pipeline's input: a JSON object.
    pub input: Json,
    /// The request in the user's words, if there was one.
    pub request: Option<String>,
    /// Budget of the run: cost, tokens and time.
    pub limits: Limits,
    /// Earlier spending on the run: by routing, and by earlier attempts.
    pub spent: Usage,
    /// The number of this attempt and of the one that opened its scope.
    pub attempt: Attempt,
    /// The app's directory, which machines pass to their scripts; this crate does not read it.
    pub app_dir: String,
    /// True if the questions of machines are answered with yes automatically (B-HL2).
    pub yolo: bool,
    /// Slot forms of the run's machines when it began, if they differ from the plan's (B-ST3).
    pub slots: SlotForms,
    /// Parts of the pipeline that earlier attempts have restarted, as prefixes of effect ids, each with the last
    /// attempt that did. Answers that came together with an older question are asked for again (A-5.6, L-49).
    pub restarts: BTreeMap<String, u32>,
}

impl Start {
    /// A first attempt without input, limits and earlier spending.
    pub fn new(run_id: String) -> Self {
        Self {
            run_id,
            abi: ABI,
            input: Json::trusted("{}"),
            request: None,
            limits: Limits::default(),
            spent: Usage::default(),
            attempt: Attempt::default(),
            app_dir: String::new(),
            yolo: false,
            slots: SlotForms::default(),
            restarts: BTreeMap::new(),
        }
    }
}

/// Budget of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Maximum cost of all model calls together, in US dollars; `None`: unlimited.
    pub max_cost_usd: Option<f64>,
    /// Maximum number of tokens read and written; `None`: unlimited.
    pub max_tokens: Option<u64>,
    /// Time in milliseconds until constructor and pipeline are stopped; the destructor runs after that.
    pub timeout_ms: Option<u64>,
}

impl Limits {
    /// The limit that a run with spending `usage` has reached, as a message. `is_over` compares the spending with a limit.
    fn exceeded(&self, usage: &Usage, is_over: impl Fn(f64, f64) -> bool) -> Option<String> {
        let tokens = usage.input_tokens + usage.output_tokens;
        if let Some(limit) = self.max_tokens.filter(|limit| is_over(tokens as f64, *limit as f64)) {
            return Some(format!("the run has used {tokens} tokens; its budget is {limit}"));
        }
        let (limit, cost) = (self.max_cost_usd?, usage.cost_usd?);
        is_over(cost, limit).then(|| format!("the run has cost {cost:.4} USD; its budget is {limit} USD"))
    }
}

/// A model call of a run that is not an effect: of its middleware, or for a confirmation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aside {
    /// Tokens and US dollars of the call; zero if it was refused.
    pub usage: Usage,
    /// True if the call was not made, because the budget was used up.
    pub is_refused: bool,
}

/// Spending of a run, with its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Budget {
    spent: Usage,
    /// Empty in the destructor.
    limits: Limits,
}

impl Budget {
    /// The limit that is used up after `more` is spent, as a message; `None` if there is budget left.
    pub fn used_up_with(&self, more: &Usage) -> Option<String> {
        let mut spent = self.spent;
        spent.add(more);
        self.limits.exceeded(&spent, |spent, limit| spent >= limit)
    }
}

/// Id of the timer effect for the time budget of a run.
pub fn time_budget(plan: &Plan) -> EffectId {
    Path::root(&plan.body.name).aside("timeout")
}

/// A request of the machine to its driver.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Start an effect and report its completion later.
    Start(EffectId, Effect),
    /// Abandon an effect. Its end must still be reported, with [`crate::outcome::Outcome::Abandoned`] or its real
    /// outcome, once everything it had started is gone. A timer or a question leaves nothing behind: the machine does
    /// not wait for its end, and ignores it.
    Abandon(EffectId),
    /// Notify the observer.
    Emit(Event),
}

/// The current state of one run.
#[derive(Debug)]
pub struct Machine {
    root: ScopeTask,
    cx: Cx,
    /// Inputs since the last poll.
    inbox: VecDeque<Input>,
    result: Option<RunResult>,
    /// Slot forms of the plan's machines.
    slots: SlotForms,
}

/// The attempt that paid for an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paid {
    /// This attempt.
    Now,
    /// An earlier attempt.
    Before,
}

/// An input of the machine. Inputs are handled one by one, so the number of inputs between two polls makes no
/// difference: a replay may poll more often than the first run did.
#[derive(Debug)]
enum Input {
    Completed(EffectId, Completed, Paid),
    Cancel(Failure),
    Kill(Failure),
    Resumed(SlotForms),
    Spent(Aside),
}

impl Machine {
    /// A run before its first step. It is already cancelled if routing has exceeded its budget.
    pub fn new(plan: &Plan, start: Start) -> Self {
        let mut cx = Cx::new(start.limits, start.spent);
        let slots = plan.slots();
        let begun_with = if start.slots.is_empty() { slots.clone() } else { start.slots.clone() };
        let (run_id, app_dir) = (start.run_id.clone(), start.app_dir.clone());
        cx.facts = Facts {
            run_id,
            abi: start.abi,
            app_dir,
            yolo: start.yolo,
            slots: begun_with,
            restarts: start.restarts.clone(),
        };
        let mut root = ScopeTask::new(plan, &start, &mut cx);
        if start.abi >= COUNTS_ROUTING
            && start.attempt.number == 1
            && let Err(why) = cx.may_begin()
        {
            root.cancel(&mut cx, &why);
        }
        Self { root, cx, inbox: VecDeque::new(), result: None, slots }
    }

    /// The same run for a caller that only observes it, and executes no effect: commands that start one are left out, and
    /// the effect of a process is not built. Poll it with [`Self::poll_all`], so that its events come as they came in the run.
    #[must_use]
    pub fn observed(mut self) -> Self {
        self.cx.is_observed = true;
        self
    }

    /// Advances until the machine waits, and returns its commands in a fixed order. Inputs since the last poll take
    /// effect here, one after the other.
    pub fn poll(&mut self) -> Vec<Command> {
        loop {
            match self.inbox.pop_front() {
                Some(Input::Completed(id, completed, paid)) => self.cx.arrive(&id, completed, paid),
                Some(Input::Cancel(why)) => self.root.cancel(&mut self.cx, &why),
                Some(Input::Kill(why)) => self.root.kill(&mut self.cx, &why),
                Some(Input::Resumed(slots)) => {
                    self.cx.facts.slots = slots;
                    self.root.resumed(&mut self.cx);
                }
                Some(Input::Spent(aside)) => {
                    if let Err(why) = self.cx.spend(&aside) {
                        self.root.cancel(&mut self.cx, &why);
                    }
                }
                None => {}
            }
            if matches!(self.inbox.front(), Some(Input::Kill(_))) {
                // Nothing may begin before a kill, not even the consequences of a cancellation right before it.
                continue;
            }
            if self.result.is_none()
                && let Poll::Ready(result) = self.root.poll(&mut self.cx)
            {
                self.result = Some(result);
            }
            if self.inbox.is_empty() {
                return self.cx.take_commands();
            }
        }
    }

    /// Polls until there are no further commands, as a driver does, and returns all of them.
    pub fn poll_all(&mut self) -> Vec<Command> {
        let mut all = Vec::new();
        loop {
            self.cx.has_left_out = false;
            let commands = self.poll();
            if commands.is_empty() && !self.cx.has_left_out {
                return all;
            }
            if all.is_empty() { all = commands } else { all.extend(commands) }
        }
    }

    /// Reports the outcome of an effect. Effects that were never started, are already complete or were abandoned for
    /// good are ignored, so a second report does no harm.
    pub fn complete(&mut self, id: &EffectId, completed: Completed) {
        self.take(id, completed, Paid::Now);
    }

    /// Like [`Self::complete`], for an outcome of an earlier attempt: [`Start::spent`] already includes its cost, and
    /// it counts against no budget.
    pub fn complete_kept(&mut self, id: &EffectId, completed: Completed) {
        self.take(id, completed, Paid::Before);
    }

    fn take(&mut self, id: &EffectId, completed: Completed, paid: Paid) {
        if self.cx.is_outstanding(id) && !self.is_reported(id) {
            self.inbox.push_back(Input::Completed(id.clone(), completed, paid));
        }
    }

    /// Announces whether outcomes of earlier attempts are still to come: the pipeline's next effects may already be
    /// paid for.
    pub fn expect_kept(&mut self, is_expected: bool) {
        self.cx.expects_kept = is_expected;
    }

    /// Books a model call that is not an effect. A call that exceeds the budget, or was refused because of it, ends the
    /// run.
    pub fn spend(&mut self, aside: Aside) {
        self.inbox.push_back(Input::Spent(aside));
    }

    /// The spending so far, with the limits that apply now.
    pub fn budget(&self) -> Budget {
        self.cx.budget()
    }

    /// Stops constructor or pipeline; the destructor still runs to its end.
    pub fn cancel(&mut self, reason: &str) {
        self.inbox.push_back(Input::Cancel(Failure::new(FailureKind::Cancelled, reason)));
    }

    /// Stops everything, including the destructor.
    pub fn kill(&mut self, reason: &str) {
        self.inbox.push_back(Input::Kill(Failure::new(FailureKind::Cancelled, reason)));
    }

    /// True if the work in progress depends on the process that runs it: stages restart in another process (B-ST6), and
    /// the form of a slot may have changed since (B-ST3).
    pub fn handles_resumption(&self) -> bool {
        self.result.is_none() && (self.cx.machines > 0 || self.cx.facts.slots != self.slots)
    }

    /// Slot forms of the plan's machines: the argument of [`Machine::resume`] when the run continues with this plan.
    pub fn slots(&self) -> &SlotForms {
        &self.slots
    }

    /// Reports that the run continues in another process, with machines whose slots have these forms. Stages that were
    /// at work restart.
    pub fn resume(&mut self, slots: SlotForms) {
        self.inbox.push_back(Input::Resumed(slots));
    }

    /// The failure of a machine of the plan that cannot continue with its slot as it is in `stored` (B-ST3); `None` if
    /// all can.
    pub fn refused_drift(plan: &Plan, stored: &SlotForms) -> Option<Failure> {
        plan.machines().into_iter().find_map(|machine| {
            let kept = stored.get(&machine.id)?;
            let (then, now) = (&kept.version, &machine.slot.version);
            let is_refused = then != now && machine.slot.drift == Drift::Reject;
            is_refused.then(|| stages::drift_rejected(&machine.id, then, now))
        })
    }

    /// Id and failure of the machine at work that cannot continue with its slot (B-ST3). Other machines have ended, or
    /// begin with a slot of the new form.
    pub fn refused_slot(&self) -> Option<(&str, Failure)> {
        self.cx.kept.iter().find_map(|id| {
            let (then, now) = (self.cx.facts.slots.get(id)?, self.slots.get(id)?);
            let is_refused = then.version != now.version && now.drift == Drift::Reject.word();
            is_refused.then(|| (id.as_str(), stages::drift_rejected(id, &then.version, &now.version)))
        })
    }

    /// The failure of a machine that cannot work with a model of capability `claim` (B-CN3); `None` if it can. A model
    /// whose capability must be tried is accepted.
    pub fn refused_model(machine: &StageMachine, model: &str, claim: ToolCalling) -> Option<Failure> {
        stages::refused_model(machine, model, claim)
    }

    /// The result; `None` while the run is unfinished.
    pub fn result(&self) -> Option<&RunResult> {
        self.result.as_ref()
    }

    /// The state of the run: its result, or the parts of it that a waiting run already has.
    pub fn snapshot(&self) -> RunResult {
        self.result.clone().unwrap_or_else(|| RunResult {
            status: Status::Waiting,
            output: None,
            errors: Vec::new(),
            steps: self.root.shown(self.cx.rows_so_far()),
            usage: self.cx.usage,
            stages: self.cx.stages.clone(),
            attempt: self.root.attempt(),
            remains: self.root.remains(&self.cx),
            fell_back: self.root.fell_back().cloned(),
            deviations: self.cx.deviations.clone(),
        })
    }

    /// True once the constructor is over and the pipeline has begun, or if there is no constructor. Outcomes of earlier
    /// attempts apply to the pipeline from here on.
    pub fn is_past_constructor(&self) -> bool {
        self.root.is_past_constructor()
    }

    /// A row per step of the plan.
    pub fn rows(&self) -> &[StepRow] {
        &self.cx.rows
    }

    fn is_reported(&self, id: &EffectId) -> bool {
        self.inbox.iter().any(|input| matches!(input, Input::Completed(reported, ..) if reported == id))
    }

    /// Hash of the request of an effect that was started and is not complete.
    pub fn request(&self, id: &EffectId) -> Option<Digest> {
        self.cx.request(id).filter(|_| !self.is_reported(id))
    }

    /// The effects that were started and are not complete, with the hash of their requests, in the order of their ids.
    pub fn outstanding(&self) -> impl Iterator<Item = (&EffectId, Digest)> {
        self.cx.outstanding().filter(|(id, _)| !self.is_reported(id))
    }
}

/// A construct of the plan that is polled until it is over.
pub(crate) trait Task: fmt::Debug + Send {
    /// Advances until the task waits.
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>>;

    /// Asks the task to end soon, with failure `why`. It is polled until everything that it has started is gone.
    fn stop(&mut self, cx: &mut Cx, why: &Failure);

    /// Handles the move of the run to another process: work that cannot continue in the middle restarts. Most tasks can
    /// continue.
    fn resumed(&mut self, _cx: &mut Cx) {}

    /// True if the task's output came from an earlier run.
    fn is_cached(&self) -> bool {
        false
    }

    /// False if the task's output must not be cached for later runs, although it succeeded.
    fn may_be_remembered(&self) -> bool {
        true
    }
}

/// A prefix of effect ids: the position of a task in its run.
#[derive(Debug, Clone)]
pub(crate) struct Path(Arc<str>);

impl Path {
    pub(crate) fn root(name: &str) -> Self {
        Self(name.into())
    }

    /// The path of a step below this one.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0).into())
    }

    /// The path of an element of a `for_each`.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0).into())
    }

    /// The same path in a later incarnation of its task.
    pub(crate) fn incarnation(&self, incarnation: u32) -> Self {
        if incarnation == 1 { self.clone() } else { Self(format!("{}@{incarnation}", self.0).into()) }
    }

    /// Id of the step's effect in an attempt, counted from 1.
    pub(crate) fn attempt(&self, attempt: u32) -> EffectId {
        if attempt == 1 { EffectId::new(Arc::clone(&self.0)) } else { EffectId::new(format!("{}#{attempt}", self.0)) }
    }

    /// Id of an effect beside the step's own work, such as a timer or the cache.
    pub(crate) fn aside(&self, name: &str) -> EffectId {
        EffectId::new(format!("{}!{name}", self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests;
