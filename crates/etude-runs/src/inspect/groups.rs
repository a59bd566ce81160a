//! The groups of a plan: which steps are children of a `parallel` step.

use std::collections::BTreeMap;

use etude_core::failure::Phase;
use etude_core::plan::{Plan, Sequence, Step, StepKind};

/// The steps that contain other steps of their plan. The rows of a result are flat, and name no group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups(BTreeMap<String, String>);

impl Groups {
    /// The groups of a plan.
    pub fn of(plan: &Plan) -> Self {
        let mut groups = Self::default();
        let mut add = |phase: Phase, sequence: &Sequence| {
            for step in &sequence.steps {
                groups.add_children(phase.word(), step);
            }
        };
        plan.before.iter().for_each(|sequence| add(Phase::Constructor, sequence));
        add(plan.phase, &plan.body);
        plan.after.iter().for_each(|sequence| add(Phase::Destructor, sequence));
        groups
    }

    /// Notes that `PHASE/STEP` is a child of the step `PHASE/GROUP`.
    pub fn add(&mut self, child: &str, group: &str) {
        self.0.insert(child.to_owned(), group.to_owned());
    }

    fn add_children(&mut self, phase: &str, step: &Step) {
        let StepKind::Parallel(group) = &step.kind else { return };
        for child in &group.steps {
            self.add(&format!("{phase}/{}", child.name), &format!("{phase}/{}", step.name));
            self.add_children(phase, child);
        }
    }

    /// `PHASE/GROUP` of the step `PHASE/STEP`; `None` if it is in no group.
    pub fn group_of(&self, step: &str) -> Option<&str> {
        self.0.get(step).map(String::as_str)
    }

    /// The groups around the step `PHASE/STEP`, the innermost one first.
    pub fn around<'g>(&'g self, step: &'g str) -> impl Iterator<Item = &'g str> {
        std::iter::successors(self.group_of(step), |group| self.group_of(group))
    }
}
