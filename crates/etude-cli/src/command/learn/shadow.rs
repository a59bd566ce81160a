//! Candidates in `shadow` beside a run in skill mode (L-51 to L-57).
//!
//! A shadow is a separate process, started after the end of the run. It delays nothing, and its outcome changes nothing.

use std::process::{Child, Stdio};
use std::sync::Arc;

use etude::Disk;
use etude::definition::Definition;
use etude::runner::{Request, RunResult};
use etude_core::data::Json;
use etude_core::model::Usage;
use etude_evidence::details::verdict;
use etude_evidence::rehearsal::{Programs, Rehearsal};
use etude_evidence::shadow::{self, Agent, Shadowed};
use etude_evidence::trace::{self, Asked};
use etude_process::blob::FileBlobs;
use etude_process::{ChildEnvironment, detached, sandbox};
use etude_runs::document::shadow_json;
use etude_runs::header::Header;
use etude_runs::target::Target;
use etude_runtime::engine::{Engine, RunState, RunView};
use etude_runtime::memory::MemoryEngine;
use etude_spec::learned::{self, LearnedState};
use serde_json::{Value, json};

use super::Learnt;
use crate::command::route::{Given, find_candidate};
use crate::command::run::{coerce, unwatched};
use crate::command::runs::{document_of, find};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::settings::Need;

/// Starts the shadow of a run that has succeeded in skill mode, if there is a candidate for one. The process ends by itself
/// after a few seconds, and does not end with the run.
pub(crate) fn begin(context: &Context, disk: &Disk, run: &str) -> Result<Option<Child>, Problem> {
    if candidates(disk).is_empty() {
        return Ok(None);
    }
    let learning = context.settings(disk.root())?.learning;
    if !learning.enabled || !shadow::is_selected(run, learning.shadow) {
        return Ok(None);
    }
    let failed =
        |error: std::io::Error| Problem::environment(format!("cannot start the shadow of run `{run}`: {error}"));
    let mut command = detached(std::env::current_exe().map_err(failed)?, ChildEnvironment::without(&[]));
    command.arg("--app").arg(disk.root()).arg("--quiet");
    if let Some(config) = &context.global.config {
        command.arg("--config").arg(config);
    }
    command.args(["learn", "shadow", run]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(failed)?;
    etude_process::exempt(&child);
    Ok(Some(child))
}

/// Usage of the shadow of a run, for `usage.shadow`.
pub(crate) fn usage(engine: &dyn Engine, run: &str) -> Value {
    shadow::usage_of(engine, run).unwrap_or_else(|_| shadow_json(&Usage::default()))
}

/// Names of the candidates in `shadow`.
fn candidates(disk: &Disk) -> Vec<String> {
    let all = learned::all(disk).into_iter();
    let own = all.filter(|located| located.is_candidate() && located.state() == Some(LearnedState::Shadow));
    own.map(|located| located.name).collect()
}

/// `etude learn shadow`: compares a run once with the candidate that its request is routed to.
pub(super) fn shadow(context: &Context, id: &str) -> Result<Exit, Refused> {
    let learnt = Learnt::open(context)?;
    let Learnt { disk, engine, .. } = &learnt;
    let view = find::find(context, &**engine, id)?;
    let verdict = verdict(&**engine, &view.row.id).map_err(|error| of_engine(&error))?;
    let is_good = view.row.state == RunState::Succeeded && verdict != "bad";
    if !matches!(Target::parse(&view.row.target), Target::Skill(_)) || !is_good {
        return Ok(Exit::Done);
    }
    let standings = learnt.standings()?;
    let in_shadow = |name: &String| {
        standings.iter().any(|one| {
            one.located.is_candidate() && one.located.name == *name && one.state == Some(LearnedState::Shadow)
        })
    };
    let candidates: Vec<String> = candidates(disk).into_iter().filter(in_shadow).collect();
    let Asked { request, input } = trace::asked(&view, &*engine.blobs());
    let json = Value::Object(input).to_string();
    let given = Given { pairs: &[], json: Some(&json) };
    let (found, mut spent) = find_candidate(context, disk, &request, &candidates, &given)?;
    if let Some(found) = found {
        let name = found.definition.target.pipeline().unwrap_or_default().to_owned();
        let standing = standings.iter().find(|one| one.located.is_candidate() && one.located.name == name);
        let Some(standing) = standing else { return Ok(Exit::Done) };
        let (tools, _) = etude_spec::tool::load(disk);
        let agent = Agent::of(&view, &*engine.blobs(), &tools);
        let is_trusted = !standing.edited && standing.learned().is_some_and(|learned| learned.content.is_some());
        let shadowed = match coerce(&found.definition.input, &found.pairs, Some(&found.json)) {
            Ok(input) => {
                let begun = Begun { view: &view, request: &request, input, is_trusted };
                let (shadowed, usage) = rehearse(context, &learnt, found.definition, &agent, begun)?;
                spent.add(&usage);
                shadowed
            }
            // As in a run: the request lacks inputs of the pipeline, so the agent takes it.
            Err(_) => Shadowed { fell_back: Some((None, "input_invalid".to_owned())), ..Shadowed::default() },
        };
        let row = shadow::comparison(&view, &request, &agent, &shadowed, &spent);
        block_on(shadow::keep(&**engine, &standing.content, &row))?.map_err(|error| of_engine(&error))?;
    }
    let now = etude_runtime::clock::now_ms();
    block_on(shadow::keep_usage(&**engine, &view.row.id, &spent, now))?.map_err(|error| of_engine(&error))?;
    Ok(Exit::Done)
}

/// Inputs of a shadow.
struct Begun<'a> {
    view: &'a RunView,
    request: &'a str,
    input: Json,
    /// True if the files of the candidate are as they were learned.
    is_trusted: bool,
}

/// Runs a candidate as a rehearsal. Returns its outcome and its usage.
fn rehearse(
    context: &Context,
    learnt: &Learnt,
    definition: Definition,
    agent: &Agent,
    begun: Begun<'_>,
) -> Result<(Shadowed, Usage), Refused> {
    let Learnt { disk, engine, .. } = learnt;
    let has_sandboxes = sandbox::support().is_ok();
    let programs = match (has_sandboxes, begun.is_trusted) {
        (true, _) => Programs::Sandboxed,
        // Generated code only computes values from values.
        (false, true) => Programs::All,
        (false, false) => Programs::Nothing,
    };
    let plan = shadow::harmless(definition.plan, has_sandboxes);
    let definition = Definition { plan, ..definition };
    let (tools, _) = etude_spec::tool::load(disk);
    let rehearsal = Arc::new(Rehearsal::of_shadow(agent.recorded.clone(), tools, programs));
    let scratch = crate::paths::scratch("shadow").map_err(Problem::environment)?;
    let memory = Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(scratch.path(), false))));
    let mut runner = context.runner(disk, &definition, memory, Need::Look)?;
    runner.grants.rehearsal = Some(Arc::clone(&rehearsal));
    // A shadow asks no questions.
    runner.grants.can_ask = false;
    let header = Header::parse(&begun.view.run.header, &*engine.blobs()).map_err(Problem::environment)?;
    let document = document_of(&**engine, begun.view)?;
    let request = Request {
        limits: shadow::limits(&header, &used(document.members.get("usage"))),
        routing: Some(json!({"request": begun.request})),
        ..Request::new(begun.input, header.request.caller_dir)
    };
    let ended = unwatched(&runner, (&definition, disk), request)?;
    let ended = ended.map_err(|error| crate::render::stopped::problem(&error))?;
    let usage = used(ended.document.members.get("usage"));
    Ok((Shadowed { made: rehearsal.calls_made(), fell_back: left(&ended) }, usage))
}

/// Step and reason for which a shadow has left its pipeline: a deviation, a failure, or a question without an answer.
fn left(ended: &RunResult) -> Option<(Option<String>, String)> {
    let text = |value: &Value, member: &str| value[member].as_str().map(str::to_owned);
    let deviation = ended.document.members.get("fell_back").filter(|value| value.is_object());
    if let Some(deviation) = deviation {
        return Some((text(deviation, "step"), text(deviation, "reason").unwrap_or_default()));
    }
    match ended.document.status() {
        "succeeded" => None,
        "failed" => {
            let failure = ended.errors.first();
            let reason = failure.map_or_else(|| "failed".to_owned(), |failure| failure.kind.word().to_owned());
            Some((failure.and_then(|failure| failure.step.clone()), reason))
        }
        status => Some((None, status.to_owned())),
    }
}

fn used(usage: Option<&Value>) -> Usage {
    usage.map(etude_runtime::record::to_usage).unwrap_or_default()
}
