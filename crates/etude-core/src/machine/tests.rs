//! Tests of the interpreter: a plan, a script of what the world does, and the log that must come of it.
//!
//! A plan is built with the functions of `build`. A script has one line per thing that happens: `p/a exit 2` ends the
//! effect `p/a`, `cancel` and `kill` stop the run, `resume` has it go on in another process, `reach p/b` goes on until `p/b` has started, `pause` stops telling
//! the machine to go on until the next line. Whatever the script leaves out goes well, oldest effect first; only
//! deadlines and gates wait for the script. A log has one line per command, outcome and row of the result.

mod agent;
mod any_plan;
mod approval;
mod attempts;
mod build;
mod code;
mod crash;
mod fan_out;
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
use world::World;

/// Runs the case as the script says and compares the whole log. Every run is also replayed from its outcomes, each
/// of them told twice: the same commands and the same result must come of it.
#[track_caller]
fn check(case: Case, script: &str, expected: &str) {
    let world = play(&case, script);
    let expected = unindent(expected);
    if world.log.trim() != expected.trim() {
        panic!("the log differs; it is:\n<<<\n{}\n>>>\nexpected was:\n{expected}", world.log.trim_end());
    }
}

/// The step `b` after a step `a` with this output: what it starts.
#[track_caller]
fn starts_after(output: &str, b: crate::plan::Step, process: &str) {
    let log = format!(
        "tell phase business\ntell step a started\nstart p/a process a\ndone p/a output {output}\ntell step a succeeded\n\
         tell step b started\nstart p/b process {process}\ndone p/b output \"b\"\ntell step b succeeded\n\
         result succeeded \"b\"\nrow business/a code succeeded, tries 1, 10 ms\n\
         row business/b code succeeded, tries 1, 10 ms\n"
    );
    check(build::pipeline([build::code("a"), b]), &format!("p/a output {output}"), &log);
}

/// Runs the case as the script says, to its end or to a gate that the script does not answer.
#[track_caller]
fn play(case: &Case, script: &str) -> World {
    let mut world = World::new(case);
    world.perform(script);
    let mut again = World::new(case);
    again.repeat(&world.history);
    assert_eq!(again.log, world.log, "the same outcomes gave another log");
    assert_eq!(again.machine.result(), world.machine.result());
    if world.machine.result().is_some() {
        let left: Vec<_> = world.machine.outstanding().map(|(id, _)| id.to_string()).collect();
        assert!(left.is_empty(), "the run is over, but these are outstanding: {left:?}");
    }
    world
}

/// The text without the blanks that all its lines begin with.
fn unindent(text: &str) -> String {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let indent = lines().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    lines().map(|line| format!("{}\n", &line[indent..])).collect()
}
