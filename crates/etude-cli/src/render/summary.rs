//! Last lines of a run: its outcome, its usage, and the next command.

use anstyle::{AnsiColor, Style};
use etude::budget;
use etude::runner::RunResult;
use etude_core::failure::{Failure, FailureKind};
use etude_core::report::{Items, duration};
use etude_runtime::record;
use serde_json::Value;

use super::runs::waiting as questions;
use super::text::harmless;
use super::{commands, failure};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const CYAN: Style = AnsiColor::Cyan.on_default();

/// The next step after the decision that a run waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AfterDecision {
    /// A command continues the run.
    Resume,
    /// A worker or a server continues the run.
    Watch,
}

impl AfterDecision {
    fn hint(self, id: &str) -> String {
        match self {
            Self::Resume => format!("then: etude runs resume {id}"),
            Self::Watch => format!("the run then continues by itself; follow it: etude runs watch {id}"),
        }
    }
}

/// Prints the summary on stderr.
pub(crate) fn show(ended: &RunResult, after: AfterDecision) {
    let document = &ended.document;
    let status = document.status();
    let pipeline = document.pipeline.as_deref().or(document.machine.as_deref()).unwrap_or(document.mode);
    let mut facts = vec![duration(document.duration_ms)];
    facts.extend(super::runs::usage(document.members.get("usage").unwrap_or(&Value::Null)));
    let id = &ended.run_id;
    crate::render::say!("\n{BOLD}{pipeline} {status}{BOLD:#} {DIM}in {}, run {id}{DIM:#}", facts.join(", "));
    if !ended.errors.is_empty()
        && let Some(names) = not_started(document.members.get("steps").unwrap_or(&Value::Null))
    {
        crate::render::say!("{DIM}not started: {names}{DIM:#}");
    }
    for line in incomplete(document.members.get("steps").unwrap_or(&Value::Null)) {
        crate::render::say!("{YELLOW}{line}{YELLOW:#}");
    }
    for waiting in &document.waiting {
        let message = waiting["payload"]["message"].as_str().unwrap_or_default();
        crate::render::say!("\n{BOLD}waiting:{BOLD:#} {}", harmless(message));
        // The commands below name this question, so all of it is shown here.
        crate::render::say_part!("{}", questions::details(questions::given(&waiting["payload"])));
        if let Some(effects) = questions::effects(&waiting["payload"]) {
            crate::render::say!("then: {effects}");
        }
        if let Some(answer) = questions::answer(&waiting["payload"]) {
            crate::render::say!("answer: {answer}");
        }
        let command = questions::command(waiting);
        hint(&format!("etude approve {command}"));
        hint(&format!("or: etude deny {command}"));
        hint(&after.hint(id));
    }
    if let Some(first) = ended.errors.first() {
        hint(&next_attempt(ended, first));
        for text in failure::hints(first, Some(id)) {
            hint(&text);
        }
    }
}

fn hint(text: &str) {
    crate::render::say!("{CYAN}hint:{CYAN:#} {}", commands::complete(text));
}

/// Command that continues an unsuccessful run.
fn next_attempt(ended: &RunResult, first: &Failure) -> String {
    let resume = format!("etude runs resume {}", &ended.run_id[..ended.run_id.len().min(6)]);
    let usage = record::to_usage(ended.document.members.get("usage").unwrap_or(&Value::Null));
    match first.kind {
        FailureKind::Cancelled => format!("continue the run: {resume}"),
        FailureKind::ApprovalDenied => format!("request the approval again: {resume}"),
        FailureKind::BudgetExceeded if let Some(option) = budget::raised(&ended.limits, &usage, &first.message) => {
            format!("continue with a larger budget: {resume} {option}")
        }
        _ => format!("fix the cause, then run: {resume}; after an edit of the app: {resume} --accept-changes"),
    }
}

/// Names of the steps that did not start; the first few are listed.
fn not_started(steps: &Value) -> Option<String> {
    const SHOWN: usize = 8;
    let rows = steps.as_array().into_iter().flatten().filter(|row| row["status"] == "not_started");
    let names: Vec<&str> = rows.filter_map(|row| row["name"].as_str()).collect();
    let more = names.len().saturating_sub(SHOWN);
    let mut text = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    (!names.is_empty()).then_some(text)
}

/// Fan-outs that ended without some of their elements: `review: 50 of 51, 1 failed: [7]`.
fn incomplete(steps: &Value) -> Vec<String> {
    let rows = steps.as_array().into_iter().flatten();
    let line = |row: &Value| {
        let items = row.get("items")?;
        let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let failed: Vec<usize> = items["failed"].as_array()?.iter().filter_map(number).collect();
        let (total, succeeded) = (number(&items["total"])?, number(&items["succeeded"])?);
        let items = Items { total, succeeded, failed, cached: 0 };
        (!items.failed.is_empty()).then(|| format!("{}: {items}", harmless(row["name"].as_str().unwrap_or_default())))
    };
    rows.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// the summary names a collected fan-out that lost elements, although the run succeeded.
    #[test]
    fn fan_outs_with_failed_elements_are_named_at_the_end() {
        let steps = json!([
            {"name": "list", "status": "succeeded"},
            {"name": "good", "items": {"total": 2, "succeeded": 2, "failed": []}},
            {"name": "review", "items": {"total": 51, "succeeded": 50, "failed": [7]}},
        ]);
        assert_eq!(incomplete(&steps), ["review: 50 of 51, 1 failed: [7]"]);
        assert_eq!(incomplete(&Value::Null), Vec::<String>::new());
    }
}
