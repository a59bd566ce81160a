//! Conversion of events on a server to events of a local run.

use std::collections::BTreeMap;

use etude_core::data::Json;
use etude_core::effect::EffectId;
use etude_core::failure::{Phase, Reason, RejectedBy};
use etude_core::report::{Event, FellBack, Item, Items, StepRow, StepStatus};
use etude_runtime::record;
use serde_json::Value;

/// Types of steps.
const KINDS: [&str; 10] =
    ["code", "llm", "parallel", "pipeline", "approval", "stage", "machine", "skill", "application", "tool"];

/// Events of machines that are shown.
const STAGE_EVENTS: [&str; 7] = [
    "StageExecutionSpanStart",
    "ToolInvocationStarted",
    "ToolInvocationFailed",
    "StageGateOutcome",
    "StageWarning",
    "StageAssertOutcome",
    "StageExited",
];

/// Steps that events have named so far.
#[derive(Debug, Default)]
pub(super) struct Steps {
    rows: Vec<StepRow>,
    places: BTreeMap<(Phase, String), usize>,
}

impl Steps {
    /// Rows that events refer to.
    pub(super) fn rows(&self) -> &[StepRow] {
        &self.rows
    }

    /// Row of the step that an event is about.
    fn row(&mut self, event: &Value) -> Option<usize> {
        let phase = Phase::from_word(event["phase"].as_str()?)?;
        let name = event["step"].as_str()?.to_owned();
        let (rows, place) = (&mut self.rows, self.places.entry((phase, name.clone())));
        Some(*place.or_insert_with(|| {
            let kind = KINDS.into_iter().find(|kind| event["type"] == *kind).unwrap_or("code");
            rows.push(StepRow::new(phase, name, kind));
            rows.len() - 1
        }))
    }

    /// Parses an event; `None` if a local run has no such event.
    pub(super) fn take(&mut self, event: &Value) -> Option<Event> {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let texts = |name: &str| -> Vec<String> {
            event[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let number = |name: &str| event[name].as_u64().unwrap_or(0);
        let small = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
        let size = |name: &str| usize::try_from(number(name)).unwrap_or(usize::MAX);
        let name = event["event"].as_str()?;
        if event["payload"].is_object() {
            let name = STAGE_EVENTS.into_iter().find(|known| *known == name).unwrap_or_default();
            return Some(Event::Stage { name, payload: Json::of(&event["payload"]) });
        }
        match name {
            "phase_started" => return Phase::from_word(event["phase"].as_str()?).map(Event::PhaseStarted),
            "fell_back" => return fell_back(event),
            _ => {}
        }
        let row = self.row(event)?;
        Some(match name {
            "step_started" => {
                self.rows[row].status = StepStatus::Running;
                Event::StepStarted { row, item: item(&event["item"]) }
            }
            "step_ended" => {
                let StepRow { status, duration_ms, .. } = *end(&mut self.rows[row], event);
                Event::StepEnded { row, item: item(&event["item"]), status, duration_ms }
            }
            "attempt_rejected" => Event::AttemptRejected {
                row,
                item: item(&event["item"]),
                attempt: small("attempt"),
                max_attempts: small("max_attempts"),
                rejected_by: RejectedBy::from_word(event["rejected_by"].as_str()?)?,
                reasons: texts("errors"),
            },
            "item_started" => Event::ItemStarted { row, item: item(&event["item"])? },
            "item_ended" => {
                let total = size("total");
                self.rows[row].items.get_or_insert_default().total = total;
                Event::ItemEnded {
                    row,
                    item: item(&event["item"])?,
                    status: StepStatus::from_word(event["status"].as_str()?)?,
                    cached: event["cached"] == true,
                    error: event["error"].as_str().map(str::to_owned),
                    done: size("done"),
                    total,
                }
            }
            "agent_said" => Event::AgentText { row, turn: small("turn"), text: text("text") },
            "tool_started" => Event::ToolStarted {
                row,
                effect: EffectId::new(text("effect")),
                name: text("tool"),
                arguments: event["arguments"].to_string(),
            },
            "tool_ended" => Event::ToolEnded {
                row,
                effect: EffectId::new(text("effect")),
                name: text("tool"),
                error: event["error"].as_str().map(str::to_owned),
                elapsed_ms: number("duration_ms"),
            },
            "detour" => Event::Detour { row, why: text("why") },
            "tools_missing" => Event::ToolsMissing { row, problems: texts("problems") },
            "context_trimmed" => Event::ContextTrimmed { row, left_out: size("left_out") },
            _ => return None,
        })
    }
}

/// Parses the deviation of a pipeline.
fn fell_back(event: &Value) -> Option<Event> {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let fell_back = FellBack {
        pipeline: text("pipeline"),
        step: text("step"),
        reason: Reason::from_word(event["reason"].as_str()?)?,
        writes_done: event["writes_done"].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0),
    };
    Some(Event::FellBack { fell_back, message: text("message") })
}

/// Fills in the end of a step.
fn end<'r>(row: &'r mut StepRow, event: &Value) -> &'r StepRow {
    let small = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    row.status = event["status"].as_str().and_then(StepStatus::from_word).unwrap_or(StepStatus::Failed);
    row.attempts = small(&event["attempts"]);
    row.retries = small(&event["retries"]);
    row.duration_ms = event["duration_ms"].as_u64().unwrap_or(0);
    row.cached = event["cached"] == true;
    row.items = items(&event["items"]);
    row.usage = record::to_usage(&event["usage"]);
    row.model = event["model"].as_str().map(str::to_owned);
    row
}

fn items(items: &Value) -> Option<Items> {
    let size = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    Some(Items {
        total: size(&items["total"])?,
        succeeded: size(&items["succeeded"])?,
        cached: size(&items["cached"]).unwrap_or(0),
        failed: items["failed"].as_array()?.iter().filter_map(size).collect(),
    })
}

fn item(item: &Value) -> Option<Item> {
    let index = usize::try_from(item["index"].as_u64()?).ok()?;
    Some(Item { index, label: item["label"].as_str().map(Into::into) })
}

#[cfg(test)]
mod tests {
    use etude_core::model::Usage;

    use etude_runs::story::event_json;
    use serde_json::json;

    use super::*;

    /// Events of a stream are shown like those of a local run: the published members are sufficient.
    #[test]
    fn an_event_survives_its_document() {
        let ended = StepRow {
            phase: Phase::Business,
            name: "ask".to_owned(),
            kind: "llm",
            status: StepStatus::Succeeded,
            attempts: 2,
            retries: 1,
            duration_ms: 12,
            cached: true,
            items: Some(Items { total: 2, succeeded: 1, cached: 1, failed: vec![1] }),
            usage: Usage { calls: 1, input_tokens: 3, output_tokens: 4, ..Usage::default() },
            model: Some("mock/m".to_owned()),
            effects: Vec::new(),
        };
        let item = Item { index: 1, label: Some("one".into()) };
        let (row, rows) = (0, [ended.clone()]);
        let effect = || EffectId::new("p/ask/turn1");
        let events = [
            Event::PhaseStarted(Phase::Business),
            Event::FellBack {
                fell_back: FellBack {
                    pipeline: "p".to_owned(),
                    step: "ask".to_owned(),
                    reason: Reason::Denied,
                    writes_done: 1,
                },
                message: "no".to_owned(),
            },
            Event::StepStarted { row, item: Some(item.clone()) },
            Event::AttemptRejected {
                row,
                item: Some(item.clone()),
                attempt: 1,
                max_attempts: 3,
                rejected_by: RejectedBy::Validate,
                reasons: vec!["no".to_owned()],
            },
            Event::ItemStarted { row, item: item.clone() },
            Event::ItemEnded {
                row,
                item,
                status: StepStatus::Failed,
                cached: false,
                error: Some("no".to_owned()),
                done: 1,
                total: 2,
            },
            Event::AgentText { row, turn: 1, text: "so".to_owned() },
            Event::ToolStarted {
                row,
                effect: effect(),
                name: "Read".to_owned(),
                arguments: json!({"a": 1}).to_string(),
            },
            Event::ToolEnded { row, effect: effect(), name: "Read".to_owned(), error: None, elapsed_ms: 3 },
            Event::Detour { row, why: "so".to_owned() },
            Event::ToolsMissing { row, problems: vec!["so".to_owned()] },
            Event::ContextTrimmed { row, left_out: 2 },
            Event::StepEnded { row, item: None, status: StepStatus::Succeeded, duration_ms: 12 },
        ];
        let mut steps = Steps::default();
        for event in events {
            let document = event_json(&event, &rows);
            assert_eq!(steps.take(&document), Some(event), "{document}");
        }
        assert_eq!(steps.rows(), [ended]);
    }
}
