//! The scope of `runs retry --from STEP`: the outcomes of the step and of all later steps are discarded.

use std::collections::{BTreeMap, BTreeSet};

use etude_core::plan::{Fallback, Plan, Step, StepKind};
use etude_core::report::is_below;
use etude_runtime::engine::Record;
use etude_runtime::record;
use etude_spec::did_you_mean;

/// Unknown name of a step to restart from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the run has no step `{step}` to retry from")]
pub struct UnknownStep {
    /// The name that matches no step, child of a group or stage of a machine.
    pub step: String,
    /// Valid names in the order of the plan; children and stages follow their step.
    pub known: Vec<String>,
}

impl UnknownStep {
    /// A near name, or all names of the run, for the line after `hint:`.
    pub fn hint(&self) -> String {
        match did_you_mean(&self.step, self.known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("steps of this run: {}", self.known.join(", ")),
        }
    }
}

/// The records of a pipeline that are discarded.
#[derive(Debug)]
pub(super) struct Discarded {
    /// Steps, each as its path of names from the pipeline on; all elements of a `for_each` are included.
    steps: Vec<Vec<String>>,
    /// Indexes of records of stages.
    places: BTreeSet<usize>,
}

impl Discarded {
    pub(super) fn new(plan: &Plan, records: &[Record], step: &str) -> Result<Self, UnknownStep> {
        let (root, steps) = (&plan.body.name, &plan.body.steps);
        for (at, candidate) in steps.iter().enumerate() {
            let after = steps[at + 1..].iter().map(|later| vec![root.clone(), later.name.clone()]);
            // The pipeline may deviate again, so its fallback is discarded.
            let after = after.chain([vec![Fallback::root(root)]]);
            if let Some(path) = path_to(candidate, step) {
                let path = std::iter::once(root.clone()).chain(path).collect();
                return Ok(Self { steps: std::iter::once(path).chain(after).collect(), places: BTreeSet::new() });
            }
            let StepKind::Machine(call) = &candidate.kind else { continue };
            let found = stages_from(records, &format!("{root}/{}", candidate.name), step);
            if found.is_some() || call.machine.stages.iter().any(|stage| stage.id == step) {
                // A stage that never began, or whose outcome was discarded before, has no records to discard.
                return Ok(Self { steps: after.collect(), places: found.unwrap_or_default() });
            }
        }
        Err(UnknownStep { step: step.to_owned(), known: names(plan) })
    }

    /// Prefixes of the effect ids of the steps, without elements of a `for_each`.
    pub(super) fn parts(&self) -> Vec<String> {
        self.steps.iter().map(|path| path.join("/")).collect()
    }

    pub(super) fn covers(&self, at: usize, key: &str) -> bool {
        self.places.contains(&at) || self.steps.iter().any(|path| leads_to(path, key))
    }
}

/// The path of names from `step` to the step `name`: itself or a nested child of a group; `None` if there is no such step.
fn path_to(step: &Step, name: &str) -> Option<Vec<String>> {
    if step.name == name {
        return Some(vec![name.to_owned()]);
    }
    let StepKind::Parallel(group) = &step.kind else { return None };
    let below = group.steps.iter().find_map(|child| path_to(child, name))?;
    Some(std::iter::once(step.name.clone()).chain(below).collect())
}

/// True if the effect `key` belongs to the step at the end of `path`, or is the timer of a group around it.
fn leads_to(path: &[String], key: &str) -> bool {
    let mut rest = key;
    for (at, name) in path.iter().enumerate() {
        let Some(after) = rest.strip_prefix(name.as_str()) else { return false };
        if at + 1 == path.len() {
            return is_below(rest, name);
        }
        if at > 0 && after == "!timeout" {
            return true;
        }
        let inside = after.strip_prefix('[').and_then(|element| Some(element.split_once(']')?.1)).unwrap_or(after);
        let Some(inside) = inside.strip_prefix('/') else { return false };
        rest = inside;
    }
    false
}

/// Indexes of the records of a stage and of everything that began after it. The name selects the stage's last visit, or a given
/// visit (`review#2`). `None` if the stage never began.
fn stages_from(records: &[Record], machine: &str, stage: &str) -> Option<BTreeSet<usize>> {
    let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
    let counting: Vec<(usize, &str)> = record::counting(records)
        .filter_map(|(at, record)| Some((at, execution(record.key.strip_prefix(machine)?.strip_prefix('/')?)?)))
        .collect();
    for (at, execution) in &counting {
        begun.entry(execution).or_insert(*at);
    }
    let is_it = |execution: &str| execution == stage || execution.rsplit_once('#').is_some_and(|(id, _)| id == stage);
    let from = begun.iter().filter(|(execution, _)| is_it(execution)).map(|(_, at)| *at).max()?;
    let is_discarded = |execution: &str| begun.get(execution).is_some_and(|at| *at >= from);
    Some(counting.iter().filter(|(_, execution)| is_discarded(execution)).map(|(at, _)| *at).collect())
}

/// The stage execution that an effect below a machine belongs to: `review#2`.
fn execution(key: &str) -> Option<&str> {
    let first = key.split(['/', '!', '@']).next()?;
    let (_, visit) = first.rsplit_once('#')?;
    visit.bytes().all(|byte| byte.is_ascii_digit()).then_some(first).filter(|first| !first.starts_with("tools#"))
}

/// All names that a retry accepts.
fn names(plan: &Plan) -> Vec<String> {
    fn add(step: &Step, names: &mut Vec<String>) {
        names.push(step.name.clone());
        match &step.kind {
            StepKind::Parallel(group) => group.steps.iter().for_each(|child| add(child, names)),
            StepKind::Machine(call) => names.extend(call.machine.stages.iter().map(|stage| stage.id.clone())),
            _ => {}
        }
    }
    let mut names = Vec::new();
    plan.body.steps.iter().for_each(|step| add(step, &mut names));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-5.6: elements, children of elements and attempts belong to their step; steps with a longer name do not.
    #[test]
    fn effects_belong_to_the_step_that_their_id_leads_to() {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let child = path(&["p", "g", "c"]);
        for key in ["p/g/c", "p/g/c#2", "p/g[3]/c/validate", "p/g!timeout"] {
            assert!(leads_to(&child, key), "{key}");
        }
        for key in ["p/g/cc", "p/g/d", "p/gg/c", "p!timeout", "p/g[3]/d/c"] {
            assert!(!leads_to(&child, key), "{key}");
        }
        assert!(leads_to(&[Fallback::root("p")], "p@skill/x/turn1") && !leads_to(&child, "p@skill/x/turn1"));
        assert!(leads_to(&path(&["p", "s"]), "p/s[0]") && !leads_to(&path(&["p", "s"]), "p/st"));
    }

    /// A-5.6: a stage restarts from its last visit, with everything that began after it.
    #[test]
    fn stages_are_discarded_from_a_visit_on() {
        let keys = ["p/m/tools", "p/m/a#1/turn1", "p/m/b#1/turn1", "p/m/a#2/turn1", "p/m/b#2@2/turn1", "p/m/b#1/exit"];
        let record = |key: &&str| Record {
            key: (*key).to_owned(),
            request: etude_core::digest::Digest::of(b"r"),
            body: String::new(),
            blobs: Vec::new(),
        };
        let records: Vec<Record> = keys.iter().map(record).collect();
        let from =
            |stage: &str| stages_from(&records, "p/m", stage).map(|places| places.into_iter().collect::<Vec<_>>());
        assert_eq!(from("a"), Some(vec![3, 4]));
        assert_eq!(from("b#1"), Some(vec![2, 3, 4, 5]));
        assert_eq!(from("c"), None);
    }
}
