//! Sending of a request until it succeeds, with a bounded number of attempts.

mod backoff;
mod charset;
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

/// A time for people: whole seconds as `5 s`, others as `1500 ms`.
pub(crate) fn shown(time: std::time::Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    }
}
