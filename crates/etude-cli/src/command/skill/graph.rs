//! `etude skill graph`: draws levels and chain of a skill.

use etude_invoke::graph as drawings;

use super::project;
use crate::args::{SkillDrawing, SkillGraph};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Refused;
use crate::stdout;

pub(crate) fn graph(context: &Context, args: &SkillGraph) -> Result<Exit, Refused> {
    let project = project::open_for(context, &args.layers, &args.name)?;
    let compiled = project::compile(&project, &args.name)?;
    if context.is_json() {
        stdout::json(&drawings::json(&compiled));
        return Ok(Exit::Done);
    }
    stdout::text(&match args.to {
        SkillDrawing::Mermaid => drawings::mermaid(&compiled),
        SkillDrawing::Dot => drawings::dot(&compiled),
    });
    Ok(Exit::Done)
}
