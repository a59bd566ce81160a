//! `etude graph`: draws a pipeline or a machine.

use etude_core::plan::StepKind;
use etude_preview::graph::{self, Graph};
use etude_runs::target::Target;
use etude_spec::App;
use etude_spec::stage_machine::{Machines, Rules};

use crate::args::{self, Drawing};
use crate::command::{by_path, run};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Refused;
use crate::stdout;

pub(crate) fn graph(context: &Context, args: &args::Graph) -> Exit {
    let graph = match load(context, &args.name) {
        Ok(graph) => graph,
        Err(refused) => return context.refuse(Some(&Target::Pipeline(args.name.clone())), &refused),
    };
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

/// Graph of the pipeline of that name, or else of the machine.
fn load(context: &Context, name: &str) -> Result<Graph, Refused> {
    let disk = context.disk()?;
    let name = by_path::name(disk.root(), name)?;
    let name = &*name;
    let machines = Machines::new(&disk, Rules::default());
    if machines.contains(name) && !App::new(&disk).discovery().contains(name) {
        let definition = super::machine::load(context, &disk, name)?;
        let steps = definition.plan.body.steps.first().map(|step| &step.kind);
        if let Some(StepKind::Machine(call)) = steps {
            return Ok(graph::stages::of(&call.machine));
        }
    }
    let is_candidate = !App::new(&disk).discovery().contains(name)
        && etude_spec::learned::find(&disk, etude_spec::discover::LEARNED, name).is_some();
    let loaded = if is_candidate { run::load_candidate(context, &disk, name) } else { run::load(context, &disk, name) };
    loaded.map(|definition| graph::of(&definition.plan))
}
