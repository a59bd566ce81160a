//! `etude import`: turns definitions of other programs into an app, and lists everything that does not map.

mod gather;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etude::Disk;
use etude_convert::import::{Finding, ImportKind, Imported, import as imported_of};
use etude_spec::App;
use etude_spec::discover::PIPELINES;
use etude_spec::stage_machine::MACHINES;
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
            if exit == Exit::Failed && !context.is_json() {
                crate::render::say!("error: nothing could be imported, so no app was written");
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
        None if is_of_etude(&root) => return Err(of_etude(&args.path)),
        None => {
            let words = ImportKind::ALL.map(ImportKind::word);
            return Err(Problem::usage(format!("it is not clear which program `{shown}` is for"))
                .hint(format!("name it: `--from KIND` with one of {}", words.join(", "))));
        }
    };
    let mut imported = imported_of(kind, &gathered.sources_of(kind));
    let of_importer = std::mem::take(&mut imported.not_imported);
    imported.not_imported = gathered.findings.iter().cloned().chain(of_importer).collect();
    let is_written = !imported.pipelines.is_empty() && write(&gathered, &mut imported, &out)?;
    if !is_written && kind.folder().is_none() && is_of_etude(&root) {
        return Err(of_etude(&args.path));
    }
    let finding = |finding: &Finding| json!({"file": finding.file, "line": finding.line, "what": finding.what, "reason": finding.reason});
    let pipelines = imported.pipelines.iter();
    let pipelines = pipelines.map(|row| json!({"name": row.name, "source": row.source, "steps": row.steps}));
    let document = json!({
        "out": is_written.then(|| out.display().to_string()), "kind": kind.word(), "pipelines": pipelines.collect::<Vec<_>>(),
        "skills": imported.skills, "not_imported": imported.not_imported.iter().map(finding).collect::<Vec<_>>(),
    });
    Ok((document, if is_written { Exit::Done } else { Exit::Failed }))
}

/// True for an app of etude, and for a path among its definitions. Files of other programs may be elsewhere in an app.
fn is_of_etude(root: &Path) -> bool {
    if root.is_dir() && etude::app::is_app(root) {
        return true;
    }
    let Some(app) = root.parent().and_then(etude::app::find) else { return false };
    [PIPELINES, MACHINES].iter().any(|dir| root.starts_with(app.join(dir)))
}

/// Problem of an import without a result, because the files are etude's own.
fn of_etude(path: &Path) -> Problem {
    let shown = path.display();
    let problem = match path.is_dir() && etude::app::is_app(path) {
        true => Problem::usage(format!("`{shown}` is already an app of etude")),
        false => Problem::usage(format!("`{shown}` is already part of an app of etude")),
    };
    problem
        .hint("list its pipelines and machines: etude list")
        .hint("to import files of another program from it, name their folder or file")
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

#[cfg(test)]
mod tests {
    use super::*;

    const PIPELINE: &str =
        "name: hello\ndescription: d\ntriggers: [hello]\nsteps:\n  - {name: greet, type: code, run: {script: a.py}}\n";
    const WORKFLOW: &str = "steps:\n  - name: greet\n    action: http.request\n";

    /// cli: an import of an app of etude, or of its definitions, says what they are. Files of other programs in it are read.
    #[test]
    fn an_app_of_etude_is_named_as_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        for (path, text) in [("app/pipelines/hello/pipeline.yaml", PIPELINE), ("app/dags/other.yaml", WORKFLOW)] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("created");
            fs::write(path, text).expect("written");
        }
        let import = |path: &str| {
            imported(&args::Import { path: root.join(path), from: None, out: Some(root.join("out")) })
                .map(|(document, _)| document)
                .map_err(|problem| problem.message())
        };
        let message = import("app").expect_err("it is an app of etude");
        assert!(message.ends_with("/app` is already an app of etude"), "{message}");
        for path in ["app/pipelines", "app/pipelines/hello", "app/pipelines/hello/pipeline.yaml"] {
            let message = import(path).expect_err("it is part of an app");
            assert!(message.ends_with("` is already part of an app of etude"), "{message}");
        }
        let listed = import("app/dags/other.yaml").map(|document| document["not_imported"].clone());
        assert!(listed.as_ref().is_ok_and(|all| all.as_array().is_some_and(|all| !all.is_empty())), "{listed:?}");
    }
}
