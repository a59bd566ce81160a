//! Orders in which effects end: the same order yields the same commands, and every order the same output.

use super::build::*;
use super::numbers::{Numbers, for_seeds};
use super::world::{Input, World, ends_by_itself};
use super::{Case, script};
use crate::effect::{Effect, EffectId};
use crate::failure::Phase;
use crate::report::StepStatus;

const SEEDS: u64 = 60;

/// A case with everything at once: groups, elements, sub-pipelines, retries, answers, approvals, caches, timers.
fn busy() -> Case {
    let sub = || sequence("sub", [code("u"), group("h", [code("v"), llm("w", "{{u.output}}")]), code("x").timeout(5)]);
    let each = call("s", sub()).with("n", "{{item}}").for_each("{{input.l}}").max_parallel(2);
    let item = code("e").env("I", "{{index}}").for_each("{{input.l}}").max_parallel(3).timeout(60);
    let checked = llm("c", "Hi").schema("{}").validate("check.py").cached();
    pipeline([
        code("a"),
        group("g", [each, item, checked, approval("ok", "Ship?").timeout(9), code("b").when("{{input.no}}")])
            .max_parallel(4),
        group("t", [code("j"), code("k"), code("l")]).max_parallel(1).wait(),
        code("z"),
    ])
    .before([code("open")])
    .after([group("d", [code("close"), llm("bye", "Bye")])])
    .input(r#"{"l":[1,2,3,4,5],"no":false}"#)
    .run_timeout(600)
}

/// Runs the case with the effects ending in the order of the seed. `check` sees the world after every outcome.
fn run(case: &Case, seed: u64, cancel_at: Option<usize>, check: impl Fn(&World)) -> World {
    let mut numbers = Numbers::new(seed);
    let mut world = World::new(case);
    world.emit(Input::Poll);
    for count in 0.. {
        if cancel_at == Some(count) {
            world.emit(Input::Cancel);
            world.emit(Input::Poll);
        }
        let mut ready = can_end(&world);
        if ready.is_empty() {
            break;
        }
        let (id, effect) = ready.swap_remove(numbers.below(ready.len()));
        // An abandoned effect may still succeed.
        let is_lost = world.given_up.contains(&id) && numbers.below(2) == 0;
        let outcome = if is_lost { "abandoned".to_owned() } else { script::default(&id, &effect) };
        world.emit(Input::Complete(id, outcome));
        // Outcomes that come close together are reported together.
        if numbers.below(3) > 0 {
            world.emit(Input::Poll);
            check(&world);
        }
        if can_end(&world).is_empty() {
            world.emit(Input::Poll);
        }
    }
    assert!(world.machine.result().is_some(), "seed {seed} hangs with {:?}; log:\n{}", world.running, world.log);
    assert_eq!(world.machine.outstanding().count(), 0, "seed {seed}");
    world
}

/// Running effects that do not wait for a deadline.
fn can_end(world: &World) -> Vec<(EffectId, Effect)> {
    let can_end = |(id, effect): &&(EffectId, Effect)| {
        world.given_up.contains(id) || ends_by_itself(effect) || matches!(effect, Effect::Gate(_))
    };
    world.running.iter().filter(can_end).cloned().collect()
}

/// Architecture: the same plan and the same outcomes in the same order yield the same commands, however often the
/// machine is polled in between: a replay polls after every record.
#[test]
fn the_same_order_gives_the_same_commands() {
    for_seeds(SEEDS, |seed| {
        let case = busy();
        let cancel_at = (seed % 3 == 0).then_some(seed as usize % 40);
        let world = run(&case, seed, cancel_at, |_| ());
        let mut again = World::new(&case);
        again.repeat(&world.history);
        assert_eq!(again.log, world.log, "seed {seed}");
        let mut often = World::new(&case);
        often.emit(Input::Poll);
        for input in world.history.iter().filter(|input| !matches!(input, Input::Poll)) {
            often.emit(input.clone());
            often.emit(Input::Poll);
        }
        assert_eq!(often.machine.result(), world.machine.result(), "seed {seed}");
        assert_eq!(often.started, world.started, "seed {seed}");
    });
}

/// X-1: the row of a step with `for_each` is running as long as one of its elements is.
#[test]
fn a_step_runs_until_its_last_element_has_ended() {
    let mut world = World::new(&pipeline([code("e").for_each("{{input.l}}").max_parallel(2)]).input(r#"{"l":[1,2]}"#));
    world.emit(Input::Poll);
    let status = |world: &World| world.machine.snapshot().steps[0].status;
    let mut seen = vec![status(&world)];
    for (id, effect) in world.running.clone() {
        world.emit(Input::Complete(id.clone(), script::default(&id, &effect)));
        world.emit(Input::Poll);
        seen.push(status(&world));
    }
    assert_eq!(seen, [StepStatus::Running, StepStatus::Running, StepStatus::Succeeded]);
}

/// Results do not depend on timing: if nothing fails, every order yields the same output, rows and usage.
#[test]
fn every_order_gives_the_same_output() {
    let case = busy();
    let first = run(&case, 0, None, |_| ());
    let first = first.machine.result().unwrap();
    assert_eq!(first.errors, []);
    for seed in 1..SEEDS {
        let world = run(&case, seed, None, |_| ());
        let result = world.machine.result().unwrap();
        assert_eq!(
            (result.status, &result.output, &result.usage),
            (first.status, &first.output, &first.usage),
            "seed {seed}"
        );
        for (row, one) in result.steps.iter().zip(&first.steps) {
            assert_eq!(
                (row.status, row.attempts, row.retries, &row.items),
                (one.status, one.attempts, one.retries, &one.items),
                "seed {seed}"
            );
        }
    }
}

/// X-1, X-3: `max_parallel` is never exceeded, and is reached.
#[test]
fn max_parallel_is_never_exceeded() {
    let most = |seed: u64, prefix: &'static str| {
        let most = std::cell::Cell::new(0);
        run(&busy(), seed, None, |world| most.set(most.get().max(active(world, prefix))));
        most.get()
    };
    for (prefix, limit) in [("p/g/s[", 2), ("p/g/e[", 3), ("p/g/", 4), ("p/t/", 1)] {
        let found: Vec<usize> = (0..SEEDS).map(|seed| most(seed, prefix)).collect();
        assert_eq!(found.iter().max(), Some(&limit), "{prefix}: {found:?}");
    }
}

/// The number of elements or children below `prefix` that have an effect in progress.
fn active(world: &World, prefix: &str) -> usize {
    let below = |id: &EffectId| {
        let rest = id.as_str().strip_prefix(prefix)?;
        Some(rest.split(['/', '[', ']', '!', '#']).next().unwrap_or_default().to_owned())
    };
    let names: std::collections::BTreeSet<String> = world.running.iter().filter_map(|(id, _)| below(id)).collect();
    names.len()
}

/// A-5.3: after a cancellation at any point the destructor's effects run exactly once, and every step that has begun
/// has ended.
#[test]
fn after_a_cancel_anywhere_the_destructor_runs_once() {
    for_seeds(SEEDS, |seed| {
        let mut numbers = Numbers::new(seed + 1000);
        let world = run(&busy(), seed, Some(numbers.below(70)), |_| ());
        let result = world.machine.result().unwrap();
        let has_business = world.has_begun(Phase::Business);
        for id in ["_d/d/close", "_d/d/bye"] {
            let ended =
                world.history.iter().filter(|i| matches!(i, Input::Complete(done, _) if done.as_str() == id)).count();
            assert_eq!(ended, usize::from(has_business), "seed {seed}: {id}\n{}", world.log);
        }
        for row in &result.steps {
            assert_ne!(row.status, StepStatus::Running, "seed {seed}: {}", row.name);
        }
    });
}
