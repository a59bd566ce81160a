//! Output in SVG without scripts, links or fonts. Boxes are below each other, and those of a group are inside its box.

use std::fmt::Write;

use etude_spec::xml::escaped;

use super::{EdgeKind, Graph};

/// Width of a character, height of a line, and room around text and boxes, in units of the picture.
const CHARACTER: usize = 8;
const LINE: usize = 17;
const GAP: usize = 12;

/// Arrow heads and colours.
const STYLE: &str = r##"<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
<style>text{font:12px monospace}.name{font-weight:bold}rect{fill:#fff;stroke:#333}.phase{stroke-dasharray:5 4}path{fill:none;stroke:#333}.data{stroke:#2563a8;stroke-dasharray:2 3}marker path{fill:#333}</style>
"##;

/// Position and size of a box.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Area {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Graph {
    /// The graph as an SVG picture.
    pub fn svg(&self) -> String {
        let (areas, whole) = self.areas();
        let (width, height) = (whole.width + 8 * GAP, whole.height);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n"
        );
        let _ = write!(out, "<title>{}</title>\n{STYLE}", on_one_line(&self.name));
        for (node, Area { x, y, width, height }) in self.nodes.iter().zip(&areas) {
            let class = if node.is_dashed() { "phase" } else { node.kind };
            let _ =
                writeln!(out, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
            for (number, line) in node.lines().iter().enumerate() {
                let class = if number == 0 { " class=\"name\"" } else { "" };
                let (x, y, line) = (x + GAP, y + GAP + LINE * number + CHARACTER, on_one_line(line));
                let _ = writeln!(out, "<text{class} x=\"{x}\" y=\"{y}\">{line}</text>");
            }
        }
        for edge in &self.edges {
            let (from, to, class) = (areas[edge.from], areas[edge.to], edge.kind.word());
            let path = match edge.kind {
                EdgeKind::Order if to.y > from.y => {
                    let x = from.x.max(to.x) + 2 * GAP;
                    format!("M{x} {}L{x} {}", from.y + from.height, to.y)
                }
                // Next to the boxes, so that the arrow crosses none of them.
                _ => {
                    let (right, y, end) = (whole.width + 6 * GAP, from.y + from.height / 2, to.y + to.height / 2);
                    format!("M{} {y}C{right} {y} {right} {end} {} {end}", from.x + from.width, to.x + to.width)
                }
            };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\" marker-end=\"url(#head)\"/>");
        }
        out + "</svg>\n"
    }

    /// Areas of the nodes, and of the whole picture.
    pub(super) fn areas(&self) -> (Vec<Area>, Area) {
        let mut areas = vec![Area::default(); self.nodes.len()];
        let (width, height) = self.column(None, GAP, GAP, &mut areas);
        (areas, Area { x: 0, y: 0, width: width + 2 * GAP, height: height + 2 * GAP })
    }

    /// Places the boxes inside `around` below each other. Returns the width and height of the column.
    fn column(&self, around: Option<usize>, x: usize, y: usize, areas: &mut [Area]) -> (usize, usize) {
        let (mut width, mut height) = (0, 0);
        for at in self.children(around) {
            let lines = self.nodes[at].lines();
            // Characters of East Asian scripts are twice as wide.
            let cells = |line: &String| line.chars().map(|c| if u32::from(c) >= 0x1100 { 2 } else { 1 }).sum::<usize>();
            let text = (lines.iter().map(cells).max().unwrap_or(0) * CHARACTER, lines.len() * LINE);
            let top = y + height + if height == 0 { 0 } else { 2 * GAP };
            let inside = self.column(Some(at), x + GAP, top + text.1 + 2 * GAP, areas);
            let inner = if inside.1 == 0 { 0 } else { inside.1 + GAP };
            let area = Area { x, y: top, width: text.0.max(inside.0) + 2 * GAP, height: text.1 + inner + 2 * GAP };
            areas[at] = area;
            (width, height) = (width.max(area.width), top + area.height - y);
        }
        (width, height)
    }
}

/// Escapes text for XML, with a blank for each character that breaks a line or controls a terminal.
fn on_one_line(text: &str) -> String {
    escaped(&text.replace(char::is_control, " "))
}
