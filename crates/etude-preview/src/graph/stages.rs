//! Drawing of a stage machine: its stages, and the transitions that are known before a run.

use std::collections::BTreeSet;

use etude_core::failure::Phase;
use etude_core::plan::stages::{Next, NextRule, Path, Stage, StageMachine, Test};
use etude_core::template::Segment;
use serde_json::{Map, Value, json};

use super::{Edge, EdgeKind, Graph, Node};
use crate::describe;

/// Graph of a stage machine: an edge for each case of `next`.
pub fn of(machine: &StageMachine) -> Graph {
    let nodes = machine.stages.iter().map(|stage| node(stage, machine)).collect();
    let mut edges = BTreeSet::new();
    for (from, stage) in machine.stages.iter().enumerate() {
        let NextRule::Cases(cases) = &stage.next else { continue };
        for (source, target) in cases.iter().flat_map(|case| arrows(&stage.id, &case.next)) {
            let index = |id: &str| machine.stages.iter().position(|stage| stage.id == id);
            let begins = if source == stage.id { Some(from) } else { index(&source) };
            if let (Some(from), Some(to)) = (begins, index(&target)) {
                edges.insert(Edge { from, to, kind: EdgeKind::Order });
            }
        }
    }
    Graph { name: machine.id.clone(), nodes, edges: edges.into_iter().collect() }
}

/// Arrows of a transition of `stage`, as pairs of stage ids: through the siblings to the join.
fn arrows(stage: &str, next: &Next) -> Vec<(String, String)> {
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    match next {
        Next::Terminal => Vec::new(),
        Next::Sequential(list) => {
            let sources = std::iter::once(stage).chain(list.iter().map(String::as_str));
            sources.zip(list).map(|(from, to)| pair(from, to)).collect()
        }
        Next::Parallel { siblings, join } => {
            let out = siblings.iter().map(|sibling| pair(stage, sibling));
            let back = siblings.iter().flat_map(|sibling| join.iter().map(move |join| pair(sibling, join)));
            out.chain(back).collect()
        }
    }
}

fn node(stage: &Stage, machine: &StageMachine) -> Node {
    let mut facts = Vec::new();
    if stage.id == machine.entry {
        facts.push("enters here".to_owned());
    }
    facts.push(match stage.allowed_tools.as_slice() {
        [] => "no tools".to_owned(),
        tools => format!("tools {}", tools.join(", ")),
    });
    facts.push(format!("turns {}, attempts {}", stage.turn_cap, stage.max_attempts));
    facts.extend(transitions(stage).into_iter().map(|(when, next)| format!("{when}: {next}")));
    let mut attributes = Map::new();
    attributes.insert("entry".to_owned(), json!(stage.id == machine.entry));
    attributes.insert("allowedTools".to_owned(), json!(stage.allowed_tools));
    attributes.insert("turnCap".to_owned(), json!(stage.turn_cap));
    Node {
        id: stage.id.clone(),
        name: stage.name.clone(),
        kind: "stage",
        phase: Phase::Business,
        inside: None,
        is_output: false,
        facts,
        attributes,
    }
}

/// Stages of a machine in the order in which a run can enter them, breadth first from the first one. Stages that no case of `next`
/// names come last, by id.
pub fn in_order(machine: &StageMachine) -> Vec<&Stage> {
    let find = |id: &str| machine.stages.iter().position(|stage| stage.id == id);
    let mut order: Vec<usize> = find(&machine.entry).into_iter().collect();
    let mut seen = 0;
    while let Some(&at) = order.get(seen) {
        seen += 1;
        let stage = &machine.stages[at];
        let NextRule::Cases(cases) = &stage.next else { continue };
        for (_, target) in cases.iter().flat_map(|case| arrows(&stage.id, &case.next)) {
            order.extend(find(&target).filter(|target| !order.contains(target)));
        }
    }
    let others: Vec<usize> = (0..machine.stages.len()).filter(|at| !order.contains(at)).collect();
    order.into_iter().chain(others).map(|at| &*machine.stages[at]).collect()
}

/// Transitions of a stage in words: condition and target.
pub fn transitions(stage: &Stage) -> Vec<(String, String)> {
    match &stage.next {
        NextRule::Script(script) => vec![("a script decides".to_owned(), describe::command(&script.command))],
        NextRule::Cases(cases) => cases
            .iter()
            .map(|case| {
                let tests: Vec<String> = case.when.iter().map(test).collect();
                let when = if tests.is_empty() { "then".to_owned() } else { format!("when {}", tests.join(" and ")) };
                (when, next(&case.next))
            })
            .collect(),
    }
}

fn next(next: &Next) -> String {
    match next {
        Next::Terminal => "done".to_owned(),
        Next::Sequential(list) => list.join(", then "),
        Next::Parallel { siblings, join: None } => format!("{} at once", siblings.join(", ")),
        Next::Parallel { siblings, join: Some(join) } => format!("{} at once, then {join}", siblings.join(", ")),
    }
}

fn test(test: &Test) -> String {
    format!("{} {} {}", path(&test.path), test.op.word(), test.literal)
}

fn path(path: &Path) -> String {
    let mut out = path.root.word().to_owned();
    for segment in &path.segments {
        match segment {
            Segment::Field(name) => out.extend([".", name]),
            Segment::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }
    out
}

/// JSON document of a stage machine, which `etude machine show` prints.
pub fn json(machine: &StageMachine) -> Value {
    let stage = |stage: &Stage| {
        let next: Vec<Value> =
            transitions(stage).into_iter().map(|(when, next)| json!({"when": when, "next": next})).collect();
        json!({
            "id": stage.id,
            "name": stage.name,
            "description": stage.description,
            "tags": stage.tags,
            "allowedTools": stage.allowed_tools,
            "completionTool": stage.completion_tool,
            "completionSchema": **stage.completion_schema.document(),
            "inputsSchema": stage.inputs_schema.as_ref().map(|schema| (**schema.document()).clone()),
            "turnCap": stage.turn_cap,
            "maxAttempts": stage.max_attempts,
            "resolutionPolicy": stage.resolution.word(),
            "placeholders": stage.body.ctx_names(),
            "file": stage.origin.file,
            "next": next,
        })
    };
    json!({
        "machine": machine.id,
        "model": machine.tier.word(),
        "entryStage": machine.entry,
        "stateSlot": {"slotVersion": machine.slot.version, "drift": machine.slot.drift.word()},
        "maxStageExecutions": machine.max_executions,
        "stages": in_order(machine).into_iter().map(stage).collect::<Vec<_>>(),
    })
}
