//! The `etude` program.

use std::process::ExitCode;

// Definitions are many small values made on several threads, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    etude_cli::run::main()
}
