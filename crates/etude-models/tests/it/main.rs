//! Calls against a scripted server, programs and recordings.

mod command;
mod fallback;
mod keys;
mod local;
mod loopback;
mod native;
mod providers;
mod recorded;
mod server;
mod setup;
mod streaming;
mod transport;
