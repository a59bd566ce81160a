//! `etude learn forget`: deletes a candidate, or all data kept from a run (L-40).

use etude::disk::Disk;
use etude_core::verbatim::request_digest;
use etude_evidence::trace;
use etude_spec::learned::{Counts, Learned, Located, TESTS};
use serde_json::{Value, json};

use super::{Learnt, files};
use crate::args;
use crate::command::runs::find::find;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;

pub(super) fn forget(context: &Context, args: &args::LearnForget) -> Result<Exit, Problem> {
    let learnt = Learnt::open(context)?;
    let (run, name) = (args.run.as_deref(), args.name.as_deref());
    let Forgotten { run, cases, pipelines } = match (run, name) {
        (Some(run), _) => of_run(context, &learnt, run)?,
        (None, Some(name)) => Forgotten { cases: candidate(&learnt, name)?, ..Forgotten::default() },
        (None, None) => return Err(Problem::usage("name a candidate, or a run with `--run ID`")),
    };
    if context.is_json() {
        stdout::json(&json!({"forgotten": {"run": run, "name": name}, "cases": cases, "pipelines": pipelines}));
    } else if !context.global.quiet {
        match (run, name) {
            (Some(run), _) => crate::render::say!("run {run} is forgotten; {} cases were removed", cases.len()),
            (None, name) => crate::render::say!("`{}` is forgotten", name.unwrap_or_default()),
        }
    }
    Ok(Exit::Done)
}

/// What is no longer there.
#[derive(Default)]
struct Forgotten {
    /// The id of a run.
    run: Option<String>,
    /// Paths of the deleted cases.
    cases: Vec<String>,
    /// Pipelines that have lost requests, as documents.
    pipelines: Vec<Value>,
}

/// Deletes a candidate, or a demoted pipeline with its cases; the paths of the cases.
fn candidate(learnt: &Learnt, name: &str) -> Result<Vec<String>, Problem> {
    let standing = learnt.find(name)?;
    if standing.is_routed() {
        return Err(Problem::usage(format!("`{name}` is in use: it is no candidate"))
            .hint(format!("take it out of use first: etude learn demote {name}")));
    }
    let cases = cases_in(&learnt.disk, &standing.located);
    if !standing.located.is_candidate() {
        for case in &cases {
            files::remove(&learnt.disk, case)?;
        }
    }
    files::remove(&learnt.disk, &standing.located.dir())?;
    Ok(cases)
}

/// The paths of the cases of a learned pipeline.
fn cases_in(disk: &Disk, located: &Located) -> Vec<String> {
    match located.is_candidate() {
        true => {
            let dir = format!("{}/{TESTS}", located.dir());
            files::digests(disk, &dir).iter().map(|digest| format!("{dir}/{digest}.yaml")).collect()
        }
        false => files::cases_of(disk, &located.name),
    }
}

/// The comparisons of the learning without those of a request.
fn without(learned: &Learned, digest: &str, lost: u64) -> Counts {
    let Counts { agreed, fell_back, disagreed } = learned.leave_one_out;
    let is_covered = learned.document["covers"].as_array().is_some_and(|all| all.iter().any(|one| one == digest));
    match is_covered {
        true => Counts { agreed: agreed.saturating_sub(lost), fell_back, disagreed },
        false => Counts { agreed, fell_back: fell_back.saturating_sub(lost), disagreed },
    }
}

/// Deletes the cases made from a run, and notes that it is forgotten.
fn of_run(context: &Context, learnt: &Learnt, run: &str) -> Result<Forgotten, Problem> {
    let Learnt { disk, engine, .. } = learnt;
    let view = find(context, &**engine, run)?;
    let digest = request_digest([trace::asked(&view, &*engine.blobs()).request.as_str()]);
    let (mut cases, mut pipelines) = (Vec::new(), Vec::new());
    for standing in learnt.standings()? {
        let located = &standing.located;
        let all = cases_in(disk, located);
        let own: Vec<&String> = all.iter().filter(|path| path.ends_with(&format!("{digest}.yaml"))).collect();
        if own.is_empty() {
            continue;
        }
        for path in &own {
            files::remove(disk, path)?;
            cases.push((*path).clone());
        }
        let lost = own.len() as u64;
        let learned = standing.learned();
        let before = learned.map_or(0, |learned| learned.requests).max(all.len() as u64);
        let after = before.saturating_sub(lost);
        // Each request that is left has a run at least.
        let runs = learned.map_or(0, |learned| learned.runs).saturating_sub(lost).max(after);
        let checks = learned.map(|learned| without(learned, &digest, lost)).unwrap_or_default();
        files::edit(disk, located, |text| Some(etude_spec::learned::with_evidence(text, after, runs, checks)))?;
        pipelines.push(json!({"name": located.name, "requests_before": before, "requests_after": after}));
    }
    let id = view.row.id.clone();
    block_on(etude_evidence::forget(&**engine, disk, &id))?.map_err(|error| of_engine(&error))?;
    Ok(Forgotten { run: Some(id), cases, pipelines })
}
