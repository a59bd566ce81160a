//! The tree of a run as pages read and show it.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::run::Shown;
use super::shell::Shell;
use super::text::{counted, duration_of, visible};
use super::timeline::Scale;
use super::{glyph, segment, source};
use crate::problem::{Code, Problem};
use crate::request::Call;

/// Nodes per page of the tree.
const PAGE: usize = 150;

/// Maximum number of shown elements of an open fan-out.
const ITEMS: usize = 100;

/// A fan-out with more elements is closed until it is selected.
const OPEN: u64 = 50;

/// The shown nodes, parents before children.
pub(super) struct Tree {
    nodes: Vec<Value>,
    /// The index of the selected node.
    pub(super) selected: Option<usize>,
    /// The effect that the link names, if any.
    pub(super) effect: Option<String>,
    /// The node before this page, and the last node of this page if more follow.
    beside: (Option<String>, Option<String>),
    /// A fan-out of which only some elements are shown: its id, the element before them, and the last of them if more follow.
    part: Option<(String, Option<String>, Option<String>)>,
}

/// A page of nodes from the API.
struct Page {
    nodes: Vec<Value>,
    before: Option<String>,
    next: Option<String>,
}

/// The nodes of a run, read by pages.
struct Nodes<'c> {
    call: &'c Call,
    path: String,
}

impl Nodes<'_> {
    async fn read(&self, query: &str) -> Result<Page, Problem> {
        let mut page = source::get(self.call, &format!("{}?{query}", self.path)).await?;
        let text = |name: &str| page[name].as_str().map(str::to_owned);
        let (before, next) = (text("before"), text("next"));
        let Value::Array(nodes) = page["nodes"].take() else { return Ok(Page { nodes: Vec::new(), before, next }) };
        Ok(Page { nodes, before, next })
    }

    /// The page with the node `id`; `None` if the run does not have it.
    async fn around(&self, id: &str, query: &str) -> Result<Option<Page>, Problem> {
        match self.read(&format!("around={}{query}", segment(id))).await {
            Ok(page) => Ok(Some(page)),
            Err(problem) if problem.code() == Code::InputInvalid => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// The first node with a status, phases excluded.
    async fn first(&self, status: &str, query: &str) -> Result<Option<Value>, Problem> {
        let page = self.read(&format!("status={status}&limit=20{query}")).await?;
        Ok(page.nodes.into_iter().find(|node| node["kind"] != "phase"))
    }
}

impl Tree {
    pub(super) async fn read(call: &Call, shown: &Shown) -> Result<Self, Problem> {
        let nodes = Nodes { call, path: format!("/v1/runs/{}/tree", segment(shown.id())) };
        let (mut wanted, mut effect) = (call.query.get("at").map(str::to_owned), None);
        let mut page = None;
        if let Some(at) = wanted.clone() {
            page = nodes.around(&at, &format!("&limit={PAGE}")).await?;
            if page.is_none() {
                (wanted, effect) = resolve(call, shown, at).await?;
                page = match &wanted {
                    Some(at) => nodes.around(outer(at), &format!("&limit={PAGE}")).await?,
                    None => None,
                };
            }
        }
        let page = match page {
            Some(page) => page,
            None => {
                let after = call.query.get("after").map(|after| format!("&after={}", segment(after)));
                nodes.read(&format!("limit={PAGE}{}", after.unwrap_or_default())).await?
            }
        };
        let mut tree = Self { nodes: page.nodes, selected: None, effect, beside: (page.before, page.next), part: None };
        let is_given = wanted.is_some() || tree.effect.is_some() || call.query.get("after").is_some();
        if !is_given {
            wanted = tree.look_for_opening(&nodes, shown).await?;
        }
        tree.open(call, &nodes, wanted.as_deref()).await?;
        tree.above(&nodes).await?;
        tree.selected = match wanted {
            Some(at) if is_given => tree.index(&at),
            Some(at) => tree.index(&at).map(|at| tree.last_attempt(at)),
            None => tree.opening(),
        };
        Ok(tree)
    }

    /// The node at which a run opens, if it is on another page or is a failed element of a fan-out. Its page is read.
    async fn look_for_opening(&mut self, nodes: &Nodes<'_>, shown: &Shown) -> Result<Option<String>, Problem> {
        let word = match shown.status() {
            "failed" => "failed",
            "waiting" => "waiting",
            "running" => "running",
            _ => return Ok(None),
        };
        let first = |word: &str| self.nodes.iter().find(|node| node["kind"] != "phase" && node["status"] == *word);
        if word != "failed" && ["failed", "waiting", "running"].iter().any(|word| first(word).is_some()) {
            return Ok(None);
        }
        // The failed node of the first error, instead of the group around it.
        let error = &shown.run["errors"][0];
        let of_error = format!("{}/{}", text(error, "phase"), text(error, "step"));
        let failed = self.nodes.iter().find(|node| node["status"] == "failed" && node["id"] == of_error);
        let found = failed.filter(|_| word == "failed").or_else(|| first(word)).cloned();
        let found = match (found, &self.beside.1) {
            (Some(found), _) => found,
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let Some(found) = nodes.first(word, "").await? else { return Ok(None) };
                if let Some(page) = nodes.around(&id_of(&found), &format!("&limit={PAGE}")).await? {
                    (self.nodes, self.beside) = (page.nodes, (page.before, page.next));
                }
                found
            }
        };
        let id = id_of(&found);
        if found["counts"][word].as_u64().unwrap_or(0) == 0 {
            return Ok(Some(id));
        }
        let element = nodes.first(word, &format!("&parent={}", segment(&id))).await?;
        Ok(Some(element.map_or(id, |element| id_of(&element))))
    }

    /// Reads the elements of open fan-outs, and the attempts of the wanted element.
    async fn open(&mut self, call: &Call, nodes: &Nodes<'_>, wanted: Option<&str>) -> Result<(), Problem> {
        let fan_outs: Vec<String> = self.nodes.iter().filter(|node| is_open(node, wanted)).map(id_of).collect();
        for parent in fan_outs {
            let query = format!("&parent={}&limit={ITEMS}", segment(&parent));
            let wanted = wanted.filter(|at| is_at_or_below(at, &parent));
            let page = match wanted.and_then(|at| element(at, &parent)) {
                Some(element) => nodes.around(element, &query).await?,
                None => None,
            };
            let page = match page {
                Some(page) => page,
                None => {
                    let from = call.query.get("items").filter(|_| wanted.is_some());
                    nodes
                        .read(&format!(
                            "{}{query}",
                            from.map(|after| format!("after={}", segment(after))).unwrap_or_default()
                        ))
                        .await?
                }
            };
            let Some(at) = self.index(&parent) else { continue };
            let new: Vec<Value> = page.nodes.into_iter().filter(|node| self.index(&id_of(node)).is_none()).collect();
            self.nodes.splice(at + 1..at + 1, new);
            if page.before.is_some() || page.next.is_some() {
                self.part = Some((parent, page.before, page.next));
            }
        }
        // Of the elements, only the selected one is open.
        let item = self.nodes.iter().position(|node| {
            let is_wanted = wanted.is_some_and(|at| is_at_or_below(at, &id_of(node)));
            node["kind"] == "item" && node["children"].as_u64().unwrap_or(0) > 0 && is_wanted
        });
        if let Some(at) = item {
            let item = id_of(&self.nodes[at]);
            let attempts = nodes.read(&format!("parent={}&limit={ITEMS}", segment(&item))).await?;
            self.nodes.splice(at + 1..at + 1, attempts.nodes);
        }
        Ok(())
    }

    /// Adds the ancestors of the first node in front of it: a later page may begin in the middle of a phase or a step.
    async fn above(&mut self, nodes: &Nodes<'_>) -> Result<(), Problem> {
        while let Some(parent) = self.nodes.first().and_then(|first| first["parent"].as_str()).map(str::to_owned) {
            let Some(page) = nodes.around(&parent, "&limit=1").await?.filter(|page| !page.nodes.is_empty()) else {
                return Ok(());
            };
            self.nodes.splice(0..0, page.nodes);
        }
        Ok(())
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node["id"] == *id)
    }

    /// The node at which a run opens: the first error, otherwise the question, otherwise the node in progress.
    fn opening(&self) -> Option<usize> {
        let is = |node: &Value, words: &[&str]| node["status"].as_str().is_some_and(|status| words.contains(&status));
        let first = |words: &[&str]| {
            let inner = self.nodes.iter().position(|node| node["kind"] != "phase" && is(node, words));
            inner.or_else(|| self.nodes.iter().position(|node| is(node, words)))
        };
        let step = || self.nodes.iter().position(|node| node["kind"] != "phase");
        first(&["failed"])
            .map(|at| self.last_attempt(at))
            .or_else(|| first(&["waiting"]))
            .or_else(|| first(&["running"]))
            .or_else(step)
    }

    /// The last attempt of a failed step or element, which has the reason.
    fn last_attempt(&self, at: usize) -> usize {
        let id = id_of(&self.nodes[at]);
        let is_attempt = |node: &Value| node["parent"] == *id && node["kind"] == "attempt";
        let last = self.nodes.iter().rposition(is_attempt).filter(|_| self.nodes[at]["status"] == "failed");
        last.unwrap_or(at)
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
                @else { p { "The run has no steps." } }
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
                    a.tree-row role="treeitem" href={ (link(&id)) "#details" } data-key=(id) data-status=(node["status"].as_str().unwrap_or_default())
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
            @if let Some((parent, before, next)) = &self.part {
                p.legend {
                    @if let Some(before) = before { a href=(link(before)) { "Previous elements of " code { (visible(parent)) } } }
                    @if let Some(next) = next { a href={ (link(parent)) "&items=" (segment(next)) } { "Next elements of " code { (visible(parent)) } } }
                }
            }
            @if self.beside != (None, None) {
                p.legend {
                    @if let Some(before) = &self.beside.0 { a href=(link(before)) { "Previous steps" } }
                    @if let Some(next) = &self.beside.1 { a href=(shell.link(&format!("/runs/{}?after={}", segment(shown.id()), segment(next)))) { "Next steps" } }
                }
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

/// True if the node `at` is `id` or below it.
fn is_at_or_below(at: &str, id: &str) -> bool {
    at.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '#', '/']))
}

/// The node outside of fan-outs that is `at` or contains it.
fn outer(at: &str) -> &str {
    at.split_once('[').map_or(at, |(outer, _)| outer)
}

/// The element of `parent` that is `at` or contains it.
fn element<'a>(at: &'a str, parent: &str) -> Option<&'a str> {
    let rest = at.strip_prefix(parent)?.strip_prefix('[')?;
    at.get(..parent.len() + rest.find(']')? + 2)
}

/// Resolves a link to its node, and to its effect if it names one.
async fn resolve(call: &Call, shown: &Shown, at: String) -> Result<(Option<String>, Option<String>), Problem> {
    let path = format!("/v1/runs/{}/effects/{}", segment(shown.id()), segment(&at));
    match source::get(call, &path).await {
        Ok(effect) => Ok((effect["node"].as_str().map(str::to_owned), Some(at))),
        Err(problem) if problem.code() == Code::NotFound => Ok((Some(at), None)),
        Err(problem) => Err(problem),
    }
}

/// True for a fan-out whose elements are shown: a small one, or the selected one.
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
        @if node["kind"] == "phase" { strong { (visible(text)) } } @else { code title=(visible(text)) { (visible(text)) } }
        @if matches!(status, "failed" | "rejected") { span.small.bad { (glyph::word(status)) } }
        span.what {
            @match (node["kind"].as_str().unwrap_or_default(), counts) {
                ("phase", _) => (counted(children, "step", "steps")),
                (_, Some(counts)) => {
                    (counted(counts.values().filter_map(Value::as_u64).sum(), "element", "elements"))
                    @if let Some(failed) = counts.get("failed").and_then(Value::as_u64) { ", " span.bad { (failed) " failed" } }
                },
                ("step", None) => { @if let Some(attempts) = attempts(node) { (attempts) " attempts" } },
                ("item", None) => { @if let Some(label) = node["label"].as_str() { (visible(label)) } },
                ("attempt" | "turn" | "tool", None) => { @if let Some(by) = node["error"]["rejected_by"].as_str() { "by " (visible(by)) } },
                (kind, None) => { (kind) @if let Some(model) = node["model"].as_str() { " " (visible(model)) } },
            }
        }
    }
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

/// The number of attempts of a node, if there were several. Turns of a model, and attempts of all elements of a fan-out, do not
/// count.
pub(super) fn attempts(node: &Value) -> Option<u64> {
    let tried = node["attempt"].as_u64()?;
    let children = node["children"].as_u64().unwrap_or(0);
    let is_counted = matches!(node["kind"].as_str(), Some("step" | "item")) && !node["counts"].is_object();
    (is_counted && tried > 1 && children > 1).then_some(children)
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
