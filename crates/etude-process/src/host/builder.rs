//! Builds a [`ProcessHost`]: the caller chooses inherited variables, redaction and sandboxing.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use super::{DEFAULT_GRACE, MAX_OUTPUT, ProcessHost};
use crate::blob::{BlobStore, Watched};
use crate::environment::{ChildEnvironment, Environment};
use crate::os;
use crate::redactor::Redaction;
use crate::sandbox::{SandboxPolicy, Sandboxes};
use crate::worker::{PythonWorker, Workers};

/// Identity, directory and store of the run that a [`ProcessHost`] serves.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// Value of `ETUDE_RUN_ID`.
    pub run_id: String,
    /// The app's directory, also the value of `ETUDE_APP_DIR`. Directories of calls are relative to it.
    pub app_dir: PathBuf,
    /// Store for long outputs.
    pub blobs: Arc<dyn BlobStore>,
}

/// A [`ProcessHost`] before it starts its first process.
#[must_use]
#[derive(Debug)]
pub struct HostBuilder {
    settings: HostSettings,
    environment: ChildEnvironment,
    redaction: Redaction,
    sandboxes: SandboxPolicy,
    grace: Duration,
    python: PythonWorker,
    exclusive: bool,
    is_guest: bool,
    max_output: u64,
}

impl ProcessHost {
    /// A host for one run. Its processes inherit `environment`, their stderr passes `redaction`, and `sandboxes` decides about
    /// calls that ask for a sandbox.
    pub fn builder(
        settings: HostSettings,
        environment: ChildEnvironment,
        redaction: Redaction,
        sandboxes: SandboxPolicy,
    ) -> HostBuilder {
        HostBuilder {
            settings,
            environment,
            redaction,
            sandboxes,
            grace: DEFAULT_GRACE,
            python: PythonWorker::default(),
            exclusive: false,
            is_guest: false,
            max_output: MAX_OUTPUT,
        }
    }
}

impl HostBuilder {
    /// Sets the time between `SIGTERM` and `SIGKILL`; by default [`DEFAULT_GRACE`].
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Configures the warm Python interpreter. Calls can ask for it as well.
    pub fn python_worker(mut self, python: PythonWorker) -> Self {
        self.python = python;
        self
    }

    /// With `true`, this process starts children through this host only. Then [`ProcessHost::kill_leftovers`] also ends
    /// orphans that left their group *and* cleared their environment, which have no other mark of this run (Linux).
    pub fn exclusive(mut self, is_exclusive: bool) -> Self {
        self.exclusive = is_exclusive;
        self
    }

    /// With `true`, this host works for a run beside the run's own host, which alone knows the other processes of the run.
    /// Then it kills no leftovers: they end with the run.
    pub fn guest(mut self, is_guest: bool) -> Self {
        self.is_guest = is_guest;
        self
    }

    /// Sets the maximum length of the stdout of a step, in bytes; by default [`MAX_OUTPUT`].
    pub fn max_output(mut self, bytes: u64) -> Self {
        self.max_output = bytes;
        self
    }

    /// Builds the host, which adopts orphans of its processes from now on. Starts no process.
    pub fn build(self) -> ProcessHost {
        let HostSettings { run_id, app_dir, blobs } = self.settings;
        os::adopt_orphans();
        // If the path cannot be made absolute (no current directory), the spawn fails with a clear message.
        let app_dir = std::path::absolute(&app_dir).unwrap_or(app_dir);
        let environment = Environment::new(&run_id, &app_dir, self.environment);
        ProcessHost {
            app_dir,
            app_root: Mutex::default(),
            grace: self.grace,
            blobs: Watched::new(blobs),
            environment,
            run_id,
            exclusive: self.exclusive,
            is_guest: self.is_guest,
            max_output: self.max_output,
            started: Mutex::default(),
            starting: RwLock::default(),
            workers: Workers::new(self.python),
            sandboxes: Sandboxes::new(self.sandboxes),
            redaction: self.redaction,
            shortage: OnceLock::new(),
            unset_variable: OnceLock::new(),
        }
    }
}
