//! `etude learn show NAME`: shows the source of each value of a learned pipeline (1.8).

use etude::Disk;
use etude_evidence::{Row, RowKind, Standing};
use etude_runs::lines;
use etude_spec::discover::{LEARNED, PIPELINE_FILE};
use etude_spec::learned::{self, Located};
use etude_spec::source::{SourceFile, Sources};
use serde_json::{Value, json};

use super::Learnt;
use super::candidates::{self, Files};
use crate::args;
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::stdout;

/// Maximum size of a definition to show, in bytes.
const MAX_SIZE: u64 = 16 << 20;

pub(super) fn show(context: &Context, args: &args::LearnShow) -> Result<Exit, Problem> {
    let learnt = Learnt::open(context)?;
    let standing = standing(&learnt, &args.name)?;
    let diff = if args.diff { Some(diff(&learnt.disk, &standing.located)?) } else { None };
    if context.is_json() {
        stdout::json(&document(&learnt.disk, &standing, diff.as_deref()));
    } else if let Some(diff) = diff {
        stdout::documents(|out| write!(out, "{diff}"));
    } else {
        print(&document(&learnt.disk, &standing, None));
    }
    Ok(Exit::Done)
}

/// The learned pipeline `name`: a promoted one before a candidate that was learned again.
pub(super) fn standing(learnt: &Learnt, name: &str) -> Result<Standing, Problem> {
    let found = learnt.find(name)?;
    let is_promoted = |one: &Standing| one.located.name == name && !one.located.is_candidate();
    Ok(learnt.standings()?.into_iter().find(is_promoted).unwrap_or(found))
}

/// Comparisons with agents, newest first (1.8).
fn comparisons(standing: &Standing) -> Vec<Value> {
    let rows = standing.rows.iter().filter(|row| row.kind == RowKind::Shadow);
    let document = |row: &Row| {
        json!({
            "run": row.run, "kind": row.verdict.word(), "reason": row.reason, "agent": row.calls["agent"],
            "pipeline": row.calls["pipeline"],
        })
    };
    rows.map(document).collect()
}

/// Sources of its values, and its comparisons with agents.
pub(super) fn document(disk: &Disk, standing: &Standing, diff: Option<&str>) -> Value {
    let located = &standing.located;
    let learned = located.learned.as_ref();
    let of_file = learned.map(|learned| learned.document.clone()).unwrap_or_default();
    let list = |name: &str| of_file.get(name).filter(|list| list.is_array()).cloned().unwrap_or_else(|| json!([]));
    json!({
        "name": located.name, "family": learned.map(|learned| learned.family.as_str()),
        "state": standing.state.map(|state| state.word()), "path": located.dir(),
        "definition": definition(disk, located), "diff": diff, "bindings": list("bindings"), "holes": list("holes"),
        "guards": list("guards"), "eligibility": eligibility(&of_file["eligibility"]), "covers": list("covers"),
        "not_covered": list("not_covered"), "comparisons": comparisons(standing),
    })
}

/// `pipeline.yaml` as JSON; `null` if it cannot be read.
pub(super) fn definition(disk: &Disk, located: &Located) -> Value {
    json_of(disk, &format!("{}/{PIPELINE_FILE}", located.dir()))
}

/// A YAML file of the app as JSON; `null` if it cannot be read.
pub(super) fn json_of(disk: &Disk, path: &str) -> Value {
    let text = disk.read(path, MAX_SIZE).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let json = text.and_then(|text| {
        let file = SourceFile::new(path, text);
        let (root, _) = etude_spec::yaml::parse(&file);
        root?.to_json().ok()
    });
    json.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Object with `kind` (`asked` or `trusted`) and `reason`.
fn eligibility(value: &Value) -> Value {
    let (kind, reason) = match value {
        Value::Object(members) => match members.get("trusted") {
            Some(reason) => ("trusted", reason.clone()),
            None => (members.get("kind").and_then(Value::as_str).unwrap_or("asked"), value["reason"].clone()),
        },
        Value::String(word) => (word.as_str(), Value::Null),
        _ => ("asked", Value::Null),
    };
    json!({"kind": kind, "reason": reason})
}

/// Differences from the current files to the last learning result.
fn diff(disk: &Disk, located: &Located) -> Result<String, Problem> {
    let current = definition_files(candidates::files(disk, &located.dir()));
    let pending = Disk::open(&candidates::pending(disk, &located.name)?).ok();
    let pending = pending.map_or_else(Default::default, |pending| definition_files(candidates::files(&pending, "")));
    let candidate = definition_files(candidates::files(disk, &format!("{LEARNED}/{}", located.name)));
    let last = [pending, candidate].into_iter().find(|files| !files.is_empty()).unwrap_or_else(|| current.clone());
    let mut paths: Vec<&String> = current.keys().chain(last.keys()).collect();
    paths.sort();
    paths.dedup();
    let of = |files: &Files, path: &str| files.get(path).cloned().unwrap_or_default();
    let diffs = paths.into_iter().map(|path| {
        let (before, after) = (of(&current, path), of(&last, path));
        if before == after {
            return String::new();
        }
        let (from, to) = (format!("{}/{path}", located.dir()), format!("learned again/{path}"));
        lines::unified(&before, &after, [&from, &to], 3)
    });
    Ok(diffs.collect())
}

/// Files that decide the behaviour of the pipeline.
fn definition_files(files: Files) -> Files {
    let is_definition = |path: &str| {
        path != learned::FILE && path != learned::REPORT && !path.starts_with(&format!("{}/", learned::TESTS))
    };
    files.into_iter().filter(|(path, _)| is_definition(path)).collect()
}

/// Human-readable form of the document.
fn print(document: &Value) {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let text =
        |value: &Value| crate::render::text::harmless(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    stdout::documents(|out| {
        writeln!(out, "{}  {}  {}", text(&document["name"]), text(&document["state"]), text(&document["path"]))?;
        for row in list("bindings") {
            let (step, argument, expression) = (text(&row["step"]), text(&row["argument"]), text(&row["expression"]));
            let (held, of, why) = (&row["held"], &row["of"], text(&row["why"]));
            writeln!(out, "  {step}{argument} = {expression}  {} ({held} of {of}, {why})", text(&row["source"]))?;
            for other in row["alternatives"].as_array().into_iter().flatten() {
                writeln!(out, "      also matched: {}", text(other))?;
            }
        }
        for row in list("holes") {
            let set = if row["set"].is_null() {
                "no closed set of values: the run deviates here".to_owned()
            } else {
                text(&row["set"])
            };
            writeln!(out, "  asks {}{}: {set}", text(&row["step"]), text(&row["argument"]))?;
        }
        for row in list("guards") {
            let (step, condition) = (text(&row["step"]), text(&row["condition"]));
            writeln!(out, "  {step} requires {condition}, violated in {} other runs", row["violated"])?;
        }
        writeln!(out, "covers {} requests, {} not", list("covers").len(), list("not_covered").len())?;
        Ok(())
    });
}
