//! The tree of a run with its timeline.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::run::Shown;
use super::shell::Shell;
use super::text::{counted, duration, duration_of, instant_ms, visible};
use super::{glyph, segment, source};
use crate::problem::Problem;
use crate::request::Call;

/// Nodes of one page of the tree.
const PAGE: usize = 150;

/// Elements of an open fan-out that are shown at once.
const ITEMS: usize = 100;

/// A fan-out with more elements is closed until it is selected.
const OPEN: u64 = 50;

/// The nodes that are shown, parents before children.
pub(super) struct Tree {
    nodes: Vec<Value>,
    /// The selected node: an index.
    pub(super) selected: Option<usize>,
    /// The effect that the link names, if it names one.
    pub(super) effect: Option<String>,
    next: Option<String>,
    /// The next elements of the open fan-out.
    more: Option<(String, String)>,
}

impl Tree {
    pub(super) async fn read(call: &Call, shown: &Shown) -> Result<Self, Problem> {
        let path = format!("/v1/runs/{}/tree", segment(shown.id()));
        let after = call.query.get("after").map(|after| format!("&after={}", segment(after))).unwrap_or_default();
        let page = source::get(call, &format!("{path}?limit={PAGE}{after}")).await?;
        let mut tree = Self {
            nodes: page["nodes"].as_array().cloned().unwrap_or_default(),
            selected: None,
            effect: None,
            next: page["next"].as_str().map(str::to_owned),
            more: None,
        };
        let mut wanted = call.query.get("at").map(str::to_owned);
        if let Some(at) = wanted.clone().filter(|at| tree.index(at).is_none()) {
            wanted = tree.resolve(call, shown, at).await?;
        }
        let fan_outs: Vec<String> =
            tree.nodes.iter().filter(|node| is_open(node, wanted.as_deref())).map(id_of).collect();
        for parent in fan_outs {
            let from = call.query.get("items").filter(|_| wanted.as_deref().is_some_and(|at| at.starts_with(&parent)));
            let from = from.map(|after| format!("&after={}", segment(after))).unwrap_or_default();
            let items = source::get(call, &format!("{path}?parent={}&limit={ITEMS}{from}", segment(&parent))).await?;
            let Some(at) = tree.index(&parent) else { continue };
            let found = items["nodes"].as_array().cloned().unwrap_or_default();
            let new: Vec<Value> = found.into_iter().filter(|node| tree.index(&id_of(node)).is_none()).collect();
            tree.nodes.splice(at + 1..at + 1, new);
            if let Some(next) = items["next"].as_str() {
                tree.more = Some((parent, next.to_owned()));
            }
        }
        // Of the elements, the one that is selected is open.
        let item = tree.nodes.iter().position(|node| {
            let is_wanted = wanted.as_deref().is_some_and(|at| is_at_or_below(at, &id_of(node)));
            node["kind"] == "item" && node["children"].as_u64().unwrap_or(0) > 0 && is_wanted
        });
        if let Some(at) = item {
            let item = id_of(&tree.nodes[at]);
            let attempts = source::get(call, &format!("{path}?parent={}&limit={ITEMS}", segment(&item))).await?;
            let found = attempts["nodes"].as_array().cloned().unwrap_or_default();
            tree.nodes.splice(at + 1..at + 1, found);
        }
        tree.selected = match wanted {
            Some(at) => tree.index(&at),
            None => tree.opening(),
        };
        Ok(tree)
    }

    /// The node of an effect, or the fan-out of an element.
    async fn resolve(&mut self, call: &Call, shown: &Shown, at: String) -> Result<Option<String>, Problem> {
        let path = format!("/v1/runs/{}/effects/{}", segment(shown.id()), segment(&at));
        match source::get(call, &path).await {
            Ok(effect) => {
                let node = effect["node"].as_str().map(str::to_owned);
                self.effect = Some(at);
                Ok(node)
            }
            Err(problem) if problem.code() == crate::problem::Code::NotFound => Ok(Some(at)),
            Err(problem) => Err(problem),
        }
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node["id"] == *id)
    }

    /// The node that a run opens at: the first error, else the question, else what is in progress.
    fn opening(&self) -> Option<usize> {
        let is = |node: &Value, words: &[&str]| node["status"].as_str().is_some_and(|status| words.contains(&status));
        let first = |words: &[&str]| {
            let inner = self.nodes.iter().position(|node| node["kind"] != "phase" && is(node, words));
            inner.or_else(|| self.nodes.iter().position(|node| is(node, words)))
        };
        // The last attempt of a step has the reason for which it failed.
        let last_attempt = |at: usize| {
            let id = id_of(&self.nodes[at]);
            self.nodes.iter().rposition(|node| node["parent"] == *id && node["kind"] == "attempt").unwrap_or(at)
        };
        let step = || self.nodes.iter().position(|node| node["kind"] != "phase");
        first(&["failed"])
            .map(last_attempt)
            .or_else(|| first(&["waiting"]))
            .or_else(|| first(&["running"]))
            .or_else(step)
    }

    /// The selected node.
    pub(super) fn node(&self) -> Option<&Value> {
        self.selected.and_then(|at| self.nodes.get(at))
    }

    /// The nodes below the one with this id.
    pub(super) fn children<'t>(&'t self, id: &'t str) -> impl Iterator<Item = &'t Value> {
        self.nodes.iter().filter(move |node| node["parent"] == *id)
    }

    pub(super) fn render(&self, shell: &Shell, shown: &Shown) -> Markup {
        if self.nodes.is_empty() {
            return html! { div.empty {
                @if shown.status() == "queued" { p { "The run is queued: no step has started." } }
                @else { p { "The run has no step to show." } }
            } };
        }
        let depths = self.depths();
        let scale = Scale::of(shown, &self.nodes);
        let link = |id: &str| shell.link(&format!("/runs/{}?at={}", segment(shown.id()), segment(id)));
        html! {
            div.tree-head { span { "Node" } (scale.axis()) span.num { "Duration" } }
            div.tree role="tree" aria-label="Steps of the run" data-tree {
                div.tree-grid aria-hidden="true" { (scale.grid()) }
                @for (nth, node) in self.nodes.iter().enumerate() {
                    @let id = id_of(node);
                    @let is_selected = self.selected == Some(nth);
                    @let has_children = node["children"].as_u64().unwrap_or(0) > 0;
                    @let is_open = self.nodes.get(nth + 1).is_some_and(|next| next["parent"] == *id);
                    a.tree-row role="treeitem" href=(link(&id)) data-key=(id) data-status=(node["status"].as_str().unwrap_or_default())
                        aria-level=(depths[nth] + 1) aria-selected=(if is_selected { "true" } else { "false" })
                        aria-expanded=[has_children.then_some(if is_open { "true" } else { "false" })]
                        tabindex=[(!is_selected && self.selected.is_some()).then_some("-1")] {
                        span class={ "name d" (depths[nth].min(6)) } {
                            span.arrow aria-hidden="true" { @if has_children { @if is_open { "▾" } @else { "▸" } } }
                            (name(node))
                        }
                        (scale.bar(node))
                        span.num { (duration_of(&node["duration_ms"])) }
                    }
                }
            }
            @if let Some((parent, next)) = &self.more {
                p.legend { a href={ (link(parent)) "&items=" (segment(next)) } { "Next elements of " code { (parent) } } }
            }
            @if let Some(next) = &self.next {
                p.legend { a href=(shell.link(&format!("/runs/{}?after={}", segment(shown.id()), segment(next)))) { "Next steps" } }
            }
            (legend())
        }
    }

    fn depths(&self) -> Vec<usize> {
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut depths = Vec::new();
        for node in &self.nodes {
            let depth = node["parent"].as_str().and_then(|parent| known.get(parent)).map_or(0, |depth| depth + 1);
            known.insert(id_of(node), depth);
            depths.push(depth);
        }
        depths
    }
}

pub(super) fn id_of(node: &Value) -> String {
    node["id"].as_str().unwrap_or_default().to_owned()
}

/// True if the node `at` is the node `id` or below it.
fn is_at_or_below(at: &str, id: &str) -> bool {
    at.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '#', '/']))
}

/// A fan-out whose elements are shown: a small one, or the one that is selected.
fn is_open(node: &Value, wanted: Option<&str>) -> bool {
    let children = node["children"].as_u64().unwrap_or(0);
    let is_fan_out = node["counts"].is_object() && children > 0;
    let is_wanted = wanted.is_some_and(|at| is_at_or_below(at, &id_of(node)));
    is_fan_out && (children <= OPEN || is_wanted)
}

fn name(node: &Value) -> Markup {
    let status = node["status"].as_str().unwrap_or_default();
    let text = node["name"].as_str().unwrap_or_default();
    let children = node["children"].as_u64().unwrap_or(0);
    let counts = node["counts"].as_object();
    html! {
        (glyph::glyph(status))
        @if node["kind"] == "phase" { strong { (visible(text)) } } @else { code { (visible(text)) } }
        @if matches!(status, "failed" | "rejected") { span.small.bad { (glyph::word(status)) } }
        span.what {
            @match (node["kind"].as_str().unwrap_or_default(), counts) {
                ("phase", _) => (counted(children, "step", "steps")),
                (_, Some(counts)) => {
                    (counted(children, "element", "elements"))
                    @if let Some(failed) = counts.get("failed").and_then(Value::as_u64) { ", " span.bad { (failed) " failed" } }
                },
                ("step", None) => { @if let Some(attempt) = node["attempt"].as_u64().filter(|attempt| *attempt > 1) { (attempt) " attempts" } },
                ("item", None) => { @if let Some(label) = node["label"].as_str() { (visible(label)) } },
                ("attempt" | "turn" | "tool", None) => { @if let Some(by) = node["error"]["rejected_by"].as_str() { "by " (visible(by)) } },
                (kind, None) => { (kind) @if let Some(model) = node["model"].as_str() { " " (visible(model)) } },
            }
        }
    }
}

fn legend() -> Markup {
    let kinds = [
        ("bar-code", "Step"),
        ("bar-model", "Model call"),
        ("bar-rejected", "Rejected model call"),
        ("bar-failed", "Failed"),
    ];
    html! {
        div.legend {
            @for (class, word) in kinds { span { svg viewBox="0 0 20 10" aria-hidden="true" { rect class=(class) x="0.5" y="0.5" width="19" height="9" rx="2" {} } (word) } }
            span.grow {}
            p.keys { span { kbd { "←" } " " kbd { "→" } " close, open" } span { kbd { "e" } " next error" } }
        }
    }
}

/// From times to places on the timeline.
struct Scale {
    from_ms: i64,
    span_ms: u64,
    now_ms: i64,
}

impl Scale {
    fn of(shown: &Shown, nodes: &[Value]) -> Self {
        let started = |value: &Value| instant_ms(&value["started_at"]);
        let now_ms = etude::clock::now_ms();
        let from_ms = started(&shown.run).unwrap_or(now_ms);
        let end =
            |node: &Value| started(node).map(|start| start.saturating_add(node["duration_ms"].as_i64().unwrap_or(0)));
        let last = nodes.iter().filter_map(end).max().unwrap_or(from_ms);
        let of_run = shown.run["duration_ms"].as_u64().unwrap_or(0);
        let span_ms = u64::try_from(last.saturating_sub(from_ms)).unwrap_or(0).max(of_run).max(1);
        // A question may wait for days: its bar has the last part of the timeline, whatever the time.
        let is_waiting = nodes.iter().any(|node| node["status"] == "waiting");
        let span_ms = if is_waiting { span_ms.saturating_add(span_ms.div_ceil(6)) } else { span_ms };
        Self { from_ms, span_ms, now_ms }
    }

    /// The distance of the grid's lines: a round time.
    fn step(&self) -> u64 {
        let round = [
            1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
            1_800_000, 3_600_000,
        ];
        let fits = |step: &&u64| self.span_ms / **step <= 4;
        round.iter().find(fits).copied().unwrap_or_else(|| self.span_ms.div_ceil(4))
    }

    fn percent(&self, ms: u64) -> String {
        // The widths of a drawing need no more digits than this.
        #[expect(clippy::cast_precision_loss)]
        let share = (ms as f64) * 100.0 / (self.span_ms as f64);
        format!("{share:.2}%")
    }

    /// The width of a bar, at least three pixels or so.
    fn width(&self, ms: u64) -> String {
        if ms.saturating_mul(120) < self.span_ms { "0.8%".to_owned() } else { self.percent(ms) }
    }

    fn ticks(&self) -> impl Iterator<Item = u64> {
        let step = self.step();
        (0..).map(move |nth| nth * step).take_while(|at| *at * 100 < self.span_ms * 97)
    }

    fn axis(&self) -> Markup {
        html! {
            svg aria-hidden="true" {
                @for at in self.ticks() { text x=(self.percent(at)) y="20" { (if at == 0 { "0 s".to_owned() } else { tick(at) }) } }
            }
        }
    }

    /// The lines behind all bars.
    fn grid(&self) -> Markup {
        html! { svg { @for at in self.ticks() { line.grid x1=(self.percent(at)) x2=(self.percent(at)) y1="0" y2="100%" {} } } }
    }

    fn bar(&self, node: &Value) -> Markup {
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

/// A round time without digits that say nothing.
fn tick(ms: u64) -> String {
    match ms {
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        60_000.. if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        _ => duration(ms),
    }
}
