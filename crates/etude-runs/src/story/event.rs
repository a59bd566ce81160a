//! The published form of events.

use etude_core::report::{Event, FellBack, Item, StepRow, fell_back_json, items_json, usage_json};
use etude_core::tree;
use serde_json::{Value, json};

/// An event in its published form, without a time.
pub fn event_json(event: &Event, rows: &[StepRow]) -> Value {
    match event {
        Event::PhaseStarted(phase) => json!({"event": "phase_started", "phase": phase.word()}),
        Event::FellBack { fell_back, message } => of_deviation(fell_back, message),
        Event::StepStarted { row } => step("step_started", &rows[*row]),
        Event::AttemptRejected { .. } | Event::ItemStarted { .. } | Event::ItemEnded { .. } => of_work(event, rows),
        Event::AgentText { row, turn, text } => {
            let mut out = step("agent_said", &rows[*row]);
            out["turn"] = (*turn).into();
            out["text"] = text.as_str().into();
            out
        }
        Event::ToolStarted { row, effect, name, arguments } => {
            let mut out = step("tool_started", &rows[*row]);
            out["effect"] = effect.as_str().into();
            out["tool"] = name.as_str().into();
            out["arguments"] = tree::of_answer(arguments).unwrap_or_else(|_| arguments.as_str().into());
            out
        }
        Event::ToolEnded { row, effect, name, error, elapsed_ms } => {
            let mut out = step("tool_ended", &rows[*row]);
            out["effect"] = effect.as_str().into();
            out["tool"] = name.as_str().into();
            out["error"] = json!(error);
            out["duration_ms"] = (*elapsed_ms).into();
            out
        }
        Event::Detour { row, why } => {
            let mut out = step("detour", &rows[*row]);
            out["why"] = why.as_str().into();
            out
        }
        Event::ToolsMissing { row, problems } => {
            let mut out = step("tools_missing", &rows[*row]);
            out["problems"] = json!(problems);
            out
        }
        Event::ContextTrimmed { row, left_out } => {
            let mut out = step("context_trimmed", &rows[*row]);
            out["left_out"] = (*left_out).into();
            out
        }
        Event::Stage { name, payload } => json!({"event": name, "payload": payload.value().unwrap_or_default()}),
        Event::StepEnded { row } => {
            let row = &rows[*row];
            let mut out = step("step_ended", row);
            out["status"] = row.status.word().into();
            out["attempts"] = row.attempts.into();
            out["duration_ms"] = row.duration_ms.into();
            if row.retries > 0 {
                out["retries"] = row.retries.into();
            }
            if row.cached {
                out["cached"] = true.into();
            }
            if let Some(items) = &row.items {
                out["items"] = items_json(items);
            }
            if row.usage.calls > 0 {
                out["usage"] = usage_json(&row.usage);
            }
            if let Some(model) = &row.model {
                out["model"] = model.as_str().into();
            }
            out
        }
    }
}

/// A deviation from a pipeline.
fn of_deviation(fell_back: &FellBack, message: &str) -> Value {
    let mut out = fell_back_json(fell_back);
    out["event"] = "fell_back".into();
    out["message"] = message.into();
    out
}

/// Events of attempts and of the elements of a `for_each`.
fn of_work(event: &Event, rows: &[StepRow]) -> Value {
    match event {
        Event::AttemptRejected { row, item, attempt, max_attempts, rejected_by, reasons } => {
            let mut out = step("attempt_rejected", &rows[*row]);
            out["attempt"] = (*attempt).into();
            out["max_attempts"] = (*max_attempts).into();
            out["rejected_by"] = rejected_by.word().into();
            out["errors"] = json!(reasons);
            if let Some(item) = item {
                out["item"] = item_json(item);
            }
            out
        }
        Event::ItemStarted { row, item } => {
            let mut out = step("item_started", &rows[*row]);
            out["item"] = item_json(item);
            out
        }
        Event::ItemEnded { row, item, status, cached, error, done, total } => {
            let mut out = step("item_ended", &rows[*row]);
            out["item"] = item_json(item);
            out["status"] = status.word().into();
            out["cached"] = (*cached).into();
            out["error"] = json!(error);
            out["done"] = (*done).into();
            out["total"] = (*total).into();
            out
        }
        _ => Value::Null,
    }
}

fn item_json(item: &Item) -> Value {
    json!({"index": item.index, "label": item.label})
}

fn step(event: &str, row: &StepRow) -> Value {
    json!({"event": event, "phase": row.phase.word(), "step": row.name, "type": row.kind})
}
