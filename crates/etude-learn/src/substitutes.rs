//! Reads that substitute for each other in the whole corpus (2.2): a user is found by e-mail or by name.
//!
//! The runs of one family may all have used one of these reads. Runs of other families show that the others lead to the same
//! result: all of them read by words of the user, and their results are used for the same argument of the same tool.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::data::bare;
use serde_json::Value;

use crate::episode::{is_refusal, leaves};
use crate::text::{Said, proves};
use crate::trace::{Trace, TraceCall};
use crate::value::{Path, fields, has_same_shape};
use crate::world::{Class, World};

/// Minimum number of requests with a use of a result, so that it proves something.
const MIN_REQUESTS: usize = 3;

/// Use of a result: the path in it, the tool of a later call, and the path of an argument of that call.
type Use<'t> = (Path, &'t str, Path);

/// Tools that are called with words of the user, and the uses of their results.
#[derive(Debug, Default)]
pub(crate) struct Substitutes<'t> {
    tools: BTreeMap<&'t str, Reads<'t>>,
    /// Pairs of tools that returned different results in the same run.
    different: BTreeSet<(&'t str, &'t str)>,
}

#[derive(Debug)]
struct Reads<'t> {
    /// A call whose arguments are all words of the user.
    first: &'t TraceCall,
    /// True if all such calls have the same argument names.
    is_uniform: bool,
    /// Digests of the requests that have each use.
    uses: BTreeMap<Use<'t>, BTreeSet<String>>,
}

impl<'t> Substitutes<'t> {
    pub(crate) fn new(traces: &[&'t Trace], world: &dyn World) -> Self {
        let mut found = Self::default();
        for trace in traces.iter().copied() {
            found.add(trace, world);
        }
        found
    }

    fn add(&mut self, trace: &'t Trace, world: &dyn World) {
        let input: Vec<String> = trace.input.values().map(|value| bare(value).into_owned()).collect();
        let said = Said::new(trace.user_texts().chain(input.iter().map(String::as_str)));
        let digest = trace.digest();
        let calls: Vec<&'t TraceCall> =
            trace.calls().filter(|call| call.is_good() && !is_refusal(&call.result)).collect();
        let is_read = |call: &TraceCall| world.tool(&call.tool).is_some_and(|tool| tool.class == Class::Reads);
        let mut results: BTreeMap<&'t str, &'t Value> = BTreeMap::new();
        for (n, call) in calls.iter().copied().enumerate().filter(|(_, call)| is_read(call)) {
            let arguments = leaves(&call.arguments);
            if arguments.is_empty() || !arguments.iter().all(|(_, value)| said.has(value)) {
                continue;
            }
            let known = self.tools.entry(call.tool.as_str()).or_insert_with(|| Reads {
                first: call,
                is_uniform: true,
                uses: BTreeMap::new(),
            });
            known.is_uniform &= paths(call) == paths(known.first);
            for one in uses_of(call, &calls[n + 1..]) {
                known.uses.entry(one).or_default().insert(digest.clone());
            }
            results.insert(call.tool.as_str(), &call.result);
        }
        for (tool, result) in &results {
            let others = results.iter().filter(|(_, other)| *other != result);
            self.different.extend(others.map(|(other, _)| (*tool, *other)));
        }
    }

    /// The other tools with the same use, each with the arguments of a call, by name.
    pub(crate) fn of(&self, tool: &str) -> Vec<(&'t str, &'t Value)> {
        let Some(own) = self.tools.get(tool).filter(|own| own.is_uniform) else { return Vec::new() };
        let is_other = |(name, reads): &(&&'t str, &Reads<'t>)| {
            **name != tool
                && reads.is_uniform
                && has_same_shape(&reads.first.result, &own.first.result)
                && !self.different.iter().any(|(one, other)| *one == tool && other == *name)
                && own.uses.keys().any(|one| own.has(one) && reads.has(one))
        };
        let others = self.tools.iter().filter(is_other);
        others.map(|(name, reads)| (*name, &reads.first.arguments)).collect()
    }
}

impl<'t> Reads<'t> {
    fn has(&self, one: &Use<'t>) -> bool {
        self.uses.get(one).is_some_and(|requests| requests.len() >= MIN_REQUESTS)
    }
}

fn paths(call: &TraceCall) -> Vec<Path> {
    leaves(&call.arguments).into_iter().map(|(path, _)| path).collect()
}

/// Uses of a result in later calls.
fn uses_of<'t>(call: &TraceCall, later: &[&'t TraceCall]) -> BTreeSet<Use<'t>> {
    let mut found = BTreeSet::new();
    for other in later.iter().filter(|other| other.tool != call.tool) {
        for (argument, value) in leaves(&other.arguments).into_iter().filter(|(_, value)| proves(value)) {
            let places = fields(&call.result, &|inner| *inner == value);
            found.extend(places.into_iter().map(|path| (path, other.tool.as_str(), argument.clone())));
        }
    }
    found
}
