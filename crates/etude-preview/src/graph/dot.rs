//! Output in DOT, the language of Graphviz.

use std::fmt::Write;

use super::{EdgeKind, Graph, Node};

impl Graph {
    /// The graph as a DOT digraph.
    pub fn dot(&self) -> String {
        let mut out = format!("digraph {} {{\n", quoted(&self.name));
        out.push_str("  graph [compound=true, rankdir=TB, fontname=\"sans-serif\"];\n");
        out.push_str("  node [shape=box, fontname=\"sans-serif\"];\n");
        for at in self.children(None) {
            self.dot_node(&mut out, at, 1);
        }
        for edge in &self.edges {
            let mut attributes = Vec::new();
            // An arrow cannot end at a cluster: it is drawn to a node inside and clipped at the border of the cluster.
            let (from, to) = (self.last_inside(edge.from), self.first_inside(edge.to));
            if from != edge.from {
                attributes.push(format!("ltail=\"cluster_{}\"", edge.from));
            }
            if to != edge.to {
                attributes.push(format!("lhead=\"cluster_{}\"", edge.to));
            }
            if edge.kind == EdgeKind::Data {
                attributes.push("style=dotted, constraint=false".to_owned());
            }
            let attributes =
                if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
            let _ = writeln!(out, "  n{from} -> n{to}{attributes};");
        }
        out.push_str("}\n");
        out
    }

    fn first_inside(&self, at: usize) -> usize {
        self.children(Some(at)).next().map_or(at, |child| self.first_inside(child))
    }

    fn last_inside(&self, at: usize) -> usize {
        self.children(Some(at)).last().map_or(at, |child| self.last_inside(child))
    }

    fn dot_node(&self, out: &mut String, at: usize, depth: usize) {
        let node = &self.nodes[at];
        let pad = "  ".repeat(depth);
        if self.children(Some(at)).next().is_none() {
            let shape = match node.kind {
                "llm" => ", style=rounded",
                "pipeline" => ", peripheries=2",
                "approval" => ", shape=hexagon",
                _ => "",
            };
            let _ = writeln!(out, "{pad}n{at} [label={}{shape}];", label(node));
            return;
        }
        let _ = writeln!(out, "{pad}subgraph \"cluster_{at}\" {{");
        let style = if node.is_dashed() { "dashed" } else { "solid" };
        let _ = writeln!(out, "{pad}  label={}; style={style};", label(node));
        for child in self.children(Some(at)) {
            self.dot_node(out, child, depth + 1);
        }
        let _ = writeln!(out, "{pad}}}");
    }
}

fn label(node: &Node) -> String {
    let lines: Vec<String> = node.lines().iter().map(|line| escaped(line)).collect();
    format!("\"{}\"", lines.join("\\n"))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

fn escaped(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
