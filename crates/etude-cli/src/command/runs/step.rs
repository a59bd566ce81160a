//! `etude runs show RUN STEP [N [ATTEMPT]]`: one step of a run.

use std::collections::BTreeMap;

use etude_core::shell;
use etude_runs::inspect::{EffectPlace, Inspected, Stream};
use serde_json::{Value, json};

use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands::with_options;
use crate::render::layout;
use crate::render::runs::short;
use crate::render::runs::step::{self as render, Shown};
use crate::stdout;

/// Maximum number of lines shown of a stream.
const MAX_LINES: usize = 12;

/// An effect of the step with its place.
type Placed<'a> = (&'a Inspected, EffectPlace);

/// Reads one stream of the effect with an id; `None` if it has no such stream.
type Read<'a> = &'a dyn Fn(&str, Stream) -> Result<Option<Vec<u8>>, Problem>;

/// The run of a step, in the journal here or on a server.
pub(super) struct Run<'a> {
    pub(super) id: &'a str,
    /// The steps of its document.
    pub(super) steps: Vec<Value>,
    pub(super) effects: Vec<Inspected>,
    /// Reasons for rejected attempts, by the effect that gave the rejected value.
    pub(super) rejected: BTreeMap<String, Vec<String>>,
    pub(super) read: Read<'a>,
}

pub(super) fn show(context: &Context, run: &Run<'_>, name: &str, args: &args::RunsShow) -> Result<Exit, Problem> {
    let row = run.steps.iter().find(|row| row["name"] == name).cloned().unwrap_or_default();
    let effects = &run.effects;
    let all: Vec<Placed<'_>> =
        effects.iter().filter_map(|effect| Some((effect, EffectPlace::of(&effect.id, name)?))).collect();
    if row.is_null() && all.is_empty() {
        return Err(unknown(run.id, name, &run.steps));
    }
    let (scope, shown) = choose(run.id, name, &all, args.number, args.attempt)?;
    let is_continued = effects.iter().any(|effect| effect.run_attempt > 1);
    let rejected = |id: &str| run.rejected.get(id).cloned();
    let documents: Vec<Value> = scope
        .iter()
        .filter(|(effect, place)| context.is_json() || is_listed(effect, place))
        .map(|(effect, place)| {
            document(run.id, effect, title(effect, place, is_continued), place, rejected(&effect.id))
        })
        .collect();
    let document = json!({"run_id": run.id, "step": name, "row": row, "effects": documents});
    if context.is_json() {
        stdout::json(&document);
        return Ok(Exit::Done);
    }
    let width = layout::width();
    let shown: Vec<Shown> = shown
        .iter()
        .filter(|(effect, _)| !effect.is_done_again && (!effect.streams.is_empty() || effect.is_failed))
        .map(|(effect, place)| Shown {
            title: title(effect, place, is_continued),
            summary: effect.summary.clone(),
            rejected: rejected(&effect.id).unwrap_or_default(),
            streams: effect.streams.iter().map(|kind| excerpt(run, effect, *kind, width)).collect(),
        })
        .collect();
    stdout::styled(&render::text(&document, &shown, width));
    Ok(Exit::Done)
}

/// True if people see the effect: timers, tool lists and the cache are left out.
fn is_listed(effect: &Inspected, place: &EffectPlace) -> bool {
    !effect.streams.is_empty() || effect.is_failed || effect.is_done_again || place.part.is_empty()
}

/// Place of an effect in its step. For a continued run, the run attempt is included, because each one counts the attempts of
/// its steps from 1.
fn title(effect: &Inspected, place: &EffectPlace, is_continued: bool) -> String {
    match is_continued {
        true => format!("run attempt {}, {}", effect.run_attempt, place.title()),
        false => place.title(),
    }
}

fn document(
    run_id: &str,
    effect: &Inspected,
    title: String,
    place: &EffectPlace,
    rejected: Option<Vec<String>>,
) -> Value {
    let mut out = with_options(effect.to_json(run_id));
    out["place"] = title.into();
    out["element"] = place.element.into();
    out["attempt"] = place.attempt.into();
    out["turn"] = place.turn.into();
    if let Some(reasons) = rejected {
        out["rejected"] = reasons.into();
    }
    out
}

fn unknown(run_id: &str, name: &str, rows: &[Value]) -> Problem {
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let problem = Problem::usage(format!("run `{run_id}` has no step `{name}`"));
    match names.is_empty() {
        true => problem.hint(format!("see its steps: etude runs show {}", short(run_id))),
        false => problem.hint(format!("its steps: {}", names.join(", "))),
    }
}

/// Chooses the effects to list, and those to show with their streams.
fn choose<'a>(
    run_id: &str,
    name: &str,
    all: &[Placed<'a>],
    number: Option<usize>,
    attempt: Option<u32>,
) -> Result<(Vec<Placed<'a>>, Vec<Placed<'a>>), Problem> {
    let is_fan_out = all.iter().any(|(_, place)| place.element.is_some());
    let is_agent = all.iter().any(|(_, place)| place.turn.is_some());
    let number_of = |place: &EffectPlace| match (is_fan_out, is_agent) {
        (true, _) => place.element,
        (_, true) => place.turn.map(|turn| turn as usize),
        _ => Some(place.attempt as usize),
    };
    let what = if is_fan_out {
        "element"
    } else if is_agent {
        "turn"
    } else {
        "attempt"
    };
    let missing = |what: &str, number: usize, known: Vec<usize>| {
        let problem = Problem::usage(format!("step `{name}` of run `{run_id}` has no {what} {number}"));
        match (known.iter().min(), known.iter().max()) {
            (Some(min), Some(max)) => problem.hint(format!("it has {min} to {max}")),
            _ => problem.hint(format!("see the step: etude runs show {} {name}", short(run_id))),
        }
    };
    let scope: Vec<Placed<'a>> = match number {
        Some(number) => all.iter().filter(|(_, place)| number_of(place) == Some(number)).cloned().collect(),
        None => all.to_vec(),
    };
    if let (Some(number), true) = (number, scope.is_empty()) {
        return Err(missing(what, number, all.iter().filter_map(|(_, place)| number_of(place)).collect()));
    }
    if is_fan_out && number.is_none() {
        return Ok((scope, Vec::new()));
    }
    let of_element = |place: &EffectPlace| if is_agent { place.turn.unwrap_or(0) } else { place.attempt };
    let last = scope.iter().map(|(_, place)| of_element(place)).max().unwrap_or(1);
    let wanted = attempt.unwrap_or(last);
    let shown: Vec<Placed<'a>> = scope.iter().filter(|(_, place)| of_element(place) == wanted).cloned().collect();
    if shown.is_empty() && attempt.is_some() {
        let known = scope.iter().map(|(_, place)| of_element(place) as usize).collect();
        return Err(missing("attempt", wanted as usize, known));
    }
    Ok((scope, shown))
}

/// Beginning of a stream, with the command that prints all of it.
fn excerpt(
    run: &Run<'_>,
    effect: &Inspected,
    stream: Stream,
    width: usize,
) -> (&'static str, String, Result<layout::Excerpt, String>) {
    let name = shell::word(&format!("{}/{}", effect.id, stream.word()));
    let command = format!("etude runs show {} --stream {name}", short(run.id));
    let content = match (run.read)(&effect.id, stream) {
        Ok(Some(bytes)) => Ok(layout::head(&String::from_utf8_lossy(&bytes), MAX_LINES, width.saturating_sub(2))),
        Ok(None) => Err("unknown: the definition has changed since the run".to_owned()),
        Err(problem) => Err(problem.failures.first().map_or_else(String::new, |failure| failure.message.clone())),
    };
    (stream.word(), command, content)
}
