//! Steps inside a cached step that must run every time (X-1 `cache`, `effects`).

use std::sync::Arc;

use etude_core::plan::{Sequence, Step, StepKind};

use crate::diagnose::values;
use crate::diagnostic::Diagnostic;
use crate::pipeline::definition::{Body, StepDef};
use crate::pipeline::lower::Resolved;
use crate::source::SourceFile;
use crate::yaml::Node;

/// Reason why a step must run every time.
enum Obstacle<'a> {
    Effects(&'a str),
    Approval(&'a str),
}

/// Reports a cached group or pipeline step that contains a step with effects or an approval.
pub(super) fn check(file: &Arc<SourceFile>, step: &StepDef<'_>, resolved: &Resolved) -> Option<Diagnostic> {
    step.cache.as_ref()?;
    let (message, label) = match inside(step, resolved)? {
        Obstacle::Effects(name) => (
            format!("`cache` in a step that runs `{name}`, which has `effects: true`"),
            "a reused output would skip the effects",
        ),
        Obstacle::Approval(name) => {
            (format!("`cache` in a step that runs the approval `{name}`"), "a person's decision would be reused")
        }
    };
    let key = step.node.as_map().and_then(|entries| entries.entry("cache"));
    let at = key.map_or(step.at, |(key, _): (&Node<'_>, _)| key.span);
    Some(values::contradiction(file, at, message, label, "remove `cache` here and set it on the inner steps"))
}

fn inside<'a>(step: &'a StepDef<'_>, resolved: &'a Resolved) -> Option<Obstacle<'a>> {
    match &step.body {
        Body::Parallel { steps, .. } => steps.iter().zip(&resolved.children).find_map(|(child, resolved)| {
            obstacle(child.name, child.effects, matches!(child.body, Body::Approval(_)))
                .or_else(|| inside(child, resolved))
        }),
        Body::Pipeline { .. } => of_sequence(resolved.sub.as_ref()?.sequence.as_ref()?),
        _ => None,
    }
}

fn of_sequence(sequence: &Sequence) -> Option<Obstacle<'_>> {
    sequence.steps.iter().find_map(|step| of_step(step))
}

fn of_step(step: &Step) -> Option<Obstacle<'_>> {
    obstacle(&step.name, step.effects, matches!(step.kind, StepKind::Approval(_))).or_else(|| match &step.kind {
        StepKind::Parallel(group) => group.steps.iter().find_map(|child| of_step(child)),
        StepKind::Pipeline(sub) => of_sequence(&sub.sequence),
        _ => None,
    })
}

fn obstacle(name: &str, has_effects: bool, is_approval: bool) -> Option<Obstacle<'_>> {
    match (has_effects, is_approval) {
        (true, _) => Some(Obstacle::Effects(name)),
        (false, true) => Some(Obstacle::Approval(name)),
        (false, false) => None,
    }
}
