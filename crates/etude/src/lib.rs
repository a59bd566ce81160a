//! `etude` as a library: find an app, check it, run its pipelines, go on with interrupted runs.
//!
//! Nothing here prints, reads the environment or looks for configuration: anyone who embeds the library decides.
//!
//! # Running a pipeline
//!
//! A [`runner::Runner`] has everything that runs need: a journal, models, and what processes and agents may do. This one
//! keeps its journal in memory and has no models.
//!
//! ```
//! use std::{fs, sync::Arc};
//!
//! use etude::runner::{Request, Runner, Watch};
//! use etude::{agent::Grants, definition, disk::Disk};
//! use etude_core::data::Json;
//! use etude_runtime::{blob::FileBlobs, driver::Stop, memory::MemoryEngine};
//! # use etude_core::model::{CallFailure, ModelResponse};
//! # use etude_runtime::host::{Boxed, ModelPort};
//! # #[derive(Debug)]
//! # struct NoModels;
//! # impl ModelPort for NoModels {
//! #     fn call(&self, _: etude_core::model::Request) -> Boxed<Result<ModelResponse, CallFailure>> {
//! #         unreachable!("no step asks a model")
//! #     }
//! # }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let app = dir.path();
//! fs::create_dir_all(app.join("pipelines/greet"))?;
//! fs::write(
//!     app.join("pipelines/greet/pipeline.yaml"),
//!     "name: greet\ndescription: Greet somebody.\nsteps:\n  - {name: hello, type: code, command: echo hello, output: text}\n",
//! )?;
//!
//! let disk = Disk::open(app)?;
//! let definition = definition::load(&disk, "greet", &Default::default()).expect("the pipeline has no faults");
//! let runner = Runner {
//!     engine: Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(app.join("blobs"), false)))),
//!     models: Arc::new(NoModels),
//!     grants: Grants::default(),
//!     withheld_env: Vec::new(),
//!     extra_env: Vec::new(),
//!     layers: etude_invoke::LayerSettings { scratch: app.join("scratch"), extra_env: Vec::new() },
//!     python_worker: etude_process::PythonWorker::default(),
//!     sandboxes: None,
//!     is_exclusive: false,
//! };
//! let request = Request::new(Json::trusted("{}"), String::new());
//! let (_stop, stop) = tokio::sync::watch::channel(Stop::No);
//! let mut events = 0;
//! let mut emit = |_: etude_runtime::driver::Progress<'_>| events += 1;
//! let watch = Watch { emit: &mut emit, stop, streams_completions: false, observes_invocations: false };
//! let ended = runner.start(&definition, &disk, request, watch).await?;
//!
//! assert_eq!(ended.document.status(), "succeeded");
//! let output = ended.document.output.expect("a run that succeeded has an output");
//! assert_eq!(&*output.text()?, "\"hello\"");
//! assert!(events > 0);
//! # Ok(())
//! # }
//! ```

mod active;
pub mod agent;
pub mod allowance;
pub mod app;
pub mod attempts;
pub mod budget;
pub mod crash;
pub mod definition;
mod event_redactor;
pub mod invocation;
#[cfg(feature = "local-model")]
pub mod local;
pub mod queue;
pub mod readable;
mod resume_plan;
pub mod runner;
pub mod service;
pub mod skill_mode;
pub mod stage_machine;

pub use resume_plan::changes;

pub use etude_files::{beneath, regular};
pub use etude_runtime::{clock, private, run_id};
pub use etude_tools::disk;
