//! Readers of definition files, and their lowering to the plans that `etude-core` interprets.
//!
//! This crate does no IO: files come through [`source::Sources`], which the caller implements. No reader stops at the
//! first fault. Each returns the parts that it could read and a list of [`Diagnostic`]s with code, place and hint
//!
//!
//! Reading order, in which each module needs only earlier ones: [`source`] (files and places), [`yaml`] and
//! [`frontmatter`] (the tree), [`fields`] (tables of allowed fields), `diagnose` (the messages), `check` (a tree
//! against its table), [`command`], `schema_file` and [`input`] (parts that several kinds of definitions share),
//! [`tool`] (tools of agents), [`directive`] (patterns of their calls), [`skill`] and [`application`] (packages that
//! agents read and operate), [`cascade`] (skills that are tools, and their chains), [`stage_machine`], [`learned`] and
//! [`pipeline`] (from the tree to a plan), [`lower`] (all other plans), [`render`] (output for people and programs).

pub mod application;
pub mod automation;
pub mod cascade;
mod check;
mod code;
pub mod command;
pub mod config;
mod diagnose;
pub mod diagnostic;
pub mod directive;
pub mod discover;
pub mod duration;
pub mod fields;
mod files;
pub mod frontmatter;
pub mod glob;
pub mod input;
mod json_text;
pub mod learned;
pub mod lower;
pub mod pipeline;
pub mod reference;
pub mod render;
pub mod schedule;
mod schema_file;
mod schema_json;
mod schema_words;
pub mod serve;
pub mod skill;
pub mod source;
pub mod stage_machine;
pub mod test;
pub mod tool;
mod value_types;
mod wording;
pub mod xml;
pub mod yaml;

pub use code::Code;
pub use diagnostic::{Diagnostic, Severity};
pub use json_text::json_fault;
pub use pipeline::{App, Pipeline, Report, Summary};
pub use schema_json::{application_schema, pipeline_schema, skill_schema, test_schema};
pub use wording::did_you_mean;
