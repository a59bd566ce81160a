//! Commands and results as lines of text.

use std::fmt::Write;

use crate::effect::{Command, Effect, EffectId};
use crate::failure::Failure;
use crate::model::{Part, Request, Usage};
use crate::report::{Event, Item, RunResult, StepRow};

/// Prefix of the lines of events.
pub(super) const EVENT: &str = "emit";

pub(super) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Process(call) => {
            let words = match &call.command {
                Command::Direct(words) => words.join(" "),
                Command::Shell(line) => format!("sh -c {line}"),
                Command::Script(path) => format!("script {path}"),
            };
            let env: String = call.env.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            let sandbox = call.setting.sandbox.as_ref().map(|sandbox| {
                let network = if sandbox.network { " network" } else { "" };
                format!(" sandboxed{network} read {} write {}", sandbox.read.join(" "), sandbox.write.join(" "))
            });
            format!("process {words}{env}{}", sandbox.unwrap_or_default())
        }
        Effect::Model(request) => format!("model {}: {}", request.tier, last_words(request)),
        Effect::Open(tool_selection) => match &tool_selection.allowed {
            Some(allowed) => format!("open {}", allowed.join(" ")),
            None => "open everything".to_owned(),
        },
        Effect::Tool(call) => {
            let approved = if call.is_approved { ", approved" } else { "" };
            format!("tool {} {}{approved}", call.name, call.arguments)
        }
        Effect::Sleep { ms, deadline: true } => format!("deadline {ms} ms"),
        Effect::Sleep { ms, deadline: false } => format!("sleep {ms} ms"),
        Effect::Gate(gate) => format!("gate {}", gate.message),
        Effect::Scan(_) => "scan".to_owned(),
        Effect::Recall { ttl_ms: None, .. } => "recall".to_owned(),
        Effect::Recall { ttl_ms: Some(ms), .. } => format!("recall, at most {ms} ms old"),
        Effect::Remember { output, .. } => format!("remember {output:?}"),
    }
}

fn last_words(request: &Request) -> String {
    match request.messages.as_slice() {
        [only] => match only.parts.first() {
            Some(Part::Text(text)) => text.clone(),
            _ => String::new(),
        },
        more => format!("({} messages)", more.len()),
    }
}

pub(super) fn event(event: &Event, rows: &[StepRow]) -> String {
    let name = |row: &usize| &rows[*row].name;
    let shown = |item: Option<&Item>| item.map(ToString::to_string).unwrap_or_default();
    match event {
        Event::PhaseStarted(phase) => format!("{EVENT} phase {}", phase.word()),
        Event::FellBack { fell_back, message } => {
            let (step, reason, writes) = (&fell_back.step, fell_back.reason.word(), fell_back.writes_done);
            format!("{EVENT} fell back at {step}: {reason}, writes {writes}: {message}")
        }
        Event::StepStarted { row, item } => format!("{EVENT} step {}{} started", name(row), shown(item.as_ref())),
        Event::AttemptRejected { row, item, attempt, max_attempts, rejected_by, reasons } => {
            let (name, item) = (name(row), shown(item.as_ref()));
            let (by, why) = (rejected_by.word(), reasons.join("; "));
            format!("{EVENT} step {name}{item} try {attempt} of {max_attempts} rejected by {by}: {why}")
        }
        Event::StepEnded { row, item, status, .. } => {
            format!("{EVENT} step {}{} {}", name(row), shown(item.as_ref()), status.word())
        }
        Event::AgentText { row, turn, text } => format!("{EVENT} step {} turn {turn} says {text}", name(row)),
        Event::ToolStarted { row, effect, .. } => format!("{EVENT} step {} calls {effect}", name(row)),
        Event::ToolEnded { row, effect, error, .. } => match error {
            Some(error) => format!("{EVENT} step {} {effect} failed: {error}", name(row)),
            None => format!("{EVENT} step {} {effect} over", name(row)),
        },
        Event::Detour { row, why } => format!("{EVENT} step {} detour: {why}", name(row)),
        Event::ToolsMissing { row, problems } => {
            format!("{EVENT} step {} tools missing: {}", name(row), problems.join("; "))
        }
        Event::ContextTrimmed { row, left_out } => format!("{EVENT} step {} left out {left_out}", name(row)),
        Event::Stage { name, payload } => format!("{EVENT} {name} {payload:?}"),
        Event::ItemStarted { row, item } => format!("{EVENT} item {}{item} started", name(row)),
        Event::ItemEnded { row, item, status, cached, error: _, done, total } => {
            let cached = if *cached { ", cached" } else { "" };
            format!("{EVENT} item {}{item} {}{cached}, {done} of {total}", name(row), status.word())
        }
    }
}

pub(super) fn result(result: &RunResult) -> String {
    let mut out = format!("result {}", result.status.word());
    match &result.output {
        Some(output) => writeln!(out, " {output:?}").expect("text"),
        None => out.push('\n'),
    }
    for failure in &result.errors {
        out.push_str(&error(failure));
    }
    for row in &result.steps {
        writeln!(out, "row {}", self::row(row)).expect("text");
    }
    if result.usage.calls > 0 {
        writeln!(out, "usage {}", usage(&result.usage)).expect("text");
    }
    out
}

fn error(failure: &Failure) -> String {
    let phase = failure.phase.map_or("?", |phase| phase.word());
    let step = failure.step.as_deref().unwrap_or("?");
    let mut out = format!("error {} {phase}/{step} {}\n", failure.kind.word(), failure.message);
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            writeln!(out, "  {name} {value}").expect("text");
        }
    };
    fact("at", failure.origin.as_ref().map(|origin| origin.file.clone()));
    fact("exit", failure.exit_status.map(|status| status.to_string()));
    fact("signal", failure.signal.clone());
    fact("stderr", failure.stderr.as_ref().map(|stderr| stderr.tail.clone()).filter(|tail| !tail.is_empty()));
    for attempt in &failure.attempts {
        let by = attempt.rejected_by.word();
        let spent = format!("{} ms, {} tokens", attempt.elapsed_ms, attempt.tokens);
        fact("try", Some(format!("rejected by {by} ({spent}): {}", attempt.errors.join("; "))));
    }
    fact("item", failure.item.map(|item| item.to_string()));
    fact("details", failure.details.as_ref().map(|details| format!("{details:?}")));
    out
}

fn row(row: &StepRow) -> String {
    let mut out = format!("{}/{} {} {}", row.phase.word(), row.name, row.kind, row.status.word());
    if row.attempts > 0 || row.duration_ms > 0 {
        write!(out, ", tries {}, {} ms", row.attempts, row.duration_ms).expect("text");
    }
    if row.retries > 0 {
        write!(out, ", retries {}", row.retries).expect("text");
    }
    if let Some(items) = &row.items {
        write!(out, ", items {items}").expect("text");
    }
    if row.cached {
        out.push_str(", cached");
    }
    if row.usage.calls > 0 {
        write!(out, ", {}", usage(&row.usage)).expect("text");
    }
    out
}

fn usage(usage: &Usage) -> String {
    let cost = usage.cost_usd.map(|cost| format!(" ${cost}")).unwrap_or_default();
    format!("calls {} tokens {}+{}{cost}", usage.calls, usage.input_tokens, usage.output_tokens)
}

/// The effects of a row, for assertions that the log leaves out.
pub(super) fn ids(effects: &[EffectId]) -> Vec<&str> {
    effects.iter().map(EffectId::as_str).collect()
}
