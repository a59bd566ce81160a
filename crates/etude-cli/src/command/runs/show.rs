//! `etude runs show` and `etude runs export`: everything that the journal knows about a run.

use std::fmt::Write;
use std::sync::Arc;

use etude::clock;
use etude::inspect::{self, Stream};
use etude::runtime::engine::{Engine, RunView};
use etude::target::Target;
use etude::trace;
use serde_json::{Value, json};

use super::{definition_of, document_of, pinned, row_json, status};
use crate::args::{self, Format};
use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::render::stopped::of_engine;
use crate::render::summary::quoted;
use crate::render::text::harmless;
use crate::stdout;

pub(crate) fn show(context: &Context, args: &args::RunsShow) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let view = engine.view(&args.id).map_err(|e| of_engine(&e))?;
    if let Some(name) = &args.stream {
        return stream(context, &engine, &view, name);
    }
    if context.is_json() {
        return json_document(&*engine, &view);
    }
    stdout::text(&text(&*engine, &view));
    Ok(Exit::Done)
}

/// The result document, plus the input and where each step's streams are.
fn json_document(engine: &dyn Engine, view: &RunView) -> Result<Exit, Problem> {
    let effects = inspect::effects(view, &*engine.blobs());
    let extra = json!({
        "started_at": clock::rfc3339(view.row.created_at_ms),
        "changed_at": clock::rfc3339(view.row.changed_at_ms),
        "app": view.row.app,
        "input": inspect::input(view, &*engine.blobs()).and_then(|i| i.value().ok()),
        "routing": inspect::routing(view, &*engine.blobs()),
        "definition": pinned(&view.records),
        "calls": trace::of(view, &*engine.blobs()).iter().map(trace::Call::to_json).collect::<Vec<_>>(),
        "effects": effects.iter().map(|effect| effect.to_json(&view.row.id)).collect::<Vec<_>>(),
    });
    let document = match &view.result {
        Some(_) => {
            let document = document_of(engine, view)?;
            let mut bytes = Vec::new();
            document.write(&mut bytes).map_err(|e| {
                Problem::environment(format!("the output of run `{}` cannot be read: {e}", view.row.id))
                    .hint(format!("its steps and what they printed: etude runs show {}", view.row.id))
            })?;
            String::from_utf8(bytes).unwrap_or_default()
        }
        None => json!({
            "run_id": view.row.id, "status": status(&view.row), "mode": Target::parse(&view.row.target).mode(),
            "pipeline": Target::parse(&view.row.target).pipeline(), "output": null,
            "errors": [], "steps": [], "usage": Value::Null, "duration_ms": view.row.changed_at_ms - view.row.created_at_ms,
        })
        .to_string(),
    };
    // The document may hold a large output: it is not parsed to add to it.
    let extra = extra.to_string();
    let open = document.trim_end().strip_suffix('}').unwrap_or_default();
    stdout::documents(|out| writeln!(out, "{open},{}", &extra[1..]));
    Ok(Exit::Done)
}

fn text(engine: &dyn Engine, view: &RunView) -> String {
    let mut out = String::new();
    let row = &view.row;
    let _ = writeln!(out, "run       {}\npipeline  {}\nstatus    {}", row.id, row.target, status(row));
    let _ = writeln!(
        out,
        "app       {}\nstarted   {}\nchanged   {}",
        row.app,
        clock::local(row.created_at_ms),
        clock::local(row.changed_at_ms)
    );
    if let Some(input) = inspect::input(view, &*engine.blobs()).and_then(|i| i.text().ok()) {
        let short: String = input.chars().take(2000).collect();
        let _ = writeln!(out, "input     {}", harmless(&short));
    }
    if let Some(routing) = inspect::routing(view, &*engine.blobs()) {
        routing_text(&mut out, &routing);
    }
    let effects = inspect::effects(view, &*engine.blobs());
    if !effects.is_empty() {
        let _ = writeln!(out, "\neffects, in the order in which they ended:");
    }
    for effect in &effects {
        let again = if effect.is_done_again { " (done again)" } else { "" };
        let _ = writeln!(out, "  {}  {}{again}", effect.id, harmless(&effect.summary));
        for stream in &effect.streams {
            let _ = writeln!(
                out,
                "      etude runs show {} --stream {}/{}",
                &row.id[..6.min(row.id.len())],
                effect.id,
                stream.word()
            );
        }
    }
    if let Ok(document) = document_of(engine, view) {
        for gate in &document.waiting {
            let word = |of: &Value| harmless(of.as_str().unwrap_or_default());
            let id = quoted(&word(&gate["id"]));
            let _ = writeln!(out, "\nwaits for {}: {}", word(&gate["kind"]), word(&gate["payload"]["message"]));
            let _ = writeln!(out, "      etude approve {id}\n      etude deny {id}");
        }
        for error in document.members.get("errors").and_then(Value::as_array).into_iter().flatten() {
            let _ = writeln!(
                out,
                "\nerror[{}]: {}",
                error["code"].as_str().unwrap_or_default(),
                harmless(error["message"].as_str().unwrap_or_default())
            );
        }
    }
    out
}

/// How a request came to the run, in a few lines; prompts and answers are in the document.
fn routing_text(out: &mut String, routing: &Value) {
    let word = |of: &Value| harmless(of.as_str().unwrap_or_default());
    let _ = writeln!(out, "request   {}", word(&routing["request"]));
    if let Some(mode) = routing["decision"]["mode"].as_str() {
        let _ =
            writeln!(out, "routed    by {mode} with score {:.2}", routing["decision"]["score"].as_f64().unwrap_or(0.0));
    }
    for (name, source) in routing["sources"].as_object().into_iter().flatten() {
        let text = source["text"].as_str().map(|text| format!(": \"{}\"", harmless(text))).unwrap_or_default();
        let _ = writeln!(out, "          {} from {}{text}", harmless(name), word(&source["from"]));
    }
    for call in routing["calls"].as_array().into_iter().flatten() {
        let took = etude::core::report::duration(call["duration_ms"].as_u64().unwrap_or(0));
        let end = match call["answer"].as_str() {
            Some(answer) => format!("answered after {took}: {}", harmless(answer)),
            None => format!("no answer after {took}: {}", word(&call["error"])),
        };
        let _ = writeln!(out, "          model call for {}: {} {end}", word(&call["purpose"]), word(&call["model"]));
    }
}

fn stream(context: &Context, engine: &Arc<dyn Engine>, view: &RunView, name: &str) -> Result<Exit, Problem> {
    let usage = || {
        Problem::usage(format!("`{name}` names no stream of run `{}`", view.row.id))
            .hint(format!("list them with `etude runs show {}`", view.row.id))
    };
    let (effect, word) = name.rsplit_once('/').ok_or_else(usage)?;
    let stream = Stream::from_word(word).ok_or_else(usage)?;
    let bytes = match stream {
        Stream::Stdin => {
            let (_, definition) = definition_of(context, &view.run.app, &view.run.target).map_err(|_| {
                Problem::environment("stdin is made again from the definition, which no longer holds")
                    .hint("etude check")
            })?;
            inspect::stdin(view, &definition, effect, &engine.blobs())
        }
        stream => inspect::read(view, effect, stream, &*engine.blobs()),
    };
    let bytes = bytes.map_err(Problem::environment)?.ok_or_else(usage)?;
    stdout::with(|out| out.write_all(&bytes));
    Ok(Exit::Done)
}

/// Everything about a run: the run, its records, its signals, its result. A line for each, or with `--format json` one
/// document of all.
pub(crate) fn export(context: &Context, id: &str) -> Result<Exit, Problem> {
    let engine = context.engine(false)?;
    let view = engine.view(id).map_err(|e| of_engine(&e))?;
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    let mut row = row_json(&view.row);
    row["header"] = parsed(&view.run.header);
    row["abi"] = view.run.abi.into();
    let records = view.records.iter().map(|record| {
        let blobs: Vec<String> = record.blobs.iter().map(ToString::to_string).collect();
        json!({"key": record.key, "request": record.request.to_string(), "body": parsed(&record.body), "blobs": blobs})
    });
    let calls = trace::of(&view, &*engine.blobs());
    let calls = calls.iter().map(trace::Call::to_json);
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
