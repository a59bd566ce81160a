//! The `etude` library: find an app, check it, run its pipelines, resume interrupted runs.
//!
//! The library never prints, reads the environment or looks for configuration. The embedding program decides all three.
//!
//! | item | what |
//! |---|---|
//! | [`App`] | the definitions in a directory; loading one gives a [`Definition`] |
//! | [`Runner`] | an engine, models and grants; starts and resumes runs |
//! | [`Request`], [`RunResult`] | the start parameters of a run, and its end |
//! | [`Progress`], [`Event`] | the events of a run while it executes |
//! | [`service`] | many runs in one process, each with a [`RunHandle`] |
//! | [`sqlite`] | an engine whose runs survive the process (feature `sqlite`, on by default) |
//! | [`models`] | models of hosted services, other servers and programs |
//!
//! # Running a pipeline
//!
//! This runner keeps its journal in memory and has no models. [`sqlite`](crate::sqlite#continuing-in-another-process) shows one that
//! continues in another process, [`models`](crate::models#a-program-as-a-model) one with a model.
//!
//! ```
//! use std::{fs, sync::Arc};
//!
//! use etude::{App, Event, FileBlobs, Json, MemoryEngine, NoModels, Progress, Request, Runner, Watch};
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
//!
//! let app = App::open(home)?;
//! let definition = app.pipeline("greet").expect("the pipeline is valid");
//! let engine = Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(home.join("blobs"), false))));
//! let runner = Runner::new(engine, Arc::new(NoModels), home.join("scratch"));
//!
//! let mut finished = Vec::new();
//! let mut emit = |progress: Progress<'_>| {
//!     if let Progress::Machine { event: Event::StepEnded { row, .. }, rows, .. } = progress {
//!         finished.push(rows[*row].name.clone());
//!     }
//! };
//! let request = Request::new(Json::trusted("{}"), String::new());
//! let result = runner.start(&definition, app.disk(), request, Watch::new(&mut emit)).await?;
//!
//! assert_eq!(result.document.status(), "succeeded");
//! let output = result.document.output.expect("a run that succeeded has an output");
//! assert_eq!(&*output.text()?, "\"hello\"");
//! assert_eq!(finished, ["hello"]);
//! # Ok(())
//! # }
//! ```

mod active;
pub mod agent;
pub mod app;
pub mod attempts;
pub mod definition;
mod event_redactor;
#[cfg(feature = "local-model")]
pub mod local;
pub mod models;
pub mod queue;
mod resume_plan;
pub mod runner;
pub mod service;
#[cfg(feature = "sqlite")]
pub mod sqlite;

// Items for the command line and the server only; they carry no stability promise (ADR 0129).
#[doc(hidden)]
pub mod allowance;
#[doc(hidden)]
pub mod budget;
#[doc(hidden)]
pub mod crash;
#[doc(hidden)]
pub mod invocation;
#[doc(hidden)]
pub mod readable;
#[doc(hidden)]
pub mod skill_mode;
#[doc(hidden)]
pub mod stage_machine;

pub use app::App;
pub use budget::Unpriced;
pub use definition::{Definition, LoadError};
#[doc(hidden)]
pub use resume_plan::{accepted, changes};
pub use runner::{Error, NoModels, Request, Resume, RunResult, Runner, Watch};
pub use service::RunHandle;

pub use etude_core::data::Json;
pub use etude_core::machine::Limits;
pub use etude_core::report::Event;
pub use etude_runs::document::Document;
pub use etude_runs::target::Target;
pub use etude_runtime::blob::FileBlobs;
pub use etude_runtime::driver::{Progress, Stop};
pub use etude_runtime::engine::Engine;
pub use etude_runtime::host::ModelPort;
pub use etude_runtime::memory::MemoryEngine;
pub use etude_tools::disk::Disk;
