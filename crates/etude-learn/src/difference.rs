//! First difference between a program and a run (L-27), as `not_covered` has it (1.8).

use serde_json::{Value, json};

use crate::episode::{Episode, leaves};
use crate::program::{Program, StepKind};
use crate::replay::{End, Replay, replay};
use crate::synth::leaves_of;
use crate::term::{Source, Term};
use crate::value::{Path, at, is_same_call, pointer, same};

/// First difference: the step, its argument that differs, the value of the run, and the value of the program. If the program
/// leaves the pipeline, its value is the reason. If no single argument differs, the value of the run is the arguments of its
/// writes.
pub(crate) fn difference(program: &Program, episode: &Episode<'_>) -> Value {
    let replayed = replay(program, episode, episode.permission(), &|_, _| None);
    let (step, found, got) = match &replayed.end {
        End::Deviated { step, reason } => {
            let found = match *reason {
                "open_hole" => of_hole(program, episode),
                _ => of_deviation(program, episode, &replayed, step),
            };
            (Some(step.as_str()), found, json!(reason))
        }
        End::Wrote(writes) => match of_writes(writes, episode) {
            Some((found, got)) => (program.write().map(|step| step.name.as_str()), Some(found), got),
            None => (None, None, json!(writes)),
        },
        End::Answered => (None, None, Value::Null),
    };
    let (argument, expected) = match found {
        Some((argument, expected)) => (Some(argument), expected),
        None => {
            let of_run = if episode.is_whole() { &episode.writes[..] } else { &episode.of_run };
            (None, of_run.iter().map(|write| &write.arguments).cloned().collect())
        }
    };
    json!({"step": step, "argument": argument, "expected": expected, "got": got})
}

/// JSON Pointer of an argument, and its value in the run.
type Expected = (String, Value);

/// Argument of the open hole.
fn of_hole(program: &Program, episode: &Episode<'_>) -> Option<Expected> {
    let hole = program.holes.iter().find(|hole| hole.set.is_null())?;
    let expected = episode.writes.iter().find_map(|write| write.arguments.pointer(&hole.argument))?;
    Some((hole.argument.clone(), expected.clone()))
}

/// Argument at which a program leaves the pipeline: that of the question, or the first one of the call that differs from the
/// run.
fn of_deviation(program: &Program, episode: &Episode<'_>, replayed: &Replay<'_>, name: &str) -> Option<Expected> {
    let step = program.steps.iter().find(|step| step.name == name)?;
    match &step.kind {
        StepKind::Choose(question) => {
            let argument = &question.truth.0;
            Some((pointer(&argument.path), argument.value(episode)?))
        }
        StepKind::Call { tool, args, is_write, .. } => {
            let calls = if *is_write { &episode.writes } else { &episode.reads };
            let calls: Vec<&Value> =
                calls.iter().filter(|call| call.tool == *tool).map(|call| &call.arguments).collect();
            of_call(args, replayed, &calls)
        }
        StepKind::Allowed | StepKind::Code { .. } | StepKind::Answer => None,
    }
}

/// The first argument of a call whose value is in no recorded call.
fn of_call(args: &Term, replayed: &Replay<'_>, recorded: &[&Value]) -> Option<Expected> {
    let is_of_element = |term: &Term| term.refs().iter().any(|of| of.source == Source::Item);
    leaves_of(args).into_iter().filter(|(_, term)| !is_of_element(term)).find_map(|(path, term)| {
        let own = term.eval(replayed);
        let mut values = recorded.iter().filter_map(|arguments| at(arguments, &path));
        let expected = values.clone().next()?;
        let is_there = own.is_some_and(|own| values.any(|value| same(&own, value)));
        (!is_there).then(|| (pointer(&path), expected.clone()))
    })
}

/// First argument of a write that differs from the run, and the value of the program; `None` if a whole call is missing or
/// superfluous.
fn of_writes(writes: &[Value], episode: &Episode<'_>) -> Option<(Expected, Value)> {
    let recorded = || episode.writes.iter().map(|write| &write.arguments);
    let wanted = recorded().find(|one| !writes.iter().any(|other| is_same_call(one, other)))?;
    let own = writes.iter().find(|one| !recorded().any(|other| is_same_call(one, other)))?;
    let differs = |path: &Path| at(wanted, path).zip(at(own, path)).is_none_or(|(one, other)| !same(one, other));
    let (path, _) = leaves(wanted).into_iter().chain(leaves(own)).find(|(path, _)| differs(path))?;
    let value = |of: &Value| at(of, &path).cloned().unwrap_or_default();
    let (expected, got) = (value(wanted), value(own));
    Some(((pointer(&path), expected), got))
}
