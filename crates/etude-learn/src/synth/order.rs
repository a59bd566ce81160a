//! The last steps of an assembly: holes without a closed set, and the order of the steps.

use super::Assembly;
use super::assemble::OPEN_HOLE;
use crate::program::{Condition, Step, StepKind};
use crate::term::{Func, Ref, Source};

impl Assembly<'_, '_, '_> {
    /// Adds the step of the arguments that nothing determines.
    pub(super) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        let conditions = |step: &Step| -> Vec<Condition> {
            let refs = match &step.kind {
                StepKind::Call { args, .. } => args.refs(),
                _ => Vec::new(),
            };
            let is_open = |of: &&&Ref| of.source == Source::Step(OPEN_HOLE.to_owned());
            refs.iter().filter(is_open).map(|of| Condition::NotNull((*of).clone())).collect()
        };
        for step in &mut self.program.steps {
            let open = conditions(step);
            step.require.splice(0..0, open);
        }
        let provenance = "no run shows the source of these values".to_owned();
        self.program.steps.push(Step::new(OPEN_HOLE, StepKind::Code { func: Func::Open(open), provenance }));
    }

    /// Orders the steps: reads and code first where possible, then questions next to each other, the write last (L-20, L-49).
    pub(super) fn order(&mut self) {
        let position = |step: &Step| -> usize {
            let StepKind::Call { tool, .. } = &step.kind else { return 0 };
            let firsts = self.synth.episodes.iter().filter_map(|e| e.reads.iter().position(|call| call.tool == *tool));
            let mut firsts: Vec<usize> = firsts.collect();
            firsts.sort_unstable();
            // A read that no run made is an alternative of a check, which comes first.
            firsts.get(firsts.len() / 2).copied().unwrap_or(0)
        };
        let class = |step: &Step| match &step.kind {
            StepKind::Call { is_write: false, .. } | StepKind::Code { .. } => 0,
            StepKind::Choose(_) => 1,
            StepKind::Allowed => 2,
            StepKind::Call { is_write: true, .. } => 3,
            StepKind::Answer => 4,
        };
        let mut rest: Vec<(usize, usize, usize, Step)> = std::mem::take(&mut self.program.steps)
            .into_iter()
            .enumerate()
            .map(|(n, step)| (class(&step), position(&step), n, step))
            .collect();
        rest.sort_by_key(|(class, position, n, _)| (*class, *position, *n));
        let mut done: Vec<Step> = Vec::new();
        while !rest.is_empty() {
            let is_ready = |step: &Step| step.reads().iter().all(|name| done.iter().any(|known| known.name == *name));
            let is_question = |step: &Step| matches!(step.kind, StepKind::Choose(_));
            // One call asks questions that follow each other. Code and reads that need only the first one come after them.
            let together = done
                .last()
                .filter(|last| is_question(last))
                .and_then(|_| rest.iter().position(|(_, _, _, step)| is_question(step) && is_ready(step)));
            let next = together.or_else(|| rest.iter().position(|(_, _, _, step)| is_ready(step))).unwrap_or(0);
            done.push(rest.remove(next).3);
        }
        self.program.steps = done;
    }
}
