//! Result documents, as `etude run --format json` prints them.

use std::io::{self, Write};

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_core::effect::{EffectId, Gate, Subject};
use etude_core::failure::{Failure, FailureKind};
use etude_core::model::Usage;
use etude_core::report::{Remains, RunResult, error_json, result_json, usage_json};
use etude_process::blob::BlobStore;
use etude_runtime::engine::RunState;
use etude_runtime::record;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::target::Target;

/// A result document. Its output is kept separately, because it may be larger than memory should hold.
#[derive(Debug, Clone)]
pub struct Document {
    /// The run's id; `None` if no run was started.
    pub run_id: Option<String>,
    /// The pipeline, if it is known.
    pub pipeline: Option<String>,
    /// The stage machine, for a run of one.
    pub machine: Option<String>,
    /// `pipeline`, `skill` or `machine`; `skill` also after a deviation from a pipeline (L-67).
    pub mode: &'static str,
    /// `status`, `errors`, `steps`, `usage`, `fell_back`, in the published form.
    pub members: Map<String, Value>,
    /// The value under `output`, as it was printed; `None`: there is none, and the document says `null`.
    pub output: Option<Json>,
    /// Open gates of the run, as JSON objects.
    pub waiting: Vec<Value>,
    /// Time from the creation of the run to now or to its end, in milliseconds.
    pub duration_ms: u64,
    /// Number of the attempt that the document describes, from 1; `None` if no run was started (A-5.6).
    pub attempt: Option<u32>,
    /// The run whose target and input this run repeats.
    pub again_of: Option<String>,
    /// Work of another attempt; `None` if an earlier version of the program wrote the document.
    pub remains: Option<Remains>,
}

impl Document {
    /// The document of a run that is over or waits.
    pub fn of(run_id: &str, target: &Target, result: &RunResult, gates: &[(EffectId, Gate)], duration_ms: u64) -> Self {
        Self {
            run_id: Some(run_id.to_owned()),
            pipeline: target.pipeline().map(str::to_owned),
            machine: target.machine().map(str::to_owned),
            mode: if result.fell_back.is_some() { Target::SKILL } else { target.mode() },
            members: result_json(result),
            output: match target {
                // The output of a machine's last stage, even if the run failed or waits.
                Target::Machine(_) => result.stages.last.clone(),
                _ => result.output.clone(),
            },
            waiting: gates.iter().map(|(id, gate)| waiting_json(run_id, id, gate, result.attempt)).collect(),
            duration_ms,
            attempt: Some(result.attempt),
            again_of: None,
            remains: Some(result.remains.clone()),
        }
    }

    /// The document of a run that was never started; `about` is its target, if that is known.
    pub fn not_started(about: Option<&Target>, errors: &[Failure], usage: &Usage) -> Self {
        let is_cancelled = errors.first().is_some_and(|first| first.kind == FailureKind::Cancelled);
        let mut members = Map::new();
        members.insert("status".into(), if is_cancelled { "cancelled" } else { "failed" }.into());
        members.insert("errors".into(), errors.iter().map(error_json).collect());
        members.insert("steps".into(), json!([]));
        members.insert("usage".into(), usage_json(usage));
        members.insert("stages".into(), json!([]));
        Self {
            run_id: None,
            pipeline: about.and_then(Target::pipeline).map(str::to_owned),
            machine: about.and_then(Target::machine).map(str::to_owned),
            mode: about.map_or("pipeline", Target::mode),
            members,
            output: None,
            waiting: Vec::new(),
            duration_ms: 0,
            attempt: None,
            again_of: None,
            remains: None,
        }
    }

    /// The document of a run that a process continues: it holds the active time before, `duration_ms`, and nothing else.
    pub fn continued(run_id: &str, target: &Target, duration_ms: u64) -> Self {
        let document = Self::not_started(Some(target), &[], &Usage::default());
        let mut document = Self { run_id: Some(run_id.to_owned()), duration_ms, ..document };
        document.members.insert("status".into(), RunState::Running.word().into());
        document
    }

    /// Adds the hints to the first error.
    pub fn hinted(mut self, hints: &[String]) -> Self {
        if let (false, Some(first)) = (hints.is_empty(), self.members.get_mut("errors").and_then(|e| e.get_mut(0))) {
            first["hint"] = hints.join("; ").into();
        }
        self
    }

    /// Status of the run: the member `status`.
    pub fn status(&self) -> &str {
        self.members.get("status").and_then(Value::as_str).unwrap_or_default()
    }

    /// Usage of the run, including the usage of a candidate beside it: zero until a shadow has ended (L-56).
    pub fn usage(&self) -> Value {
        with_shadow(self.members.get("usage").cloned().unwrap_or_default())
    }

    /// Writes the document as one line of JSON. A large output is streamed in pieces.
    ///
    /// # Errors
    /// `out` fails, or the output cannot be read from the store.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let member = |name: &str| self.members.get(name).unwrap_or(&Value::Null);
        let (run_id, pipeline) = (json!(self.run_id), json!(self.pipeline));
        write!(
            out,
            r#"{{"run_id":{run_id},"status":{},"mode":"{}","pipeline":{pipeline},"#,
            member("status"),
            self.mode
        )?;
        if let Some(machine) = &self.machine {
            write!(out, r#""machine":{},"stages":{},"#, json!(machine), member("stages"))?;
        }
        out.write_all(b"\"output\":")?;
        match &self.output {
            Some(output) => write_json(output, out)?,
            None => out.write_all(b"null")?,
        }
        for name in ["errors", "steps"] {
            write!(out, r#","{name}":{}"#, member(name))?;
        }
        write!(out, r#","usage":{},"fell_back":{}"#, self.usage(), member("fell_back"))?;
        if !self.waiting.is_empty() {
            write!(out, r#","waiting":{}"#, json!(self.waiting))?;
        }
        if let Some(attempt) = self.attempt {
            write!(out, r#","attempt":{attempt}"#)?;
        }
        if let Some(run) = &self.again_of {
            write!(out, r#","again_of":{}"#, json!(run))?;
        }
        write!(out, r#","duration_ms":{}}}"#, self.duration_ms)?;
        out.write_all(b"\n")
    }

    /// Adds the usage of a candidate beside the run (L-56).
    pub fn shadowed(mut self, usage: Value) -> Self {
        if let Some(Value::Object(own)) = self.members.get_mut("usage") {
            own.insert("shadow".into(), usage);
        }
        self
    }

    /// The document in the journal's form, with a reference to a stored output instead of a copy.
    pub fn to_journal(&self) -> String {
        let Self { run_id, pipeline, machine, mode, members, waiting, again_of, .. } = self;
        let (duration_ms, attempt) = (self.duration_ms, self.attempt);
        let remains = self.remains.as_ref().map(|remains| KeptRemains {
            unfinished: remains.unfinished.clone(),
            is_scope_over: remains.is_scope_over,
        });
        let kept =
            Kept { v: 1, run_id, pipeline, machine, mode, members, waiting, duration_ms, attempt, again_of, remains };
        let mut text = serde_json::to_string(&kept).expect("its keys are texts");
        text.pop();
        match &self.output {
            None => {}
            Some(output) => match (output.as_stored(), output.inline()) {
                (Some(at), _) => {
                    let place = json!([at.blob.to_string(), at.offset, at.len, at.digest.to_string()]);
                    text.push_str(&format!(r#","output_at":{place}"#));
                }
                (None, inline) => text.push_str(&format!(r#","output":{}"#, inline.unwrap_or("null"))),
            },
        }
        text.push('}');
        text
    }

    /// Reads a document from the journal.
    ///
    /// # Errors
    /// The fault of the document.
    pub fn from_journal(text: &str, store: &dyn BlobStore) -> Result<Self, String> {
        let parts: Parts<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if parts.v != 1 {
            return Err(format!("it has version {}; this version of etude supports version 1", parts.v));
        }
        let output = match (parts.output, parts.output_at) {
            (Some(raw), _) => Some(Json::trusted(raw.get())),
            (None, None) => None,
            (None, Some((blob, offset, len, digest))) => {
                let hash = |hex: &str| Digest::from_hex(hex).ok_or("a hash is malformed");
                let (blob, digest) = (hash(&blob)?, hash(&digest)?);
                let source = store.open(blob).map_err(|e| e.to_string())?;
                Some(Json::stored(Stored { blob, offset, len, digest, source }))
            }
        };
        Ok(Self {
            run_id: parts.run_id,
            pipeline: parts.pipeline,
            machine: parts.machine,
            mode: Target::mode_of(&parts.mode),
            members: parts.members,
            output,
            waiting: parts.waiting,
            duration_ms: parts.duration_ms,
            attempt: parts.attempt.or(Some(1)),
            again_of: parts.again_of,
            remains: parts
                .remains
                .map(|kept| Remains { unfinished: kept.unfinished, is_scope_over: kept.is_scope_over }),
        })
    }
}

/// Usage in the form of `usage.shadow` in documents (L-56).
pub fn shadow_json(usage: &Usage) -> Value {
    json!({"calls": usage.calls, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})
}

/// Adds the usage of a candidate beside the run: zero until a shadow has ended (L-56).
pub fn with_shadow(mut usage: Value) -> Value {
    if let Value::Object(members) = &mut usage {
        members.entry("shadow").or_insert_with(|| shadow_json(&Usage::default()));
    }
    usage
}

/// The written form: everything except the output, which may be in the store.
#[derive(serde::Serialize)]
struct Kept<'a> {
    v: u64,
    run_id: &'a Option<String>,
    pipeline: &'a Option<String>,
    machine: &'a Option<String>,
    mode: &'a str,
    members: &'a Map<String, Value>,
    waiting: &'a [Value],
    duration_ms: u64,
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again_of: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remains: Option<KeptRemains>,
}

/// Work of another attempt, in the journal's form.
#[derive(serde::Serialize, serde::Deserialize)]
struct KeptRemains {
    unfinished: Vec<String>,
    is_scope_over: bool,
}

/// The read form of a document.
#[derive(serde::Deserialize)]
struct Parts<'a> {
    v: u64,
    run_id: Option<String>,
    pipeline: Option<String>,
    #[serde(default)]
    machine: Option<String>,
    mode: String,
    members: Map<String, Value>,
    #[serde(borrow, default, deserialize_with = "present")]
    output: Option<&'a RawValue>,
    #[serde(default)]
    output_at: Option<(String, u64, u64, String)>,
    waiting: Vec<Value>,
    duration_ms: u64,
    #[serde(default)]
    attempt: Option<u32>,
    #[serde(default)]
    again_of: Option<String>,
    #[serde(default)]
    remains: Option<KeptRemains>,
}

/// Reads a present `null` as an output, unlike a missing member.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    serde::Deserialize::deserialize(from).map(Some)
}

/// Writes a JSON value unchanged, in pieces if it is stored.
///
/// # Errors
/// `out` fails, or the value cannot be read from the store.
pub fn write_json(json: &Json, out: &mut dyn Write) -> io::Result<()> {
    let Some(stored) = json.as_stored() else {
        return out.write_all(json.inline().unwrap_or("null").as_bytes());
    };
    let mut piece = vec![0; 256 * 1024];
    let mut done = 0;
    while done < stored.len {
        let most = usize::try_from(stored.len - done).unwrap_or(usize::MAX).min(piece.len());
        let got = stored.source.read_at(stored.offset + done, &mut piece[..most]).map_err(io::Error::other)?;
        if got == 0 {
            return Err(io::Error::other(format!("the stored value {} is damaged", stored.blob)));
        }
        out.write_all(&piece[..got])?;
        done += got as u64;
    }
    Ok(())
}

fn waiting_json(run_id: &str, id: &EffectId, gate: &Gate, attempt: u32) -> Value {
    let mut payload = json!({"message": gate.message, "schema": gate.schema, "approvers": gate.approvers});
    if let Subject::Other { payload: facts, .. } = &gate.subject
        && let Ok(Value::Object(facts)) = facts.value()
    {
        for (name, fact) in facts {
            payload[name] = fact;
        }
    }
    if let Subject::Before { effects } = &gate.subject {
        payload["effects"] = json!(effects);
    }
    // An answer names the question that it is for.
    payload["question"] = record::question(gate, attempt).into();
    json!({"id": format!("{run_id}:{id}"), "kind": gate.subject.word(), "payload": payload})
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::{cost_entry, cost_of};

    use super::*;

    /// cli.md: a command that a signal ended before its run has the status that belongs to exit status 130.
    #[test]
    fn the_status_of_a_run_that_was_not_started_is_that_of_its_first_error() {
        for (kind, status) in [(FailureKind::Cancelled, "cancelled"), (FailureKind::BudgetExceeded, "failed")] {
            let document = Document::not_started(None, &[Failure::new(kind, "x")], &Usage::default());
            assert_eq!(document.status(), status);
        }
    }
    /// S-97, K-57: engines read the cost of a run in the form that the journal has.
    #[test]
    fn engines_find_the_cost_of_a_run_in_its_document() {
        let usage = Usage { calls: 1, cost_usd: Some(0.25), ..Usage::default() };
        let document = Document::not_started(None, &[Failure::new(FailureKind::StepFailed, "x")], &usage);
        let entry = cost_entry("r-1", "/app", 7, &document.to_journal()).expect("a cost");
        assert_eq!(cost_of(&entry), Some(("/app".to_owned(), 0.25)));
        let free = Document::not_started(None, &[], &Usage::default());
        assert_eq!(cost_entry("r-1", "/app", 7, &free.to_journal()), None);
    }
}
