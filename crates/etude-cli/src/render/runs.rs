//! Human-readable views of runs: pure functions from documents to text.

pub(crate) mod attempts;
pub(crate) mod diff;
pub(crate) mod list;
pub(crate) mod overview;
pub(crate) mod stats;
pub(crate) mod step;
pub(crate) mod waiting;

use anstyle::{AnsiColor, Style};
use etude_core::report::duration;
use serde_json::Value;

use super::layout::dollars;
use super::text::harmless;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const BLUE: Style = AnsiColor::BrightBlue.on_default();

/// Text member of a document, without sequences that control a terminal.
pub(crate) fn text(value: &Value, member: &str) -> String {
    harmless(value[member].as_str().unwrap_or_default())
}

/// Prefix of a run's id with which commands name it.
pub(crate) fn short(id: &str) -> &str {
    &id[..id.len().min(6)]
}

/// Number with its noun: `1 model call`, `2 model calls`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Calls, tokens and cost of a `usage` member.
pub(crate) fn usage(usage: &Value) -> Vec<String> {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let mut facts = Vec::new();
    if number("calls") > 0 {
        facts.push(counted(number("calls"), "model call"));
        facts.push(format!("{} tokens", number("input_tokens") + number("output_tokens")));
    }
    facts.extend(usage["cost_usd"].as_f64().filter(|cost| *cost > 0.0).map(dollars));
    facts
}

/// Mark of a step's status.
pub(crate) fn mark(row: &Value) -> String {
    let (style, mark) = match row["status"].as_str().unwrap_or_default() {
        "succeeded" => (GREEN, "✓"),
        "failed" => (RED, "✗"),
        "cancelled" => (YELLOW, "■"),
        "skipped" => (DIM, "–"),
        "running" => (BLUE, "▸"),
        "interrupted" => (YELLOW, "!"),
        _ if row["waiting"] == true => (YELLOW, "?"),
        _ => (DIM, "·"),
    };
    format!("{style}{mark}{style:#}")
}

/// Duration, elements, attempts, tokens, cost and model of a step's row.
pub(crate) fn facts(row: &Value) -> String {
    let mut facts = Vec::new();
    match row["status"].as_str().unwrap_or_default() {
        "not_started" if row["waiting"] == true => return "waiting".to_owned(),
        "not_started" => return "not started".to_owned(),
        "skipped" => return "skipped".to_owned(),
        // No record has the start time of this attempt.
        status @ ("running" | "interrupted") => facts.push(status.to_owned()),
        _ => facts.push(duration(row["duration_ms"].as_u64().unwrap_or(0))),
    }
    facts.extend(elements(row));
    let attempts = row["attempts"].as_u64().unwrap_or(0);
    if row["type"] == "skill" && attempts > 0 {
        facts.push(counted(attempts, "turn"));
    } else if let Some(retries) = row["retries"].as_u64().filter(|retries| *retries > 0) {
        facts.push(counted(retries, "retry").replace("retrys", "retries"));
    } else if attempts > 1 && row["items"].is_null() && row["elements"].is_null() {
        facts.push(counted(attempts, "attempt"));
    }
    let usage = usage(&row["usage"]);
    facts.extend(usage.into_iter().skip(1));
    if row["model"].is_string() {
        facts.push(text(row, "model"));
    }
    if row["cached"] == true {
        facts.push("cached".to_owned());
    }
    facts.join(", ")
}

/// Summary of a fan-out: `51 elements: 50 succeeded, 1 failed: [7]`.
pub(crate) fn elements(row: &Value) -> Option<String> {
    let items = &row["items"];
    let Some(total) = items["total"].as_u64() else {
        return row["elements"].as_u64().map(|elements| counted(elements, "element"));
    };
    let indices =
        |name: &str| -> Vec<u64> { items[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect() };
    let number =
        |name: &str| items[name].as_u64().unwrap_or(items[name].as_array().map_or(0, |list| list.len() as u64));
    let mut parts = Vec::new();
    for name in ["succeeded", "failed", "cancelled", "cached"] {
        if number(name) > 0 {
            parts.push(format!("{} {name}", number(name)));
        }
    }
    let failed = [indices("failed"), indices("failed_items")].concat();
    let mut shown: Vec<String> = failed.iter().take(10).map(ToString::to_string).collect();
    if failed.len() > shown.len() {
        shown.push("…".to_owned());
    }
    let which = if shown.is_empty() { String::new() } else { format!(": [{}]", shown.join(", ")) };
    Some(format!("{}: {}{which}", counted(total, "element"), parts.join(", ")))
}
