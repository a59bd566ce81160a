//! The journal's own form of outcomes: versioned, independent of the machine's types, and readable for ever.
//!
//! A record's body is one JSON object whose member `v` is its version. Newer versions read the records of older ones;
//! older versions refuse the records of newer ones.

mod attempt;
mod clock;
mod spent;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;
use etude_core::effect::{Command, Effect, EffectId, Gate};
use etude_core::outcome::{Completed, Decision, Outcome, ProcessEnd, Stdout};
use etude_core::plan::stages::{Script, SlotForm, SlotForms};
use etude_core::template::compact;
use etude_core::tree;
use serde_json::value::RawValue;

pub use attempt::{
    Continuation, attempt_begins, attempt_number, by_scope, limits_json, spent_before, to_limits, to_usage, usage_of,
    void,
};

pub use clock::{Clock, of_clock, progress};
pub use spent::{of_aside, to_aside};

use crate::blob::BlobStore;
use crate::engine::{Record, Signal};

/// The version of the bodies that this program writes.
pub const VERSION: u32 = 1;

/// Key of the record and of the signal that a run was cancelled.
pub const CANCEL: &str = "!cancel";

/// Key of the signal that a run was killed.
pub const KILL: &str = "!kill";

/// Key of the record that a run with stages continued in another process.
pub const RESUMED: &str = "!resumed";

/// Key of the record that continues a finished run: a [`Continuation`].
pub const ATTEMPT: &str = "!attempt";

/// Key of the record of a process at work on a run with a time budget: a [`Clock`].
pub const CLOCK: &str = "!clock";

/// Keys of records that a process may write each time it takes a run. They are not progress of the run.
pub const TAKEN: [&str; 2] = [CLOCK, RESUMED];

/// Key of the record of a model call that is not an effect of the run.
pub const SPENT: &str = "!spent";

/// Key of the record that earlier versions wrote when they continued a failed run. It names the records that became void.
pub const REOPENED: &str = "!reopened";

/// Reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A newer program wrote the record.
    #[error("record `{key}` has version {found}; this version of etude knows versions up to {VERSION}")]
    TooNew {
        /// The key of the record: the id of an effect, or a word that begins with `!`.
        key: String,
        /// The version of the record's body.
        found: u64,
    },
    /// The record is malformed.
    #[error("record `{key}` is damaged: {why}")]
    Damaged {
        /// The key of the record: the id of an effect, or a word that begins with `!`.
        key: String,
        /// The fault, as a sentence fragment.
        why: String,
    },
    /// A large value of the record is gone.
    #[error("record `{key}` refers to the value {blob}, which cannot be read: {why}")]
    Lost {
        /// The key of the record that refers to the value.
        key: String,
        /// The digest of the value in the blob store.
        blob: Digest,
        /// The error of the store, as a sentence fragment.
        why: String,
    },
}

/// True if the record of the effect's end includes its request.
pub fn keeps_request(effect: &Effect) -> bool {
    match effect {
        Effect::Model(_) => true,
        Effect::Tool(call) => call.is_of_step(),
        _ => false,
    }
}

/// The record of an effect that ended `at_ms` milliseconds after the run began. Model calls, and tool calls of steps,
/// are recorded with their request.
pub fn of_outcome(id: &EffectId, request: Digest, completed: &Completed, asked: Option<&Effect>, at_ms: u64) -> Record {
    let body = wire::Body::of(completed, asked.filter(|effect| keeps_request(effect)), at_ms);
    Record { key: id.as_str().to_owned(), request, body: body.to_text(), blobs: blobs(&completed.outcome) }
}

/// The outcome in a record. A large value is located and not read, for callers that may never look at it.
///
/// # Errors
/// The record cannot be read, or a value that it refers to is gone.
pub fn to_outcome(record: &Record, blobs: &dyn BlobStore) -> Result<Completed, Error> {
    wire::Body::parse(&record.key, &record.body)?.into_completed(&record.key, blobs)
}

/// The outcome in a record, with its large value read once: a value that was cut short or overwritten since must
/// neither become part of a run nor be shown as the original.
///
/// # Errors
/// The record or its value cannot be read, or differs from the original.
pub fn to_checked_outcome(record: &Record, blobs: &dyn BlobStore) -> Result<Completed, Error> {
    let completed = to_outcome(record, blobs)?;
    if let Some(stored) = stored(&completed.outcome) {
        check(stored).map_err(|why| Error::Lost { key: record.key.clone(), blob: stored.blob, why })?;
    }
    Ok(completed)
}

/// The prompt of the model call in a record: a conversation as text, one heading per message.
pub fn to_prompt(record: &Record) -> Option<String> {
    wire::Body::parse(&record.key, &record.body).ok()?.into_prompt()
}

/// Name and arguments of the tool that a step calls (L-43). Calls of an agent are in its responses.
pub fn to_call(record: &Record) -> Option<(String, String)> {
    wire::Body::parse(&record.key, &record.body).ok()?.called
}

/// Time of a record, in milliseconds since the run began: the end of an effect, whose duration is beside it. Earlier
/// versions of the program did not keep it.
pub fn at_ms(record: &Record) -> Option<u64> {
    wire::Time::parse(&record.body)
}

/// The body of a record without its time: an outcome that is recorded again in another place is the same one.
fn without_time(record: &Record) -> String {
    wire::Body::parse(&record.key, &record.body)
        .map_or_else(|_| record.body.clone(), wire::Body::into_text_without_time)
}

/// The record of a cancellation, `at_ms` milliseconds after the run began.
pub fn of_cancel(reason: &str, at_ms: u64) -> Record {
    let body = serde_json::json!({"v": VERSION, "at": at_ms, "reason": reason}).to_string();
    Record { key: CANCEL.to_owned(), request: Digest::of(b"cancel"), body, blobs: Vec::new() }
}

/// The record that a run continued in another process `at_ms` milliseconds after it began, where active stages
/// restarted. `slots` has the forms of their machines' slots.
pub fn of_resumed(slots: &SlotForms, at_ms: u64) -> Record {
    let body = serde_json::json!({"v": VERSION, "at": at_ms, "slots": slots_json(slots)}).to_string();
    Record { key: RESUMED.to_owned(), request: Digest::of(b"resumed"), body, blobs: Vec::new() }
}

/// The records that still count, with their indexes among all records: see [`void`].
pub fn counting(records: &[Record]) -> impl Iterator<Item = (usize, &Record)> {
    let void = void(records);
    records.iter().enumerate().filter(move |(at, _)| !void.contains(at))
}

/// Forms of slots in such a record.
pub fn resumed_slots(body: &str) -> SlotForms {
    let body = tree::parse(body).unwrap_or_default();
    to_slots(&body["slots"])
}

/// Forms of slots as records hold them: version and drift policy by machine, and the script of a migration.
pub fn slots_json(slots: &SlotForms) -> serde_json::Value {
    let json = |form: &SlotForm| match &form.script {
        None => serde_json::json!([form.version, form.drift]),
        Some(script) => serde_json::json!([form.version, form.drift, script_json(script)]),
    };
    slots.iter().map(|(id, form)| (id.clone(), json(form))).collect()
}

fn script_json(script: &Script) -> serde_json::Value {
    let (way, command) = match &script.command {
        Command::Direct(words) => ("direct", serde_json::json!(words)),
        Command::Shell(line) => ("shell", line.as_str().into()),
        Command::Script(path) => ("script", path.as_str().into()),
    };
    serde_json::json!({way: command, "timeout_ms": script.timeout_ms})
}

fn to_script(value: &serde_json::Value) -> Option<Script> {
    let text = |way: &str| value.get(way).and_then(serde_json::Value::as_str).map(str::to_owned);
    let words = |words: &serde_json::Value| -> Option<Vec<String>> {
        words.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let direct = value.get("direct").and_then(words).map(Command::Direct);
    let command =
        direct.or_else(|| text("shell").map(Command::Shell)).or_else(|| text("script").map(Command::Script))?;
    Some(Script { command, timeout_ms: value.get("timeout_ms")?.as_u64()? })
}

/// Forms of slots from a record; malformed ones are left out.
pub fn to_slots(value: &serde_json::Value) -> SlotForms {
    let form = |(id, form): (&String, &serde_json::Value)| {
        let (version, drift) = (form.get(0)?.as_str()?.to_owned(), form.get(1)?.as_str()?.to_owned());
        // Earlier versions of the program did not keep the script.
        let script = form.get(2).and_then(to_script);
        Some((id.clone(), SlotForm { version, drift, script }))
    };
    value.as_object().into_iter().flatten().filter_map(form).collect()
}

/// The record of a deadline that keeps counting while the run waits; `at_ms` counts from 1970.
pub fn of_deadline(id: &EffectId, at_ms: i64) -> Record {
    let body = serde_json::json!({"v": VERSION, "at_ms": at_ms}).to_string();
    Record { key: format!("!deadline/{id}"), request: Digest::of(b"deadline"), body, blobs: Vec::new() }
}

/// The deadline in a record: the timer, and its end in milliseconds since 1970.
pub fn to_deadline(record: &Record) -> Option<(EffectId, i64)> {
    let id = record.key.strip_prefix("!deadline/")?;
    let body = tree::parse(&record.body).ok()?;
    Some((EffectId::new(id), body.get("at_ms")?.as_i64()?))
}

/// The reason that the record or signal of a cancellation gives.
pub fn cancel_reason(body: &str) -> String {
    let body = tree::parse(body).unwrap_or_default();
    body.get("reason").and_then(|r| r.as_str()).unwrap_or("the run was cancelled").to_owned()
}

/// The key of the signal that cancels an attempt at a run: a signal for an earlier attempt does not stop a later one.
pub fn cancel_key(attempt: u32) -> String {
    if attempt == 1 { CANCEL.to_owned() } else { format!("{CANCEL}@{attempt}") }
}

/// The signal that cancels the current attempt at a run.
pub fn cancel_signal(reason: &str, attempt: u32) -> Signal {
    Signal { key: cancel_key(attempt), body: serde_json::json!({"v": VERSION, "reason": reason}).to_string() }
}

/// The key of the signal that kills an attempt at a run. It differs from the key of a cancellation, which may have come
/// before.
pub fn kill_key(attempt: u32) -> String {
    if attempt == 1 { KILL.to_owned() } else { format!("{KILL}@{attempt}") }
}

/// The signal that kills the current attempt at a run: not even its destructor runs.
pub fn kill_signal(reason: &str, attempt: u32) -> Signal {
    Signal { key: kill_key(attempt), ..cancel_signal(reason, attempt) }
}

/// The key of the answer to a gate: it answers this question only, not another one in the same place after a change of
/// the definition.
pub fn decision_key(id: &str, question: &str) -> String {
    format!("{id}@{question}")
}

/// Name of a question: the hash of its request. A later attempt asks again, and an earlier answer does not count for it.
pub fn question(gate: &Gate, attempt: u32) -> String {
    let digest = Effect::Gate(gate.clone()).digest();
    if attempt == 1 { digest.to_string() } else { format!("{digest}@{attempt}") }
}

/// The signal that answers a gate, whose question [`question`] names. The answer keeps its digits (A-3.3).
pub fn decision_signal(id: &str, question: &str, decision: &Decision) -> Signal {
    let (approved, by, at, reason) = (decision.approved, &decision.by, &decision.at, &decision.reason);
    let answer = decision.answer.text().map(|text| compact(&text)).unwrap_or_else(|_| "null".to_owned());
    let rest = serde_json::json!({"by": by, "at": at, "reason": reason}).to_string();
    let body = format!(r#"{{"v":{VERSION},"approved":{approved},"answer":{answer},{}"#, &rest[1..]);
    Signal { key: decision_key(id, question), body }
}

/// The decision in a gate's signal; `None` if the body is malformed.
pub fn to_decision(signal: &Signal) -> Option<Decision> {
    let body: BTreeMap<String, &RawValue> = serde_json::from_str(&signal.body).ok()?;
    let text = |name: &str| serde_json::from_str::<String>(body.get(name)?.get()).ok();
    Some(Decision {
        approved: serde_json::from_str(body.get("approved")?.get()).ok()?,
        answer: body.get("answer").map_or_else(Json::null, |answer| Json::trusted(answer.get())),
        by: text("by").unwrap_or_default(),
        at: text("at").unwrap_or_default(),
        reason: text("reason"),
    })
}

/// The large value of an outcome, if it has one.
fn stored(outcome: &Outcome) -> Option<&Stored> {
    match outcome {
        Outcome::Process(ProcessEnd { stdout: Stdout::Value(json), .. }) | Outcome::Recalled(Some(json)) => {
            json.as_stored()
        }
        _ => None,
    }
}

fn blobs(outcome: &Outcome) -> Vec<Digest> {
    let stderr = match outcome {
        Outcome::Process(ProcessEnd { stderr, .. }) | Outcome::Stopped(stderr) => stderr.blob,
        _ => None,
    };
    stored(outcome).map(|stored| stored.blob).into_iter().chain(stderr).collect()
}

/// Reopens a stored value from its description in a record.
fn reopen(key: &str, blobs: &dyn BlobStore, at: &wire::Place) -> Result<Json, Error> {
    let damaged = |why: &str| Error::Damaged { key: key.to_owned(), why: why.to_owned() };
    let blob = Digest::from_hex(&at.blob).ok_or_else(|| damaged("a blob's hash is malformed"))?;
    let digest = Digest::from_hex(&at.digest).ok_or_else(|| damaged("a value's hash is malformed"))?;
    let source: Arc<dyn etude_core::data::Blob> =
        blobs.open(blob).map_err(|e| Error::Lost { key: key.to_owned(), blob, why: e.to_string() })?;
    Ok(Json::stored(Stored { blob, offset: at.offset, len: at.len, digest, source }))
}

/// Reads a stored value and compares its length and hash with the record.
fn check(at: &Stored) -> Result<(), String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut done = 0;
    while done < at.len {
        let wanted = usize::try_from(at.len - done).unwrap_or(usize::MAX).min(buffer.len());
        match at.source.read_at(at.offset + done, &mut buffer[..wanted])? {
            0 => return Err(format!("it has {done} bytes instead of {}", at.len)),
            read => {
                hasher.update(&buffer[..read]);
                done += read as u64;
            }
        }
    }
    if Digest::from_bytes(*hasher.finalize().as_bytes()) == at.digest {
        Ok(())
    } else {
        Err("it was changed".to_owned())
    }
}

#[cfg(test)]
mod tests;
