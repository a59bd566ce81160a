//! The contract of the queue: a run is accepted now, and a process begins it later.
//!
//! A server on an embedded journal is a fleet of one process, or of two during a replacement. Everything that decides
//! the next run is in the journal, so that limits hold for all processes together.

use std::collections::BTreeMap;

use etude_core::digest::Digest;

use super::{Boxed, Census, Error, Health, LinkEvent, NewRun, Profile, Rules, Session};

/// Milliseconds of age that are worth one unit of priority: one minute.
pub const MS_PER_PRIORITY: i64 = 60_000;

/// The queue of runs that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// The tenant of runs that name none.
pub const DEFAULT_TENANT: &str = "default";

/// Accepts runs, and hands them to the processes that drive them.
pub trait Fleet: Send + Sync {
    /// The name of this process for others; `None` if machines do not share the runs.
    fn worker(&self) -> Option<String> {
        None
    }

    /// The tenant whose runs this process sees and submits; `None` if it sees all.
    fn tenant(&self) -> Option<String> {
        None
    }

    /// Accepts a run in the state [`super::RunState::Queued`], together with its unique keys, or finds the run that has
    /// one of the keys. Once the future is ready, the run survives any death of this process.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a run of that id.
    fn enqueue<'f>(&'f self, submission: &'f Submission) -> Boxed<'f, Result<Enqueued, Error>>;

    /// Takes the next queued run that may begin within the limits, and sets it running. An empty queue causes no write.
    ///
    /// # Errors
    /// The store fails.
    fn next(&self, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error>;

    /// Takes the next queued runs, in their order: at most `count`, as by [`Fleet::next`]. An engine may take fewer
    /// than exist.
    ///
    /// # Errors
    /// The store fails before the first run is taken.
    fn next_few(&self, limits: &Limits, count: usize, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error> {
        let next = if count == 0 { None } else { self.next(limits, now_ms)? };
        Ok(Vec::from_iter(next))
    }

    /// Takes this run, if the limits allow another one; else `None`. A queued run is then running; any other run keeps
    /// its state until that is set. From now on the run counts against limits, however it began.
    ///
    /// # Errors
    /// [`Error::Unknown`], or [`Error::Busy`] if another process has the run.
    fn take(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error>;

    /// Position of a queued run. `None` if the run is not queued.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error>;

    /// Number of processes that have died with the run since its last record that is progress
    /// ([`crate::record::progress`]). A process that releases a run has not died. The number stops a run that takes each
    /// process down from being taken for ever.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn deaths(&self, run_id: &str) -> Result<u32, Error>;

    /// The workers that have died with the run since its last record, including the last one: see [`Fleet::deaths`].
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn dead_workers(&self, run_id: &str) -> Result<Vec<String>, Error> {
        let _ = run_id;
        Ok(Vec::new())
    }

    /// Cost in US dollars of a tenant's runs, by the result documents of runs that were created at `since_ms` or later
    /// and have ended or wait. Runs that were removed within a day of their creation count, and so do the records of runs that
    /// were continued and have no document again yet. `None` if this engine reads no documents.
    ///
    /// # Errors
    /// The store fails.
    fn cost_since(&self, tenant: &str, since_ms: i64) -> Result<Option<f64>, Error> {
        let _ = (tenant, since_ms);
        Ok(None)
    }

    /// Puts a run that no process has into its queue, so that the next process with room takes it. A run that has ended
    /// or was interrupted is then queued, without its result; it keeps its records, the time of its first beginning, and
    /// its rank. Its queue timeout counts from `now_ms`. A suspended run keeps its state. On a fleet, an interrupted run
    /// with a bundle keeps its state as well.
    ///
    /// # Errors
    /// [`Error::Unknown`], or [`Error::Busy`] if another process has it.
    fn requeue<'f>(&'f self, run_id: &'f str, now_ms: i64) -> Boxed<'f, Result<(), Error>>;

    /// Checks that this process can drive runs: its login has the permissions, and large values can be kept and read
    /// from here. It writes, reads and removes an object of its own, and touches no run.
    ///
    /// # Errors
    /// [`Error::Refused`] if it cannot, [`Error::ValuesAway`] if the store of large values does not answer, or the
    /// store fails.
    fn check_work(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks that the store of large values answers now. Writes nothing.
    ///
    /// # Errors
    /// [`Error::ValuesAway`] if it does not, [`Error::Refused`] if it refuses this process, or the store fails.
    fn check_values(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Joins the fleet as a worker. Returns after the first heartbeat.
    ///
    /// # Errors
    /// The store fails.
    fn join(&self, profile: &Profile) -> Result<(), Error> {
        let _ = profile;
        Ok(())
    }

    /// Announces that this worker takes no more runs.
    fn retire(&self) {}

    /// Relation of this process to the store, in figures.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Checks that the store takes writes now. Writes nothing, and does not take long.
    ///
    /// # Errors
    /// The reason why it does not: the store cannot be reached, was moved, or is read-only.
    fn check_writes(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Events of the connection since the last call.
    fn link_events(&self) -> Vec<LinkEvent> {
        Vec::new()
    }

    /// Returns when another process may have queued a run. It may never return, so a caller that waits for runs polls
    /// as well.
    fn rung(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// True if a run waits in the queue of `limits`: a claim that takes no run, for a process without a free place.
    ///
    /// # Errors
    /// The store fails.
    fn is_waiting(&self, limits: &Limits, now_ms: i64) -> Result<bool, Error> {
        let _ = (limits, now_ms);
        Ok(false)
    }

    /// The workers and queues of the fleet.
    ///
    /// # Errors
    /// The store fails.
    fn census(&self) -> Result<Census, Error> {
        Ok(Census::default())
    }

    /// The rules of the fleet, as last applied.
    ///
    /// # Errors
    /// The store fails.
    fn rules(&self) -> Result<Rules, Error> {
        Ok(Rules::default())
    }

    /// Takes the queued runs whose queue timeout has passed. They stay queued until their state is set. A run that cannot be
    /// taken keeps no other run from its end: its failure is reported when it is the only one left.
    ///
    /// # Errors
    /// The store fails, and no run can be taken.
    fn expired(&self, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error>;
}

/// A request to queue a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The run as it will be created; its id is new.
    pub run: NewRun,
    /// Keys that only one run has: of an idempotent request, a tick, a delivery. They live as long as their run.
    pub keys: Vec<UniqueKey>,
    /// Maximum number of runs in the queue.
    pub max_queued: Option<u64>,
    /// True to refuse the run while its limit group has as many queued or running runs as may run at once.
    pub needs_room: bool,
}

/// A key that is unique among runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueKey {
    /// The key, with a word for its kind and owner: the keys of two tokens never collide.
    pub key: String,
    /// Hash of the request, to detect another request under the same key.
    pub digest: Option<Digest>,
}

/// Result of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// The run is queued.
    Accepted,
    /// Another run has one of the keys. Nothing was written.
    Repeated {
        /// The other run. It may have been removed: its keys live for at least [`super::KEY_LIFE_MS`].
        run_id: String,
        /// The first key of the submission that the other run has.
        key: String,
        /// True if both requests are the same: both have no digest, or equal ones.
        is_same: bool,
    },
    /// The queue is full. Nothing was written.
    Full,
    /// The fleet has no such queue, or the tenant has spent a quota. Nothing was written.
    Refused(Refusal),
    /// The run needs room, and its limit group has none. Nothing was written.
    Held {
        /// The oldest run of the group that is queued or running.
        run_id: String,
    },
}

/// Reason why a fleet refuses a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such queue has been applied.
    #[error("there is no queue `{0}`")]
    UnknownQueue(String),
    /// A quota of the tenant is spent (K-57).
    #[error("the quota `{quota}` of tenant `{tenant}` is used up: {found} of {limit}")]
    Quota {
        /// The name of the tenant, as it stands in the configuration.
        tenant: String,
        /// Name of the quota in the configuration.
        quota: &'static str,
        /// The current number, with its unit.
        found: String,
        /// The limit, with its unit.
        limit: String,
    },
}

/// Limits of the runs that all processes of a journal may run at once. Suspended runs do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The name of the queue from which runs are taken.
    pub queue: String,
    /// Maximum number of runs that came from a queue.
    pub max_runs: u32,
    /// The runs that the process can drive.
    pub takes: Takes,
}

/// Filter of the queued runs that a process takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takes {
    /// Every run of the queue, with and without a bundle.
    Any,
    /// Runs without a bundle, of apps in these directories.
    Apps(Vec<String>),
    /// Runs that bring their app along as a bundle.
    Bundles,
}

impl Takes {
    /// True if the process takes a run of `app`; `has_bundle` if the run brings its app along.
    pub fn fits(&self, app: &str, has_bundle: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Apps(apps) => !has_bundle && apps.iter().any(|of| of == app),
            Self::Bundles => has_bundle,
        }
    }
}

impl Limits {
    /// Limits of the queue for runs that name none.
    pub fn of_default_queue(max_runs: u32) -> Self {
        Self { queue: DEFAULT_QUEUE.to_owned(), max_runs, takes: Takes::Any }
    }
}

/// Position of a queued run, and the reason why it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlace {
    /// Position in the queue, from 1.
    pub position: u64,
    /// Reason why the run has not begun.
    pub reason: QueueReason,
}

etude_core::words! {
    /// Reason why a queued run has not begun.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum QueueReason {
        /// The maximum number of runs is reached, or earlier runs are in the queue.
        MaxRuns = "max_runs",
        /// The maximum number of runs of its pipeline and key is reached.
        Pipeline = "pipeline",
        /// The run's time has not come.
        NotBefore = "not_before",
    }
}

etude_core::words! {
    /// The way in which a run was requested, by its word in listings.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Cause {
        /// The command line, or a program that embeds the library.
        #[default]
        Cli = "cli",
        /// A request over HTTP.
        Api = "api",
        /// A tick of a schedule.
        Schedule = "schedule",
        /// A delivery to a webhook.
        Webhook = "webhook",
        /// A call of a tool over MCP.
        Mcp = "mcp",
    }
}

/// Origin of a run, and the rules for its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The way in which the run was requested.
    pub cause: Cause,
    /// Submitter: the name of a token, or `webhook:NAME`.
    pub by: Option<String>,
    /// Labels by key, as the submitter chose them; listings and limits refer to them.
    pub labels: BTreeMap<String, String>,
    /// The run whose target and input this run repeats.
    pub again_of: Option<String>,
    /// From -100 to 100; runs of higher priority begin earlier.
    pub priority: i32,
    /// Earliest beginning, in milliseconds since 1970.
    pub not_before_ms: Option<i64>,
    /// Maximum time in the queue after the run could begin, in milliseconds.
    pub queue_timeout_ms: Option<u64>,
    /// The limit that the run shares with others.
    pub limit_group: Option<LimitGroup>,
    /// Tenant that owns the run, on a fleet with several tenants.
    pub tenant: Option<String>,
    /// The queue of the run; `None`: [`DEFAULT_QUEUE`].
    pub queue: Option<String>,
    /// Hash of the app's bundle, on a fleet.
    pub bundle: Option<Digest>,
}

/// A limit that the runs of one pipeline and key share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitGroup {
    /// App, pipeline and key in one text.
    pub name: String,
    /// Maximum number of its runs at once; suspended ones do not count.
    pub max_runs: u32,
}

impl Placement {
    /// Rank among the queued runs, in milliseconds: the smallest is next. Age counts from `created_at_ms`.
    pub fn rank(&self, created_at_ms: i64) -> i64 {
        created_at_ms.saturating_sub(i64::from(self.priority) * MS_PER_PRIORITY)
    }

    /// Latest beginning, in milliseconds since 1970; `None` without a queue timeout.
    pub fn expires_at_ms(&self, created_at_ms: i64) -> Option<i64> {
        let could_begin = self.not_before_ms.map_or(created_at_ms, |at| at.max(created_at_ms));
        self.queue_timeout_ms.map(|ms| could_begin.saturating_add_unsigned(ms))
    }

    /// Name of the run's queue.
    pub fn queue(&self) -> &str {
        self.queue.as_deref().unwrap_or(DEFAULT_QUEUE)
    }

    /// Name of the limit that the run shares with others.
    pub fn group_name(&self) -> Option<&str> {
        self.limit_group.as_ref().map(|group| group.name.as_str())
    }
}
