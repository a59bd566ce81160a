//! Permissions of a fleet's queue: the grants of a submitter, and the sandboxes of a run's processes (K-54, K-55).

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::Sandbox;
use etude_core::plan::{Step, StepKind, stages::StageMachine};
use etude_core::template::{Reference, Scope};
use etude_invoke::{Modules, Project};
use etude_runtime::engine::{Allow, QueueRules};

use crate::definition::Definition;
use etude_runs::header::Granted;

/// A grant or a step that a queue does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The member of the queue's rules that denies it.
    pub member: &'static str,
    /// The denied grant or step, in words.
    pub what: String,
    /// A change of the app or its configuration that lifts the denial, as an imperative; `None`: only another queue accepts the
    /// run.
    pub remedy: Option<&'static str>,
}

/// The remedy for a denied grant.
const APPROVALS: &str = "list the allowed calls in the app's `approvals`";

/// The first grant of a submitter that the queue does not allow.
pub fn denied_grant(granted: &Granted, allow: &Allow) -> Option<Denied> {
    if granted.yolo && !allow.yolo {
        return Some(Denied { member: "allow.yolo", what: "`--yolo`".to_owned(), remedy: Some(APPROVALS) });
    }
    let options = [("--read", &granted.read), ("--write", &granted.write)];
    let of = |(option, folders): (&str, &Vec<PathBuf>)| {
        let folder = folders.iter().find(|folder| !is_within(folder, allow))?;
        let what = format!("`{option} {}`", folder.display());
        Some(Denied { member: "allow.folders", what, remedy: Some(APPROVALS) })
    };
    options.into_iter().find_map(of)
}

/// The grants that the run's queue allows on the machine that drives it. Folders are compared after their links are resolved.
pub(crate) fn allowed(granted: Granted, allow: &Allow) -> Granted {
    let real = |folder: PathBuf| {
        let real = folder.canonicalize().ok()?;
        let is_allowed = allow.folders.iter().any(|allowed| {
            Path::new(allowed).is_absolute()
                && Path::new(allowed).canonicalize().is_ok_and(|allowed| real.starts_with(allowed))
        });
        is_allowed.then_some(real)
    };
    Granted {
        read: granted.read.into_iter().filter_map(real).collect(),
        write: granted.write.into_iter().filter_map(real).collect(),
        yolo: granted.yolo && allow.yolo,
    }
}

fn is_within(folder: &Path, allow: &Allow) -> bool {
    let is_plain = folder.is_absolute() && !folder.components().any(|part| part == Component::ParentDir);
    is_plain && allow.folders.iter().any(|allowed| Path::new(allowed).is_absolute() && folder.starts_with(allowed))
}

/// The first step of a run that its queue does not allow. `agents` is the sandbox of the programs of agents.
pub fn denied_step(definition: &Definition, agents: Option<&Sandbox>, rules: &QueueRules) -> Option<Denied> {
    if rules.is_untrusted && has_middleware(definition) {
        return Some(Denied { member: "untrusted", what: "the middleware of the app".to_owned(), remedy: None });
    }
    let fallback = definition.plan.fallback.iter().flat_map(|fallback| &fallback.sequence.steps);
    // Pipelines that an agent may call count as steps.
    let called = definition.plan.pipeline_tools().flat_map(|tool| tool.sequence.steps.iter().flat_map(whole));
    definition.plan.steps().chain(fallback).chain(called).find_map(|step| {
        let member = denying(&step.kind, agents, rules)?;
        let remedy = remedy(&step.kind, keeping(&step.kind, agents), member);
        Some(Denied { member, what: format!("step `{}`", step.name), remedy })
    })
}

/// A change that lifts the denial of a step by the rule `member`. None exists for programs that cannot be sandboxed.
fn remedy(kind: &StepKind, kept: Keeping, member: &str) -> Option<&'static str> {
    let is_kept = matches!(kept, Keeping::Closed | Keeping::Network);
    match (kind, member) {
        (StepKind::Code(_), "untrusted") if is_kept => {
            Some("keep `read` and `write` of the step's `sandbox` in the app")
        }
        (StepKind::Code(_), "allow.network") if is_kept => Some("remove `network` from the step's `sandbox`"),
        (StepKind::Code(_), "allow.network") => Some("give the step a `sandbox` without `network`"),
        (StepKind::Code(_), _) => Some("give the step a `sandbox`"),
        (_, "untrusted") => None,
        (StepKind::Machine(call), _) if has_programs(&call.machine) => None,
        (StepKind::Machine(_) | StepKind::Skill(_) | StepKind::Tool(_), _) if is_kept => {
            Some("set `network: false` in `agent.sandbox` of the configuration")
        }
        (StepKind::Machine(_) | StepKind::Skill(_) | StepKind::Tool(_), _) => {
            Some("give agents a sandbox in the configuration: `agent: {sandbox: {network: false}}`")
        }
        _ => None,
    }
}

/// A step with all steps nested in it.
fn whole(step: &Arc<Step>) -> Vec<&Arc<Step>> {
    let mut found = vec![step];
    let mut at = 0;
    while let Some(step) = found.get(at).copied() {
        found.extend(step.kind.inner());
        at += 1;
    }
    found
}

/// True if the app has middleware; its programs run outside sandboxes.
fn has_middleware(definition: &Definition) -> bool {
    let project = Project::of_app(&definition.app, Modules::Run);
    project.is_some_and(|project| !etude_invoke::pinned::files(&project).is_empty())
}

/// The member of the rules that denies a step.
fn denying(kind: &StepKind, agents: Option<&Sandbox>, rules: &QueueRules) -> Option<&'static str> {
    let kept = keeping(kind, agents);
    if rules.is_untrusted && (kept == Keeping::Open || is_agent(kind) || reaches_out(kind)) {
        return Some("untrusted");
    }
    match kept {
        Keeping::NoProcess | Keeping::Closed => None,
        Keeping::Open if !rules.allow.unsandboxed => Some("allow.unsandboxed"),
        Keeping::Open | Keeping::Network if !rules.allow.network => Some("allow.network"),
        Keeping::Open | Keeping::Network => None,
    }
}

/// Confinement of the processes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeping {
    /// The step starts no process.
    NoProcess,
    /// In a sandbox without the network.
    Closed,
    /// In a sandbox with the network.
    Network,
    /// Without a sandbox.
    Open,
}

fn keeping(kind: &StepKind, agents: Option<&Sandbox>) -> Keeping {
    let of_network = |network: bool| if network { Keeping::Network } else { Keeping::Closed };
    let of_agent = || agents.map_or(Keeping::Open, |sandbox| of_network(sandbox.network));
    match kind {
        StepKind::Code(code) => code.sandbox.as_ref().map_or(Keeping::Open, |rules| of_network(rules.network)),
        StepKind::Llm(llm) if llm.validate.is_some() => Keeping::Open,
        StepKind::Machine(call) if has_programs(&call.machine) => Keeping::Open,
        StepKind::Machine(_) | StepKind::Skill(_) | StepKind::Tool(_) => of_agent(),
        StepKind::Application(_) => Keeping::Open,
        StepKind::Llm(_) | StepKind::Parallel(_) | StepKind::Pipeline(_) | StepKind::Approval(_) => Keeping::NoProcess,
    }
}

/// True if a machine has programs of its own, which run outside sandboxes.
fn has_programs(machine: &StageMachine) -> bool {
    !machine.guards.is_empty() || machine.on_failure.is_some()
}

/// True for steps of agents: they may start tool servers and programs of packages, which run outside sandboxes.
fn is_agent(kind: &StepKind) -> bool {
    matches!(kind, StepKind::Machine(_) | StepKind::Skill(_) | StepKind::Tool(_) | StepKind::Application(_))
}

/// True if the sandbox of a step may reach files outside the app's directory. A path with references may point anywhere.
fn reaches_out(kind: &StepKind) -> bool {
    let StepKind::Code(code) = kind else { return false };
    let paths = code.sandbox.iter().flat_map(|rules| rules.read.iter().chain(&rules.write));
    paths.into_iter().any(|path| {
        let text = path.render_partly(&Nowhere, usize::MAX);
        let is_inside =
            Path::new(&text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        !path.is_literal() || !is_inside || text.starts_with('~')
    })
}

/// A scope in which no reference has a value.
struct Nowhere;

impl Scope for Nowhere {
    fn root(&self, reference: &Reference) -> Result<Json, String> {
        Err(reference.to_string())
    }
}

#[cfg(test)]
mod tests;
