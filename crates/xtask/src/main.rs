//! Entry point of the chores: `cargo run -p xtask` lists them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    xtask::chores::run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}
