//! Commands of `cargo run -p xtask`.

use std::process::ExitCode;

use crate::{clauses, crash, package, release};

const USAGE: &str = "usage: cargo run -p xtask -- CHORE

  clauses                                       make the table of clauses and tests again
  crash [--short | --long | --full] [WORD]      kill the program at every write, and print the table
  soak [SECONDS]                                wear a fleet out with random faults, for half an hour
  package [OPTION…] [KIND…]                     make the packages that users install
  release VERSION                               write a version into the tree
  changelog VERSION                             print the changes of a version";

/// Runs the chore that the words name.
pub fn run(words: &[&str]) -> ExitCode {
    match *words {
        ["clauses"] => clauses::write(),
        ["crash"] => crash::run("--long", None),
        ["crash", form] => crash::run(form, None),
        ["crash", form, only] => crash::run(form, Some(only)),
        ["soak"] => crash::soak("1800"),
        ["soak", seconds] => crash::soak(seconds),
        ["package", ref words @ ..] => package::run(words),
        ["release", version] => release::run(version),
        ["changelog", version] => release::changelog(version),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
