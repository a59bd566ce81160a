//! Human-readable output.

pub(crate) mod commands;
pub(crate) mod events;
pub(crate) mod failure;
mod fan_out;
pub(crate) mod layout;
mod live;
pub(crate) mod middleware;
pub(crate) mod progress;
pub(crate) mod runs;
pub(crate) mod screen;
pub(crate) mod stopped;
pub(crate) mod summary;
pub(crate) mod text;
mod waits;

pub(crate) use screen::{say, say_hint, say_part};
