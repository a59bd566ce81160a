//! Pipelines: from text to a plan.
//!
//! In order: `read` turns the YAML tree into a definition (fields, types, templates, commands), `names` checks
//! what refers to what inside the file, `files` looks at the files it names, `load` and `resolve` bring in schemas
//! and other pipelines and check references against them, `lower` makes the plan. [`learned`] checks
//! what has been learned, candidates included.

pub mod app;
mod cacheable;
mod called;
mod condition;
mod definition;
mod extent;
mod files;
mod fingerprint;
pub mod learned;
mod load;
mod lower;
mod names;
mod read;
mod resolve;
mod shape;
mod skill;
mod step;

pub use app::{App, Pipeline, Report, Summary};
