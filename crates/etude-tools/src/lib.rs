//! Tools that an agent may call, independent of any agent loop. They are the built-in ones, the app's `tools/`,
//! and those of MCP servers. Patterns narrow them, and a policy decides which calls need approval.
//!
//! Nothing in this crate prints, reads the environment or asks a person. Secrets come resolved, questions are data
//! ([`approval::Decision`]), and failures of a tool are results for the model, not errors of the caller.
//!
//! Read in this order: [`tool`] (tools, calls and results), [`set`] (all tools of an agent), [`confine`] (accessible files),
//! [`builtin`], [`app`] and [`mcp`] (sources of tools), [`pattern`] (names of tools and calls in lists), [`approval`] (calls
//! that need no approval), [`guard`] (programs that may deny a call).

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
