//! The socket between a run and the model's process, which only the user can open.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{AsyncListener, AsyncStream, Listener, connect, listen, make_dir};
#[cfg(windows)]
pub(crate) use windows::{AsyncListener, AsyncStream, Listener, connect, listen, make_dir};
