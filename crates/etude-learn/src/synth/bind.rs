//! Choice of the expression for an argument (2.5): by the rules first, then by length.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::shell;
use serde_json::Value;

use super::expressions::{Candidate, is_same};
use super::{Binding, Bound, Choice, NodeKind, Synth};
use crate::episode::leaves;
use crate::notation::has_time;
use crate::program::Of;
use crate::slots::skeleton;
use crate::term::{Func, Ref, Source, Term};
use crate::value::{Path, are_same, at, fields, is_scalar, same};

/// Minimum number of requests per value of an enumeration (rule 5).
const SEEN_PER_VALUE: usize = 3;
/// Maximum number of branches of an argument (2.3).
const MAX_BRANCHES: usize = 3;

impl Synth<'_, '_> {
    /// Binds every variable.
    pub(super) fn bind(&mut self) {
        self.bind_commands();
        self.bind_unused();
        for var in self.unbound() {
            if self.said_count(var) == self.episodes_with(var) && self.said_count(var) > 0 && self.is_always_there(var)
            {
                let alternatives = self.alternatives(var);
                self.bindings.insert(var, Binding { bound: Bound::Param, alternatives, why: "words_first" });
            }
        }
        while self.bind_spread() || self.bind_derived() || self.bind_constants() || self.bind_question() {}
        for var in 0..self.vars.len() {
            if !self.bindings.contains_key(&var) {
                // Words of the user, if any, determine the value; other requests deviate. A fixed set is asked for (rule 3).
                let is_said = self.said_requests(var) * 3 >= self.requests() * 2 && !self.is_fixed_set(var);
                let by_words = (self.said_requests(var) > 1 && self.is_always_there(var)).then_some(Bound::Param);
                let bound = match is_said {
                    true => by_words.or_else(|| self.enumeration(var)),
                    false => self.enumeration(var).or(by_words),
                };
                let why = if matches!(bound, Some(Bound::Param)) { "words_first" } else { "asked" };
                let bound = bound.unwrap_or(Bound::Open);
                self.bindings.insert(var, Binding { bound, alternatives: Vec::new(), why });
            }
        }
        self.complete_records();
    }

    /// Binds command lines as constants, also if the user said them.
    fn bind_commands(&mut self) {
        for var in 0..self.vars.len() {
            let value = self.vars[var].values.first().cloned().flatten();
            if self.vars[var].argument.tool == shell::TOOL
                && self.vars[var].name == shell::COMMAND
                && let Some(value) = value.filter(|value| !has_time(value))
            {
                let (bound, alternatives) = (Bound::Term(Term::Const(value)), Vec::new());
                self.bindings.insert(var, Binding { bound, alternatives, why: "only_alternative" });
            }
        }
    }

    /// Binds the words that a read takes which no run of the family made.
    fn bind_unused(&mut self) {
        for var in 0..self.vars.len() {
            if self.vars[var].argument.of == Of::Said && self.episodes_with(var) == 0 {
                let alternatives = Vec::new();
                self.bindings.insert(var, Binding { bound: Bound::Param, alternatives, why: "words_first" });
            }
        }
    }

    fn episodes_with(&self, var: usize) -> usize {
        self.vars[var].values.iter().flatten().count()
    }

    /// True if every call of the write has the argument. An argument of a read is always there if the read is.
    fn is_always_there(&self, var: usize) -> bool {
        !self.vars[var].of_write() || self.episodes_with(var) == self.episodes.len()
    }

    fn said_count(&self, var: usize) -> usize {
        (0..self.episodes.len()).filter(|n| self.is_said(var, *n)).count()
    }

    fn is_banned(&self, var: usize) -> bool {
        self.banned.contains(&self.vars[var].argument.key())
    }

    /// Number of episodes in which the user may have said the value.
    pub(super) fn maybe_said_count(&self, var: usize) -> usize {
        (0..self.episodes.len()).filter(|n| self.may_be_said(var, *n)).count()
    }

    /// True if the value may be derived. A write's value that one run may have taken from the user's words may not (rule 3).
    pub(super) fn may_be_derived(&self, var: usize) -> bool {
        let is_said = self.vars[var].of_write() && self.maybe_said_count(var) > 0;
        !is_said && !self.is_banned(var) && self.is_always_there(var)
    }

    /// True if the value may be a constant. If it may have been said in every run, it may not, however short it is (L-14).
    fn may_be_constant(&self, var: usize) -> bool {
        let count = self.maybe_said_count(var);
        self.may_be_derived(var) && (count == 0 || count < self.episodes_with(var))
    }

    /// Number of requests that say the value.
    fn said_requests(&self, var: usize) -> usize {
        let said = (0..self.episodes.len()).filter(|n| self.is_said(var, *n));
        said.map(|n| self.episodes[n].digest.as_str()).collect::<BTreeSet<_>>().len()
    }

    fn requests(&self) -> usize {
        self.episodes.iter().map(|episode| episode.digest.as_str()).collect::<BTreeSet<_>>().len()
    }

    /// True if an expression is the name by which a thing was read, which is not a default. It is the field with the
    /// argument's own name, or the whole output, and the user named the thing in every run.
    fn is_identity(&self, var: usize, bound: &Bound) -> bool {
        let Bound::Term(Term::Ref(Ref { source: Source::Node(node), path })) = bound else { return false };
        let NodeKind::Read { args, .. } = &self.nodes[*node].kind else { return false };
        let is_named = |of: &Ref| match of.source {
            Source::Var(n) => self.bindings.get(&n).is_some_and(|binding| match &binding.bound {
                Bound::Param => true,
                Bound::Choose(choice) => choice.always,
                Bound::Enumerate { always, .. } => *always,
                _ => false,
            }),
            _ => false,
        };
        let refs = args.refs();
        let has_value = |n: usize| {
            let own = self.vars[var].values[n].as_ref();
            let named = args.eval(&self.scope(n)).map(|args| leaves(&args));
            own.is_none_or(|own| named.is_none_or(|named| named.iter().any(|(_, value)| value == own)))
        };
        (path.is_empty() || path[..] == [self.vars[var].name.clone()])
            && !refs.is_empty()
            && refs.into_iter().all(is_named)
            && (0..self.episodes.len()).all(has_value)
    }

    /// Unbound variables that are bound alone. Arguments that differ together from call to call are not.
    fn unbound(&self) -> Vec<usize> {
        let is_one = self.spread_vars().len() < 2;
        let is_open = |var: &usize| !self.bindings.contains_key(var) && (is_one || !self.vars[*var].spread());
        (0..self.vars.len()).filter(is_open).collect()
    }

    fn bind_derived(&mut self) -> bool {
        for var in self.unbound() {
            if self.is_banned(var)
                || !self.is_always_there(var)
                || self.vars[var].of_write() && self.is_one_of_several(var)
            {
                continue;
            }
            let mut found = self.derived(var, &|n| self.bindings.contains_key(&n));
            if !self.may_be_derived(var) {
                found.retain(|one| self.is_identity(var, &one.bound));
            }
            if let Some(binding) = chosen(found) {
                self.bindings.insert(var, binding);
                return true;
            }
        }
        false
    }

    /// Binds a variable to a constant or a branch; true if one was bound.
    fn bind_constants(&mut self) -> bool {
        for var in self.unbound() {
            if !self.may_be_constant(var) || self.vars[var].of_write() && self.is_one_of_several(var) {
                continue;
            }
            let values: Vec<&Value> = self.vars[var].values.iter().flatten().collect();
            let Some(first) = values.first() else { continue };
            let is_constant = values.iter().all(|value| is_same(first, value));
            let bound = match is_constant {
                true if self.is_stale(var, first) => None,
                true => Some(Bound::Term(Term::Const((*first).clone()))),
                false => self.branch(var),
            };
            if let Some(bound) = bound {
                let alternatives = Vec::new();
                self.bindings.insert(var, Binding { bound, alternatives, why: "only_alternative" });
                return true;
            }
        }
        false
    }

    /// True if a value is a point in time that is past when the pipeline runs, unless the schema of the tool names it.
    fn is_stale(&self, var: usize, value: &Value) -> bool {
        let argument = &self.vars[var].argument;
        has_time(value) && !(self.vars[var].of_write() && is_fixed(self.schema, &argument.path, value))
    }

    fn bind_question(&mut self) -> bool {
        for var in self.unbound() {
            if !self.is_always_there(var) {
                continue;
            }
            let is_known = |n: usize| self.bindings.contains_key(&n);
            let Some(choice) = self.choice(var, &is_known) else { continue };
            let alternatives = self.alternatives(var);
            let always = self.maybe_said_count(var) > 0;
            let bound = Bound::Choose(Choice { always, ..choice });
            self.bindings.insert(var, Binding { bound, alternatives, why: "asked" });
            return true;
        }
        false
    }

    /// True if there are several values, each of which was seen often enough to be one of a set.
    fn is_fixed_set(&self, var: usize) -> bool {
        let mut requests: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (value, episode) in self.vars[var].values.iter().zip(self.episodes) {
            if let Some(value) = value {
                requests.entry(value.to_string()).or_default().insert(&episode.digest);
            }
        }
        requests.len() > 1 && requests.values().all(|seen| seen.len() >= SEEN_PER_VALUE)
    }

    /// Question over the seen values, if they were seen often enough to be all that there are.
    fn enumeration(&self, var: usize) -> Option<Bound> {
        if !self.is_always_there(var) || self.vars[var].is_list() {
            return None;
        }
        let mut values: Vec<Value> = Vec::new();
        for value in self.vars[var].values.iter().flatten() {
            if !values.iter().any(|known| same(known, value)) {
                values.push(value.clone());
            }
        }
        let requests: BTreeSet<&str> = self.episodes.iter().map(|episode| episode.digest.as_str()).collect();
        let is_fit = |value: &Value| is_scalar(value) && !self.is_stale(var, value);
        let is_closed = requests.len() >= SEEN_PER_VALUE * values.len() && values.iter().all(is_fit);
        values.sort_by_key(Value::to_string);
        let is_none = |value: &Value| value == "none";
        (is_closed && !values.iter().any(is_none)).then(|| Bound::Enumerate { values, always: true })
    }

    /// Branch of up to three expressions, each for runs of two requests, distinguished by an earlier output (2.3). A truth
    /// value has none: it differs as many fields do by chance.
    fn branch(&self, var: usize) -> Option<Bound> {
        if self.vars[var].values.iter().flatten().any(Value::is_boolean) {
            return None;
        }
        let is_known = |n: usize| self.bindings.contains_key(&n);
        let mut terms: Vec<Term> = Vec::new();
        for seed in self.seeds(6, &|n| self.vars[var].values[n].is_some()) {
            let value = self.vars[var].values[seed].as_ref()?;
            let mut found = vec![Term::Const(value.clone())];
            found.retain(|_| !self.is_stale(var, value));
            for node in (0..self.nodes.len()).filter(|n| self.is_open_to(*n, var, &is_known)) {
                let paths =
                    self.nodes[node].values[seed].iter().flat_map(|result| fields(result, &|inner| same(inner, value)));
                found.extend(paths.map(|path| Term::Ref(Ref::new(Source::Node(node), path))));
            }
            terms.extend(found.into_iter().filter(|term| !terms.contains(term)).collect::<Vec<_>>());
        }
        let holds =
            |term: &Term, n: usize| are_same(term.eval(&self.scope(n)).as_ref(), self.vars[var].values[n].as_ref());
        let digest = |n: usize| self.episodes[n].digest.as_str();
        let mut rest: BTreeSet<usize> = (0..self.episodes.len()).collect();
        let mut branches: Vec<(Term, BTreeSet<usize>)> = Vec::new();
        while !rest.is_empty() && branches.len() < MAX_BRANCHES {
            let covered = |term: &Term| rest.iter().copied().filter(|n| holds(term, *n)).collect::<BTreeSet<usize>>();
            let (term, runs) =
                terms.iter().map(|term| (term, covered(term))).max_by_key(|(_, runs)| (runs.len(), 0))?;
            if runs.iter().map(|n| digest(*n)).collect::<BTreeSet<_>>().len() < 2 {
                return None;
            }
            rest.retain(|n| !runs.contains(n));
            branches.push((term.clone(), runs));
        }
        let is_branched = rest.is_empty() && branches.len() > 1 && self.is_asked_alike(var, &branches);
        is_branched.then(|| self.distinguished(var, &branches, &is_known)).flatten()
    }

    /// True if the requests of all branches are the same up to the values in them. Otherwise the users may have said which
    /// value they mean, and an output that differed in the same way is a coincidence.
    fn is_asked_alike(&self, var: usize, branches: &[(Term, BTreeSet<usize>)]) -> bool {
        let skeleton = |n: &usize| skeleton(&self.episodes[*n], self.vars[var].values[*n].as_ref());
        let mut all = branches.iter().map(|(_, runs)| runs.iter().map(skeleton).collect::<BTreeSet<String>>());
        let first = all.next();
        all.all(|other| first.as_ref() == Some(&other))
    }

    fn distinguished(
        &self,
        var: usize,
        branches: &[(Term, BTreeSet<usize>)],
        is_known: &dyn Fn(usize) -> bool,
    ) -> Option<Bound> {
        for node in (0..self.nodes.len()).filter(|n| self.is_open_to(*n, var, is_known)) {
            let Some(first) = self.nodes[node].values.iter().flatten().next() else { continue };
            for path in fields(first, &is_scalar) {
                let value = |n: &usize| at(self.nodes[node].values[*n].as_ref()?, &path);
                let mut cases: Vec<(Value, Term)> = Vec::new();
                let is_apart = branches.iter().all(|(term, runs)| {
                    let mut values = runs.iter().map(value);
                    let Some(Some(one)) = values.next() else { return false };
                    let is_new = cases.iter().all(|(known, _)| !same(known, one));
                    cases.push((one.clone(), term.clone()));
                    is_new && values.all(|other| are_same(other, Some(one)))
                });
                if is_apart {
                    let on = Ref::new(Source::Node(node), path);
                    return Some(Bound::Code(Func::Branch { on, cases }));
                }
            }
        }
        None
    }

    /// Binds other arguments that are fields of a chosen record to the same record (rule 4).
    fn complete_records(&mut self) {
        let chosen = |synth: &Self, var: usize| match &synth.bindings.get(&var)?.bound {
            Bound::Choose(choice) if !choice.many && choice.each.is_none() => Some(choice.clone()),
            _ => None,
        };
        let write_vars: Vec<usize> = (0..self.vars.len()).filter(|var| self.vars[*var].of_write()).collect();
        for var in &write_vars {
            let Some(choice) = chosen(self, *var) else { continue };
            let has_company = write_vars
                .iter()
                .filter(|n| chosen(self, **n).is_some_and(|c| c.list == choice.list && c.of == choice.of))
                .count()
                > 1;
            for other in write_vars.iter().filter(|_| has_company) {
                let is_constant =
                    matches!(self.bindings.get(other).map(|b| &b.bound), Some(Bound::Term(Term::Const(_))));
                if is_constant && let Some(field) = self.field_of_record(*var, &choice, *other) {
                    let bound = Bound::Choose(Choice { field, ..choice.clone() });
                    self.bindings.insert(*other, Binding { bound, alternatives: Vec::new(), why: "asked" });
                }
            }
        }
    }

    /// Field of the element chosen by `var` that has the values of another variable.
    fn field_of_record(&self, var: usize, choice: &Choice, other: usize) -> Option<Path> {
        let element = |n: usize| {
            let elements = choice.list.elements(self.nodes[choice.of].values[n].as_ref()?)?;
            elements.into_iter().find(|one| are_same(at(one, &choice.field), self.vars[var].values[n].as_ref()))
        };
        let first = element(0)?;
        let wanted = self.vars[other].values[0].as_ref()?;
        let has = |path: &Path, n: usize| {
            element(n).is_none_or(|one| are_same(at(one, path), self.vars[other].values[n].as_ref()))
        };
        fields(first, &|inner| same(inner, wanted))
            .into_iter()
            .find(|path| (0..self.episodes.len()).all(|n| has(path, n)))
    }

    /// True if two variables name the same element in every episode that has the list.
    pub(super) fn is_same_element(&self, choice: &Choice, one: usize, other: (usize, &Path)) -> bool {
        (0..self.episodes.len()).all(|n| {
            let Some(elements) = self.nodes[choice.of].values[n].as_ref().and_then(|value| choice.list.elements(value))
            else {
                return true;
            };
            let is_it = |element: &&Value| {
                are_same(at(element, &choice.field), self.vars[one].values[n].as_ref())
                    && are_same(at(element, other.1), self.vars[other.0].values[n].as_ref())
            };
            elements.iter().any(is_it)
        })
    }
}

/// True if the schema of an argument names a value (`enum`, `const`).
fn is_fixed(schema: &Value, path: &[String], value: &Value) -> bool {
    let Some((name, below)) = path.split_first() else {
        let has = |schema: &Value| schema["enum"].as_array().is_some_and(|all| all.contains(value));
        return has(schema) || schema.get("const") == Some(value);
    };
    let inner = if name.parse::<usize>().is_ok() { &schema["items"] } else { &schema["properties"][name.as_str()] };
    is_fixed(inner, below, value)
}

fn chosen(found: Vec<Candidate>) -> Option<Binding> {
    let mut found = found.into_iter();
    let best = found.next()?;
    let rest: Vec<Candidate> = found.collect();
    let why = match rest.first() {
        None => "only_alternative",
        Some(next) if next.bits > best.bits => "shortest",
        Some(_) => "nearest",
    };
    let alternatives = rest.into_iter().map(|one| one.bound).collect();
    Some(Binding { bound: best.bound, alternatives, why })
}
