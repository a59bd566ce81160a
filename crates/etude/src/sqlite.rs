//! Runs in a journal on disk: they survive the process, and another process can continue them.
//!
//! The journal is one SQLite file, with large values in files beside it. Many processes of one machine may open it; each run
//! belongs to one of them at a time.
//!
//! # Continuing in another process
//!
//! The first run lacks a file and fails. The journal is closed, and opened again as another process would. The run continues
//! with the failed step; the step before it is not repeated.
//!
//! ```
//! use std::path::Path;
//! use std::{fs, sync::Arc};
//!
//! use etude::attempts::{Ended, Next};
//! use etude::sqlite::{Settings, Sqlite, Sync};
//! use etude::{App, Json, Limits, NoModels, Request, Resume, Runner, Watch};
//!
//! /// A runner as each process has it.
//! fn runner(home: &Path) -> Result<Runner, Box<dyn std::error::Error>> {
//!     let engine = Sqlite::open(Settings { dir: home.join("journal"), sync: Sync::Normal })?;
//!     Ok(Runner::new(Arc::new(engine), Arc::new(NoModels), home.join("scratch")))
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let home = dir.path();
//! fs::create_dir_all(home.join("pipelines/post"))?;
//! fs::write(
//!     home.join("pipelines/post/pipeline.yaml"),
//!     "name: post\ndescription: Post a letter.\nsteps:\n  \
//!      - {name: stamp, type: code, command: \"echo stamped >> ../../stamps && cat ../../stamps\", output: text}\n  \
//!      - {name: read, type: code, command: cat ../../letter, output: text}\n",
//! )?;
//! let app = App::open(home)?;
//! let definition = app.pipeline("post").expect("the pipeline is valid");
//!
//! let first = runner(home)?;
//! let request = Request::new(Json::trusted("{}"), String::new());
//! let result = first.start(&definition, app.disk(), request, Watch::new(&mut |_| {})).await?;
//! assert_eq!(result.document.status(), "failed");
//! drop(first);
//!
//! fs::write(home.join("letter"), "Dear Ada")?;
//! let second = runner(home)?;
//! let (view, blobs) = (second.engine.view(&result.run_id)?, second.engine.blobs());
//! let ended = Ended { view: &view, definition: &definition, blobs: &blobs, limits: Limits::default() };
//! let Next::Attempt(attempt) = ended.resume()? else { panic!("the run has failed") };
//! let session = second.engine.claim(&result.run_id)?;
//! let resume = Resume { attempt: Some(attempt), ..Resume::default() };
//! let result = second.resume(session, &definition, app.disk(), resume, Watch::new(&mut |_| {})).await?;
//!
//! assert_eq!(result.document.status(), "succeeded");
//! let output = result.document.output.expect("a run that succeeded has an output");
//! assert_eq!(&*output.text()?, "\"Dear Ada\"");
//! assert_eq!(fs::read_to_string(home.join("stamps"))?, "stamped\n");
//! # Ok(())
//! # }
//! ```

pub use etude_sqlite::{Backup, Settings, Sqlite, Sync};
