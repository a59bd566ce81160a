//! The published form of events.

use etude_core::report::{Event, Item, StepRow, fell_back_json, items_json, usage_json};
use etude_core::tree;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// An event in its published form, without a time.
pub fn event_json(event: &Event, rows: &[StepRow]) -> Value {
    let mut tree = Tree(Map::new());
    // Keys are strings, and no value fails to be serialized.
    let written = Published { event, rows, seq: None, at: None }.put_all(&mut tree);
    written.map_or(Value::Null, |()| Value::Object(tree.0))
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
        Event::Stage { name, .. } => name,
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

/// The receiver of the members of a published event, in their order.
trait Members {
    /// Adds a member. No character of `name` has an escape.
    fn put(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()>;
}

/// The members as a tree.
struct Tree(Map<String, Value>);

impl Members for Tree {
    fn put(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        self.0.insert(name.to_owned(), serde_json::to_value(value)?);
        Ok(())
    }
}

/// The members as the text of an object without its end.
struct Text<'t>(&'t mut Vec<u8>);

impl Members for Text<'_> {
    fn put(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
        self.0.extend_from_slice(if self.0.is_empty() { b"{\"" } else { b",\"" });
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        serde_json::to_writer(&mut *self.0, value)
    }
}

impl Published<'_> {
    /// Writes the event into `text`, which is empty.
    pub(super) fn write(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
        self.put_all(&mut Text(text))?;
        text.push(b'}');
        Ok(())
    }

    fn put_all(&self, out: &mut impl Members) -> serde_json::Result<()> {
        self.members(out)?;
        self.at.map_or(Ok(()), |at| out.put("at", at))
    }

    /// Writes all members but the time.
    fn members(&self, out: &mut impl Members) -> serde_json::Result<()> {
        if let Event::FellBack { fell_back, message } = self.event {
            for (name, value) in fell_back_json(fell_back).as_object().into_iter().flatten() {
                out.put(name, value)?;
            }
            out.put("event", name_of(self.event))?;
            return out.put("message", message);
        }
        out.put("event", name_of(self.event))?;
        match self.event {
            Event::FellBack { .. } => {}
            Event::PhaseStarted(phase) => out.put("phase", phase.word())?,
            Event::Stage { payload, .. } => {
                if let Some(seq) = &self.seq {
                    out.put("seq", seq)?;
                }
                out.put("payload", &payload.value().unwrap_or_default())?;
            }
            Event::StepStarted { row, item } => {
                self.step(out, *row)?;
                element(out, item.as_ref())?;
            }
            Event::StepEnded { row, item, status, duration_ms } => {
                self.step(out, *row)?;
                element(out, item.as_ref())?;
                out.put("status", status.word())?;
                let row = &self.rows[*row];
                out.put("attempts", &row.attempts)?;
                out.put("duration_ms", if item.is_some() { duration_ms } else { &row.duration_ms })?;
                end(out, row)?;
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
    fn step(&self, out: &mut impl Members, row: usize) -> serde_json::Result<()> {
        let row = &self.rows[row];
        out.put("phase", row.phase.word())?;
        out.put("step", &row.name)?;
        out.put("type", row.kind)
    }
}

/// Writes the element that an event is about.
fn element(out: &mut impl Members, item: Option<&Item>) -> serde_json::Result<()> {
    item.map_or(Ok(()), |item| out.put("item", &Element::of(item)))
}

/// Writes further facts of a step that is over, of all elements together.
fn end(out: &mut impl Members, row: &StepRow) -> serde_json::Result<()> {
    if row.retries > 0 {
        out.put("retries", &row.retries)?;
    }
    if row.cached {
        out.put("cached", &true)?;
    }
    if let Some(items) = &row.items {
        out.put("items", &items_json(items))?;
    }
    if row.usage.calls > 0 {
        out.put("usage", &usage_json(&row.usage))?;
    }
    if let Some(model) = &row.model {
        out.put("model", model)?;
    }
    Ok(())
}

/// Writes the members of events of attempts and of the elements of a `for_each`.
fn work(out: &mut impl Members, event: &Event) -> serde_json::Result<()> {
    match event {
        Event::AttemptRejected { item, attempt, max_attempts, rejected_by, reasons, .. } => {
            out.put("attempt", attempt)?;
            out.put("max_attempts", max_attempts)?;
            out.put("rejected_by", rejected_by.word())?;
            out.put("errors", reasons)?;
            element(out, item.as_ref())?;
        }
        Event::ItemStarted { item, .. } => out.put("item", &Element::of(item))?,
        Event::ItemEnded { item, status, cached, error, done, total, .. } => {
            out.put("item", &Element::of(item))?;
            out.put("status", status.word())?;
            out.put("cached", cached)?;
            out.put("error", error)?;
            out.put("done", done)?;
            out.put("total", total)?;
        }
        _ => {}
    }
    Ok(())
}

/// Writes the members of events of agents and their tools.
fn agent(out: &mut impl Members, event: &Event) -> serde_json::Result<()> {
    match event {
        Event::AgentText { turn, text, .. } => {
            out.put("turn", turn)?;
            out.put("text", text)?;
        }
        Event::ToolStarted { effect, name, arguments, .. } => {
            out.put("effect", effect.as_str())?;
            out.put("tool", name)?;
            let arguments = tree::parse_response(arguments).unwrap_or_else(|_| json!(arguments));
            out.put("arguments", &arguments)?;
        }
        Event::ToolEnded { effect, name, error, elapsed_ms, .. } => {
            out.put("effect", effect.as_str())?;
            out.put("tool", name)?;
            out.put("error", error)?;
            out.put("duration_ms", elapsed_ms)?;
        }
        Event::Detour { why, .. } => out.put("why", why)?,
        Event::ToolsMissing { problems, .. } => out.put("problems", problems)?,
        Event::ContextTrimmed { left_out, .. } => out.put("left_out", left_out)?,
        _ => {}
    }
    Ok(())
}

/// The published form of an element.
#[derive(Serialize)]
struct Element<'e> {
    index: usize,
    label: Option<&'e str>,
}

impl<'e> Element<'e> {
    fn of(item: &'e Item) -> Self {
        Self { index: item.index, label: item.label.as_deref() }
    }
}

#[cfg(test)]
mod tests;
