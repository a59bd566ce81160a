//! The chain of every invocation (`d-cascade` §7): middleware around a function, as a machine without IO.
//!
//! An invocation is a call of a named tool. The entries of its chain run before and after the tool's own function. Each entry
//! is itself a tool, invoked with its own context and with the served context as its **target**. `next()` runs the rest of a
//! chain inside an entry, so entries form an onion: code after `next()` runs on the way out.
//!
//! The [`Machine`] receives the results of functions that run elsewhere ([`Machine::finish`]) and their requests
//! ([`Machine::request`]), and answers with [`Command`]s. It never waits. Built-in [`Middleware`] runs inside the machine, at a
//! cost of a microsecond or two.
//!
//! Read in this order: [`tool`], [`context`], [`middleware`], [`machine`].

pub mod context;
pub mod machine;
pub mod middleware;
pub mod throw;
pub mod tool;

pub use context::{Context, ContextId, Payload};
pub use machine::{CallId, Command, Event, EventKind, Machine, Options, Request, Swallowed, Token, Tools};
pub use middleware::{Middleware, Resume, Step, View};
pub use throw::{Throw, ThrowKind};
pub use tool::{Tool, ToolHandler};

/// Result of a function: a value, nothing (undefined, which is not `null`), or a throw (D-2.1).
pub type Outcome = Result<Option<serde_json::Value>, Throw>;
