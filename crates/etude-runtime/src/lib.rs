//! Execution of runs: the driver that feeds a machine, the host that runs its effects, and the contract of the engine
//! that keeps its journal.
//!
//! Read in this order: [`engine`] (the contract), [`record`] (the form of the journal), [`host`] (how effects run),
//! [`driver`] (how the parts work together).

pub mod archive;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod driver;
pub mod engine;
pub mod host;
pub mod memory;
pub mod meter;
pub mod record;
pub mod run_id;
pub mod sync;

mod stream_buffer;

/// Storage of large values: the contract of engines names it, and an engine knows nothing of processes.
pub use etude_process::blob;
