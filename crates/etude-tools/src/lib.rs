//! Tools that an agent may call, apart from any agent loop: the built-in ones, the app's `tools/`, and
//! those of MCP servers, with the patterns that narrow them and the policy that says what needs asking.
//!
//! Nothing in this crate prints, reads the environment or asks anybody: secrets come resolved, questions go out as
//! data ([`approval::Decision`]), and failures of a tool are results for the model, not errors of the caller.
//!
//! Read in this order: [`tool`] (what a tool is and what a call gives), [`set`] (all tools of an agent), [`confine`]
//! (which files may be touched), [`builtin`], [`app`] and [`mcp`] (where tools come from), [`pattern`] (how they are
//! named in lists), [`approval`] (what may be done without asking), [`guard`] (programs that may deny a call).

pub mod app;
pub mod approval;
mod bound;
pub mod builtin;
pub mod bundle;
pub mod confine;
pub mod disk;
mod found;
pub mod guard;
pub mod mcp;
mod mcp_name;
pub mod pattern;
mod program;
pub mod set;
pub mod tool;

pub use approval::{Decision, Policy};
pub use confine::Roots;
pub use found::Found;
pub use pattern::AllowedTools;
pub use set::ToolSet;
pub use tool::{CallContext, Effect, ErrorClass, Origin, Tool, ToolError, ToolResult};
