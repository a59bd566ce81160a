//! The last lines of a run: what became of it, what it cost, and what to do next.

use anstyle::{AnsiColor, Style};
use etude::core::report::duration;
use etude::runner::Ended;
use serde_json::Value;

use super::failure;
use super::text::harmless;
use crate::context::Context;

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const CYAN: Style = AnsiColor::Cyan.on_default();

/// Says it on stderr.
pub(crate) fn show(context: &Context, ended: &Ended) {
    if context.global.quiet {
        return;
    }
    let document = &ended.document;
    let status = document.status();
    let pipeline = document.pipeline.as_deref().unwrap_or_default();
    let mut facts = vec![duration(document.duration_ms)];
    facts.extend(usage(document.members.get("usage").unwrap_or(&Value::Null)));
    let id = &ended.run_id;
    anstream::eprintln!("\n{BOLD}{pipeline} {status}{BOLD:#} {DIM}in {}, run {id}{DIM:#}", facts.join(", "));
    for (effect, gate) in &ended.gates {
        anstream::eprintln!("\n{BOLD}waiting:{BOLD:#} {}", harmless(&gate.message));
        anstream::eprintln!("{CYAN}hint:{CYAN:#} etude approve {id}:{effect}   or   etude deny {id}:{effect}");
        anstream::eprintln!("{CYAN}hint:{CYAN:#} then: etude runs resume {id}");
    }
    if let Some(first) = ended.errors.first() {
        for hint in failure::hints(first, Some(id)) {
            anstream::eprintln!("{CYAN}hint:{CYAN:#} {hint}");
        }
    }
}

fn usage(usage: &Value) -> Vec<String> {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut facts = Vec::new();
    if number("calls") > 0 {
        let plural = if number("calls") == 1 { "" } else { "s" };
        facts.push(format!("{} model call{plural}", number("calls")));
        facts.push(format!("{} tokens", number("input_tokens") + number("output_tokens")));
    }
    if let Some(cost) = usage.get("cost_usd").and_then(Value::as_f64) {
        facts.push(format!("${cost:.4}"));
    }
    facts
}
