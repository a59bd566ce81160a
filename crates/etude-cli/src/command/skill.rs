//! `etude skill`: Agent Skills (C-2, C-3).

mod catalog;
mod check;
mod list;
mod show;

use etude::skills::{Compat, Places, SkillCatalog};
use etude::trust::Approvals;

use crate::args;
use crate::context::{Context, Problem};
use crate::exit::Exit;

pub(crate) use list::documents;

pub(crate) fn skill(context: &Context, command: &args::Skill) -> Exit {
    let done = match command {
        args::Skill::List(args) => list::list(context, compat(args.compat)),
        args::Skill::Show(args) => show::show(context, args),
        args::Skill::Check(args) => check::check(context, args),
        args::Skill::Catalog(args) => catalog::catalog(context, compat(args.compat)),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

fn compat(word: Option<args::CompatWord>) -> Compat {
    match word {
        Some(args::CompatWord::ClaudeCode) => Compat::ClaudeCode,
        None => Compat::Spec,
    }
}

/// The skills of where the user is.
pub(crate) fn discover(context: &Context, compat: Compat) -> Result<SkillCatalog, Problem> {
    let start = context.start_dir()?;
    let home = crate::paths::home();
    Ok(SkillCatalog::discover(&Places { start: &start, home: home.as_deref(), compat }))
}

/// What the user has approved.
pub(crate) fn approvals(context: &Context) -> Result<Approvals, Problem> {
    context.trust()?.approvals().map_err(|error| Problem::environment(error.to_string()))
}
