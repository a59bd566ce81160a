//! What can be typed: `cargo run -p etude-fuzz -- [TARGET ...] [--seconds N] [--seed N]` runs mutations for a time,
//! `-- --replay TARGET FILE` one input, and `-- --list` shows the targets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::session::{self, End};
use crate::{TARGETS, Target, target};

/// For all targets together, if nothing else is said.
const SECONDS: f64 = 30.0;

/// Does what the words of a command line say.
pub fn main(args: &[String]) -> ExitCode {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["worker", name, seconds, seed, scratch] => worker(name, seconds, seed, Path::new(scratch)),
        ["--replay", name, file] => replay(name, Path::new(file)),
        ["--list"] => {
            TARGETS.iter().for_each(|target| println!("{:<14} {}", target.name, target.about));
            Ok(true)
        }
        words => asked(words),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    target(name).ok_or_else(|| format!("there is no target `{name}`; `--list` shows them"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn worker(name: &str, seconds: &str, seed: &str, scratch: &Path) -> Result<bool, String> {
    session::work(named(name)?, number(seconds)?, number(seed)?, scratch).map_err(|error| error.to_string())?;
    Ok(true)
}

fn replay(name: &str, file: &Path) -> Result<bool, String> {
    let data = std::fs::read(file).map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?;
    (named(name)?.run)(&data);
    println!("{name}: {} bytes, and nothing happened", data.len());
    Ok(true)
}

/// Every target that was named, or all of them, one after the other.
fn asked(words: &[&str]) -> Result<bool, String> {
    let mut targets = Vec::new();
    let mut seconds = SECONDS;
    // The clock is as good as any die, and what it gave is printed.
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match *word {
            "--seconds" => seconds = number(value()?)?,
            "--seed" => seed = number(value()?)?,
            name => targets.push(named(name)?),
        }
    }
    if targets.is_empty() {
        targets.extend(TARGETS);
    }
    println!("seed {seed}, {seconds} s for {} targets", targets.len());
    let each = seconds / targets.len() as f64;
    let findings = findings();
    let mut passed = true;
    for target in targets {
        match session::run(target, each, seed, &findings).map_err(|error| error.to_string())? {
            End::Passed { executions } => println!("{:<14} {executions:>9} inputs", target.name),
            End::Broken { status, input } => {
                passed = false;
                let (name, input) = (target.name, input.display());
                println!("{name:<14} BROKEN ({status}); the input: {input}");
                println!("{:14} once more: cargo run -p etude-fuzz -- --replay {name} {input}", "");
            }
        }
    }
    Ok(passed)
}

/// Where inputs that broke something are kept: beside the program, in the directory that cargo builds in.
fn findings() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).unwrap_or(Path::new("."));
    target.join("hostile-findings")
}
