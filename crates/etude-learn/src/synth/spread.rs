//! Calls over the elements of a list that have several arguments of each (2.4): a row of arguments is an element with its fields.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;

use super::choice::names;
use super::{Binding, Bound, Choice, Synth, is_mostly};
use crate::term::{Func, List, Ref, Source};
use crate::text::proves;
use crate::value::{Collection, Path, at, fields, is_at, same};

/// Maximum number of fields of an element that are tried for one argument.
const MAX_FIELDS: usize = 2;
/// Maximum number of arguments that differ from call to call.
const MAX_ARGUMENTS: usize = 5;

/// List that the calls of a write iterate over.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    /// The node with the list.
    pub(crate) of: usize,
    pub(crate) list: Collection,
    /// Field of the element for each argument, by variable.
    pub(crate) fields: BTreeMap<usize, Path>,
    /// Argument that names the elements, and the question that asks for them; `None` if all elements are meant.
    pub(crate) asked: Option<(usize, Choice)>,
}

/// The elements of a list in an episode, and the arguments of its calls.
struct Seen<'v> {
    episode: usize,
    elements: Vec<&'v Value>,
    rows: Vec<Vec<&'v Value>>,
}

impl Synth<'_, '_> {
    /// The arguments that differ from call to call.
    pub(super) fn spread_vars(&self) -> Vec<usize> {
        (0..self.vars.len()).filter(|var| self.vars[*var].spread()).collect()
    }

    /// True if the argument is a field of the element that a call is for.
    pub(super) fn is_of_element(&self, var: usize) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.fields.contains_key(&var))
    }

    /// Binds the arguments that are fields of the same element; true if there is such a list.
    pub(super) fn bind_spread(&mut self) -> bool {
        let vars = self.spread_vars();
        let is_bound = |var: &usize| self.bindings.contains_key(var);
        if self.spread.is_some() || vars.is_empty() || vars.len() > MAX_ARGUMENTS || vars.iter().any(is_bound) {
            return false;
        }
        let is_known = |n: usize| self.bindings.contains_key(&n);
        let is_open = |node: &usize| vars.iter().all(|var| self.is_askable(*node, *var, &is_known));
        // A list whose elements are all meant comes first, then the nearest one.
        let nodes = (0..self.nodes.len()).rev().filter(is_open);
        let lists = nodes.flat_map(|node| self.lists_of(node).into_iter().map(move |list| (node, list)));
        let found: Vec<Spread> = lists.filter_map(|(node, list)| self.over(&vars, node, &list)).collect();
        let Some(spread) = found.into_iter().min_by_key(|spread| spread.asked.is_some()) else { return false };
        for (var, field) in &spread.fields {
            let of = Ref::new(Source::Node(spread.of), spread.list.path.clone());
            let list = List { of, kind: spread.list.kind };
            let (bound, why) = match &spread.asked {
                None => (Bound::Code(Func::Column { list, field: field.clone() }), "only_alternative"),
                Some((_, choice)) => (Bound::Choose(Choice { field: field.clone(), ..choice.clone() }), "asked"),
            };
            self.bindings.insert(*var, Binding { bound, alternatives: Vec::new(), why });
        }
        self.spread = Some(spread);
        true
    }

    /// Spread over a list whose elements have the arguments of the calls.
    fn over(&self, vars: &[usize], of: usize, list: &Collection) -> Option<Spread> {
        let seen = |episode: usize| {
            let elements = list.elements(self.nodes[of].values[episode].as_ref()?)?;
            let column = |var: &usize| self.vars[*var].values[episode].as_ref()?.as_array();
            let columns: Vec<&Vec<Value>> = vars.iter().map(column).collect::<Option<_>>()?;
            let rows = (0..columns.first()?.len()).map(|n| columns.iter().map(|column| &column[n]).collect());
            Some(Seen { episode, elements, rows: rows.collect() })
        };
        let all: Vec<Seen<'_>> = (0..self.episodes.len()).filter_map(seen).collect();
        let longest = all.iter().max_by_key(|seen| (seen.rows.len(), Reverse(seen.episode)))?;
        // A loop whose length was one in all runs is not a loop.
        let first = longest.rows.first().filter(|_| longest.rows.len() > 1)?;
        let mappings: Vec<Vec<Path>> =
            longest.elements.iter().flat_map(|element| self.mappings(vars, element, first)).collect();
        let covers = |paths: &[Path], seen: &Seen<'_>| matched(paths, seen).is_some();
        let is_whole = |paths: &&Vec<Path>| {
            let is_all = |seen: &Seen<'_>| seen.elements.len() == seen.rows.len() && covers(paths, seen);
            all.iter().all(is_all)
        };
        let may_be_whole = self.is_full(of)
            && is_mostly(all.len(), self.episodes.len())
            && vars.iter().all(|var| self.may_be_derived(*var));
        let whole = mappings.iter().filter(|_| may_be_whole).find(is_whole);
        let is_part = |paths: &&Vec<Path>| is_mostly(all.iter().filter(|seen| covers(paths, seen)).count(), all.len());
        let paths = whole.or_else(|| mappings.iter().find(is_part))?;
        let is_proven = |n: &usize| longest.rows.iter().all(|row| proves(row[*n]));
        let mut proven: Vec<usize> = (0..vars.len()).filter(is_proven).collect();
        // A text names an element before a number does.
        proven.sort_by_key(|n| first[*n].is_number());
        let named = |n: usize| {
            let lists: Vec<&Vec<&Value>> = all.iter().map(|seen| &seen.elements).collect();
            Some((n, names(&lists, &paths[n])?))
        };
        proven.first()?;
        let asked = match whole {
            Some(_) => None,
            None => {
                let (n, by) = proven.iter().copied().find_map(named)?;
                let always = vars.iter().any(|var| self.maybe_said_count(*var) > 0);
                let field = paths[n].clone();
                Some((vars[n], Choice { of, list: list.clone(), by, field, many: true, always, each: None }))
            }
        };
        let mut fields: BTreeMap<usize, Path> = vars.iter().copied().zip(paths.iter().cloned()).collect();
        fields.extend(self.constants_of_run(paths, &all));
        (vars.len() > 1 || fields.len() > 1).then(|| Spread { of, list: list.clone(), fields, asked })
    }

    /// Fields of an element that may be the arguments of a call, those with the arguments' names first.
    fn mappings(&self, vars: &[usize], element: &Value, row: &[&Value]) -> Vec<Vec<Path>> {
        let mut found: Vec<Vec<Path>> = vec![Vec::new()];
        for (var, value) in vars.iter().zip(row) {
            let mut paths = fields(element, &|inner| same(inner, value));
            paths.retain(|path| !path.is_empty());
            let name = &self.vars[*var].name;
            paths.sort_by_key(|path| (path.last() != Some(name), path.len(), path.clone()));
            paths.truncate(MAX_FIELDS);
            let extended = found.iter().flat_map(|known| {
                paths.iter().map(move |path| known.iter().cloned().chain([path.clone()]).collect::<Vec<Path>>())
            });
            found = extended.collect();
        }
        found
    }

    /// Arguments that were the same in all calls of a run and equal the field of that name in its elements. Each comes with
    /// the path of the field.
    fn constants_of_run(&self, paths: &[Path], all: &[Seen<'_>]) -> Vec<(usize, Path)> {
        let is_candidate = |var: &usize| {
            self.vars[*var].of_write()
                && !self.vars[*var].spread()
                && !self.bindings.contains_key(var)
                && self.may_be_derived(*var)
                && self.is_varied(*var)
        };
        let candidates = (0..self.vars.len()).filter(is_candidate).map(|var| (var, vec![self.vars[var].name.clone()]));
        let is_field = |(var, path): &(usize, Path)| {
            all.iter().all(|seen| {
                let value = self.vars[*var].values[seen.episode].as_ref();
                let elements = matched(paths, seen);
                value.is_some_and(|value| {
                    elements.is_some_and(|elements| elements.iter().all(|one| is_at(one, path, value)))
                })
            })
        };
        candidates.filter(is_field).collect()
    }
}

/// Distinct elements that the calls of an episode are for; `None` if a call matches no element.
fn matched<'v>(paths: &[Path], seen: &Seen<'v>) -> Option<Vec<&'v Value>> {
    let mut rest = seen.elements.clone();
    let is_it = |element: &&Value, row: &[&Value]| {
        paths.iter().zip(row).all(|(path, value)| at(element, path).is_some_and(|found| same(found, value)))
    };
    let element = |row: &Vec<&Value>| {
        let place = rest.iter().position(|element| is_it(element, row))?;
        Some(rest.swap_remove(place))
    };
    seen.rows.iter().map(element).collect()
}
