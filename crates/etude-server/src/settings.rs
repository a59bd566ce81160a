//! Settings of a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etude_spec::config::auth::Auth;

/// An app whose runs and definitions the interface shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedApp {
    /// The unique name of the app in the interface.
    pub slug: String,
    /// The absolute path of the app.
    pub dir: PathBuf,
}

/// The options of `etude serve`, resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory of the journal.
    pub state_dir: PathBuf,
    /// The served apps; slugs and directories are unique.
    pub apps: Vec<ServedApp>,
    /// The configuration file that replaces the `etude.yaml` of each app; `None` if each app has its own.
    pub config: Option<PathBuf>,
    /// Names of the server besides the loopback addresses.
    pub names: Vec<String>,
    /// True behind a proxy: the `X-Forwarded-*` headers of requests count.
    pub is_behind_proxy: bool,
    /// The path below which a proxy serves this server: empty, or `/` and a path.
    pub base_path: String,
    /// Origins of other sites that may call the server.
    pub allowed_origins: Vec<String>,
    /// The authorization server whose access tokens are accepted besides those of the server.
    pub auth: Option<Auth>,
    /// Maximum time for runs to finish their effects before the server stops.
    pub drain_timeout: Duration,
    /// Maximum number of runs in progress.
    pub max_runs: u32,
    /// Maximum number of runs that wait for their start.
    pub max_queued: u32,
    /// Maximum number of connections over the network, loopback included.
    pub max_connections: usize,
    /// Budget of a day (UTC), in US dollars: after it is spent, no more runs are accepted.
    pub max_cost_per_day_usd: Option<f64>,
    /// Maximum size of the last events of a run that streams share, in bytes. A client that is further behind reads the journal.
    pub kept_events: usize,
    /// True to adopt runs of the command line, too.
    pub adopts_all: bool,
    /// Set for a worker: it drives runs with bundles instead of those of its apps.
    pub worker: Option<Worker>,
    /// The version of etude in documents.
    pub version: String,
}

impl Settings {
    /// The defaults for one state directory.
    pub fn new(state_dir: &Path, apps: Vec<ServedApp>) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            apps,
            config: None,
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
    /// The queues from which the worker takes runs, the first one first.
    pub queues: Vec<String>,
    /// Maximum number of runs that the worker drives at once.
    pub places: usize,
    /// Time without a run after which the worker stops; `None`: never.
    pub idle: Option<Duration>,
    /// Time between two looks at the queues.
    pub poll: Duration,
    /// Maximum number of workers that may die in a row with a run that gains no record; then the run ends as failed (K-35). 0: no
    /// limit.
    pub max_crashes: u32,
}
