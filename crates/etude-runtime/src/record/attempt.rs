//! The record that continues a finished run (A-5.6, ADR 0041).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use etude_core::digest::Digest;
use etude_core::machine::{Attempt, Limits};
use etude_core::model::Usage;
use etude_core::outcome::{Completed, Outcome};
use etude_core::report::usage_json;
use etude_core::tree;
use serde_json::{Value, json};

use super::{ATTEMPT, REOPENED, VERSION};
use crate::blob::BlobStore;
use crate::engine::Record;

/// Beginning of a further attempt at a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Continuation {
    /// Number of the attempt, from 2.
    pub number: u32,
    /// The attempt whose constructor opened the scope: this one, unless an earlier scope is still open.
    pub scope: u32,
    /// The indexes of the void records.
    pub without: Vec<usize>,
    /// Limits of the whole run, all attempts together.
    pub limits: Limits,
    /// Usage of all void outcomes, including earlier continuations.
    pub usage: Usage,
    /// Time that earlier attempts have taken, in milliseconds.
    pub used_ms: u64,
    /// Beginning of the attempt, in milliseconds since 1970.
    pub at_ms: i64,
    /// True if cached outputs are only stored, not used: requested work must run again, in this attempt and in those
    /// that continue it.
    pub refresh: bool,
    /// The parts that this attempt and earlier ones start again, as beginnings of effect ids, each with the last
    /// attempt that did. Empty where no questions are asked together.
    pub restarts: BTreeMap<String, u32>,
}

impl Continuation {
    /// The record of this continuation.
    pub fn to_record(&self) -> Record {
        let mut body = json!({
            "v": VERSION, "attempt": self.number, "scope": self.scope, "without": self.without,
            "limits": limits_json(&self.limits), "usage": usage_json(&self.usage), "used_ms": self.used_ms,
            "at_ms": self.at_ms,
        });
        if self.refresh {
            body["refresh"] = json!(true);
        }
        if !self.restarts.is_empty() {
            body["restarts"] = json!(self.restarts);
        }
        Record { key: ATTEMPT.to_owned(), request: Digest::of(b"attempt"), body: body.to_string(), blobs: Vec::new() }
    }

    /// The last continuation of a run, with its index; `None` in the first attempt.
    pub fn last(records: &[Record]) -> Option<(usize, Self)> {
        records.iter().enumerate().rev().find_map(|(at, record)| Some((at, Self::of(record)?)))
    }

    /// The continuation in `record`; `None` if it is another record.
    pub fn of(record: &Record) -> Option<Self> {
        if record.key != ATTEMPT {
            return None;
        }
        let body = tree::parse(&record.body).ok()?;
        let number = u32::try_from(body.get("attempt")?.as_u64()?).ok()?;
        let scope = u32::try_from(body.get("scope")?.as_u64()?).ok()?;
        Some(Self {
            number,
            scope,
            without: places(&body),
            limits: to_limits(&body["limits"]),
            usage: to_usage(&body["usage"]),
            used_ms: body["used_ms"].as_u64().unwrap_or_default(),
            at_ms: body["at_ms"].as_i64().unwrap_or_default(),
            refresh: body["refresh"].as_bool().unwrap_or_default(),
            restarts: restarts(&body),
        })
    }

    /// The attempt in the machine's form.
    pub fn attempt(&self) -> Attempt {
        Attempt::new(self.number, self.scope)
    }

    /// Limits of this attempt: of the time, the rest that earlier attempts have left.
    pub fn limits_left(&self) -> Limits {
        let timeout_ms = self.limits.timeout_ms.map(|ms| ms.saturating_sub(self.used_ms).max(1));
        Limits { timeout_ms, ..self.limits }
    }
}

/// The number of the current attempt.
pub fn attempt_number(records: &[Record]) -> u32 {
    Continuation::last(records).map_or(1, |(_, last)| last.number)
}

/// Usage that the machine of a run receives as spent before this attempt, besides the usage before the run: by void
/// outcomes, and by outcomes kept from before the current scope.
pub fn spent_before(records: &[Record], blobs: &dyn BlobStore) -> Usage {
    let (void, begins) = (void(records), scope_begins(records));
    let kept = records[..begins].iter().enumerate().filter(|(at, _)| !void.contains(at)).map(|(_, record)| record);
    let mut spent = usage_of(kept, blobs);
    if let Some((_, last)) = Continuation::last(records) {
        spent.add(&last.usage);
    }
    spent
}

/// Usage of the model calls in these records, including calls beside the effects. An outcome that was recorded again in
/// a new place counts once.
pub fn usage_of<'r>(records: impl Iterator<Item = &'r Record>, blobs: &dyn BlobStore) -> Usage {
    let mut seen = BTreeSet::new();
    let mut sum = Usage::default();
    for record in records {
        if let Some(aside) = super::to_aside(record) {
            sum.add(&aside.usage);
        }
        if record.key.starts_with('!') {
            continue;
        }
        if let Ok(Completed { outcome: Outcome::Response(response), .. }) = super::to_outcome(record, blobs)
            && seen.insert((&record.key, super::without_time(record)))
        {
            sum.add(&response.usage);
        }
    }
    sum
}

/// The indexes of void records: they stopped counting when the finished run was continued.
pub fn void(records: &[Record]) -> BTreeSet<usize> {
    let continued = records.iter().filter(|record| record.key == ATTEMPT || record.key == REOPENED);
    continued.flat_map(|record| places(&tree::parse(&record.body).unwrap_or_default())).collect()
}

/// The records that count: first those from before the current scope, which answer once its constructor is over, then
/// those of the scope.
pub fn by_scope(records: Vec<Record>) -> (VecDeque<Record>, VecDeque<Record>) {
    let (void, begins) = (void(&records), scope_begins(&records));
    let counting = records.into_iter().enumerate().filter(|(at, _)| !void.contains(at));
    let (mut earlier, mut current) = (VecDeque::new(), VecDeque::new());
    for (at, record) in counting {
        let part = if at < begins { &mut earlier } else { &mut current };
        part.push_back(record);
    }
    (earlier, current)
}

/// The index of the record that begins the attempt of that number; `None` for the first attempt.
pub fn attempt_begins(records: &[Record], number: u32) -> Option<usize> {
    let is_it = |record: &Record| number > 1 && Continuation::of(record).is_some_and(|it| it.number == number);
    records.iter().position(is_it)
}

/// Index of the first record of the current scope.
fn scope_begins(records: &[Record]) -> usize {
    let scope = Continuation::last(records).map_or(1, |(_, last)| last.scope);
    attempt_begins(records, scope).unwrap_or(0)
}

fn restarts(body: &Value) -> BTreeMap<String, u32> {
    let parts = body["restarts"].as_object().into_iter().flatten();
    parts.filter_map(|(part, attempt)| Some((part.clone(), u32::try_from(attempt.as_u64()?).ok()?))).collect()
}

fn places(body: &Value) -> Vec<usize> {
    let places = body["without"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    places.filter_map(|place| usize::try_from(place).ok()).collect()
}

/// Limits in the form of records and headers.
pub fn limits_json(limits: &Limits) -> Value {
    json!({
        "max_cost_usd": limits.max_cost_usd, "max_tokens": limits.max_tokens, "timeout_ms": limits.timeout_ms,
    })
}

/// Limits from the form of [`limits_json`].
pub fn to_limits(value: &Value) -> Limits {
    Limits {
        max_cost_usd: value.get("max_cost_usd").and_then(Value::as_f64),
        max_tokens: value.get("max_tokens").and_then(Value::as_u64),
        timeout_ms: value.get("timeout_ms").and_then(Value::as_u64),
    }
}

/// Usage from its published form.
pub fn to_usage(value: &Value) -> Usage {
    let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        calls: number("calls"),
        input_tokens: number("input_tokens"),
        output_tokens: number("output_tokens"),
        cached_tokens: number("cached_tokens"),
        reasoning_tokens: number("reasoning_tokens"),
        cost_usd: value.get("cost_usd").and_then(Value::as_f64),
    }
}
