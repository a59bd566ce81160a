//! Preview of a plan before it runs: its drawing, and the run that follows from the plan and the input alone.
//!
//! This crate reads no journal, starts no process and asks no model.

pub mod describe;
pub mod dry_run;
pub mod graph;
