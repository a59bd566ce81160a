//! The HTTP server of `etude serve`: starts, lists, streams and decides runs for programs and people.
//!
//! The crate prints nothing, reads no environment and chooses no exit status. Runs are reached only through [`etude`].

mod about;
pub mod client;
pub mod clock;
mod door;
pub mod listen;
mod login;
mod page;
mod patient;
mod problem;
mod query;
mod request;
mod route;
mod serve;
mod server;
mod session;
pub mod token;

pub use problem::{Code, Problem};
pub use route::{Needs, Route, Takes, routes};
pub use serve::serve;
pub use server::{Log, LogLine, ServedApp, Server, Settings};

/// The description of the interface, OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");
