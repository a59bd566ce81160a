//! Recorded runs: reading and moving the records of runs, without driving them.
//!
//! A run begins with its [`header`] and its [`pins`]. Its records are read as effects ([`inspect`]), as events ([`story`]), as a
//! result [`document`] and as a row of a [`listing`]; [`transfer`] carries whole runs to another engine. Nothing here starts a
//! process, asks a model or continues a run.

pub mod document;
pub mod header;
pub mod inspect;
pub mod lines;
pub mod listing;
pub mod pins;
pub mod story;
pub mod target;
pub mod transfer;
