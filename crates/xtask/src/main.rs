//! Chores: `cargo run -p xtask -- clauses` makes the table of clauses and tests anew.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["clauses"] => xtask::clauses::write(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- clauses");
            ExitCode::from(2)
        }
    }
}
