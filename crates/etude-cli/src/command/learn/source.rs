//! Sources of traces: the runs of the app, and files (1.3).

use std::path::Path;

use etude::Disk;
use etude_learn::Trace;
use etude_models::Redactor;
use serde_json::{Value, json};

use super::export;
use crate::args;
use crate::command::runs::since_ms;
use crate::context::Context;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;

/// Maximum size of a trace file, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// Traces, and the malformed lines.
#[derive(Default)]
pub(super) struct Read {
    pub(super) traces: Vec<Trace>,
    /// Objects `{"file", "line", "message"}`.
    pub(super) malformed: Vec<Value>,
    /// Number of documents read.
    pub(super) count: usize,
}

/// Reads the traces that the command line names; without files, those of the app's runs.
pub(super) fn read(context: &Context, disk: &Disk, options: &args::LearnOptions) -> Result<Read, Problem> {
    let mut read = Read::default();
    // A trace file may come from another machine and contains everything that its agent saw.
    let redactor = context.redactor(disk.root())?;
    for file in &options.traces {
        of_file(file, &redactor, &mut read)?;
    }
    if options.traces.is_empty() || !options.runs.is_empty() {
        of_journal(context, disk, options, &mut read)?;
    }
    Ok(read)
}

fn of_journal(context: &Context, disk: &Disk, options: &args::LearnOptions, read: &mut Read) -> Result<(), Problem> {
    let engine = context.engine(false)?;
    let views = match &options.runs[..] {
        [] => export::views(&*engine, disk, options.since.map(since_ms))?,
        ids => export::named(context, &*engine, ids)?,
    };
    let (tools, _) = etude_spec::tool::load(disk);
    let redactor = context.redactor(disk.root())?;
    for view in views {
        let line = redactor.redact_value(export::line(&*engine, &view, &tools)?);
        if !options.dry_run {
            let events = line["events"].as_array().into_iter().flatten();
            let called = events.filter_map(|event| event["tool"].as_str()).collect();
            block_on(etude_evidence::servers::note_available(&*engine, disk.root(), &view, &called))?
                .map_err(|error| of_engine(&error))?;
        }
        let mut trace = Trace::from_json(&line)
            .map_err(|why| Problem::environment(format!("the trace of run `{}` cannot be read: {why}", view.row.id)))?;
        let ms = |at: i64| u64::try_from(at).unwrap_or(0);
        trace.span_ms = Some((ms(view.row.created_at_ms), ms(view.row.changed_at_ms)));
        read.traces.push(trace);
        read.count += 1;
    }
    Ok(())
}

/// Reads the traces of a file: one a line, or one ATIF trajectory.
fn of_file(path: &Path, redactor: &Redactor, read: &mut Read) -> Result<(), Problem> {
    let name = path.display().to_string();
    let unreadable = |why: String| {
        Problem::usage(format!("the trace file `{name}` cannot be read: {why}"))
            .hint("a trace file has one JSON object per line, as `etude learn export` prints it")
    };
    let length = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
    if !length.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    if length.len() > MAX_FILE {
        return Err(unreadable(format!("it has {} bytes; at most {MAX_FILE} are read", length.len())));
    }
    let bytes = std::fs::read(path).map_err(|e| unreadable(e.to_string()))?;
    if let Ok(document) = serde_json::from_slice::<Value>(&bytes)
        && document["schema_version"].as_str().is_some_and(|version| version.starts_with("ATIF"))
    {
        let document = redactor.redact_value(document);
        add(Trace::from_atif(&document).map_err(|why| why.to_string()), &name, 1, read);
        return Ok(());
    }
    for (n, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let trace = serde_json::from_slice::<Value>(line).map_err(|e| format!("the line is not JSON: {e}"));
        let trace = trace
            .and_then(|document| Trace::from_json(&redactor.redact_value(document)).map_err(|why| why.to_string()));
        add(trace, &name, n + 1, read);
    }
    Ok(())
}

fn add(trace: Result<Trace, String>, file: &str, line: usize, read: &mut Read) {
    read.count += 1;
    match trace {
        Ok(trace) => read.traces.push(trace),
        Err(message) => read.malformed.push(json!({"file": file, "line": line, "message": message})),
    }
}

#[cfg(test)]
mod tests {
    use etude_models::Secret;

    use super::*;

    /// L-32: a key of this machine in a trace file is not learned.
    #[test]
    fn keys_in_trace_files_are_redacted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("traces.jsonl");
        let line = json!({"trace": 1, "run": "a", "request": "use sk-live-0123456789", "events": []});
        std::fs::write(&path, format!("{line}\n")).expect("written");
        let mut read = Read::default();
        let redactor = Redactor::new([Secret::new("sk-live-0123456789")].iter());
        of_file(&path, &redactor, &mut read).expect("read");
        assert!(!read.traces[0].request.contains("0123456789"), "{}", read.traces[0].request);
    }
}
