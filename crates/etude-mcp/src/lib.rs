//! The Model Context Protocol of `etude mcp` and `/mcp`: pipelines, machines and commands of
//! applications as tools, runs as tasks.
//!
//! The crate knows the protocol, but neither journals nor connections. It reaches runs through [`Api`], the HTTP interface of the
//! server, called in the same process.

mod api;
mod ask;
mod broken;
mod call;
mod catalog;
mod changes;
mod command;
mod find;
mod joined;
mod naming;
mod near;
mod peer;
mod prompt;
mod resource;
mod result;
mod schema;
mod seal;
mod service;
mod settings;
pub mod stdio;
mod task;
#[cfg(test)]
mod tests;
mod wire;

pub use api::{Api, Configuring, Finding, Listing, Method, Reply, Replying, Request, Skill};
pub use broken::faults;
pub use catalog::Selection;
pub use joined::Unfinished;
pub use peer::Peer;
pub use seal::SealKey;
pub use service::{Response, Service, Transport};
pub use settings::{Approvals, OnCancel, Settings};
pub use wire::{Headers, Incoming, Params, Revision, RpcError, parse};
