//! Overview of a run on one screen: events, cause, output, usage, and the next command.

use std::fmt::Write;

use etude_core::failure::FailureKind;
use etude_core::report::{self, bytes, duration};
use etude_core::shell;
use etude_runs::inspect::{EffectPlace, Groups};
use serde_json::Value;

use super::attempts::{self, Attempt};
use super::{BLUE, BOLD, DIM, RED, YELLOW, facts, mark, short, text as member, usage};
use crate::render::commands::{complete, in_reason};
use crate::render::layout::{self, Excerpt, clip, wrap};
use crate::render::text::harmless;

/// Maximum number of lines shown of stderr.
const MAX_STDERR: usize = 6;

/// Maximum number of rejected attempts shown.
const MAX_ATTEMPTS: usize = 4;

/// Maximum number of steps shown; beyond it, successful steps are folded.
const MAX_STEPS: usize = 12;

/// Maximum number of lines shown of the output.
pub(crate) const MAX_OUTPUT: usize = 6;

/// Maximum number of lines shown of the input.
const MAX_INPUT: usize = 2;

/// Maximum number of token actions shown; the last ones count.
const MAX_ACTIONS: usize = 5;

/// Data shown besides the document.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Start of the run, in the user's time zone.
    pub(crate) started: String,
    /// Beginning of the output.
    pub(crate) output: Option<Excerpt>,
    /// Command that continues the run, if one does.
    pub(crate) resume: Option<String>,
    /// The groups around steps.
    pub(crate) groups: Groups,
    /// Line width in characters.
    pub(crate) width: usize,
}

/// Code that `etude explain` knows. In errors of stage machines, the member `code` has a word of their own.
fn code(error: &Value) -> String {
    let kind = error["kind"].as_str().filter(|_| !error["class"].is_null()).and_then(FailureKind::from_word);
    kind.map_or_else(|| member(error, "code"), |kind| kind.code().to_owned())
}

/// Renders a `runs show` document.
pub(crate) fn text(document: &Value, extra: &Extra) -> String {
    let mut out = String::new();
    head(&mut out, document, extra);
    for error in document["errors"].as_array().into_iter().flatten() {
        out.push('\n');
        out.push_str(&failure(error, extra.width));
    }
    waiting(&mut out, document);
    steps(&mut out, document, extra);
    if let Some(output) = &extra.output {
        let id = document["run_id"].as_str().unwrap_or_default();
        let _ = writeln!(out, "\n{BOLD}output{BOLD:#}");
        excerpt(&mut out, output, &format!("etude runs show {} --stream output", short(id)));
    }
    next(&mut out, document, extra);
    out
}

fn head(out: &mut String, document: &Value, extra: &Extra) {
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<9} {value}");
    };
    let attempt = document["attempt"].as_u64().filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
    line("run", &format!("{BOLD}{}{BOLD:#}{attempt}", member(document, "run_id")));
    let target = match document["mode"].as_str() {
        Some("machine") => ("machine", member(document, "machine")),
        Some("skill") if document["fell_back"].is_null() => {
            ("skill", member(document, "target").trim_start_matches("skill:").to_owned())
        }
        _ => ("pipeline", member(document, "pipeline")),
    };
    line(target.0, &target.1);
    if let Some(step) = document["fell_back"]["step"].as_str() {
        let writes = match document["fell_back"]["writes_done"].as_u64() {
            None | Some(0) => "before any write".to_owned(),
            Some(1) => "after 1 write".to_owned(),
            Some(many) => format!("after {many} writes"),
        };
        let reason = member(&document["fell_back"], "reason");
        line("mode", &harmless(&format!("skill, since step {step} deviated ({reason}) {writes}")));
    }
    let mut took = vec![duration(document["duration_ms"].as_u64().unwrap_or(0))];
    took.extend(usage(&document["usage"]));
    let status = member(document, "status");
    let style = match status.as_str() {
        "succeeded" => super::GREEN,
        "failed" => RED,
        "running" => BLUE,
        _ => YELLOW,
    };
    line("status", &format!("{style}{status}{style:#} {DIM}({}){DIM:#}", took.join(", ")));
    if let Some(reason) = document["reason"].as_str() {
        line("reason", &harmless(&in_reason(reason.to_owned())));
    }
    line("started", &extra.started);
    let actions = document["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (nth, action) in actions[actions.len().saturating_sub(MAX_ACTIONS)..].iter().enumerate() {
        let [what, by, at] = ["action", "by", "at"].map(|name| member(action, name));
        line(if nth == 0 { "actions" } else { "" }, &format!("{what} by {by} at {at}"));
    }
    line("app", &member(document, "app"));
    if !document["input"].is_null() {
        let input = document["input"].to_string();
        let room = extra.width.saturating_sub(10).max(20);
        let lines = wrap(&clip(&input, room * MAX_INPUT), room);
        line("input", &lines.join(&format!("\n{:10}", "")));
    }
    routing(out, &document["routing"], extra.width);
}

/// Routing of the request in a few lines; prompts and responses are in the document.
fn routing(out: &mut String, routing: &Value, width: usize) {
    if routing.is_null() {
        return;
    }
    let room = width.saturating_sub(10).max(20);
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<9} {}", clip(text, room));
    };
    line("request", &member(routing, "request"));
    if let Some(mode) = routing["decision"]["mode"].as_str() {
        let score = routing["decision"]["score"].as_f64().unwrap_or(0.0);
        line("routed", &format!("by {mode} with score {score:.2}"));
    }
    for (name, source) in routing["sources"].as_object().into_iter().flatten() {
        let text = source["text"].as_str().map(|text| format!(": \"{text}\"")).unwrap_or_default();
        line("", &format!("{name} from {}{text}", member(source, "from")));
    }
    for call in routing["calls"].as_array().into_iter().flatten() {
        let took = duration(call["duration_ms"].as_u64().unwrap_or(0));
        let end = match call["answer"].as_str() {
            Some(answer) => format!("responded after {took}: {answer}"),
            None => format!("no response after {took}: {}", member(call, "error")),
        };
        line("", &format!("model call for {}: {} {end}", member(call, "purpose"), member(call, "model")));
    }
}

/// Renders a failure: its message, the definition of its step, the end of stderr, and the rejected attempts.
pub(crate) fn failure(error: &Value, width: usize) -> String {
    let mut out = String::new();
    let message = member(error, "message");
    let head = format!("error[{}]: ", code(error));
    let lines = wrap(&format!("{head}{message}"), width);
    for (at, line) in lines.iter().enumerate() {
        let _ = match line.strip_prefix(head.trim_end()).filter(|_| at == 0) {
            Some(rest) => writeln!(out, "{RED}{}{RED:#}{BOLD}{rest}{BOLD:#}", head.trim_end()),
            None => writeln!(out, "{line}"),
        };
    }
    if let (Some(file), Some(line)) = (error["file"].as_str(), error["line"].as_u64().filter(|line| *line > 0)) {
        let _ = writeln!(out, "  {BLUE}-->{BLUE:#} {}:{line}", layout::clip(file, width));
    }
    let stderr = member(error, "stderr_tail");
    let all: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    if !all.is_empty() {
        let shown = &all[all.len().saturating_sub(MAX_STDERR)..];
        let total = error["stderr_lines"].as_u64().unwrap_or(0).max(all.len() as u64);
        let which = match total > shown.len() as u64 {
            true => format!("last {} of {total} lines", shown.len()),
            false => super::counted(total, "line"),
        };
        let _ = writeln!(out, "  stderr, {which}:");
        for line in shown {
            let _ = writeln!(out, "  {BLUE}|{BLUE:#} {}", report::clip(line, width.saturating_sub(4)));
        }
    }
    let attempts = Attempt::of_error(error);
    if !attempts.is_empty() {
        out.push_str(&attempts::table(&attempts, MAX_ATTEMPTS, width));
    }
    out
}

fn waiting(out: &mut String, document: &Value) {
    for gate in document["waiting"].as_array().into_iter().flatten() {
        let payload = &gate["payload"];
        let _ = writeln!(out, "\nwaits for {}: {}", member(gate, "kind"), member(payload, "message"));
        out.push_str(&super::waiting::details(super::waiting::given(payload)));
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "      {name:<9} {value}");
        };
        let approvers: Vec<&str> =
            payload["approvers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !approvers.is_empty() {
            line("approvers", harmless(&approvers.join(", ")));
        }
        if let Some(effects) = super::waiting::effects(payload) {
            line("then", effects);
        }
        if let Some(answer) = super::waiting::answer(payload) {
            line("answer", answer);
        }
        let mut decisions = document["decisions"].as_array().into_iter().flatten();
        match decisions.find(|decision| decision["id"] == gate["id"]) {
            Some(decision) => {
                let word = if decision["approved"] == true { "approved" } else { "denied" };
                line(word, format!("by {} at {}", member(decision, "by"), member(decision, "at")));
            }
            None => {
                let command = super::waiting::command(gate);
                for verb in ["approve", "deny"] {
                    let _ = writeln!(out, "      {}", complete(&format!("etude {verb} {command}")));
                }
            }
        }
    }
}

fn steps(out: &mut String, document: &Value, Extra { groups, width, .. }: &Extra) {
    let rows: Vec<&Value> = document["steps"].as_array().into_iter().flatten().collect();
    if rows.is_empty() {
        return;
    }
    // A child of a group is below it.
    let name = |row: &&Value| {
        let id = format!("{}/{}", member(row, "phase"), row["name"].as_str().unwrap_or_default());
        let depth = groups.around(&id).count();
        format!("{}{}", "  ".repeat(depth), clip(row["name"].as_str().unwrap_or_default(), 32))
    };
    let names: Vec<String> = rows.iter().map(name).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let is_quiet = |row: &Value| matches!(row["status"].as_str(), Some("succeeded" | "skipped")) || is_untouched(row);
    let loud = rows.iter().filter(|row| !is_quiet(row)).count();
    let mut room = MAX_STEPS.saturating_sub(loud).max(2);
    let (mut succeeded, mut untouched) = (0_u64, 0_u64);
    let _ = writeln!(out, "\n{BOLD}steps{BOLD:#}");
    let is_folded = rows.len() > MAX_STEPS;
    for (row, name) in rows.iter().zip(&names) {
        if is_folded && is_quiet(row) {
            if room == 0 {
                *if is_untouched(row) { &mut untouched } else { &mut succeeded } += 1;
                continue;
            }
            room -= 1;
        }
        let call = call_of(document, row).map(|call| format!("; {call}")).unwrap_or_default();
        let facts = clip(&format!("{}{call}", facts(row)), width.saturating_sub(widest + 6).max(20));
        let _ = writeln!(out, "  {} {name:<widest$}  {DIM}{facts}{DIM:#}", mark(row));
    }
    let folded = [(succeeded, "succeeded"), (untouched, "not started")];
    let folded = folded.iter().filter(|(number, _)| *number > 0);
    let folded: Vec<String> = folded.map(|(number, what)| format!("{number} more {what}")).collect();
    if !folded.is_empty() {
        let _ = writeln!(out, "  {DIM}… {}{DIM:#}", folded.join(", "));
    }
}

/// Tool call of a tool step.
fn call_of(document: &Value, row: &Value) -> Option<String> {
    let (name, is_tool) = (row["name"].as_str()?, row["type"] == "tool");
    let is_own = |call: &&Value| {
        let place = call["effect"].as_str().and_then(|effect| EffectPlace::of(effect, name));
        is_tool && place.is_some_and(|place| place.turn.is_none() && place.part.is_empty())
    };
    let calls: Vec<&Value> = document["calls"].as_array().into_iter().flatten().filter(is_own).collect();
    let tool = member(calls.first()?, "tool");
    Some(match calls.len() {
        1 => harmless(&format!("{tool} {}", calls[0]["arguments"])).to_string(),
        many => format!("{tool}, {many} calls"),
    })
}

fn is_untouched(row: &Value) -> bool {
    row["status"] == "not_started" && row["waiting"] != true
}

/// Renders an excerpt. If it is cut, the command that prints the whole value follows.
pub(crate) fn excerpt(out: &mut String, excerpt: &Excerpt, command: &str) {
    for line in &excerpt.lines {
        let _ = writeln!(out, "  {line}");
    }
    if excerpt.hidden > 0 {
        let hidden = bytes(excerpt.hidden as u64);
        let _ = writeln!(out, "  {DIM}… {hidden} more:{DIM:#} {}", complete(command));
    }
}

/// Next useful commands, the most useful one first.
fn next(out: &mut String, document: &Value, extra: &Extra) {
    let id = document["run_id"].as_str().unwrap_or_default();
    let id = short(id);
    let mut commands: Vec<(String, &str)> = Vec::new();
    let error = &document["errors"][0];
    let step = error["step"].as_str().map(str::to_owned).or_else(|| {
        let rows = document["steps"].as_array().into_iter().flatten();
        rows.rev().find(|row| !is_untouched(row) && row["status"] != "skipped")?["name"].as_str().map(str::to_owned)
    });
    match document["status"].as_str().unwrap_or_default() {
        "running" => commands.push((format!("etude runs watch {id}"), "follow it")),
        "interrupted" => commands.push((format!("etude runs resume {id}"), "continue where it stopped")),
        "waiting" => {
            let count = |name: &str| document[name].as_array().map_or(0, Vec::len);
            let is_decided = count("decisions") > 0 && count("decisions") == count("waiting");
            let what = if is_decided { "continue: the decision has been made" } else { "continue after the decision" };
            commands.push((format!("etude runs resume {id}"), what));
        }
        _ => {}
    }
    if let Some(step) = &step {
        let step = shell::word(&layout::clip(step, 64));
        commands.push((format!("etude runs show {id} {step}"), "the step's attempts, input and output"));
    }
    commands.extend(extra.resume.iter().map(|command| (command.clone(), "continue after the cause is fixed")));
    if !error["code"].is_null() {
        commands.push((format!("etude explain {}", layout::clip(&code(error), 16)), "explain the error"));
    }
    commands.iter_mut().for_each(|(command, _)| *command = complete(command));
    let widest = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    for (at, (command, what)) in commands.iter().enumerate() {
        let label = if at == 0 { "\nnext" } else { "    " };
        let _ = writeln!(out, "{label}      {command:<widest$}  {DIM}{what}{DIM:#}");
    }
}

#[cfg(test)]
mod tests;
