//! The process host with real children: `spec/a-pipelines.md` A-3 and the process side of.
#![cfg(unix)]

mod bounded;
mod cancellation;
mod fixture;
mod leftovers;
mod output;
mod scripts;
mod streams;
mod workers;
