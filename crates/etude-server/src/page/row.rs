//! The row of a run in every list of runs.

use maud::{Markup, html};
use serde_json::Value;

use super::shell::Shell;
use super::text::{ABSENT, duration_so_far, money, number, tokens, visible};
use super::{glyph, segment};

/// Maximum number of steps that are drawn; more of them are only counted.
const MAX_SEGMENTS: usize = 12;

/// The short form of a run's id.
pub(super) fn short(id: &str) -> &str {
    id.get(..6).unwrap_or(id)
}

/// The name of the pipeline or machine, or the mode of a run that has neither.
pub(super) fn target(run: &Value) -> &str {
    run["pipeline"].as_str().or(run["machine"].as_str()).or(run["mode"].as_str()).unwrap_or(ABSENT)
}

/// The path of a run's page.
pub(super) fn path(run: &Value) -> String {
    format!("/runs/{}", run["run_id"].as_str().unwrap_or_default())
}

/// The sum of input and output tokens.
pub(super) fn tokens_of(usage: &Value) -> Option<u64> {
    Some(usage["input_tokens"].as_u64()? + usage["output_tokens"].as_u64()?)
}

/// An action with its token's name and the time.
pub(super) fn action(shell: &Shell, action: &Value) -> Markup {
    let text = |name: &str| visible(action[name].as_str().unwrap_or_default());
    html! { (text("action")) " by " (text("by")) ", " span.dim { (shell.zone.moment(&action["at"])) } }
}

/// The row of a run in a list of runs.
pub(super) fn row(shell: &Shell, run: &Value) -> Markup {
    let status = run["status"].as_str().unwrap_or_default();
    let id = run["run_id"].as_str().unwrap_or_default();
    let usage = &run["usage"];
    let reason = reason(run);
    html! {
        tr.run data-key=(id) data-status=(status) {
            td.state-cell { (glyph::state(status)) }
            td.target-cell {
                a.target href=(shell.link(&path(run))) { (visible(target(run))) } " "
                code.dim { (short(id)) }
                @if run["mode"] == "machine" { " " span.dim { "stage machine" } }
                p.phone.small.dim {
                    (glyph::word(status)) " · " (began(shell, run)) " · " (run["cause"].as_str().unwrap_or_default())
                    @if let Some((done, total)) = done(run) { " · " (done) " / " (total) " steps" }
                    @if usage["cost_usd"].is_number() { " · " (money(&usage["cost_usd"])) }
                }
                @if status == "queued" { p.reason { (queued(shell, run)) } }
                @if let Some(reason) = reason { p.reason { (super::text::marked(&reason)) } }
            }
            td.wide.cause {
                (run["cause"].as_str().unwrap_or_default())
                @if let Some(by) = run["by"].as_str() { " " span.dim { (visible(by)) } }
            }
            td.wide.num { @if run["started_at"].is_null() { (ABSENT) } @else { (shell.zone.clock(&run["started_at"])) } }
            td.num.took { (duration_so_far(run)) }
            td.wide { (progress(run)) }
            td.wide.num.tokens { @match tokens_of(usage) { Some(count) => (tokens(count)), None => (ABSENT) } }
            td.wide.num { (money(&usage["cost_usd"])) }
            td.wide.labels { (labels(shell, run)) }
        }
    }
}

/// The start of the run, or its creation if it has not started.
fn began(shell: &Shell, run: &Value) -> Markup {
    shell.zone.clock(if run["started_at"].is_null() { &run["created_at"] } else { &run["started_at"] })
}

/// The reason why a queued run has not begun.
fn queued(shell: &Shell, run: &Value) -> Markup {
    html! {
        "queued at " (shell.zone.clock(&run["created_at"]))
        @if run["not_before"].is_string() { ", starts no earlier than " (shell.zone.moment(&run["not_before"])) } @else { ", starts when a slot is free" }
    }
}

/// The reason to show for the run's status, before the run is opened.
pub(super) fn reason(run: &Value) -> Option<String> {
    match run["status"].as_str()? {
        "failed" | "cancelled" | "waiting" => run["reason"].as_str().map(str::to_owned),
        "sleeping" => Some("it sleeps until a set time, without a process".to_owned()),
        "interrupted" => {
            let why = run["reason"].as_str().unwrap_or("its process has ended");
            Some(format!("{why}; resume it to continue"))
        }
        _ => None,
    }
}

/// Labels; each is a link to a filtered list.
pub(super) fn labels(shell: &Shell, run: &Value) -> Markup {
    html! {
        @if let Some(labels) = run["labels"].as_object().filter(|labels| !labels.is_empty()) {
            div.tags {
                @for (key, value) in labels {
                    @let label = format!("{key}:{}", value.as_str().unwrap_or_default());
                    a.tag href=(shell.link(&format!("/?label={}", segment(&label)))) { (visible(&label)) }
                }
            }
        }
    }
}

/// The number of steps that have succeeded or were skipped, and of all steps.
fn done(run: &Value) -> Option<(u64, u64)> {
    let steps = run["progress"].as_array()?;
    let done = steps.iter().filter(|status| *status == "succeeded" || *status == "skipped").count();
    Some((done as u64, steps.len() as u64))
}

/// A segment for each step, and the number of steps that are done.
fn progress(run: &Value) -> Markup {
    let Some((done, total)) = done(run) else { return html! { (ABSENT) } };
    let steps = run["progress"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        span.progress {
            @if steps.len() <= MAX_SEGMENTS { (segments(steps)) }
            span { (number(done)) " / " (number(total)) }
        }
    }
}

fn segments(steps: &[Value]) -> Markup {
    let width = steps.len() * 9;
    html! {
        svg width=(width) height="12" viewBox={ "0 0 " (width) " 12" } aria-hidden="true" {
            @for (nth, status) in steps.iter().enumerate() {
                @let status = status.as_str().unwrap_or_default();
                @let x = nth * 9;
                @match status {
                    "waiting" => { path class="seg waiting" d=(format!("M{}.5 2.5l3.5 3.5-3.5 3.5-3.5-3.5z", x + 3)) {} },
                    "failed" => { rect class="seg failed" x=(format!("{x}.5")) y="0.5" width="6" height="11" rx="1.5" {} },
                    "running" => {
                        rect class="seg" x=(format!("{x}.5")) y="1.5" width="6" height="9" rx="1.5" {}
                        rect class="seg running" x=(format!("{x}.5")) y="1.5" width="3" height="9" rx="1" {}
                    },
                    _ => { rect class={ "seg " (status) } x=(format!("{x}.5")) y="1.5" width="6" height="9" rx="1.5" {} },
                }
            }
        }
    }
}
