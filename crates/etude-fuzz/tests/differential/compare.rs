//! Comparison of a run with the reference.

use etude_core::failure::Failure;
use etude_core::report::{RunResult, Status};
use serde_json::{Value, json};

use crate::machine::{Lived, is_stop, plain};
use crate::reference::{ANY, Effect, Expected};
use crate::world::Asked;

/// Compares a run with the reference.
///
/// # Errors
/// All differences, one per line.
pub(crate) fn same(expected: &Expected, lived: &Lived) -> Result<(), String> {
    let mut found = Vec::new();
    effects(expected, lived, &mut found);
    let result = &lived.result;
    if status(result.status) != expected.status {
        found.push(format!("status: {} and not {}", status(result.status), expected.status));
    }
    let output = result.output.as_ref().map(|output| plain(&output.value().expect("it is in memory")));
    if output != expected.output {
        found.push(format!("output: {output:?} and not {:?}", expected.output));
    }
    let errors: Vec<Value> = result.errors.iter().map(error).collect();
    let wanted: Vec<Value> = expected
        .errors
        .iter()
        .map(|fault| json!({"kind": fault.kind, "phase": fault.phase, "step": fault.step}))
        .collect();
    if errors != wanted {
        found.push(format!("errors: {errors:?} and not {wanted:?}"));
    }
    rows(expected, result, &mut found);
    if result.attempt != expected.attempt {
        found.push(format!("attempt: {} and not {}", result.attempt, expected.attempt));
    }
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

fn status(status: Status) -> &'static str {
    status.word()
}

fn error(failure: &Failure) -> Value {
    let kind = json!(failure.kind.word());
    let step = if is_stop(&kind) { "" } else { failure.step.as_deref().unwrap_or_default() };
    json!({"kind": kind, "phase": failure.phase.map(|phase| phase.word()), "step": step})
}

/// Compares effects by id, input and times; effects that begin at one moment have no order. An effect that was abandoned at the
/// moment of its start counts as not executed.
fn effects(expected: &Expected, lived: &Lived, found: &mut Vec<String>) {
    let sorted = |effects: &[Effect]| {
        let is_done = |effect: &&Effect| !(effect.is_given_up && effect.begins == effect.ends);
        let mut all: Vec<Effect> = effects.iter().filter(is_done).cloned().collect();
        for effect in all.iter_mut().filter(|effect| matches!(effect.asked, Asked::Timer { .. })) {
            // *(open)* the end of a timer that no step waits for.
            (effect.ends, effect.is_given_up) = (effect.begins, false);
        }
        all.sort_by(|one, other| (one.begins, &one.id).cmp(&(other.begins, &other.id)));
        all
    };
    let (wanted, done) = (sorted(&expected.effects), sorted(&lived.effects));
    for effect in wanted.iter().filter(|effect| !done.iter().any(|other| other.id == effect.id)) {
        found.push(format!("missing effect: {effect:?}"));
    }
    for effect in &done {
        match wanted.iter().find(|other| other.id == effect.id) {
            None => found.push(format!("further effect: {effect:?}")),
            Some(other) if other != effect => found.push(format!("effect: {effect:?}\n     and not {other:?}")),
            Some(_) => {}
        }
    }
}

fn rows(expected: &Expected, result: &RunResult, found: &mut Vec<String>) {
    for row in &result.steps {
        let wanted = expected.rows.iter().find(|other| (other.phase, &other.name) == (row.phase.word(), &row.name));
        let wanted = wanted.map_or("not_started", |wanted| wanted.status);
        if wanted != ANY && wanted != row.status.word() {
            found.push(format!("row {}/{}: {} and not {wanted}", row.phase.word(), row.name, row.status.word()));
        }
    }
}
