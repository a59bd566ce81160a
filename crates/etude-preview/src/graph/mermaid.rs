//! Output in Mermaid, as Markdown viewers draw it.

use std::fmt::Write;

use super::{EdgeKind, Graph, Node};

impl Graph {
    /// The graph as a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for at in self.children(None) {
            self.mermaid_node(&mut out, at, 1);
        }
        for edge in &self.edges {
            let arrow = match edge.kind {
                EdgeKind::Order => "-->",
                EdgeKind::Data => "-.->",
            };
            let _ = writeln!(out, "  n{} {arrow} n{}", edge.from, edge.to);
        }
        for (at, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_dashed()) {
            let _ = writeln!(out, "  style n{at} stroke-dasharray: 5 5");
        }
        out
    }

    fn mermaid_node(&self, out: &mut String, at: usize, depth: usize) {
        let node = &self.nodes[at];
        let pad = "  ".repeat(depth);
        if self.children(Some(at)).next().is_some() {
            let _ = writeln!(out, "{pad}subgraph n{at}[\"{}\"]", label(node));
            if node.is_dashed() {
                let _ = writeln!(out, "{pad}  direction TB");
            }
            for child in self.children(Some(at)) {
                self.mermaid_node(out, child, depth + 1);
            }
            let _ = writeln!(out, "{pad}end");
            return;
        }
        let (open, close) = match node.kind {
            "llm" => ("([", "])"),
            "pipeline" => ("[[", "]]"),
            "approval" => ("{{", "}}"),
            _ => ("[", "]"),
        };
        let _ = writeln!(out, "{pad}n{at}{open}\"{}\"{close}", label(node));
    }
}

fn label(node: &Node) -> String {
    let lines: Vec<String> = node.lines().iter().map(|line| escaped(line)).collect();
    lines.join("<br/>")
}

/// Escapes text so that it has no meaning in Mermaid or in the HTML around it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || " _-.,:/=+()…".contains(c) => out.push(c),
            c if c.is_control() => out.push(' '),
            c if !c.is_ascii() => out.push(c),
            c => {
                let _ = write!(out, "#{};", u32::from(c));
            }
        }
    }
    out
}
