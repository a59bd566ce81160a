//! Translation of the driver's progress events into spans.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::model::Usage;
use etude_core::report::{Event, StepRow, StepStatus};
use etude_runtime::driver::Progress;

use crate::export::Exporter;
use crate::settings::Settings;
use crate::span::{Attribute, Span, Value, new_id, now_ns};

/// Number of finished spans that are sent at once.
const BATCH: usize = 256;

/// Time since the last export after which waiting spans are sent, in nanoseconds.
const AT_LATEST_NS: u64 = if cfg!(test) { 3_600_000_000_000 } else { 5_000_000_000 };

/// Outcome of a run, for its span.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// The id of the run, exported as `etude.run.id`.
    pub id: String,
    /// `succeeded`, `failed`, `cancelled`, `waiting`.
    pub status: String,
    /// First error: the word of its kind, and the message, which is exported only if content is captured.
    pub error: Option<(String, String)>,
}

/// Builds the spans of one run, or of the part that this process executes.
#[derive(Debug)]
pub struct Tracer {
    exporter: Exporter,
    captures_content: bool,
    root: Span,
    steps: BTreeMap<usize, Step>,
    /// Usage that spans have reported already, by row.
    reported: BTreeMap<usize, Usage>,
    open: BTreeMap<String, Span>,
    ready: Vec<Span>,
    sent_ns: u64,
}

#[derive(Debug)]
struct Step {
    span: Span,
    /// Earliest start of the next model call, in nanoseconds since 1970.
    asked_ns: u64,
}

impl Tracer {
    /// A tracer for a run of `target`; `mode` is `pipeline`, `skill` or `machine`.
    pub fn new(settings: Settings, mode: &str, target: &str) -> Self {
        let trace = settings.parent.as_ref().map_or_else(|| new_id(16), |(trace, _)| trace.clone());
        let attributes = vec![("etude.run.target", target.into()), ("etude.run.mode", mode.into())];
        let root = Span {
            parent: settings.parent.as_ref().map(|(_, span)| span.clone()),
            ..span(None, format!("run {target}"), attributes)
        };
        let captures_content = settings.captures_content;
        Self {
            exporter: Exporter::new(Arc::new(settings), trace),
            captures_content,
            sent_ns: root.start_ns,
            root,
            steps: BTreeMap::new(),
            reported: BTreeMap::new(),
            open: BTreeMap::new(),
            ready: Vec::new(),
        }
    }

    /// Handles an event of the driver. Replayed events get no spans: the earlier process has sent them.
    pub fn observe(&mut self, progress: &Progress<'_>) {
        let Progress::Machine { event, rows, is_replay } = progress else { return };
        if *is_replay {
            self.replayed(event, rows);
        } else {
            self.happened(event, rows);
        }
        let is_due = !self.ready.is_empty() && now_ns().saturating_sub(self.sent_ns) > AT_LATEST_NS;
        if self.ready.len() >= BATCH || is_due {
            self.send();
        }
    }

    /// Opens the span of an invocation outside the run's plan: of a skill or a middleware. `key` identifies it until
    /// [`Tracer::ended`].
    pub fn began(&mut self, key: &str, tool: &str, serves: Option<&str>) {
        let mut attributes: Vec<Attribute> =
            vec![("gen_ai.operation.name", "execute_tool".into()), ("gen_ai.tool.name", tool.into())];
        attributes.extend(serves.map(|target| ("etude.layer.serves", target.into())));
        let opened = span(Some(&self.root), format!("execute_tool {tool}"), attributes);
        self.open.insert(key.to_owned(), opened);
    }

    /// Closes the span of the invocation `key`; `error` is the word for its error.
    pub fn ended(&mut self, key: &str, error: Option<&str>) {
        if let Some(mut span) = self.open.remove(key) {
            span.attributes.extend(error.map(|word| ("error.type", word.into())));
            self.ready.push(closed(span, error.map(str::to_owned)));
        }
    }

    /// Ends the run's span, and waits until all spans are sent.
    ///
    /// # Errors
    /// A short reason why spans were not sent.
    pub async fn finish(mut self, run: &Run) -> Result<(), String> {
        // Spans that are still open were abandoned, or continue in another process.
        let open: Vec<Span> = std::mem::take(&mut self.open).into_values().collect();
        let steps: Vec<Span> = std::mem::take(&mut self.steps).into_values().map(|step| step.span).collect();
        self.ready.extend(open.into_iter().chain(steps).map(|span| closed(span, None)));
        let mut root = self.root.clone();
        root.attributes.push(("etude.run.id", run.id.as_str().into()));
        root.attributes.push(("etude.run.status", run.status.as_str().into()));
        let mut usage = Usage::default();
        self.reported.values().for_each(|reported| usage.add(reported));
        root.attributes.extend(of_usage(&usage));
        let error = run.error.as_ref().map(|(kind, message)| {
            root.attributes.push(("error.type", kind.as_str().into()));
            if self.captures_content { message.clone() } else { kind.clone() }
        });
        self.ready.push(closed(root, error));
        self.send();
        self.exporter.close().await
    }

    fn send(&mut self) {
        self.sent_ns = now_ns();
        for batch in std::mem::take(&mut self.ready).chunks(BATCH) {
            self.exporter.send(batch);
        }
    }

    fn replayed(&mut self, event: &Event, rows: &[StepRow]) {
        if let Event::StepStarted { row, .. } = event {
            self.begin_step(*row, rows);
        }
        let ended = if let Event::StepEnded { row, .. } = event { Some(*row) } else { None };
        // Running steps may gain usage without an event of their own; a step that ended has reported all of its usage.
        for row in self.steps.keys().copied().chain(ended) {
            self.reported.extend(rows.get(row).map(|known| (row, known.usage)));
        }
        ended.and_then(|row| self.steps.remove(&row));
    }

    fn happened(&mut self, event: &Event, rows: &[StepRow]) {
        match event {
            Event::StepStarted { row, .. } => self.begin_step(*row, rows),
            Event::AgentText { row, turn, text } => {
                let mut more: Vec<Attribute> = vec![("etude.turn", u64::from(*turn).into())];
                if self.captures_content && !text.is_empty() {
                    more.push(("etude.said", text.as_str().into()));
                }
                self.chat(*row, rows, more, None);
            }
            Event::AttemptRejected { row, attempt, reasons, .. } => {
                let mut more: Vec<Attribute> = vec![("etude.attempt", u64::from(*attempt).into())];
                if self.captures_content {
                    more.push(("etude.rejected", Value::Texts(reasons.clone())));
                }
                self.chat(*row, rows, more, Some("rejected"));
            }
            Event::ToolStarted { row, effect, name, arguments } => {
                let mut attributes: Vec<Attribute> = vec![
                    ("gen_ai.operation.name", "execute_tool".into()),
                    ("gen_ai.tool.name", name.as_str().into()),
                    ("gen_ai.tool.call.id", effect.as_str().into()),
                ];
                if self.captures_content {
                    attributes.push(("gen_ai.tool.call.arguments", arguments.as_str().into()));
                }
                let parent = self.steps.get(row).map_or(&self.root, |step| &step.span);
                let opened = span(Some(parent), format!("execute_tool {name}"), attributes);
                self.open.insert(effect.as_str().to_owned(), opened);
            }
            Event::ToolEnded { row, effect, error, .. } => {
                // `class/code: message`: the message may hold anything.
                let word = error.as_deref().map(|error| error.split(':').next().unwrap_or(error).trim());
                self.ended(effect.as_str(), word);
                if let Some(step) = self.steps.get_mut(row) {
                    step.asked_ns = now_ns();
                }
            }
            Event::StepEnded { row, status, .. } => self.end_step(*row, *status, rows),
            _ => {}
        }
    }

    fn begin_step(&mut self, row: usize, rows: &[StepRow]) {
        let Some(known) = rows.get(row) else { return };
        let is_agent = matches!(known.kind, "skill" | "machine");
        let mut attributes: Vec<Attribute> = vec![
            ("etude.step.name", known.name.as_str().into()),
            ("etude.step.type", known.kind.into()),
            ("etude.step.phase", known.phase.word().into()),
        ];
        let name = if is_agent {
            attributes.push(("gen_ai.operation.name", "invoke_agent".into()));
            attributes.push(("gen_ai.agent.name", known.name.as_str().into()));
            format!("invoke_agent {}", known.name)
        } else {
            format!("step {}", known.name)
        };
        let span = span(Some(&self.root), name, attributes);
        let asked_ns = span.start_ns;
        self.steps.insert(row, Step { span, asked_ns });
    }

    fn end_step(&mut self, row: usize, status: StepStatus, rows: &[StepRow]) {
        self.chat(row, rows, Vec::new(), None);
        let (Some(mut step), Some(known)) = (self.steps.remove(&row), rows.get(row)) else { return };
        step.span.attributes.push(("etude.step.status", status.word().into()));
        step.span.attributes.push(("etude.step.attempts", u64::from(known.attempts).into()));
        step.span.attributes.extend(of_usage(&known.usage));
        let failed = (status == StepStatus::Failed).then(|| status.word().to_owned());
        self.ready.push(closed(step.span, failed));
    }

    /// Adds the span of a model call if the step's usage has grown since the last report. The call began when the step
    /// did, or at its last completion or tool.
    fn chat(&mut self, row: usize, rows: &[StepRow], more: Vec<Attribute>, error: Option<&str>) {
        let (Some(step), Some(known)) = (self.steps.get_mut(&row), rows.get(row)) else { return };
        let used = since(self.reported.get(&row), &known.usage);
        self.reported.insert(row, known.usage);
        let asked_ns = std::mem::replace(&mut step.asked_ns, now_ns());
        if used.calls == 0 {
            return;
        }
        let mut attributes: Vec<Attribute> = vec![("gen_ai.operation.name", "chat".into())];
        let model = known.model.as_deref().unwrap_or_default();
        let (provider, name) = model.split_once('/').unwrap_or(("", model));
        if !provider.is_empty() {
            attributes.push(("gen_ai.provider.name", provider.into()));
        }
        if !name.is_empty() {
            attributes.push(("gen_ai.request.model", name.into()));
            attributes.push(("gen_ai.response.model", name.into()));
        }
        attributes.extend(of_usage(&used));
        attributes.extend(more);
        attributes.extend(error.map(|word| ("error.type", word.into())));
        let mut chat = span(Some(&step.span), format!("chat {name}").trim_end().to_owned(), attributes);
        chat.start_ns = asked_ns;
        chat.is_client = true;
        self.ready.push(closed(chat, error.map(str::to_owned)));
    }
}

fn span(parent: Option<&Span>, name: String, attributes: Vec<Attribute>) -> Span {
    let start_ns = now_ns();
    let parent = parent.map(|parent| parent.id.clone());
    Span { id: new_id(8), parent, name, is_client: false, start_ns, end_ns: start_ns, attributes, error: None }
}

fn closed(span: Span, error: Option<String>) -> Span {
    let end_ns = now_ns().max(span.start_ns);
    Span { end_ns, error, ..span }
}

/// Usage after `before`.
fn since(before: Option<&Usage>, now: &Usage) -> Usage {
    let Some(before) = before else { return *now };
    Usage {
        calls: now.calls.saturating_sub(before.calls),
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        cached_tokens: now.cached_tokens.saturating_sub(before.cached_tokens),
        reasoning_tokens: now.reasoning_tokens.saturating_sub(before.reasoning_tokens),
        cost_usd: now.cost_usd.map(|cost| cost - before.cost_usd.unwrap_or(0.0)),
    }
}

fn of_usage(usage: &Usage) -> Vec<Attribute> {
    if usage.calls == 0 {
        return Vec::new();
    }
    let mut attributes: Vec<Attribute> = vec![
        ("gen_ai.usage.input_tokens", usage.input_tokens.into()),
        ("gen_ai.usage.output_tokens", usage.output_tokens.into()),
    ];
    if usage.cached_tokens > 0 {
        attributes.push(("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens.into()));
    }
    attributes.extend(usage.cost_usd.map(|cost| ("etude.cost_usd", Value::Float(cost))));
    attributes
}

#[cfg(test)]
mod tests;
