//! `etude learn demote`: takes a learned pipeline out of the routing table.

use etude_evidence::Demotion;
use etude_spec::learned::LearnedState;
use serde_json::Value;

use super::{Learnt, files, moved};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::stdout;

/// Default for `--reason`.
const BY_HAND: &str = "by hand";

pub(super) fn demote(context: &Context, args: &args::LearnDemote) -> Result<Exit, Problem> {
    let document = apply(&Learnt::open(context)?, &args.name, args.reason.as_deref())?;
    if context.is_json() {
        stdout::json(&document);
    } else if !context.global.quiet {
        crate::render::say!("`{}` is demoted: no request is routed to it", args.name);
    }
    Ok(Exit::Done)
}

/// Demotes a learned pipeline. Returns the document of the change.
pub(super) fn apply(learnt: &Learnt, name: &str, reason: Option<&str>) -> Result<Value, Problem> {
    let standings = learnt.standings()?;
    // A routed pipeline precedes a candidate of the same name.
    let routed = standings.into_iter().find(|standing| standing.located.name == name && standing.is_routed());
    let standing = routed.map_or_else(|| learnt.find(name), Ok)?;
    let Some(state) = standing.state else {
        return Err(Problem::usage(format!("the learn.yaml of `{name}` has errors")).hint("see them: etude check"));
    };
    if standing.learned().is_some_and(|learned| learned.state == LearnedState::Demoted) {
        return Err(Problem::usage(format!("`{name}` is demoted already")));
    }
    let demotion = Demotion {
        to: LearnedState::Demoted,
        run: None,
        reason: reason.unwrap_or(BY_HAND).to_owned(),
        at_ms: etude_runtime::clock::now_ms(),
        content: standing.content.clone(),
    };
    let path = files::set_state(&learnt.disk, &standing.located, LearnedState::Demoted)?;
    block_on(etude_evidence::demote(&*learnt.engine, &learnt.disk, &standing, &demotion))?
        .map_err(|error| of_engine(&error))?;
    Ok(moved(name, (state.word(), LearnedState::Demoted.word()), &[path], &[], &[]))
}
