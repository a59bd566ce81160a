//! The `etude` program.

use std::process::ExitCode;

// Definitions are many small values allocated by several threads, at which the system's allocator is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    etude_cli::run::main()
}
