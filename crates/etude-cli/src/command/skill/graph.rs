//! `etude skill graph`: levels and chain as a drawing.

use clap::{Args, ValueEnum};
use etude_invoke::graph as drawings;

use super::project::{self, Layers};
use crate::context::{Context, Refused};
use crate::exit::Exit;
use crate::stdout;

#[derive(Debug, Args)]
pub(crate) struct Graph {
    /// The skill
    #[arg(add = clap_complete::engine::ArgValueCandidates::new(crate::complete::skills))]
    pub(crate) name: String,
    /// The language of the drawing
    #[arg(long, value_enum, default_value_t = Language::Mermaid)]
    to: Language,
    #[command(flatten)]
    layers: Layers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    /// Mermaid
    Mermaid,
    /// Graphviz
    Dot,
}

pub(crate) fn graph(context: &Context, args: &Graph) -> Result<Exit, Refused> {
    let project = project::open(context, &args.layers, &args.name)?;
    let compiled = project::compile(&project, &args.name)?;
    if context.is_json() {
        stdout::json(&drawings::json(&compiled));
        return Ok(Exit::Done);
    }
    stdout::text(&match args.to {
        Language::Mermaid => drawings::mermaid(&compiled),
        Language::Dot => drawings::dot(&compiled),
    });
    Ok(Exit::Done)
}
