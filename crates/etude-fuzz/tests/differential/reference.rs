//! The reference: the expected run of a pipeline, evaluated directly, part by part, from the protocol and its extensions.
//!
//! Each part of a run (a step, a group, an element, a pipeline) is a function. Its arguments are the moment at which it begins
//! and the latest moment at which it is stopped. Its results are its end, its verdict, and its effects in the world. Nothing is
//! polled or stored. A part that a failure stops is evaluated twice: first without a stop, to find the moment of the failure,
//! and then up to that moment.
//!
//! Decisions that the protocol leaves open follow the interpreter, and are marked *(open)*.

mod choose;
mod work;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::definition::{App, ForEach, Group, OnTimeout, Pipeline, Step, Work};
use crate::values::Scope;
use crate::world::{Asked, Ended, MS, Time, World};

/// The expected result of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) status: &'static str,
    pub(crate) output: Option<Value>,
    pub(crate) errors: Vec<Fault>,
    /// All effects, by the moment of their start.
    pub(crate) effects: Vec<Effect>,
    /// Result of each step that has a row.
    pub(crate) rows: Vec<Row>,
    /// Outputs of successful steps and elements of the pipeline, by path: another attempt keeps them.
    pub(crate) outputs: BTreeMap<String, Value>,
    /// Answers to questions that were asked in the call of another question, by path.
    pub(crate) received: BTreeMap<String, Received>,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// The attempt whose constructor opened the scope. The scope is over if its constructor did not succeed or its destructor
    /// ran.
    pub(crate) scope: u32,
    pub(crate) is_scope_over: bool,
}

/// The answer to a question that was asked in the call of another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    /// Path of the question that made the call.
    pub(crate) asker: String,
    /// End of the call.
    pub(crate) at: Time,
    /// The answer, or an error if no retry was left; `None`: the call failed, and the question is asked again.
    pub(crate) answer: Option<Result<Value, ()>>,
}

/// The neighbours of a step.
#[derive(Debug, Clone, Copy)]
struct Beside<'a> {
    /// Later steps.
    after: &'a [Step],
    received: &'a BTreeMap<String, Received>,
    /// True if the steps are children of a group.
    is_group: bool,
}

/// An executed effect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effect {
    pub(crate) id: String,
    pub(crate) asked: Asked,
    pub(crate) begins: Time,
    pub(crate) ends: Time,
    /// True if the effect was abandoned before its end.
    pub(crate) is_given_up: bool,
}

/// A failure, with its kind and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: &'static str,
    pub(crate) phase: &'static str,
    pub(crate) step: String,
}

/// The status of a row that the contract leaves open.
pub(crate) const ANY: &str = "any";

/// The row of a step. Steps that never began have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) phase: &'static str,
    pub(crate) name: String,
    pub(crate) status: &'static str,
}

/// The verdict on a part of a run.
#[derive(Debug, Clone)]
enum Verdict {
    Output(Value),
    /// The failures, that of the part first.
    Failed(Vec<Fault>),
    /// The part was stopped from outside before its end.
    Stopped,
}

/// The result of a part of a run.
#[derive(Debug, Clone)]
struct Part {
    ends: Time,
    verdict: Verdict,
    effects: Vec<Effect>,
    rows: Vec<Row>,
    outputs: BTreeMap<String, Value>,
    received: BTreeMap<String, Received>,
    /// True if the work of an element failed before it began: a value is missing, or does not fit.
    is_refused: bool,
    /// Number of effects that were abandoned at the moment of the part's end, right after their start. Parts that end at one
    /// moment end in this order.
    rounds: u32,
}

impl Part {
    /// A part that ends at once.
    fn at_once(at: Time, verdict: Verdict) -> Self {
        let (effects, rows, outputs, received) = (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { ends: at, verdict, effects, rows, outputs, received, is_refused: false, rounds: 0 }
    }

    fn refused(at: Time, verdict: Verdict) -> Self {
        Self { is_refused: true, ..Self::at_once(at, verdict) }
    }

    /// Records an output that another attempt keeps.
    fn keep(&mut self, place: &Place) {
        if let (Verdict::Output(output), "business") = (&self.verdict, place.phase) {
            self.outputs.insert(place.path.clone(), output.clone());
        }
    }

    /// Adds the effects and results of another part.
    fn absorb(&mut self, other: Self) -> Verdict {
        self.rounds = match self.ends.cmp(&other.ends) {
            Ordering::Less => other.rounds,
            Ordering::Equal => self.rounds.max(other.rounds),
            Ordering::Greater => self.rounds,
        };
        self.ends = self.ends.max(other.ends);
        self.effects.extend(other.effects);
        self.rows.extend(other.rows);
        self.outputs.extend(other.outputs);
        self.received.extend(other.received);
        other.verdict
    }
}

/// The moment from which a part may act, and the moment of its stop.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Time,
    until: Time,
}

/// The place of a part in a run.
#[derive(Debug, Clone)]
struct Place {
    /// Prefix of the ids of its effects.
    path: String,
    /// Directory of its pipeline.
    dir: String,
    phase: &'static str,
    /// The step with a row that calls this pipeline: steps of called pipelines have no rows.
    caller: Option<String>,
}

impl Place {
    /// The place of a pipeline. Constructor and destructor run once per attempt of the scope. *(open)* how their ids
    /// distinguish the attempts.
    fn of_pipeline(pipeline: &Pipeline, phase: &'static str, attempt: u32) -> Self {
        let (name, dir) = (&pipeline.name, format!("pipelines/{}", pipeline.name));
        let path = if attempt == 1 { name.clone() } else { format!("{name}@{attempt}") };
        Self { path, dir, phase, caller: None }
    }

    fn child(&self, name: &str) -> Self {
        Self { path: format!("{}/{name}", self.path), ..self.clone() }
    }

    /// Path of another step of the same pipeline or group.
    fn sibling(&self, name: &str) -> String {
        let above = self.path.rsplit_once('/').map_or("", |(above, _)| above);
        format!("{above}/{name}")
    }

    fn item(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), ..self.clone() }
    }

    /// Id of an attempt, counted from 1.
    fn attempt(&self, attempt: u32) -> String {
        if attempt == 1 { self.path.clone() } else { format!("{}#{attempt}", self.path) }
    }

    fn fault(&self, kind: &'static str, step: &Step) -> Verdict {
        let step = self.caller.as_ref().unwrap_or(&step.name).clone();
        Verdict::Failed(vec![Fault { kind, phase: self.phase, step }])
    }

    fn row(&self, step: &Step, status: &'static str) -> Option<Row> {
        self.caller.is_none().then(|| Row { phase: self.phase, name: step.name.clone(), status })
    }
}

/// The model of an app in a world.
#[derive(Debug)]
pub(crate) struct Reference<'a> {
    pub(crate) app: &'a App,
    pub(crate) world: World,
    /// Id of the run, for constructor and destructor.
    pub(crate) run_id: &'a str,
    /// The previous attempt, whose outputs are kept.
    pub(crate) earlier: Option<&'a Expected>,
    /// Paths of the parts that this attempt restarts.
    pub(crate) restarts: &'a BTreeSet<String>,
}

impl Reference<'_> {
    /// Protocol 6.2, A-5: runs the constructor, the pipeline if the constructor succeeded, and the destructor in any case.
    pub(crate) fn run(&self) -> Expected {
        let mut run = Part::at_once(0, Verdict::Stopped);
        let attempt = self.earlier.map_or(1, |earlier| earlier.attempt + 1);
        let scope = self.earlier.filter(|earlier| !earlier.is_scope_over).map_or(attempt, |earlier| earlier.scope);
        let (stop, why, timer) = self.stop();
        let mut errors = Vec::new();
        let mut status = "succeeded";
        if let Some(constructor) = &self.app.constructor {
            let place = Place::of_pipeline(constructor, "constructor", scope);
            if scope == attempt {
                let verdict = self.phase(&mut run, constructor, &place, self.about(scope), stop);
                status = judge(&verdict, &place, why, &mut errors);
            } else {
                // The constructor has run in an earlier attempt.
                run.rows = constructor.steps.iter().flat_map(|step| rows_of(step, &place, ANY)).collect();
            }
        }
        let mut output = None;
        let is_constructed = status == "succeeded";
        if is_constructed {
            let place = Place::of_pipeline(&self.app.pipeline, "business", 1);
            let verdict = self.phase(&mut run, &self.app.pipeline, &place, Map::new(), stop);
            status = judge(&verdict, &place, why, &mut errors);
            if let Verdict::Output(value) = verdict {
                output = Some(value);
            }
        }
        run.effects.extend(timer.filter(|_| run.ends > 0));
        let destructor = self.app.destructor.as_ref().filter(|_| is_constructed);
        if let Some(destructor) = destructor {
            let place = Place::of_pipeline(destructor, "destructor", attempt);
            let mut about = self.about(attempt);
            about.insert("status".to_owned(), status.into());
            about.insert("error".to_owned(), errors.first().map_or(Value::Null, Fault::value));
            // A cancellation or a budget does not stop the destructor.
            let verdict = self.phase(&mut run, destructor, &place, about, Time::MAX);
            let own = judge(&verdict, &place, why, &mut errors);
            status = if status == "succeeded" { own } else { status };
        }
        let is_scope_over = !is_constructed || destructor.is_some();
        let Part { effects, rows, outputs, received, .. } = run;
        Expected { status, output, errors, effects, rows, outputs, received, attempt, scope, is_scope_over }
    }

    /// the run as constructor and destructor see it. From the second attempt on, it contains the number of the attempt.
    fn about(&self, attempt: u32) -> Map<String, Value> {
        let mut run = json!({"id": self.run_id, "pipeline": self.app.pipeline.name});
        if attempt > 1 {
            run["attempt"] = attempt.into();
        }
        Map::from_iter([("run".to_owned(), run)])
    }

    /// The moment and the reason of a stop: the user's cancellation, or the time budget. Another attempt has neither.
    fn stop(&self) -> (Time, &'static str, Option<Effect>) {
        let Self { app, earlier: None, .. } = self else { return (Time::MAX, "", None) };
        let cancel = app.cancel_ms.map_or(Time::MAX, |ms| ms * MS);
        let timer = app.timeout_ms.map(|ms| self.timer(&format!("{}!timeout", app.pipeline.name), ms, 0));
        let budget = timer.as_ref().map_or(Time::MAX, |timer| timer.ends);
        let (stop, why) = if cancel <= budget { (cancel, "cancelled") } else { (budget, "budget_exceeded") };
        (stop, why, timer)
    }

    fn phase(
        &self,
        run: &mut Part,
        pipeline: &Pipeline,
        place: &Place,
        about_run: Map<String, Value>,
        until: Time,
    ) -> Verdict {
        let scope = Scope { input: self.app.input.clone(), steps: Map::new(), item: None, about_run };
        let window = Window { from: run.ends, until };
        run.absorb(self.pipeline(pipeline, place, scope, window))
    }

    /// Runs the steps of a pipeline, one after the other (6.1). The first failure ends it.
    fn pipeline(&self, pipeline: &Pipeline, place: &Place, mut scope: Scope, window: Window) -> Part {
        let mut part = Part::at_once(window.from, Verdict::Stopped);
        for (at, step) in pipeline.steps.iter().enumerate() {
            if part.ends >= window.until {
                return part;
            }
            let place = place.child(&step.name);
            let beside = Beside { after: &pipeline.steps[at + 1..], received: &part.received, is_group: false };
            let one = self.step(step, &place, &scope, Window { from: part.ends, ..window }, beside);
            match part.absorb(one) {
                Verdict::Output(output) => scope.steps.insert(step.name.clone(), output),
                verdict => return Part { verdict, ..part },
            };
        }
        let last = pipeline.steps.last().map(|step| step.name.clone());
        let verdict = Verdict::Output(output_of(pipeline, &last.expect("a step"), &scope));
        Part { verdict, ..part }
    }

    /// `when`, then `require`, then the work, which `timeout` limits.
    fn step(&self, step: &Step, place: &Place, scope: &Scope, window: Window, beside: Beside<'_>) -> Part {
        if let Some(mut part) = self.kept(place, window) {
            part.rows = rows_of(step, place, ANY);
            part.rows.retain(|row| row.name != step.name);
            part.rows.extend(place.row(step, "succeeded"));
            return part;
        }
        if let Some(when) = &step.when {
            match scope.holds(when) {
                Ok(true) => {}
                Ok(false) => {
                    let mut part = Part::at_once(window.from, Verdict::Output(Value::Null));
                    part.rows = rows_of(step, place, "skipped");
                    return part;
                }
                Err(_) => return self.refused(step, place, window, "template_unresolved"),
            }
        }
        if step.require.as_ref().is_some_and(|require| !scope.meets(require)) {
            return self.refused(step, place, window, "deviated");
        }
        let timer = step.timeout_ms.map(|ms| self.timer(&format!("{}!timeout", place.path), ms, window.from));
        let deadline = timer.as_ref().map_or(Time::MAX, |timer| timer.ends);
        // An approval without an answer in time is a decision if the step says so, also for its elements.
        let decides = matches!(&step.work, Work::Approval(approval) if approval.on_timeout != OnTimeout::Fail);
        let inner = if decides { window } else { Window { until: window.until.min(deadline), ..window } };
        let answer_by = if decides { deadline } else { Time::MAX };
        let mut part = match &step.for_each {
            None => self.work(step, place, scope, inner, answer_by, beside),
            Some(each) => self.elements(step, each, place, scope, inner, answer_by),
        };
        let is_late = matches!(part.verdict, Verdict::Stopped) && deadline < window.until;
        // A step that is stopped while its timeout ends it counts as stopped.
        if is_late && part.ends <= window.until {
            part.verdict = place.fault("step_timeout", step);
        }
        let status = match &part.verdict {
            Verdict::Output(_) => "succeeded",
            Verdict::Failed(_) => "failed",
            Verdict::Stopped if is_late => "failed",
            Verdict::Stopped => "cancelled",
        };
        part.is_refused = false;
        part.rows.extend(place.row(step, status));
        part.keep(place);
        part.effects.extend(timer.filter(|timer| part.ends > timer.begins));
        part
    }

    /// a step or an element that succeeded in an earlier attempt is not repeated.
    fn kept(&self, place: &Place, window: Window) -> Option<Part> {
        let output = self.earlier?.outputs.get(&place.path).filter(|_| place.phase == "business")?;
        let mut part = Part::at_once(window.from, Verdict::Output(output.clone()));
        part.keep(place);
        Some(part)
    }

    /// The result of a step that fails before its work begins.
    fn refused(&self, step: &Step, place: &Place, window: Window, kind: &'static str) -> Part {
        let mut part = Part::at_once(window.from, place.fault(kind, step));
        part.rows.extend(place.row(step, "failed"));
        part
    }

    /// runs the work once per element. The output is the array of outputs in the order of the input; with `collect`, each
    /// member is marked as an output or an error.
    fn elements(
        &self,
        step: &Step,
        each: &ForEach,
        place: &Place,
        scope: &Scope,
        window: Window,
        answer_by: Time,
    ) -> Part {
        let items = match scope.value(&each.items) {
            Ok(Value::Array(items)) => items,
            _ => return Part::at_once(window.from, place.fault("template_unresolved", step)),
        };
        if items.len() > each.max_items {
            return Part::at_once(window.from, place.fault("step_failed", step));
        }
        let run = |index: usize, window: Window| {
            let (scope, place) =
                (Scope { item: Some((items[index].clone(), index)), ..scope.clone() }, place.item(index));
            let mut part = match self.kept(&place, window) {
                Some(part) => part,
                None => {
                    let beside = Beside { after: &[], received: &BTreeMap::new(), is_group: false };
                    self.work(step, &place, &scope, window, answer_by, beside)
                }
            };
            part.keep(&place);
            part
        };
        let fan = fan_out(items.len(), each.max_parallel, !each.collects, window, &run);
        let mut part = fan.conclude(window, |verdicts| match each.collects {
            false => Verdict::Output(verdicts.into_iter().filter_map(Result::ok).collect()),
            true => Verdict::Output(verdicts.into_iter().map(|one| collected(one, place)).collect()),
        });
        // *(open)* Children of a group per element share their rows.
        part.rows = rows_of(step, place, ANY).into_iter().skip(1).collect();
        part
    }

    /// X-3 `parallel`: the children see the steps before the group, not each other.
    fn group(&self, group: &Group, place: &Place, scope: &Scope, window: Window) -> Part {
        let received = RefCell::new(BTreeMap::new());
        let run = |index: usize, window: Window| {
            if index == 0 {
                received.borrow_mut().clear();
            }
            let (step, before): (&Step, _) = (&group.steps[index], received.borrow().clone());
            let beside = Beside { after: &group.steps[index + 1..], received: &before, is_group: true };
            let part = self.step(step, &place.child(&step.name), scope, window, beside);
            received.borrow_mut().extend(part.received.clone());
            part
        };
        let slots = group.max_parallel.unwrap_or(group.steps.len());
        let fan = fan_out(group.steps.len(), slots, !group.waits, window, &run);
        // *(open)* whether the others count as begun if a child fails at the moment at which all begin.
        let failed =
            fan.failed.filter(|failed| fan.parts[*failed].as_ref().is_some_and(|part| part.ends == window.from));
        let others = group.steps.iter().enumerate().filter(|(at, _)| failed.is_some_and(|failed| failed != *at));
        let others: Vec<Row> = others.flat_map(|(_, step)| rows_of(step, place, ANY)).collect();
        let mut part = fan.conclude(window, |verdicts| {
            let faults: Vec<Fault> = verdicts.iter().filter_map(|one| one.as_ref().err()).flatten().cloned().collect();
            if !faults.is_empty() {
                // With `wait`, failures are in the order of the plan.
                return Verdict::Failed(faults);
            }
            let outputs = verdicts.into_iter().filter_map(Result::ok);
            let named = group.steps.iter().map(|step| step.name.clone()).zip(outputs);
            Verdict::Output(named.collect::<Map<_, _>>().into())
        });
        part.rows.retain(|row| !others.iter().any(|other| other.name == row.name));
        part.rows.extend(others);
        part
    }

    /// Executes an effect if it ends in time, and abandons it at the end of the window. Returns `None` if it was abandoned or
    /// never began.
    fn execute(&self, part: &mut Part, id: &str, asked: &Asked, window: Window) -> Option<Ended> {
        let begins = part.ends;
        if begins >= window.until {
            return None;
        }
        let natural = begins + self.world.duration(id, asked);
        let is_given_up = natural > window.until;
        let gone = window.until.saturating_add(self.world.grace(id, asked));
        part.ends = if is_given_up { natural.min(gone) } else { natural };
        part.effects.push(Effect { id: id.to_owned(), asked: asked.clone(), begins, ends: part.ends, is_given_up });
        (!is_given_up).then(|| self.world.end(id, asked))
    }

    fn timer(&self, id: &str, ms: u64, begins: Time) -> Effect {
        let asked = Asked::Timer { ms };
        let ends = begins + self.world.duration(id, &asked);
        Effect { id: id.to_owned(), asked, begins, ends, is_given_up: false }
    }
}

/// The status of the run after a phase. Adds the errors of the phase.
fn judge(verdict: &Verdict, place: &Place, why: &'static str, errors: &mut Vec<Fault>) -> &'static str {
    match verdict {
        Verdict::Output(_) => "succeeded",
        Verdict::Failed(faults) => {
            errors.extend(faults.iter().cloned());
            "failed"
        }
        Verdict::Stopped => {
            // *(open)* the step that a stopped run names.
            errors.push(Fault { kind: why, phase: place.phase, step: String::new() });
            if why == "cancelled" { "cancelled" } else { "failed" }
        }
    }
}

impl Fault {
    /// The fault as a member of a value, for `collect` and for the destructor.
    pub(crate) fn value(&self) -> Value {
        json!({"kind": self.kind, "step": self.step})
    }
}

/// An element's member with `collect`. *(open)* In a called pipeline the error names no step, because none of its steps has a
/// row.
fn collected(verdict: Result<Value, Vec<Fault>>, place: &Place) -> Value {
    match verdict {
        Ok(output) => json!({ "output": output }),
        Err(faults) if place.caller.is_some() => json!({"error": {"kind": faults[0].kind, "step": null}}),
        Err(faults) => json!({ "error": faults[0].value() }),
    }
}

/// the output of the last step, of the step that `output` names, or of that child of a group.
fn output_of(pipeline: &Pipeline, last: &str, scope: &Scope) -> Value {
    let name = pipeline.output.as_deref().unwrap_or(last);
    if let Some(output) = scope.steps.get(name) {
        return output.clone();
    }
    let has_child =
        |step: &&Step| matches!(&step.work, Work::Group(group) if group.steps.iter().any(|s| s.name == name));
    let group = pipeline.steps.iter().find(has_child).expect("`output` names a step");
    // A skipped group has the output null, without members.
    scope.steps[&group.name].get(name).cloned().unwrap_or_default()
}

/// Rows of a step and of the children of a group, all with one status.
fn rows_of(step: &Step, place: &Place, status: &'static str) -> Vec<Row> {
    let below = match &step.work {
        Work::Group(group) => group.steps.as_slice(),
        _ => &[],
    };
    let below = below.iter().flat_map(|step| rows_of(step, place, status));
    place.row(step, status).into_iter().chain(below).collect()
}

/// Parts that run at the same time.
struct Fan {
    /// Parts in order; `None` for a part that never began.
    parts: Vec<Option<Part>>,
    /// Index of the part whose failure stopped the others.
    failed: Option<usize>,
}

/// Runs parts in their order, each as soon as one of `slots` is free. If a failure stops the others, no part begins after it,
/// and running ones are abandoned.
fn fan_out(count: usize, slots: usize, stops: bool, window: Window, run: &dyn Fn(usize, Window) -> Part) -> Fan {
    let schedule = |until: Time| -> Vec<Option<Part>> {
        let mut free = vec![window.from; slots.max(1)];
        let begin = |index: usize| {
            let slot = free.iter_mut().min().expect("a slot");
            let part = (*slot < until).then(|| run(index, Window { from: *slot, until }))?;
            // No part follows in the slot of one that stops all others.
            *slot = if stops && matches!(part.verdict, Verdict::Failed(_)) { Time::MAX } else { part.ends };
            Some(part)
        };
        (0..count).map(begin).collect()
    };
    let mut parts = schedule(window.until);
    let failure = |part: &Option<Part>| match part {
        Some(Part { ends, verdict: Verdict::Failed(_), rounds, .. }) => Some((*ends, *rounds)),
        _ => None,
    };
    // *(open)* Of parts that fail as soon as they may begin, those whose work cannot begin come first.
    let refused = parts.iter().take(slots).position(|part| part.as_ref().is_some_and(|part| part.is_refused));
    let failures = parts.iter().enumerate().filter_map(|(index, part)| Some((failure(part)?, index)));
    let first = refused.map(|index| ((window.from, 0), index)).or_else(|| failures.min());
    let Some(((at, _), first)) = first.filter(|_| stops) else {
        return Fan { parts, failed: None };
    };
    let has_begun = |part: &Part| part.effects.iter().any(|effect| effect.begins == at);
    let gives_up = refused.is_none() && at == window.from && parts[..first].iter().flatten().any(has_begun);
    for (index, stopped) in schedule(at).into_iter().enumerate() {
        let is_over = |part: &Part| index == first || index < first && part.ends <= at;
        if !parts[index].as_ref().is_some_and(is_over) {
            parts[index] = stopped;
        }
    }
    if let Some(failed) = &mut parts[first] {
        failed.rounds += u32::from(gives_up);
    }
    Fan { parts, failed: Some(first) }
}

impl Fan {
    /// Joins all parts, when the last of them has ended.
    fn conclude(self, window: Window, join: impl FnOnce(Vec<Result<Value, Vec<Fault>>>) -> Verdict) -> Part {
        let mut whole = Part::at_once(window.from, Verdict::Stopped);
        let (mut verdicts, mut is_stopped) = (Vec::new(), false);
        for (index, part) in self.parts.into_iter().enumerate() {
            match part.map(|part| whole.absorb(part)) {
                Some(Verdict::Output(output)) => verdicts.push(Ok(output)),
                Some(Verdict::Failed(faults)) if self.failed == Some(index) => whole.verdict = Verdict::Failed(faults),
                Some(Verdict::Failed(faults)) => verdicts.push(Err(faults)),
                Some(Verdict::Stopped) | None => is_stopped = true,
            }
        }
        if self.failed.is_some() {
            // Another cause stopped the whole before all parts had ended.
            if whole.ends > window.until {
                whole.verdict = Verdict::Stopped;
            }
        } else if !is_stopped {
            whole.verdict = join(verdicts);
        }
        whole
    }
}
