//! The pure half of `etude`: plans, templates, schemas, and the machine that interprets a plan.
//!
//! Nothing here does IO, reads a clock or the environment, or draws a random number. The [`machine`] takes outcomes and
//! returns commands: the same plan and the same outcomes in the same order always yield the same commands. This makes a
//! run resumable.
//!
//! Read in this order: [`plan`] (definition of a run), [`effect`] and [`outcome`] (exchange with the outside world),
//! [`machine`] (from outcomes to the next effects), [`report`] (events and results).

pub mod cause;
pub mod condition;
pub mod data;
pub mod digest;
pub mod document;
pub mod effect;
pub mod exact;
pub mod extract;
pub mod failure;
pub mod hidden;
pub mod indent;
pub mod machine;
pub mod model;
pub mod outcome;
pub mod placeholder;
pub mod plan;
pub mod pointer;
pub mod report;
pub mod scalar;
pub mod schema;
pub mod service_url;
pub mod shell;
pub mod template;
pub mod tool;
pub mod tree;
pub mod verbatim;
mod words;
