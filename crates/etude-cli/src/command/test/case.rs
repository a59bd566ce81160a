//! Test files of `etude test`.

use std::sync::Arc;

use etude::Disk;
use etude_core::data::Json;
use etude_core::exact::Literal;
use etude_evidence::rehearsal::{Recorded as RecordedCall, RehearsedCall};
use etude_runs::target::Target;
use etude_spec::Diagnostic;
use etude_spec::discover::{LEARNED, PIPELINES};
use etude_spec::learned::TESTS;
use etude_spec::source::{Entry, FileKind, ReadFailure, SourceFile, Sources};
use etude_spec::test::DIR;
use indexmap::IndexMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::exit::Exit;
use crate::problem::{Problem, Refused};
use etude_core::failure::FailureKind;

/// One test.
#[derive(Debug)]
pub(super) struct Case {
    /// Name of its file, without the extension.
    pub(super) name: String,
    /// Name of the candidate to run, if its files are in `learned/`.
    pub(super) candidate: Option<String>,
    /// Pipeline or machine to run.
    pub(super) target: Target,
    /// Input object.
    pub(super) input: Json,
    /// Directory of the recordings, relative to the app.
    pub(super) recordings: String,
    /// Expected status.
    pub(super) status: String,
    /// Expected parts of the output, by JSON pointer.
    pub(super) output: Vec<(String, Json)>,
    /// Expected kind of the first failure.
    pub(super) kind: Option<String>,
    /// Digest of the request that a case was learned from.
    pub(super) digest: Option<String>,
    /// Request that the run answers.
    pub(super) request: Option<String>,
    /// Recorded calls and responses; `None` if tools are started.
    pub(super) recorded: Option<Recorded>,
    /// Expected calls that write, in order.
    pub(super) calls: Option<Vec<RehearsedCall>>,
    /// Expected step and reason at which the run leaves its pipeline, `null` if it must not leave; `None` if there is no
    /// expectation.
    pub(super) fell_back: Option<Value>,
}

/// Recorded substitutes for tools and models.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Recorded tool calls.
    pub(super) calls: Vec<RecordedCall>,
    /// Responses of models, by step; `None` if they are in the recordings.
    pub(super) answers: Option<Map<String, Value>>,
}

impl Case {
    /// True for a case of the learned pipeline `name`.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.digest.is_some() && self.target.pipeline() == Some(name)
    }
}

/// Tests of an app, sorted by name.
pub(super) fn find(disk: &Disk) -> Result<Vec<Case>, Refused> {
    let entries = match disk.list(DIR) {
        Ok(entries) => entries,
        Err(ReadFailure::Missing) => Vec::new(),
        Err(failure) => return Err(Problem::environment(format!("`tests` cannot be listed: {failure:?}")).into()),
    };
    read(disk, DIR, names(entries))
}

/// A warning for each file that would be a test if its name ended in `.yaml`.
pub(super) fn misnamed(disk: &Disk) -> Vec<Diagnostic> {
    etude_spec::test::misnamed(&disk.list(DIR).unwrap_or_default())
}

/// Cases of the learned pipeline in `learned/NAME`.
pub(super) fn of_candidate(disk: &Disk, name: &str) -> Result<Vec<Case>, Refused> {
    let dir = format!("{LEARNED}/{name}/{TESTS}");
    some_of_candidate(disk, name, names(disk.list(&dir).unwrap_or_default()))
}

/// Cases of a pipeline that an interrupted promotion has not moved yet.
pub(super) fn read_unmoved(disk: &Disk, name: &str) -> Result<Vec<Case>, Refused> {
    let dir = format!("{PIPELINES}/{name}/{TESTS}");
    read(disk, &dir, names(disk.list(&dir).unwrap_or_default()))
}

/// Reads the named cases of the candidate `name`.
pub(super) fn some_of_candidate(disk: &Disk, name: &str, cases: Vec<String>) -> Result<Vec<Case>, Refused> {
    let mut cases = read(disk, &format!("{LEARNED}/{name}/{TESTS}"), cases)?;
    cases.iter_mut().for_each(|case| case.candidate = Some(name.to_owned()));
    Ok(cases)
}

/// Names of the test files among these entries, without the extension.
fn names(entries: Vec<Entry>) -> Vec<String> {
    let files = entries.into_iter().filter(|entry| matches!(entry.kind, FileKind::File { .. }));
    files.filter_map(|entry| entry.name.strip_suffix(".yaml").map(str::to_owned)).collect()
}

/// Reads the named tests of a directory, sorted by name.
fn read(disk: &Disk, dir: &str, mut names: Vec<String>) -> Result<Vec<Case>, Refused> {
    names.sort();
    let (mut cases, mut faults) = (Vec::new(), Vec::new());
    for name in names {
        match etude_spec::test::read(&open(disk, dir, &name)?, &name) {
            Ok(json) => cases.push(of_json(name, &json)),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(cases) } else { Err(faults.into()) }
}

/// Reads the test of that name in `tests/`.
pub(super) fn one(disk: &Disk, name: &str) -> Result<Case, Refused> {
    let json = etude_spec::test::read(&open(disk, DIR, name)?, name)?;
    Ok(of_json(name.to_owned(), &json))
}

fn open(disk: &Disk, dir: &str, name: &str) -> Result<Arc<SourceFile>, Problem> {
    let path = format!("{dir}/{name}.yaml");
    let wrong =
        |why: String| Problem::new(Exit::Definition, FailureKind::DefinitionInvalid, format!("`{path}`: {why}"));
    let bytes = disk.read(&path, 1024 * 1024).map_err(|e| wrong(format!("it cannot be read: {e:?}")))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    Ok(SourceFile::new(path.as_str(), text))
}

/// Builds a test from a checked value. Numbers of input and expected output keep their digits.
fn of_json(name: String, json: &Json) -> Case {
    let value = &Literal::from_json(json).map(|literal| literal.tree().clone()).unwrap_or_default();
    let text = |from: &Value, field: &str| from.get(field).and_then(Value::as_str).map(str::to_owned);
    let object = |value: Option<&Value>| value.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let expect = object(value.get("expect"));
    Case {
        candidate: None,
        target: match text(value, "machine") {
            Some(machine) => Target::Machine(machine),
            None => Target::Pipeline(text(value, "pipeline").unwrap_or_default()),
        },
        input: member(json, "input").unwrap_or_else(|| Json::trusted("{}")),
        recordings: text(value, "recordings").unwrap_or_else(|| format!("tests/recordings/{name}")),
        status: text(&expect, "status").unwrap_or_else(|| "succeeded".to_owned()),
        output: member(json, "expect").and_then(|expect| member(&expect, "output")).map(members).unwrap_or_default(),
        kind: text(&expect, "error"),
        digest: text(value, "digest"),
        request: text(value, "request"),
        recorded: recorded(value),
        calls: expect["calls"].as_array().map(|calls| calls.iter().map(call).collect()),
        fell_back: expect.get("fell_back").cloned(),
        name,
    }
}

fn members(json: Json) -> Vec<(String, Json)> {
    let members = json.text().ok().and_then(|text| {
        let members: IndexMap<String, &RawValue> = serde_json::from_str(&text).ok()?;
        Some(members.into_iter().map(|(name, raw)| (name, Json::trusted(raw.get()))).collect())
    });
    members.unwrap_or_default()
}

fn member(json: &Json, name: &str) -> Option<Json> {
    members(json.clone()).into_iter().find(|(known, _)| known == name).map(|(_, member)| member)
}

/// Recorded calls and responses of a test that starts no tools.
fn recorded(value: &Value) -> Option<Recorded> {
    let (tools, answers) = (value.get("tools"), value.get("answers"));
    (tools.is_some() || answers.is_some()).then(|| Recorded {
        calls: tools.and_then(Value::as_array).into_iter().flatten().map(RecordedCall::parse).collect(),
        answers: answers.and_then(Value::as_object).cloned(),
    })
}

fn call(value: &Value) -> RehearsedCall {
    let RecordedCall { tool, arguments, .. } = RecordedCall::parse(value);
    RehearsedCall { tool, arguments }
}
