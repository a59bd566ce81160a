//! A chain as a drawing.

use etude_spec::cascade::Compiled;
use serde_json::{Value, json};

/// The phases of a chain; each ends at the anchor of the same name.
const PHASES: &[&str] =
    &["$pre-configure", "$configure", "$post-configure", "$pre-execute", "$execute", "$post-execute"];

/// A Mermaid flowchart: the levels above, the chain below, the function where `execute` or the fallback runs it.
pub fn mermaid(compiled: &Compiled) -> String {
    let mut out = String::from("flowchart TD\n  subgraph levels\n    direction BT\n");
    for (at, level) in compiled.levels.iter().enumerate() {
        out.push_str(&format!("    l{at}[\"{level}\"]\n"));
        if at > 0 {
            out.push_str(&format!("    l{} --> l{at}\n", at - 1));
        }
    }
    out.push_str("  end\n  subgraph chain\n    direction TB\n");
    for (at, entry) in compiled.chain.iter().enumerate() {
        out.push_str(&format!("    c{at}[\"{entry}\"]\n"));
        if at > 0 {
            out.push_str(&format!("    c{} --> c{at}\n", at - 1));
        }
    }
    let function = compiled.chain.iter().position(|entry| entry == "execute");
    out.push_str(&format!("  end\n  f([\"{}\"])\n", compiled.skill.name));
    match (function, compiled.chain.len()) {
        (Some(at), _) => out.push_str(&format!("  c{at} -.-> f\n")),
        (None, 0) => out.push_str("  levels -.-> f\n"),
        (None, count) => out.push_str(&format!("  c{} -.-> f\n", count - 1)),
    }
    for (at, key) in compiled.statics.iter().enumerate() {
        out.push_str(&format!("  s{at}[\"{key}\"]:::static\n"));
    }
    out.push_str("  classDef static stroke-dasharray: 3 3\n");
    out
}

/// A Graphviz digraph.
pub fn dot(compiled: &Compiled) -> String {
    let mut out = format!("digraph \"{}\" {{\n  rankdir=TB;\n  node [shape=box];\n", compiled.skill.name);
    let arrows = |out: &mut String, names: &[String], prefix: &str| {
        for name in names {
            out.push_str(&format!("  \"{prefix}{name}\" [label=\"{name}\"];\n"));
        }
        for pair in names.windows(2) {
            out.push_str(&format!("  \"{prefix}{}\" -> \"{prefix}{}\";\n", pair[0], pair[1]));
        }
    };
    arrows(&mut out, &compiled.levels, "level ");
    arrows(&mut out, &compiled.chain, "");
    out.push_str("}\n");
    out
}

/// Nodes and edges as JSON.
pub fn json(compiled: &Compiled) -> Value {
    let edge = |pair: &[String], kind: &str| json!({"from": pair[0], "to": pair[1], "kind": kind});
    let edges: Vec<Value> = compiled
        .levels
        .windows(2)
        .map(|pair| edge(pair, "inherits"))
        .chain(compiled.chain.windows(2).map(|pair| edge(pair, "next")))
        .collect();
    json!({
        "name": compiled.skill.name,
        "levels": compiled.levels,
        "chain": compiled.chain,
        "static": compiled.statics,
        "phases": PHASES,
        "edges": edges,
    })
}
