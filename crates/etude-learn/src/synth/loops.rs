//! Calls over the elements of a list (2.4), and the elements that arguments name.

use serde_json::Value;

use super::{Node, NodeKind, Synth, is_mostly, shaped};
use crate::episode::leaves;
use crate::term::{Ref, Source, Term};
use crate::value::{Collection, collections, fields, is_scalar, only, same};

/// Maximum number of lists in which one variable is looked up.
const MAX_RECORDS: usize = 3;

impl Synth<'_, '_> {
    /// Folds calls of a tool that go over a list of an earlier result into one; true if there is such a loop.
    pub(super) fn loops(&mut self, tool: &str) -> bool {
        let mut has_loop =
            self.nodes.iter().any(|node| matches!(&node.kind, NodeKind::Loop { tool: of, .. } if of == tool));
        for of in 0..self.nodes.len() {
            if !self.is_full(of) || has_loop {
                continue;
            }
            let longest = |list: &Collection| {
                let counts = self.nodes[of].values.iter().enumerate();
                let counts = counts.filter_map(|(n, value)| Some((list.elements(value.as_ref()?)?.len(), n)));
                counts.max_by_key(|(count, n)| (*count, std::cmp::Reverse(*n)))
            };
            let seeds: Vec<(Collection, usize, usize)> = self
                .lists_of(of)
                .into_iter()
                .filter_map(|list| longest(&list).map(|(count, seed)| (list, count, seed)))
                .collect();
            for (list, count, seed) in seeds {
                // A loop whose length was one in all runs is not a loop.
                let is_list = count > 1 || matches!(self.nodes[of].kind, NodeKind::Elements { .. }) && count > 0;
                if is_list && let Some(node) = self.loop_over(tool, of, &list, seed) {
                    self.nodes.push(node);
                    has_loop = true;
                    break;
                }
            }
        }
        has_loop
    }

    /// The lists of a node in any of a few episodes.
    pub(super) fn lists_of(&self, node: usize) -> Vec<Collection> {
        let mut lists: Vec<Collection> = Vec::new();
        for n in self.seeds(4, &|n| self.nodes[node].values[n].is_some()) {
            let found = self.nodes[node].values[n].iter().flat_map(collections);
            for list in found.collect::<Vec<_>>() {
                if !lists.contains(&list) {
                    lists.push(list);
                }
            }
        }
        lists
    }

    fn loop_over(&self, tool: &str, of: usize, list: &Collection, seed: usize) -> Option<Node> {
        let result = self.nodes[of].values[seed].as_ref()?;
        let elements = list.elements(result)?;
        let first = *elements.first()?;
        for call in self.episodes[seed].reads.iter().filter(|call| call.tool == tool) {
            let mut arguments = leaves(&call.arguments);
            let [(_, value)] = &mut arguments[..] else { continue };
            for field in fields(first, &|inner| same(inner, value) && is_scalar(inner)) {
                let args = shaped(&call.arguments, &mut |_| Some(Term::Ref(Ref::new(Source::Item, field.clone()))))?;
                let values: Vec<Option<Value>> =
                    (0..self.episodes.len()).map(|n| self.loop_results(tool, of, list, &args, n)).collect();
                if is_mostly(values.iter().flatten().count(), self.episodes.len()) {
                    let deps = self.nodes[of].deps.clone();
                    let kind = NodeKind::Loop { tool: tool.to_owned(), of, list: list.clone(), args };
                    let last = |n: usize| self.episodes[n].reads.iter().rposition(|call| call.tool == tool);
                    let known_at = (0..self.episodes.len()).map(|n| last(n).map_or(0, |place| place + 1)).collect();
                    return Some(Node { kind, values, known_at, deps });
                }
            }
        }
        None
    }

    fn loop_results(&self, tool: &str, of: usize, list: &Collection, args: &Term, n: usize) -> Option<Value> {
        let elements = list.elements(self.nodes[of].values[n].as_ref()?)?;
        let results = elements.into_iter().map(|element| {
            let mut scope = self.scope(n);
            scope.item = Some(element);
            let from = self.nodes[of].known_at[n];
            Some(self.episodes[n].recorded_after(tool, &args.eval(&scope)?, from)?.1.clone())
        });
        results.collect::<Option<Vec<_>>>().map(Value::from)
    }

    /// Adds the elements of lists that arguments name by one of their fields.
    pub(super) fn records(&mut self) {
        for var in 0..self.vars.len() {
            let is_known = |node: &Node| match node.kind {
                NodeKind::Record { var: of, .. } | NodeKind::Elements { var: of, .. } => of == var,
                _ => false,
            };
            let known = self.nodes.iter().filter(|node| is_known(node)).count();
            let mut added = 0;
            for of in 0..self.nodes.len() {
                let is_view = matches!(self.nodes[of].kind, NodeKind::Record { .. } | NodeKind::Elements { .. });
                if is_view || !self.is_full(of) || self.nodes[of].deps.contains(&var) {
                    continue;
                }
                for list in self.lists_of(of) {
                    let is_repeated = self.nodes.iter().any(|node| match &node.kind {
                        NodeKind::Record { var: v, of: o, list: l, .. }
                        | NodeKind::Elements { var: v, of: o, list: l, .. } => (*v, *o) == (var, of) && *l == list,
                        _ => false,
                    });
                    if is_repeated || known + added >= MAX_RECORDS {
                        continue;
                    }
                    if let Some(node) = self.record(var, of, &list) {
                        self.nodes.push(node);
                        added += 1;
                    }
                }
            }
        }
    }

    fn record(&self, var: usize, of: usize, list: &Collection) -> Option<Node> {
        let is_list = self.vars[var].is_list();
        let seed = (0..self.episodes.len()).find(|n| self.vars[var].values[*n].is_some())?;
        let value = self.vars[var].values[seed].as_ref()?;
        let sought = if is_list { value.as_array()?.first()? } else { value };
        if !crate::text::proves(sought) {
            return None;
        }
        let elements = list.elements(self.nodes[of].values[seed].as_ref()?)?;
        let element = elements.iter().find(|element| element.is_object() && has_value(element, sought))?;
        for key in fields(element, &|inner| same(inner, sought)) {
            let values: Vec<Option<Value>> = (0..self.episodes.len())
                .map(|n| {
                    let elements = list.elements(self.nodes[of].values[n].as_ref()?)?;
                    let wanted = self.vars[var].values[n].as_ref()?;
                    match (is_list, wanted) {
                        (true, Value::Array(wanted)) => {
                            let each = wanted.iter().map(|one| only(&elements, &key, one).cloned());
                            each.collect::<Option<Vec<_>>>().map(Value::from)
                        }
                        (false, wanted) => only(&elements, &key, wanted).cloned(),
                        _ => None,
                    }
                })
                .collect();
            if is_mostly(values.iter().flatten().count(), self.episodes.len()) {
                let mut deps = self.nodes[of].deps.clone();
                deps.insert(var);
                let list = list.clone();
                let kind = match is_list {
                    true => NodeKind::Elements { var, of, list, key },
                    false => NodeKind::Record { var, of, list, key },
                };
                let known_at = self.nodes[of].known_at.clone();
                return Some(Node { kind, values, known_at, deps });
            }
        }
        None
    }
}

fn has_value(element: &Value, value: &Value) -> bool {
    !fields(element, &|inner| inner == value).is_empty()
}
