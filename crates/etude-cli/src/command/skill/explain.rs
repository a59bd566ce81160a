//! `etude skill explain`: the compiled chain of a skill and its metadata.

use etude_invoke::explain as documents;

use super::project;
use crate::args::SkillExplain;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Refused;
use crate::stdout;

pub(crate) fn explain(context: &Context, args: &SkillExplain) -> Result<Exit, Refused> {
    let project = project::open_for(context, &args.layers, &args.name)?;
    let compiled = project::compile(&project, &args.name)?;
    let portable = |value| match args.portable_paths {
        true => documents::portable(&value, &project.dir.display().to_string()),
        false => value,
    };
    if context.is_json() {
        stdout::json(&portable(documents::json(&compiled)));
    } else if let Some(text) = portable(documents::text(&compiled).into()).as_str() {
        stdout::text(text);
    }
    Ok(Exit::Done)
}
