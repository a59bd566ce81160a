//! The files of `etude test`.

use std::sync::Arc;

use etude::disk::Disk;
use etude::target::Target;
use etude_spec::source::{FileKind, ReadFailure, SourceFile, Sources};
use serde_json::{Map, Value};

use crate::context::{Problem, Refused};
use crate::exit::Exit;
use etude_core::failure::FailureKind;

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
pub(super) fn find(disk: &Disk) -> Result<Vec<Case>, Refused> {
    let entries = match disk.list("tests") {
        Ok(entries) => entries,
        Err(ReadFailure::Missing) => Vec::new(),
        Err(failure) => return Err(Problem::environment(format!("`tests` cannot be listed: {failure:?}")).into()),
    };
    let mut names: Vec<String> = entries
        .into_iter()
        .filter(|entry| matches!(entry.kind, FileKind::File { .. }))
        .filter_map(|entry| entry.name.strip_suffix(".yaml").map(str::to_owned))
        .collect();
    names.sort();
    let (mut cases, mut faults) = (Vec::new(), Vec::new());
    for name in names {
        match etude_spec::test::read(&open(disk, &name)?, &name) {
            Ok(value) => cases.push(of_value(name, &value)),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(cases) } else { Err(faults.into()) }
}

fn open(disk: &Disk, name: &str) -> Result<Arc<SourceFile>, Problem> {
    let path = format!("tests/{name}.yaml");
    let wrong =
        |why: String| Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, format!("`{path}`: {why}"));
    let bytes = disk.read(&path, 1024 * 1024).map_err(|e| wrong(format!("it cannot be read: {e:?}")))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    Ok(SourceFile::new(path.as_str(), text))
}

/// The test that a checked value describes.
fn of_value(name: String, value: &Value) -> Case {
    let text = |from: &Value, field: &str| from.get(field).and_then(Value::as_str).map(str::to_owned);
    let object = |value: Option<&Value>| value.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let expect = object(value.get("expect"));
    Case {
        target: match text(value, "machine") {
            Some(machine) => Target::Machine(machine),
            None => Target::Pipeline(text(value, "pipeline").unwrap_or_default()),
        },
        input: object(value.get("input")),
        recordings: text(value, "recordings").unwrap_or_else(|| format!("tests/recordings/{name}")),
        status: text(&expect, "status").unwrap_or_else(|| "succeeded".to_owned()),
        output: expect.get("output").and_then(Value::as_object).cloned().unwrap_or_default(),
        kind: text(&expect, "error"),
        name,
    }
}
