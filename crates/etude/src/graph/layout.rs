//! A simple layout: one column from top to bottom, groups side by side. Units are those of the picture.

use super::{Graph, Node};

/// Width of a character of a fact, which is set in 12 units of a monospaced face.
const CHARACTER: f64 = 7.25;
/// Height of a line.
pub(super) const LINE: f64 = 17.0;
/// Room between the border of a box and what is in it.
pub(super) const PADDING: f64 = 12.0;
/// Room between boxes.
pub(super) const GAP: f64 = 34.0;
/// Most boxes of a group in one row.
const IN_A_ROW: usize = 4;

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Place {
    /// Left border.
    pub x: f64,
    /// Upper border.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Place {
    pub(super) fn center(&self) -> f64 {
        self.x + self.width / 2.0
    }

    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    pub(super) fn middle(&self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// Where each node of `graph` stands, and the size of the whole.
pub(super) fn of(graph: &Graph) -> (Vec<Place>, Place) {
    let mut places = vec![Place::default(); graph.nodes.len()];
    let column: Vec<usize> = graph.children(None).collect();
    for at in &column {
        measure(graph, &mut places, *at);
    }
    let size = size_of_rows(&places, &rows(&column, 1));
    let whole = Place { x: 0.0, y: 0.0, width: size.0 + 2.0 * GAP, height: size.1 + 2.0 * GAP };
    put(graph, &mut places, &column, 1, (GAP, GAP, size.0));
    (places, whole)
}

/// Boxes beside each other; a constructor's steps stand below each other.
fn columns(node: &Node) -> usize {
    if node.is_dashed() { 1 } else { IN_A_ROW }
}

fn rows(boxes: &[usize], columns: usize) -> Vec<Vec<usize>> {
    boxes.chunks(columns).map(<[usize]>::to_vec).collect()
}

fn size_of_rows(places: &[Place], rows: &[Vec<usize>]) -> (f64, f64) {
    let gaps = |count: usize| GAP * count.saturating_sub(1) as f64;
    let width = |row: &Vec<usize>| row.iter().map(|at| places[*at].width).sum::<f64>() + gaps(row.len());
    let height = rows.iter().map(|row| height_of(places, row)).sum::<f64>() + gaps(rows.len());
    (rows.iter().map(width).fold(0.0, f64::max), height)
}

fn height_of(places: &[Place], row: &[usize]) -> f64 {
    row.iter().map(|at| places[*at].height).fold(0.0, f64::max)
}

/// Finds out how large the node is, with all that it holds.
fn measure(graph: &Graph, places: &mut [Place], at: usize) {
    let node = &graph.nodes[at];
    let lines = node.lines();
    let widest = lines.iter().map(|line| width_of(line)).fold(0.0, f64::max);
    let mut width = widest.max(90.0);
    let mut height = LINE * lines.len() as f64;
    let inside: Vec<usize> = graph.children(Some(at)).collect();
    if !inside.is_empty() {
        for child in &inside {
            measure(graph, places, *child);
        }
        let size = size_of_rows(places, &rows(&inside, columns(node)));
        width = width.max(size.0);
        height += PADDING + size.1;
    }
    places[at].width = width + 2.0 * PADDING;
    places[at].height = height + 2.0 * PADDING;
}

fn width_of(line: &str) -> f64 {
    // Characters of East Asian scripts are twice as wide.
    let cells: usize = line.chars().map(|c| if u32::from(c) >= 0x1100 { 2 } else { 1 }).sum();
    CHARACTER * cells as f64
}

/// Puts boxes into an area: its left and upper border and its width.
fn put(graph: &Graph, places: &mut [Place], boxes: &[usize], columns: usize, area: (f64, f64, f64)) {
    let (left, mut y, width) = area;
    for row in rows(boxes, columns) {
        let (used, height) = size_of_rows(places, std::slice::from_ref(&row));
        let mut x = left + (width - used) / 2.0;
        for at in row {
            places[at].x = x;
            places[at].y = y;
            x += places[at].width + GAP;
            let inside: Vec<usize> = graph.children(Some(at)).collect();
            let node = &graph.nodes[at];
            let top = y + 2.0 * PADDING + LINE * node.lines().len() as f64;
            let area = (places[at].x + PADDING, top, places[at].width - 2.0 * PADDING);
            put(graph, places, &inside, self::columns(node), area);
        }
        y += height + GAP;
    }
}
