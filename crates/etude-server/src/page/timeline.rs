//! The timeline beside the tree of a run.

use maud::{Markup, html};
use serde_json::Value;

use super::run::Shown;
use super::text::{duration, instant_ms};

/// The scale of the timeline: from times to positions.
pub(super) struct Scale {
    from_ms: i64,
    span_ms: u64,
    now_ms: i64,
}

impl Scale {
    /// The scale for a run and these nodes.
    pub(super) fn of(shown: &Shown, nodes: &[Value]) -> Self {
        let started = |value: &Value| instant_ms(&value["started_at"]);
        let now_ms = crate::clock::now_ms();
        let from_ms = started(&shown.run).unwrap_or(now_ms);
        let end = |node: &Value| {
            let start = started(node)?;
            Some(match (node["duration_ms"].as_i64(), node["status"] == "running") {
                (None, true) => now_ms.max(start),
                (took, _) => start.saturating_add(took.unwrap_or(0)),
            })
        };
        let last = nodes.iter().filter_map(end).max().unwrap_or(from_ms);
        let of_run = shown.run["duration_ms"].as_u64().unwrap_or(0);
        let span_ms = u64::try_from(last.saturating_sub(from_ms)).unwrap_or(0).max(of_run).max(1);
        // A question may wait for days: its bar has a fixed last part of the timeline.
        let is_waiting = nodes.iter().any(|node| node["status"] == "waiting");
        let span_ms = if is_waiting { span_ms.saturating_add(span_ms.div_ceil(6)) } else { span_ms };
        Self { from_ms, span_ms, now_ms }
    }

    /// The distance of the grid lines in milliseconds: a round time.
    fn step(&self) -> u64 {
        let round = [
            1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
            1_800_000, 3_600_000,
        ];
        let fits = |step: &&u64| self.span_ms / **step <= 4;
        round.iter().find(fits).copied().unwrap_or_else(|| self.span_ms.div_ceil(4))
    }

    fn percent(&self, ms: u64) -> String {
        // Widths in a drawing need few digits.
        #[expect(clippy::cast_precision_loss)]
        let share = (ms as f64) * 100.0 / (self.span_ms as f64);
        format!("{share:.2}%")
    }

    /// The width of a bar, at least about three pixels.
    fn width(&self, ms: u64) -> String {
        if ms.saturating_mul(120) < self.span_ms { "0.8%".to_owned() } else { self.percent(ms) }
    }

    fn ticks(&self) -> impl Iterator<Item = u64> {
        let step = self.step();
        (0..).map(move |nth| nth * step).take_while(|at| *at * 100 < self.span_ms * 97)
    }

    pub(super) fn axis(&self) -> Markup {
        html! {
            svg aria-hidden="true" {
                @for at in self.ticks() { text x=(self.percent(at)) y="20" { (if at == 0 { "0 s".to_owned() } else { tick(at) }) } }
            }
        }
    }

    /// The grid lines behind all bars.
    pub(super) fn grid(&self) -> Markup {
        html! { svg { @for at in self.ticks() { line.grid x1=(self.percent(at)) x2=(self.percent(at)) y1="0" y2="100%" {} } } }
    }

    pub(super) fn bar(&self, node: &Value) -> Markup {
        let start = instant_ms(&node["started_at"]);
        let status = node["status"].as_str().unwrap_or_default();
        let x = start.map_or(0, |start| u64::try_from(start.saturating_sub(self.from_ms)).unwrap_or(0));
        let length = match (node["duration_ms"].as_u64(), status) {
            (Some(ms), _) => Some(ms),
            (None, "running") => start.map(|start| u64::try_from(self.now_ms.saturating_sub(start)).unwrap_or(0)),
            (None, "waiting") => Some(self.span_ms),
            (None, _) => None,
        };
        let length = length.map(|length| length.min(self.span_ms.saturating_sub(x)));
        let kind = node["kind"].as_str().unwrap_or_default();
        let is_group = kind == "phase" || node["counts"].is_object() || node["children"].as_u64().unwrap_or(0) > 0;
        let class = match status {
            "rejected" => "bar-rejected",
            "failed" => "bar-failed",
            "running" => "bar-running",
            "waiting" => "bar-waiting",
            _ if node["model"].is_string() || matches!(kind, "turn" | "attempt") => "bar-model",
            _ => "bar-code",
        };
        html! {
            svg.bars aria-hidden="true" {
                @if let (Some(_), Some(length)) = (start, length) {
                    @if is_group {
                        line.bar-group x1=(self.percent(x)) x2=(self.percent(x + length)) y1="16" y2="16" {}
                        @if kind == "phase" { line.bar-group x1=(self.percent(x)) x2=(self.percent(x)) y1="12" y2="20" {} line.bar-group x1=(self.percent(x + length)) x2=(self.percent(x + length)) y1="12" y2="20" {} }
                    } @else {
                        rect class=(class) x=(self.percent(x)) y="10" width=(self.width(length)) height="12" rx="2" {}
                    }
                }
            }
        }
    }
}

/// A round time without trailing zeros.
fn tick(ms: u64) -> String {
    match ms {
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        60_000.. if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        _ => duration(ms),
    }
}
