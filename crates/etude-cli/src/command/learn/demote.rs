//! `etude learn demote`: takes a learned pipeline out of the routing table.

use etude::learned::{self, Demotion};
use etude_spec::learned::State;

use super::{Learnt, files, moved};
use crate::args;
use crate::context::{Context, Problem, block_on};
use crate::exit::Exit;
use crate::render::stopped::of_engine;
use crate::stdout;

/// The reason of a demotion without `--reason`.
const BY_HAND: &str = "by hand";

pub(super) fn demote(context: &Context, args: &args::LearnDemote) -> Result<Exit, Problem> {
    let learnt = Learnt::open(context)?;
    let standings = learnt.standings()?;
    // What requests are routed to comes before a candidate of that name.
    let routed = standings.into_iter().find(|standing| standing.located.name == args.name && standing.is_routed());
    let standing = routed.map_or_else(|| learnt.find(&args.name), Ok)?;
    let Some(state) = standing.state else {
        return Err(
            Problem::usage(format!("the learn.yaml of `{}` has errors", args.name)).hint("see them: etude check")
        );
    };
    if standing.learned().is_some_and(|learned| learned.state == State::Demoted) {
        return Err(Problem::usage(format!("`{}` is demoted already", args.name)));
    }
    let demotion = Demotion {
        to: State::Demoted,
        run: None,
        reason: args.reason.clone().unwrap_or_else(|| BY_HAND.to_owned()),
        at_ms: etude::clock::now_ms(),
        content: standing.content.clone(),
    };
    let path = files::set_state(&learnt.disk, &standing.located, State::Demoted)?;
    block_on(learned::demote(&*learnt.engine, &learnt.disk, &standing, &demotion))?
        .map_err(|error| of_engine(&error))?;
    let document = moved(&args.name, (state.word(), State::Demoted.word()), &[path], &[], &[]);
    if context.is_json() {
        stdout::json(&document);
    } else if !context.global.quiet {
        crate::render::say!("`{}` is demoted: no request is routed to it", args.name);
    }
    Ok(Exit::Done)
}
