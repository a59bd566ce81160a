//! The socket between a run and the model's process, which only the user can open.

mod unix;

pub(crate) use unix::{AsyncListener, AsyncStream, Listener, connect, listen, make_dir};
