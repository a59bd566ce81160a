//! Tools with real files, real processes and real servers.

#![expect(clippy::disallowed_methods, reason = "tests start programs to look at this one from outside")]

mod app;
mod bash;
mod files;
mod fixture;
mod http;
mod links;
mod search;
mod set;
mod shell_lines;
mod shell_oracle;
mod stdio;
