//! `etude learn`: reads traces and writes candidates.

use std::collections::BTreeMap;

use etude::Disk;
use etude_core::data::bare;
use etude_learn::{Candidate, Learned};
use etude_runtime::driver::Stop;
use etude_spec::did_you_mean;
use etude_spec::learned::LearnedState;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::bindings;
use super::candidates::{self, Change};
use super::overlay::Overlay;
use super::rehearsed::Rehearsed;
use super::source;
use super::world::World;
use crate::args;
use crate::command::test;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::text::harmless;
use crate::{signals, stdout};

pub(super) fn learn(context: &Context, options: &args::LearnOptions) -> Result<Exit, Refused> {
    let disk = context.disk()?;
    let world = World::of(context, &disk)?;
    super::check_enabled(&world.learning)?;
    let read = source::read(context, &disk, options)?;
    let mut learned = etude_learn::learn(&read.traces, &world, options.family.as_deref());
    check_family(options, &learned, &world)?;
    if let Some(tier) = options.model.tier().filter(|_| !learned.candidates.is_empty()) {
        super::wording::reword(context, &disk, &mut learned, tier)?;
    }
    refuse_broken(&disk, &mut learned);
    say_faults(context, &learned);
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    let (mut is_pending, mut is_said) = (false, false);
    let states = states(context, &disk, options.dry_run);
    let stop = signals::listen()?;
    for candidate in &learned.candidates {
        let decided = candidates::decide(&disk, candidate, &world, states.get(&candidate.name).copied());
        if !options.dry_run {
            if decided.change.is_written() {
                let copy = Rehearsed::new(&disk, &candidate.name, &decided.files)?;
                let is_refused = fails_its_cases(context, &copy.disk, candidate, (&stop, &mut is_said));
                if *stop.borrow() != Stop::No {
                    return Ok(Exit::Interrupted);
                }
                if is_refused {
                    refused.push(candidate.name.clone());
                    continue;
                }
            }
            candidates::store(&disk, &candidate.name, &decided)?;
        }
        is_pending |= decided.change == Change::Edited;
        rows.push(candidates::row(candidate, &decided));
    }
    refuse(&mut learned, &refused);
    let document = document(options, &read, &learned, rows);
    if context.is_json() {
        stdout::json(&document);
    } else {
        report(&document);
    }
    Ok(if is_pending { Exit::Waiting } else { Exit::Done })
}

/// Refuses a family that neither the traces nor the pipelines of the app have (1.1: an unknown name).
fn check_family(options: &args::LearnOptions, learned: &Learned, world: &World) -> Result<(), Refused> {
    let Some(name) = &options.family else { return Ok(()) };
    if !learned.families.is_empty() || world.has_family(name) {
        return Ok(());
    }
    let hint = match did_you_mean(name, learned.others.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if learned.others.is_empty() => {
            "no usable run was read: `etude learn` without `--family` lists the runs, and why they are not used"
                .to_owned()
        }
        None => format!("families of these runs: {}", learned.others.join(", ")),
    };
    Err(Problem::usage(format!("there is no family `{name}`")).hint(hint).into())
}

/// States of the existing candidates; empty if no journal is readable, since learning does not need one.
fn states(context: &Context, disk: &Disk, is_dry: bool) -> BTreeMap<String, LearnedState> {
    if !etude_spec::learned::is_any(disk) {
        return BTreeMap::new();
    }
    let engine = if is_dry { context.engine(false) } else { super::settled(context, disk) };
    let standings = engine.ok().and_then(|engine| etude_evidence::standings(&*engine, disk).ok()).unwrap_or_default();
    let candidates = standings.into_iter().filter(|standing| standing.located.is_candidate());
    candidates.filter_map(|standing| Some((standing.located.name.clone(), standing.state?))).collect()
}

/// Removes candidates that `etude check` would refuse (L-12).
fn refuse_broken(app: &Disk, learned: &mut Learned) {
    let fault = |candidate: &Candidate| {
        let errors = Overlay::new(app, &candidate.name, &candidate.files).errors();
        Some((candidate.name.clone(), errors.into_iter().next()?))
    };
    let broken: BTreeMap<String, String> = learned.candidates.iter().filter_map(fault).collect();
    for family in &mut learned.families {
        let name = family.outcome.as_ref().ok();
        family.why = name.and_then(|name| broken.get(name).cloned()).or(family.why.take());
    }
    refuse(learned, &broken.into_keys().collect::<Vec<_>>());
}

/// Reports why the check of a family's candidate failed.
fn say_faults(context: &Context, learned: &Learned) {
    for family in learned.families.iter().filter(|family| family.outcome.is_err() && !context.global.quiet) {
        if let Some(why) = &family.why {
            let (name, why) = (harmless(&family.family), harmless(why));
            crate::render::say!("note: nothing was learned from `{name}`: {why}");
        }
    }
}

fn refuse(learned: &mut Learned, names: &[String]) {
    learned.candidates.retain(|candidate| !names.contains(&candidate.name));
    for family in &mut learned.families {
        if family.outcome.as_ref().is_ok_and(|name| names.contains(name)) {
            family.outcome = Err("check_failed");
        }
    }
}

/// Runs the code of a candidate on all of its cases, then samples of those cases as `etude learn test` does, which between them
/// have each end (L-12). A candidate that cannot run fails; the first such problem is printed.
fn fails_its_cases(
    context: &Context,
    disk: &Disk,
    candidate: &Candidate,
    (stop, is_said): (&Receiver<Stop>, &mut bool),
) -> bool {
    let fails = || -> Result<Option<String>, Refused> {
        if bindings::differ(context, disk, candidate, stop)? {
            return Ok(Some("its code computes values that differ from those of its runs".to_owned()));
        }
        let tested = test::some_of_candidate(context, disk, &candidate.name, &candidate.samples)?;
        let fault = |tested: &test::Tested| Some(format!("case `{}`: {}", tested.name, tested.faults.first()?));
        Ok(tested.iter().find_map(fault))
    };
    let fails = fails().map(|why| {
        if let (Some(why), false) = (&why, context.global.quiet) {
            let why = harmless(why);
            crate::render::say!("note: the candidate `{}` is not written: {why}", candidate.name);
        }
        why.is_some()
    });
    fails.unwrap_or_else(|refused| {
        if let (Refused::Problem(problem), false) = (refused, *is_said) {
            context.say_problem(&problem);
            *is_said = true;
        }
        true
    })
}

fn document(options: &args::LearnOptions, read: &source::Read, learned: &Learned, rows: Vec<Value>) -> Value {
    let unusable: Vec<Value> =
        learned.unusable.iter().map(|one| json!({"run": one.run, "reason": one.reason, "tools": one.tools})).collect();
    let families: Vec<Value> = learned
        .families
        .iter()
        .map(|row| {
            json!({
                "family": row.family, "requests": row.requests, "runs": row.runs, "candidate": row.outcome.as_ref().ok(),
                "reason": row.outcome.as_ref().err(), "tools": row.tools,
            })
        })
        .collect();
    json!({
        "dry_run": options.dry_run, "traces": {"read": read.count, "usable": learned.usable}, "unusable": unusable,
        "malformed": read.malformed, "families": families, "candidates": rows,
    })
}

/// Human-readable form of the document.
fn report(document: &Value) {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| harmless(&bare(value));
    stdout::documents(|out| {
        writeln!(out, "read {} traces, {} usable", document["traces"]["read"], document["traces"]["usable"])?;
        for row in list("malformed") {
            writeln!(out, "  {}:{}: {}", text(&row["file"]), row["line"], text(&row["message"]))?;
        }
        for row in list("unusable") {
            writeln!(out, "  run {} is not used: {}", text(&row["run"]), text(&row["reason"]))?;
        }
        for row in list("families").iter().filter(|row| row["candidate"].is_null()) {
            writeln!(
                out,
                "  {} ({} requests): nothing learned, {}",
                text(&row["family"]),
                row["requests"],
                text(&row["reason"])
            )?;
        }
        for row in list("candidates") {
            let (name, change, path) = (text(&row["name"]), text(&row["change"]), text(&row["path"]));
            // Some requests also asked for other writes of their runs, which the pipeline alone does not cover.
            let none = if row["not_covered"] == row["requests"] { ", covers none of them" } else { "" };
            writeln!(out, "{name}  {change}  {path}  from {} requests{none}", row["requests"])?;
        }
        Ok(())
    });
    if list("candidates").iter().any(|row| row["change"] == "edited") {
        crate::render::say_hint!(
            "a candidate whose files, tools or rules have changed stays as it is; `etude learn show NAME --diff` prints the pending change"
        );
    }
}
