//! The reference: what a run of a pipeline is, evaluated directly, part by part, from the protocol and its extensions.
//!
//! Each part of a run — a step, a group, an element, a pipeline — is a function from the moment at which it begins, and the moment
//! at which it is stopped at the latest, to what became of it: its end, its verdict, and the effects that it had the world do
//! in between. Nothing is polled, nothing is kept. A part that a failure stops is evaluated twice: once without it, to
//! know when the failure comes, and once up to that moment.
//!
//! What the protocol leaves open is decided here as the interpreter decides it, and marked *(open)*.

mod choose;
mod work;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::definition::{App, ForEach, Group, OnTimeout, Pipeline, Step, Work};
use crate::values::Scope;
use crate::world::{Asked, Ended, MS, Time, World};

/// What must come of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) status: &'static str,
    pub(crate) output: Option<Value>,
    pub(crate) errors: Vec<Fault>,
    /// All effects, by the moment of their start.
    pub(crate) effects: Vec<Effect>,
    /// What became of each step that has a row.
    pub(crate) rows: Vec<Row>,
    /// The outputs of the steps and elements of the pipeline that succeeded, by their paths: another attempt keeps them.
    pub(crate) outputs: BTreeMap<String, Value>,
    /// What was said to questions with the call of another one, by their paths.
    pub(crate) received: BTreeMap<String, Received>,
    /// Its number, from 1.
    pub(crate) attempt: u32,
    /// The attempt whose constructor opened the scope, and whether it was closed: its constructor did not succeed, or its destructor
    /// ran.
    pub(crate) scope: u32,
    pub(crate) is_scope_over: bool,
}

/// What was said to a question with the call of another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    /// The path of the question whose call it was.
    pub(crate) asker: String,
    /// When the call ended.
    pub(crate) at: Time,
    /// The answer, or that no retry was left; `None`: the call failed, and the question is asked again.
    pub(crate) answer: Option<Result<Value, ()>>,
}

/// What stands beside a step.
#[derive(Debug, Clone, Copy)]
struct Beside<'a> {
    /// The steps after it.
    after: &'a [Step],
    received: &'a BTreeMap<String, Received>,
    /// They are children of a group.
    is_group: bool,
}

/// An effect of the world.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effect {
    pub(crate) id: String,
    pub(crate) asked: Asked,
    pub(crate) begins: Time,
    pub(crate) ends: Time,
    /// It was given up before its end.
    pub(crate) is_given_up: bool,
}

/// A failure: its kind and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: &'static str,
    pub(crate) phase: &'static str,
    pub(crate) step: String,
}

/// The status of a row that the contract leaves open.
pub(crate) const ANY: &str = "any";

/// The row of a step. Those of steps that never began are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) phase: &'static str,
    pub(crate) name: String,
    pub(crate) status: &'static str,
}

/// How a part of a run comes to its end.
#[derive(Debug, Clone)]
enum Verdict {
    Output(Value),
    /// The failures, that of the part first.
    Failed(Vec<Fault>),
    /// It was stopped from outside before its end.
    Stopped,
}

/// What became of a part of a run.
#[derive(Debug, Clone)]
struct Part {
    ends: Time,
    verdict: Verdict,
    effects: Vec<Effect>,
    rows: Vec<Row>,
    outputs: BTreeMap<String, Value>,
    received: BTreeMap<String, Received>,
    /// The work of an element failed before it began: a value is missing, or does not fit.
    is_refused: bool,
    /// How often, at the moment of its end, something was given up that had only just begun: what ends at one moment ends
    /// in the order of this.
    rounds: u32,
}

impl Part {
    /// Over at once.
    fn at_once(at: Time, verdict: Verdict) -> Self {
        let (effects, rows, outputs, received) = (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { ends: at, verdict, effects, rows, outputs, received, is_refused: false, rounds: 0 }
    }

    fn refused(at: Time, verdict: Verdict) -> Self {
        Self { is_refused: true, ..Self::at_once(at, verdict) }
    }

    /// Notes an output that another attempt keeps.
    fn keep(&mut self, place: &Place) {
        if let (Verdict::Output(output), "business") = (&self.verdict, place.phase) {
            self.outputs.insert(place.path.clone(), output.clone());
        }
    }

    /// Takes over what another part did.
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

/// From when on a part may do something, and from when on no more.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Time,
    until: Time,
}

/// Where a part of a run stands.
#[derive(Debug, Clone)]
struct Place {
    /// What the ids of its effects begin with.
    path: String,
    /// The directory of its pipeline.
    dir: String,
    phase: &'static str,
    /// The step with a row that calls the pipeline it belongs to: steps of called pipelines have none.
    caller: Option<String>,
}

impl Place {
    /// Constructor and destructor run once per attempt of the scope. *(open)* how their ids tell the attempts apart.
    fn of_pipeline(pipeline: &Pipeline, phase: &'static str, attempt: u32) -> Self {
        let (name, dir) = (&pipeline.name, format!("pipelines/{}", pipeline.name));
        let path = if attempt == 1 { name.clone() } else { format!("{name}@{attempt}") };
        Self { path, dir, phase, caller: None }
    }

    fn child(&self, name: &str) -> Self {
        Self { path: format!("{}/{name}", self.path), ..self.clone() }
    }

    /// The place of another step of the same pipeline or group.
    fn sibling(&self, name: &str) -> String {
        let above = self.path.rsplit_once('/').map_or("", |(above, _)| above);
        format!("{above}/{name}")
    }

    fn item(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), ..self.clone() }
    }

    /// The id of an attempt, counted from 1.
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

/// Runs apps in a world.
#[derive(Debug)]
pub(crate) struct Reference<'a> {
    pub(crate) app: &'a App,
    pub(crate) world: World,
    /// The run's id, which constructor and destructor see.
    pub(crate) run_id: &'a str,
    /// The attempt before this one, whose outputs are kept.
    pub(crate) earlier: Option<&'a Expected>,
    /// The parts that this attempt starts again.
    pub(crate) restarts: &'a BTreeSet<String>,
}

impl Reference<'_> {
    /// Protocol 6.2, A-5: the constructor, the pipeline if that succeeded, the destructor however the pipeline ended.
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
                // It has done its work in an earlier attempt.
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
            // It is not cut short by a cancellation or a budget.
            let verdict = self.phase(&mut run, destructor, &place, about, Time::MAX);
            let own = judge(&verdict, &place, why, &mut errors);
            status = if status == "succeeded" { own } else { status };
        }
        let is_scope_over = !is_constructed || destructor.is_some();
        let Part { effects, rows, outputs, received, .. } = run;
        Expected { status, output, errors, effects, rows, outputs, received, attempt, scope, is_scope_over }
    }

    /// the run as constructor and destructor see it. The number of the attempt is there from the second one on.
    fn about(&self, attempt: u32) -> Map<String, Value> {
        let mut run = json!({"id": self.run_id, "pipeline": self.app.pipeline.name});
        if attempt > 1 {
            run["attempt"] = attempt.into();
        }
        Map::from_iter([("run".to_owned(), run)])
    }

    /// When the run is stopped, and what it ends with then: the user's cancellation, or its time budget. Another attempt has neither.
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

    /// The steps of a pipeline, one after the other (6.1). The first failure ends it.
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

    /// `when`, then `require`, then the work, for which `timeout` is the limit.
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
        // An approval that no one answers in time is a decision, if it says so: for its elements, too.
        let decides = matches!(&step.work, Work::Approval(approval) if approval.on_timeout != OnTimeout::Fail);
        let inner = if decides { window } else { Window { until: window.until.min(deadline), ..window } };
        let answer_by = if decides { deadline } else { Time::MAX };
        let mut part = match &step.for_each {
            None => self.work(step, place, scope, inner, answer_by, beside),
            Some(each) => self.elements(step, each, place, scope, inner, answer_by),
        };
        let is_late = matches!(part.verdict, Verdict::Stopped) && deadline < window.until;
        // A step that is stopped while its timeout ends it is stopped.
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

    /// A step that fails before anything of it begins.
    fn refused(&self, step: &Step, place: &Place, window: Window, kind: &'static str) -> Part {
        let mut part = Part::at_once(window.from, place.fault(kind, step));
        part.rows.extend(place.row(step, "failed"));
        part
    }

    /// the work once per element. The output is the array of outputs in the order of the input; with `collect` each of
    /// them says whether it is an output or an error.
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
        // *(open)* Whether the others count as begun, where a child fails at the moment at which all begin.
        let failed =
            fan.failed.filter(|failed| fan.parts[*failed].as_ref().is_some_and(|part| part.ends == window.from));
        let others = group.steps.iter().enumerate().filter(|(at, _)| failed.is_some_and(|failed| failed != *at));
        let others: Vec<Row> = others.flat_map(|(_, step)| rows_of(step, place, ANY)).collect();
        let mut part = fan.conclude(window, |verdicts| {
            let faults: Vec<Fault> = verdicts.iter().filter_map(|one| one.as_ref().err()).flatten().cloned().collect();
            if !faults.is_empty() {
                // `wait`: in the order of the plan.
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

    /// An effect: it is done if it ends in time, and given up when the time is over. `None` for the end if it was given up, or
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

/// The status that a phase gives to the run, and its errors.
fn judge(verdict: &Verdict, place: &Place, why: &'static str, errors: &mut Vec<Fault>) -> &'static str {
    match verdict {
        Verdict::Output(_) => "succeeded",
        Verdict::Failed(faults) => {
            errors.extend(faults.iter().cloned());
            "failed"
        }
        Verdict::Stopped => {
            // *(open)* which of its steps a stopped run names.
            errors.push(Fault { kind: why, phase: place.phase, step: String::new() });
            if why == "cancelled" { "cancelled" } else { "failed" }
        }
    }
}

impl Fault {
    /// As a member of a value: an element that failed, or what the destructor learns.
    pub(crate) fn value(&self) -> Value {
        json!({"kind": self.kind, "step": self.step})
    }
}

/// *(open)* In a called pipeline the error names no step: none of those that could be named has a row.
fn collected(verdict: Result<Value, Vec<Fault>>, place: &Place) -> Value {
    match verdict {
        Ok(output) => json!({ "output": output }),
        Err(faults) if place.caller.is_some() => json!({"error": {"kind": faults[0].kind, "step": null}}),
        Err(faults) => json!({ "error": faults[0].value() }),
    }
}

/// the output of the last step, of the one that `output` names, or of that child of a group.
fn output_of(pipeline: &Pipeline, last: &str, scope: &Scope) -> Value {
    let name = pipeline.output.as_deref().unwrap_or(last);
    if let Some(output) = scope.steps.get(name) {
        return output.clone();
    }
    let has_child =
        |step: &&Step| matches!(&step.work, Work::Group(group) if group.steps.iter().any(|s| s.name == name));
    let group = pipeline.steps.iter().find(has_child).expect("`output` names a step");
    // That of a skipped group is null, and has no members.
    scope.steps[&group.name].get(name).cloned().unwrap_or_default()
}

/// The rows of a step and of the children of a group, all with one status.
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
    /// `None`: it never began.
    parts: Vec<Option<Part>>,
    /// The one whose failure stopped the others.
    failed: Option<usize>,
}

/// Runs parts in their order, each as soon as one of `slots` is free. If a failure stops the others, none begins from then on,
/// and what is at work is given up.
fn fan_out(count: usize, slots: usize, stops: bool, window: Window, run: &dyn Fn(usize, Window) -> Part) -> Fan {
    let schedule = |until: Time| -> Vec<Option<Part>> {
        let mut free = vec![window.from; slots.max(1)];
        let begin = |index: usize| {
            let slot = free.iter_mut().min().expect("a slot");
            let part = (*slot < until).then(|| run(index, Window { from: *slot, until }))?;
            // In the place of one that stops all others none begins.
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
    // *(open)* Of those that fail as soon as they may begin, the ones whose work cannot begin come first.
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
    /// All parts together, when the last of them has ended.
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
            // Something else stopped it before all of it was gone.
            if whole.ends > window.until {
                whole.verdict = Verdict::Stopped;
            }
        } else if !is_stopped {
            whole.verdict = join(verdicts);
        }
        whole
    }
}
