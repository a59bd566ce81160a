//! Charts of runs, drawn by the server. Positions are shares of the width, so that texts keep their size on every screen.

use maud::{Markup, html};
use serde_json::Value;

use super::shell::Shell;
use super::text::{duration, money, number};
use super::{glyph, row};

/// The areas of durations and costs, in pixels from the top.
const DURATIONS: (u64, u64) = (16, 136);
const COSTS: (u64, u64) = (164, 212);

/// A bar of a chart: the values of one run.
struct Bar<'r> {
    run: &'r Value,
    duration_ms: u64,
    cost: f64,
}

/// A chart with the durations above the costs of runs, oldest first, with the median duration.
#[expect(clippy::cast_precision_loss, reason = "a pixel needs no more digits")]
pub(super) fn runs(shell: &Shell, runs: &[Value], p50_ms: Option<u64>) -> Markup {
    let bars: Vec<Bar<'_>> = runs
        .iter()
        .rev()
        .filter(|run| run["ended_at"].is_string())
        .map(|run| Bar {
            run,
            duration_ms: run["duration_ms"].as_u64().unwrap_or(0),
            cost: run["usage"]["cost_usd"].as_f64().unwrap_or(0.0),
        })
        .collect();
    let longest = nice(bars.iter().map(|bar| bar.duration_ms).max().unwrap_or(0).max(1) as f64);
    let has_cost = bars.iter().any(|bar| bar.cost > 0.0);
    let dearest = nice(bars.iter().map(|bar| bar.cost).fold(0.0, f64::max));
    let slot = 100.0 / bars.len().max(20) as f64;
    let x = |nth: usize| format!("{:.2}%", slot * (nth as f64 + 0.15));
    let width = format!("{:.2}%", slot * 0.7);
    let height = |share: f64, (top, bottom): (u64, u64)| (share * (bottom - top) as f64).max(1.0);
    let total = if has_cost { COSTS.1 + 20 } else { DURATIONS.1 + 20 };
    let gridline = |y: u64| html! { line.grid x1="0" x2="100%" y1=(y) y2=(y) {} };
    html! {
        div.charts {
        svg.chart height=(total) aria-hidden="true" {
            @for part in 0..=2_u64 { text x="48" y=(DURATIONS.1 - (DURATIONS.1 - DURATIONS.0) * part / 2 + 4) text-anchor="end" { (short(longest * part as f64 / 2.0)) } }
            @if has_cost { @for part in 0..=1_u64 { text x="48" y=(COSTS.1 - (COSTS.1 - COSTS.0) * part + 4) text-anchor="end" { (money(&(dearest * part as f64).into())) } } }
        }
        svg.chart height=(total) role="group" aria-label="Duration and cost of each run, oldest first" {
            @for part in 0..=2_u64 { (gridline(DURATIONS.1 - (DURATIONS.1 - DURATIONS.0) * part / 2)) }
            @if has_cost { @for part in 0..=1_u64 { (gridline(COSTS.1 - (COSTS.1 - COSTS.0) * part)) } text x="0" y=(COSTS.0 - 8) { "Cost" } }
            text x="0" y="10" { "Duration" }
            @for (nth, bar) in bars.iter().enumerate() {
                @let status = bar.run["status"].as_str().unwrap_or_default();
                @let tall = height(bar.duration_ms as f64 / longest, DURATIONS);
                a href=(shell.link(&row::path(bar.run))) {
                    title { (glyph::word(status)) ", " (duration(bar.duration_ms)) ", " (money(&bar.run["usage"]["cost_usd"])) ", " (row::short(bar.run["run_id"].as_str().unwrap_or_default())) }
                    rect class=(if status == "failed" { "failed" } else if status == "cancelled" { "cost" } else { "ok" }) x=(x(nth)) y=(format!("{:.1}", DURATIONS.1 as f64 - tall)) width=(width) height=(format!("{tall:.1}")) rx="2" {}
                    @if has_cost && bar.cost > 0.0 {
                        @let tall = height(bar.cost / dearest, COSTS);
                        rect.cost x=(x(nth)) y=(format!("{:.1}", COSTS.1 as f64 - tall)) width=(width) height=(format!("{tall:.1}")) rx="2" {}
                    }
                }
            }
            @if let Some(p50) = p50_ms {
                @let y = DURATIONS.1 as f64 - height(p50 as f64 / longest, DURATIONS);
                line.median x1="0" x2="100%" y1=(format!("{y:.1}")) y2=(format!("{y:.1}")) {}
            }
        }
    }
    }
}

/// A list of values with bars; a full bar is the largest value.
#[expect(clippy::cast_precision_loss, reason = "a pixel needs no more digits")]
pub(super) fn shares(class: &str, rows: &[(String, u64, String)]) -> Markup {
    let largest = rows.iter().map(|(_, value, _)| *value).max().unwrap_or(1).max(1);
    html! {
        ul.rows {
            @for (name, value, note) in rows {
                li {
                    code { (super::text::visible(name)) } span.grow {} span { (number(*value)) @if !note.is_empty() { " " span.dim { (note) } } }
                    svg.meter aria-hidden="true" { rect class=(class) width=(format!("{:.1}%", *value as f64 * 100.0 / largest as f64)) height="6" rx="3" {} }
                }
            }
        }
    }
}

/// The next round number: 1, 2 or 5 with zeros.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
    steps.into_iter().find(|step| *step >= value * 0.999).unwrap_or(value)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds are whole and not negative")]
fn short(ms: f64) -> String {
    match ms as u64 {
        0 => "0".to_owned(),
        ms if ms >= 1_000 && ms.is_multiple_of(1_000) && ms < 60_000 => format!("{} s", ms / 1_000),
        ms => duration(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.0, 0.03, 1.0, 64.0, 1_100.0].map(nice), [1.0, 0.05, 1.0, 100.0, 2_000.0]);
    }
}
