//! The server over real sockets, in this process.

mod door;
mod runs;
mod support;
mod tokens;
mod wire;
