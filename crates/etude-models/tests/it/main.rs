//! Calls against a scripted server, programs and recordings.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

mod command;
mod concessions;
mod fallback;
mod keys;
mod local;
mod loopback;
mod native;
mod providers;
mod reasoning;
mod recorded;
mod server;
mod setup;
mod streaming;
mod transport;
