//! The pure half of `etude`: plans, templates, schemas, and the machine that interprets a plan.
//!
//! Nothing here does IO, reads a clock or the environment, or draws a random number: the [`machine`] is given
//! outcomes and answers with commands, so that the same plan and the same outcomes in the same order always give
//! the same commands. That is what makes a run resumable.
//!
//! Read in this order: [`plan`] (what is run), [`effect`] and [`outcome`] (what crosses the border),
//! [`machine`] (how one follows from the other), [`report`] (what comes out).

pub mod condition;
pub mod data;
pub mod digest;
pub mod effect;
pub mod exact;
pub mod extract;
pub mod failure;
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
