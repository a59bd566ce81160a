//! The contract of workers: what they say of themselves, how they stand with the store, and what others see of them.

use std::collections::BTreeMap;

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The version of the program.
    pub version: String,
    /// The version of the interpreter: it claims runs of this one alone (K-62).
    pub abi: u32,
    /// The queues from which it takes runs.
    pub queues: Vec<String>,
    /// Number of runs at once.
    pub places: u32,
    /// It can keep steps in a sandbox: without that it claims nothing from a queue that is untrusted (K-55).
    pub has_sandbox: bool,
}

/// How a process stands with the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// Its runs are its own.
    #[default]
    Held,
    /// The database is down. Effects in progress continue, and nothing new begins.
    Paused,
    /// The last heartbeat was answered too long ago: it must let go of its runs.
    Expired,
    /// Its connection was closed, and there was no new one within the grace: it must let go of its runs at once.
    Closed,
}

/// How a process stands with the store, in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether its runs are its own.
    pub standing: Standing,
    /// How often it had to let go of all of its runs.
    pub lapses: u64,
    /// The connection to the database is broken at the moment.
    pub is_disconnected: bool,
    /// When a claim was answered last, with or without a run, in milliseconds before now.
    pub claimed_before_ms: Option<u64>,
    /// After this time without an answer, claims count as stale, in milliseconds.
    pub stale_after_ms: u64,
    /// Counts since its start.
    pub figures: Figures,
}

/// What a worker has done since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Heartbeats that the database answered.
    pub beats: u64,
    /// Claimed runs, by queue.
    pub claims: BTreeMap<String, u64>,
    /// Runs that it took over from workers that had died.
    pub takeovers: u64,
    /// Writes that were refused because another worker had the run.
    pub fenced_writes: u64,
    /// Connections after the first one.
    pub reconnections: u64,
}

/// What happened to the connection of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEvent {
    /// It broke, or did not answer.
    Disconnected,
    /// There is one again.
    Connected {
        /// The time without one, in milliseconds.
        after_ms: u64,
    },
}

etude_core::words! {
    /// How others see a worker.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WorkerState {
        /// It renews its lease.
        Live = "live",
        /// It takes no more runs.
        Draining = "draining",
        /// Its lease ended without a heartbeat: others may take its runs.
        Lost = "lost",
    }
}

/// A worker as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its name: the host, the process, four random characters.
    pub name: String,
    /// The name of the machine that it runs on.
    pub host: String,
    /// The process id on that machine.
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// The version of its interpreter.
    pub abi: u32,
    /// Live, draining or lost, by its lease.
    pub state: WorkerState,
    /// The queues from which it takes runs.
    pub queues: Vec<String>,
    /// Number of runs at once.
    pub places: u32,
    /// Runs that it has.
    pub live: u64,
    /// When it joined, in milliseconds since 1970, as all times here.
    pub started_at_ms: i64,
    /// Its last heartbeat, in milliseconds since 1970.
    pub last_beat_at_ms: i64,
    /// The end of its lease, in milliseconds since 1970.
    pub lease_until_ms: i64,
}

/// A queue as others see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// The name of the queue, as it stands in the configuration.
    pub name: String,
    /// Runs that could begin or continue now.
    pub depth: u64,
    /// The time since the oldest of them was submitted, in milliseconds.
    pub oldest_age_ms: Option<u64>,
    /// Runs whose time has not come.
    pub sleeping: u64,
    /// Runs of the queue that a worker has.
    pub live: u64,
    /// Those among [`QueueRow::depth`] that no live worker of the queue can replay (K-62).
    pub unclaimable: u64,
    /// The most live runs; `None`: no limit.
    pub limit: Option<u32>,
    /// Its steps run in sandboxes or not at all.
    pub untrusted: bool,
}

/// The workers and queues of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// The workers: live ones, and those lost within the last hour; by name.
    pub workers: Vec<WorkerRow>,
    /// The queues, by name.
    pub queues: Vec<QueueRow>,
}
