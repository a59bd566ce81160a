//! How a server behaves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etude_spec::config::auth::Auth;

/// An app whose runs and definitions the interface shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedApp {
    /// Its name in the interface.
    pub slug: String,
    /// Its directory, absolute.
    pub dir: PathBuf,
}

/// The options of `etude serve`, resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory of the journal.
    pub state_dir: PathBuf,
    /// Each has a slug and a directory of its own.
    pub apps: Vec<ServedApp>,
    /// Names of the server besides the loopback addresses.
    pub names: Vec<String>,
    /// A proxy is in front of the server: its `X-Forwarded-*` headers count.
    pub is_behind_proxy: bool,
    /// The path below which a proxy serves this server: empty, or `/` and a path.
    pub base_path: String,
    /// Origins of other sites that may call the server.
    pub allowed_origins: Vec<String>,
    /// The authorization server whose access tokens are taken besides those of the server.
    pub auth: Option<Auth>,
    /// The time that runs have to finish their effects before the server stops.
    pub drain_timeout: Duration,
    /// Runs that are in progress at once.
    pub max_runs: u32,
    /// Runs that wait for their start.
    pub max_queued: u32,
    /// Connections over the network at once, loopback included.
    pub max_connections: usize,
    /// What the runs of a day (UTC) may cost before no more are accepted, in US dollars.
    pub max_cost_per_day_usd: Option<f64>,
    /// Bytes of the last events of a run that streams share. A client that is further behind reads the journal.
    pub kept_events: usize,
    /// Runs of the command line are adopted too.
    pub adopts_all: bool,
    /// The process is a worker: it drives runs with bundles instead of those of its apps.
    pub worker: Option<Worker>,
    /// The version in documents.
    pub version: String,
}

impl Settings {
    /// The defaults for one state directory.
    pub fn new(state_dir: &Path, apps: Vec<ServedApp>) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            apps,
            names: Vec::new(),
            is_behind_proxy: false,
            base_path: String::new(),
            allowed_origins: Vec::new(),
            auth: None,
            drain_timeout: Duration::from_secs(30),
            max_runs: 32,
            max_queued: 10_000,
            max_connections: 1_024,
            max_cost_per_day_usd: None,
            kept_events: 4 * 1024 * 1024,
            adopts_all: false,
            worker: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// The queues and limits of a worker.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The queues from which it takes runs, the first one first.
    pub queues: Vec<String>,
    /// Number of runs that it drives at once.
    pub places: usize,
    /// It stops after this time without a run.
    pub idle: Option<Duration>,
    /// Between two looks at the queues.
    pub poll: Duration,
    /// Workers that may die in a row with a run that gains no record, until the run ends as failed (K-35); 0: any number.
    pub max_crashes: u32,
}
