//! `etude import`: turns definitions of other programs into an app, and lists everything that does not map.

mod gather;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude_convert::import::{Finding, Imported, Kind, import as imported_of};
use etude_spec::App;
use serde_json::{Value, json};

use super::convert::write::{is_free, new_file, whole};
use crate::args;
use crate::context::{Context, here};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::harmless;
use crate::stdout;

pub(crate) fn import(context: &Context, args: &args::Import) -> Exit {
    match imported(args) {
        Ok((document, exit)) => {
            match context.is_json() {
                true => stdout::json(&document),
                false => stdout::text(&harmless(&shown(&document))),
            }
            exit
        }
        Err(problem) => context.report(None, &problem),
    }
}

fn imported(args: &args::Import) -> Result<(Value, Exit), Problem> {
    let shown = args.path.display();
    let root = args.path.canonicalize().map_err(|e| {
        let problem = Problem::usage(format!("`{shown}` cannot be opened: {e}"));
        crate::paths::absent(problem, &args.path)
    })?;
    let out = out(args, &root)?;
    let from = args.from.map(args::ImportFrom::kind);
    let gathered = gather::gather(&args.path, &root, from)?;
    let kind = match from.or_else(|| gathered.kind()) {
        Some(kind) => kind,
        None => {
            let words: Vec<&str> = Kind::WORDS.iter().map(|(word, _)| *word).collect();
            return Err(Problem::usage(format!("it is not clear which program `{shown}` is for"))
                .hint(format!("name it: `--from KIND` with one of {}", words.join(", "))));
        }
    };
    let mut imported = imported_of(kind, &gathered.sources_of(kind));
    let of_importer = std::mem::take(&mut imported.not_imported);
    imported.not_imported = gathered.findings.iter().cloned().chain(of_importer).collect();
    let is_written = !imported.pipelines.is_empty() && write(&gathered, &mut imported, &out)?;
    let finding = |finding: &Finding| json!({"file": finding.file, "line": finding.line, "what": finding.what, "reason": finding.reason});
    let pipelines = imported.pipelines.iter();
    let pipelines = pipelines.map(|row| json!({"name": row.name, "source": row.source, "steps": row.steps}));
    let document = json!({
        "out": is_written.then(|| out.display().to_string()), "kind": kind.word(), "pipelines": pipelines.collect::<Vec<_>>(),
        "skills": imported.skills, "not_imported": imported.not_imported.iter().map(finding).collect::<Vec<_>>(),
    });
    Ok((document, if is_written { Exit::Done } else { Exit::Failed }))
}

/// Output folder: empty or missing, and outside of the imported folder.
fn out(args: &args::Import, root: &Path) -> Result<PathBuf, Problem> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => {
            let name = root.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            here()?.join(format!("{}-app", name.trim_start_matches('.')))
        }
    };
    let shown = out.display();
    let out = std::path::absolute(&out).map_err(|e| Problem::usage(format!("`{shown}` is not a path: {e}")))?;
    if !out.parent().is_some_and(Path::is_dir) {
        return Err(Problem::usage(format!("the folder of `{shown}` does not exist"))
            .hint("create it, or choose another `--out`"));
    }
    match is_free(&out) {
        true => Ok(out),
        false => Err(Problem::usage(format!("`{shown}` exists and is not empty"))
            .hint("remove it, or choose another folder: `--out DIR`")),
    }
}

/// Writes the app. A pipeline with errors is left out and listed. Returns false if none remains.
fn write(gathered: &gather::Gathered, imported: &mut Imported, out: &Path) -> Result<bool, Problem> {
    let broken = |e: io::Error| Problem::environment(format!("`{}` cannot be written: {e}", out.display()));
    let mut is_any = true;
    let written = whole(out, &format!("import-{}", std::process::id()), |staging| {
        for file in &imported.files {
            new_file(&staging.join(&file.path), &file.text)?;
        }
        for (from, to) in &imported.copies {
            gathered.copy(from, &staging.join(to))?;
        }
        let disk = Disk::open(staging)?;
        let report = App::new(&disk).check(&[]);
        for name in &report.broken {
            fs::remove_dir_all(staging.join("pipelines").join(name))?;
            let place = format!("pipelines/{name}/");
            let error = report.diagnostics.iter().find(|d| d.is_error() && d.file.path().starts_with(&place));
            let reason = error.map(|error| error.message.clone()).unwrap_or_default();
            let row =
                imported.pipelines.iter().position(|row| row.name == *name).map(|at| imported.pipelines.remove(at));
            let file = row.map(|row| row.source).unwrap_or_default();
            imported.not_imported.push(Finding { file, line: 1, what: format!("pipeline `{name}`"), reason });
        }
        is_any = !imported.pipelines.is_empty();
        Ok(is_any)
    });
    written.map_err(broken)?;
    Ok(is_any)
}

/// Human-readable form of the document.
fn shown(document: &Value) -> String {
    let mut text = String::new();
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(out) = document["out"].as_str() {
        let near = here().ok().and_then(|here| Path::new(out).strip_prefix(here).ok().map(Path::to_owned));
        text.push_str(&format!("app: {}\n", near.unwrap_or_else(|| out.into()).display()));
    }
    for row in list("pipelines") {
        let steps = if row["steps"] == 1 { "step" } else { "steps" };
        let (name, source) = (word(&row["name"]), word(&row["source"]));
        text.push_str(&format!("pipeline: {name} ({source}, {} {steps})\n", row["steps"]));
    }
    for skill in list("skills") {
        text.push_str(&format!("skill: {}\n", word(&skill)));
    }
    for row in list("not_imported") {
        let place = format!("{}:{}", word(&row["file"]), row["line"]);
        text.push_str(&format!("not imported: {place}: {}: {}\n", word(&row["what"]), word(&row["reason"])));
    }
    text
}
