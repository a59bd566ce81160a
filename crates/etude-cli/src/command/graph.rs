//! `etude graph`: a pipeline as a drawing.

use etude::core::plan::Plan;
use etude::graph;

use crate::args::{self, Drawing};
use crate::command::run::{self, Refused};
use crate::context::Context;
use crate::exit::Exit;
use crate::stdout;

pub(crate) fn graph(context: &Context, args: &args::Graph) -> Exit {
    let plan = match load(context, &args.name) {
        Ok(plan) => plan,
        Err(Refused::Problem(problem)) => return context.report(Some(&args.name), &problem),
        Err(Refused::Invalid(diagnostics)) => return run::invalid(context, Some(&args.name), &diagnostics),
    };
    let graph = graph::of(&plan);
    if context.is_json() {
        stdout::json(&graph.json());
        return Exit::Done;
    }
    stdout::text(&match args.to {
        Drawing::Mermaid => graph.mermaid(),
        Drawing::Dot => graph.dot(),
        Drawing::Svg => graph.svg(),
    });
    Exit::Done
}

fn load(context: &Context, name: &str) -> Result<Plan, Refused> {
    let disk = context.disk()?;
    run::load(&disk, name).map(|definition| definition.plan)
}
