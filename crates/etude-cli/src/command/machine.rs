//! `etude machine`: runs and shows stage machines (system B).

use std::fmt::Write;

use etude::Disk;
use etude::definition::{Definition, LoadError};
use etude::runner::Request;
#[cfg(feature = "postgres")]
use etude_core::data::Json;
use etude_core::plan::stages::StageMachine;
use etude_preview::graph::stages;
use etude_runs::target::Target;
use etude_spec::did_you_mean;
use etude_spec::stage_machine::{Machine, Machines};

#[cfg(feature = "postgres")]
use super::run::submit;
use super::run::{coerce, granted, input_text, limits, pairs, run_to_end};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::text::harmless;
use crate::settings::Need;
use crate::stdout;

pub(crate) fn machine(context: &Context, args: &args::Machine) -> Exit {
    let (name, done) = match args {
        args::Machine::Run(args) => (&args.name, run(context, args)),
        args::Machine::Show(args) => (&args.name, show(context, &args.name)),
    };
    done.unwrap_or_else(|refused| context.refuse(Some(&Target::Machine(name.clone())), &refused))
}

/// Loads a machine. If there is none of that name, the error lists the existing ones.
pub(crate) fn load(context: &Context, disk: &Disk, name: &str) -> Result<Definition, Refused> {
    let rules = context.settings(disk.root())?.machines;
    etude::stage_machine::load(disk, name, &rules).map_err(|error| match error {
        LoadError::Invalid(diagnostics) => diagnostics.into(),
        LoadError::Unknown { known } => Refused::Problem(unknown(name, &known)),
    })
}

fn unknown(name: &str, known: &[String]) -> Problem {
    let problem = Problem::usage(format!("there is no machine `{name}`"));
    match did_you_mean(name, known.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None if known.is_empty() => {
            problem.hint("this app has no machines; a machine is a file machines/NAME/machine.yaml")
        }
        None => problem.hint(format!("machines of this app: {}", known.join(", "))),
    }
}

fn run(context: &Context, args: &args::MachineRun) -> Result<Exit, Refused> {
    if let Some(remote) = context.server()? {
        return super::run::remote::run_machine(context, &remote, args);
    }
    let disk = context.disk()?;
    let definition = load(context, &disk, &args.name)?;
    let json = args.input.as_deref().map(input_text).transpose()?;
    let input = coerce(&definition.input, &pairs(&args.pairs)?, json.as_deref())?;
    #[cfg(feature = "postgres")]
    if context.is_shared() {
        return Ok(submitted(context, args, &disk, &definition, input)?);
    }
    context.show(&definition.warnings);
    let runner = context.runner(&disk, &definition, context.engine(args.limits.strict)?, Need::Ask)?;
    let request = Request {
        limits: limits(&args.limits),
        granted: granted(&args.granted)?,
        ..Request::new(input, context.caller_dir())
    };
    Ok(run_to_end(context, &runner, &definition, &disk, request)?)
}

/// Submits the run to the workers of a fleet, and follows it.
#[cfg(feature = "postgres")]
fn submitted(
    context: &Context,
    args: &args::MachineRun,
    disk: &Disk,
    definition: &Definition,
    input: Json,
) -> Result<Exit, Problem> {
    let (limits, granted) = (limits(&args.limits), submit::granted(&args.granted));
    let request = Request { limits, granted, ..Request::new(input, String::new()) };
    let terms = args::Submission::default();
    let submitted = submit::Submitted { disk, definition, bundle: None, request, terms: &terms };
    submit::submit(context, &*context.engine(args.limits.strict)?, submitted)
}

fn show(context: &Context, name: &str) -> Result<Exit, Refused> {
    let disk = context.disk()?;
    let rules = context.settings(disk.root())?.machines;
    let machines = Machines::new(&disk, rules);
    if !machines.contains(name) {
        if !machines.diagnostics().is_empty() {
            return Err(machines.diagnostics().to_vec().into());
        }
        return Err(unknown(name, machines.names()).into());
    }
    let (machine, diagnostics) = machines.machine(name);
    let Some(machine) = machine else { return Err(diagnostics.into()) };
    let graph = stages::of(&machine.plan);
    if context.is_json() {
        let mut document = stages::json(&machine.plan);
        document["description"] = machine.description.as_str().into();
        document["triggers"] = machine.triggers.as_slice().into();
        document["input"] = machine.input.schema();
        document["graph"] = graph.json();
        document["mermaid"] = graph.mermaid().into();
        stdout::json(&document);
    } else {
        stdout::text(&text(&machine));
    }
    Ok(Exit::Done)
}

/// Human-readable description of a machine.
fn text(machine: &Machine) -> String {
    let plan: &StageMachine = &machine.plan;
    let mut out = format!("{}  {}\n", plan.id, harmless(&machine.description));
    let _ = writeln!(out, "calls a model of tier {}, starts at {}", plan.tier, plan.entry);
    for stage in stages::in_order(plan) {
        let _ = writeln!(out, "\n{} ({})  {}", stage.id, harmless(&stage.name), harmless(&stage.description));
        let tools = if stage.allowed_tools.is_empty() { "no tools".to_owned() } else { stage.allowed_tools.join(", ") };
        let _ = writeln!(out, "  may call {tools}; ends with {}", stage.completion_tool);
        let (turns, attempts) = (stage.turn_cap, stage.max_attempts);
        let _ = writeln!(out, "  at most {turns} turns in an attempt, {attempts} attempts");
        for (when, next) in stages::transitions(stage) {
            let _ = writeln!(out, "  {when}: {}", harmless(&next));
        }
    }
    out
}
