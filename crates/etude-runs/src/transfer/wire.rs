//! The forms of an export: its manifest, and the lines of a run. Headers, records, signals and results are texts of the
//! journal, byte for byte.

use std::borrow::Cow;
use std::collections::BTreeMap;

use etude_core::digest::Digest;
use etude_core::tree;
use etude_runtime::engine::{
    ArchivedRun, Cause, DEFAULT_QUEUE, DEFAULT_TENANT, LimitGroup, NewRun, Placement, Record, RunState, Signal,
    UniqueKey,
};
use etude_runtime::record;
use serde::{Deserialize, Serialize};

/// The version of the archive.
pub(super) const FORMAT: u64 = 1;

/// The version of headers and results.
const DOCUMENT: u64 = 1;

/// Manifest of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// The version of the archive: [`FORMAT`], or the version of another program.
    pub(super) format: u64,
    /// Number of runs.
    pub(super) runs: u64,
    /// Number of unfinished runs.
    pub(super) moved: u64,
    /// Number of values.
    pub(super) values: u64,
}

/// The version alone, which decides if the rest can be read.
#[derive(Deserialize)]
struct Versioned {
    format: u64,
}

impl Manifest {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let versioned: Versioned = serde_json::from_slice(bytes).map_err(|e| format!("is damaged: {e}"))?;
        if versioned.format != FORMAT {
            let found = versioned.format;
            return Err(format!("has format {found}; this version of etude supports format {FORMAT}"));
        }
        serde_json::from_slice(bytes).map_err(|e| format!("is damaged: {e}"))
    }
}

/// A line of a run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line<'a> {
    Run(Box<RunLine<'a>>),
    Record(RecordLine<'a>),
    Signal(SignalLine<'a>),
    Result(Cow<'a, str>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunLine<'a> {
    id: Cow<'a, str>,
    app: Cow<'a, str>,
    target: Cow<'a, str>,
    abi: u32,
    state: Cow<'a, str>,
    created_at_ms: i64,
    started_at_ms: Option<i64>,
    changed_at_ms: i64,
    cause: Cow<'a, str>,
    by: Option<Cow<'a, str>>,
    labels: Cow<'a, BTreeMap<String, String>>,
    again_of: Option<Cow<'a, str>>,
    priority: i32,
    not_before_ms: Option<i64>,
    queue_timeout_ms: Option<u64>,
    limit_group: Option<(Cow<'a, str>, u32)>,
    tenant: Option<Cow<'a, str>>,
    queue: Option<Cow<'a, str>>,
    bundle: Option<String>,
    keys: Vec<(Cow<'a, str>, Option<String>)>,
    header: Cow<'a, str>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine<'a> {
    key: Cow<'a, str>,
    request: String,
    body: Cow<'a, str>,
    blobs: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignalLine<'a> {
    key: Cow<'a, str>,
    body: Cow<'a, str>,
}

/// The part of a header or result that is read here: the version, and a large value beside it.
#[derive(Deserialize)]
struct Beside {
    v: u64,
    #[serde(default)]
    input_at: Option<(String, u64)>,
    #[serde(default)]
    output_at: Option<(String, u64, u64, String)>,
}

/// The name of a queue or tenant; `None` for the default one.
fn named<'a>(name: Option<&'a String>, default: &str) -> Option<Cow<'a, str>> {
    name.filter(|name| *name != default).map(|name| name.as_str().into())
}

pub(super) fn to_lines(run: &ArchivedRun) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut write = |line: &Line<'_>| {
        serde_json::to_writer(&mut bytes, line).expect("the keys are texts, and memory can be written to");
        bytes.push(b'\n');
    };
    write(&Line::Run(Box::new(run_line(run))));
    for Record { key, request, body, blobs } in &run.records {
        let (request, blobs) = (request.to_string(), blobs.iter().map(ToString::to_string).collect());
        write(&Line::Record(RecordLine { key: key.into(), request, body: body.into(), blobs }));
    }
    for Signal { key, body } in &run.signals {
        write(&Line::Signal(SignalLine { key: key.into(), body: body.into() }));
    }
    if let Some(result) = &run.result {
        write(&Line::Result(result.into()));
    }
    bytes
}

fn run_line(of: &ArchivedRun) -> RunLine<'_> {
    let NewRun { id, app, target, abi, created_at_ms, header, placement } = &of.run;
    let group = placement.limit_group.as_ref();
    let key = |key: &UniqueKey| (Cow::from(key.key.clone()), key.digest.map(|digest| digest.to_string()));
    RunLine {
        id: id.into(),
        app: app.into(),
        target: target.into(),
        abi: *abi,
        state: of.state.word().into(),
        created_at_ms: *created_at_ms,
        started_at_ms: of.started_at_ms,
        changed_at_ms: of.changed_at_ms,
        cause: placement.cause.word().into(),
        by: placement.by.as_ref().map(Cow::from),
        labels: Cow::Borrowed(&placement.labels),
        again_of: placement.again_of.as_ref().map(Cow::from),
        priority: placement.priority,
        not_before_ms: placement.not_before_ms,
        queue_timeout_ms: placement.queue_timeout_ms,
        limit_group: group.map(|group| (Cow::from(&group.name), group.max_runs)),
        tenant: named(placement.tenant.as_ref(), DEFAULT_TENANT),
        queue: named(placement.queue.as_ref(), DEFAULT_QUEUE),
        bundle: placement.bundle.map(|bundle| bundle.to_string()),
        keys: of.keys.iter().map(key).collect(),
        header: header.into(),
    }
}

/// The run with the id `id`, with all values that it needs.
///
/// # Errors
/// The faulty line and its fault.
pub(super) fn parse(id: &str, bytes: &[u8]) -> Result<ArchivedRun, String> {
    let located = |number: usize| move |why: String| format!("line {number}: {why}");
    if bytes.last().is_some_and(|last| *last != b'\n') {
        return Err("ends in the middle of a line".to_owned());
    }
    let mut run: Option<ArchivedRun> = None;
    for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        let line: Line<'_> = serde_json::from_slice(line).map_err(|e| located(number)(e.to_string()))?;
        match (line, &mut run) {
            (Line::Run(line), none @ None) => *none = Some(of_run_line(id, *line).map_err(located(number))?),
            (Line::Run(_), Some(_)) => return Err(located(number)("is a second `run`".to_owned())),
            (_, None) => return Err(located(number)("comes before the `run`".to_owned())),
            (line, Some(run)) => add(run, line).map_err(located(number))?,
        }
    }
    let mut run = run.ok_or("is empty")?;
    run.values = values(&run)?;
    Ok(run)
}

/// Adds the content of a line after the first one.
fn add(run: &mut ArchivedRun, line: Line<'_>) -> Result<(), String> {
    if run.result.is_some() {
        return Err("comes after the `result`".to_owned());
    }
    match line {
        Line::Run(_) => {}
        Line::Record(line) if run.signals.is_empty() => run.records.push(of_record_line(line)?),
        Line::Record(_) => return Err("is a `record` after a `signal`".to_owned()),
        Line::Signal(line) => {
            plain("key", &line.key)?;
            if run.signals.iter().any(|signal| signal.key == line.key) {
                return Err(format!("repeats the signal `{}`", line.key));
            }
            version(&line.body, record::VERSION.into()).map_err(|why| format!("the signal `{}` {why}", line.key))?;
            run.signals.push(Signal { key: line.key.into_owned(), body: line.body.into_owned() });
        }
        Line::Result(text) => run.result = Some(text.into_owned()),
    }
    Ok(())
}

fn of_run_line(id: &str, line: RunLine<'_>) -> Result<ArchivedRun, String> {
    if line.id != id {
        return Err(format!("is the run `{}`", line.id));
    }
    let texts = [("app", Some(&line.app)), ("target", Some(&line.target)), ("by", line.by.as_ref())];
    let more = [("again_of", line.again_of.as_ref()), ("tenant", line.tenant.as_ref()), ("queue", line.queue.as_ref())];
    texts.iter().chain(&more).try_for_each(|(name, text)| text.map_or(Ok(()), |text| plain(name, text)))?;
    let state = RunState::from_word(&line.state).filter(|state| *state != RunState::Moved);
    let state = state.ok_or_else(|| format!("`{}` is not a state of a run in an export", line.state))?;
    if !(-100..=100).contains(&line.priority) {
        return Err("`priority` is not between -100 and 100".to_owned());
    }
    let bundle = line.bundle.as_deref().map(digest).transpose()?;
    if !state.has_ended() && bundle.is_none() {
        return Err(format!("the run is {} and has no app bundle", state.word()));
    }
    let key = |(key, of): (Cow<'_, str>, Option<String>)| {
        Ok(UniqueKey { key: key.into_owned(), digest: of.as_deref().map(digest).transpose()? })
    };
    let placement = Placement {
        cause: Cause::from_word(&line.cause).ok_or_else(|| format!("`{}` is not a cause", line.cause))?,
        by: line.by.map(Cow::into_owned),
        labels: line.labels.into_owned(),
        again_of: line.again_of.map(Cow::into_owned),
        priority: line.priority,
        not_before_ms: line.not_before_ms,
        queue_timeout_ms: line.queue_timeout_ms,
        limit_group: line.limit_group.map(|(name, max_runs)| LimitGroup { name: name.into_owned(), max_runs }),
        tenant: line.tenant.map(Cow::into_owned),
        queue: line.queue.map(Cow::into_owned),
        bundle,
    };
    let run = NewRun {
        id: line.id.into_owned(),
        app: line.app.into_owned(),
        target: line.target.into_owned(),
        abi: line.abi,
        created_at_ms: line.created_at_ms,
        header: line.header.into_owned(),
        placement,
    };
    Ok(ArchivedRun {
        run,
        state,
        started_at_ms: line.started_at_ms,
        changed_at_ms: line.changed_at_ms,
        keys: line.keys.into_iter().map(key).collect::<Result<_, String>>()?,
        records: Vec::new(),
        signals: Vec::new(),
        result: None,
        values: Vec::new(),
    })
}

fn of_record_line(line: RecordLine<'_>) -> Result<Record, String> {
    plain("key", &line.key)?;
    version(&line.body, record::VERSION.into()).map_err(|why| format!("the record `{}` {why}", line.key))?;
    Ok(Record {
        key: line.key.into_owned(),
        request: digest(&line.request)?,
        body: line.body.into_owned(),
        blobs: line.blobs.iter().map(|blob| digest(blob)).collect::<Result<_, _>>()?,
    })
}

/// Refuses a text with a NUL, which PostgreSQL cannot store.
fn plain(name: &str, text: &str) -> Result<(), String> {
    if text.contains('\0') { Err(format!("`{name}` contains a NUL character")) } else { Ok(()) }
}

fn digest(hex: &str) -> Result<Digest, String> {
    Digest::from_hex(hex).ok_or_else(|| format!("`{hex}` is not a hash"))
}

/// Refuses a document without a version, or with a newer one.
fn version(body: &str, known: u64) -> Result<(), String> {
    let body = tree::parse(body).map_err(|why| format!("is damaged: {why}"))?;
    match body.get("v").and_then(serde_json::Value::as_u64) {
        Some(version) if (1..=known).contains(&version) => Ok(()),
        Some(version) => Err(format!("has version {version}; this version of etude supports versions up to {known}")),
        None => Err("has no version".to_owned()),
    }
}

/// The values of a run besides those of its records: its bundle, a large input, a large output.
fn values(run: &ArchivedRun) -> Result<Vec<Digest>, String> {
    let read = |what: &str, text: &str| {
        version(text, DOCUMENT).map_err(|why| format!("the {what} {why}"))?;
        serde_json::from_str::<Beside>(text).map_err(|why| format!("the {what} is damaged: {why}"))
    };
    let header = read("header", &run.run.header)?;
    let result = run.result.as_deref().map(|text| read("result", text)).transpose()?;
    debug_assert!(header.v == DOCUMENT, "checked above");
    let input = header.input_at.map(|(hex, _)| hex);
    let output = result.and_then(|result| result.output_at).map(|(hex, ..)| hex);
    let beside = input.iter().chain(&output).map(|hex| digest(hex));
    run.run.placement.bundle.map(Ok).into_iter().chain(beside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the beginning of a file, so that the form changes by intention only.
    #[test]
    fn a_run_is_written_in_this_form() {
        let run = super::super::tests::archived("8dmwnz5ebmypx8x0", RunState::Failed);
        let text = String::from_utf8(to_lines(&run)).expect("text");
        let request = Digest::of(b"a");
        let expected = format!(
            concat!(
                r#"{{"run":{{"id":"8dmwnz5ebmypx8x0","app":"/apps/demo","target":"code-review","abi":1,"state":"failed","#,
                r#""created_at_ms":10,"started_at_ms":20,"changed_at_ms":30,"cause":"cli","by":null,"labels":{{"team":"blue"}},"#,
                r#""again_of":null,"priority":0,"not_before_ms":null,"queue_timeout_ms":null,"limit_group":null,"tenant":null,"#,
                r#""queue":null,"bundle":null,"keys":[["run k",null]],"header":"{{\"v\":1,\"input\":{{}}}}"}}}}"#,
                "\n",
                r#"{{"record":{{"key":"a","request":"{request}","body":"{{\"v\":1}}","blobs":[]}}}}"#,
                "\n",
                r#"{{"signal":{{"key":"!cancel","body":"{{\"v\":1}}"}}}}"#,
                "\n",
                r#"{{"result":"{{\"v\":1}}"}}"#,
                "\n"
            ),
            request = request
        );
        assert_eq!(text, expected);
        assert_eq!(parse(&run.run.id, text.as_bytes()), Ok(run));
    }
}
