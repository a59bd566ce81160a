//! Which runs a list shows, and what it says about each.

use etude_core::digest::Digest;

use super::{Cause, DEFAULT_TENANT, Placement, RunState};

/// A filter of runs; fields that are `None` or empty let all pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only the run of exactly this id.
    pub id: Option<String>,
    /// Only those of one of these app directories; empty: all.
    pub apps: Vec<String>,
    /// Only those of this target.
    pub target: Option<String>,
    /// Only those in one of these states; empty: all.
    pub states: Vec<RunState>,
    /// Of the running ones, only those without a driver (`true`), or with one (`false`).
    pub is_interrupted: Option<bool>,
    /// Only those created before, in milliseconds since 1970.
    pub created_before_ms: Option<i64>,
    /// Only those created at or after this time, in milliseconds since 1970.
    pub created_since_ms: Option<i64>,
    /// Only those whose id begins with this text, or whose target's name or one of whose labels (`KEY:VALUE`) contains it.
    pub text: Option<String>,
    /// Only those that began so.
    pub cause: Option<Cause>,
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only those that share this limit.
    pub limit_group: Option<String>,
    /// Only those that a list shows after this run.
    pub after: Option<Cursor>,
    /// Most rows of a page; `None`: all.
    pub limit: Option<u32>,
}

/// The place of a run in a list that is newest first. It stays the same for as long as the run is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// When the run was created, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// [`RunRow::number`].
    pub number: i64,
}

/// The part of a target that names it: `deploy` of `machine:deploy`.
pub fn name_of(target: &str) -> &str {
    target.split_once(':').map_or(target, |(_, name)| name)
}

/// The values that a run needs by the text of its header alone: a large input lies beside it (`input_at`), and no record refers to it.
pub fn values_of_header(header: &str) -> impl Iterator<Item = Digest> {
    const MARK: &str = r#""input_at":[""#;
    // Within a string of the header, the quotation marks would be escaped.
    let found = header.match_indices(MARK).map(move |(at, _)| at + MARK.len());
    found.filter_map(move |at| Digest::from_hex(header.get(at..at + 64)?))
}

impl Query {
    /// Cached outputs that were stored before this go with the runs that a prune removes. They belong to no run: a query for some
    /// runs leaves them alone.
    pub fn cache_before_ms(&self) -> Option<i64> {
        let of_all = Self { states: self.states.clone(), created_before_ms: self.created_before_ms, ..Self::default() };
        if *self == of_all { self.created_before_ms } else { None }
    }

    /// True if the run is meant, whatever the upper bound is.
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

/// A run in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The id of the run, unique for ever ([`crate::run_id::new`]).
    pub id: String,
    /// Its number: a run that was accepted later has a larger one.
    pub number: i64,
    /// The app's directory.
    pub app: String,
    /// The name of the pipeline, or `machine:` or `skill:` with the name.
    pub target: String,
    /// The state, as it was last written.
    pub state: RunState,
    /// True if a driver has it right now. A run that is `running` without one was interrupted.
    pub is_live: bool,
    /// The worker that has it, or had it when it died; `None` where machines do not share runs.
    pub worker: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When a driver first had it, in milliseconds since 1970; `None` if it never began.
    pub started_at_ms: Option<i64>,
    /// When its state last changed, in milliseconds since 1970.
    pub changed_at_ms: i64,
    /// Number of its last change of state: see `Engine::changes`.
    pub change: u64,
    /// Where it comes from, and when it may begin.
    pub placement: Placement,
}

impl RunRow {
    /// Its place in a list.
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
    /// No process has begun them.
    pub queued: u64,
    /// A driver has them.
    pub running: u64,
    /// They wait for a signal.
    pub waiting: u64,
    /// They wait for a time, outside any process.
    pub sleeping: u64,
    /// They were running when their process died.
    pub interrupted: u64,
    /// They ended, and everything worked.
    pub succeeded: u64,
    /// They ended, and something did not work.
    pub failed: u64,
    /// Somebody stopped them.
    pub cancelled: u64,
    /// They are in another engine.
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

    /// All of them.
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
