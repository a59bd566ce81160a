//! A picture: SVG without scripts, links or fonts of its own.

use std::fmt::Write;

use etude_spec::xml::escaped;

use super::layout::{self, GAP, LINE, PADDING, Place};
use super::{Edge, EdgeKind, Graph};

/// Arrow heads, and the faces and colours of everything.
const HEAD: &str = r##"<defs>
<marker id="order" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#333"/></marker>
<marker id="data" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#2563a8"/></marker>
</defs>
<style>text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#222}.name{font-weight:bold}.box{fill:#fff;stroke:#333}.llm{fill:#eef4fb}.approval{fill:#fdf3e1}.group{fill:#f6f6f6;stroke:#777}.phase{fill:none;stroke:#777;stroke-dasharray:5 4}.order{fill:none;stroke:#333}.data{fill:none;stroke:#2563a8;stroke-dasharray:2 3}</style>
"##;

impl Graph {
    /// The graph as an SVG picture.
    pub fn svg(&self) -> String {
        let (places, whole) = layout::of(self);
        let bulges: Vec<f64> = self.edges.iter().map(|edge| bulge(edge, &places)).collect();
        let reach = self.edges.iter().zip(&bulges).map(|(edge, bulge)| {
            let right = places[edge.from].right().max(places[edge.to].right());
            if edge.kind == EdgeKind::Data { right + bulge } else { 0.0 }
        });
        let (width, height) = (reach.fold(whole.width, f64::max).ceil(), whole.height.ceil());
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n"
        );
        let _ = writeln!(out, "<title>{}</title>", on_one_line(&self.name));
        out.push_str(HEAD);
        let _ = writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>");
        // Arrows lie on the boxes that hold others and under all other boxes, so that they cross no text of a step.
        let holds_others = |at: &usize| self.children(Some(*at)).next().is_some();
        let (around, steps): (Vec<usize>, Vec<usize>) = (0..self.nodes.len()).partition(holds_others);
        around.iter().for_each(|at| self.draw(&mut out, *at, &places[*at]));
        for (edge, bulge) in self.edges.iter().zip(bulges) {
            let inside = self.nodes[edge.to].inside.filter(|around| !self.nodes[*around].is_dashed());
            draw_edge(&mut out, edge, &places, inside.map(|around| &places[around]), bulge);
        }
        steps.iter().for_each(|at| self.draw(&mut out, *at, &places[*at]));
        out.push_str("</svg>\n");
        out
    }

    fn draw(&self, out: &mut String, at: usize, place: &Place) {
        let node = &self.nodes[at];
        let is_group = self.children(Some(at)).next().is_some();
        let class = match node.kind {
            _ if node.is_dashed() => "phase",
            _ if is_group => "group",
            "llm" => "box llm",
            "approval" => "box approval",
            _ => "box",
        };
        let Place { x, y, width, height } = place;
        let round = if node.kind == "llm" { 10 } else { 3 };
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round}\"/>"
        );
        for (number, line) in node.lines().iter().enumerate() {
            let class = if number == 0 { " class=\"name\"" } else { "" };
            let (x, y) = (x + PADDING, y + PADDING + LINE * (number as f64 + 0.75));
            let _ = writeln!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", on_one_line(line));
        }
    }
}

/// How far a data arrow swings to the right: farther for a longer way, so that arrows do not lie on each other.
fn bulge(edge: &Edge, places: &[Place]) -> f64 {
    let way = (places[edge.to].middle() - places[edge.from].middle()).abs();
    28.0 + way * 0.16
}

/// `group` is the parallel group in which the arrow ends, if it ends in one.
fn draw_edge(out: &mut String, edge: &Edge, places: &[Place], group: Option<&Place>, bulge: f64) {
    let (from, to) = (&places[edge.from], &places[edge.to]);
    if edge.kind == EdgeKind::Order {
        let (x1, y1, x2, y2) = (from.center(), from.bottom(), to.center(), to.y);
        let _ =
            writeln!(out, "<path class=\"order\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" marker-end=\"url(#order)\"/>");
        return;
    }
    let (x1, y1, x2, y2) = (from.right(), from.middle(), to.right(), to.middle());
    let far = x1.max(x2) + bulge * 4.0 / 3.0;
    let way = match group {
        // Beside a box of a group stand others: the arrow comes from the room above the group.
        Some(group) => {
            let (x, above) = (to.center(), group.y - GAP / 2.0);
            let (corner, bend) = (x1.max(x + 14.0), above + 14.0);
            let way = format!("C{far:.1} {y1:.1} {far:.1} {above:.1} {corner:.1} {above:.1}");
            format!("{way}L{:.1} {above:.1}Q{x:.1} {above:.1} {x:.1} {bend:.1}L{x:.1} {:.1}", x + 14.0, to.y)
        }
        None => format!("C{far:.1} {y1:.1} {far:.1} {y2:.1} {x2:.1} {y2:.1}"),
    };
    let _ = writeln!(out, "<path class=\"data\" d=\"M{x1:.1} {y1:.1}{way}\" marker-end=\"url(#data)\"/>");
}

/// Text for XML, with a blank for each character that breaks a line or steers a terminal.
fn on_one_line(text: &str) -> String {
    escaped(&text.replace(char::is_control, " "))
}
