//! Comparison of a run with the expectations of a test.

use etude::runner::RunResult;
use etude_core::data::Json;
use etude_core::failure::Failure;
use etude_evidence::rehearsal::{Made, RehearsedCall};
use etude_spec::Diagnostic;
use serde_json::Value;

use super::case::Case;
use crate::render::commands::complete;

/// All deviations from the expectations of the case. `deviation` is the failure with which the run left its pipeline for skill mode;
/// `made` has the calls, if calls are recorded.
pub(super) fn faults(case: &Case, ended: &RunResult, deviation: Option<String>, made: Option<Made>) -> Vec<String> {
    let fell_back = ended.document.members.get("fell_back").filter(|found| found.is_object());
    let mut faults = Vec::new();
    let status = ended.document.status();
    if status != case.status {
        faults.push(format!("status is `{status}`, expected `{}`", case.status));
        faults.extend(ended.errors.iter().map(|failure| with_remedy(reason(failure), &case.name)));
    }
    faults.extend(of_output(&case.output, ended.document.output.as_ref()));
    if let Some(kind) = &case.kind {
        let found: Vec<&str> = ended.errors.iter().map(|failure| failure.kind.word()).collect();
        if found.first() != Some(&kind.as_str()) {
            faults.push(format!("the run failed with {found:?}, expected `{kind}` first"));
        }
    }
    let why = deviation.map(|message| format!(": {message}")).unwrap_or_default();
    if let Some(wanted) = &case.fell_back {
        faults.extend(of_deviation(wanted, fell_back).map(|fault| fault + &why));
    }
    faults.extend(made.into_iter().flat_map(|made| of_calls(case, &made)));
    // It explains the faults of a run that another program than the pipeline has ended.
    if let Some(found) = fell_back.filter(|_| case.fell_back.is_none() && !faults.is_empty()) {
        faults.insert(usize::from(status != case.status), place(found) + &why);
    }
    faults
}

/// A fault of a definition, with its place.
pub(super) fn of_diagnostic(diagnostic: &Diagnostic) -> String {
    let line = diagnostic.position().map(|(line, _)| format!(":{line}")).unwrap_or_default();
    format!("{}{line}: {}", diagnostic.file.path(), diagnostic.message)
}

/// Adds to a reason the remedy for a response that is not recorded.
fn with_remedy(reason: String, case: &str) -> String {
    match reason.contains(": no recording in `") || reason.starts_with("no recording in `") {
        true => format!("{reason}; record it with `{}`", complete(&format!("etude test --record {case}"))),
        false => reason,
    }
}

/// One fault for each unexpected part of the output. Numbers are compared by value, as in conditions.
fn of_output(wanted: &[(String, Json)], output: Option<&Json>) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let output = match output.unwrap_or(&Json::null()).comparand() {
        Ok(output) => output,
        Err(error) => return vec![format!("the output cannot be compared: {error}")],
    };
    let fault = |(pointer, wanted): &(String, Json)| {
        let place = if pointer.is_empty() { "the output".to_owned() } else { format!("output {pointer}") };
        let wanted = match wanted.comparand() {
            Ok(wanted) => wanted,
            Err(error) => return Some(format!("{place} cannot be compared: {error}")),
        };
        match output.pointer(pointer) {
            Some(found) if found.is_same(&wanted) => None,
            Some(found) => Some(format!("{place} is {}, expected {}", clipped(&found), clipped(&wanted))),
            None => Some(format!(
                "the output is {}, which has nothing at {pointer}; expected {}",
                clipped(&output),
                clipped(&wanted)
            )),
        }
    };
    wanted.iter().filter_map(fault).collect()
}

/// Reason why a run failed, with the place of its step and the last line of the step's stderr.
fn reason(failure: &Failure) -> String {
    let said = failure.stderr.as_ref().and_then(|stderr| stderr.tail.lines().rfind(|line| !line.trim().is_empty()));
    let place = failure.origin.as_ref().map(|origin| format!("{}:{}: ", origin.file, origin.line)).unwrap_or_default();
    let said = said.map(|line| format!(": {}", line.trim())).unwrap_or_default();
    format!("{place}{}{said}", failure.message)
}

/// The step at which a run left its pipeline, and the word of the reason.
fn place(fell_back: &Value) -> String {
    match fell_back {
        Value::Object(_) => {
            let text = |member: &str| fell_back[member].as_str().unwrap_or_default().to_owned();
            format!("the run left the pipeline at `{}` ({})", text("step"), text("reason"))
        }
        _ => "the run did not leave the pipeline".to_owned(),
    }
}

/// Fault if the run did not leave its pipeline where the case expects it.
fn of_deviation(wanted: &Value, found: Option<&Value>) -> Option<String> {
    let (found, wanted) = (place(found.unwrap_or(&Value::Null)), place(wanted));
    (found != wanted).then(|| format!("{found}, expected: {wanted}"))
}

/// Faults for unrecorded calls, and for unexpected calls that write (`learn.md` 1.4).
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
    faults.extend(made.writes.iter().skip(wanted.len()).map(|call| format!("unexpected call: {}", shown(call))));
    faults
}

fn shown(call: &RehearsedCall) -> String {
    format!("`{}` {}", call.tool, clipped(&call.arguments))
}

/// A value as JSON, cut to a readable length.
fn clipped(value: &impl ToString) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-3.3: the output of a test is compared by value and to the last digit.
    #[test]
    fn outputs_are_compared_to_the_last_digit() {
        let faults = |pointer: &str, wanted: &'static str, output: &'static str| {
            of_output(&[(pointer.to_owned(), Json::trusted(wanted))], Some(&Json::trusted(output)))
        };
        assert!(faults("/v", "3", r#"{"v": 3.0}"#).is_empty() && faults("", "[1.0]", "[1]").is_empty());
        assert!(faults("/0", "1", "[1, 1e400]").is_empty());
        let found = faults("/v", "123456789012345678902", r#"{"v": 123456789012345678901}"#);
        assert_eq!(found, ["output /v is 123456789012345678901, expected 123456789012345678902"]);
        assert_eq!(faults("/x", "1", "{}"), ["the output is {}, which has nothing at /x; expected 1"]);
        let found = faults("/0", "1", r#"[1, "\ud800"]"#);
        assert!(found.len() == 1 && found[0].starts_with("the output cannot be compared: "), "{found:?}");
    }
}
