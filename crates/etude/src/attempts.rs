//! Further attempts at ended runs (A-5.6, ADR 0041): the records that still count, the steps that run again, and the limits of
//! the whole run.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::machine::{Limits, time_budget};
use etude_core::model::Usage;
use etude_core::plan::Plan;
use etude_core::report::{Remains, is_below};
use etude_process::blob::BlobStore;
use etude_runtime::driver;
use etude_runtime::engine::{Record, RunState, RunView};
use etude_runtime::record::{self, Clock, Continuation};

use crate::budget::{Exhausted, exhausted};
use crate::definition::Definition;
use etude_runs::document::Document;
use etude_runs::header::Header;
use etude_runtime::clock::now_ms;

pub use from::UnknownStep;

mod from;

/// Next action for a run that should continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The run succeeded: there is nothing to continue.
    Over,
    /// The run was interrupted or waits, and continues where it stopped.
    Continues,
    /// The run continues with a new attempt, or with new limits for the current one.
    Attempt(Continuation),
}

/// Reason why a run cannot continue as requested.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The attempt would exceed its budget at once.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// The step to restart from does not exist.
    #[error(transparent)]
    UnknownStep(#[from] UnknownStep),
    /// The run is in another engine (K-64).
    #[error("run `{0}` was moved to another engine and continues there")]
    Moved(String),
    /// The run's journal cannot be read.
    #[error("the journal of run `{run_id}` cannot be read: {why}")]
    Damaged {
        /// The run whose records were read.
        run_id: String,
        /// The fault that the reader of records found, as a sentence fragment.
        why: String,
    },
}

/// A run to continue, with its current definition.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The run as the journal has it.
    pub view: &'a RunView,
    /// The run's definition in its current form.
    pub definition: &'a Definition,
    /// The store of large values.
    pub blobs: &'a Arc<dyn BlobStore>,
    /// New limits for the whole run; a limit of `None` stays as it is.
    pub limits: Limits,
}

impl Ended<'_> {
    /// Plans `runs resume`: completed steps are kept, and the others run again.
    ///
    /// # Errors
    /// The run would fail at once, or its journal is damaged.
    pub fn resume(&self) -> Result<Next, Refused> {
        match self.view.row.state {
            RunState::Succeeded => Ok(Next::Over),
            RunState::Queued | RunState::Running | RunState::Waiting | RunState::Sleeping => {
                match self.limits == Limits::default() {
                    true => Ok(Next::Continues),
                    false => Ok(Next::Attempt(self.with_new_limits()?)),
                }
            }
            RunState::Failed | RunState::Cancelled => {
                let remains = self.remains()?;
                let discards = |_: usize, record: &Record| remains.covers(&record.key);
                Ok(Next::Attempt(self.restarting(&[], &remains, self.attempt(&remains, &discards)?)))
            }
            RunState::Moved => Err(Refused::Moved(self.view.row.id.clone())),
        }
    }

    /// Plans `runs retry --from STEP`: the outcomes of `step` and of all later steps are discarded as well, and no cached
    /// output, possibly that same outcome, replaces them.
    ///
    /// # Errors
    /// The errors of [`Ended::resume`], or an unknown step.
    pub fn retry(&self, step: &str) -> Result<Continuation, Refused> {
        if self.view.row.state == RunState::Moved {
            return Err(Refused::Moved(self.view.row.id.clone()));
        }
        let discarded = from::Discarded::new(&self.definition.plan, &self.view.records, step)?;
        let remains = self.remains()?;
        let discards = |at: usize, record: &Record| discarded.covers(at, &record.key) || remains.covers(&record.key);
        let next = Continuation { refresh: true, ..self.attempt(&remains, &discards)? };
        Ok(self.restarting(&discarded.parts(), &remains, next))
    }

    /// Adds the parts that the attempt restarts to a plan whose questions are asked together: a restarted question is asked
    /// alone, because its earlier answer may have been given together with another one (L-49).
    fn restarting(&self, discarded: &[String], remains: &Remains, mut next: Continuation) -> Continuation {
        if self.definition.plan.asks_together() {
            let parts = discarded.iter().chain(&remains.unfinished).cloned();
            next.restarts.extend(parts.map(|part| (part, next.number)));
        }
        next
    }

    fn damaged(&self, why: impl ToString) -> Refused {
        Refused::Damaged { run_id: self.view.row.id.clone(), why: why.to_string() }
    }

    fn header(&self) -> Result<Header, Refused> {
        Header::parse(&self.view.run.header, &**self.blobs).map_err(|why| self.damaged(why))
    }

    fn document(&self) -> Result<Option<Document>, Refused> {
        let text = self.view.result.as_deref();
        text.map(|text| Document::from_journal(text, &**self.blobs)).transpose().map_err(|why| self.damaged(why))
    }

    /// The work that the last attempt has left to do.
    fn remains(&self) -> Result<Remains, Refused> {
        if let Some(remains) = self.document()?.and_then(|document| document.remains) {
            return Ok(remains);
        }
        // The result document lacks this for an interrupted run, and for one that an earlier version of etude ended.
        let definition = self.definition;
        let start = self.header()?.start(&self.view.run, &definition.app, &self.view.records, &**self.blobs);
        driver::remains(&definition.plan, start, self.view.records.clone(), Arc::clone(self.blobs))
            .map_err(|error| self.damaged(error))
    }

    fn limits(&self, last: Option<&Continuation>) -> Result<Limits, Refused> {
        let before = match last {
            Some(last) => last.limits,
            None => self.header()?.request.limits,
        };
        Ok(Limits {
            max_cost_usd: self.limits.max_cost_usd.or(before.max_cost_usd),
            max_tokens: self.limits.max_tokens.or(before.max_tokens),
            timeout_ms: self.limits.timeout_ms.or(before.timeout_ms),
        })
    }

    /// The current attempt of a run that has not ended, with other limits.
    fn with_new_limits(&self) -> Result<Continuation, Refused> {
        let last = Continuation::last(&self.view.records).map(|(_, last)| last);
        let limits = self.limits(last.as_ref())?;
        let now = last.clone().unwrap_or_else(|| Continuation { at_ms: self.view.run.created_at_ms, ..first() });
        if self.limits.timeout_ms.is_none() {
            return Ok(Continuation { limits, without: Vec::new(), ..now });
        }
        // Records of the old time budget are void; the time already used counts towards the new one.
        let timer = time_budget(&self.definition.plan);
        let is_void = |(_, record): &(usize, &Record)| {
            record.key == timer.as_str()
                || record.key == record::CLOCK
                || record::to_deadline(record).is_some_and(|(id, _)| id == timer)
        };
        let without = record::counting(&self.view.records).filter(is_void).map(|(at, _)| at).collect();
        let used_ms = self.used_ms(last.as_ref())?;
        let time = Limits { timeout_ms: self.limits.timeout_ms, ..Limits::default() };
        exhausted(&self.view.row.id, &time, &Usage::default(), used_ms, false)?;
        Ok(Continuation { limits, without, used_ms, at_ms: now_ms(), ..now })
    }

    /// The next attempt, without the pipeline outcomes that `discards` selects.
    fn attempt(&self, remains: &Remains, discards: &dyn Fn(usize, &Record) -> bool) -> Result<Continuation, Refused> {
        let (records, plan) = (&self.view.records, &self.definition.plan);
        let last = Continuation::last(records);
        // If the process died before anything happened, the attempt keeps its number.
        let last = last.map(|(_, last)| last);
        let begins = last.as_ref().and_then(|last| record::attempt_begins(records, last.number));
        let is_untouched = begins.is_some_and(|at| records[at..].iter().all(is_note));
        let before = last.clone().unwrap_or_else(first);
        let (number, scope) = match is_untouched {
            true => (before.number, before.scope),
            false if remains.is_scope_over || plan.before.is_none() => (before.number + 1, before.number + 1),
            false => (before.number + 1, before.scope),
        };
        let timer = time_budget(plan);
        let is_void = |(at, record): &(usize, &Record)| match is_below(&record.key, &plan.body.name) {
            true => record.key == timer.as_str() || discards(*at, record),
            false => is_left_behind(&record.key, plan, scope == number),
        };
        let void: Vec<(usize, &Record)> = record::counting(records).filter(is_void).collect();
        let mut usage = before.usage;
        usage.add(&record::usage_of(void.iter().map(|(_, record)| *record), &**self.blobs));
        let used_ms = if is_untouched { before.used_ms } else { self.used_ms(last.as_ref())? };
        let limits = self.limits(last.as_ref())?;
        if let Some(document) = self.document()? {
            let spent = record::to_usage(document.members.get("usage").unwrap_or(&serde_json::Value::Null));
            exhausted(&self.view.row.id, &limits, &spent, used_ms, is_over_budget(&document))?;
        }
        let without = void.into_iter().map(|(at, _)| at).collect();
        let (refresh, restarts) = (before.refresh, before.restarts);
        Ok(Continuation { number, scope, without, limits, usage, used_ms, at_ms: now_ms(), refresh, restarts })
    }

    /// Time used by all attempts so far, in milliseconds. For the last attempt: the used part of its time budget or, without a
    /// budget, the time of its effects, but at most its duration.
    fn used_ms(&self, last: Option<&Continuation>) -> Result<u64, Refused> {
        let records = &self.view.records;
        let (begun_at, before) = last.map_or((self.view.run.created_at_ms, 0), |last| (last.at_ms, last.used_ms));
        let own = || records[self.booked_until(last)..].iter();
        let limit = match last {
            Some(last) => last.limits_left().timeout_ms,
            None => self.header()?.request.limits.timeout_ms,
        };
        let timer = time_budget(&self.definition.plan);
        if let Some(limit) = limit {
            if own().any(|record| record.key == timer.as_str()) {
                return Ok(before.saturating_add(limit));
            }
            let row = &self.view.row;
            let began_at_ms = row.started_at_ms.unwrap_or(self.view.run.created_at_ms);
            let until_ms = if row.state.is_final() { row.changed_at_ms } else { now_ms() };
            if let Some(clock) = Clock::last(own(), timer.as_str(), began_at_ms) {
                return Ok(before.saturating_add(limit.saturating_sub(clock.left_ms(until_ms))));
            }
        }
        let effects = own().filter(|record| !record.key.starts_with('!'));
        let lasted = u64::try_from(self.view.row.changed_at_ms.saturating_sub(begun_at)).unwrap_or(0);
        let taken = effects.filter_map(|record| Some(record::to_outcome(record, &**self.blobs).ok()?.elapsed_ms));
        Ok(before.saturating_add(taken.sum::<u64>().min(lasted)))
    }

    /// Index of the first record whose time is missing from [`Continuation::used_ms`] of the last continuation. A new limit
    /// within an attempt adds the time so far; in journals of earlier versions it did not.
    fn booked_until(&self, last: Option<&Continuation>) -> usize {
        let records = &self.view.records;
        let Some(last) = last else { return 0 };
        let begins = record::attempt_begins(records, last.number);
        let at_first = begins.and_then(|at| Continuation::of(&records[at])).map_or(0, |first| first.used_ms);
        match last.used_ms == at_first {
            true => begins.unwrap_or(0),
            false => Continuation::last(records).map_or(0, |(at, _)| at),
        }
    }
}

/// The first attempt, as a continuation.
fn first() -> Continuation {
    let (limits, usage) = (Limits::default(), Usage::default());
    let (without, restarts) = (Vec::new(), BTreeMap::new());
    Continuation { number: 1, scope: 1, without, limits, usage, used_ms: 0, at_ms: 0, refresh: false, restarts }
}

/// True for a record that does not prove activity in an attempt.
fn is_note(record: &Record) -> bool {
    record.key.starts_with('!') && ![record::CANCEL, record::RESUMED].contains(&record.key.as_str())
}

/// True for a record outside the pipeline that does not count for the next attempt: those of constructor and destructor, whose
/// effects get other keys there, cancellations, deadlines and the clock.
fn is_left_behind(key: &str, plan: &Plan, is_new_scope: bool) -> bool {
    if key.starts_with('!') {
        return [record::CANCEL, record::CLOCK].contains(&key) || key.starts_with("!deadline/");
    }
    is_new_scope || plan.after.as_ref().is_some_and(|after| is_below(key, &after.name))
}

/// True if the run ended because a budget was used up.
fn is_over_budget(document: &Document) -> bool {
    let first = document.members.get("errors").and_then(|errors| errors.get(0));
    first.is_some_and(|error| error["kind"] == etude_core::failure::FailureKind::BudgetExceeded.word())
}
