//! The project in which skills are looked up, with overrides from the command line and the environment.

use std::path::PathBuf;

use etude_invoke::project::{Project, Refused as NoChain, Setup};
use etude_packages::skills::Compat;
use etude_spec::cascade::skill::is_bare_name;
use etude_spec::cascade::{Compiled, Overrides, Strategy};
use etude_spec::{Code, Diagnostic, render};
use serde_json::{Value, json};

use crate::args::Layers;
use crate::context::{Context, here};
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::stdout;

/// Opens the project at or above the current directory, or that of `--app`, as the skill `entry` sees it.
pub(crate) fn open(context: &Context, layers: &Layers, entry: &str) -> Result<Project, Refused> {
    let dir = context.global.app.clone();
    if let Some(dir) = dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(crate::paths::no_directory(dir).into());
    }
    let start = match here() {
        Ok(here) => here,
        Err(problem) if dir.is_none() => return Err(problem.into()),
        Err(_) => PathBuf::from("/"),
    };
    let overrides = overrides(layers)?;
    let (strategy, modules) = (Strategy::default(), context.modules());
    let setup = Setup { start, dir, overrides, strategy, entry: entry.to_owned(), modules, ..Setup::default() };
    let project = Project::open(setup)
        .map_err(|error| Problem::environment(format!("the project's directory cannot be opened: {error}")))?;
    let faults: Vec<&Diagnostic> = project.diagnostics.iter().filter(|fault| fault.is_error()).collect();
    if !faults.is_empty() {
        return Err(faults.into_iter().cloned().collect::<Vec<_>>().into());
    }
    // Without its main skill a project has fewer rules than its author intended.
    context.show(project.diagnostics.iter().filter(|fault| fault.code == Code::NoMainSkill));
    Ok(project)
}

/// Collects overrides; flags win over the environment.
fn overrides(given: &Layers) -> Result<Overrides, Problem> {
    let mut overrides = Overrides::default();
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    // The order of environment variables is arbitrary.
    variables.sort();
    variables.iter().for_each(|(name, value)| overrides.add_variable(name, value));
    let layers = [
        (&given.local, &mut overrides.local),
        (&given.global, &mut overrides.global),
        (&given.set, &mut overrides.config),
    ];
    for (texts, layer) in layers {
        for text in texts {
            layer.push(Overrides::pair(text).map_err(Problem::usage)?);
        }
    }
    Ok(overrides)
}

/// Like [`open`], and adds the Agent Skill of that name if it lies elsewhere, where `skill list` finds it (C-2.6).
pub(crate) fn open_for(context: &Context, layers: &Layers, name: &str) -> Result<Project, Refused> {
    let mut project = open(context, layers, name)?;
    if is_bare_name(name) && matches!(project.compile(name), Err(NoChain::Unknown { .. })) {
        let found = super::discover(context, Compat::Spec)?;
        match found.entries().find(|entry| entry.skill.name == name) {
            Some(entry) => project.take_in(name, &entry.location).map_err(|refused| said(refused, name))?,
            None => context.show(found.diagnostics_of(name)),
        }
    }
    Ok(project)
}

/// Compiles a skill with its chain.
pub(crate) fn compile(project: &Project, name: &str) -> Result<Compiled, Refused> {
    project.compile(name).map_err(|refused| said(refused, name))
}

fn said(refused: NoChain, name: &str) -> Refused {
    match refused {
        NoChain::Invalid(diagnostics) => diagnostics.into(),
        NoChain::Unknown { near } => {
            let problem = Problem::usage(format!("skill not found: `{name}`"));
            Refused::Problem(match near {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint("skills are `NAME.skill.md` or `NAME/SKILL.md` on the search path"),
            })
        }
    }
}

/// Reports the faults of definitions.
pub(crate) fn invalid(context: &Context, diagnostics: &[Diagnostic]) -> Exit {
    context.show(diagnostics);
    if context.is_json() {
        let list: Vec<Value> = diagnostics.iter().map(render::json).collect();
        stdout::json(&json!({ "diagnostics": list }));
    }
    Exit::Definition
}
