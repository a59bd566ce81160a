//! Child processes: the variables, the sandbox and the redactor of each, warm interpreters, and the bound on their number.
//!
//! No other crate starts a process. There are two ways:
//!
//! - [`ProcessHost`] runs the processes of a run to their end: no deadlock, no lost byte, no orphan.
//!   [`ProcessHost::builder`] requires the variables that they inherit, the redactor of their stderr and the policy for
//!   sandboxes.
//! - [`standalone`] and [`detached`] prepare a program whose pipes belong to the caller, or that outlives the run: a tool
//!   server, a model program, pip.
//!
//! The host is synchronous: one thread attends one process, with a single `poll` over its three pipes, its end, and the
//! cancellation. A process is started without a fork of this process's memory (`posix_spawn`), so nothing here runs code
//! between fork and exec.
//!
//! The host assumes two things about this process. `SIGPIPE` is ignored, as the Rust runtime sets it up: a step that does not
//! read its stdin must not end etude. `SIGCHLD` is not ignored, else exit statuses are lost. Children always get the default
//! action for `SIGPIPE` and an empty signal mask from the standard library.
//!
//! The host is for Unix. A port to another system adds one file with the items of `unix.rs`.

mod environment;
mod standalone;

pub use environment::{ChildEnvironment, ENGINE_VARIABLE, SECRET_VARIABLES, TOKEN_VARIABLE};
pub use standalone::{detached, is_stopped_by_terminal, kill_group, replace, standalone, terminate_group};

pub mod blob;
pub mod sandbox;

mod cancel;
mod capture;
mod diagnosis;
mod document;
mod exempted;
pub mod guard;
mod host;
mod permits;
mod program;
mod redactor;
mod stdin;
mod text;
mod unix;
mod worker;

pub use self::{
    cancel::{Cancel, Cancelled},
    exempted::{exempt, no_longer_exempt},
    host::{
        Bounded, DEFAULT_GRACE, HostBuilder, HostSettings, MAX_DOCUMENT, MAX_OUTPUT, ProcessHost, end_children_of,
        reap_survivors_of, stdout_of,
    },
    permits::Permit,
    redactor::{Redaction, StreamRedactor},
    unix::{are_descriptors_free, keep_private, main_stack},
    worker::PythonWorker,
};
use {host::Unstarted, unix as os};
