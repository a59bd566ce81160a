//! Definitions: the files of an app, loaded as a plan to run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use etude_core::model::Tier;
use etude_core::plan::{Plan, StepKind};
use etude_process::sandbox;
use etude_runtime::engine::Engine;
use etude_spec::discover::{CONSTRUCTOR, DESTRUCTOR, LEARNED, PIPELINES};
use etude_spec::input::InputDecl;
use etude_spec::learned::LearnedState;
use etude_spec::lower;
use etude_spec::skill::SKILL_FILE;
use etude_spec::source::{FileKind, Sources};
use etude_spec::stage_machine::{Machines, Rules};
use etude_spec::tool::AppTool;
use etude_spec::{App, Diagnostic};

use crate::skill_mode::{self, Defaults};
use etude_runs::target::Target;
use etude_spec::learned::Pinned;
use etude_tools::disk::Disk;

/// A plan, with the files that define it.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Pipeline, machine or skill, with its name.
    pub target: Target,
    /// The app's directory, absolute.
    pub app: PathBuf,
    /// The plan: the pipeline between constructor and destructor.
    pub plan: Plan,
    /// The parameters that a request fills in; none in skill mode.
    pub input: InputDecl,
    /// The files that define the run, relative to the app's directory.
    pub files: Vec<String>,
    /// The app's tools, if the definition needs all of them to be valid. `None`: they are read when an agent asks for them.
    pub tools: Option<Arc<[AppTool]>>,
    /// Diagnostics of a valid definition.
    pub warnings: Vec<Diagnostic>,
    /// State and content of a learned pipeline; `None` for other definitions.
    pub learned: Option<Pinned>,
}

impl Definition {
    /// The learned pipeline in its effective state: the program may have taken it out of `active` (2.11). If the journal does
    /// not show it as active, its writes need confirmation.
    pub(crate) fn learned_now(&self, engine: &dyn Engine) -> Option<Pinned> {
        let pinned = self.learned.clone()?;
        let is_active = || {
            let disk = Disk::open(&self.app).ok()?;
            etude_evidence::is_active(engine, disk.root(), &disk, self.target.pipeline()?).ok()
        };
        let state = match pinned.state {
            LearnedState::Active if is_active() != Some(true) => LearnedState::Assisted,
            state => state,
        };
        Some(Pinned { state, ..pinned })
    }

    /// Tiers of the models that the run calls, unless it deviates.
    pub fn tiers(&self) -> BTreeSet<Tier> {
        self.plan.steps().filter_map(|step| tier(&step.kind)).collect()
    }

    /// Tiers of the models that the run may call, also after a deviation and in pipelines that its agent calls.
    pub fn all_tiers(&self) -> BTreeSet<Tier> {
        let fallback = self.plan.fallback.iter().flat_map(|fallback| &fallback.sequence.steps);
        let tools = self.plan.pipeline_tools().flat_map(|tool| &tool.sequence.steps);
        self.plan.steps().chain(fallback).chain(tools).filter_map(|step| tier(&step.kind)).collect()
    }

    /// Variables of etude's environment that steps take values from (`env: {NAME: {from_env: VARIABLE}}`).
    pub fn env_from(&self) -> BTreeSet<&str> {
        let tools = self.plan.pipeline_tools().flat_map(|tool| &tool.sequence.steps);
        let code = self.plan.steps().chain(tools).filter_map(|step| match &step.kind {
            StepKind::Code(code) => Some(code),
            _ => None,
        });
        code.flat_map(|code| &code.env_from).map(|(_, source)| source.as_str()).collect()
    }

    /// Names of steps whose processes must run in a sandbox. `agents`: programs of agents must, too.
    pub fn sandboxed(&self, agents: bool) -> Vec<String> {
        let is_sandboxed = |kind: &StepKind| match kind {
            StepKind::Code(code) => code.sandbox.is_some(),
            StepKind::Skill(_) | StepKind::Machine(_) | StepKind::Tool(_) => agents,
            _ => false,
        };
        let fallback = self.plan.fallback.iter().flat_map(|fallback| &fallback.sequence.steps);
        let tools = self.plan.pipeline_tools().flat_map(|tool| &tool.sequence.steps);
        // Without sandbox support, such a pipeline is not available as a tool.
        let tools = tools.filter(|_| sandbox::support().is_ok());
        let steps = self.plan.steps().chain(fallback).chain(tools).filter(|step| is_sandboxed(&step.kind));
        steps.map(|step| step.name.clone()).collect()
    }
}

/// The tier of the model that a step calls.
fn tier(kind: &StepKind) -> Option<Tier> {
    match kind {
        StepKind::Llm(llm) => Some(llm.tier),
        StepKind::Skill(agent) => Some(agent.tier),
        StepKind::Machine(call) => Some(call.machine.tier),
        _ => None,
    }
}

/// Reason why a definition could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The app has no definition of this name.
    Unknown {
        /// Names of the definitions of the same type that the app has.
        known: Vec<String>,
    },
    /// A definition is invalid, possibly that of the constructor or the destructor.
    Invalid(Vec<Diagnostic>),
}

/// The app's tools. Agents and stages call them, so an invalid tool stops the run before anything starts.
pub(crate) fn tools_of(disk: &Disk) -> Result<Arc<[AppTool]>, LoadError> {
    let (tools, found) = etude_spec::tool::load(disk);
    if_sound(&tools.into(), found)
}

/// The tools, if none of them has `found` an error.
fn if_sound(tools: &Arc<[AppTool]>, found: Vec<Diagnostic>) -> Result<Arc<[AppTool]>, LoadError> {
    if found.iter().any(Diagnostic::is_error) { Err(LoadError::Invalid(found)) } else { Ok(Arc::clone(tools)) }
}

/// Errors of `pipelines/` and `machines/` themselves. While a directory cannot be read, the pipelines of the app are unknown.
pub fn unlisted(disk: &Disk) -> Vec<Diagnostic> {
    let app = App::new(disk);
    let machines = Machines::new(disk, Rules::default());
    let all = app.discovery().diagnostics.iter().chain(machines.diagnostics());
    all.filter(|found| found.is_error()).cloned().collect()
}

/// Maximum number of pinned files. A larger `tools/` holds data or vendored dependencies, and the rest of it is not pinned.
const MAX_TOOLS: usize = 2_000;

/// Adds the app's shared tools: steps call and import them, so they belong to the definition. The files that their commands
/// name belong to it as well: an approved call must run the program that was approved.
pub(crate) fn add_tools(disk: &Disk, tools: &[AppTool], files: &mut Vec<String>) {
    add_below(disk, "tools", files);
    let words = tools.iter().flat_map(|tool| etude_spec::command::words(&tool.command));
    let names = words.map(|word| word.strip_prefix("./").unwrap_or(word));
    files.extend(names.filter(|name| matches!(disk.kind(name), Ok(FileKind::File { .. }))).map(str::to_owned));
}

fn add_below(disk: &Disk, dir: &str, files: &mut Vec<String>) {
    let Ok(entries) = disk.list(dir) else { return };
    for entry in entries {
        let is_made = entry.name.starts_with('.') || ["__pycache__", "node_modules"].contains(&entry.name.as_str());
        if is_made || files.len() > MAX_TOOLS {
            continue;
        }
        let path = format!("{dir}/{}", entry.name);
        match entry.kind {
            FileKind::File { .. } => files.push(path),
            FileKind::Dir => add_below(disk, &path, files),
            FileKind::Other => {}
        }
    }
}

/// The user's configuration for definitions.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// Rules for machines, which steps may run.
    pub machines: Rules,
    /// Defaults for agents: those of `fallback: skill`.
    pub agent: Defaults,
}

/// Loads the pipeline `name` of the app in `disk`, with constructor and destructor.
///
/// # Errors
/// The pipeline does not exist, or a definition is invalid.
pub fn load(disk: &Disk, name: &str, configuration: &Configuration) -> Result<Definition, LoadError> {
    load_from(App::new(disk), disk, name, configuration)
}

/// Loads the candidate `name` of `learned/` in the same way.
///
/// # Errors
/// The candidate does not exist, or a definition is invalid.
pub fn load_candidate(disk: &Disk, name: &str, configuration: &Configuration) -> Result<Definition, LoadError> {
    load_from(App::of_candidate(disk, name), disk, name, configuration)
}

fn load_from(app: App<'_>, disk: &Disk, name: &str, configuration: &Configuration) -> Result<Definition, LoadError> {
    let app = app.with_machines(configuration.machines.clone());
    let discovery = app.discovery();
    let base = if discovery.candidate.is_some() { LEARNED } else { PIPELINES };
    if !discovery.contains(name) {
        // The directory may have a pipeline of that name.
        if discovery.diagnostics.iter().any(Diagnostic::is_error) {
            return Err(LoadError::Invalid(discovery.diagnostics.clone()));
        }
        return Err(LoadError::Unknown { known: discovery.pipelines.clone() });
    }
    let mut diagnostics = Vec::new();
    let mut files = Vec::new();
    let mut part = |name: &str, is_there: bool| {
        if !is_there {
            return None;
        }
        let (pipeline, found) = app.pipeline(name);
        diagnostics.extend(found);
        if let Some(pipeline) = &pipeline {
            files.extend(pipeline.files.iter().cloned());
        }
        pipeline
    };
    let before = part(CONSTRUCTOR, discovery.constructor);
    let body = part(name, true);
    let after = part(DESTRUCTOR, discovery.destructor);
    match body {
        Some(body) if !diagnostics.iter().any(Diagnostic::is_error) => {
            let fallback = match body.falls_back {
                true => Some(skill_mode::fallback(disk, configuration.agent, &body.description)?),
                false => None,
            };
            let (all, found) = etude_spec::tool::load(disk);
            let all = all.into();
            let tools = fallback.is_some().then(|| if_sound(&all, found)).transpose()?;
            files.extend(fallback.iter().map(|_| SKILL_FILE.to_owned()));
            add_tools(disk, &all, &mut files);
            files.sort_unstable();
            files.dedup();
            let sequence = |pipeline: etude_spec::Pipeline| pipeline.sequence;
            let plan = lower::scope(before.map(sequence), body.sequence, after.map(sequence));
            Ok(Definition {
                target: Target::Pipeline(name.to_owned()),
                app: disk.root().to_owned(),
                plan: Plan { fallback: fallback.map(Arc::new), ..plan },
                input: body.input,
                files,
                tools,
                warnings: diagnostics,
                learned: Pinned::find(disk, base, name, &all),
            })
        }
        // A directory without a definition is a warning, not a pipeline.
        None if !diagnostics.iter().any(Diagnostic::is_error) => {
            let known = discovery.pipelines.iter().filter(|known| *known != name).cloned().collect();
            Err(LoadError::Unknown { known })
        }
        _ => Err(LoadError::Invalid(diagnostics)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// while a directory cannot be listed, no name in it is unknown.
    #[test]
    fn a_directory_that_cannot_be_listed_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("pipelines"), "x").expect("written");
        std::fs::write(dir.path().join("machines"), "x").expect("written");
        let disk = Disk::open(dir.path()).expect("open");
        let pipeline = load(&disk, "p", &Configuration::default());
        let machine = crate::stage_machine::load(&disk, "m", &Rules::default());
        for (found, name) in [(pipeline, "pipelines"), (machine, "machines")] {
            let Err(LoadError::Invalid(found)) = found else { panic!("{name}: {found:?}") };
            assert_eq!(found.iter().map(|d| d.file.path()).collect::<Vec<_>>(), [name]);
        }
        assert_eq!(unlisted(&disk).len(), 2);
        assert_eq!(crate::app::not_directories(dir.path()), ["pipelines", "machines"]);
        let none = tempfile::tempdir().expect("a directory");
        assert_eq!(unlisted(&Disk::open(none.path()).expect("open")), []);
    }

    /// SECURITY.md: programs of approved calls are part of the definition, wherever in the app they lie.
    #[test]
    fn programs_of_tools_are_part_of_the_definition() {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in [
            ("tools/peek.yaml", "name: peek\ndescription: d\ncommand: python3 lib/peek.py --all\n"),
            ("tools/data/list.txt", "x"),
            ("lib/peek.py", "print(1)\n"),
            ("lib/other.py", "print(2)\n"),
        ] {
            let place = dir.path().join(path);
            std::fs::create_dir_all(place.parent().expect("a parent")).expect("made");
            std::fs::write(place, text).expect("written");
        }
        let mut files = Vec::new();
        let disk = Disk::open(dir.path()).expect("open");
        add_tools(&disk, &etude_spec::tool::load(&disk).0, &mut files);
        files.sort_unstable();
        assert_eq!(files, ["lib/peek.py", "tools/data/list.txt", "tools/peek.yaml"]);
    }
}
