//! Tools with real files, real processes and real servers.
#![cfg(unix)]

mod app;
mod bash;
mod files;
mod fixture;
mod http;
mod search;
mod set;
mod stdio;
