//! Tests of the interpreter: a plan, a script of the outside world, and the expected log.
//!
//! A plan is built with the functions of `build`. A script has one line per event: `p/a exit 2` ends the effect `p/a`,
//! `cancel` and `kill` stop the run, `resume` continues it in another process, `reach p/b` continues until `p/b` has
//! started, and `pause` stops polling the machine until the next line. Effects that the script leaves out succeed,
//! oldest effect first; only deadlines and gates wait for the script. A log has one line per command, outcome and row
//! of the result.
//!
//! Whole logs are inline snapshots: `UPDATE_EXPECT=1 cargo test -p etude-core --lib machine` writes those that differ. All
//! tests must run in one process for that, so not with nextest.

mod agent;
mod any_plan;
mod approval;
mod attempts;
mod build;
mod code;
mod crash;
mod fallback;
mod fan_out;
mod joint;
mod llm;
mod log;
mod numbers;
mod order;
mod scope;
mod script;
mod stages;
mod step;
mod sub_pipeline;
mod values;
mod world;

use build::Case;
use expect_test::Expect;
use world::World;

/// Runs the case by the script and compares the whole log. Every run is also replayed from its outcomes, each of them
/// delivered twice, and must yield the same commands and the same result. Without the commands that start effects, it
/// must yield the same events.
#[track_caller]
fn check(case: Case, script: &str, expected: Expect) {
    let world = play(&case, script);
    assert!(
        !updates_in_many_processes(),
        "nextest runs each test in its own process, and they would overwrite each other's updates; use `cargo test`"
    );
    expected.assert_eq(&format!("{}\n", world.log.trim_end()));
}

#[expect(clippy::disallowed_methods, reason = "the update mode of expect-test is a variable; no plan sees it")]
fn updates_in_many_processes() -> bool {
    ["UPDATE_EXPECT", "NEXTEST"].iter().all(|name| std::env::var_os(name).is_some())
}

/// Asserts on the process that the step `b` starts after a step `a` with this output.
#[track_caller]
fn starts_after(output: &str, b: crate::plan::Step, process: &str) {
    let world = play(&build::pipeline([build::code("a"), b]), &format!("p/a output {output}"));
    let started: Vec<&str> = world.log.lines().filter_map(|line| line.strip_prefix("start p/b ")).collect();
    assert_eq!(started, [format!("process {process}")], "{}", world.log);
    let end = "result succeeded \"b\"\nrow business/a code succeeded, tries 1, 10 ms\n\
               row business/b code succeeded, tries 1, 10 ms\n";
    assert!(world.log.ends_with(end), "{}", world.log);
}

/// Runs the case by the script, to its end or to a gate that the script does not answer.
#[track_caller]
fn play(case: &Case, script: &str) -> World {
    let mut world = World::new(case);
    world.run_effect(script);
    let mut again = World::new(case);
    again.repeat(&world.history);
    assert_eq!(again.log, world.log, "the same outcomes gave another log");
    assert_eq!(again.machine.result(), world.machine.result());
    assert_eq!(world::emitted(&world.log), world::observe(case, &world.history), "an observer had other events");
    if world.machine.result().is_some() {
        let left: Vec<_> = world.machine.outstanding().map(|(id, _)| id.to_string()).collect();
        assert!(left.is_empty(), "the run is over, but these are outstanding: {left:?}");
    }
    world
}
