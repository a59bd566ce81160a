//! The server over real sockets, in this process.

mod door;
mod support;
mod tokens;
mod wire;
