//! The last step of a conversion: writes the app completely or not at all (L-84, L-90).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use etude_convert::compile::Compiled;
use etude_convert::report::{self, LeftOut};
use serde_json::{Value, json};

use super::step::Facts;
use crate::problem::Problem;

/// Name of the report of a conversion, beside the skill.
pub(super) const REPORT: &str = "CONVERSION.md";

/// True if a folder is missing or empty.
pub(crate) fn is_free(out: &Path) -> bool {
    match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(out).is_err(),
    }
}

/// Writes the app if there is a pipeline. Returns the document of the conversion without run and usage.
pub(super) fn write(facts: &Facts) -> Result<Value, Problem> {
    let none = Value::Null;
    let verified = facts.verified().unwrap_or(&none);
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let sound = list(&verified["pipelines"]);
    let compiled: Vec<(Compiled, usize)> = sound.iter().map(compiled).collect();
    let left_out: Vec<LeftOut> = list(&verified["left_out"]).iter().map(left_out).collect();
    let pipelines: Vec<&Compiled> = compiled.iter().map(|(pipeline, _)| pipeline).collect();
    let statements = &facts.skill.statements;
    let fates = report::fates(statements, &facts.labels, &pipelines);
    let out = facts.given["input"]["out"].as_str().unwrap_or_default();
    let reason = match (sound.is_empty(), facts.drafts.is_empty()) {
        (false, _) => Value::Null,
        (true, true) => json!("the skill has no main path: no pipeline was drafted"),
        (true, false) => json!("no drafted pipeline could be verified"),
    };
    if !sound.is_empty() {
        let with_cases: Vec<(&Compiled, usize)> = compiled.iter().map(|(pipeline, cases)| (pipeline, *cases)).collect();
        let text = report::markdown(statements, &facts.labels, &fates, &with_cases, &left_out);
        put(facts, Path::new(out), &sound, &text)?;
    }
    let row = |pipeline: &&Compiled| {
        let ids: BTreeSet<&u32> = pipeline.enforced.keys().chain(pipeline.asked.keys()).collect();
        json!({"name": pipeline.name, "statements": ids})
    };
    let left_out = left_out.iter().map(|left| json!({"pipeline": left.pipeline, "reason": left.reason}));
    Ok(json!({
        "out": (!sound.is_empty()).then_some(out),
        "pipelines": pipelines.iter().map(row).collect::<Vec<_>>(),
        "statements": report::rows(statements, &facts.labels, &fates),
        "cases": verified.get("cases").cloned().unwrap_or_else(|| json!({"passed": 0, "failed": 0, "skipped": 0})),
        "left_out": left_out.collect::<Vec<_>>(), "reason": reason,
    }))
}

/// Parses a verified pipeline and its number of cases; its files stay in the document.
fn compiled(value: &Value) -> (Compiled, usize) {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let steps = |name: &str| -> BTreeMap<u32, String> {
        let pair = |pair: &Value| Some((u32::try_from(pair[0].as_u64()?).ok()?, pair[1].as_str()?.to_owned()));
        value[name].as_array().into_iter().flatten().filter_map(pair).collect()
    };
    let compiled = Compiled {
        name: text("name"),
        description: text("description"),
        words: text("words"),
        files: Vec::new(),
        enforced: steps("enforced"),
        asked: steps("asked"),
        required: BTreeSet::new(),
        questions: Vec::new(),
        ends_with_judgement: false,
    };
    (compiled, value["cases"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
}

fn left_out(value: &Value) -> LeftOut {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    LeftOut { pipeline: text("pipeline"), reason: text("reason") }
}

/// Writes all files beside the output folder, then renames it. A repeated step finds its earlier result.
fn put(facts: &Facts, out: &Path, pipelines: &[Value], report: &str) -> Result<(), Problem> {
    let broken = |e: io::Error| Problem::environment(format!("`{}` cannot be written: {e}", out.display()));
    if !is_free(out) {
        let is_own = fs::read_to_string(out.join(REPORT)).is_ok_and(|there| there == report);
        return match is_own {
            true => Ok(()),
            false => Err(Problem::environment(format!("`{}` is no longer empty", out.display()))
                .hint("remove it, then resume the run")),
        };
    }
    let written = whole(out, &facts.snapshot.digest()[..12], |staging| {
        facts.snapshot.copy(staging)?;
        new_file(&staging.join(REPORT), report)?;
        for file in pipelines.iter().filter_map(|pipeline| pipeline["files"].as_array()).flatten() {
            let path = file["path"].as_str().unwrap_or_default();
            new_file(&staging.join(path), file["text"].as_str().unwrap_or_default())?;
        }
        Ok(true)
    });
    written.map_err(broken)
}

/// Lets `work` fill a folder beside `out`, and renames it to `out` if `work` returns true. Otherwise nothing remains.
pub(crate) fn whole(out: &Path, mark: &str, work: impl FnOnce(&Path) -> io::Result<bool>) -> io::Result<()> {
    let name = out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let staging = out.with_file_name(format!(".{name}.{mark}"));
    drop(fs::remove_dir_all(&staging));
    let renamed = fs::create_dir(&staging).and_then(|()| match work(&staging)? {
        true => {
            if out.exists() {
                fs::remove_dir(out)?;
            }
            fs::rename(&staging, out)
        }
        false => fs::remove_dir_all(&staging),
    });
    if renamed.is_err() {
        drop(fs::remove_dir_all(&staging));
    }
    renamed
}

/// Writes a file that must not exist, so that no file of the skill is replaced.
pub(crate) fn new_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::File::create_new(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}
