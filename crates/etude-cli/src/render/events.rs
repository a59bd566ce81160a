//! Events as `--format jsonl` prints them: one document a line, the result document last.

use etude::core::report::{Event, Item, StepRow, items_json};
use etude::core::tree;
use etude::runtime::driver::Progress;
use serde_json::{Value, json};

use super::{layers, waits};

/// The lines of one run.
#[derive(Debug)]
pub(crate) struct Lines {
    /// How many there have been, those of earlier processes included.
    count: u64,
    /// The run is one of a machine: its lines are the events of stages.
    is_of_machine: bool,
}

impl Lines {
    pub(crate) fn new(is_of_machine: bool) -> Self {
        Self { count: 0, is_of_machine }
    }

    /// The event as a document; `None` if it is only for people, or was reported by an earlier process.
    pub(crate) fn json(&mut self, progress: &Progress<'_>) -> Option<Value> {
        match progress {
            Progress::Machine { event: Event::Stage { name, payload }, is_replay, .. } => {
                self.count += 1;
                let line = json!({"event": name, "seq": self.count, "payload": payload.value().unwrap_or_default()});
                (!is_replay).then_some(line)
            }
            Progress::Stderr { effect, bytes } if self.is_of_machine => {
                self.count += 1;
                let payload = json!({"effect": effect.as_str(), "text": String::from_utf8_lossy(bytes)});
                Some(json!({"event": "stderr", "seq": self.count, "payload": payload}))
            }
            Progress::Waiting { effect, wait } if self.is_of_machine => {
                self.count += 1;
                let payload = waits::json(effect, wait);
                Some(json!({"event": "transport_retry", "seq": self.count, "payload": payload}))
            }
            Progress::Layers(reported) if self.is_of_machine => {
                self.count += 1;
                let (event, payload) = layers::event(reported);
                Some(json!({"event": event, "seq": self.count, "payload": payload}))
            }
            _ if self.is_of_machine => None,
            other => json(other),
        }
    }
}

fn json(progress: &Progress<'_>) -> Option<Value> {
    match progress {
        Progress::Machine { event, rows, is_replay: false } => Some(of_event(event, rows)),
        // Pieces of answers are for people only: `agent_said` has the whole text.
        Progress::Machine { .. } | Progress::ModelResponse { .. } => None,
        Progress::Waiting { effect, wait } => {
            let mut line = waits::json(effect, wait);
            line["event"] = "transport_retry".into();
            Some(line)
        }
        Progress::Layers(reported) => {
            let (event, mut line) = layers::event(reported);
            line["event"] = event.into();
            Some(line)
        }
        Progress::Stderr { effect, bytes } => Some(json!({
            "event": "stderr",
            "effect": effect.as_str(),
            "text": String::from_utf8_lossy(bytes),
        })),
    }
}

fn of_event(event: &Event, rows: &[StepRow]) -> Value {
    match event {
        Event::PhaseStarted(phase) => json!({"event": "phase_started", "phase": phase.word()}),
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
            if let Some(items) = &row.items {
                out["items"] = items_json(items);
            }
            out
        }
    }
}

/// What becomes of attempts and of the elements of a `for_each`.
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
