//! `etude learn`: learns from runs in skill mode, and manages the states of learned pipelines (`learn.md`).

mod bindings;
mod candidates;
mod demote;
mod export;
mod files;
mod forget;
mod now;
mod overlay;
mod promote;
mod rehearsed;
mod routing;
#[cfg(feature = "serve")]
mod served;
mod shadow;
mod show;
mod source;
mod status;
mod wording;
mod world;

use std::sync::Arc;

use etude::Disk;
use etude_evidence::{Settled, Standing};
use etude_runtime::engine::Engine;
use etude_spec::config::learn::Learning;
use etude_spec::discover::PIPELINES;
use etude_spec::learned::LearnedState;
use etude_spec::{Diagnostic, did_you_mean};
use serde_json::{Value, json};

use super::test;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::commands::complete;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;

#[cfg(feature = "serve")]
pub(crate) use served::Served;
pub(crate) use shadow::{begin as begin_shadow, usage as shadow_usage};

pub(crate) fn learn(context: &Context, command: &args::Learn) -> Exit {
    let done = match &command.action {
        None => now::learn(context, &command.options),
        Some(args::LearnAction::Status) => status::status(context).map_err(Refused::Problem),
        Some(args::LearnAction::Show(args)) => show::show(context, args).map_err(Refused::Problem),
        Some(args::LearnAction::Test(args)) => tests(context, args),
        Some(args::LearnAction::Promote(args)) => promote::promote(context, args),
        Some(args::LearnAction::Demote(args)) => demote::demote(context, args).map_err(Refused::Problem),
        Some(args::LearnAction::Forget(args)) => forget::forget(context, args).map_err(Refused::Problem),
        Some(args::LearnAction::Export(args)) => export::export(context, &args.runs).map_err(Refused::Problem),
        Some(args::LearnAction::Shadow(args)) => shadow::shadow(context, &args.id),
    };
    done.unwrap_or_else(|refused| context.refuse(None, &refused))
}

/// Refuses commands that read or keep traces if learning is switched off (L-5).
fn check_enabled(learning: &Learning) -> Result<(), Problem> {
    match learning.enabled {
        true => Ok(()),
        false => Err(Problem::usage("learning is switched off: `learn.enabled` is `false` in the configuration")
            .hint("remove it, or set it to `true`, to use `etude learn`")),
    }
}

/// Context of the commands on states.
struct Learnt {
    disk: Disk,
    engine: Arc<dyn Engine>,
    learning: Learning,
}

impl Learnt {
    /// Opens the app and the journal, and first records the outcomes of runs.
    fn open(context: &Context) -> Result<Self, Problem> {
        let learnt = Self::look(context, || context.engine(false))?;
        learnt.settle(context)?;
        Ok(learnt)
    }

    /// Opens the app without recording anything: the journal does not change.
    fn look(context: &Context, engine: impl FnOnce() -> Result<Arc<dyn Engine>, Problem>) -> Result<Self, Problem> {
        let disk = context.disk()?;
        let learning = context.settings(disk.root())?.learning;
        check_enabled(&learning)?;
        Ok(Self { disk, engine: engine()?, learning })
    }

    /// Records the outcomes of runs.
    fn settle(&self, context: &Context) -> Result<(), Problem> {
        settle(context, &*self.engine, &self.disk, &self.learning)
    }

    fn standings(&self) -> Result<Vec<Standing>, Problem> {
        etude_evidence::standings(&*self.engine, &self.disk).map_err(|error| of_engine(&error))
    }

    /// The learned pipeline `name`: a candidate before a promoted pipeline of the same name.
    fn find(&self, name: &str) -> Result<Standing, Problem> {
        let all = self.standings()?;
        let names: Vec<String> = all.iter().map(|standing| standing.located.name.clone()).collect();
        all.into_iter().find(|standing| standing.located.name == name).ok_or_else(|| {
            let problem = Problem::usage(format!("there is no learned pipeline `{name}`"));
            match did_you_mean(name, names.iter().map(String::as_str)) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint("list them with `etude learn status`"),
            }
        })
    }
}

/// `etude learn test`: runs the cases of one learned pipeline, or of all.
fn tests(context: &Context, args: &args::LearnTest) -> Result<Exit, Refused> {
    let learnt = Learnt::open(context)?;
    let standings = match &args.name {
        Some(name) => {
            let standing = learnt.find(name)?;
            // An invalid definition is reported as such (exit 3).
            promote::loaded(context, &learnt.disk, &standing.located)?;
            vec![standing]
        }
        None => learnt.standings()?,
    };
    let mut all = Vec::new();
    for standing in &standings {
        let tested = test::of_learned(context, &learnt.disk, std::slice::from_ref(&standing.located), false)?;
        if !tested.is_empty() && tested.iter().all(|tested| tested.faults.is_empty()) {
            let now = etude_runtime::clock::now_ms();
            block_on(etude_evidence::tested(&*learnt.engine, &standing.content, now))?
                .map_err(|error| of_engine(&error))?;
        }
        all.extend(tested);
    }
    Ok(test::conclude(context, &all))
}

/// Records the outcomes of runs, and reports each new demotion once (L-80).
pub(crate) fn settle(context: &Context, engine: &dyn Engine, disk: &Disk, learning: &Learning) -> Result<(), Problem> {
    let settled = block_on(etude_evidence::settle(engine, disk, learning))?.map_err(|error| of_engine(&error))?;
    settled.iter().for_each(|settled| report(context, settled));
    Ok(())
}

/// Like [`settle`], after a run or a verdict, in an app that may have learned nothing.
pub(crate) fn settle_after(context: &Context, disk: &Disk) -> Result<(), Problem> {
    if !etude_spec::learned::is_any(disk) {
        return Ok(());
    }
    let learning = context.settings(disk.root())?.learning;
    settle(context, &*context.engine(false)?, disk, &learning)
}

fn report(context: &Context, settled: &Settled) {
    if context.global.quiet {
        return;
    }
    let Settled { name, from, demotion } = settled;
    let run = demotion.run.as_ref().map(|run| format!(", run {run}")).unwrap_or_default();
    crate::render::say!(
        "note: learned pipeline `{name}` is no longer `{}` but `{}` ({}{run}): {}",
        from.word(),
        demotion.to.word(),
        demotion.reason,
        complete("etude learn status")
    );
}

/// Prints a notice when a run in skill mode has made its family learnable.
pub(crate) fn notice(context: &Context, disk: &Disk, run: &str) -> Result<(), Problem> {
    let learning = context.settings(disk.root())?.learning;
    if !(learning.enabled && learning.notice) {
        return Ok(());
    }
    let (tools, _) = etude_spec::tool::load(disk);
    if tools.is_empty() {
        return Ok(());
    }
    let engine = context.engine(false)?;
    let known: Vec<String> = etude_spec::learned::all(disk)
        .into_iter()
        .filter_map(|located| located.learned.map(|learned| learned.family))
        .collect();
    let of = (learning.min_requests, learning.exclude.as_slice());
    let families = block_on(etude_evidence::family::note(&*engine, disk, (run, &tools), of))?
        .map_err(|error| of_engine(&error))?;
    for family in families.iter().filter(|family| !known.contains(family) && !context.global.quiet) {
        crate::render::say!(
            "note: {} requests led to `{family}`; run `{}` to make a pipeline of them",
            learning.min_requests,
            complete("etude learn")
        );
    }
    Ok(())
}

/// Pipelines of `pipelines/` that no request is routed to, after outcomes of runs are recorded.
pub(crate) fn unrouted(context: &Context, disk: &Disk) -> Result<Vec<String>, Problem> {
    if !etude_spec::learned::is_any(disk) {
        return Ok(Vec::new());
    }
    etude_evidence::unrouted(&*settled(context, disk)?, disk).map_err(|error| of_engine(&error))
}

/// A warning for each learned pipeline that the program has demoted (1.2). Definitions are checked even if no journal is
/// readable.
pub(crate) fn demoted(context: &Context, disk: &Disk) -> Vec<Diagnostic> {
    let is_learned = etude_spec::learned::is_any(disk);
    let is_enabled = || context.settings(disk.root()).is_ok_and(|resolved| resolved.learning.enabled);
    if !is_learned || !is_enabled() {
        return Vec::new();
    }
    let Ok(engine) = settled(context, disk) else { return Vec::new() };
    let standings = etude_evidence::standings(&*engine, disk).unwrap_or_default();
    let demoted = standings.iter().filter(|standing| standing.state == Some(LearnedState::Demoted));
    demoted.filter_map(|standing| etude_spec::pipeline::learned::demoted_by_program(disk, &standing.located)).collect()
}

/// Refuses a learned pipeline that is named but may not receive requests (L-36). For a hand-written pipeline, no other file is
/// read.
pub(crate) fn check_named(context: &Context, disk: &Disk, name: &str) -> Result<(), Problem> {
    if etude_spec::learned::find(disk, PIPELINES, name).is_none() {
        return Ok(());
    }
    let engine = settled(context, disk)?;
    if etude_evidence::is_routed(&*engine, disk, name).map_err(|error| of_engine(&error))? {
        return Ok(());
    }
    Err(Problem::usage(format!("the learned pipeline `{name}` is not in use: it is not `assisted` or `active`"))
        .hint(format!("see its state: etude learn status; change it: etude learn promote {name}")))
}

/// Opens the engine, and records the outcomes of runs.
fn settled(context: &Context, disk: &Disk) -> Result<Arc<dyn Engine>, Problem> {
    let learning = context.settings(disk.root())?.learning;
    let engine = context.engine(false)?;
    settle(context, &*engine, disk, &learning)?;
    Ok(engine)
}

/// Document that `etude learn promote` and `demote` print.
fn moved(name: &str, (from, to): (&str, &str), paths: &[String], missing: &[Value], conflicts: &[Value]) -> Value {
    json!({"name": name, "from": from, "to": to, "paths": paths, "missing": missing, "conflicts": conflicts})
}
