//! The one path of every invocation: the middleware chain of system D, and the session that runs it.
//!
//! An invocation is a call of a named tool. Its chain surrounds its function with middleware: of the program, of the
//! standard pipeline, and of the app's skills. Code steps, model calls, tool calls, commands of applications and hooks
//! pass it.
//!
//! Law: this crate knows tools and middleware, but no plans, no journal and no command line.
//!
//! Read in this order: [`chain`] (the machine, without IO), [`project`] and [`session`] (skills on a search path, and their
//! execution), `middleware` (the program's own), [`script_host`] (requests of a running program), [`invoker`] (the entry point
//! for callers).

mod call;
pub mod chain;
pub mod explain;
pub mod graph;
mod handlers;
pub mod invoker;
mod kind;
pub mod mcp;
pub(crate) mod middleware;
pub mod pinned;
pub mod project;
mod roots;
pub mod script_host;
pub mod session;
mod table;

/// etude's own middleware. Its messages are reported as they are; a refusal of other middleware names the middleware.
pub const OWN_MIDDLEWARE: &[&str] =
    &["trust", "validate-args", "validate-allowed-tools", "validate-returns", "approve", "confirm"];

/// The reason why a call was refused, with the name of the refusing middleware unless it is etude's own.
pub fn refusal(throw: &Throw) -> String {
    if OWN_MIDDLEWARE.contains(&throw.tool.as_str()) {
        return throw.message.clone();
    }
    format!("`{}` rejected it: {}", throw.tool, throw.message)
}

/// A future that can be sent to another thread.
pub type Boxed<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

pub use call::{Asker, Checks, Confirms, Digits, Expected};
pub use chain::{Outcome, Throw, ThrowKind};
pub use invoker::{Form, Invocation, Invoker, MiddlewareSettings, as_value};
pub use kind::InvocationKind;
pub use mcp::{Bridge, BridgeSettings, SentVariable};
pub use project::{Project, Setup};
pub use roots::Modules;
pub use session::{Access, BuiltinTool, Caller, Ended, Handler, Session, Watch};
