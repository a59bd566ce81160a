//! `etude` as a library: find an app, check it, run its pipelines, go on with interrupted runs.
//!
//! Nothing here prints, reads the environment or looks for configuration: anyone who embeds the library decides.

mod active;
pub mod agent;
pub mod app;
pub mod attempts;
pub mod budget;
pub mod definition;
mod describe;
pub mod document;
pub mod dry_run;
mod event_redactor;
pub mod graph;
pub mod header;
pub mod inspect;
pub mod invocation;
#[cfg(feature = "local-model")]
pub mod local;
pub mod pins;
pub mod queue;
pub mod readable;
mod resume_plan;
pub mod routing;
pub mod runner;
pub mod runs;
pub mod service;
pub mod skill_mode;
pub mod stage_machine;
pub mod story;
pub mod target;
pub mod trace;

pub use resume_plan::changes;

pub use etude_files::{beneath, regular};
pub use etude_runtime::{clock, private, run_id};
pub use etude_tools::disk;
