//! Limits of the process, on Unix.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Lets the process have `bytes` of address space and no more. A core file would only be in the way.
pub(super) fn bound_memory(bytes: u64) -> io::Result<()> {
    setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}
