//! A plan before it runs: its drawing, and the run that the plan and the input alone lead to.
//!
//! Nothing here reads a journal, starts a process or asks a model.

pub mod describe;
pub mod dry_run;
pub mod graph;
