//! Runs as values of a program that drives many of them: each in its own task, with a handle.
//!
//! A run waits in the queue of its engine until a process takes it.
//!
//! ```
//! use std::time::{SystemTime, UNIX_EPOCH};
//! use std::{fs, sync::Arc};
//!
//! use etude::queue::{self, Terms};
//! use etude::service::{self, Fleet, Parts, QueueLimits};
//! use etude::{App, FileBlobs, Json, MemoryEngine, NoModels, Request, Resume, Runner};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let home = dir.path();
//! fs::create_dir_all(home.join("pipelines/greet"))?;
//! fs::write(
//!     home.join("pipelines/greet/pipeline.yaml"),
//!     "name: greet\ndescription: Greet a person.\nsteps:\n  - {name: hello, type: code, command: echo hello, output: text}\n",
//! )?;
//! let app = App::open(home)?;
//! let definition = app.pipeline("greet").expect("the pipeline is valid");
//! let engine = Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(home.join("blobs"), false))));
//!
//! let request = Request::new(Json::trusted("{}"), String::new());
//! let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
//! let (run_id, _) = queue::enqueue(&*engine, &definition, request, Terms::default(), now).await?;
//!
//! let session = engine.next(&QueueLimits::of_default_queue(4), now)?.expect("a run waits");
//! let runner = Runner::new(engine, Arc::new(NoModels), home.join("scratch"));
//! let parts = Arc::new(Parts { runner, definition, disk: app.into_disk() });
//! let mut handle = service::drive(parts, session, Resume::default(), false, Box::new(|_| {}));
//! assert_eq!(handle.run_id(), run_id);
//!
//! let result = handle.wait().await??;
//! assert_eq!(result.document.status(), "succeeded");
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use etude_runtime::driver::{self, Progress, Stop};
use etude_runtime::engine::{self, Session};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use crate::definition::Definition;
use crate::runner::{Error, Resume, RunResult, Runner, Watch};
use etude_tools::disk::Disk;

pub use etude_runtime::engine::{Fleet, Limits as QueueLimits, Placement};

/// Everything a run needs besides its journal.
#[derive(Debug)]
pub struct Parts {
    /// Drives the run. A program with several runs sets [`Runner::is_exclusive`] to false: leftovers of a run are then found by
    /// the run's id, and other runs keep their processes.
    pub runner: Runner,
    /// The definition that the run executes.
    pub definition: Definition,
    /// The files of the app that the definition was read from.
    pub disk: Disk,
}

/// Receives the events of a run. It must not block.
pub type Observer = Box<dyn FnMut(Progress<'_>) + Send>;

/// A run under way. Dropping the handle changes nothing: the run continues.
#[derive(Debug)]
pub struct RunHandle {
    run_id: String,
    stop: watch::Sender<Stop>,
    task: JoinHandle<Result<RunResult, Error>>,
}

/// Drives a claimed run in a task of the current runtime. A queued run begins; one that was interrupted or waited is resumed as
/// `resume` says. With `observes_invocations`, the observer also receives the middleware around effects.
pub fn drive(
    parts: Arc<Parts>,
    session: Box<dyn Session>,
    resume: Resume,
    observes_invocations: bool,
    mut observer: Observer,
) -> RunHandle {
    let run_id = session.run_id().to_owned();
    let (stop, stopped) = watch::channel(Stop::No);
    let task = tokio::spawn(async move {
        let Parts { runner, definition, disk } = &*parts;
        let watch = Watch { emit: &mut *observer, stop: stopped, streams_completions: false, observes_invocations };
        match resume == Resume::default() {
            true => runner.begin(session, definition, disk, watch).await,
            false => runner.resume(session, definition, disk, resume, watch).await,
        }
    });
    RunHandle { run_id, stop, task }
}

impl RunHandle {
    /// Id of the run, known from the start.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Cancels the run: its destructor still runs.
    pub fn cancel(&self, reason: &str) {
        self.send(Stop::Cancel(reason.to_owned()));
    }

    /// Ends the run at once, with all its processes and without its destructor.
    pub fn kill(&self, reason: &str) {
        self.send(Stop::Kill(reason.to_owned()));
    }

    /// Finishes the work under way and starts nothing new; [`is_left`] is then true of the result.
    pub fn drain(&self) {
        self.send(Stop::Drain);
    }

    /// Ends the work under way, and leaves the run to another process.
    pub fn leave(&self) {
        self.send(Stop::Leave);
    }

    fn send(&self, stop: Stop) {
        // A finished run has dropped the receiver.
        let _ = self.stop.send(stop);
    }

    /// True if the task is done: the run has ended, waits, or was stopped by an error.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until the run has ended, waits for a decision, or was stopped by an error.
    ///
    /// # Errors
    /// The task panicked: an internal error. The run is interrupted.
    pub async fn wait(&mut self) -> Result<Result<RunResult, Error>, JoinError> {
        (&mut self.task).await
    }
}

/// True if the run stopped so that another process can continue it.
pub fn is_left(ended: &Result<RunResult, Error>) -> bool {
    matches!(ended, Err(Error::Drive { source: driver::Error::Left, .. }))
}

/// The error of the journal that stopped a run.
pub fn engine_error(ended: &Result<RunResult, Error>) -> Option<&engine::Error> {
    ended.as_ref().err()?.of_engine()
}

/// Ends the processes that a dead process left behind, for a run that is not resumed. The caller must hold the run.
pub fn end_leftovers(run_id: &str) {
    etude_process::reap_survivors_of(run_id);
}

/// Kills the processes of a run of this process at once, without a signal to end first.
pub fn end_processes(run_id: &str) {
    etude_process::end_children_of(run_id);
}

#[cfg(test)]
mod tests;
