//! Reading of pipelines, from text to a plan.
//!
//! In order: `read` turns the YAML tree into a definition (fields, types, templates, commands), `names` checks
//! references inside the file, `files` checks the files it names. `load` and `resolve` add schemas and other pipelines
//! and check references against them; `lower` builds the plan. [`learned`] checks learned pipelines, including
//! candidates.

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
mod package;
mod read;
mod resolve;
mod shape;
mod skill;
mod slips;
mod step;
mod tool_args;

pub use app::{App, Pipeline, Report, Summary};
pub use package::Packages;
pub use skill::unread as unread_skills;
