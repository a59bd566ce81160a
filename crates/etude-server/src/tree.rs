//! The tree of a run: phases, steps, the elements of a `for_each`, attempts, turns and tool calls.

mod stages;
mod work;

use std::collections::BTreeMap;

use etude_runs::document::Document;
use etude_runs::inspect::{self, EffectPlace, Groups, Inspected};
use etude_runtime::engine::{RunState, RunView};
use serde_json::{Value, json};

use crate::context::Context;
use crate::problem::Problem;
use crate::query::invalid;
use crate::story::Stories;
use work::{Parent, Rejections, Work};

/// Maximum number of effects of a run whose `for_each` elements get labels.
const LABELLED: usize = 2_000;

/// An effect at its place in the tree.
pub(crate) struct Described<'t> {
    pub(crate) effect: &'t Inspected,
    /// The id of the effect's node; `None` if it has none.
    pub(crate) node: Option<String>,
    /// The title of the effect's place.
    pub(crate) place: Option<String>,
}

/// The sources of a run's tree.
pub(crate) struct Tree {
    steps: Vec<Value>,
    /// The executions of stages, as in the run's document.
    stages: Vec<Value>,
    effects: Vec<Inspected>,
    rejections: Rejections,
    /// The start of each step, by its id.
    begins: BTreeMap<String, Value>,
    /// Labels of elements by step and index.
    labels: BTreeMap<(String, u64), String>,
    /// The groups around steps; none if the definition of the run cannot be read.
    groups: Groups,
    began_at_ms: i64,
    /// The status of steps that have begun and not ended.
    begun: &'static str,
}

impl Tree {
    /// The tree of a run; `document` is the result so far.
    pub(crate) fn new(context: &Context, stories: &Stories, view: &RunView, document: Option<&Document>) -> Self {
        let member = |name: &str| {
            let found = document.and_then(|document| document.members.get(name)).and_then(Value::as_array);
            found.cloned().unwrap_or_default()
        };
        let (steps, stages, errors) = (member("steps"), member("stages"), member("errors"));
        let effects = inspect::effects(view, &*context.engine().blobs());
        let has_groups = steps.iter().any(|step| step["type"] == "parallel");
        let definition = if has_groups { context.definition_of(view) } else { None };
        let is_labelled = effects.len() <= LABELLED && steps.iter().any(|step| step["items"].is_object());
        let is_retried = effects.iter().any(|effect| effect.id.contains('#'));
        let is_begun = steps.iter().any(|step| step["waiting"] == true);
        let events = match is_labelled || is_retried || is_begun {
            // Without its definition, a run has no events.
            true => stories
                .events_named(context, &view.row.id, &["attempt_rejected", "item_started", "step_started"])
                .unwrap_or_default(),
            false => Vec::new(),
        };
        let begins = events.iter().filter(|event| event["event"] == "step_started");
        let begin = |event: &Value| {
            Some((format!("{}/{}", event["phase"].as_str()?, event["step"].as_str()?), event["at"].clone()))
        };
        let begins = begins.filter_map(begin).collect();
        let (rejected, started): (Vec<Value>, Vec<Value>) =
            events.into_iter().partition(|event| event["event"] == "attempt_rejected");
        let label = |event: &Value| {
            let step = format!("{}/{}", event["phase"].as_str()?, event["step"].as_str()?);
            Some(((step, event["item"]["index"].as_u64()?), event["item"]["label"].as_str()?.to_owned()))
        };
        Self {
            rejections: Rejections::new(&rejected, &errors),
            begins,
            labels: started.iter().filter_map(label).collect(),
            groups: definition.map(|definition| Groups::of(&definition.plan)).unwrap_or_default(),
            began_at_ms: view.row.started_at_ms.unwrap_or(view.row.created_at_ms),
            begun: if view.row.state == RunState::Waiting { "waiting" } else { "running" },
            steps,
            stages,
            effects,
        }
    }

    fn status<'s>(&self, step: &'s Value) -> &'s str
    where
        'static: 's,
    {
        if step["waiting"] == true { self.begun } else { step["status"].as_str().unwrap_or_default() }
    }

    /// The phases and steps in the order of the plan, with the attempts of steps other than fan-outs.
    pub(crate) fn outline(&self) -> Vec<Value> {
        let mut nodes: Vec<Value> = Vec::new();
        for step in &self.steps {
            let phase = step["phase"].as_str().unwrap_or_default();
            if !nodes.iter().any(|node| node["id"] == *phase) {
                nodes.push(self.phase(phase));
            }
            let (name, base) = (name_of(step), id_of(step));
            let works = self.works(step);
            let above = self.groups.group_of(&base).unwrap_or(phase);
            let mut node = blank(&base, above.into(), "step", name, phase);
            let status = self.status(step);
            node["status"] = status.into();
            // A machine is not retried as a whole: its stages have their attempts.
            node["attempt"] = if is_machine(step) { Value::Null } else { step["attempts"].clone() };
            work::fill(&mut node, works.iter(), self.began_at_ms);
            if status == "not_started" {
                node["duration_ms"] = Value::Null;
            } else if status == self.begun {
                node["duration_ms"] = Value::Null;
                node["started_at"] = self.begins.get(&base).cloned().unwrap_or_default();
            } else if node["started_at"].is_null() {
                node["duration_ms"] = step["duration_ms"].clone();
            }
            let elements = elements(&works);
            if elements.is_empty() {
                let own: Vec<&Work<'_>> = works.iter().collect();
                let inner = match is_machine(step) {
                    true => stages::nodes(&base, phase, &own, &self.stages, self.began_at_ms),
                    false => self.attempts(&base, step, None, status, &own),
                };
                let own = inner.iter().filter(|child| child["parent"] == *base).count();
                node["children"] = (own + self.steps_in(&base)).into();
                nodes.push(node);
                nodes.extend(inner);
            } else {
                let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
                elements.values().for_each(|status| *counts.entry(status).or_default() += 1);
                node["children"] = (elements.len() + self.steps_in(&base)).into();
                node["counts"] = json!(counts);
                nodes.push(node);
            }
        }
        nodes
    }

    /// The number of steps in the group with this id.
    fn steps_in(&self, group: &str) -> usize {
        self.steps.iter().filter(|step| self.groups.group_of(&id_of(step)) == Some(group)).count()
    }

    fn phase(&self, phase: &str) -> Value {
        let own = || self.steps.iter().filter(|step| step["phase"] == *phase);
        let mut node = blank(phase, Value::Null, "phase", phase, phase);
        let status = phase_status(own().map(|step| self.status(step)));
        node["status"] = status.into();
        node["children"] = own().filter(|step| self.groups.group_of(&id_of(step)).is_none()).count().into();
        let works: Vec<Work<'_>> = own().flat_map(|step| self.works(step)).collect();
        work::fill(&mut node, works.iter(), self.began_at_ms);
        // The steps of the phase have these.
        (node["usage"], node["model"]) = (Value::Null, Value::Null);
        if matches!(status, "running" | "not_started") {
            node["duration_ms"] = Value::Null;
            // The first step may not have ended. All times have the same form.
            let begins = own().filter_map(|step| self.begins.get(&id_of(step))).filter_map(Value::as_str);
            let first = begins.chain(node["started_at"].as_str()).min().map(str::to_owned);
            node["started_at"] = first.into();
        } else if node["started_at"].is_null() {
            node["duration_ms"] = own().filter_map(|step| step["duration_ms"].as_u64()).sum::<u64>().into();
        }
        node
    }

    fn attempts(
        &self,
        id: &str,
        step: &Value,
        element: Option<usize>,
        status: &str,
        works: &[&Work<'_>],
    ) -> Vec<Value> {
        let is_llm = is_llm(step);
        if !work::has_attempts(is_llm, works.iter().copied()) {
            return Vec::new();
        }
        let (phase, base) = (step["phase"].as_str().unwrap_or_default(), id_of(step));
        let parent = Parent { id, phase, step: &base, element, status };
        work::attempts(&parent, works, &self.rejections, self.began_at_ms)
    }

    /// The nodes below the node `parent`: its children, and for an element of a fan-out all its descendants.
    pub(crate) fn below(&self, parent: &str) -> Result<Vec<Value>, Problem> {
        let unknown = || invalid("parent", "`parent` must be the id of a node");
        let is_above = |step: &&Value| {
            let rest = parent.strip_prefix(&id_of(step));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '#']))
        };
        let Some(step) = self.steps.iter().find(is_above) else {
            let phase: Vec<Value> = self.outline().into_iter().filter(|node| node["parent"] == *parent).collect();
            return if phase.is_empty() { Err(unknown()) } else { Ok(phase) };
        };
        let base = id_of(step);
        let works = self.works(step);
        let all = elements(&works);
        let rest = &parent[base.len()..];
        if let Some((element, _)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let element = element.parse::<usize>().map_err(|_| unknown())?;
            let status = all.get(&element).copied().ok_or_else(unknown)?;
            let own: Vec<&Work<'_>> = works.iter().filter(|work| work.place.element == Some(element)).collect();
            let id = format!("{base}[{element}]");
            let nodes = self.attempts(&id, step, Some(element), status, &own);
            return Ok(nodes.into_iter().filter(|node| id == *parent || node["parent"] == *parent).collect());
        }
        if all.is_empty() {
            return Ok(self.outline().into_iter().filter(|node| node["parent"] == *parent).collect());
        }
        let mut by_element: BTreeMap<usize, Vec<&Work<'_>>> = BTreeMap::new();
        for work in &works {
            if let Some(element) = work.place.element {
                by_element.entry(element).or_default().push(work);
            }
        }
        let phase = step["phase"].as_str().unwrap_or_default();
        let item = |(element, own): (usize, Vec<&Work<'_>>)| {
            let mut node =
                blank(&format!("{base}[{element}]"), base.as_str().into(), "item", &element.to_string(), phase);
            node["status"] = all.get(&element).copied().unwrap_or("succeeded").into();
            node["label"] = json!(self.labels.get(&(base.clone(), element as u64)));
            let attempts: std::collections::BTreeSet<u32> = own.iter().map(|work| work.place.attempt).collect();
            node["attempt"] = attempts.last().copied().into();
            if work::has_attempts(is_llm(step), own.iter().copied()) {
                node["children"] = attempts.len().into();
            }
            work::fill(&mut node, own.into_iter(), self.began_at_ms);
            node
        };
        let steps = self.outline().into_iter().filter(|node| node["parent"] == *parent);
        Ok(by_element.into_iter().map(item).chain(steps).collect())
    }

    /// The names of the groups in the phase of a step.
    fn groups_beside(&self, step: &Value) -> Vec<&str> {
        let groups = self.steps.iter().filter(|other| is_group(other) && other["phase"] == step["phase"]);
        groups.map(name_of).collect()
    }

    /// The effects of a step, without those that were done again.
    fn works(&self, step: &Value) -> Vec<Work<'_>> {
        let groups = self.groups_beside(step);
        let counting = self.effects.iter().filter(|effect| !effect.is_done_again);
        counting.filter_map(|effect| Some(Work { place: place_in(step, &groups, effect)?, effect })).collect()
    }

    /// The effects of the run.
    pub(crate) fn effects(&self) -> Vec<Described<'_>> {
        let mut with_attempts: BTreeMap<(String, Option<usize>), bool> = BTreeMap::new();
        for step in &self.steps {
            for work in self.works(step) {
                let has = with_attempts.entry((id_of(step), work.place.element)).or_insert(is_llm(step));
                *has |= work.place.attempt > 1;
            }
        }
        // The effect of a child of a group is at the child.
        let (groups, steps): (Vec<&Value>, Vec<&Value>) = self.steps.iter().partition(|step| is_group(step));
        let steps: Vec<_> = steps.into_iter().chain(groups).map(|step| (step, self.groups_beside(step))).collect();
        let place =
            |effect: &Inspected| steps.iter().find_map(|(step, groups)| Some((*step, place_in(step, groups, effect)?)));
        let described = |effect| match place(effect) {
            None => Described { effect, node: None, place: None },
            Some((step, place)) => {
                let base = id_of(step);
                if is_machine(step) {
                    let node = Some(stages::node_of(&base, &place));
                    return Described { effect, node, place: Some(place.title()) };
                }
                let has_attempts = with_attempts.get(&(base.clone(), place.element)).copied().unwrap_or(false);
                let node = Some(work::node_of(&base, &place, has_attempts));
                Described { effect, node, place: Some(place.title()) }
            }
        };
        self.effects.iter().map(described).collect()
    }
}

fn name_of(step: &Value) -> &str {
    step["name"].as_str().unwrap_or_default()
}

fn id_of(step: &Value) -> String {
    format!("{}/{}", step["phase"].as_str().unwrap_or_default(), name_of(step))
}

fn is_machine(step: &Value) -> bool {
    step["type"] == "machine"
}

/// The place of an effect in a step; `None` if it belongs to another one. Above the step are only `groups`.
fn place_in(step: &Value, groups: &[&str], effect: &Inspected) -> Option<EffectPlace> {
    let phase = step["phase"].as_str().unwrap_or_default();
    EffectPlace::in_phase(&effect.id, phase, name_of(step), |name| groups.contains(&name))
}

fn is_group(step: &Value) -> bool {
    step["type"] == "parallel"
}

fn is_llm(step: &Value) -> bool {
    matches!(step["type"].as_str(), Some("llm" | "skill"))
}

fn blank(id: &str, parent: Value, kind: &str, name: &str, phase: &str) -> Value {
    json!({
        "id": id, "parent": parent, "kind": kind, "name": name, "phase": phase, "status": "running", "attempt": null,
        "started_at": null, "duration_ms": null, "usage": null, "model": null, "children": 0,
    })
}

fn phase_status<'s>(words: impl Iterator<Item = &'s str>) -> &'static str {
    let words: Vec<&str> = words.collect();
    let has = |word: &str| words.contains(&word);
    match () {
        () if has("failed") => "failed",
        () if has("cancelled") => "cancelled",
        () if has("waiting") => "waiting",
        () if has("running") => "running",
        () if words.iter().all(|word| *word == "not_started") => "not_started",
        () if has("not_started") => "running",
        () => "succeeded",
    }
}

/// The elements of a step by index, with the state of their last outcome.
fn elements(works: &[Work<'_>]) -> BTreeMap<usize, &'static str> {
    let mut elements = BTreeMap::new();
    for work in works {
        if let Some(element) = work.place.element {
            elements.insert(element, work.effect.status());
        }
    }
    elements
}
