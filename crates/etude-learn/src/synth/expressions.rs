//! Expressions that give an argument its value in every episode (2.3), the shortest first (2.5).

use serde_json::Value;

use super::{Bound, NodeKind, Synth, is_mostly};
use crate::notation::has_time;
use crate::term::{Func, List, Op, Part, Ref, Source, Term};
use crate::text::proves;
use crate::value::{Collection, Path, at, fields, is_nameable, is_scalar, same};

/// Cost of a step of a path, in bits.
const STEP_BITS: usize = 5;
/// Cost of an operator, in bits.
const OPERATOR_BITS: usize = 6;
/// Maximum number of numbers that are combined in pairs.
const MAX_NUMBERS: usize = 24;

/// An expression that holds in every episode in which it has a value.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) bound: Bound,
    pub(super) bits: usize,
    /// Index of the node: later nodes are nearer to the write.
    pub(super) nearness: usize,
}

impl Synth<'_, '_> {
    /// Derived expressions over nodes that depend on nothing but `known` variables, the best first.
    pub(super) fn derived(&self, var: usize, is_known: &dyn Fn(usize) -> bool) -> Vec<Candidate> {
        self.expressions(var, is_known, &|node| self.is_open_to(node, var, is_known))
    }

    /// Other expressions that have the variable's values, also if they depend on the variable: for people who judge a
    /// binding.
    pub(super) fn alternatives(&self, var: usize) -> Vec<Bound> {
        let found = self.expressions(var, &|_| true, &|node| self.is_full(node));
        found.into_iter().map(|one| one.bound).collect()
    }

    fn expressions(
        &self,
        var: usize,
        is_known: &dyn Fn(usize) -> bool,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Vec<Candidate> {
        let Some(seed) = (0..self.episodes.len()).find(|n| self.vars[var].values[*n].is_some()) else {
            return Vec::new();
        };
        let Some(value) = &self.vars[var].values[seed] else { return Vec::new() };
        let mut found = self.aliases(var, is_known);
        if proves(value) || self.is_varied(var) || value.is_array() {
            for node in (0..self.nodes.len()).filter(|n| is_open(*n)) {
                self.of_node(node, seed, value, &mut found);
            }
            self.arithmetic(var, seed, value, is_open, &mut found);
        }
        if let Value::String(text) = value {
            found.extend(self.composed(var, seed, text, is_known));
        }
        found.retain(|candidate| self.holds(var, &candidate.bound));
        found.sort_by_cached_key(|one| (one.bits, std::cmp::Reverse(one.nearness), format!("{:?}", one.bound)));
        found
    }

    /// True if the node can be read before the variable is known.
    pub(super) fn is_open_to(&self, node: usize, var: usize, is_known: &dyn Fn(usize) -> bool) -> bool {
        let deps = &self.nodes[node].deps;
        self.is_full(node) && !deps.contains(&var) && deps.iter().all(|dep| is_known(*dep))
    }

    /// True if the variable has different values.
    pub(super) fn is_varied(&self, var: usize) -> bool {
        let mut values = self.vars[var].values.iter().flatten();
        let first = values.next();
        values.any(|value| first.is_none_or(|first| !same(first, value)))
    }

    fn aliases(&self, var: usize, is_known: &dyn Fn(usize) -> bool) -> Vec<Candidate> {
        let of = &self.vars[var];
        let others = (0..self.vars.len()).filter(|n| *n != var && is_known(*n) && !self.vars[*n].spread());
        let others = others.filter(|n| !self.is_of_element(*n));
        let same = others.filter(|n| self.vars[*n].values == of.values && of.values.iter().flatten().all(proves));
        let term = |n| Bound::Term(Term::Ref(Ref::new(Source::Var(n), Path::new())));
        same.map(|n| Candidate { bound: term(n), bits: OPERATOR_BITS, nearness: 0 }).collect()
    }

    fn of_node(&self, node: usize, seed: usize, value: &Value, found: &mut Vec<Candidate>) {
        let Some(result) = &self.nodes[node].values[seed] else { return };
        let is_view = matches!(self.nodes[node].kind, NodeKind::Record { .. });
        let base = OPERATOR_BITS + usize::from(is_view) * STEP_BITS;
        for path in fields(result, &|inner| same(inner, value)) {
            let bits = base + STEP_BITS * path.len();
            let bound = Bound::Term(Term::Ref(Ref::new(Source::Node(node), path)));
            found.push(Candidate { bound, bits, nearness: node });
        }
        for list in self.lists_of(node) {
            let of = Ref::new(Source::Node(node), list.path.clone());
            let bits = base + STEP_BITS * (list.path.len() + 1) + OPERATOR_BITS;
            let elements = list.elements(result).unwrap_or_default();
            let list_of = || List { of: of.clone(), kind: list.kind };
            for field in self.columns(&elements, value) {
                let func = match self.most(node, &list) > 1 {
                    true => Func::Column { list: list_of(), field: field.clone() },
                    false => Func::Only { list: list_of(), field: field.clone(), as_list: value.is_array() },
                };
                let bits = bits + STEP_BITS * field.len();
                found.push(Candidate { bound: Bound::Code(func), bits, nearness: node });
            }
            if let Value::Number(_) = value
                && elements.len() > 1
            {
                for field in fields(elements[0], &Value::is_number) {
                    let bits = bits + STEP_BITS * field.len();
                    let bound = Bound::Code(Func::Sum { list: list_of(), field });
                    found.push(Candidate { bound, bits, nearness: node });
                }
            }
        }
    }

    /// Maximum number of elements that a list had.
    pub(super) fn most(&self, node: usize, list: &Collection) -> usize {
        let counts = self.nodes[node].values.iter().flatten().filter_map(|value| list.elements(value));
        counts.map(|all| all.len()).max().unwrap_or(0)
    }

    /// Fields whose values in the elements are exactly the items of a list, or, in the only element, the value.
    fn columns(&self, elements: &[&Value], value: &Value) -> Vec<Path> {
        let Some(first) = elements.first() else { return Vec::new() };
        let wanted: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            scalar => vec![scalar],
        };
        if wanted.len() != elements.len() || !value.is_array() && elements.len() != 1 {
            return Vec::new();
        }
        let has_all = |path: &Path| {
            let column: Vec<Option<&Value>> = elements.iter().map(|one| at(one, path)).collect();
            wanted.iter().all(|one| proves(one) && column.iter().flatten().any(|found| same(found, one)))
        };
        fields(first, &is_scalar).into_iter().filter(has_all).collect()
    }

    fn arithmetic(
        &self,
        var: usize,
        seed: usize,
        value: &Value,
        is_open: &dyn Fn(usize) -> bool,
        found: &mut Vec<Candidate>,
    ) {
        let Some(wanted) = value.as_f64().filter(|_| self.is_varied(var)) else { return };
        let mut numbers: Vec<(Ref, f64, usize)> = Vec::new();
        for node in (0..self.nodes.len()).filter(|n| is_open(*n)) {
            let Some(result) = &self.nodes[node].values[seed] else { continue };
            for path in fields(result, &Value::is_number) {
                let number = at(result, &path).and_then(Value::as_f64).unwrap_or_default();
                numbers.push((Ref::new(Source::Node(node), path), number, node));
            }
        }
        numbers.truncate(MAX_NUMBERS);
        for (left, a, n) in &numbers {
            for (right, b, m) in &numbers {
                for op in Op::ALL.into_iter().filter(|_| left != right) {
                    let is_turned = op != Op::Subtract && left > right;
                    let func = Func::Arithmetic { op, left: left.clone(), right: right.clone() };
                    if !is_turned && (op.apply(*a, *b) - wanted).abs() < 0.01 {
                        let bits = 3 * OPERATOR_BITS + STEP_BITS * (left.path.len() + right.path.len());
                        found.push(Candidate { bound: Bound::Code(func), bits, nearness: *n.max(m) });
                    }
                }
            }
        }
    }

    /// A text with parts that come from sources.
    fn composed(&self, var: usize, seed: usize, text: &str, is_known: &dyn Fn(usize) -> bool) -> Option<Candidate> {
        let mut sources: Vec<(Ref, String)> = Vec::new();
        let mut add = |reference: Ref, value: &Value| {
            if let Value::String(part) = value
                && proves(value)
                && part != text
                && text.contains(part.as_str())
            {
                sources.push((reference, part.clone()));
            }
        };
        for (n, other) in
            self.vars.iter().enumerate().filter(|(n, _)| *n != var && is_known(*n) && !self.is_of_element(*n))
        {
            if let Some(value) = &other.values[seed] {
                add(Ref::new(Source::Var(n), Path::new()), value);
            }
        }
        for node in (0..self.nodes.len()).filter(|n| self.is_open_to(*n, var, is_known)) {
            let Some(result) = &self.nodes[node].values[seed] else { continue };
            for path in fields(result, &Value::is_string) {
                if let Some(value) = at(result, &path) {
                    add(Ref::new(Source::Node(node), path), value);
                }
            }
        }
        // The longest part first, and of equal ones the one that comes first.
        sources.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
        let mut parts = vec![Part::Plain(text.to_owned())];
        for (reference, value) in &sources {
            parts = parts.into_iter().flat_map(|part| split(part, reference, value)).collect();
        }
        let is_stale = |part: &Part| matches!(part, Part::Plain(text) if has_time(&text.as_str().into()));
        if parts.iter().any(is_stale) {
            return None;
        }
        let uses = parts.iter().filter(|part| matches!(part, Part::Ref(_))).count();
        let plain: usize = parts.iter().map(|part| if let Part::Plain(text) = part { text.len() } else { 0 }).sum();
        let bits = OPERATOR_BITS * (1 + uses) + 8 * plain;
        (uses > 0).then(|| Candidate { bound: Bound::Term(Term::Text(parts)), bits, nearness: 0 })
    }

    /// True if an expression gives the value in nearly all episodes, and no other value in any.
    pub(super) fn holds(&self, var: usize, bound: &Bound) -> bool {
        let held = self.held(var, bound);
        held.is_some_and(|held| is_mostly(held, self.episodes.len()))
    }

    /// Number of episodes in which an expression gives the value; `None` if it gives another one in some.
    pub(super) fn held(&self, var: usize, bound: &Bound) -> Option<usize> {
        let mut held = 0;
        for n in 0..self.episodes.len() {
            let Some(value) = self.value_of(bound, n) else { continue };
            match &self.vars[var].values[n] {
                Some(wanted) if is_same(wanted, &value) => held += 1,
                _ => return None,
            }
        }
        Some(held)
    }

    /// The value of an expression in one episode.
    pub(super) fn value_of(&self, bound: &Bound, episode: usize) -> Option<Value> {
        match bound {
            Bound::Term(term) => term.eval(&self.scope(episode)),
            Bound::Code(func) => func.eval(&self.scope(episode)),
            Bound::Param | Bound::Choose(_) | Bound::Enumerate { .. } | Bound::Open => None,
        }
    }
}

/// True if both are equal by value, lists up to their order.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(a), Value::Array(b)) => {
            let has = |all: &[Value], one: &Value| all.iter().any(|other| same(one, other));
            a.len() == b.len() && a.iter().all(|item| has(b, item)) && b.iter().all(|item| has(a, item))
        }
        _ => same(one, other),
    }
}

fn split(part: Part, reference: &Ref, value: &str) -> Vec<Part> {
    let Part::Plain(text) = &part else { return vec![part] };
    if !reference.path.iter().all(|name| is_nameable(name)) {
        return vec![part];
    }
    let Some(at) = text.find(value) else { return vec![part] };
    let (before, after) = (&text[..at], &text[at + value.len()..]);
    let mut parts = Vec::new();
    if !before.is_empty() {
        parts.push(Part::Plain(before.to_owned()));
    }
    parts.push(Part::Ref(reference.clone()));
    if !after.is_empty() {
        parts.extend(split(Part::Plain(after.to_owned()), reference, value));
    }
    parts
}
