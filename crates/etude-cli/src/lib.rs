//! Command line of `etude`: the only crate that prints, reads the environment and the configuration, and chooses exit statuses.
//!
//! Start at [`run`]. There is one file per command in `command/`; the human-readable output is in `render/`.

mod args;
#[cfg(feature = "postgres")]
mod bundles;
mod command;
mod complete;
mod context;
mod engine;
mod exit;
mod local;
mod mistyped;
mod paths;
mod problem;
mod programs;
mod remote;
mod render;
pub mod run;
mod runtime;
mod settings;
mod signals;
mod stdout;
mod telemetry;
mod typed;
mod value;
