//! The graph of a pipeline or machine as a drawing: each node is a link, with its state in a run.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::report::clip;
use maud::{Markup, html};
use serde_json::Value;

use super::glyph;
use super::text::{duration, visible};

/// The size of a box and the space between boxes, in pixels.
const WIDTH: usize = 168;
const HEIGHT: usize = 52;
const GAP: usize = 36;
const LINE: usize = 44;
const MARGIN: usize = 8;

/// Maximum number of boxes per line.
const COLUMNS: usize = 5;

/// Maximum length of a name in a box, in letters.
const LETTERS: usize = 16;

/// Maximum number of boxes: a larger drawing is unreadable, and a browser cannot draw it at once.
const MAX_BOXES: usize = 1_000;

/// A drawing of a graph. The nodes of its document may have the states of a run; `link` maps a node to its link.
pub(super) struct Drawing<'d> {
    pub(super) graph: &'d Value,
    pub(super) link: &'d dyn Fn(&str) -> String,
}

/// The position and size of a box, in pixels.
#[derive(Debug, Clone, Copy)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// The boxes of a graph, with lookup tables.
struct Boxes<'d> {
    drawing: &'d Drawing<'d>,
    /// The boxes inside a box, by its id.
    inner: BTreeMap<&'d str, Vec<&'d Value>>,
    /// The ids of the boxes whose data a box uses, by its id.
    uses: BTreeMap<&'d str, Vec<&'d str>>,
}

impl<'d> Drawing<'d> {
    fn nodes(&self) -> &'d [Value] {
        self.graph["nodes"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn edges(&self) -> impl Iterator<Item = (&'d str, &'d str, &'d str)> + use<'d> {
        let edges = self.graph["edges"].as_array().map(Vec::as_slice).unwrap_or_default();
        edges.iter().filter_map(|edge| Some((edge["from"].as_str()?, edge["to"].as_str()?, edge["kind"].as_str()?)))
    }

    /// The drawing as SVG, or a note if it is too large.
    pub(super) fn render(&self) -> Markup {
        let nodes = self.nodes();
        if nodes.len() > MAX_BOXES {
            return html! { p.empty { "A graph of " (nodes.len()) " boxes is not drawn. " code { "etude graph" } " prints it." } };
        }
        let (mut inner, mut uses) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        for node in nodes {
            if let Some(outer) = node["inside"].as_str() {
                inner.entry(outer).or_default().push(node);
            }
        }
        for (from, to, _) in self.edges().filter(|(.., kind)| *kind == "data") {
            uses.entry(to).or_default().push(from);
        }
        let boxes = Boxes { drawing: self, inner, uses };
        match nodes.iter().any(|node| node["type"] == "stage") {
            true => boxes.stages(),
            false => boxes.steps(),
        }
    }
}

impl<'d> Boxes<'d> {
    /// The boxes inside the box `id`.
    fn inner(&self, id: &Value) -> &[&'d Value] {
        id.as_str().and_then(|id| self.inner.get(id)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Steps in order, line by line like a text; the branches of a parallel step are stacked.
    fn steps(&self) -> Markup {
        let is_phase = |node: &Value| matches!(node["type"].as_str(), Some("constructor" | "destructor"));
        let nodes = self.drawing.nodes();
        let phases: BTreeSet<&str> =
            nodes.iter().filter(|node| is_phase(node)).filter_map(|node| node["id"].as_str()).collect();
        let is_top =
            |node: &&Value| !is_phase(node) && node["inside"].as_str().is_none_or(|outer| phases.contains(outer));
        let cells: Vec<&Value> = nodes.iter().filter(is_top).collect();
        let inner = |id: &Value| self.inner(id);
        // The frame around branches is a little wider than a box.
        let framed = |cell: &Value, place: Place| match inner(&cell["id"]).is_empty() {
            true => place,
            false => Place { x: place.x - 6, width: WIDTH + 12, ..place },
        };
        let height = |cell: &Value| match inner(&cell["id"]).len() {
            0 => HEIGHT,
            count => 36 + count * (HEIGHT + 8),
        };
        let mut places: Vec<Place> = Vec::new();
        let mut y = 28;
        for line in cells.chunks(COLUMNS) {
            let tallest = line.iter().map(|cell| height(cell)).max().unwrap_or(HEIGHT);
            for (column, cell) in line.iter().enumerate() {
                let height = height(cell);
                places.push(Place {
                    x: column * (WIDTH + GAP) + MARGIN,
                    y: y + (tallest - height) / 2,
                    height,
                    width: WIDTH,
                });
            }
            y += tallest + LINE;
        }
        let width = cells.len().min(COLUMNS) * (WIDTH + GAP) - GAP.min(cells.len()) + 2 * MARGIN;
        html! {
            svg width=(width) height=(y + 16 - LINE) viewBox={ "0 0 " (width) " " (y + 16 - LINE) } role="group" aria-label="Graph" {
                @for (nth, place) in places.iter().enumerate() {
                    @if nth > 0 { (arrow(framed(cells[nth - 1], places[nth - 1]), framed(cells[nth], *place))) }
                    @let phase = cells[nth]["phase"].as_str().unwrap_or_default();
                    @if nth == 0 || cells[nth - 1]["phase"] != cells[nth]["phase"] { text.kind x=(place.x) y=(place.y - 10) { (phase) } }
                }
                @for (cell, place) in cells.iter().zip(&places) {
                    @let children = inner(&cell["id"]);
                    @if children.is_empty() { (self.node(cell, *place)) } @else {
                        rect.group x=(place.x - 6) y=(place.y) width=(WIDTH + 12) height=(place.height) rx="8" {}
                        text.name x=(place.x + 8) y=(place.y + 20) { (clip(&visible(cell["name"].as_str().unwrap_or_default()), LETTERS)) }
                        text.kind x=(place.x + WIDTH - 4) y=(place.y + 20) text-anchor="end" { (cell["type"].as_str().unwrap_or_default()) }
                        @for (nth, child) in children.iter().enumerate() {
                            (self.node(child, Place { x: place.x, y: place.y + 32 + nth * (HEIGHT + 8), height: HEIGHT, width: WIDTH }))
                        }
                    }
                }
            }
        }
    }

    /// Stages in columns by their distance from the first.
    fn stages(&self) -> Markup {
        let nodes = self.drawing.nodes();
        let entry = nodes.iter().find(|node| node["entry"] == true).or(nodes.first());
        let mut following: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (from, to, _) in self.drawing.edges() {
            following.entry(from).or_default().push(to);
        }
        let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
        let mut reached: Vec<&str> = entry.and_then(|node| node["id"].as_str()).into_iter().collect();
        columns.extend(reached.iter().map(|id| (*id, 0)));
        let mut next = 0;
        while let Some(from) = reached.get(next).copied() {
            next += 1;
            let column = columns.get(from).copied().unwrap_or(0) + 1;
            for to in following.get(from).into_iter().flatten() {
                if !columns.contains_key(to) {
                    columns.insert(to, column);
                    reached.push(to);
                }
            }
        }
        let mut filled: BTreeMap<usize, usize> = BTreeMap::new();
        let mut places: BTreeMap<&str, Place> = BTreeMap::new();
        for node in nodes {
            let id = node["id"].as_str().unwrap_or_default();
            let column = columns.get(id).copied().unwrap_or(0);
            let row = filled.entry(column).or_default();
            places.insert(
                id,
                Place {
                    x: column * (WIDTH + GAP) + MARGIN,
                    y: *row * (HEIGHT + LINE) + 28,
                    height: HEIGHT,
                    width: WIDTH,
                },
            );
            *row += 1;
        }
        let width = filled.len() * (WIDTH + GAP) + 2 * MARGIN;
        let boxes = filled.values().max().copied().unwrap_or(1) * (HEIGHT + LINE) + 28 - LINE;
        let height = boxes + 44;
        html! {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label="Graph" {
                @for (nth, (from, to, _)) in self.drawing.edges().enumerate() {
                    @if let (Some(from), Some(to)) = (places.get(from), places.get(to)) {
                        @if to.x > from.x { (arrow(*from, *to)) } @else { (back(*from, *to, boxes + 12 + nth % 4 * 6)) }
                    }
                }
                @for node in nodes {
                    @if let Some(place) = places.get(node["id"].as_str().unwrap_or_default()) { (self.node(node, *place)) }
                }
            }
        }
    }

    fn node(&self, node: &Value, place: Place) -> Markup {
        let (id, name) = (node["id"].as_str().unwrap_or_default(), node["name"].as_str().unwrap_or_default());
        let kind = node["type"].as_str().unwrap_or_default();
        let state = &node["state"];
        let status = state["status"].as_str();
        let each = if node["for_each"].is_object() { " · for_each" } else { "" };
        let sub = match (status, state["duration_ms"].as_u64()) {
            (Some("not_started"), _) => "not started".to_owned(),
            (Some(status @ ("failed" | "rejected" | "waiting" | "skipped" | "running" | "cancelled")), _) => {
                glyph::word(status)
            }
            (Some(_), Some(ms)) => duration(ms),
            _ => String::new(),
        };
        let uses = self.uses.get(id).map(Vec::as_slice).unwrap_or_default();
        let text = if sub.is_empty() { format!("{kind}{each}") } else { format!("{kind}{each} · {sub}") };
        html! {
            a href=((self.drawing.link)(id)) class=(status.unwrap_or("plain")) data-row {
                title { (visible(name)) ", " (text) @if !uses.is_empty() { ", uses " (uses.join(", ")) } }
                rect.box x=(place.x) y=(place.y) width=(WIDTH) height=(place.height) rx="8" {}
                @let start = if status.is_some() { 36 } else { 14 };
                @if let Some(status) = status { svg class={ "glyph " (status) } x=(place.x + 12) y=(place.y + 10) width="16" height="16" { use href={ "#g-" (glyph::lookup(status)) } {} } }
                text.name x=(place.x + start) y=(place.y + 22) { (clip(&visible(name), LETTERS)) }
                text.sub x=(place.x + start) y=(place.y + 40) { (text) }
            }
        }
    }
}

/// An arrow to a box on the right, or to the first box of the next line.
fn arrow(from: Place, to: Place) -> Markup {
    let (x1, y1) = (from.x + from.width, from.y + from.height / 2);
    let (x2, y2) = (to.x.saturating_sub(2), to.y + to.height / 2);
    let path = if x2 > x1 {
        let middle = usize::midpoint(x1, x2);
        format!("M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}")
    } else {
        let (right, left, between) = (x1 + 6, 1, to.y.saturating_sub(26));
        format!("M{x1} {y1}H{right}V{between}H{left}V{y2}H{x2}")
    };
    html! { path.edge d=(path) {} path.tip d=(format!("M{} {y2}l-6-3.5v7z", x2 + 2)) {} }
}

/// An arrow back to an earlier stage: between the columns and, at `low`, below all boxes.
fn back(from: Place, to: Place, low: usize) -> Markup {
    let (x1, y1) = (from.x + from.width, from.y + from.height / 2);
    let (x2, y2) = (to.x.saturating_sub(2), to.y + to.height / 2);
    let path = format!("M{x1} {y1}h8V{low}H{}V{y2}H{x2}", x2.saturating_sub(14));
    html! { path.edge d=(path) {} path.tip d=(format!("M{} {y2}l-6-3.5v7z", x2 + 2)) {} }
}
