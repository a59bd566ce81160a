//! `cargo run -p xtask -- crash`: kills the program at every write of every construct and prints the table of `docs/proof.md`.
//!
//! `soak` injects random faults into a fleet. A word after the form selects the constructs whose names contain it. `--short` is
//! the form that runs with every test; `--full` kills each write before it, after it and in its middle.

use std::process::{Command, ExitCode};

use crate::tree::root;

/// Runs the crash tests of `etude-cli`, and returns their exit status.
pub fn run(form: &str, only: Option<&str>) -> ExitCode {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "-p", "etude-cli", "--test", "it", "--"]).current_dir(root());
    match form {
        "--short" => command.args(["crash::", "--nocapture"]),
        "--full" => command.args(["crash::everything", "--ignored", "--nocapture"]).env("ETUDE_CRASH_FULL", "1"),
        "--long" => command.args(["crash::everything", "--ignored", "--nocapture"]),
        _ => {
            eprintln!("usage: cargo run -p xtask -- crash [--short | --long | --full] [WORD]");
            return ExitCode::from(2);
        }
    };
    if let Some(only) = only {
        command.env("ETUDE_CRASH_ONLY", only);
    }
    ended(&mut command)
}

/// Runs a fleet under random faults for `seconds`, and returns the exit status of the test.
pub fn soak(seconds: &str) -> ExitCode {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "-p", "etude-cli", "--test", "it", "--"]).current_dir(root());
    command.args(["soak::a_fleet_survives_random_faults", "--ignored", "--nocapture"]).env("ETUDE_SOAK_S", seconds);
    ended(&mut command)
}

fn ended(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}
