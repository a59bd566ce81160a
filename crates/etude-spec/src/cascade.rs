//! System D: `*.skill.md` files as tools, with their combined metadata.
//!
//! A tool's metadata is folded over its **levels** (the tool, its parents, the authority, `default`). Every key that is
//! the name of a tool becomes an entry of its **chain**, which is sorted once, here. One [`Strategy`] settles the cases
//! that the reference leaves open.
//!
//! Reading order: [`skill`] (a file), [`search`] (discovery of skills), [`levels`], [`fold`], [`order`], [`compile`]
//! (all of it), then [`path`] and [`interpolate`], which all of them use.

pub mod arguments;
pub mod compile;
pub mod directive;
pub mod elements;
pub mod fold;
pub mod interpolate;
pub mod levels;
pub mod library;
mod lists;
pub mod log;
mod main_skill;
pub mod mcp;
pub mod module;
pub mod order;
pub mod overrides;
mod own_faults;
mod parallel;
pub mod path;
pub mod resolve;
mod schemas;
pub mod search;
pub mod skill;
pub mod strategy;

pub use compile::{Compiled, Compiler, Scope, Skills, check};
pub use library::LIBRARY;
pub use main_skill::{ProjectMain, project_main};
pub use overrides::Overrides;
pub use search::{PathEntry, Root, Roots};
pub use skill::{Skill, SkillHandler};
pub use strategy::Strategy;

#[cfg(test)]
mod tests;
