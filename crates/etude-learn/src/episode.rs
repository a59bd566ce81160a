//! Episodes (2.2): a write with the reads before it, or a run that only read; and families of them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use etude_core::data::bare;
use serde_json::Value;

use crate::text::{Said, proves};
use crate::trace::{Event, Trace, TraceCall};
use crate::value::{Path, is_scalar, same};
use crate::world::{Class, World};

/// The call by which an agent reads a skill.
const ACTIVATE_SKILL: &str = "activate_skill";

/// One write of a run, or several of the same tool in a row, with the user's words and the reads before it.
#[derive(Debug, Clone)]
pub(crate) struct Episode<'t> {
    pub(crate) trace: &'t Trace,
    pub(crate) digest: String,
    /// Words of the user, including the input values.
    pub(crate) said: Said,
    /// The reads before the first write that succeeded, in order.
    pub(crate) reads: Vec<&'t TraceCall>,
    /// Empty for a run that only read.
    pub(crate) writes: Vec<&'t TraceCall>,
    /// All writes of the run that succeeded.
    pub(crate) of_run: Rc<[&'t TraceCall]>,
}

impl Episode<'_> {
    /// True if the run made no other writes. Otherwise a pipeline with these writes alone does a part of the request, and the
    /// question before the write must refuse it.
    pub(crate) fn is_whole(&self) -> bool {
        self.writes.len() == self.of_run.len()
    }

    /// The right answer to the question before the write (2.7).
    pub(crate) fn permission(&self) -> &'static str {
        if self.is_whole() { "yes" } else { "no" }
    }

    /// Last result of a read with these arguments before the write.
    pub(crate) fn recorded(&self, tool: &str, arguments: &Value) -> Option<&Value> {
        self.recorded_after(tool, arguments, 0).map(|(_, result)| result)
    }

    /// Last such result among the reads from index `from` on, with the index after the first match.
    pub(crate) fn recorded_after(&self, tool: &str, arguments: &Value, from: usize) -> Option<(usize, &Value)> {
        let is_it = |n: &usize| self.reads[*n].tool == tool && same(&self.reads[*n].arguments, arguments);
        let mut places = (from..self.reads.len()).filter(is_it);
        let first = places.next()?;
        Some((first + 1, &self.reads[places.next_back().unwrap_or(first)].result))
    }
}

/// Episodes that end in a write with the same tool, or runs that read with the same tools.
#[derive(Debug)]
pub(crate) struct Family<'t> {
    pub(crate) name: String,
    /// Tool of the write; `None` if the runs only read.
    pub(crate) write: Option<String>,
    /// JSON Schema of the write's arguments; `null` if unknown.
    pub(crate) schema: Value,
    /// One episode for each write.
    pub(crate) episodes: Vec<Episode<'t>>,
    /// Episodes with all writes of a run in one; empty if no run has several.
    pub(crate) folded: Vec<Episode<'t>>,
}

impl Family<'_> {
    /// Digests of the requests, sorted.
    pub(crate) fn requests(&self) -> BTreeSet<&str> {
        self.episodes.iter().map(|episode| episode.digest.as_str()).collect()
    }

    /// Number of distinct runs.
    pub(crate) fn runs(&self) -> usize {
        self.episodes.iter().map(|episode| episode.trace.run.as_str()).collect::<BTreeSet<_>>().len()
    }
}

/// True if a result is a text that starts with `error`: some tools report failures only in this way.
pub(crate) fn is_refusal(result: &Value) -> bool {
    result.as_str().is_some_and(|text| text.trim_start().to_lowercase().starts_with("error"))
}

/// All families of the traces, by name.
pub(crate) fn families<'t>(traces: &[&'t Trace], world: &dyn World) -> Vec<Family<'t>> {
    let mut writes: BTreeMap<String, Vec<Episode<'t>>> = BTreeMap::new();
    let mut reads: BTreeMap<String, Vec<Episode<'t>>> = BTreeMap::new();
    for trace in traces {
        let episodes = of_trace(trace, world);
        for episode in episodes {
            match episode.writes.first() {
                Some(write) => writes.entry(write.tool.clone()).or_default().push(episode),
                None if episode.reads.is_empty() => {}
                None => reads.entry(goal(&episode)).or_default().push(episode),
            }
        }
    }
    let of_writes = writes.into_iter().map(|(tool, episodes)| {
        let folded = fold(&episodes);
        let schema = world.tool(&tool).map_or(Value::Null, |tool| tool.schema);
        Family { name: tool.clone(), write: Some(tool), schema, episodes, folded }
    });
    let of_reads = reads.into_iter().map(|(name, episodes)| {
        let (schema, folded) = (Value::Null, Vec::new());
        Family { name, write: None, schema, episodes, folded }
    });
    let mut all: Vec<Family<'t>> = of_writes.chain(of_reads).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn of_trace<'t>(trace: &'t Trace, world: &dyn World) -> Vec<Episode<'t>> {
    let digest = trace.digest();
    let mut texts = vec![trace.request.clone()];
    texts.extend(trace.input.values().map(|value| bare(value).into_owned()));
    let mut reads: Vec<&TraceCall> = Vec::new();
    let mut found = Vec::new();
    let episode = |texts: &[String], reads: &[&'t TraceCall], writes: Vec<&'t TraceCall>| {
        let said = Said::new(texts.iter().map(String::as_str));
        let of_run = writes.clone().into();
        Episode { trace, digest: digest.clone(), said, reads: reads.to_vec(), writes, of_run }
    };
    for event in &trace.events {
        match event {
            Event::User(text) => texts.push(text.clone()),
            // Activating a skill changes what the agent knows, and is not a step.
            Event::Call(call) if call.tool == ACTIVATE_SKILL => {}
            Event::Call(call) if call.is_good() && !is_refusal(&call.result) => {
                match world.tool(&call.tool).map(|tool| tool.class) {
                    Some(Class::Reads) => reads.push(call),
                    _ => found.push(episode(&texts, &reads, vec![&**call])),
                }
            }
            _ => {}
        }
    }
    let of_run: Rc<[&TraceCall]> = found.iter().flat_map(|episode| episode.writes.iter().copied()).collect();
    found.iter_mut().for_each(|episode| episode.of_run = Rc::clone(&of_run));
    if found.is_empty() {
        let has_write = trace.calls().any(|call| world.tool(&call.tool).is_none_or(|tool| tool.class == Class::Writes));
        // A run whose writes failed does not belong to a family that only reads.
        if !has_write {
            found.push(episode(&texts, &reads, Vec::new()));
        }
    }
    found
}

/// All writes of a run in one episode; empty if no run has several.
fn fold<'t>(episodes: &[Episode<'t>]) -> Vec<Episode<'t>> {
    let mut folded: Vec<Episode<'t>> = Vec::new();
    for episode in episodes {
        match folded.last_mut().filter(|last| std::ptr::eq(last.trace, episode.trace)) {
            Some(last) => last.writes.extend(&episode.writes),
            None => folded.push(episode.clone()),
        }
    }
    if folded.len() == episodes.len() { Vec::new() } else { folded }
}

/// Family name of a run without writes: the tools that its answer depends on.
fn goal(episode: &Episode<'_>) -> String {
    let answer = Said::new(episode.trace.answer.as_deref());
    let feeds_answer = |call: &&&TraceCall| {
        let values = fields_of_all(&call.result);
        values.iter().any(|value| answer.has(value) && !episode.said.has(value))
    };
    let mut slice: BTreeSet<&str> = episode.reads.iter().filter(feeds_answer).map(|call| call.tool.as_str()).collect();
    if slice.is_empty() {
        slice = episode.reads.iter().map(|call| call.tool.as_str()).collect();
    }
    // Walk backwards to the sources of the arguments.
    for (n, call) in episode.reads.iter().enumerate().rev() {
        if !slice.contains(call.tool.as_str()) {
            continue;
        }
        for value in fields_of_all(&call.arguments).into_iter().filter(|value| !episode.said.has(value)) {
            let earlier = episode.reads[..n].iter().filter(|earlier| fields_of_all(&earlier.result).contains(&value));
            slice.extend(earlier.map(|earlier| earlier.tool.as_str()));
        }
    }
    format!("read:{}", slice.into_iter().collect::<Vec<_>>().join("+"))
}

/// Texts and numbers in a value that are long enough to prove their origin.
fn fields_of_all(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(members) => members.values().flat_map(fields_of_all).collect(),
        Value::Array(items) => items.iter().flat_map(fields_of_all).collect(),
        scalar if proves(scalar) => vec![scalar],
        _ => Vec::new(),
    }
}

/// True if the agent made up every scalar of the arguments: none is in the user's words or in an earlier result.
pub(crate) fn is_made_up(episode: &Episode<'_>, call: &TraceCall) -> bool {
    let known = |value: &&Value| {
        let before = episode.reads.iter().take_while(|earlier| !std::ptr::eq(**earlier, call));
        episode.said.has(value) || before.flat_map(|earlier| fields_of_all(&earlier.result)).any(|seen| seen == *value)
    };
    let values = fields_of_all(&call.arguments);
    !values.is_empty() && !values.iter().any(known)
}

/// Scalars and lists of scalars in the arguments, with their paths.
pub(crate) fn leaves(arguments: &Value) -> Vec<(Path, Value)> {
    fn walk(value: &Value, path: &mut Path, found: &mut Vec<(Path, Value)>) {
        let mut below = |name: String, inner: &Value, path: &mut Path| {
            path.push(name);
            walk(inner, path, found);
            path.pop();
        };
        match value {
            Value::Object(members) if !members.is_empty() => {
                members.iter().for_each(|(name, inner)| below(name.clone(), inner, path));
            }
            Value::Array(items) if !items.iter().all(is_scalar) => {
                items.iter().enumerate().for_each(|(n, inner)| below(n.to_string(), inner, path));
            }
            _ => found.push((path.clone(), value.clone())),
        }
    }
    let mut found = Vec::new();
    if arguments.as_object().is_some_and(|members| !members.is_empty()) {
        walk(arguments, &mut Path::new(), &mut found);
    }
    found
}
