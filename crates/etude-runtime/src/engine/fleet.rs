//! The contract of the queue: runs that are accepted now and begun by some process later.
//!
//! A server on an embedded journal is a fleet of one process, or of two while it is replaced. Everything that decides which run is
//! next lies in the journal, so that limits hold for all processes together.

use std::collections::BTreeMap;

use etude_core::digest::Digest;

use super::{Boxed, Census, Error, Health, LinkEvent, NewRun, Profile, Rules, Session};

/// One minute of age is worth one unit of priority.
pub const MS_PER_PRIORITY: i64 = 60_000;

/// The name of the queue for runs that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// The tenant of runs that name none.
pub const DEFAULT_TENANT: &str = "default";

/// Accepts runs, and hands them to the processes that drive them.
pub trait Fleet: Send + Sync {
    /// The name of this process as others see it; `None` if machines do not share the runs.
    fn worker(&self) -> Option<String> {
        None
    }

    /// The tenant whose runs this process sees and submits; `None` if it sees all.
    fn tenant(&self) -> Option<String> {
        None
    }

    /// Accepts a run that no process has begun ([`super::RunState::Queued`]), together with its unique keys, or finds the run that
    /// has one of them. Once the future is ready, the run survives any death of this process.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a run of that id.
    fn enqueue<'f>(&'f self, submission: &'f Submission) -> Boxed<'f, Result<Enqueued, Error>>;

    /// Takes the queued run that is next, if there is one that may begin within the limits. It is then running. An empty queue is
    /// only read.
    ///
    /// # Errors
    /// The store fails.
    fn next(&self, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error>;

    /// Takes the queued runs that are next, in their order: at most `count`, as by [`Fleet::next`]. An engine may take fewer than there are.
    ///
    /// # Errors
    /// The store fails before one is taken.
    fn next_few(&self, limits: &Limits, count: usize, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error> {
        let next = if count == 0 { None } else { self.next(limits, now_ms)? };
        Ok(Vec::from_iter(next))
    }

    /// Takes this run, if the limits allow another one; else `None`. A queued run is then running, any other one keeps its state
    /// until that is set. It counts from now on, whatever began it.
    ///
    /// # Errors
    /// [`Error::Unknown`], or [`Error::Busy`] if somebody else has it.
    fn take(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<Box<dyn Session>>, Error>;

    /// Where a queued run stands. `None` if it is not queued.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn place(&self, run_id: &str, limits: &Limits, now_ms: i64) -> Result<Option<QueuePlace>, Error>;

    /// How many processes have died with the run since its last record. One that lets go of a run has not died. A run that takes
    /// each process down must not be taken for ever.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn deaths(&self, run_id: &str) -> Result<u32, Error>;

    /// The workers that have died with the run since its last record, the last one included: see [`Fleet::deaths`].
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn dead_workers(&self, run_id: &str) -> Result<Vec<String>, Error> {
        let _ = run_id;
        Ok(Vec::new())
    }

    /// The cost in US dollars that the result documents of a tenant's runs state, of those that were created at `since_ms` or later and end or
    /// wait. `None`: this engine reads no documents.
    ///
    /// # Errors
    /// The store fails.
    fn cost_since(&self, tenant: &str, since_ms: i64) -> Result<Option<f64>, Error> {
        let _ = (tenant, since_ms);
        Ok(None)
    }

    /// Puts a run that no process has into its queue, so that the next free worker takes it.
    ///
    /// # Errors
    /// [`Error::Unknown`], or [`Error::Busy`] if another process has it.
    fn requeue<'f>(&'f self, run_id: &'f str) -> Boxed<'f, Result<(), Error>> {
        let _ = run_id;
        Box::pin(async { Ok(()) })
    }

    /// Whether this process can drive runs: who has logged in may, and large values can be kept and read from here. An object of its own is
    /// written, read and removed; of a run nothing is touched.
    ///
    /// # Errors
    /// [`Error::Refused`] if not, [`Error::ValuesAway`] if the store of large values does not answer, or the store fails.
    fn check_work(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the store of large values answers now. Nothing is written.
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

    /// Tells others that this worker takes no more runs.
    fn retire(&self) {}

    /// How this process stands with the store.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Whether the store takes writes now. Nothing is written, and an answer does not take long.
    ///
    /// # Errors
    /// Why it does not: it cannot be reached, was moved, or may only be read.
    fn check_writes(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What has happened to the connection since this was last asked.
    fn link_events(&self) -> Vec<LinkEvent> {
        Vec::new()
    }

    /// Returns when another process may have queued a run. It may never return: who waits for runs looks for them as well.
    fn rung(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Whether a run waits in the queue of `limits`: a claim for no run, for a process that has no place.
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

    /// The rules of the fleet, as they were applied last.
    ///
    /// # Errors
    /// The store fails.
    fn rules(&self) -> Result<Rules, Error> {
        Ok(Rules::default())
    }

    /// Takes the queued runs whose time to wait is over. They stay queued until their state is set.
    ///
    /// # Errors
    /// The store fails.
    fn expired(&self, now_ms: i64) -> Result<Vec<Box<dyn Session>>, Error>;
}

/// A run to be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// What the run is created with; its id is new.
    pub run: NewRun,
    /// Keys that only one run has: of an idempotent request, a tick, a delivery. They live as long as their run.
    pub keys: Vec<UniqueKey>,
    /// The queue takes no more runs than this.
    pub max_queued: Option<u64>,
    /// The run is refused while as many runs of its limit group are queued or running as may run at once.
    pub needs_room: bool,
}

/// A key that only one run has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueKey {
    /// The key, with a word for its kind and owner: another token's key is another key.
    pub key: String,
    /// Hash of the request, to notice another request under the same key.
    pub digest: Option<Digest>,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// The run is queued.
    Accepted,
    /// Another run has one of the keys. Nothing was written.
    Repeated {
        /// The run. It may have been removed: its keys live for [`super::KEY_LIFE_MS`] at least.
        run_id: String,
        /// The first key of the submission that the other run has.
        key: String,
        /// Its request was the same: both have no digest, or equal ones.
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

/// Why a fleet takes no run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such queue has been applied.
    #[error("there is no queue `{0}`")]
    UnknownQueue(String),
    /// A quota of the tenant is spent (K-57).
    #[error("the quota `{quota}` of tenant `{tenant}` is spent: {found}, of {limit}")]
    Quota {
        /// The name of the tenant, as it stands in the configuration.
        tenant: String,
        /// The member of the configuration.
        quota: &'static str,
        /// The number that was found, with its unit.
        found: String,
        /// The limit, with its unit.
        limit: String,
    },
}

/// What the processes of a journal may run at once, all together. Suspended runs do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The name of the queue from which runs are taken.
    pub queue: String,
    /// Number of runs that came from a queue.
    pub max_runs: u32,
    /// The runs that the process can drive.
    pub takes: Takes,
}

/// Which queued runs a process takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takes {
    /// Every run of the queue, with and without a bundle.
    Any,
    /// Those of apps in these directories, which bring no bundle along.
    Apps(Vec<String>),
    /// Those that bring their app along as a bundle.
    Bundles,
}

impl Takes {
    /// True if a run of `app` is among them; `has_bundle` if it brings its app along.
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

/// Where a queued run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlace {
    /// From 1.
    pub position: u64,
    /// Why it has not begun.
    pub reason: QueueReason,
}

etude_core::words! {
    /// Why a queued run has not begun.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum QueueReason {
        /// There are as many runs as there may be, or earlier ones in the queue.
        MaxRuns = "max_runs",
        /// There are as many runs of its pipeline and key as there may be.
        Pipeline = "pipeline",
        /// Its time has not come.
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

/// Where a run comes from, and when it may begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The way in which the run was requested.
    pub cause: Cause,
    /// Who asked for it: the name of a token, or `webhook:NAME`.
    pub by: Option<String>,
    /// Labels by key, as the submitter chose them; listings and limits refer to them.
    pub labels: BTreeMap<String, String>,
    /// The run whose target and input it has.
    pub again_of: Option<String>,
    /// From -100 to 100; higher ones begin earlier.
    pub priority: i32,
    /// It begins no earlier, in milliseconds since 1970.
    pub not_before_ms: Option<i64>,
    /// How long it may stay queued after it could begin.
    pub queue_timeout_ms: Option<u64>,
    /// The limit that it shares with others.
    pub limit_group: Option<LimitGroup>,
    /// Whose it is, on a fleet with several tenants.
    pub tenant: Option<String>,
    /// The queue that it waits in; `None`: [`DEFAULT_QUEUE`].
    pub queue: Option<String>,
    /// Hash of the app's bundle, on a fleet.
    pub bundle: Option<Digest>,
}

/// A limit that the runs of one pipeline and key share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitGroup {
    /// App, pipeline and key in one text.
    pub name: String,
    /// Number of its runs at once; suspended ones do not count.
    pub max_runs: u32,
}

impl Placement {
    /// Where it stands among the queued runs, in milliseconds: the smallest is next. Age counts from `created_at_ms`.
    pub fn rank(&self, created_at_ms: i64) -> i64 {
        created_at_ms.saturating_sub(i64::from(self.priority) * MS_PER_PRIORITY)
    }

    /// When it must have begun, in milliseconds since 1970.
    pub fn expires_at_ms(&self, created_at_ms: i64) -> Option<i64> {
        let could_begin = self.not_before_ms.map_or(created_at_ms, |at| at.max(created_at_ms));
        self.queue_timeout_ms.map(|ms| could_begin.saturating_add_unsigned(ms))
    }

    /// The queue that it waits in.
    pub fn queue(&self) -> &str {
        self.queue.as_deref().unwrap_or(DEFAULT_QUEUE)
    }

    /// The name of the limit that it shares.
    pub fn group_name(&self) -> Option<&str> {
        self.limit_group.as_ref().map(|group| group.name.as_str())
    }
}
