//! The published form of results and failures: the documents of `etude run --format json`.
//!
//! Written by hand, field by field: this form is a promise, and the types behind it are not.

use serde_json::{Map, Value, json};

use crate::failure::{Attempt, Failure, FailureKind};
use crate::model::Usage;
use crate::report::{CallDeviation, FellBack, Items, RunResult, StageRow, StepRow, StepStatus};

/// One entry of `errors`; also the `error` of a destructor's input.
pub fn error_json(failure: &Failure) -> Value {
    let mut out = Map::new();
    out.insert("code".into(), failure.kind.code().into());
    out.insert("kind".into(), failure.kind.word().into());
    out.insert("phase".into(), failure.phase.map(|p| p.word()).into());
    out.insert("step".into(), failure.step.clone().into());
    out.insert("message".into(), failure.message.clone().into());
    if let Some(origin) = &failure.origin {
        out.insert("file".into(), origin.file.clone().into());
        out.insert("line".into(), origin.line.into());
        out.insert("column".into(), origin.column.into());
    }
    if let Some(status) = failure.exit_status {
        out.insert("exit_status".into(), status.into());
    }
    if let Some(signal) = &failure.signal {
        out.insert("signal".into(), signal.clone().into());
    }
    if let Some(stderr) = &failure.stderr {
        out.insert("stderr_tail".into(), stderr.tail.clone().into());
        out.insert("stderr_lines".into(), stderr.lines.into());
    }
    if let Some(ms) = failure.elapsed_ms {
        out.insert("duration_ms".into(), ms.into());
    }
    if !failure.attempts.is_empty() {
        out.insert("attempts".into(), failure.attempts.iter().map(attempt_json).collect());
    }
    if let Some(details) = failure.details.as_ref().and_then(|d| d.value().ok()) {
        let is_of_stages = failure.kind == FailureKind::StageFailed || details.get("class").is_some();
        let is_decided = failure.kind == FailureKind::InputInvalid && details.get("decision").is_some();
        match details {
            // System B has its own facts, which are members of the error itself. A deviation adds `reason` and
            // `condition`, and a rejected answer to a question the `decision`.
            Value::Object(members) if is_of_stages || is_decided || failure.kind == FailureKind::Deviated => {
                out.extend(members);
            }
            details => drop(out.insert("details".into(), details)),
        }
    }
    if let Some(item) = failure.item {
        match out.entry("details").or_insert_with(|| json!({})) {
            Value::Object(details) => drop(details.insert("item".into(), item.into())),
            other => *other = json!({"item": item}),
        }
    }
    Value::Object(out)
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "rejected_by": attempt.rejected_by.word(),
        "errors": attempt.errors,
        "duration_ms": attempt.elapsed_ms,
        "tokens": attempt.tokens,
    })
}

/// The published form of `usage`.
pub fn usage_json(usage: &Usage) -> Value {
    json!({
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": usage.cost_usd.map(whole_billionths),
    })
}

/// Rounds US dollars to remove the noise of sums of binary fractions.
fn whole_billionths(usd: f64) -> f64 {
    (usd * 1e9).round() / 1e9
}

fn step_json(row: &StepRow) -> Value {
    let mut out = Map::new();
    out.insert("phase".into(), row.phase.word().into());
    out.insert("name".into(), row.name.clone().into());
    out.insert("type".into(), row.kind.into());
    // The published words have no running step: in a waiting run, an unfinished step counts as not started, and a step
    // that has begun is marked.
    let status = if row.status == StepStatus::Running { StepStatus::NotStarted } else { row.status };
    out.insert("status".into(), status.word().into());
    if row.status == StepStatus::Running {
        out.insert("waiting".into(), true.into());
    }
    out.insert("attempts".into(), row.attempts.into());
    out.insert("duration_ms".into(), row.duration_ms.into());
    if row.retries > 0 {
        out.insert("retries".into(), row.retries.into());
    }
    if row.cached {
        out.insert("cached".into(), true.into());
    }
    if let Some(items) = &row.items {
        out.insert("items".into(), items_json(items));
    }
    if row.usage.calls > 0 {
        out.insert("usage".into(), usage_json(&row.usage));
    }
    if let Some(model) = &row.model {
        out.insert("model".into(), model.clone().into());
    }
    Value::Object(out)
}

/// The published form of `items`: the elements of a `for_each`.
pub fn items_json(items: &Items) -> Value {
    let mut out = json!({"total": items.total, "succeeded": items.succeeded, "failed": items.failed});
    if items.cached > 0 {
        out["cached"] = items.cached.into();
    }
    out
}

/// The members of a result document that follow from the run alone: `status`, `errors`, `steps`, `usage`, `stages`,
/// `fell_back`, and `deviations` if there are any. Without `output`, which may be too large to be parsed.
pub fn result_json(result: &RunResult) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("status".into(), result.status.word().into());
    out.insert("errors".into(), result.errors.iter().map(error_json).collect());
    out.insert("steps".into(), result.steps.iter().map(step_json).collect());
    out.insert("usage".into(), usage_json(&result.usage));
    out.insert("stages".into(), result.stages.rows.iter().map(stage_json).collect());
    out.insert("fell_back".into(), result.fell_back.as_ref().map(fell_back_json).into());
    if !result.deviations.is_empty() {
        out.insert("deviations".into(), result.deviations.iter().map(deviation_json).collect());
    }
    out
}

fn deviation_json(deviation: &CallDeviation) -> Value {
    json!({"pipeline": deviation.pipeline, "step": deviation.step, "reason": deviation.reason})
}

/// The published form of `fell_back` (L-67).
pub fn fell_back_json(fell_back: &FellBack) -> Value {
    json!({
        "pipeline": fell_back.pipeline,
        "step": fell_back.step,
        "reason": fell_back.reason.word(),
        "writes_done": fell_back.writes_done,
    })
}

fn stage_json(row: &StageRow) -> Value {
    json!({
        "stageId": row.stage_id,
        "stageExecutionId": row.stage_execution_id,
        "status": row.status.word(),
        "verdict": row.verdict,
        "capHit": row.cap_hit,
        "attemptCount": row.attempt_count,
    })
}
