//! Random plans, outcomes and orders: many small runs, and the invariants of all of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::build::*;
use super::numbers::{Numbers, for_seeds};
use super::stages::{goes_through, machine};
use super::world::{Input, World};
use super::{Case, script};
use crate::effect::{Effect, EffectId, Protocol};
use crate::failure::{FailureKind, Phase};
use crate::model::Usage;
use crate::plan::{OnTimeout, Step, StepKind};
use crate::report::{Status, StepStatus};

const SEEDS: u64 = 400;

/// A pipeline of random steps, often with constructor, destructor and budgets.
fn any_case(numbers: &mut Numbers) -> Case {
    let mut names = 0;
    let mut some = |numbers: &mut Numbers, most: usize| -> Vec<Step> {
        (0..=numbers.below(most)).map(|_| any_step(numbers, &mut names, 2)).collect()
    };
    let mut case = pipeline(some(numbers, 3));
    if numbers.one_in(3) {
        case = case.before(some(numbers, 2));
    }
    if !numbers.one_in(3) {
        case = case.after(some(numbers, 2));
    }
    if numbers.one_in(4) {
        case = case.run_timeout(60);
    }
    if numbers.one_in(4) {
        case = case.max_tokens(20);
    }
    if numbers.one_in(2) {
        case = case.fallback();
    }
    case.input(r#"{"l":[1,2,3],"yes":true,"no":false}"#)
}

fn any_step(numbers: &mut Numbers, names: &mut usize, depth: usize) -> Step {
    *names += 1;
    let name = format!("s{names}");
    let mut below = |numbers: &mut Numbers| -> Vec<Step> {
        (0..=numbers.below(3)).map(|_| any_step(numbers, names, depth - 1)).collect()
    };
    let mut step = match numbers.below(if depth == 0 { 9 } else { 13 }) {
        0 => code(&name),
        1 => code(&name).retry(2),
        2 => llm(&name, "Hi"),
        3 => llm(&name, "Hi").schema(r#"{"required": ["n"]}"#).validate("check.py").retry(1),
        4 => any_approval(numbers, &name),
        5 => skill(&name, "Hi"),
        6 => tool(&name, if numbers.one_in(2) { "get" } else { "put" }, "{{input.yes}}"),
        7 => choose_many(&name, "Hi", "{{input.l}}"),
        8 => Step { name: name.clone(), ..goes_through(machine()) },
        9 => offering(skill(&name, "Hi"), sequence(&format!("look-{name}"), below(numbers))),
        10 => group(&name, below(numbers)),
        11 => {
            let all = group(&name, below(numbers)).wait();
            if numbers.one_in(2) { all.max_parallel(2) } else { all }
        }
        _ => {
            let sub = call(&name, sequence(&format!("sub-{name}"), below(numbers)));
            sub.with("l", "{{input.l}}").with("yes", "{{input.yes}}").with("no", "{{input.no}}")
        }
    };
    if numbers.one_in(4) {
        step = step.timeout(30);
    }
    if numbers.one_in(4) {
        step = step.for_each("{{input.l}}").max_parallel(1 + numbers.below(3));
        step = if numbers.one_in(2) { step.collect() } else { step };
    }
    match numbers.below(11) {
        0 => step.when("{{input.yes}}"),
        1 => step.when("{{input.no}}"),
        2 => step.when("{{input.unknown}}"),
        3 => step.cached(),
        4 => step.require("{{input.yes}}"),
        5 => step.require("{{input.no}}"),
        _ => step,
    }
}

fn any_approval(numbers: &mut Numbers, name: &str) -> Step {
    let step = approval(name, "Ok?");
    match numbers.below(4) {
        0 => step,
        1 => step.continue_on_deny(),
        2 => step.timeout(9).on_timeout(OnTimeout::Approve),
        _ => step.timeout(9).on_timeout(OnTimeout::Deny),
    }
}

/// A random outcome of an effect; mostly the usual one.
fn any_outcome(numbers: &mut Numbers, id: &EffectId, effect: &Effect) -> String {
    let other: &[&str] = match effect {
        Effect::Process(call) if call.protocol == Protocol::Document => {
            &[r#"exit 1 > {"valid": false, "errors": ["e"]}"#, "exit 1 Traceback"]
        }
        Effect::Process(_) => &["exit 1", "signal SIGKILL", "prints hello", "not_started no such file"],
        Effect::Model(request) if request.schema.is_some() => {
            &[r#"answer {"n": 1}"#, r#"answer {"n": 1}"#, "answer none", "cut"]
        }
        Effect::Model(request) if request.tools.iter().any(|tool| tool.name == "done") => {
            &["calls done {}", "calls done {}", "calls done {}", "calls Read 1", "no_answer HTTP 503"]
        }
        Effect::Model(request) if !request.tools.is_empty() => &[
            "calls Read 1; Look 2; Write 3",
            r#"calls Look {"id":1}; put {"id":2}; Look {"id":3}"#,
            "calls Write 1; Nothing 2; Write 3",
            "answer",
            "no_answer HTTP 503",
        ],
        Effect::Model(_) => &["refuses no", "no_answer HTTP 503", "answer", "spends 9 9 0 hello"],
        Effect::Tool(call) if call.is_approved => &["fails no"],
        Effect::Tool(_) => &["fails no", "held Write(a)"],
        Effect::Open(_) => &["offers Read"],
        Effect::Gate(_) => &["denied no", "approved \"always\""],
        Effect::Recall { .. } => &["found 1"],
        Effect::Sleep { .. } | Effect::Remember { .. } | Effect::Scan(_) => &[],
    };
    if other.is_empty() || !numbers.one_in(4) {
        return script::default(id, effect);
    }
    other[numbers.below(other.len())].to_owned()
}

/// Elements or children at work, by their group or `for_each` and its limit.
type AtWork = BTreeMap<(String, usize), BTreeSet<String>>;

/// Records the groups and `for_each`s around an effect; `rest` is its id after `place`.
fn note(at_work: &mut AtWork, steps: &[Arc<Step>], place: &str, rest: &str) {
    let (word, below) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, mark) = word.split_at(word.find(['[', '!', '#']).unwrap_or(word.len()));
    let Some(step) = steps.iter().find(|step| step.name == name) else { return };
    let mut here = format!("{place}/{name}");
    // A mark without a number is the step's own timer.
    let element = mark.strip_prefix('[').and_then(|mark| Some(mark.split_once(']')?.0));
    if let (Some(each), Some(element)) = (&step.for_each, element) {
        at_work.entry((here.clone(), each.max_parallel)).or_default().insert(element.to_owned());
        here = format!("{here}[{element}]");
    }
    match &step.kind {
        StepKind::Parallel(group) if !below.is_empty() => {
            if let Some(most) = group.max_parallel {
                let child = below.split(['/', '[', '!', '#']).next().unwrap_or_default();
                at_work.entry((here.clone(), most)).or_default().insert(child.to_owned());
            }
            note(at_work, &group.steps, &here, below);
        }
        StepKind::Pipeline(sub) => note(at_work, &sub.sequence.steps, &here, below),
        _ => {}
    }
}

/// X-1, X-3: every group and `for_each` keeps its limit of work at once, at any depth. Returns the limits that are reached.
#[track_caller]
fn keeps_its_limits(case: &Case, world: &World) -> Vec<usize> {
    let mut at_work = AtWork::new();
    let plan = &case.plan;
    for sequence in [plan.before.as_ref(), Some(&plan.body), plan.after.as_ref()].into_iter().flatten() {
        for (id, _) in &world.running {
            if let Some((_, rest)) = id.as_str().split_once('/').filter(|(name, _)| *name == sequence.name) {
                note(&mut at_work, &sequence.steps, &sequence.name, rest);
            }
        }
    }
    for ((place, most), names) in &at_work {
        assert!(names.len() <= *most, "{names:?} of `{place}` are at work, of which {most} may be\n{}", world.log);
    }
    at_work.into_iter().filter(|((_, most), names)| names.len() == *most).map(|((_, most), _)| most).collect()
}

/// X-1, X-3: random plans keep their limits, and each limit is reached somewhere: a machine that ran everything in
/// sequence would keep them as well.
#[test]
fn every_limit_is_reached_somewhere() {
    let reached = RefCell::new(BTreeSet::new());
    for_seeds(SEEDS, |seed| {
        let (case, world, _) = any_run(seed);
        let mut again = World::new(&case);
        for input in &world.history {
            again.emit(input.clone());
            if matches!(input, Input::Poll) {
                reached.borrow_mut().extend(keeps_its_limits(&case, &again));
            }
        }
    });
    let reached = reached.into_inner();
    // A single seed is for debugging, and need not reach every limit.
    assert!(option_env!("ETUDE_SEEDS").is_some() || reached == BTreeSet::from([1, 2, 3]), "{reached:?}");
}

/// Runs a random case in a random order, sometimes cancelled, rarely killed.
fn any_run(seed: u64) -> (Case, World, bool) {
    let mut numbers = Numbers::new(seed);
    let case = any_case(&mut numbers);
    let mut world = World::new(&case);
    let (cancel_at, kill_at) = (numbers.below(60), numbers.below(150));
    let mut is_killed = false;
    world.emit(Input::Poll);
    keeps_its_limits(&case, &world);
    for count in 0.. {
        if count == cancel_at {
            world.emit(Input::Cancel);
        }
        if count == kill_at {
            world.emit(Input::Kill);
            is_killed = world.machine.result().is_none();
        }
        let is_deadline = |effect: &Effect| matches!(effect, Effect::Sleep { deadline: true, .. });
        let mut ready: Vec<(EffectId, Effect)> = world.running.clone();
        if !numbers.one_in(6) && ready.iter().any(|(_, effect)| !is_deadline(effect)) {
            ready.retain(|(_, effect)| !is_deadline(effect));
        }
        if ready.is_empty() {
            world.emit(Input::Poll);
            keeps_its_limits(&case, &world);
            if world.running.is_empty() {
                break;
            }
            continue;
        }
        let (id, effect) = ready.swap_remove(numbers.below(ready.len()));
        let is_lost = world.given_up.contains(&id) && numbers.one_in(2);
        let outcome = if is_lost { "abandoned".to_owned() } else { any_outcome(&mut numbers, &id, &effect) };
        world.emit(Input::Complete(id, outcome));
        if !numbers.one_in(3) {
            world.emit(Input::Poll);
            keeps_its_limits(&case, &world);
        }
    }
    assert!(world.machine.result().is_some(), "seed {seed} hangs; log:\n{}", world.log);
    (case, world, is_killed)
}

#[test]
fn every_run_comes_to_an_end_and_leaves_nothing_behind() {
    for_seeds(SEEDS, |seed| {
        let (case, world, _) = any_run(seed);
        let result = world.machine.result().unwrap();
        let log = &world.log;
        assert_eq!(world.machine.outstanding().count(), 0, "seed {seed}\n{log}");
        for row in &result.steps {
            assert_ne!(row.status, StepStatus::Running, "seed {seed}: {}\n{log}", row.name);
        }
        // If several elements share a row, one of them may still be at work when another ends.
        for (name, count) in lines_of(log, " started") {
            let ended: usize = ["succeeded", "failed", "cancelled", "running"]
                .iter()
                .map(|s| lines_of(log, &format!(" {s}")).get(&name).copied().unwrap_or(0))
                .sum();
            assert!(ended >= count, "seed {seed}: {name} began {count} times and ended {ended} times\n{log}");
        }
        assert_eq!(result.status == Status::Succeeded, result.errors.is_empty(), "seed {seed}\n{log}");
        // A group that waits for its children reports a failure of each.
        let mut phases: Vec<_> = result.errors.iter().map(|failure| failure.phase).collect();
        phases.dedup();
        assert!(phases.len() <= 1 + usize::from(case.plan.after.is_some()), "seed {seed}\n{log}");
        for failure in &result.errors {
            assert!(failure.phase.is_some() && !failure.message.is_empty(), "seed {seed}\n{log}");
            assert_ne!(failure.kind, FailureKind::Internal, "seed {seed}\n{log}");
        }
    });
}

/// The number of reports of each step in that state.
fn lines_of(log: &str, state: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let events = log.lines().filter_map(|line| line.strip_prefix(super::log::EVENT));
    for name in events.filter_map(|event| event.strip_prefix(" step ")?.strip_suffix(state)) {
        *found.entry(name.to_owned()).or_default() += 1;
    }
    found
}

/// A-5.2, A-5.3: the destructor begins exactly if the business pipeline was reached, unless the run was killed.
#[test]
fn the_destructor_begins_exactly_when_it_is_due() {
    for_seeds(SEEDS, |seed| {
        let (case, world, is_killed) = any_run(seed);
        if case.plan.after.is_some() && !is_killed {
            let is_due = world.has_begun(Phase::Business);
            assert_eq!(world.has_begun(Phase::Destructor), is_due, "seed {seed}\n{}", world.log);
        }
    });
}

/// A-4.9: the sums of the rows equal those of the run, also with sub-pipelines and elements, and every response and
/// every process is booked once.
#[test]
fn the_rows_add_up_to_the_run() {
    for_seeds(SEEDS, |seed| {
        let (_, world, _) = any_run(seed);
        let result = world.machine.result().unwrap();
        let mut sum = Usage::default();
        result.steps.iter().for_each(|row| sum.add(&row.usage));
        assert_eq!(sum, result.usage, "seed {seed}\n{}", world.log);
        let mut booked: Vec<&EffectId> = result.steps.iter().flat_map(|row| &row.effects).collect();
        booked.sort();
        let is_work = |id: &EffectId| matches!(world.asked(id.as_str()), Effect::Process(_) | Effect::Model(_));
        booked.retain(|id| is_work(id));
        let mut ended: Vec<&EffectId> = world
            .history
            .iter()
            .filter_map(|input| match input {
                Input::Complete(id, _) if is_work(id) => Some(id),
                _ => None,
            })
            .collect();
        ended.sort();
        assert_eq!(booked, ended, "seed {seed}\n{}", world.log);
    });
}

/// The same outcomes yield the same run, whether the machine is polled after each of them or rarely, and whether each
/// is reported once or twice.
#[test]
fn every_run_can_be_replayed() {
    for_seeds(SEEDS, |seed| {
        let (case, world, is_killed) = any_run(seed);
        let mut same = World::new(&case);
        same.repeat(&world.history);
        assert_eq!(same.log, world.log, "seed {seed}");
        let mut often = World::new(&case);
        often.emit(Input::Poll);
        for input in world.history.iter().filter(|input| !matches!(input, Input::Poll)) {
            often.emit(input.clone());
            // A kill is not recorded: its position between the outcomes is not replayed.
            if !is_killed {
                often.emit(Input::Poll);
                keeps_its_limits(&case, &often);
            }
            if let Input::Complete(id, outcome) = input {
                often.machine.complete(id, script::outcome(outcome));
            }
        }
        if !is_killed {
            assert_eq!(often.machine.result(), world.machine.result(), "seed {seed}\n{}\n{}", world.log, often.log);
        }
    });
}

/// A-5.3: a run that dies at any point continues where it stopped: no completed effect is started again, and the run ends.
#[test]
fn every_run_survives_a_crash() {
    for_seeds(SEEDS, |seed| {
        let (case, world, is_killed) = any_run(seed);
        if is_killed {
            return;
        }
        let records: Vec<&Input> = world.history.iter().filter(|input| !matches!(input, Input::Poll)).collect();
        let cut = Numbers::new(seed + SEEDS).below(records.len() + 1);
        let mut second = World::new(&case);
        second.emit(Input::Poll);
        for record in &records[..cut] {
            second.emit((*record).clone());
            second.emit(Input::Poll);
            keeps_its_limits(&case, &second);
        }
        while let Some((id, effect)) = second.running.first().cloned() {
            let is_lost = second.given_up.contains(&id);
            let outcome = if is_lost { "abandoned".to_owned() } else { script::default(&id, &effect) };
            second.emit(Input::Complete(id, outcome));
            second.emit(Input::Poll);
            keeps_its_limits(&case, &second);
        }
        assert!(second.machine.result().is_some(), "seed {seed}, cut after {cut}\n{}", second.log);
        assert_eq!(second.machine.outstanding().count(), 0, "seed {seed}, cut after {cut}\n{}", second.log);
        if cut == records.len() {
            assert_eq!(second.machine.result(), world.machine.result(), "seed {seed}");
        }
    });
}
