//! The contract of workers: their profile, their relation to the store, and their rows in listings.

use std::collections::BTreeMap;

/// Profile that a worker announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The version of the program.
    pub version: String,
    /// The version of the interpreter: the worker claims only runs of this version (K-62).
    pub abi: u32,
    /// The queues from which it takes runs.
    pub queues: Vec<String>,
    /// Maximum number of runs at once.
    pub places: u32,
    /// True if the worker can run steps in a sandbox: without one it claims nothing from an untrusted queue (K-55).
    pub has_sandbox: bool,
}

/// Relation of a process to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// The process owns its runs.
    #[default]
    Held,
    /// The database is down. Effects in progress continue, and no effect begins.
    Paused,
    /// The last answered heartbeat is too old: the process must release its runs.
    Expired,
    /// The connection was closed and not replaced within the grace period: the process must release its runs at once.
    Closed,
}

/// Relation of a process to the store, in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// State of the process's hold on its runs.
    pub standing: Standing,
    /// Number of times the process had to release all of its runs.
    pub lapses: u64,
    /// True if the connection to the database is broken at the moment.
    pub is_disconnected: bool,
    /// Age of the last answered claim, with or without a run, in milliseconds.
    pub claimed_before_ms: Option<u64>,
    /// Age in milliseconds after which claims count as stale.
    pub stale_after_ms: u64,
    /// Counts since the start of the process.
    pub figures: Figures,
}

/// Counts of a worker since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Heartbeats that the database answered.
    pub beats: u64,
    /// Number of claimed runs, by queue.
    pub claims: BTreeMap<String, u64>,
    /// Runs taken over from workers that had died.
    pub takeovers: u64,
    /// Writes that were refused because another worker had the run.
    pub fenced_writes: u64,
    /// Connections after the first one.
    pub reconnections: u64,
}

/// Event of a worker's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEvent {
    /// The connection broke, or did not answer.
    Disconnected,
    /// The connection is restored.
    Connected {
        /// Time without a connection, in milliseconds.
        after_ms: u64,
    },
}

etude_core::words! {
    /// State of a worker for the other processes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WorkerState {
        /// The worker renews its lease.
        Live = "live",
        /// The worker takes no more runs.
        Draining = "draining",
        /// The worker's lease ended without a heartbeat: others may take its runs.
        Lost = "lost",
    }
}

/// Row of a worker in the census.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// Name of the worker: the host, the process, four random characters.
    pub name: String,
    /// The name of the worker's machine.
    pub host: String,
    /// The process id on that machine.
    pub pid: u32,
    /// The version of the worker's program.
    pub version: String,
    /// The version of the worker's interpreter.
    pub abi: u32,
    /// Live, draining or lost, by its lease.
    pub state: WorkerState,
    /// The queues from which it takes runs.
    pub queues: Vec<String>,
    /// Maximum number of runs at once.
    pub places: u32,
    /// Number of runs that the worker has.
    pub live: u64,
    /// Time of joining, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// The last heartbeat, in milliseconds since 1970.
    pub last_beat_at_ms: i64,
    /// The end of the worker's lease, in milliseconds since 1970.
    pub lease_until_ms: i64,
}

/// Row of a queue in the census.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// The name of the queue, as it stands in the configuration.
    pub name: String,
    /// Number of runs that could begin or continue now.
    pub depth: u64,
    /// Age of the oldest of these runs since its submission, in milliseconds.
    pub oldest_age_ms: Option<u64>,
    /// Number of runs whose time has not come.
    pub sleeping: u64,
    /// Number of runs of the queue that a worker has.
    pub live: u64,
    /// Number of runs among [`QueueRow::depth`] that no live worker of the queue can replay (K-62).
    pub unclaimable: u64,
    /// Maximum number of live runs; `None`: no limit.
    pub limit: Option<u32>,
    /// True if every step must run in a sandbox.
    pub untrusted: bool,
}

/// The workers and queues of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// The workers by name: live ones, and those lost within the last hour.
    pub workers: Vec<WorkerRow>,
    /// The queues, by name.
    pub queues: Vec<QueueRow>,
}
