//! Drawing of a plan: boxes for steps, arrows for their order, dotted arrows for data.
//!
//! [`of`] makes the graph; [`Graph::mermaid`], [`Graph::dot`], [`Graph::svg`] and [`Graph::json`] write it down.

mod dot;
mod facts;
mod mermaid;
pub mod stages;
mod svg;

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::failure::Phase;
use etude_core::plan::{OutputOf, Plan, Sequence, Step, StepKind};
use etude_core::template::Reference;
use serde_json::{Map, Value, json};

use crate::describe;

/// Graph of a pipeline with its constructor and destructor.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Name of the pipeline.
    pub name: String,
    /// Boxes in the order in which they run; a box that contains others comes before them.
    pub nodes: Vec<Node>,
    /// Arrows between nodes, by their indices in `nodes`.
    pub edges: Vec<Edge>,
}

/// A step, or a box around steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Id, unique in the graph: `PHASE`, or `PHASE/STEP`.
    pub id: String,
    /// Name of the step; for the box around a constructor or destructor the name of that pipeline.
    pub name: String,
    /// The word for `type` in a pipeline file; `constructor`, `destructor` or `fallback` for the boxes around those.
    pub kind: &'static str,
    /// The phase in which the step runs.
    pub phase: Phase,
    /// Index of the surrounding box in [`Graph::nodes`].
    pub inside: Option<usize>,
    /// True if its output is that of the pipeline.
    pub is_output: bool,
    /// Facts about it for people, a line each.
    pub facts: Vec<String>,
    /// The same facts for programs.
    pub attributes: Map<String, Value>,
}

/// An arrow between two nodes, by their index in [`Graph::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Index of the node that runs first.
    pub from: usize,
    /// Index of the node that follows.
    pub to: usize,
    /// The reason why one follows the other.
    pub kind: EdgeKind,
}

etude_core::words! {
    /// The reason for an arrow, by its word in documents.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum EdgeKind {
        /// One runs after the other.
        Order = "order",
        /// The templates of the second step refer to the output of the first. (Code steps also get all earlier outputs on
        /// stdin.)
        Data = "data",
    }
}

impl Node {
    /// True for the boxes around constructor, destructor and skill mode after a deviation.
    fn is_dashed(&self) -> bool {
        matches!(self.kind, "constructor" | "destructor" | "fallback")
    }

    /// Lines in the box: the name, the type, and the facts.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.name.clone()];
        if !self.is_dashed() {
            lines.push(if self.is_output {
                format!("{}, output of the pipeline", self.kind)
            } else {
                self.kind.to_owned()
            });
        }
        lines.extend(self.facts.iter().cloned());
        lines
    }
}

/// Graph of constructor, pipeline and destructor; each is a box with its steps.
pub fn of(plan: &Plan) -> Graph {
    let mut graph = Graph { name: plan.body.name.clone(), nodes: Vec::new(), edges: Vec::new() };
    let mut last = None;
    if let Some(before) = &plan.before {
        let at = graph.boxed(before, Phase::Constructor, "constructor");
        graph.follow(&mut last, at);
    }
    graph.sequence(&plan.body, Phase::Business, None, &mut last);
    let fallback = plan.fallback.as_ref().map(|fallback| graph.boxed(&fallback.sequence, Phase::Skill, "fallback"));
    if let Some(at) = fallback {
        graph.nodes[at].facts.push("after a deviation".to_owned());
    }
    if let Some(after) = &plan.after {
        let at = graph.boxed(after, Phase::Destructor, "destructor");
        graph.follow(&mut last, at);
        graph.edges.extend(fallback.map(|from| Edge { from, to: at, kind: EdgeKind::Order }));
    }
    graph
}

impl Graph {
    /// Children of a node, or the outermost nodes: indices into [`Graph::nodes`], in order.
    pub fn children(&self, inside: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(move |at| self.nodes[*at].inside == inside)
    }

    /// JSON document of the graph.
    pub fn json(&self) -> Value {
        let id = |at: usize| self.nodes[at].id.as_str();
        let node = |node: &Node| {
            let mut members = Map::new();
            members.insert("id".into(), json!(node.id));
            members.insert("name".into(), json!(node.name));
            members.insert("type".into(), json!(node.kind));
            members.insert("phase".into(), json!(node.phase.word()));
            members.insert("inside".into(), json!(node.inside.map(id)));
            members.insert("output".into(), json!(node.is_output));
            members.extend(node.attributes.clone());
            Value::Object(members)
        };
        let edge = |edge: &Edge| json!({"from": id(edge.from), "to": id(edge.to), "kind": edge.kind.word()});
        json!({
            "name": self.name,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "edges": self.edges.iter().map(edge).collect::<Vec<_>>(),
        })
    }

    fn boxed(&mut self, sequence: &Sequence, phase: Phase, kind: &'static str) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node {
            id: phase.word().to_owned(),
            name: sequence.name.clone(),
            kind,
            phase,
            inside: None,
            is_output: false,
            facts: Vec::new(),
            attributes: Map::new(),
        });
        self.sequence(sequence, phase, Some(at), &mut None);
        at
    }

    fn sequence(&mut self, sequence: &Sequence, phase: Phase, inside: Option<usize>, last: &mut Option<usize>) {
        let first_of_all = self.nodes.len();
        for step in &sequence.steps {
            let at = self.step(step, phase, inside);
            self.follow(last, at);
            if let StepKind::Parallel(group) = &step.kind {
                for child in &group.steps {
                    self.step(child, phase, Some(at));
                }
            }
        }
        if phase == Phase::Business {
            let output = match &sequence.output {
                OutputOf::Last => sequence.steps.last().map(|step| step.name.as_str()),
                OutputOf::Step(name) => Some(name.as_str()),
            };
            for node in &mut self.nodes[first_of_all..] {
                node.is_output = Some(node.name.as_str()) == output;
            }
        }
        self.data(sequence, first_of_all);
    }

    fn step(&mut self, step: &Arc<Step>, phase: Phase, inside: Option<usize>) -> usize {
        let (facts, attributes) = facts::of(step);
        self.nodes.push(Node {
            id: format!("{}/{}", phase.word(), step.name),
            name: step.name.clone(),
            kind: step.kind.word(),
            phase,
            inside,
            is_output: false,
            facts,
            attributes,
        });
        self.nodes.len() - 1
    }

    fn follow(&mut self, last: &mut Option<usize>, at: usize) {
        if let Some(from) = last.replace(at) {
            self.edges.push(Edge { from, to: at, kind: EdgeKind::Order });
        }
    }

    /// Adds arrows from the steps to whose outputs others refer. The nodes of `sequence` begin at `first`.
    fn data(&mut self, sequence: &Sequence, first: usize) {
        let place = |name: &str| (first..self.nodes.len()).find(|at| self.nodes[*at].name == name);
        let mut found = BTreeSet::new();
        let children = |step: &Arc<Step>| match &step.kind {
            StepKind::Parallel(group) => group.steps.clone(),
            _ => Vec::new(),
        };
        for step in sequence.steps.iter().flat_map(|step| [vec![Arc::clone(step)], children(step)].concat()) {
            for reference in describe::references(&step) {
                if let Reference::Output { step: from, .. } = reference
                    && let (Some(from), Some(to)) = (place(from), place(&step.name))
                {
                    found.insert(Edge { from, to, kind: EdgeKind::Data });
                }
            }
        }
        self.edges.extend(found);
    }
}

#[cfg(test)]
mod tests;
