//! `etude runs show RUN STEP [N [ATTEMPT]]`: one step of a run.

use std::sync::Arc;

use etude_core::shell;
use etude_runs::inspect::{self, Inspected, Place, Replayed, Stream};
use etude_runtime::engine::{Engine, RunView};
use serde_json::{Value, json};

use super::show;
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::layout;
use crate::render::runs::short;
use crate::render::runs::step::{self as render, Shown};
use crate::stdout;

/// Maximum number of lines shown of a stream.
const MAX_LINES: usize = 12;

/// An effect of the step with its place.
type Placed<'a> = (&'a Inspected, Place);

pub(super) fn show(
    context: &Context,
    engine: &Arc<dyn Engine>,
    view: &RunView,
    name: &str,
    args: &args::RunsShow,
    replayed: Option<&Replayed>,
) -> Result<Exit, Problem> {
    let facts = show::facts(&**engine, view, replayed)?;
    let rows = facts["steps"].as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["name"] == name).cloned().unwrap_or_default();
    let effects = inspect::effects(view, &*engine.blobs());
    let all: Vec<Placed<'_>> =
        effects.iter().filter_map(|effect| Some((effect, Place::of(&effect.id, name)?))).collect();
    if row.is_null() && all.is_empty() {
        return Err(unknown(view, name, &rows));
    }
    let (scope, shown) = choose(view, name, &all, args.number, args.attempt)?;
    let is_continued = effects.iter().any(|effect| effect.run_attempt > 1);
    let rejected = |id: &str| replayed.and_then(|replayed| replayed.rejected.get(id)).cloned();
    let documents: Vec<Value> = scope
        .iter()
        .filter(|(effect, place)| context.is_json() || is_listed(effect, place))
        .map(|(effect, place)| document(view, effect, title(effect, place, is_continued), place, rejected(&effect.id)))
        .collect();
    let document = json!({"run_id": view.row.id, "step": name, "row": row, "effects": documents});
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
            streams: effect.streams.iter().map(|kind| excerpt(context, engine, view, effect, *kind, width)).collect(),
        })
        .collect();
    stdout::styled(&render::text(&document, &shown, width));
    Ok(Exit::Done)
}

/// True if people see the effect: timers, tool lists and the cache are left out.
fn is_listed(effect: &Inspected, place: &Place) -> bool {
    !effect.streams.is_empty() || effect.is_failed || effect.is_done_again || place.part.is_empty()
}

/// Place of an effect in its step. For a continued run, the run attempt is included, because each one counts the attempts of
/// its steps from 1.
fn title(effect: &Inspected, place: &Place, is_continued: bool) -> String {
    match is_continued {
        true => format!("run attempt {}, {}", effect.run_attempt, place.title()),
        false => place.title(),
    }
}

fn document(view: &RunView, effect: &Inspected, title: String, place: &Place, rejected: Option<Vec<String>>) -> Value {
    let mut out = effect.to_json(&view.row.id);
    out["place"] = title.into();
    out["element"] = place.element.into();
    out["attempt"] = place.attempt.into();
    out["turn"] = place.turn.into();
    if let Some(reasons) = rejected {
        out["rejected"] = reasons.into();
    }
    out
}

fn unknown(view: &RunView, name: &str, rows: &[Value]) -> Problem {
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let problem = Problem::usage(format!("run `{}` has no step `{name}`", view.row.id));
    match names.is_empty() {
        true => problem.hint(format!("see its steps: etude runs show {}", short(&view.row.id))),
        false => problem.hint(format!("its steps: {}", names.join(", "))),
    }
}

/// Chooses the effects to list, and those to show with their streams.
fn choose<'a>(
    view: &RunView,
    name: &str,
    all: &[Placed<'a>],
    number: Option<usize>,
    attempt: Option<u32>,
) -> Result<(Vec<Placed<'a>>, Vec<Placed<'a>>), Problem> {
    let is_fan_out = all.iter().any(|(_, place)| place.element.is_some());
    let is_agent = all.iter().any(|(_, place)| place.turn.is_some());
    let number_of = |place: &Place| match (is_fan_out, is_agent) {
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
        let problem = Problem::usage(format!("step `{name}` of run `{}` has no {what} {number}", view.row.id));
        match (known.iter().min(), known.iter().max()) {
            (Some(min), Some(max)) => problem.hint(format!("it has {min} to {max}")),
            _ => problem.hint(format!("see the step: etude runs show {} {name}", short(&view.row.id))),
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
    let of_element = |place: &Place| if is_agent { place.turn.unwrap_or(0) } else { place.attempt };
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
    context: &Context,
    engine: &Arc<dyn Engine>,
    view: &RunView,
    effect: &Inspected,
    stream: Stream,
    width: usize,
) -> (&'static str, String, Result<layout::Excerpt, String>) {
    let name = shell::word(&format!("{}/{}", effect.id, stream.word()));
    let command = format!("etude runs show {} --stream {name}", short(&view.row.id));
    let content = match show::read(context, engine, view, &effect.id, stream) {
        Ok(Some(bytes)) => Ok(layout::head(&String::from_utf8_lossy(&bytes), MAX_LINES, width.saturating_sub(2))),
        Ok(None) => Err("unknown: the definition has changed since the run".to_owned()),
        Err(problem) => Err(problem.failures.first().map_or_else(String::new, |failure| failure.message.clone())),
    };
    (stream.word(), command, content)
}
