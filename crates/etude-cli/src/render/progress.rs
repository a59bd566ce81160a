//! Live tree of steps on stderr; plain lines where there is no terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use etude_core::data::Json;
use etude_core::effect::EffectId;
use etude_core::failure::RejectedBy;
use etude_core::report::{Event, Item, StepRow, StepStatus, duration};
use etude_runtime::driver::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::fan_out::Elements;
use super::layout::clip;
use super::live::{Live, step_of};
use super::middleware;
use super::text::harmless;
use super::waits::Waits;

const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default();

/// Verbosity of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// No line at all.
    Quiet,
    /// Steps, retries, and the stderr of scripts.
    Normal,
    /// Additionally starts of steps, full arguments and model responses, and the work of earlier processes.
    Verbose,
}

/// An active step.
#[derive(Debug)]
struct Running {
    bar: ProgressBar,
    name: String,
    kind: &'static str,
    /// Model call whose response arrives, and the number of characters so far.
    answer: Option<(EffectId, usize)>,
    /// Number of finished elements of a fan-out, and number of all.
    done: (usize, usize),
}

/// Progress display of a run.
#[derive(Debug)]
pub(crate) struct Face {
    loudness: Loudness,
    /// True if colours are wanted. Spinners bypass the filter that removes colours from lines.
    has_colors: bool,
    bars: Option<MultiProgress>,
    running: BTreeMap<usize, Running>,
    /// Elements of fan-outs, by the row of their step.
    elements: BTreeMap<usize, Elements>,
    waits: Waits,
    /// Live text of an agent.
    live: Option<Live>,
    /// Active tool calls that only a spinner shows.
    calls: BTreeMap<EffectId, String>,
    /// Unfinished lines of scripts.
    partial: BTreeMap<EffectId, Vec<u8>>,
    /// Reasons that were already reported.
    detours: BTreeSet<String>,
}

impl Face {
    /// Creates a live tree if `is_terminal`, else prints lines.
    pub(crate) fn new(loudness: Loudness, is_terminal: bool, has_colors: bool) -> Self {
        let bars = (is_terminal && loudness != Loudness::Quiet)
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));
        let (running, elements, calls, partial) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            loudness,
            has_colors,
            bars,
            running,
            elements,
            waits: Waits::default(),
            live: None,
            calls,
            partial,
            detours: BTreeSet::new(),
        }
    }

    /// Dimmed style, if colours are wanted.
    fn dim(&self) -> Style {
        if self.has_colors { DIM } else { Style::new() }
    }

    fn is_verbose(&self) -> bool {
        self.loudness == Loudness::Verbose
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, progress: &Progress<'_>) {
        if self.loudness == Loudness::Quiet {
            return;
        }
        match progress {
            Progress::Machine { event, rows, is_replay } => self.show_event(event, rows, *is_replay),
            Progress::Stderr { effect, bytes } => self.show_stderr(effect, bytes),
            Progress::Middleware(reported) => {
                if let Some(line) = middleware::line(reported) {
                    self.line(&format!("{DIM}{line}{DIM:#}"));
                }
            }
            Progress::Waiting { effect, wait } => {
                if let Some((call, text)) = self.waits.line(effect, wait, self.is_verbose()) {
                    self.line(&format!("{YELLOW}  ↻ {call}{YELLOW:#} {text}"));
                }
            }
            Progress::ModelResponse { effect, text, is_again } => self.show_answer(effect, text, *is_again),
        }
    }

    fn show_event(&mut self, event: &Event, rows: &[StepRow], is_replay: bool) {
        match event {
            Event::PhaseStarted(_) => {}
            Event::FellBack { .. } if is_replay => {}
            Event::FellBack { fell_back, message } => {
                let (name, step, reason) = (&fell_back.pipeline, &fell_back.step, fell_back.reason.word());
                let why = clip(message, 300);
                self.line(&format!(
                    "{YELLOW}  ↪ {name}{YELLOW:#} deviates at {step} ({reason}): {why}; following SKILL.md"
                ));
            }
            Event::StepStarted { .. } | Event::StepEnded { .. } => self.show_step(event, rows, is_replay),
            Event::AttemptRejected { .. } | Event::ItemStarted { .. } | Event::ItemEnded { .. } => {
                self.show_work(event, rows, is_replay);
            }
            Event::Stage { .. } if is_replay => {}
            Event::Stage { name, payload } => self.stage(name, payload),
            Event::AgentText { .. }
            | Event::ToolStarted { .. }
            | Event::ToolEnded { .. }
            | Event::ToolsMissing { .. }
            | Event::Detour { .. }
            | Event::ContextTrimmed { .. }
                if is_replay => {}
            Event::AgentText { row, text, .. } => {
                self.fall_silent(*row);
                self.said(text);
            }
            // One reason often applies to many steps.
            Event::Detour { why, .. } => {
                if self.detours.insert(why.clone()) {
                    self.line(&format!("{YELLOW}    ! {YELLOW:#}{}", harmless(why)));
                }
            }
            Event::ToolsMissing { problems, .. } => {
                for problem in problems {
                    self.line(&format!("{YELLOW}    ! {YELLOW:#}{}", harmless(problem)));
                }
            }
            Event::ToolStarted { row, effect, name, arguments } => {
                let dim = self.dim();
                let call = one_line(&format!("{name} {arguments}"));
                match self.running.get(row) {
                    _ if self.is_verbose() => {
                        self.line(&format!("{DIM}    → {} {}{DIM:#}", harmless(name), harmless(arguments)));
                    }
                    Some(step) => {
                        step.bar.set_message(format!("{} {dim}{call}{dim:#}", rows[*row].name));
                        self.calls.insert(effect.clone(), call);
                    }
                    None => self.line(&format!("{DIM}    → {call}{DIM:#}")),
                }
            }
            Event::ToolEnded { effect, name, error, elapsed_ms, .. } => {
                let call = self.calls.remove(effect).unwrap_or_else(|| harmless(name));
                let (style, mark) = if error.is_some() { (YELLOW, "!") } else { (DIM, "·") };
                let why = error.as_ref().map(|why| format!(": {}", clip(why, 300))).unwrap_or_default();
                let took = duration(*elapsed_ms);
                self.line(&format!("{style}    {mark}{style:#} {call} {DIM}{took}{DIM:#}{why}"));
            }
            Event::ContextTrimmed { left_out, .. } => {
                self.line(&format!("{DIM}    {left_out} older results are no longer sent to the model{DIM:#}"));
            }
        }
    }

    /// Shows the start and the end of a step.
    fn show_step(&mut self, event: &Event, rows: &[StepRow], is_replay: bool) {
        match event {
            Event::StepStarted { .. } if is_replay => {}
            Event::StepStarted { row, item } => {
                self.begin(*row, &of_item(&rows[*row].name, item.as_ref()), rows[*row].kind);
            }
            Event::StepEnded { row, item: None, .. } => {
                self.end(*row, &harmless(&rows[*row].name), &rows[*row], is_replay);
            }
            // The line about the element has the failure. A thousand elements would print thousands of lines.
            Event::StepEnded { row, .. } if !self.is_verbose() => self.clear(*row),
            Event::StepEnded { row, item, status, duration_ms } => {
                // The row has the facts of all elements together.
                let step = &rows[*row];
                let own = StepRow::new(step.phase, step.name.clone(), step.kind);
                let own = StepRow { status: *status, duration_ms: *duration_ms, ..own };
                self.end(*row, &of_item(&step.name, item.as_ref()), &own, is_replay);
            }
            _ => {}
        }
    }

    /// Shows events of attempts and of the elements of a `for_each`.
    fn show_work(&mut self, event: &Event, rows: &[StepRow], is_replay: bool) {
        match event {
            Event::AttemptRejected { .. } if is_replay => {}
            Event::AttemptRejected { row, item, attempt, max_attempts, rejected_by, reasons } => {
                let (name, reason) = (of_item(&rows[*row].name, item.as_ref()), clip(&reasons.join("; "), 300));
                let what = match rejected_by {
                    RejectedBy::Schema => "response rejected by schema",
                    RejectedBy::Validate => "response rejected by validate",
                    RejectedBy::Transport => "failed",
                };
                let next = attempt + 1;
                let line = || format!("{name}{YELLOW:#} {what}: {reason}, attempt {next} of {max_attempts}");
                self.repeated(*row, line);
            }
            Event::ItemStarted { row, item } => {
                self.elements.entry(*row).or_default().begin(item);
                let total = rows[*row].items.as_ref().map_or(0, |items| items.total);
                self.show_elements(*row, None, total, &rows[*row].name);
            }
            Event::ItemEnded { row, item, status, cached, error, done, total } => {
                let is_verbose = self.is_verbose();
                let elements = self.elements.entry(*row).or_default();
                let line = elements.end(item, *status, error.as_deref(), *cached, is_verbose);
                if !is_replay {
                    self.show_element(&rows[*row].name, *status, line);
                }
                self.show_elements(*row, Some(*done), *total, &rows[*row].name);
                if !is_replay && self.bars.is_none() && Elements::is_milestone(*done, *total) {
                    self.line(&format!("{DIM}    {} {done} of {total}{DIM:#}", rows[*row].name));
                }
            }
            _ => {}
        }
    }

    /// Reports a repeated attempt, unless the step has reached its number of lines.
    fn repeated(&mut self, row: usize, line: impl FnOnce() -> String) {
        let is_verbose = self.is_verbose();
        if let Some(line) = self.elements.entry(row).or_default().repeat(is_verbose, line) {
            self.line(&format!("{YELLOW}  ↻ {line}"));
        }
    }

    /// Prints the line about an element that has ended.
    fn show_element(&self, step: &str, status: StepStatus, line: Option<String>) {
        let Some(line) = line else { return };
        let (style, mark) = mark(status);
        self.line(&format!("{style}    {mark}{style:#} {step}{line}"));
    }

    /// Shows the progress of a fan-out beside the spinner.
    fn show_elements(&mut self, row: usize, done: Option<usize>, total: usize, name: &str) {
        let dim = self.dim();
        let (Some(step), Some(elements)) = (self.running.get_mut(&row), self.elements.get(&row)) else { return };
        step.done = (done.unwrap_or(step.done.0), total);
        step.bar.set_message(format!("{name} {dim}{}{dim:#}", elements.message(step.done.0, step.done.1)));
    }

    /// Prints the events of a stage machine that deserve a line.
    fn stage(&self, name: &str, payload: &Json) {
        let payload = payload.value().unwrap_or_default();
        let text = |member: &str| harmless(payload[member].as_str().unwrap_or_default());
        let stage = text("stageId");
        match name {
            "StageExecutionSpanStart" => self.line(&format!("  ▸ {stage}")),
            "ToolInvocationStarted" => {
                let args: String = payload["args"].to_string().chars().take(100).collect();
                self.line(&format!("{DIM}    {} {}{DIM:#}", text("toolName"), harmless(&args)));
            }
            "ToolInvocationFailed" => {
                self.line(&format!("{YELLOW}    {} failed:{YELLOW:#} {}", text("toolName"), text("reason")));
            }
            "StageWarning" => self.line(&format!("{YELLOW}    warning:{YELLOW:#} {}", text("detail"))),
            "StageGateOutcome" if payload["effect"] != "act" => {
                self.line(&format!("{YELLOW}    {}{YELLOW:#} {}", text("outcome"), text("reason")));
            }
            "StageAssertOutcome" if payload["verdict"] == "retry" => {
                self.line(&format!("{YELLOW}  ↻ {stage}{YELLOW:#} {}", text("reason")));
            }
            "StageExited" => self.line(&format!("  {stage}: {}", text("verdict"))),
            _ => {}
        }
    }

    /// Prints the text of a model between its tool calls.
    fn said(&self, text: &str) {
        let text = harmless(text.trim());
        let shown: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
        if !shown.is_empty() {
            self.line(&shown.join("\n"));
        }
    }

    fn begin(&mut self, row: usize, name: &str, kind: &'static str) {
        if self.is_verbose() {
            self.line(&format!("  ▸ {name} {DIM}{kind}{DIM:#}"));
        }
        let dim = self.dim();
        let Some(bars) = &self.bars else { return };
        let bar = bars.add(ProgressBar::new_spinner());
        let template =
            if self.has_colors { "  {spinner:.cyan} {msg} {elapsed:.dim}" } else { "  {spinner} {msg} {elapsed}" };
        // The template is a constant; a default bar would be shown if it were wrong.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(format!("{name} {dim}{kind}{dim:#}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        self.running.insert(row, Running { bar, name: name.to_owned(), kind, answer: None, done: (0, 0) });
    }

    /// Shows a response while it arrives: an agent's text itself, of data only the amount. Elements of a fan-out run
    /// concurrently and are reported when they are done.
    fn show_answer(&mut self, effect: &EffectId, text: &str, is_again: bool) {
        let dim = self.dim();
        let Some(bars) = &self.bars else { return };
        let Some(name) = step_of(effect) else { return };
        let Some((row, step)) = self.running.iter_mut().find(|(_, step)| step.name == name) else { return };
        let is_known = step.answer.as_ref().is_some_and(|(known, _)| known == effect);
        let before = step.answer.as_ref().filter(|_| is_known && !is_again).map_or(0, |(_, characters)| *characters);
        let characters = before + text.chars().count();
        step.answer = Some((effect.clone(), characters));
        match step.kind {
            "llm" => step.bar.set_message(format!("{name} {dim}llm, {characters} characters{dim:#}")),
            // Only one agent is shown live; the text of others is shown when it is complete.
            "skill" if self.live.as_ref().is_none_or(|live| live.row == *row) => {
                if !is_known {
                    step.bar.set_message(format!("{name} {dim}answering{dim:#}"));
                }
                let live = self.live.get_or_insert_with(|| Live::new(*row, bars, &step.bar));
                if !is_known || is_again {
                    live.clear();
                }
                live.say(text);
            }
            _ => {}
        }
    }

    /// Removes the live text of a step, before it is shown in its final form.
    fn fall_silent(&mut self, row: usize) {
        if let Some(live) = self.live.take_if(|live| live.row == row) {
            live.close();
        }
    }

    fn end(&mut self, row: usize, name: &str, step: &StepRow, is_replay: bool) {
        self.clear(row);
        let (style, mark) = mark(step.status);
        self.line(&format!("{style}  {mark}{style:#} {name} {DIM}{}{DIM:#}", facts(step, is_replay)));
    }

    /// Removes what is shown about a step at work.
    fn clear(&mut self, row: usize) {
        self.fall_silent(row);
        if let Some(step) = self.running.remove(&row) {
            step.bar.finish_and_clear();
        }
        self.elements.remove(&row);
    }

    fn show_stderr(&mut self, effect: &EffectId, bytes: &[u8]) {
        let mut buffer = self.partial.remove(effect).unwrap_or_default();
        buffer.extend_from_slice(bytes);
        let mut whole = buffer.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        // A very long line is shown in pieces.
        if buffer.len() - whole > 8 * 1024 {
            whole = buffer.len();
        }
        if whole < buffer.len() {
            self.partial.insert(effect.clone(), buffer.split_off(whole));
        }
        self.stderr_lines(effect, &buffer);
    }

    /// Shows lines in one write: a step with much output must not be slowed by one write per line.
    fn stderr_lines(&self, effect: &EffectId, lines: &[u8]) {
        let name = effect.as_str().split_once('/').map_or(effect.as_str(), |(_, rest)| rest);
        let text = harmless(&String::from_utf8_lossy(lines));
        let shown: Vec<String> = text.lines().map(|line| format!("{DIM}    {name} | {DIM:#}{line}")).collect();
        if !shown.is_empty() {
            self.line(&shown.join("\n"));
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| crate::render::say!("{text}")),
            None => crate::render::say!("{text}"),
        }
    }

    /// Clears the display, and shows the ends of unfinished lines.
    pub(crate) fn close(mut self) {
        if let Some(live) = self.live.take() {
            live.close();
        }
        for step in std::mem::take(&mut self.running).into_values() {
            step.bar.finish_and_clear();
        }
        for (effect, line) in std::mem::take(&mut self.partial) {
            self.stderr_lines(&effect, &line);
        }
    }
}

/// Beginning of a text that may be long and have several lines.
fn one_line(text: &str) -> String {
    clip(text, 100)
}

fn mark(status: StepStatus) -> (Style, &'static str) {
    match status {
        StepStatus::Succeeded => (GREEN, "✓"),
        StepStatus::Skipped => (DIM, "–"),
        StepStatus::Cancelled => (YELLOW, "■"),
        _ => (RED, "✗"),
    }
}

/// A step, with the element that it works on: `review[7] invoice-7.pdf`.
fn of_item(step: &str, item: Option<&Item>) -> String {
    harmless(&item.map_or_else(|| step.to_owned(), |item| format!("{step}{item}")))
}

/// Elements, time, retries, tokens and model of a step that has ended.
fn facts(step: &StepRow, is_replay: bool) -> String {
    let mut facts: Vec<String> = step.items.iter().map(ToString::to_string).collect();
    match step.status {
        StepStatus::Skipped => facts.push("skipped".to_owned()),
        StepStatus::Cancelled => facts.push(format!("stopped after {}", duration(step.duration_ms))),
        _ => facts.push(duration(step.duration_ms)),
    }
    match step.retries {
        0 if step.kind == "skill" && step.attempts > 1 => facts.push(format!("{} turns", step.attempts)),
        0 => {}
        1 => facts.push("1 retry".to_owned()),
        many => facts.push(format!("{many} retries")),
    }
    let tokens = step.usage.input_tokens + step.usage.output_tokens;
    if tokens > 0 {
        facts.push(format!("{tokens} tokens"));
    }
    if let Some(cost) = step.usage.cost_usd.filter(|cost| *cost > 0.0) {
        facts.push(format!("${cost:.4}"));
    }
    if let Some(model) = &step.model {
        facts.push(harmless(model));
    }
    match &step.items {
        Some(items) if items.cached > 0 && !step.cached => facts.push(format!("{} cached", items.cached)),
        _ if step.cached => facts.push("cached".to_owned()),
        _ => {}
    }
    if is_replay {
        facts.push("done before".to_owned());
    }
    facts.join(", ")
}
