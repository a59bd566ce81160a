//! Filter, order and rows of run lists.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use etude_core::digest::Digest;

use super::{Cause, DEFAULT_TENANT, Placement, RunState};

/// A filter of runs; fields that are `None` or empty match every run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only the run with exactly this id.
    pub id: Option<String>,
    /// Only runs of one of these app directories; empty: all.
    pub apps: Vec<String>,
    /// Only runs of this target.
    pub target: Option<String>,
    /// Only runs in one of these states; empty: all.
    pub states: Vec<RunState>,
    /// Among running runs, only those without a driver (`true`), or with one (`false`).
    pub is_interrupted: Option<bool>,
    /// Only runs created before this time, in milliseconds since 1970.
    pub created_before_ms: Option<i64>,
    /// Only runs created at or after this time, in milliseconds since 1970.
    pub created_since_ms: Option<i64>,
    /// Only runs whose id begins with this text, or whose target's name or one of whose labels (`KEY:VALUE`) contains it.
    pub text: Option<String>,
    /// Only runs that were requested in this way.
    pub cause: Option<Cause>,
    /// Only runs of this tenant.
    pub tenant: Option<String>,
    /// Only runs with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only runs that share this limit.
    pub limit_group: Option<String>,
    /// Only runs after this one in the list.
    pub after: Option<Cursor>,
    /// Maximum number of rows of a page; `None`: all.
    pub limit: Option<u32>,
}

/// The position of a run in a list that is newest first. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Time of the run's creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// [`RunRow::number`].
    pub number: i64,
}

/// A run whose row in the store cannot be read. Lists leave it out: it holds up no other run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRun {
    /// The id of the run.
    pub id: String,
    /// Reason of the failure.
    pub why: String,
}

/// The damaged runs that an engine has left out of lists.
#[derive(Debug, Default)]
pub struct DamagedRuns(Mutex<BTreeMap<String, String>>);

impl DamagedRuns {
    /// Adds runs that were left out.
    pub fn note(&self, found: Vec<DamagedRun>) {
        if !found.is_empty() {
            let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            noted.extend(found.into_iter().map(|DamagedRun { id, why }| (id, why)));
        }
    }

    /// All of them, in the order of their ids.
    pub fn noted(&self) -> Vec<DamagedRun> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.iter().map(|(id, why)| DamagedRun { id: id.clone(), why: why.clone() }).collect()
    }
}

/// The name within a target: `deploy` of `machine:deploy`.
pub fn name_of(target: &str) -> &str {
    target.split_once(':').map_or(target, |(_, name)| name)
}

/// The values that the text of a run's header refers to: a large input lies beside the header (`input_at`), and no
/// record refers to it.
pub fn values_of_header(header: &str) -> impl Iterator<Item = Digest> {
    const MARK: &str = r#""input_at":[""#;
    // Within a string of the header, the quotation marks would be escaped.
    let found = header.match_indices(MARK).map(move |(at, _)| at + MARK.len());
    found.filter_map(move |at| Digest::from_hex(header.get(at..at + 64)?))
}

impl Query {
    /// Time before which cached outputs are removed together with the pruned runs, in milliseconds since 1970. Cached
    /// outputs belong to no run, so a query for particular runs has none.
    pub fn cache_before_ms(&self) -> Option<i64> {
        let of_all = Self { states: self.states.clone(), created_before_ms: self.created_before_ms, ..Self::default() };
        if *self == of_all { self.created_before_ms } else { None }
    }

    /// True if the run passes the filter, regardless of `limit`.
    pub fn matches(&self, row: &RunRow) -> bool {
        let is_running = row.state == RunState::Running;
        let has = |(key, value): &(String, String)| row.placement.labels.get(key) == Some(value);
        self.id.as_ref().is_none_or(|id| *id == row.id)
            && (self.apps.is_empty() || self.apps.contains(&row.app))
            && self.target.as_ref().is_none_or(|target| *target == row.target)
            && (self.states.is_empty() || self.states.contains(&row.state))
            && self.is_interrupted.is_none_or(|is_interrupted| !is_running || row.is_live != is_interrupted)
            && self.created_before_ms.is_none_or(|before| row.created_at_ms < before)
            && self.created_since_ms.is_none_or(|since| row.created_at_ms >= since)
            && self.text.as_ref().is_none_or(|text| row.contains(text))
            && self.cause.is_none_or(|cause| cause == row.placement.cause)
            && self
                .tenant
                .as_deref()
                .is_none_or(|tenant| row.placement.tenant.as_deref().unwrap_or(DEFAULT_TENANT) == tenant)
            && self.labels.iter().all(has)
            && self.limit_group.as_deref().is_none_or(|name| row.placement.group_name() == Some(name))
            && self.after.is_none_or(|after| row.cursor() < after)
    }
}

/// Row of a run in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The id of the run, unique for ever ([`crate::run_id::new`]).
    pub id: String,
    /// Sequence number: a run that was accepted later has a larger one.
    pub number: i64,
    /// The app's directory.
    pub app: String,
    /// The name of the pipeline, or `machine:` or `skill:` with the name.
    pub target: String,
    /// The state, as it was last written.
    pub state: RunState,
    /// True if a driver has the run right now. A `running` run without a driver was interrupted.
    pub is_live: bool,
    /// The worker that has the run, or had it when it died; `None` where machines do not share runs.
    pub worker: Option<String>,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Time at which a driver first had the run, in milliseconds since 1970; `None` if it never began.
    pub started_at_ms: Option<i64>,
    /// Time of the last change of state, in milliseconds since 1970.
    pub changed_at_ms: i64,
    /// Number of the last change of state: see `Engine::changes`.
    pub change: u64,
    /// Origin of the run, and the rules for its beginning.
    pub placement: Placement,
}

impl RunRow {
    /// Position of the run in a list.
    pub const fn cursor(&self) -> Cursor {
        Cursor { created_at_ms: self.created_at_ms, number: self.number }
    }

    fn contains(&self, text: &str) -> bool {
        let mut labels = self.placement.labels.iter().map(|(key, value)| format!("{key}:{value}"));
        self.id.starts_with(text) || name_of(&self.target).contains(text) || labels.any(|label| label.contains(text))
    }
}

/// The number of runs per status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs that no process has begun.
    pub queued: u64,
    /// Runs with a driver.
    pub running: u64,
    /// Runs that wait for a signal.
    pub waiting: u64,
    /// Runs that wait for a time, outside any process.
    pub sleeping: u64,
    /// Runs whose process died while they were running.
    pub interrupted: u64,
    /// Ended runs in which everything worked.
    pub succeeded: u64,
    /// Ended runs in which something did not work.
    pub failed: u64,
    /// Ended runs that were cancelled.
    pub cancelled: u64,
    /// Runs that continue in another engine.
    pub moved: u64,
}

impl Counts {
    /// Counts `more` runs in `state`; of running ones, those without a driver are interrupted.
    pub fn add(&mut self, state: RunState, is_live: bool, more: u64) {
        let count = match state {
            RunState::Queued => &mut self.queued,
            RunState::Running if is_live => &mut self.running,
            RunState::Running => &mut self.interrupted,
            RunState::Waiting => &mut self.waiting,
            RunState::Sleeping => &mut self.sleeping,
            RunState::Succeeded => &mut self.succeeded,
            RunState::Failed => &mut self.failed,
            RunState::Cancelled => &mut self.cancelled,
            RunState::Moved => &mut self.moved,
        };
        *count += more;
    }

    /// Sum over all states.
    pub const fn total(&self) -> u64 {
        let Self { queued, running, waiting, sleeping, interrupted, succeeded, failed, cancelled, moved } = self;
        *queued + *running + *waiting + *sleeping + *interrupted + *succeeded + *failed + *cancelled + *moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large input is found by its member, and not by a text that looks like it.
    #[test]
    fn a_header_names_its_large_input() {
        let digest = Digest::of(b"input");
        let found = |header: &str| values_of_header(header).collect::<Vec<_>>();
        assert_eq!(found(&format!(r#"{{"v":1,"caller_dir":"ö","input_at":["{digest}",5]}}"#)), [digest]);
        for other in [
            format!(r#"{{"v":1,"asked":"\"input_at\":[\"{digest}\""}}"#),
            r#"{"v":1,"input_at":["short"#.to_owned(),
            r#"{"v":1,"input":{}}"#.to_owned(),
        ] {
            assert_eq!(found(&other), [], "{other}");
        }
    }
}
