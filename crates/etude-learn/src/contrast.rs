//! Results of the runs that a condition is compared with: those of other families, and those that did not go well.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::episode::leaves;
use crate::text::{Said, proves};
use crate::trace::{Event, Trace};
use crate::value::{Collection, Path, at, fields, is_scalar};

use crate::world::{Class, World};

/// Run, place of a result in it, list of the result, and field that does not name its elements.
type Sought = (usize, usize, Collection, Path);

/// Results by tool for each run of another family, or that did not go well.
pub(crate) struct Contrast<'t> {
    runs: Vec<Run<'t>>,
    /// The elements that a run is about.
    about: RefCell<BTreeMap<Sought, Vec<&'t Value>>>,
}

/// Names of elements: the texts of the run, and the arguments of its calls.
struct Names {
    said: Said,
    taken: Vec<Value>,
}

struct Run<'t> {
    trace: &'t Trace,
    names: OnceCell<Names>,
    /// True if it called no tool that writes, and so nothing shows which element it would have changed.
    only_read: bool,
    /// The results of each tool, with the place of the call.
    by_tool: BTreeMap<&'t str, Vec<(usize, &'t Value)>>,
}

impl<'t> Contrast<'t> {
    pub(crate) fn new(traces: impl Iterator<Item = &'t Trace>, world: &dyn World) -> Self {
        let of_trace = |trace: &'t Trace| {
            let mut by_tool: BTreeMap<&'t str, Vec<(usize, &'t Value)>> = BTreeMap::new();
            for (place, call) in trace.calls().enumerate().filter(|(_, call)| call.is_good()) {
                by_tool.entry(call.tool.as_str()).or_default().push((place, &call.result));
            }
            let reads = |tool: &str| world.tool(tool).is_some_and(|tool| tool.class == Class::Reads);
            let only_read = trace.calls().all(|call| reads(&call.tool));
            Run { trace, names: OnceCell::new(), only_read, by_tool }
        };
        Self { runs: traces.map(of_trace).collect(), about: RefCell::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Results of these tools in order, for each run that has some.
    pub(crate) fn of(&self, tools: &[String]) -> BTreeMap<usize, Vec<&'t Value>> {
        let places = |run: &Run<'t>| run.results(tools).into_iter().map(|(_, result)| result).collect::<Vec<_>>();
        self.runs.iter().map(places).enumerate().filter(|(_, results)| !results.is_empty()).collect()
    }

    /// Number of runs that are about an element with another value at `field`, in a list of a result of these tools.
    pub(crate) fn others(&self, tools: &[String], list: &Collection, field: &Path, wanted: &Value) -> usize {
        let is_other = |element: &&Value| is_another(element, field, wanted);
        let has_one = |(n, run): &(usize, &Run<'t>)| {
            let results = run.results(tools);
            results.into_iter().any(|(place, result)| {
                let mut known = self.about.borrow_mut();
                let about = known.entry((*n, place, list.clone(), field.clone()));
                about.or_insert_with(|| run.about(list, field, result)).iter().any(is_other)
            })
        };
        self.runs.iter().enumerate().filter(has_one).count()
    }
}

impl<'t> Run<'t> {
    fn results(&self, tools: &[String]) -> Vec<(usize, &'t Value)> {
        let names: BTreeSet<&str> = tools.iter().map(String::as_str).collect();
        let of_tools = names.into_iter().filter_map(|tool| self.by_tool.get(tool));
        let mut found: Vec<(usize, &'t Value)> = of_tools.flatten().copied().collect();
        found.sort_by_key(|(place, _)| *place);
        found
    }

    /// The elements that the run is about: those with a value of their own, other than that of `field`, that was said or
    /// that a call took. If there is none, all elements of a run that only read: it may have declined for any of them.
    fn about(&self, list: &Collection, field: &Path, result: &'t Value) -> Vec<&'t Value> {
        let elements = list.elements(result).unwrap_or_default();
        let names = self.names.get_or_init(|| Names::new(self.trace));
        let is_named = |element: &&&Value| {
            fields(element, &|value| is_scalar(value) && proves(value)).into_iter().any(|path| {
                let value = at(element, &path).filter(|value| path != *field && names.has(value));
                value.is_some() && elements.iter().filter(|other| at(other, &path) == value).count() == 1
            })
        };
        let named: Vec<&Value> = elements.iter().filter(is_named).copied().collect();
        if named.is_empty() && self.only_read { elements } else { named }
    }
}

impl Names {
    fn new(trace: &Trace) -> Self {
        let said = trace.events.iter().filter_map(|event| match event {
            Event::User(text) | Event::Agent(text) => Some(text.as_str()),
            _ => None,
        });
        let input = trace.input.values().filter_map(Value::as_str);
        let first = std::iter::once(trace.request.as_str());
        let said = Said::new(first.chain(input).chain(said).chain(trace.answer.as_deref()));
        let taken = trace.calls().flat_map(|call| leaves(&call.arguments)).map(|(_, value)| value).collect();
        Self { said, taken }
    }

    fn has(&self, value: &Value) -> bool {
        let is_it = |one: &Value| one == value || one.as_array().is_some_and(|items| items.contains(value));
        self.taken.iter().any(is_it) || self.said.has(value)
    }
}

/// True if a scalar other than `wanted` is at the path.
pub(crate) fn is_another(value: &Value, path: &Path, wanted: &Value) -> bool {
    at(value, path).is_some_and(|value| is_scalar(value) && value != wanted)
}
