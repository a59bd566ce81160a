//! The published form of events.

use etude_core::report::{Event, Item, StepRow, fell_back_json, items_json, usage_json};
use etude_core::tree;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

/// An event in its published form, without a time.
pub fn event_json(event: &Event, rows: &[StepRow]) -> Value {
    // Keys are strings, and no value fails to be serialized.
    serde_json::to_value(Published { event, rows, seq: None, at: None }).unwrap_or_default()
}

/// The member `event` of an event's published form.
pub(super) const fn name_of(event: &Event) -> &'static str {
    match event {
        Event::PhaseStarted(_) => "phase_started",
        Event::FellBack { .. } => "fell_back",
        Event::StepStarted { .. } => "step_started",
        Event::AttemptRejected { .. } => "attempt_rejected",
        Event::StepEnded { .. } => "step_ended",
        Event::AgentText { .. } => "agent_said",
        Event::ToolStarted { .. } => "tool_started",
        Event::ToolEnded { .. } => "tool_ended",
        Event::Detour { .. } => "detour",
        Event::ToolsMissing { .. } => "tools_missing",
        Event::ContextTrimmed { .. } => "context_trimmed",
        Event::Stage { name, .. } => *name,
        Event::ItemStarted { .. } => "item_started",
        Event::ItemEnded { .. } => "item_ended",
    }
}

/// An event with everything that its published form has. It is written without a tree in between: long runs have
/// hundreds of thousands of events.
pub(super) struct Published<'e> {
    pub(super) event: &'e Event,
    pub(super) rows: &'e [StepRow],
    /// Number of the event among those of a stage machine.
    pub(super) seq: Option<u64>,
    /// The time as RFC 3339.
    pub(super) at: Option<&'e str>,
}

impl Serialize for Published<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        self.members(&mut out)?;
        if let Some(at) = self.at {
            out.serialize_entry("at", at)?;
        }
        out.end()
    }
}

impl Published<'_> {
    /// Writes all members but the time.
    fn members<M: SerializeMap>(&self, out: &mut M) -> Result<(), M::Error> {
        if let Event::FellBack { fell_back, message } = self.event {
            for (name, value) in fell_back_json(fell_back).as_object().into_iter().flatten() {
                out.serialize_entry(name, value)?;
            }
            out.serialize_entry("event", name_of(self.event))?;
            return out.serialize_entry("message", message);
        }
        out.serialize_entry("event", name_of(self.event))?;
        match self.event {
            Event::FellBack { .. } => {}
            Event::PhaseStarted(phase) => out.serialize_entry("phase", phase.word())?,
            Event::Stage { payload, .. } => {
                if let Some(seq) = &self.seq {
                    out.serialize_entry("seq", seq)?;
                }
                out.serialize_entry("payload", &payload.value().unwrap_or_default())?;
            }
            Event::StepStarted { row } => self.step(out, *row)?,
            Event::StepEnded { row } => {
                self.step(out, *row)?;
                end(out, &self.rows[*row])?;
            }
            Event::AttemptRejected { row, .. } | Event::ItemStarted { row, .. } | Event::ItemEnded { row, .. } => {
                self.step(out, *row)?;
                work(out, self.event)?;
            }
            Event::AgentText { row, .. }
            | Event::ToolStarted { row, .. }
            | Event::ToolEnded { row, .. }
            | Event::Detour { row, .. }
            | Event::ToolsMissing { row, .. }
            | Event::ContextTrimmed { row, .. } => {
                self.step(out, *row)?;
                agent(out, self.event)?;
            }
        }
        Ok(())
    }

    /// Writes the members of the step at `row`.
    fn step<M: SerializeMap>(&self, out: &mut M, row: usize) -> Result<(), M::Error> {
        let row = &self.rows[row];
        out.serialize_entry("phase", row.phase.word())?;
        out.serialize_entry("step", &row.name)?;
        out.serialize_entry("type", row.kind)
    }
}

/// Writes the members of a step that is over.
fn end<M: SerializeMap>(out: &mut M, row: &StepRow) -> Result<(), M::Error> {
    out.serialize_entry("status", row.status.word())?;
    out.serialize_entry("attempts", &row.attempts)?;
    out.serialize_entry("duration_ms", &row.duration_ms)?;
    if row.retries > 0 {
        out.serialize_entry("retries", &row.retries)?;
    }
    if row.cached {
        out.serialize_entry("cached", &true)?;
    }
    if let Some(items) = &row.items {
        out.serialize_entry("items", &items_json(items))?;
    }
    if row.usage.calls > 0 {
        out.serialize_entry("usage", &usage_json(&row.usage))?;
    }
    if let Some(model) = &row.model {
        out.serialize_entry("model", model)?;
    }
    Ok(())
}

/// Writes the members of events of attempts and of the elements of a `for_each`.
fn work<M: SerializeMap>(out: &mut M, event: &Event) -> Result<(), M::Error> {
    match event {
        Event::AttemptRejected { item, attempt, max_attempts, rejected_by, reasons, .. } => {
            out.serialize_entry("attempt", attempt)?;
            out.serialize_entry("max_attempts", max_attempts)?;
            out.serialize_entry("rejected_by", rejected_by.word())?;
            out.serialize_entry("errors", reasons)?;
            if let Some(item) = item {
                out.serialize_entry("item", &Element(item))?;
            }
        }
        Event::ItemStarted { item, .. } => out.serialize_entry("item", &Element(item))?,
        Event::ItemEnded { item, status, cached, error, done, total, .. } => {
            out.serialize_entry("item", &Element(item))?;
            out.serialize_entry("status", status.word())?;
            out.serialize_entry("cached", cached)?;
            out.serialize_entry("error", error)?;
            out.serialize_entry("done", done)?;
            out.serialize_entry("total", total)?;
        }
        _ => {}
    }
    Ok(())
}

/// Writes the members of events of agents and their tools.
fn agent<M: SerializeMap>(out: &mut M, event: &Event) -> Result<(), M::Error> {
    match event {
        Event::AgentText { turn, text, .. } => {
            out.serialize_entry("turn", turn)?;
            out.serialize_entry("text", text)?;
        }
        Event::ToolStarted { effect, name, arguments, .. } => {
            out.serialize_entry("effect", effect.as_str())?;
            out.serialize_entry("tool", name)?;
            let arguments = tree::of_answer(arguments).unwrap_or_else(|_| json!(arguments));
            out.serialize_entry("arguments", &arguments)?;
        }
        Event::ToolEnded { effect, name, error, elapsed_ms, .. } => {
            out.serialize_entry("effect", effect.as_str())?;
            out.serialize_entry("tool", name)?;
            out.serialize_entry("error", error)?;
            out.serialize_entry("duration_ms", elapsed_ms)?;
        }
        Event::Detour { why, .. } => out.serialize_entry("why", why)?,
        Event::ToolsMissing { problems, .. } => out.serialize_entry("problems", problems)?,
        Event::ContextTrimmed { left_out, .. } => out.serialize_entry("left_out", left_out)?,
        _ => {}
    }
    Ok(())
}

/// The published form of an element.
struct Element<'e>(&'e Item);

impl Serialize for Element<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(2))?;
        out.serialize_entry("index", &self.0.index)?;
        out.serialize_entry("label", &self.0.label.as_deref())?;
        out.end()
    }
}

#[cfg(test)]
mod tests;
