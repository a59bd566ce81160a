//! Sending of a request until it succeeds, with a bounded number of attempts.

mod backoff;
mod client;
mod exchange;
mod follow;
mod policy;
mod refusal;

pub(crate) use client::client_for;
pub use policy::TransportPolicy;

pub(crate) use exchange::{Failed, FailedAs, Line, WireRequest, read};
pub(crate) use follow::StreamSink;
pub(crate) use policy::DEFAULT_TIMEOUT_MS;
