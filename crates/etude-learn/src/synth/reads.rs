//! Alignment of reads across episodes: calls are the same read if their arguments can be reached in the same way (2.2, 2.3).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Node, NodeKind, Synth, Var, shaped};
use crate::episode::{is_made_up, leaves};
use crate::notation::has_time;
use crate::program::{Argument, Of};
use crate::term::{Ref, Source, Term};
use crate::text::proves;
use crate::trace::TraceCall;
use crate::value::{Collection, Path, collections, fields, has_same_shape, is_at, is_scalar, same};

/// Maximum number of rounds: reads are aligned to those of the round before.
const MAX_ROUNDS: usize = 6;
/// Maximum number of reads and views of reads.
const MAX_NODES: usize = 60;
/// Maximum number of reads of one tool that some runs did without.
const MAX_PARTIAL: usize = 4;
/// Maximum number of ways to reach a call that are tried.
const MAX_COMBINATIONS: usize = 256;
/// Maximum number of ways to reach one argument.
const MAX_OPTIONS: usize = 12;

/// True for nine of ten or more (2.2).
pub(crate) fn is_mostly(count: usize, of: usize) -> bool {
    count * 10 >= of * 9 && count > 0
}

impl<'t> Synth<'_, 't> {
    /// Finds all reads that later steps can use.
    pub(super) fn align(&mut self) {
        let own = self.vars.len();
        let mut looped = BTreeSet::new();
        // A tool whose calls go over a list has no single calls besides: the search restarts without them.
        while let Some(tool) = self.align_without(&looped) {
            looped.insert(tool);
            self.nodes.clear();
            self.vars.truncate(own);
        }
    }

    /// Finds reads. Returns the tool of a loop that had single calls before the loop was found.
    fn align_without(&mut self, looped: &BTreeSet<String>) -> Option<String> {
        let tools: BTreeSet<&'t str> =
            self.episodes.iter().flat_map(|episode| episode.reads.iter().map(|call| call.tool.as_str())).collect();
        for _ in 0..MAX_ROUNDS {
            let before = self.nodes.len();
            for tool in &tools {
                let has_loop = self.loops(tool);
                if has_loop && !looped.contains(*tool) {
                    return Some((*tool).to_owned());
                }
                if !has_loop && !looped.contains(*tool) {
                    self.singles(tool);
                }
            }
            self.substitutes();
            self.other_ways();
            self.records();
            if self.nodes.len() == before || self.nodes.len() > MAX_NODES {
                break;
            }
        }
        None
    }

    fn calls(&self, tool: &str, episode: usize) -> Vec<&'t TraceCall> {
        self.episodes[episode].reads.iter().filter(|call| call.tool == tool).copied().collect()
    }

    /// Adds the reads that are single calls of a tool.
    fn singles(&mut self, tool: &str) {
        let mut found: Vec<(usize, usize, Node)> = Vec::new();
        for seed in self.seeds(3, &|n| self.episodes[n].reads.iter().any(|call| call.tool == tool)) {
            let mut seen: Vec<&Value> = Vec::new();
            for call in self.calls(tool, seed) {
                if seen.contains(&&call.arguments) || seen.len() >= 8 {
                    continue;
                }
                seen.push(&call.arguments);
                self.ways(tool, seed, call, &mut found);
            }
        }
        found.sort_by_key(|(support, rank, _)| (std::cmp::Reverse(*support), *rank));
        let has_full = |synth: &Self| {
            synth.nodes.iter().enumerate().any(|(n, node)| {
                matches!(&node.kind, NodeKind::Read { tool: of, .. } if of == tool) && synth.is_full(n)
            })
        };
        let mut partial = 0;
        for (support, _, node) in found {
            let is_full = is_mostly(support, self.episodes.len());
            let is_known = self.nodes.iter().any(|known| same_reads(known, &node));
            let is_wanted = is_full || !has_full(self) && partial < MAX_PARTIAL && support > 0;
            if !is_known && is_wanted && self.nodes.len() < MAX_NODES {
                partial += usize::from(!is_full);
                self.nodes.push(node);
            }
        }
    }

    /// Adds every way to reach the arguments of one call again.
    fn ways(&mut self, tool: &str, seed: usize, call: &'t TraceCall, found: &mut Vec<(usize, usize, Node)>) {
        let leaves = leaves(&call.arguments);
        let mut options: Vec<Vec<(usize, Term)>> = Vec::new();
        for (path, value) in &leaves {
            let mut terms = self.reachable(tool, seed, path, value);
            terms.truncate(MAX_OPTIONS);
            options.push(terms);
        }
        if options.iter().any(Vec::is_empty) {
            return;
        }
        let mut picks = vec![Vec::new()];
        for terms in &options {
            let longer = picks.iter().flat_map(|pick: &Vec<usize>| {
                (0..terms.len()).map(move |n| pick.iter().copied().chain([n]).collect::<Vec<usize>>())
            });
            picks = longer.take(MAX_COMBINATIONS).collect();
        }
        for pick in picks {
            let rank = pick.iter().zip(&options).map(|(n, terms)| terms[*n].0).sum();
            let mut terms = pick.iter().zip(&options).map(|(n, terms)| terms[*n].1.clone());
            let args = match leaves.is_empty() {
                true => Some(Term::Object(Vec::new())),
                false => shaped(&call.arguments, &mut |_| terms.next()),
            };
            let Some(args) = args else { continue };
            let node = self.read(tool, args);
            found.push((node.values.iter().flatten().count(), rank, node));
        }
    }

    /// A read with these arguments in every episode that made it after everything in them was known.
    fn read(&self, tool: &str, args: Term) -> Node {
        let mut known_at = vec![0; self.episodes.len()];
        let mut values = Vec::with_capacity(self.episodes.len());
        for (n, episode) in self.episodes.iter().enumerate() {
            let arguments = args.eval(&self.scope(n));
            let from = self.known_at(&args, n);
            let found = arguments.and_then(|arguments| episode.recorded_after(tool, &arguments, from));
            known_at[n] = found.map_or(0, |(place, _)| place);
            values.push(found.map(|(_, value)| value.clone()));
        }
        let deps = self.deps_of(&args);
        Node { kind: NodeKind::Read { tool: tool.to_owned(), args }, values, known_at, deps }
    }

    /// Terms that give an argument its value in one episode, the best first.
    fn reachable(&mut self, tool: &str, seed: usize, path: &Path, value: &Value) -> Vec<(usize, Term)> {
        let mut terms: Vec<(usize, Term)> = Vec::new();
        let mut push = |rank: usize, term: Term| terms.push((rank, term));
        if let Some(var) = self.said_var(tool, seed, path, value) {
            push(0, Term::Ref(Ref::new(Source::Var(var), Path::new())));
        }
        for (n, var) in self.vars.iter().enumerate() {
            if !var.spread()
                && var.values[seed].as_ref().is_some_and(|own| same(own, value))
                && (var.of_write() || var.argument.tool == tool)
            {
                push(1, Term::Ref(Ref::new(Source::Var(n), Path::new())));
            }
        }
        for n in (0..self.nodes.len()).rev().filter(|n| self.is_full(*n)) {
            let Some(result) = &self.nodes[n].values[seed] else { continue };
            for path in fields(result, &|inner| same(inner, value)) {
                push(2, Term::Ref(Ref::new(Source::Node(n), path)));
            }
            // The only element of a list, if it had one element in every episode.
            for (list, field) in only_elements(result, value) {
                if self.is_single(n, &list) {
                    let path = list.path.iter().cloned().chain(["0".to_owned()]).chain(field).collect();
                    push(3, Term::Ref(Ref::new(Source::Node(n), path)));
                }
            }
        }
        let calls = self.episodes.iter().flat_map(|episode| &episode.reads).filter(|call| call.tool == tool);
        let is_free = proves(value) || !self.episodes.iter().all(|episode| episode.said.may_have(value));
        if is_free && !has_time(value) && calls.into_iter().all(|call| is_at(&call.arguments, path, value)) {
            push(4, Term::Const(value.clone()));
        }
        terms.sort_by_key(|(rank, _)| *rank);
        terms.dedup_by(|a, b| a.1 == b.1);
        terms
    }

    /// True if a list had one element in every episode.
    pub(super) fn is_single(&self, node: usize, list: &Collection) -> bool {
        let counts = self.nodes[node].values.iter().flatten().filter_map(|value| list.elements(value));
        list.kind == crate::value::Kind::List && counts.into_iter().all(|all| all.len() == 1)
    }

    /// Variable for an argument that the user said: a known one with the same values, otherwise a new one.
    fn said_var(&mut self, tool: &str, seed: usize, path: &Path, value: &Value) -> Option<usize> {
        if !self.episodes[seed].said.has(value) {
            return None;
        }
        let argument = Argument { tool: tool.to_owned(), path: path.clone(), of: Of::Said };
        let new = Var::new(argument, self.episodes);
        new.values[seed].as_ref()?;
        let agrees = |var: &Var| {
            let both = var.values.iter().zip(&new.values);
            !var.spread() && both.into_iter().all(|(a, b)| b.is_none() || a == b)
        };
        if let Some(known) = self.vars.iter().position(agrees) {
            return Some(known);
        }
        self.vars.push(new);
        Some(self.vars.len() - 1)
    }

    /// Joins reads by different tools that do the same (2.2): together in nine of ten runs, with results of the same shape.
    fn substitutes(&mut self) {
        let is_partial = |n: &usize| {
            let is_complete = is_mostly(self.support(*n), self.episodes.len());
            !is_complete && self.support(*n) > 0 && self.is_of_words(*n)
        };
        let partial: Vec<usize> = (0..self.nodes.len()).filter(is_partial).collect();
        let mut partial: Vec<usize> = partial.into_iter().filter(|n| self.role_of(*n).is_none()).collect();
        // The read with the most episodes is tried first.
        partial.sort_by_key(|n| (std::cmp::Reverse(self.support(*n)), *n));
        for (k, first) in partial.iter().enumerate() {
            let mut members = vec![*first];
            let mut values = self.nodes[*first].values.clone();
            for other in &partial[k + 1..] {
                let other_values = &self.nodes[*other].values;
                let adds = values.iter().zip(other_values).any(|(mine, its)| mine.is_none() && its.is_some());
                if adds && self.is_same_role(&members, *other) {
                    members.push(*other);
                    values.iter_mut().zip(other_values).for_each(|(mine, its)| {
                        if mine.is_none() {
                            mine.clone_from(its);
                        }
                    });
                }
            }
            let is_wanted =
                self.is_used_by_most(&members) && values.iter().flatten().count() * 2 >= self.episodes.len();
            if members.len() > 1 && is_wanted {
                self.push_role(members, values);
                return;
            }
        }
    }

    fn push_role(&mut self, members: Vec<usize>, values: Vec<Option<Value>>) {
        let deps = members.iter().flat_map(|n| self.nodes[*n].deps.clone()).collect();
        let place = |n: usize| members.iter().map(|member| self.nodes[*member].known_at[n]).max().unwrap_or(0);
        let known_at = (0..self.episodes.len()).map(place).collect();
        self.nodes.push(Node { kind: NodeKind::Role(members), values, known_at, deps });
    }

    /// The role that a read belongs to.
    pub(crate) fn role_of(&self, node: usize) -> Option<usize> {
        let is_member = |n: &usize| matches!(&self.nodes[*n].kind, NodeKind::Role(of) if of.contains(&node));
        (0..self.nodes.len()).find(is_member)
    }

    /// Adds the ways to the result of a check that runs of other families used, and few or none of this one: the reads become
    /// a role.
    fn other_ways(&mut self) {
        let is_check = |n: &usize| {
            matches!(self.nodes[*n].kind, NodeKind::Read { .. }) && self.role_of(*n).is_none() && self.is_check(*n)
        };
        let checks: Vec<usize> = (0..self.nodes.len()).filter(|n| self.is_full(*n)).filter(is_check).collect();
        for first in checks {
            let mut members = vec![first];
            for (tool, shape) in self.substitutes.of(&self.tool_of(first)) {
                members.extend(self.other_way(&members, tool, shape));
            }
            if members.len() > 1 {
                let values = self.nodes[first].values.clone();
                self.push_role(members, values);
            }
        }
    }

    /// Read with words of the user in the place of all arguments; `None` if it does something else in this family.
    fn other_way(&mut self, members: &[usize], tool: &str, shape: &Value) -> Option<usize> {
        if self.episodes.iter().any(|episode| episode.reads.iter().any(|call| call.tool == tool)) {
            let is_it = |n: &usize| self.is_of_words(*n) && self.tool_of(*n) == tool && self.role_of(*n).is_none();
            return (0..self.nodes.len()).filter(is_it).find(|n| self.is_same_role(members, *n));
        }
        let args = shaped(shape, &mut |path| {
            let argument = Argument { tool: tool.to_owned(), path: path.clone(), of: Of::Said };
            let known = self.vars.iter().position(|var| var.argument == argument);
            if known.is_none() {
                self.vars.push(Var::new(argument, self.episodes));
            }
            let var = known.unwrap_or(self.vars.len() - 1);
            Some(Term::Ref(Ref::new(Source::Var(var), Path::new())))
        })?;
        let node = self.read(tool, args);
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }

    /// True if all arguments of a read are arguments that a person or the agent chose.
    fn is_of_words(&self, node: usize) -> bool {
        match &self.nodes[node].kind {
            NodeKind::Read { args, .. } => {
                let refs = args.refs();
                !refs.is_empty() && refs.iter().all(|of| matches!(of.source, Source::Var(_)))
            }
            _ => false,
        }
    }

    /// True if nearly all runs used one of the tools, with any arguments.
    fn is_used_by_most(&self, nodes: &[usize]) -> bool {
        let tools: Vec<String> = nodes.iter().map(|n| self.tool_of(*n)).collect();
        let uses = self.episodes.iter().filter(|e| e.reads.iter().any(|call| tools.contains(&call.tool)));
        is_mostly(uses.count(), self.episodes.len())
    }

    /// True if a node is a read that stays in any case: by words of the user, in nearly all runs.
    pub(super) fn is_check(&self, node: usize) -> bool {
        match &self.nodes[node].kind {
            NodeKind::Role(_) => true,
            NodeKind::Read { .. } => self.is_of_words(node) && self.is_used_by_most(&[node]),
            _ => false,
        }
    }

    fn is_same_role(&self, members: &[usize], other: usize) -> bool {
        let tool = |n: usize| match &self.nodes[n].kind {
            NodeKind::Read { tool, .. } => tool.as_str(),
            _ => "",
        };
        let some = |n: usize| self.nodes[n].values.iter().flatten().next();
        let both = |n: usize| self.nodes[n].values.iter().zip(&self.nodes[other].values);
        members.iter().all(|n| {
            tool(*n) != tool(other)
                && matches!((some(*n), some(other)), (Some(a), Some(b)) if has_same_shape(a, b))
                && both(*n).all(|(a, b)| a.is_none() || b.is_none() || a == b)
        })
    }

    /// Marks the reads that stay although nothing comes from them; `None` if one of them cannot be reached again.
    pub(super) fn keep_roles(&mut self, is_goal: bool) -> Option<()> {
        let tools: BTreeSet<&'t str> =
            self.episodes.iter().flat_map(|episode| episode.reads.iter().map(|call| call.tool.as_str())).collect();
        for tool in tools {
            let uses = (0..self.episodes.len()).filter(|n| !self.calls(tool, *n).is_empty()).count();
            if !is_mostly(uses, self.episodes.len()) {
                continue;
            }
            let is_of = |n: usize| self.tool_of(n) == tool;
            let covers = |n: &usize| match &self.nodes[*n].kind {
                NodeKind::Read { .. } | NodeKind::Loop { .. } => is_of(*n) && self.is_full(*n),
                NodeKind::Role(members) => members.iter().any(|member| is_of(*member)),
                _ => false,
            };
            // A read whose words or sources are missing in some runs is made where they are present.
            let is_partial = |n: &usize| matches!(self.nodes[*n].kind, NodeKind::Read { .. }) && is_of(*n);
            let partial =
                (0..self.nodes.len()).filter(is_partial).max_by_key(|n| (self.support(*n), std::cmp::Reverse(*n)));
            let partial = partial.filter(|n| self.support(*n) * 2 >= self.episodes.len());
            if let Some(node) = (0..self.nodes.len()).rev().find(covers).or(partial) {
                self.roles.insert(node);
            } else if !self.is_dropped(tool) {
                let node = self.asked_read(tool)?;
                self.roles.insert(node);
            }
        }
        let role_nodes = (0..self.nodes.len()).filter(|n| matches!(self.nodes[*n].kind, NodeKind::Role(_)));
        let role_nodes: Vec<usize> = role_nodes.collect();
        self.roles.extend(role_nodes);
        (!is_goal || !self.roles.is_empty()).then_some(())
    }

    /// True if the agent made up the arguments of most calls, such as of a note to itself: such a read checks nothing.
    fn is_dropped(&self, tool: &str) -> bool {
        let calls: Vec<(usize, &TraceCall)> =
            (0..self.episodes.len()).flat_map(|n| self.calls(tool, n).into_iter().map(move |call| (n, call))).collect();
        let made_up = calls.iter().filter(|(n, call)| is_made_up(&self.episodes[*n], call)).count();
        made_up * 2 > calls.len()
    }

    /// Adds a read whose argument nothing determines: the argument becomes a question.
    fn asked_read(&mut self, tool: &str) -> Option<usize> {
        let last = |n: usize| self.calls(tool, n).last().copied();
        let shape = (0..self.episodes.len()).find_map(last)?.arguments.clone();
        let mut terms = Vec::new();
        for (path, _) in leaves(&shape) {
            let new = Var::new(Argument { tool: tool.to_owned(), path, of: Of::Last }, self.episodes);
            let known = self.vars.iter().position(|var| var.values == new.values && !var.spread());
            terms.push(known.unwrap_or(self.vars.len()));
            if known.is_none() {
                self.vars.push(new);
            }
        }
        let mut terms = terms.into_iter().map(|var| Term::Ref(Ref::new(Source::Var(var), Path::new())));
        let args = shaped(&shape, &mut |_| terms.next())?;
        let node = self.read(tool, args);
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }
}

fn same_reads(one: &Node, other: &Node) -> bool {
    let tool = |node: &Node| match &node.kind {
        NodeKind::Read { tool, .. } => Some(tool.clone()),
        _ => None,
    };
    tool(one).is_some()
        && tool(one) == tool(other)
        && (one.values == other.values || covers(&one.values, &other.values))
}

/// True if `one` has every value of `other`.
fn covers(one: &[Option<Value>], other: &[Option<Value>]) -> bool {
    one.iter().zip(other).all(|(one, other)| other.is_none() || one == other)
}

/// Lists with a single element that has the value, each with the field of the value.
fn only_elements(result: &Value, value: &Value) -> Vec<(Collection, Path)> {
    let mut found = Vec::new();
    for list in collections(result) {
        let elements = list.elements(result).unwrap_or_default();
        let [only] = elements[..] else { continue };
        let paths = fields(only, &|inner| inner == value && is_scalar(inner) && proves(inner));
        found.extend(paths.into_iter().map(|path| (list.clone(), path)));
    }
    found
}
