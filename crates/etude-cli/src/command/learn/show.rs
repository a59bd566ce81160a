//! `etude learn show NAME`: shows the source of each value of a learned pipeline (1.8).

use etude::Disk;
use etude_core::data::bare;
use etude_core::exact::same;
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
use crate::render::text::harmless;
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
    let text = |value: &Value| harmless(&bare(value));
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
        compared(&list("comparisons")).iter().try_for_each(|line| writeln!(out, "{}", harmless(line)))
    });
}

/// Comparisons with agents as lines: their number by verdict, then those that did not agree, disagreements first.
fn compared(comparisons: &[Value]) -> Vec<String> {
    let of = |kind: &'static str| comparisons.iter().filter(move |row| row["kind"] == kind);
    let count = |kind| of(kind).count();
    if comparisons.is_empty() {
        return Vec::new();
    }
    let (agreed, fell_back, disagreed) = (count("agreed"), count("fell_back"), count("disagreed"));
    let all = comparisons.len();
    let mut lines = vec![format!(
        "compared with an agent in {all} runs: {agreed} agreed, {fell_back} fell back, {disagreed} disagreed"
    )];
    for row in of("disagreed").chain(of("fell_back")) {
        let word = |member: &str| row[member].as_str().unwrap_or_default().replace('_', " ");
        let reason = if row["reason"].is_string() { format!(": {}", word("reason")) } else { String::new() };
        lines.push(format!("  {} in run {}{reason}", word("kind"), row["run"].as_str().unwrap_or_default()));
        if row["kind"] == "disagreed" {
            lines.extend(writes(&row["agent"], &row["pipeline"]));
        }
    }
    lines
}

/// The writes of an agent and of a pipeline, and the arguments in which they differ.
fn writes(agent: &Value, pipeline: &Value) -> Vec<String> {
    let list = |side: &Value| side.as_array().cloned().unwrap_or_default();
    let (agent, pipeline) = (list(agent), list(pipeline));
    let side = |name: &str, calls: &[Value]| {
        let call = |call: &Value| format!("{} {}", call["tool"].as_str().unwrap_or_default(), call["arguments"]);
        let shown: Vec<String> = match calls {
            [] => vec!["no write".to_owned()],
            calls => calls.iter().map(call).collect(),
        };
        shown.into_iter().map(|call| format!("      {name} {call}")).collect::<Vec<_>>()
    };
    let mut lines = [side("agent:   ", &agent), side("pipeline:", &pipeline)].concat();
    for (one, other) in agent.iter().zip(&pipeline).filter(|(one, other)| one["tool"] == other["tool"]) {
        let (Some(a), Some(b)) = (one["arguments"].as_object(), other["arguments"].as_object()) else { continue };
        let is_same = |name: &&String| matches!((a.get(*name), b.get(*name)), (Some(a), Some(b)) if same(a, b));
        let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
        let names: Vec<String> = names.filter(|name| !is_same(name)).map(|name| format!("`{name}`")).collect();
        if !names.is_empty() {
            lines.push(format!("      differ in {}", names.join(", ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1.8: a person reads how often shadows agreed, and where a disagreement differs.
    #[test]
    fn comparisons_are_shown_with_their_differences() {
        let call = |id: &str| json!([{"tool": "cancel", "arguments": {"id": id, "n": 1}}]);
        let row = |run: &str, kind: &str, reason: Value, pipeline: Value| json!({"run": run, "kind": kind, "reason": reason, "agent": call("A-1"), "pipeline": pipeline});
        let rows = [
            row("r3", "agreed", Value::Null, call("A-1")),
            row("r2", "fell_back", "no_match".into(), json!([])),
            row("r1", "disagreed", Value::Null, call("A-2")),
            row("r0", "disagreed", Value::Null, json!([])),
        ];
        let expected = [
            "compared with an agent in 4 runs: 1 agreed, 1 fell back, 2 disagreed",
            "  disagreed in run r1",
            r#"      agent:    cancel {"id":"A-1","n":1}"#,
            r#"      pipeline: cancel {"id":"A-2","n":1}"#,
            "      differ in `id`",
            "  disagreed in run r0",
            r#"      agent:    cancel {"id":"A-1","n":1}"#,
            "      pipeline: no write",
            "  fell back in run r2: no match",
        ];
        assert_eq!(compared(&rows), expected);
        assert!(compared(&[]).is_empty());
    }
}
