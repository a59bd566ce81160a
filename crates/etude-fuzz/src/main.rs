//! Hostile input for a time; `command` says what can be typed.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    etude_fuzz::command::main(&words)
}
