//! What a test expects, and what came of it.

use etude::runner::RunResult;
use etude_core::failure::Failure;
use etude_evidence::rehearsal::{Call, Made};
use serde_json::Value;

use super::case::Case;

/// Everything that was not as the case expects. `made` is what was called, if calls are recorded.
pub(super) fn faults(case: &Case, ended: &RunResult, made: Option<Made>) -> Vec<String> {
    let mut faults = Vec::new();
    let status = ended.document.status();
    if status != case.status {
        faults.push(format!("status is `{status}`, expected `{}`", case.status));
        faults.extend(ended.errors.iter().map(|failure| with_remedy(reason(failure), &case.name)));
    }
    let output = ended.document.output.as_ref().and_then(|output| output.value().ok()).unwrap_or_default();
    for (pointer, wanted) in &case.output {
        let place = if pointer.is_empty() { "the output".to_owned() } else { format!("output {pointer}") };
        match output.pointer(pointer) {
            Some(found) if found == wanted => {}
            Some(found) => faults.push(format!("{place} is {}, expected {}", clipped(found), clipped(wanted))),
            None => faults.push(format!(
                "the output is {}, which has nothing at {pointer}; expected {}",
                clipped(&output),
                clipped(wanted)
            )),
        }
    }
    if let Some(kind) = &case.kind {
        let found: Vec<&str> = ended.errors.iter().map(|failure| failure.kind.word()).collect();
        if found.first() != Some(&kind.as_str()) {
            faults.push(format!("the run failed with {found:?}, expected `{kind}` first"));
        }
    }
    if let Some(wanted) = &case.fell_back {
        faults.extend(of_deviation(wanted, ended.document.members.get("fell_back")));
    }
    faults.extend(made.into_iter().flat_map(|made| of_calls(case, &made)));
    faults
}

/// A reason, with what to do about a response that is not recorded.
fn with_remedy(reason: String, case: &str) -> String {
    match reason.contains(": no recording in `") || reason.starts_with("no recording in `") {
        true => format!("{reason}; record it with `etude test --record {case}`"),
        false => reason,
    }
}

/// Why a run failed, with what the step said last.
fn reason(failure: &Failure) -> String {
    let said = failure.stderr.as_ref().and_then(|stderr| stderr.tail.lines().rfind(|line| !line.trim().is_empty()));
    said.map_or_else(|| failure.message.clone(), |line| format!("{}: {}", failure.message, line.trim()))
}

/// Whether the run left its pipeline where the case says.
fn of_deviation(wanted: &Value, found: Option<&Value>) -> Option<String> {
    let place = |value: &Value| match value {
        Value::Object(_) => {
            let text = |member: &str| value[member].as_str().unwrap_or_default().to_owned();
            format!("the run left the pipeline at `{}` ({})", text("step"), text("reason"))
        }
        _ => "the run did not leave the pipeline".to_owned(),
    };
    let (found, wanted) = (place(found.unwrap_or(&Value::Null)), place(wanted));
    (found != wanted).then(|| format!("{found}, expected: {wanted}"))
}

/// Calls that are not recorded, and calls that write other than expected (`learn.md` 1.4).
fn of_calls(case: &Case, made: &Made) -> Vec<String> {
    let unrecorded = made.unrecorded.iter().map(|call| format!("unrecorded_call: {}", shown(call)));
    let mut faults: Vec<String> = unrecorded.collect();
    let Some(wanted) = &case.calls else { return faults };
    for (at, call) in wanted.iter().enumerate() {
        match made.writes.get(at) {
            Some(found) if found == call => {}
            Some(found) => faults.push(format!("call {} is {}, expected {}", at + 1, shown(found), shown(call))),
            None => faults.push(format!("call {} is missing: {}", at + 1, shown(call))),
        }
    }
    faults.extend(made.writes.iter().skip(wanted.len()).map(|call| format!("a call is not expected: {}", shown(call))));
    faults
}

fn shown(call: &Call) -> String {
    format!("`{}` {}", call.tool, clipped(&call.arguments))
}

/// A value as JSON, cut where it becomes too long to be read.
fn clipped(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
