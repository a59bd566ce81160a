//! The process host with real children: `spec/a-pipelines.md` A-3 and the process side of.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

mod bounded;
mod cancellation;
mod fixture;
mod leftovers;
mod output;
mod scripts;
mod standalone;
mod streams;
mod terminal;
mod workers;
