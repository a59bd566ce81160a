//! System D at run time: skills found on a search path, invoked through their chains.
//!
//! [`project`] finds and compiles, [`explain`] tells, [`session`] runs. The stages of the standard pipeline are layers
//! ([`stages`]); code tools are processes, which may ask for more over a socket of their own ([`host`]).

pub mod agent;
pub mod explain;
pub mod graph;
pub mod host;
pub mod mcp;
pub(crate) mod pinned;
pub mod project;
mod roots;
pub mod session;
pub(crate) mod stages;
pub(crate) mod table;

pub use mcp::{Bridge, BridgeSettings};
pub use project::{Project, Setup};
pub use roots::Modules;
pub use session::{Access, Ended, Native, Session, Watch};
