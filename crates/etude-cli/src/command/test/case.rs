//! The files of `etude test`.

use etude::disk::Disk;
use etude::spec::source::{FileKind, ReadFailure, SourceFile, Sources};
use etude::spec::{Diagnostic, render, yaml};
use etude::target::Target;
use serde_json::{Map, Value};

use crate::context::Problem;
use crate::exit::Exit;
use etude::core::failure::Kind;

/// One test.
#[derive(Debug)]
pub(super) struct Case {
    /// Its file's name, without the ending.
    pub(super) name: String,
    /// What is run: a pipeline, or a machine.
    pub(super) target: Target,
    /// The input object.
    pub(super) input: Value,
    /// Directory of the recordings, relative to the app.
    pub(super) recordings: String,
    /// The expected status.
    pub(super) status: String,
    /// Expected parts of the output, by JSON pointer.
    pub(super) output: Map<String, Value>,
    /// The expected kind of the first failure.
    pub(super) kind: Option<String>,
}

/// The tests of an app, in the order of their names.
pub(super) fn find(disk: &Disk) -> Result<Vec<Case>, Problem> {
    let entries = match disk.list("tests") {
        Ok(entries) => entries,
        Err(ReadFailure::Missing) => Vec::new(),
        Err(failure) => return Err(Problem::environment(format!("`tests` cannot be listed: {failure:?}"))),
    };
    let mut names: Vec<String> = entries
        .into_iter()
        .filter(|entry| matches!(entry.kind, FileKind::File { .. }))
        .filter_map(|entry| entry.name.strip_suffix(".yaml").map(str::to_owned))
        .collect();
    names.sort();
    names.into_iter().map(|name| read(disk, name)).collect()
}

fn read(disk: &Disk, name: String) -> Result<Case, Problem> {
    let path = format!("tests/{name}.yaml");
    let wrong = |why: String| Problem::new(Exit::Definition, Kind::DefinitionInvalid, format!("`{path}`: {why}"));
    let bytes = disk.read(&path, 1024 * 1024).map_err(|e| wrong(format!("it cannot be read: {e:?}")))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let file = SourceFile::new(path.as_str(), text);
    let (root, diagnostics) = yaml::parse(&file);
    if let Some(diagnostic) = diagnostics.iter().find(|d| Diagnostic::is_error(d)) {
        return Err(wrong(render::text(diagnostic, false)));
    }
    let json = root.map(|root| root.to_json()).transpose().map_err(|_| wrong("a value has no JSON form".to_owned()))?;
    let value: Value = serde_json::from_str(json.as_deref().unwrap_or("null")).unwrap_or_default();
    of_value(name, &value).map_err(wrong)
}

fn of_value(name: String, value: &Value) -> Result<Case, String> {
    let known = ["name", "pipeline", "machine", "input", "recordings", "expect"];
    let object =
        value.as_object().ok_or("a test is a mapping with `pipeline` or `machine`, `input`, `recordings`, `expect`")?;
    if let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown field `{unknown}`; a test has: {}", known.join(", ")));
    }
    let text = |from: &Value, field: &str| from.get(field).and_then(Value::as_str).map(str::to_owned);
    let expect = object.get("expect").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(unknown) = expect
        .as_object()
        .and_then(|e| e.keys().find(|k| !["status", "output", "error"].contains(&k.as_str())).cloned())
    {
        return Err(format!("unknown field `expect.{unknown}`; it has: status, output, error"));
    }
    Ok(Case {
        target: match (text(value, "pipeline"), text(value, "machine")) {
            (Some(pipeline), None) => Target::Pipeline(pipeline),
            (None, Some(machine)) => Target::Machine(machine),
            (None, None) => return Err("`pipeline` is missing".to_owned()),
            (Some(_), Some(_)) => return Err("a test runs a `pipeline` or a `machine`, not both".to_owned()),
        },
        input: object.get("input").cloned().unwrap_or_else(|| Value::Object(Map::new())),
        recordings: text(value, "recordings").unwrap_or_else(|| format!("tests/recordings/{name}")),
        status: text(&expect, "status").unwrap_or_else(|| "succeeded".to_owned()),
        output: expect.get("output").and_then(Value::as_object).cloned().unwrap_or_default(),
        kind: text(&expect, "error"),
        name,
    })
}
