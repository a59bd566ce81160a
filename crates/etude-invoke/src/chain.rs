//! The chain that every invocation passes (`d-cascade` §7): layers around a function, as a machine without IO.
//!
//! An invocation is a call of a named tool. Before and after the tool's own function come the entries of its chain, each of
//! them a tool, too, invoked with a context of its own and with the served context as its **target**. `next()` runs the
//! rest of a chain inside an entry, so entries form an onion: what an entry does after `next()` it does on the way out.
//!
//! The [`Machine`] is given the ends of the functions that others run ([`Machine::finish`]) and what those ask for while
//! they run ([`Machine::request`]), and answers with [`Command`]s. It waits for nothing: layers that need no one
//! ([`Middleware`]) are run inside it, at a cost of a microsecond or two.
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

/// What a function gives: a value, nothing (undefined, which is not `null`), or a throw (D-2.1).
pub type Outcome = Result<Option<serde_json::Value>, Throw>;
