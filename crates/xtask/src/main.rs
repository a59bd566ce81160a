//! Chores: `cargo run -p xtask -- clauses` makes the table of clauses and tests again, `-- crash` that of kills.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["clauses"] => xtask::clauses::write(),
        ["crash"] => xtask::crash::run("--long", None),
        ["crash", form] => xtask::crash::run(form, None),
        ["crash", form, only] => xtask::crash::run(form, Some(only)),
        _ => {
            eprintln!("usage: cargo run -p xtask -- clauses | crash [--short | --long | --full] [WORD]");
            ExitCode::from(2)
        }
    }
}
