//! Conversion of a run document on a server to a local result document.

use etude::runner::RunResult;
use etude_core::data::Json;
use etude_core::failure::{Attempt, Failure, FailureKind, Phase, RejectedBy};
use etude_core::machine::Limits;
use etude_core::model::Usage;
use etude_core::outcome::Stderr;
use etude_core::plan::Origin;
use etude_core::report::usage_json;
use etude_runs::document::Document;
use etude_runs::target::Target;
use etude_runtime::engine::RunState;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A run on a server.
#[derive(Debug)]
pub(crate) struct RunDocument {
    pub(crate) id: String,
    /// Value of `status`.
    pub(crate) status: String,
    pub(crate) changed_at: String,
    pub(crate) document: Document,
    pub(crate) errors: Vec<Failure>,
    limits: Limits,
    /// Input as received; its numbers keep their digits.
    pub(crate) input: Box<RawValue>,
    /// All members but input and output.
    pub(crate) members: Map<String, Value>,
}

/// Members that are kept as they are written.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    input: &'a RawValue,
}

impl RunDocument {
    /// Parses the document in a response.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let other = |e: serde_json::Error| format!("is not the document of a run: {e}");
        let raw: Raw<'_> = serde_json::from_str(text).map_err(other)?;
        let users = raw.output.into_iter().chain([raw.input]).map(RawValue::get);
        let mut members: Map<String, Value> = serde_json::from_str(&without(text, users)).map_err(other)?;
        let word = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        let list = |name: &str| members.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let number = |name: &str| members.get(name).and_then(Value::as_u64);
        let id = word("run_id").ok_or("has no `run_id`")?;
        let status = word("status").ok_or("has no `status`")?;
        let mode = Target::mode_of(&word("mode").unwrap_or_default());
        let usage = members.get("usage").filter(|usage| usage.is_object()).cloned();
        let facts = json!({
            "status": status, "errors": list("errors"), "steps": list("steps"), "stages": list("stages"),
            "usage": usage.unwrap_or_else(|| usage_json(&Usage::default())),
            "fell_back": members.get("fell_back"),
        });
        // A failed run has no output; the output of a successful one may be null.
        let output = raw.output.map(|output| Json::trusted(output.get()));
        let output = output.or_else(|| (status == RunState::Succeeded.word()).then(Json::null));
        let document = Document {
            run_id: Some(id.clone()),
            pipeline: word("pipeline"),
            machine: word("machine"),
            mode,
            members: facts.as_object().cloned().unwrap_or_default(),
            output,
            waiting: list("waiting"),
            duration_ms: number("duration_ms").unwrap_or(0),
            attempt: number("attempt").and_then(|attempt| u32::try_from(attempt).ok()),
            again_of: word("again_of"),
            remains: None,
        };
        let limits = members.get("limits").cloned().unwrap_or_default();
        let limits = Limits {
            max_cost_usd: limits["max_cost_usd"].as_f64(),
            max_tokens: limits["max_tokens"].as_u64(),
            timeout_ms: limits["timeout_ms"].as_u64(),
        };
        let errors = list("errors").iter().filter_map(failure).collect();
        let changed_at = word("changed_at").unwrap_or_default();
        let input = raw.input.to_owned();
        members.remove("input");
        members.remove("output");
        Ok(Self { id, status, changed_at, document, errors, limits, input, members })
    }

    /// Target of the run; `None` for a run in skill mode.
    pub(crate) fn target(&self) -> Option<Target> {
        let pipeline = self.document.pipeline.clone().map(Target::Pipeline);
        pipeline.or_else(|| self.document.machine.clone().map(Target::Machine))
    }

    /// Name that the server gives to the run's app.
    pub(crate) fn app(&self) -> &str {
        self.members.get("app").and_then(Value::as_str).unwrap_or_default()
    }

    /// True if the run is queued or active.
    pub(crate) fn is_on_its_way(&self) -> bool {
        is_on_its_way(&self.status)
    }

    /// True if the run has ended.
    pub(crate) fn is_over(&self) -> bool {
        RunState::from_word(&self.status).is_some_and(RunState::is_final)
    }

    /// Converts to the result of a local run.
    pub(crate) fn into_ended(self) -> RunResult {
        let Self { id, document, errors, limits, .. } = self;
        RunResult { run_id: id, document, errors, gates: Vec::new(), limits }
    }
}

/// Replaces these parts of the text by `null`. A user's value may hold content that a JSON tree cannot: half of a surrogate
/// pair, a number out of range, deeply nested lists.
fn without<'t>(text: &'t str, parts: impl Iterator<Item = &'t str>) -> String {
    let place = |part: &str| {
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        start..start + part.len()
    };
    let mut places: Vec<_> = parts.map(place).collect();
    places.sort_unstable_by_key(|place| place.start);
    let mut rest = text.to_owned();
    places.into_iter().rev().for_each(|place| rest.replace_range(place, "null"));
    rest
}

/// True for the status of a run that is queued or active.
pub(super) fn is_on_its_way(status: &str) -> bool {
    matches!(RunState::from_word(status), Some(RunState::Queued | RunState::Running))
}

/// Parses an entry of `errors`. An unknown kind counts as a failed step.
pub(crate) fn failure(error: &Value) -> Option<Failure> {
    let text = |name: &str| error[name].as_str().map(str::to_owned);
    let number = |name: &str| error[name].as_u64();
    let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
    let kind = text("kind").and_then(|word| FailureKind::from_word(&word)).unwrap_or(FailureKind::StepFailed);
    let origin =
        text("file").zip(small("line")).map(|(file, line)| Origin { file, line, column: small("column").unwrap_or(1) });
    let stderr = text("stderr_tail").map(|tail| Stderr {
        lines: number("stderr_lines").unwrap_or(0),
        bytes: tail.len() as u64,
        tail,
        blob: None,
    });
    // Facts of stages are members of the error itself.
    let details = match error.get("class") {
        Some(_) => Some(Json::of(error)),
        None => error.get("details").map(Json::of),
    };
    Some(Failure {
        phase: text("phase").and_then(|word| Phase::from_word(&word)),
        step: text("step"),
        origin,
        exit_status: error["exit_status"].as_i64().and_then(|status| i32::try_from(status).ok()),
        signal: text("signal"),
        stderr,
        attempts: error["attempts"].as_array().into_iter().flatten().map(attempt).collect(),
        elapsed_ms: number("duration_ms"),
        details,
        ..Failure::new(kind, text("message")?)
    })
}

fn attempt(attempt: &Value) -> Attempt {
    let errors = attempt["errors"].as_array().into_iter().flatten();
    Attempt {
        rejected_by: attempt["rejected_by"].as_str().and_then(RejectedBy::from_word).unwrap_or(RejectedBy::Transport),
        errors: errors.filter_map(Value::as_str).map(str::to_owned).collect(),
        elapsed_ms: attempt["duration_ms"].as_u64().unwrap_or(0),
        tokens: attempt["tokens"].as_u64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use etude_core::report::error_json;

    use super::*;

    /// A failure received from a server equals the one that was sent, so that it is shown in the same way.
    #[test]
    fn a_failure_survives_its_document() {
        let whole = Failure {
            phase: Some(Phase::Business),
            step: Some("ask".to_owned()),
            origin: Some(Origin { file: "pipelines/p/pipeline.yaml".to_owned(), line: 4, column: 11 }),
            exit_status: Some(2),
            signal: Some("SIGKILL".to_owned()),
            stderr: Some(Stderr { tail: "oh\n".to_owned(), lines: 1, bytes: 3, blob: None }),
            attempts: vec![Attempt {
                rejected_by: RejectedBy::Schema,
                errors: vec!["no".to_owned()],
                elapsed_ms: 3,
                tokens: 7,
            }],
            elapsed_ms: Some(12),
            details: Some(Json::of(&json!({"item": 3}))),
            ..Failure::new(FailureKind::StepFailed, "it failed")
        };
        let back = failure(&error_json(&whole)).expect("a failure");
        assert_eq!((error_json(&back), back.stderr.clone()), (error_json(&whole), whole.stderr.clone()));
    }

    /// ADR 0144: the class of a stage's error stays with an element's index beside it.
    #[test]
    fn the_class_of_an_element_survives_its_document() {
        let sent = json!({"kind": "step_failed", "message": "no", "class": "environment", "details": {"item": 1}});
        let back = error_json(&failure(&sent).expect("a failure"));
        assert_eq!((&back["class"], &back["details"]["item"]), (&sent["class"], &json!(1)));
    }

    /// The reason continues the sentence "the response of the server at …".
    #[test]
    fn another_document_is_not_a_run() {
        for text in ["<html>", "", "[]", r#"{"ok":true}"#] {
            let why = RunDocument::parse(text).expect_err(text);
            assert!(why.starts_with("is not the document of a run: "), "{why}");
        }
    }

    /// Numbers of an output keep their digits.
    #[test]
    fn an_output_is_as_it_was_sent() {
        let text =
            r#"{"run_id":"r","status":"succeeded","mode":"pipeline","pipeline":"p","output":{"n":1.10},"input":{}}"#;
        let run = RunDocument::parse(text).expect("a run");
        assert_eq!(run.document.output.expect("an output").inline(), Some(r#"{"n":1.10}"#));
    }

    /// A run whose values a JSON tree cannot hold is still parsed; otherwise a following command would wait for ever.
    #[test]
    fn any_output_is_read() {
        for value in [r#""\ud83d""#, "1E400", &format!("{}{}", "[".repeat(300), "]".repeat(300))] {
            let text = format!(
                r#"{{"run_id":"r","input":{{"a":{value}}},"status":"succeeded","mode":"pipeline","output":{value},"attempt":3}}"#
            );
            let run = RunDocument::parse(&text).expect("a run");
            assert_eq!(run.document.output.expect("an output").inline(), Some(value));
            assert_eq!((run.input.get(), run.document.attempt), (&*format!(r#"{{"a":{value}}}"#), Some(3)));
        }
    }
}
