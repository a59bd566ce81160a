//! `cargo run -p xtask -- crash`: kills the program at every write of every construct and prints the table of
//! `docs/proof.md`. `--short` is what runs with every test.

use std::process::{Command, ExitCode};

use crate::tree::root;

/// Runs the tests of `etude-cli` that do it, and ends as they do.
pub fn run(is_short: bool) -> ExitCode {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "-p", "etude-cli", "--test", "it", "--"]).current_dir(root());
    match is_short {
        true => command.args(["crash::", "--nocapture"]),
        false => command.args(["crash::everything", "--ignored", "--nocapture"]),
    };
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}
