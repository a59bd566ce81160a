//! The interpreter: a pure state machine over effects.
//!
//! [`Machine::poll`] says what to start and what to give up; [`Machine::complete`] tells what became of an effect.
//! There is no clock, no randomness and no IO, so a run is replayed by feeding the recorded outcomes in their order.
//!
//! Inside, every construct is a [`Task`]: a value that is polled until it is ready, as a future would be, but without
//! an executor. A task asks for an effect through [`Cx::perform`], which starts it the first time and gives its
//! outcome once it has arrived. One file per construct: `code`, `llm`, `agent`, `application`, `fan_out`, `sub_pipeline`, `pipeline_tool`,
//! `approval`, `stages`. A construct names no other construct; `scope`, `sequence`, `step` and `cached` put them together.

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
pub use values::stdin_for_first_step;

/// Version of the interpreter's meaning: it grows whenever the same plan and outcomes would give other commands.
/// A journal is replayed only where [`replays`] says so.
pub const ABI: u32 = 11;

/// True if a run that was begun by version `abi` of the interpreter can be gone on with by this one. Version 2 changed how
/// models that call tools are led, by what name a step calls an application, and how many faults of an answer a model is
/// shown: 100 at most. That last one is let pass: an llm step that was shown more is asked for its correction again.
/// Version 3 gave each element of a fan-out a cache entry of its own. Version 4 changed what the text of an agent with a
/// schema means. Version 5 added `run.attempt` to the stdin of constructor and destructor: see [`Attempt::new`]. Version 6 keeps
/// what a stage was allowed while its calls wait for another answer, fails a group with the first failure of its plan, and gives an approval
/// that timed out no time. Version 7 rejects `none` beside other choices,
/// and ends a run whose budget routing has exceeded. Version 8 takes the last value in an answer that fits the schema, where it
/// took the longest; ends an agent whose answers are cut off again and again, and names the limit; compares numbers to the last
/// digit and at every depth; keeps the digits of a chosen element; inserts every string bare; asks again after an empty answer; and
/// says whose value cannot be looked into. Version 9 calls a pipeline only where the list of tools has it as one, and refuses the
/// agent that takes over a call that a person has denied, and one that was made with its numbers written in another way. Version 10
/// deviates where a question has something else than a list to choose from, counts the responses of models as the attempts of an
/// agent that calls pipelines and of a pipeline as a step, leaves long arguments of older calls out of what a model is sent, asks
/// once whether a stage shall run although its gate is not open, and warns of a `join` that a script gives without `parallel`. Version 11
/// asks more questions in one call, also those of a group, and says which of them has used up the retries; of stages that fail side by
/// side it names the first of their list. Runs of earlier ones go on as they were: see [`Start::abi`].
pub fn replays(abi: u32, plan: &Plan) -> bool {
    match abi {
        4..=ABI => true,
        3 => !plan.has_agents_with_schema(),
        2 => !plan.caches_elements() && !plan.has_agents_with_schema(),
        1 => !plan.caches_elements() && !plan.calls_tools(),
        _ => false,
    }
}

/// The first version of the interpreter that ends a run whose budget was exceeded before it began.
const COUNTS_ROUTING: u32 = 7;

/// The first version of the interpreter that takes the last value in an answer that fits its schema.
pub(crate) const TAKES_LAST: u32 = 8;

/// The first version of the interpreter that ends an agent whose answers are cut off again and again, and names the limit.
const NAMES_LIMIT: u32 = 8;

/// The first version of the interpreter whose lists of tools say which of them are pipelines.
const MARKS_PIPELINES: u32 = 9;

/// The first version of the interpreter that keeps the calls that a person has denied from the agent that takes over.
const KEEPS_DENIALS: u32 = 9;

/// The first version of the interpreter that compares calls by the values of their arguments (L-69).
const COMPARES_CALLS: u32 = 9;

/// The first version of the interpreter that counts responses of models where a pipeline is called.
const COUNTS_RESPONSES: u32 = 10;

/// The first version of the interpreter that leaves long arguments of older calls out of what a model is sent.
const TRIMS_ARGUMENTS: u32 = 10;

/// The first version of the interpreter that warns of a `join` without `parallel` from a script.
const WARNS_OF_JOIN: u32 = 10;

/// The first version of the interpreter that keeps the answer to the question of a gate.
const KEEPS_ENTRY: u32 = 10;

/// The first version of the interpreter that asks questions with a `when` or a `require` together with others, and questions of a group
/// in one call; that sends the images of all of them; and that says which of them has used up the retries (L-49).
const JOINS_QUESTIONS: u32 = 11;

/// The first version of the interpreter that names the first of a list of stages, where several have failed, and lets those that are
/// looked through for secrets come to their gates (B-P12).
const NAMES_FIRST_SIBLING: u32 = 11;

/// Which attempt at a run this is, and which one its scope began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// From 1; every continuation of a run that had ended adds one.
    pub number: u32,
    /// The attempt whose constructor opened the current scope: a scope that has not ended is not opened again.
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

/// What a machine is given besides its plan.
#[derive(Debug, Clone)]
pub struct Start {
    /// The run's id, shown to constructor and destructor.
    pub run_id: String,
    /// The version of the interpreter that began the run: what it did differently is replayed as it was.
    pub abi: u32,
    /// The business pipeline's input: a JSON object.
    pub input: Json,
    /// The request in the user's words, if there was one.
    pub request: Option<String>,
    /// What the run may cost.
    pub limits: Limits,
    /// What has been spent on it already: on routing, and in earlier attempts.
    pub spent: Usage,
    /// The number of this attempt and of the one that opened its scope.
    pub attempt: Attempt,
    /// The app's directory, which machines show to their scripts; nothing is looked for in it here.
    pub app_dir: String,
    /// Questions of machines are answered with yes (B-HL2).
    pub yolo: bool,
    /// The forms of the slots of its machines when it began, if those are not the plan's (B-ST3).
    pub slots: SlotForms,
    /// The parts of the pipeline that earlier attempts have started again, as beginnings of effect ids, each with the last attempt
    /// that did: what was answered together with an older question is asked for again (A-5.6, L-49).
    pub restarts: BTreeMap<String, u32>,
}

impl Start {
    /// A first attempt without input, limits and earlier costs.
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

/// What a run may cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// US dollars of all model calls together; `None`: any sum.
    pub max_cost_usd: Option<f64>,
    /// Tokens read and written.
    pub max_tokens: Option<u64>,
    /// Milliseconds until constructor and pipeline are stopped; the destructor runs after that.
    pub timeout_ms: Option<u64>,
}

impl Limits {
    /// Why a run that has spent `usage` is at its end, if `is_over` says so of what it has spent and may spend.
    fn exceeded(&self, usage: &Usage, is_over: impl Fn(f64, f64) -> bool) -> Option<String> {
        let tokens = usage.input_tokens + usage.output_tokens;
        if let Some(limit) = self.max_tokens.filter(|limit| is_over(tokens as f64, *limit as f64)) {
            return Some(format!("the run has used {tokens} tokens; its budget is {limit}"));
        }
        let (limit, cost) = (self.max_cost_usd?, usage.cost_usd?);
        is_over(cost, limit).then(|| format!("the run has cost {cost:.4} USD; its budget is {limit} USD"))
    }
}

/// What a model call cost that is not an effect of the run: one of its layers, or a confirmation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aside {
    /// Tokens and US dollars of the call; nothing where it was not made.
    pub usage: Usage,
    /// It was not made, because the budget was used up.
    pub is_refused: bool,
}

/// What a run has spent, and what it may spend.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Budget {
    spent: Usage,
    /// Empty in the destructor.
    limits: Limits,
}

impl Budget {
    /// Why nothing more may be spent after this.
    pub fn used_up_with(&self, more: &Usage) -> Option<String> {
        let mut spent = self.spent;
        spent.add(more);
        self.limits.exceeded(&spent, |spent, limit| spent >= limit)
    }
}

/// The effect of the time budget of a run.
pub fn time_budget(plan: &Plan) -> EffectId {
    Path::root(&plan.body.name).aside("timeout")
}

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Start an effect and, in time, complete it.
    Start(EffectId, Effect),
    /// Give an effect up. It must still be completed, with [`crate::outcome::Outcome::Abandoned`] or whatever else
    /// became of it, once everything it had started is gone. A timer or a question leaves nothing behind: the machine
    /// does not wait for its end, and ignores it.
    Abandon(EffectId),
    /// Notify the observer.
    Emit(Event),
}

/// One run, in the current state.
#[derive(Debug)]
pub struct Machine {
    root: ScopeTask,
    cx: Cx,
    /// What the machine was given since it was last polled.
    inbox: VecDeque<Input>,
    result: Option<RunResult>,
    /// The forms of the slots of the plan's machines.
    slots: SlotForms,
}

/// When an outcome was paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paid {
    /// In this attempt.
    Now,
    /// In an earlier one.
    Before,
}

/// Something that the machine is given. Each is dealt with before the next one is looked at, so that it makes no
/// difference after how many of them the machine is polled: a replay may poll more often than the first run did.
#[derive(Debug)]
enum Input {
    Completed(EffectId, Completed, Paid),
    Cancel(Failure),
    Kill(Failure),
    Resumed(SlotForms),
    Spent(Aside),
}

impl Machine {
    /// A run that has not begun.
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

    /// Advances until it waits and returns what it wants done, in a fixed order. What the machine was given meanwhile
    /// takes effect here, one thing after the other.
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
                // A kill lets nothing begin, not even what would follow from the cancellation before it.
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

    /// Tells what became of an effect. Effects that were never started, are already complete or were given up for
    /// good are ignored, so that telling twice does no harm.
    pub fn complete(&mut self, id: &EffectId, completed: Completed) {
        self.take(id, completed, Paid::Now);
    }

    /// The same for an outcome of an earlier attempt: [`Start::spent`] has what it cost already, and no budget is held
    /// against it.
    pub fn complete_kept(&mut self, id: &EffectId, completed: Completed) {
        self.take(id, completed, Paid::Before);
    }

    fn take(&mut self, id: &EffectId, completed: Completed, paid: Paid) {
        if self.cx.is_outstanding(id) && !self.is_reported(id) {
            self.inbox.push_back(Input::Completed(id.clone(), completed, paid));
        }
    }

    /// Outcomes of earlier attempts are still to come: what the pipeline asks for may have been paid for already.
    pub fn expect_kept(&mut self, is_expected: bool) {
        self.cx.expects_kept = is_expected;
    }

    /// Books a model call that is not an effect. One that exceeds the budget, or that it has refused, ends the run.
    pub fn spend(&mut self, aside: Aside) {
        self.inbox.push_back(Input::Spent(aside));
    }

    /// What was spent so far, and what may be.
    pub fn budget(&self) -> Budget {
        self.cx.budget()
    }

    /// Stops constructor or pipeline; the destructor still runs, and is not cut short.
    pub fn cancel(&mut self, reason: &str) {
        self.inbox.push_back(Input::Cancel(Failure::new(FailureKind::Cancelled, reason)));
    }

    /// Stops everything, the destructor as well.
    pub fn kill(&mut self, reason: &str) {
        self.inbox.push_back(Input::Kill(Failure::new(FailureKind::Cancelled, reason)));
    }

    /// True if it makes a difference to what is at work that a run goes on in another process: to stages, which then
    /// restart (B-ST6), and to slots whose form has changed since (B-ST3).
    pub fn handles_resumption(&self) -> bool {
        self.result.is_none() && (self.cx.machines > 0 || self.cx.facts.slots != self.slots)
    }

    /// The forms of the slots of the plan's machines: what [`Machine::resume`] receives when a run goes on with it.
    pub fn slots(&self) -> &SlotForms {
        &self.slots
    }

    /// The process that ran the run is gone, and it goes on elsewhere, with machines whose slots have these forms. Stages that
    /// were at work restart.
    pub fn resume(&mut self, slots: SlotForms) {
        self.inbox.push_back(Input::Resumed(slots));
    }

    /// Why a machine of the plan cannot go on with a slot that was kept in `stored`, if it cannot (B-ST3).
    pub fn refused_drift(plan: &Plan, stored: &SlotForms) -> Option<Failure> {
        plan.machines().into_iter().find_map(|machine| {
            let kept = stored.get(&machine.id)?;
            let (then, now) = (&kept.version, &machine.slot.version);
            let is_refused = then != now && machine.slot.drift == Drift::Reject;
            is_refused.then(|| stages::drift_rejected(&machine.id, then, now))
        })
    }

    /// The machine at work that cannot go on with what it keeps in its slot, and why, if there is one (B-ST3): others have
    /// ended, or begin with a slot of the new form.
    pub fn refused_slot(&self) -> Option<(&str, Failure)> {
        self.cx.kept.iter().find_map(|id| {
            let (then, now) = (self.cx.facts.slots.get(id)?, self.slots.get(id)?);
            let is_refused = then.version != now.version && now.drift == Drift::Reject.word();
            is_refused.then(|| (id.as_str(), stages::drift_rejected(id, &then.version, &now.version)))
        })
    }

    /// Why a machine cannot work with a model that claims `claim`, if it cannot (B-CN3). One that has to be tried may.
    pub fn refused_model(machine: &StageMachine, model: &str, claim: ToolCalling) -> Option<Failure> {
        stages::refused_model(machine, model, claim)
    }

    /// The result, once there is one.
    pub fn result(&self) -> Option<&RunResult> {
        self.result.as_ref()
    }

    /// How far the run has come: its result, or what a run that waits can say so far.
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

    /// True once the constructor is over and the pipeline has begun, or if there is no constructor. Outcomes of the
    /// pipeline from earlier attempts answer from here on.
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

    /// The hash of what was asked of an effect that was started and is not complete.
    pub fn request(&self, id: &EffectId) -> Option<Digest> {
        self.cx.request(id).filter(|_| !self.is_reported(id))
    }

    /// The effects that were started and are not complete, with the hash of what was asked, in the order of their ids.
    pub fn outstanding(&self) -> impl Iterator<Item = (&EffectId, Digest)> {
        self.cx.outstanding().filter(|(id, _)| !self.is_reported(id))
    }
}

/// Something that is polled until it is over.
pub(crate) trait Task: fmt::Debug + Send {
    /// Advances until it waits.
    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>>;

    /// Asks it to end soon, with `why`. It is polled on until everything that it has started is gone.
    fn stop(&mut self, cx: &mut Cx, why: &Failure);

    /// The process that ran the run is gone: what cannot go on in the middle restarts. Most tasks can.
    fn resumed(&mut self, _cx: &mut Cx) {}

    /// True if its output came from an earlier run.
    fn is_cached(&self) -> bool {
        false
    }

    /// False if its output must not stand in for that of a later run, although it ended well.
    fn may_be_remembered(&self) -> bool {
        true
    }
}

/// A part of an effect id: where a task stands in its run.
#[derive(Debug, Clone)]
pub(crate) struct Path(Arc<str>);

impl Path {
    pub(crate) fn root(name: &str) -> Self {
        Self(name.into())
    }

    /// A step below.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0).into())
    }

    /// An element of a `for_each`.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0).into())
    }

    /// The same place, once more from the beginning.
    pub(crate) fn again(&self, incarnation: u32) -> Self {
        if incarnation == 1 { self.clone() } else { Self(format!("{}@{incarnation}", self.0).into()) }
    }

    /// The effect of a step's try, counted from 1.
    pub(crate) fn attempt(&self, attempt: u32) -> EffectId {
        if attempt == 1 { EffectId::new(Arc::clone(&self.0)) } else { EffectId::new(format!("{}#{attempt}", self.0)) }
    }

    /// An effect beside the step's own work: a timer, the cache.
    pub(crate) fn aside(&self, name: &str) -> EffectId {
        EffectId::new(format!("{}!{name}", self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests;
