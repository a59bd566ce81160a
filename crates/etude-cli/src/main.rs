//! The `etude` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    etude_cli::run::main()
}
