//! Guards (2.6): conditions that held in all runs of a family and are violated elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::contrast::is_another;
use crate::program::{Condition, Guard, Of};
use crate::synth::{Assembly, Bound, NodeKind};
use crate::term::{Func, List, Ref, Source};
use crate::text::proves;
use crate::value::{Collection, Kind, Path, at, fields};

/// Minimum number of requests for which a condition must have held.
const MIN_REQUESTS: usize = 3;

/// Conditions for the write. The guards are also added to the program.
pub(crate) fn equalities(assembly: &mut Assembly<'_, '_, '_>) -> Vec<Condition> {
    let digests: BTreeSet<&str> = assembly.synth.episodes.iter().map(|episode| episode.digest.as_str()).collect();
    if digests.len() < MIN_REQUESTS || assembly.synth.contrast.is_empty() {
        return Vec::new();
    }
    use_records(assembly);
    let nodes: Vec<usize> = assembly.of_node.keys().copied().filter(|n| is_of_one_call(assembly, *n)).collect();
    let mut found: Vec<(Condition, usize)> = Vec::new();
    for (k, node) in nodes.iter().enumerate() {
        found.extend(constants(assembly, *node));
        for other in nodes.iter().enumerate().filter(|(j, _)| *j != k).map(|(_, other)| *other) {
            found.extend(relations(assembly, *node, other, *node < other));
        }
    }
    found.extend(of_elements(assembly));
    found.extend(of_all_elements(assembly));
    let step = assembly.name_of_write();
    let guards = found.iter().map(|(condition, violated)| {
        let (step, condition) = (step.clone(), condition.to_json());
        Guard { step, condition, violated: *violated }
    });
    let guards: Vec<Guard> = guards.collect();
    assembly.program.guards = guards;
    found.into_iter().map(|(condition, _)| condition).collect()
}

/// Adds the records of a loop's results: the write is about them even if no argument is read from them.
fn use_records(assembly: &mut Assembly<'_, '_, '_>) {
    let is_record = |n: &usize| match &assembly.synth.nodes[*n].kind {
        NodeKind::Record { of, list, .. } => {
            matches!(assembly.synth.nodes[*of].kind, NodeKind::Loop { .. })
                && list.path.is_empty()
                && assembly.of_node.contains_key(of)
        }
        _ => false,
    };
    let records: Vec<usize> = (0..assembly.synth.nodes.len()).filter(is_record).collect();
    for record in records {
        assembly.node(record);
    }
}

/// True if the node's value is the result of one call.
fn is_of_one_call(assembly: &Assembly<'_, '_, '_>, node: usize) -> bool {
    let synth = assembly.synth;
    let has_all = || synth.nodes[node].values.iter().all(Option::is_some);
    match &synth.nodes[node].kind {
        NodeKind::Read { .. } => has_all(),
        NodeKind::Role(_) => has_all(),
        NodeKind::Record { of, list, .. } => {
            has_all() && list.path.is_empty() && matches!(synth.nodes[*of].kind, NodeKind::Loop { .. })
        }
        NodeKind::Loop { .. } | NodeKind::Elements { .. } => false,
    }
}

fn tools(assembly: &Assembly<'_, '_, '_>, node: usize) -> Vec<String> {
    match &assembly.synth.nodes[node].kind {
        NodeKind::Role(members) => members.iter().map(|n| assembly.synth.tool_of(*n)).collect(),
        _ => vec![assembly.synth.tool_of(node)],
    }
}

fn values<'s>(assembly: &'s Assembly<'_, '_, '_>, node: usize) -> Vec<&'s Value> {
    assembly.synth.nodes[node].values.iter().flatten().collect()
}

fn reference(assembly: &Assembly<'_, '_, '_>, node: usize, path: &Path) -> Option<Ref> {
    let base = assembly.of_node.get(&node)?;
    Some(Ref::new(base.source.clone(), base.path.iter().chain(path).cloned().collect()))
}

/// Fields that had the same value in all runs, and another one elsewhere.
fn constants(assembly: &Assembly<'_, '_, '_>, node: usize) -> Vec<(Condition, usize)> {
    let own = values(assembly, node);
    let contrast = assembly.synth.contrast.of(&tools(assembly, node));
    let mut found = Vec::new();
    for (path, wanted) in same_fields(&own) {
        let violated = violations(&contrast, &path, wanted);
        if violated > 0
            && let Some(of) = reference(assembly, node, &path)
        {
            found.push((Condition::Equals(of, wanted.clone()), violated));
        }
    }
    found
}

/// Conditions on the elements that the write names in the list of a result. Elsewhere, an element that the run is about has
/// another value.
fn of_elements(assembly: &mut Assembly<'_, '_, '_>) -> Vec<(Condition, usize)> {
    let synth = assembly.synth;
    let of_node = |n: usize| -> Option<(usize, usize, &Collection)> {
        match &synth.nodes[n].kind {
            NodeKind::Record { of, list, .. } if synth.nodes[n].values.iter().all(Option::is_some) => {
                let is_one_call = matches!(synth.nodes[*of].kind, NodeKind::Read { .. } | NodeKind::Role(_));
                is_one_call.then_some((n, *of, list))
            }
            _ => None,
        }
    };
    let mut found = Vec::new();
    for (node, of, list) in (0..synth.nodes.len()).filter_map(of_node) {
        // Only results that the pipeline reads anyway.
        if !assembly.of_node.contains_key(&synth.role_of(of).unwrap_or(of)) {
            continue;
        }
        let own = values(assembly, node);
        let violations: Vec<(Path, Value, usize)> = same_fields(&own)
            .into_iter()
            .map(|(path, wanted)| {
                let violated = synth.contrast.others(&tools(assembly, of), list, &path, wanted);
                (path, wanted.clone(), violated)
            })
            .filter(|(.., violated)| *violated > 0)
            .collect();
        for (path, wanted, violated) in violations {
            assembly.node(node);
            let of = reference(assembly, node, &path);
            found.extend(of.map(|of| (Condition::Equals(of, wanted), violated)));
        }
    }
    found
}

/// Elements that a list of the write names, or what was read for each of them.
struct Named<'s> {
    /// The argument with the list.
    var: usize,
    /// The node whose tools gave the elements.
    of: usize,
    /// The list in a result; `None` if each element is a result of its own.
    list: Option<&'s Collection>,
}

/// Conditions on all elements that a list of the write names, and on what was read for each of them. Code outputs the value
/// that the elements have in common, and `null` if one of them differs.
fn of_all_elements(assembly: &mut Assembly<'_, '_, '_>) -> Vec<(Condition, usize)> {
    let synth = assembly.synth;
    let mut seen: Vec<&[Option<Value>]> = Vec::new();
    let mut found = Vec::new();
    for (n, node) in synth.nodes.iter().enumerate() {
        // Two arguments may name the same elements, such as by id and by amount.
        let Some(named) = named(assembly, n).filter(|_| !seen.contains(&&node.values[..])) else { continue };
        seen.push(&node.values);
        let elements: Vec<&Value> = node.values.iter().flatten().filter_map(Value::as_array).flatten().collect();
        let tools = tools(assembly, named.of);
        let contrast = synth.contrast.of(&tools);
        let violations: Vec<(Path, Value, usize)> = same_fields(&elements)
            .into_iter()
            .map(|(path, wanted)| {
                let violated = match named.list {
                    Some(list) => synth.contrast.others(&tools, list, &path, wanted),
                    None => violations(&contrast, &path, wanted),
                };
                (path, wanted.clone(), violated)
            })
            .filter(|(.., violated)| *violated > 0)
            .collect();
        for (field, wanted, violated) in violations {
            let step = format!("{}_{}", synth.vars[named.var].name, field.join("_"));
            let func = Func::Common { list: list_of(assembly, n), field };
            let common = assembly.code(&step, func, "the value that all elements have");
            found.push((Condition::Equals(common, wanted), violated));
        }
    }
    found
}

/// The elements that a node has, if a list of the write names them and the pipeline reads them anyway.
fn named<'s>(assembly: &Assembly<'s, '_, '_>, node: usize) -> Option<Named<'s>> {
    let synth = assembly.synth;
    let is_read = |n: usize| assembly.of_node.contains_key(&synth.role_of(n).unwrap_or(n));
    let (var, named) = match &synth.nodes[node].kind {
        NodeKind::Elements { var, of, list, .. } => {
            let is_loop = matches!(synth.nodes[*of].kind, NodeKind::Loop { .. });
            let list = Some(list).filter(|_| !is_loop);
            (*var, is_read(*of).then_some(Named { var: *var, of: *of, list })?)
        }
        NodeKind::Loop { of, .. } => match synth.nodes[*of].kind {
            NodeKind::Elements { var, .. } => (var, is_read(node).then_some(Named { var, of: node, list: None })?),
            _ => return None,
        },
        _ => return None,
    };
    let is_of_write = matches!(synth.vars[var].argument.of, Of::Write { .. });
    let is_open = synth.bindings.get(&var).is_none_or(|binding| matches!(binding.bound, Bound::Open));
    // A question for the elements names them by one argument only.
    let asked = synth.spread.as_ref().filter(|spread| spread.fields.contains_key(&var));
    let asked = asked.and_then(|spread| spread.asked.as_ref()).is_none_or(|(key, _)| *key == var);
    let has_all = synth.nodes[node].values.iter().all(Option::is_some);
    (is_of_write && !is_open && asked && has_all).then_some(named)
}

/// The list with the elements of a node. If the write is for all elements of a list, that list itself.
fn list_of(assembly: &mut Assembly<'_, '_, '_>, node: usize) -> List {
    let synth = assembly.synth;
    if let NodeKind::Elements { var, of, list, .. } = &synth.nodes[node].kind
        && let Some(Bound::Code(Func::Column { list: whole, .. })) =
            synth.bindings.get(var).map(|binding| &binding.bound)
        && *whole == (List { of: Ref::new(Source::Node(*of), list.path.clone()), kind: list.kind })
    {
        return assembly.place(*of, list);
    }
    List { of: assembly.node(node), kind: Kind::List }
}

/// Number of runs with a result that has another value at the path.
fn violations(contrast: &BTreeMap<usize, Vec<&Value>>, path: &Path, wanted: &Value) -> usize {
    contrast.values().filter(|results| results.iter().any(|one| is_another(one, path, wanted))).count()
}

/// Fields that have the same text or truth value in all of these values.
fn same_fields<'v>(own: &[&'v Value]) -> Vec<(Path, &'v Value)> {
    let Some(first) = own.first() else { return Vec::new() };
    let all = fields(first, &|value| matches!(value, Value::String(_) | Value::Bool(_)));
    let wanted = all.into_iter().filter_map(|path| at(first, &path).map(|wanted| (path, wanted)));
    wanted.filter(|(path, wanted)| own.iter().all(|value| at(value, path) == Some(wanted))).collect()
}

/// Conditions on two results that held in all runs and not elsewhere: fields are equal, or one is in a list of the other.
fn relations(assembly: &Assembly<'_, '_, '_>, node: usize, other: usize, is_first: bool) -> Vec<(Condition, usize)> {
    let (own, its) = (values(assembly, node), values(assembly, other));
    let (of_own, of_its) = (tools(assembly, node), tools(assembly, other));
    if of_own.iter().any(|tool| of_its.contains(tool)) || own.len() != its.len() {
        return Vec::new();
    }
    let (Some(first), Some(second)) = (own.first(), its.first()) else { return Vec::new() };
    let (ones, twos) = (assembly.synth.contrast.of(&of_own), assembly.synth.contrast.of(&of_its));
    let last = |run: &usize| Some((*ones.get(run)?.last()?, *twos.get(run)?.last()?));
    let both: Vec<(&Value, &Value)> = ones.keys().filter_map(last).collect();
    let mut found = Vec::new();
    for path in fields(first, &|value| value.is_string() && proves(value)) {
        let Some(wanted) = at(first, &path) else { continue };
        let is_related = |value: &Value| match value {
            Value::Array(items) => items.contains(wanted),
            value => is_first && value == wanted,
        };
        for twin in fields(second, &is_related) {
            let holds = |one: &Value, two: &Value| match (at(one, &path), at(two, &twin)) {
                (Some(one), Some(Value::Array(items))) => items.contains(one),
                (Some(one), Some(two)) => one == two,
                _ => false,
            };
            let is_varied = own.iter().any(|value| at(value, &path) != Some(wanted));
            if !is_varied || !own.iter().zip(&its).all(|(one, two)| holds(one, two)) {
                continue;
            }
            let is_violated =
                |(a, b): &&(&Value, &Value)| at(a, &path).is_some() && at(b, &twin).is_some() && !holds(a, b);
            let violated = both.iter().filter(is_violated).count();
            let refs = reference(assembly, node, &path).zip(reference(assembly, other, &twin));
            if let Some((of, to)) = refs.filter(|_| violated > 0) {
                let condition = match at(second, &twin) {
                    Some(Value::Array(_)) => Condition::Within(of, to),
                    _ => Condition::Same(of, to),
                };
                found.push((condition, violated));
            }
        }
    }
    found
}

impl Assembly<'_, '_, '_> {
    /// Name of the step that writes: that of the last row.
    fn name_of_write(&self) -> String {
        let rows = self.program.rows.last();
        rows.map_or_else(String::new, |row| row.step.clone())
    }
}
