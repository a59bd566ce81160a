//! `etude skill`: Agent Skills (C-2, C-3), and skills that are tools with a chain (D).

mod catalog;
mod check;
mod explain;
mod followed;
mod graph;
mod list;
mod project;
mod run;
mod show;
mod watch;

use etude_packages::skills::{Compat, Places, SkillCatalog};
use etude_packages::trust::Approvals;
use etude_runs::target::Target;

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};

pub(crate) use list::documents;

pub(crate) fn skill(context: &Context, command: &args::Skill) -> Exit {
    let done = match command {
        args::Skill::List(args) => list::list(context, compat(args.compat)),
        args::Skill::Show(args) => {
            let shown = show::show(context, args);
            return shown.unwrap_or_else(|refused| context.refuse(None, &refused));
        }
        args::Skill::Check(args) => check::check(context, args),
        args::Skill::Catalog(args) => catalog::catalog(context, compat(args.compat)),
        args::Skill::Explain(args) => return cascaded(context, &args.name, explain::explain(context, args)),
        args::Skill::Graph(args) => return cascaded(context, &args.name, graph::graph(context, args)),
        args::Skill::Run(args) => {
            return cascaded(context, args.name.as_deref().unwrap_or_default(), run::run(context, args));
        }
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

/// Reports why a skill of a cascade cannot be explained or called.
fn cascaded(context: &Context, name: &str, done: Result<Exit, Refused>) -> Exit {
    done.unwrap_or_else(|refused| match refused {
        Refused::Problem(problem) => context.report(Some(&Target::Skill(name.to_owned())), &problem),
        Refused::Invalid(diagnostics, _) => project::invalid(context, &diagnostics),
    })
}

fn compat(word: Option<args::CompatWord>) -> Compat {
    match word {
        Some(args::CompatWord::ClaudeCode) => Compat::ClaudeCode,
        None => Compat::Spec,
    }
}

/// Discovers the skills that are visible from the user's directory.
pub(crate) fn discover(context: &Context, compat: Compat) -> Result<SkillCatalog, Problem> {
    let start = context.start_dir()?;
    let home = crate::paths::home();
    Ok(SkillCatalog::discover(&Places { start: &start, home: home.as_deref(), compat }))
}

/// Opens the user's approvals.
pub(crate) fn approvals(context: &Context) -> Result<Approvals, Problem> {
    context.trust()?.approvals().map_err(|error| Problem::environment(error.to_string()))
}

/// Names and descriptions of the skills that agents may use here.
#[cfg(feature = "serve")]
pub(crate) fn for_agents(context: &Context) -> Vec<(String, String)> {
    let (Ok(catalog), Ok(approvals)) = (discover(context, Compat::Spec), approvals(context)) else { return Vec::new() };
    let skills = catalog.visible_to_agents(&approvals);
    skills.map(|entry| (entry.skill.name.clone(), entry.skill.description.clone())).collect()
}

/// Text of a skill as an agent receives it; `None` if agents cannot use such a skill here.
#[cfg(feature = "serve")]
pub(crate) fn text_of(context: &Context, name: &str) -> Option<String> {
    let approvals = approvals(context).ok()?;
    let invoker = etude_packages::skills::Invoker::Agent;
    let request = etude_packages::skills::Request { invoker, ..etude_packages::skills::Request::new(&approvals) };
    let activation = discover(context, Compat::Spec).ok()?.activate(name, &request).ok()?;
    Some(activation.text())
}
