//! Closed questions (rules 2 to 5 of 2.5): the lists that a value can be chosen from.

use std::cmp::Reverse;

use serde_json::Value;

use super::{Choice, NodeKind, Synth, is_mostly};
use crate::text::proves;
use crate::value::{Collection, Path, at, fields, is_at, is_scalar, same};

/// Divisor of the number of episodes: a list is asked from if one in N read it.
const MIN_READ: usize = 3;

/// For each element of a list, the values to choose from and the chosen one.
type Pairs<'v> = Vec<(Vec<&'v Value>, &'v Value)>;

/// A list that has a variable's values.
#[derive(Debug)]
struct Found {
    choice: Choice,
    /// Number of episodes in which the list has the value.
    covered: usize,
    /// Number of episodes in which the list was read.
    read: usize,
    /// True if the list had several elements in some episode.
    has_several: bool,
    /// Number of elements in all episodes together.
    elements: usize,
    is_scalar: bool,
}

impl Synth<'_, '_> {
    /// True if the value is one of several in some list, so that code must not decide (rule 2).
    pub(super) fn is_one_of_several(&self, var: usize) -> bool {
        if self.vars[var].is_list() {
            return false;
        }
        let found = self.choices(var, false, &|_| true);
        found.iter().any(|one| one.has_several && is_mostly(one.covered, one.read))
    }

    /// The best list to ask from, over nodes that depend on nothing but `known` variables.
    pub(super) fn choice(&self, var: usize, is_known: &dyn Fn(usize) -> bool) -> Option<Choice> {
        let mut found = self.choices(var, true, is_known);
        found.extend(self.choices_of_each(var, is_known));
        found.retain(|one| is_mostly(one.covered, one.read));
        found.sort_by_cached_key(|one| {
            let choice = &one.choice;
            let depth = choice.list.path.len() + choice.field.len();
            let place = (Reverse(choice.of), choice.list.clone(), choice.field.clone());
            // A list that has the value wherever it was read, before one that has it more often.
            let rate = 100 * one.covered / one.read.max(1);
            // Then the longer list: in a shorter one, the value may be the only choice.
            let length = 10 * one.elements / one.read.max(1);
            (Reverse(rate), Reverse(length), Reverse(one.covered), one.is_scalar, depth, place)
        });
        found.into_iter().next().map(|one| one.choice)
    }

    /// Lists that have the variable's values. With `is_proof`, short values say nothing.
    fn choices(&self, var: usize, is_proof: bool, is_known: &dyn Fn(usize) -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        for node in (0..self.nodes.len()).filter(|n| self.is_askable(*n, var, is_known)) {
            for list in self.lists_of(node) {
                found.extend(self.of_list(var, node, &list, is_proof));
            }
        }
        found
    }

    /// True if the lists of a node can be asked from. A read that some runs did without can still be made.
    pub(super) fn is_askable(&self, node: usize, var: usize, is_known: &dyn Fn(usize) -> bool) -> bool {
        let deps = &self.nodes[node].deps;
        let is_known = !deps.contains(&var) && deps.iter().all(|dep| is_known(*dep));
        is_known && self.support(node) * MIN_READ >= self.episodes.len()
    }

    /// Fields of a list's elements that have the variable's values.
    fn of_list(&self, var: usize, node: usize, list: &Collection, is_proof: bool) -> Vec<Found> {
        let many = self.vars[var].is_list();
        let per_episode: Vec<Option<(Vec<&Value>, Vec<&Value>)>> = (0..self.episodes.len())
            .map(|n| {
                let elements = list.elements(self.nodes[node].values[n].as_ref()?)?;
                let value = self.vars[var].values[n].as_ref()?;
                let wanted = if many { value.as_array()?.iter().collect() } else { vec![value] };
                Some((elements, wanted))
            })
            .collect();
        let mut paths: Vec<Path> = Vec::new();
        for (elements, wanted) in per_episode.iter().flatten().take(4) {
            let is_meant = |first: &&&Value| proves(first) || !is_proof && !first.is_boolean();
            let Some(first) = wanted.first().filter(is_meant) else { continue };
            for element in elements {
                for path in fields(element, &|inner| same(inner, first)) {
                    if !paths.contains(&path) {
                        paths.push(path);
                    }
                }
            }
        }
        let columns = paths.into_iter().filter_map(|field| {
            let lists: Vec<&Vec<&Value>> = per_episode.iter().flatten().map(|(elements, _)| elements).collect();
            let by = names(&lists, &field)?;
            let has_all = |elements: &[&Value], wanted: &[&Value]| {
                !wanted.is_empty() && wanted.iter().all(|one| elements.iter().any(|e| at(e, &field) == Some(*one)))
            };
            let covered = per_episode.iter().flatten().filter(|(elements, wanted)| has_all(elements, wanted)).count();
            // The same short value in all elements, such as a count, makes no difference between them.
            let differ =
                |elements: &[&Value]| elements.windows(2).any(|pair| at(pair[0], &field) != at(pair[1], &field));
            let is_several = |elements: &[&Value], wanted: &[&Value]| {
                elements.len() > 1 && (wanted.iter().all(|one| proves(one)) || differ(elements))
            };
            let has_several = per_episode.iter().flatten().any(|(elements, wanted)| is_several(elements, wanted));
            let choice = Choice { of: node, list: list.clone(), by, field, many, always: false, each: None };
            let is_scalar = choice.field.is_empty();
            let read = per_episode.iter().flatten().count();
            let elements = per_episode.iter().flatten().map(|(elements, _)| elements.len()).sum();
            Some(Found { choice, covered, read, has_several, elements, is_scalar })
        });
        columns.filter(|one| one.covered > 0).collect()
    }

    /// Lists inside the results of a loop over the elements that another list names: parallel lists (2.4).
    fn choices_of_each(&self, var: usize, is_known: &dyn Fn(usize) -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        if !self.vars[var].is_list() {
            return found;
        }
        for each in (0..self.nodes.len()).filter(|n| self.is_open_to(*n, var, is_known)) {
            let NodeKind::Loop { of, list, .. } = &self.nodes[each].kind else { continue };
            let is_over_elements = matches!(self.nodes[*of].kind, NodeKind::Elements { .. }) && list.path.is_empty();
            if !is_over_elements {
                continue;
            }
            let seed = (0..self.episodes.len()).find(|n| self.nodes[each].values[*n].is_some());
            let first = seed.and_then(|n| self.nodes[each].values[n].as_ref()?.get(0));
            for list in first.map(crate::value::collections).unwrap_or_default() {
                found.extend(self.of_each(var, each, &list));
            }
        }
        found
    }

    fn of_each(&self, var: usize, each: usize, list: &Collection) -> Option<Found> {
        let pairs = |n: usize| -> Option<Pairs<'_>> {
            let results = self.nodes[each].values[n].as_ref()?.as_array()?;
            let wanted = self.vars[var].values[n].as_ref()?.as_array()?;
            if results.len() != wanted.len() {
                return None;
            }
            results.iter().zip(wanted).map(|(result, wanted)| Some((list.elements(result)?, wanted))).collect()
        };
        let all: Vec<Option<Pairs<'_>>> = (0..self.episodes.len()).map(pairs).collect();
        let (elements, wanted) = all.iter().flatten().flatten().next()?;
        let mut paths: Vec<Path> = elements.iter().flat_map(|one| fields(one, &|inner| same(inner, wanted))).collect();
        paths.dedup();
        let field = paths.into_iter().next().filter(|_| proves(wanted))?;
        let lists: Vec<&Vec<&Value>> = all.iter().flatten().flatten().map(|(elements, _)| elements).collect();
        let by = names(&lists, &field)?;
        let has = |(elements, wanted): &(Vec<&Value>, &Value)| elements.iter().any(|one| is_at(one, &field, wanted));
        let covered = all.iter().flatten().filter(|pairs| pairs.iter().all(has)).count();
        let choice = Choice { of: each, list: list.clone(), by, field, many: false, always: false, each: Some(each) };
        let read = all.iter().flatten().count();
        Some(Found { choice, covered, read, has_several: true, elements: read, is_scalar: false })
    }
}

/// Field that names the elements of all lists: that of the value if no two elements share it, otherwise another one.
pub(super) fn names(lists: &[&Vec<&Value>], field: &Path) -> Option<Path> {
    let is_unique = |path: &Path| {
        lists.iter().all(|elements| {
            let values: Vec<Option<&Value>> = elements.iter().map(|one| at(one, path)).collect();
            let is_named = |value: &Option<&Value>| value.is_some_and(is_scalar);
            values.iter().all(is_named) && values.iter().enumerate().all(|(n, value)| !values[..n].contains(value))
        })
    };
    if field.len() <= 1 && is_unique(field) {
        return Some(field.clone());
    }
    let first = lists.iter().flat_map(|elements| elements.iter()).next()?;
    let mut others = fields(first, &is_scalar).into_iter().filter(|path| path.len() == 1);
    others.find(|path| is_unique(path))
}
