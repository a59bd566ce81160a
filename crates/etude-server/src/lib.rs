//! The HTTP server of `etude serve`: starts, lists, streams and decides runs for programs and people.
//!
//! The crate prints nothing, reads no environment and chooses no exit status. It reaches runs only through [`etude`].

mod actions;
mod admission;
mod api;
mod app;
mod automation;
mod blocking;
mod body;
pub mod client;
pub mod clock;
mod context;
mod door;
mod fleet;
mod forwarded;
pub mod health;
mod in_progress;
mod key;
mod ledger;
pub mod listen;
mod local;
mod log;
mod mcp;
mod metrics;
mod names;
mod notice;
mod oauth;
mod once;
mod page;
mod patient;
mod problem;
mod protocol;
mod query;
mod reading;
mod request;
mod response;
mod result;
mod route;
mod run;
mod schedule;
mod serve;
mod server;
mod session;
mod settings;
mod spending;
mod stdio;
mod stopped;
mod story;
pub mod token;
mod tree;
mod unread;
mod unsent;
mod webhook;
mod work;
mod worker;

pub use app::{AppCommand, Apps, Move, NotLoaded, Ran, RunObserver};
pub use log::{Log, LogLine};
pub use page::leading_to;
pub use problem::{Code, Problem};
pub use route::{Needs, Route, Takes, routes};
pub use serve::serve;
pub use server::Server;
pub use settings::{ServedApp, Settings, Worker};
pub use stdio::stdio;
pub use work::event::{Event, Events};
pub use worker::{Ended, Stopped, work_alone};

/// The description of the interface, OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");
