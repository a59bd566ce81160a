//! `etude runs show` and `etude runs export`: all data of a run in the journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::report::result_json;
use etude_core::template::compact;
use etude_evidence::{details, trace};
use etude_process::blob::{BlobStore, Watched};
use etude_runs::document::{with_shadow, write_json};
use etude_runs::inspect::{self, EffectPlace, Groups, Replayed, Stream};
use etude_runs::listing::{self, INTERRUPTED, active, row_json, status};
use etude_runs::target::Target;
use etude_runtime::clock;
use etude_runtime::engine::{Engine, RunState, RunView};
use serde_json::{Value, json};

use super::find::find;
use super::{away, definition_as_pinned, document_of, step};
use crate::args::{self, Format};
use crate::command::learn::shadow_usage;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands::with_options;
use crate::render::layout;
use crate::render::runs::{overview as render, short};
use crate::render::stopped::of_engine;
use crate::stdout;

/// Number of bytes of the output that are read for its excerpt.
const EXCERPT_BYTES: usize = 16 * 1024;

pub(crate) fn show(context: &Context, args: &args::RunsShow) -> Result<Exit, Problem> {
    if let Some(remote) = context.server()? {
        return super::remote::show(context, &remote, args);
    }
    let engine = context.engine(false)?;
    let view = find(context, &*engine, &args.id)?;
    if let Some(name) = &args.stream {
        return stream(context, &engine, &view, name);
    }
    let is_unfinished = matches!(view.row.state, RunState::Running | RunState::Moved) || view.result.is_none();
    let replayed = if is_unfinished || args.step.is_some() { replayed(context, &engine, &view)? } else { None };
    if let Some(name) = &args.step {
        let run = step::Run {
            id: &view.row.id,
            steps: facts(&*engine, &view, replayed.as_ref())?["steps"].as_array().cloned().unwrap_or_default(),
            effects: inspect::effects(&view, &*engine.blobs()),
            rejected: replayed.map(|replayed| replayed.rejected).unwrap_or_default(),
            read: &|effect, stream| read(context, &engine, &view, effect, stream),
        };
        return step::show(context, &run, name, args);
    }
    if context.is_json() {
        return json_document(&*engine, &view, replayed.as_ref());
    }
    let extra = render::Extra { groups: groups_of(context, &*engine, &view), ..render::Extra::default() };
    let text = overview(&*engine, &view, replayed.as_ref(), extra)?;
    stdout::styled(&text);
    Ok(Exit::Done)
}

/// Replays the journal with the definition of the run; `None` if the definition is neither present nor stored.
fn replayed(context: &Context, engine: &Arc<dyn Engine>, view: &RunView) -> Result<Option<Replayed>, Problem> {
    let Some(definition) = definition_as_pinned(context, &**engine, view) else { return Ok(None) };
    let blobs = Watched::new(engine.blobs());
    let replayed = match view.row.state == RunState::Queued && view.row.started_at_ms.is_none() {
        true => {
            let result = etude::queue::untouched(&view.run, &definition, &blobs);
            result.map(|result| Replayed { result, rejected: Default::default() })
        }
        false => {
            let store: Arc<dyn BlobStore> = Arc::new(blobs.clone());
            inspect::replay(view, &definition.plan, &definition.app, &store).ok().flatten()
        }
    };
    match away(&blobs) {
        Some(problem) if replayed.is_none() => Err(problem),
        _ => Ok(replayed),
    }
}

/// Overview of the run on one screen.
fn overview(
    engine: &dyn Engine,
    view: &RunView,
    replayed: Option<&Replayed>,
    extra: render::Extra,
) -> Result<String, Problem> {
    let width = layout::width();
    let document = facts(engine, view, replayed)?;
    let output = match (&view.result, view.row.state) {
        (None, _) | (_, RunState::Running | RunState::Moved) => None,
        _ => document_of(engine, view)?.output,
    };
    let output = output.map(|output| output_excerpt(&output, width)).transpose()?;
    let can_continue = matches!(view.row.state, RunState::Failed | RunState::Cancelled);
    let resume = can_continue.then(|| format!("etude runs resume {}", short(&view.row.id)));
    let started = clock::local(view.row.created_at_ms);
    Ok(render::text(&document, &render::Extra { started, output, resume, width, ..extra }))
}

/// The groups around the steps of a run; none if its definition cannot be read.
fn groups_of(context: &Context, engine: &dyn Engine, view: &RunView) -> Groups {
    definition_as_pinned(context, engine, view).map(|definition| Groups::of(&definition.plan)).unwrap_or_default()
}

/// Beginning of an output: a string as text, everything else as JSON.
pub(super) fn output_excerpt(output: &Json, width: usize) -> Result<layout::Excerpt, Problem> {
    let unreadable = |why: String| Problem::environment(format!("the output cannot be read: {why}"));
    let (bytes, total) = match output.as_stored() {
        Some(stored) => {
            let most = usize::try_from(stored.len).unwrap_or(usize::MAX).min(EXCERPT_BYTES);
            let mut bytes = vec![0; most];
            let got = stored.source.read_at(stored.offset, &mut bytes).map_err(unreadable)?;
            bytes.truncate(got);
            (bytes, stored.len)
        }
        None => {
            let text = output.inline().unwrap_or("null");
            let text = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
            let total = text.len() as u64;
            (text.into_bytes(), total)
        }
    };
    let mut excerpt = layout::head(&String::from_utf8_lossy(&bytes), render::MAX_OUTPUT, width.saturating_sub(2));
    excerpt.hidden += usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(bytes.len());
    Ok(excerpt)
}

/// Adds to each step the number of its elements, counted from the effects.
pub(super) fn count_elements(document: &mut Value) {
    let ids: Vec<String> = effect_ids(document);
    for row in document["steps"].as_array_mut().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default();
        let elements: BTreeSet<usize> = ids.iter().filter_map(|id| EffectPlace::of(id, name)?.element).collect();
        if !elements.is_empty() {
            row["elements"] = elements.len().into();
        }
    }
}

fn effect_ids(document: &Value) -> Vec<String> {
    let effects = document["effects"].as_array().into_iter().flatten();
    effects.filter_map(|effect| effect["id"].as_str().map(str::to_owned)).collect()
}

/// Document of `runs show` without the output, which may be large.
pub(super) fn facts(engine: &dyn Engine, view: &RunView, replayed: Option<&Replayed>) -> Result<Value, Problem> {
    let mut facts = match (&view.result, view.row.state) {
        (None, _) | (_, RunState::Running | RunState::Moved) => unfinished(engine, view, replayed)?,
        _ => {
            let mut document = document_of(engine, view)?.shadowed(shadow_usage(engine, &view.row.id));
            document.output = None;
            let mut bytes = Vec::new();
            document.write(&mut bytes).map_err(|e| Problem::environment(e.to_string()))?;
            serde_json::from_slice(&bytes).map_err(|e| Problem::environment(e.to_string()))?
        }
    };
    if let (Value::Object(facts), Value::Object(more)) = (&mut facts, extra_members(engine, view)) {
        facts.extend(more);
    }
    count_elements(&mut facts);
    Ok(facts)
}

/// Substitute for the result document of an unfinished run: its steps in the current state.
fn unfinished(engine: &dyn Engine, view: &RunView, replayed: Option<&Replayed>) -> Result<Value, Problem> {
    let target = Target::parse(&view.row.target);
    let active_ms = active::so_far(engine, &view.row, clock::now_ms()).map_err(|error| of_engine(&error))?;
    let members = replayed.map(|replayed| result_json(&replayed.result)).unwrap_or_default();
    let member = |name: &str| members.get(name).cloned();
    let usage = member("usage").map(with_shadow);
    let mut out = json!({
        "run_id": view.row.id, "status": status(&view.row), "mode": target.mode(), "pipeline": target.pipeline(),
        "output": null, "errors": [], "steps": member("steps").unwrap_or_else(|| json!([])), "usage": usage,
        "fell_back": member("fell_back"),
        "duration_ms": active_ms,
    });
    mark_begun(&mut out);
    if out["fell_back"].is_object() {
        out["mode"] = Target::SKILL.into();
    }
    if let Some(machine) = target.machine() {
        out["machine"] = machine.into();
        out["stages"] = member("stages").unwrap_or_else(|| json!([]));
    }
    if let Some(reason) = listing::left_alone(engine, &view.row).map_err(|error| of_engine(&error))? {
        out["reason"] = reason.into();
    }
    Ok(out)
}

/// Gives started, unfinished steps the status of the unfinished run. Only a waiting run has waiting steps.
pub(super) fn mark_begun(document: &mut Value) {
    let status = document["status"].clone();
    if status != "running" && status != INTERRUPTED {
        return;
    }
    for row in document["steps"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if row.remove("waiting").is_some() {
            row.insert("status".into(), status.clone());
        }
    }
}

/// Members that `runs show` adds to the result document: the input, the streams of each step, and more.
fn extra_members(engine: &dyn Engine, view: &RunView) -> Value {
    let is_waiting = view.row.state == RunState::Waiting;
    let document = is_waiting.then(|| document_of(engine, view).ok()).flatten();
    let waiting = document.map(|document| document.waiting).unwrap_or_default();
    let mut beside = json!({
        "started_at": view.row.started_at_ms.map(clock::rfc3339),
        "changed_at": clock::rfc3339(view.row.changed_at_ms),
        "app": view.row.app,
        "target": view.row.target,
        "input": inspect::input(view, &*engine.blobs()).and_then(|i| i.value().ok()),
    });
    add_details(&mut beside, details::of(engine, view, &waiting));
    if let (true, Some(members), Value::Object(more)) =
        (engine.worker().is_some(), beside.as_object_mut(), listing::placement_json(&view.row))
    {
        members.extend(more);
    }
    let actions = listing::actions(engine, &view.row.id).unwrap_or_default();
    if !actions.is_empty() {
        beside["actions"] = actions.into();
    }
    beside
}

/// Adds the details of a run to its document. The commands that print streams have the options of this command line.
pub(super) fn add_details(document: &mut Value, mut details: Value) {
    let effects = details["effects"].as_array_mut().map(std::mem::take).unwrap_or_default();
    details["effects"] = effects.into_iter().map(with_options).collect();
    if let (Value::Object(members), Value::Object(more)) = (document, details) {
        members.extend(more);
    }
}

/// Prints the result document, with the input and the streams of each step.
fn json_document(engine: &dyn Engine, view: &RunView, replayed: Option<&Replayed>) -> Result<Exit, Problem> {
    let document = match &view.result {
        Some(_) if !matches!(view.row.state, RunState::Running | RunState::Moved) => {
            let document = document_of(engine, view)?.shadowed(shadow_usage(engine, &view.row.id));
            let mut bytes = Vec::new();
            document.write(&mut bytes).map_err(|e| {
                Problem::environment(format!("the output of run `{}` cannot be read: {e}", view.row.id))
                    .hint(format!("see its steps and their output: etude runs show {}", view.row.id))
            })?;
            String::from_utf8(bytes).unwrap_or_default()
        }
        _ => unfinished(engine, view, replayed)?.to_string(),
    };
    // The document may hold a large output, so it is extended without parsing it. The input keeps its digits.
    let mut extra = extra_members(engine, view);
    extra.as_object_mut().map(|members| members.shift_remove("input"));
    let extra = extra.to_string();
    let input = inspect::input(view, &*engine.blobs()).and_then(|input| input.text().ok());
    let input = input.map_or_else(|| "null".to_owned(), |input| compact(&input));
    let open = document.trim_end().strip_suffix('}').unwrap_or_default();
    stdout::documents(|out| writeln!(out, "{open},\"input\":{input},{}", &extra[1..]));
    Ok(Exit::Done)
}

fn stream(context: &Context, engine: &Arc<dyn Engine>, view: &RunView, name: &str) -> Result<Exit, Problem> {
    if let "input" | "output" = name {
        let json = match name {
            "input" => inspect::input(view, &*engine.blobs()),
            _ => document_of(&**engine, view)?.output,
        };
        let json = json.ok_or_else(|| {
            Problem::usage(format!("run `{}` has no {name}", view.row.id))
                .hint(format!("see the failure: etude runs show {}", short(&view.row.id)))
        })?;
        // A string is printed as text.
        match json.inline().and_then(|text| serde_json::from_str::<String>(text).ok()) {
            Some(text) => stdout::with(|out| out.write_all(text.as_bytes())),
            None => stdout::with(|out| write_json(&json, out)),
        }
        return Ok(Exit::Done);
    }
    let usage = || {
        Problem::usage(format!("`{name}` is not a stream of run `{}`", view.row.id))
            .hint(format!("list them with `etude runs show {} --format json`", view.row.id))
    };
    let (effect, word) = name.rsplit_once('/').ok_or_else(usage)?;
    let stream = Stream::from_word(word).ok_or_else(usage)?;
    let bytes = read(context, engine, view, effect, stream)?.ok_or_else(usage)?;
    stdout::with(|out| out.write_all(&bytes));
    Ok(Exit::Done)
}

/// Reads one stream of an effect; `None` if it has no such stream.
pub(super) fn read(
    context: &Context,
    engine: &Arc<dyn Engine>,
    view: &RunView,
    effect: &str,
    stream: Stream,
) -> Result<Option<Vec<u8>>, Problem> {
    let blobs = Watched::new(engine.blobs());
    let bytes = match stream {
        Stream::Stdin => {
            let definition = definition_as_pinned(context, &**engine, view).ok_or_else(|| {
                Problem::environment("stdin is rebuilt from the definition, which was not stored and cannot be read")
                    .hint("etude check")
            })?;
            let store: Arc<dyn BlobStore> = Arc::new(blobs.clone());
            inspect::stdin(view, &definition.plan, &definition.app, effect, &store)
        }
        stream => inspect::read(view, effect, stream, &blobs),
    };
    bytes.map_err(|why| away(&blobs).unwrap_or_else(|| Problem::environment(why)))
}

/// Exports a run with its records, signals and result. Prints a line for each, or with `--format json` one document.
pub(crate) fn export(context: &Context, id: &str) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let view = find(context, &*engine, id)?;
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    let mut row = row_json(&view.row);
    row["header"] = parsed(&view.run.header);
    row["abi"] = view.run.abi.into();
    let records = view.records.iter().map(|record| {
        let blobs: Vec<String> = record.blobs.iter().map(ToString::to_string).collect();
        json!({"key": record.key, "request": record.request.to_string(), "body": parsed(&record.body), "blobs": blobs})
    });
    let calls = trace::of(&view, &*engine.blobs());
    let calls = calls.iter().map(trace::TracedCall::to_json);
    let signals = view.signals.iter().map(|signal| json!({"key": signal.key, "body": parsed(&signal.body)}));
    let result = view.result.as_deref().map(parsed);
    if context.global.format == Format::Json {
        stdout::json(&json!({
            "run": row, "records": records.collect::<Vec<_>>(), "calls": calls.collect::<Vec<_>>(),
            "signals": signals.collect::<Vec<_>>(), "result": result,
        }));
        return Ok(Exit::Done);
    }
    stdout::documents(|out| {
        writeln!(out, "{}", json!({ "run": row }))?;
        records.into_iter().try_for_each(|record| writeln!(out, "{}", json!({ "record": record })))?;
        calls.into_iter().try_for_each(|call| writeln!(out, "{}", json!({ "call": call })))?;
        signals.into_iter().try_for_each(|signal| writeln!(out, "{}", json!({ "signal": signal })))?;
        writeln!(out, "{}", json!({ "result": result }))
    });
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: rows have the status `waiting` only in a run that waits.
    #[test]
    fn begun_steps_of_unfinished_runs_have_the_status_of_the_run() {
        let marked = |status: &str| {
            let begun = json!({"name": "nap", "status": "not_started", "waiting": true});
            let mut document = json!({"status": status, "steps": [begun, {"name": "b", "status": "not_started"}]});
            mark_begun(&mut document);
            document["steps"].take()
        };
        let other = json!({"name": "b", "status": "not_started"});
        for status in ["running", "interrupted"] {
            assert_eq!(marked(status), json!([{"name": "nap", "status": status}, other]));
        }
        assert_eq!(marked("waiting")[0]["waiting"], true);
    }
}
