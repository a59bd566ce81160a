//! Checks that statements in several documents agree.

use std::process::Command;

use serde_json::Value;

use crate::markdown::blocks;
use crate::usage::{USAGES, help};
use crate::{documents, read, root};

/// Exit statuses of the contract.
const EXITS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "70", "130"];

#[test]
fn help_and_readme_name_every_exit_status() {
    let help = help("");
    let (_, reported) = help.split_once("Exit status:").expect("the help tells exit statuses");
    let reported: Vec<&str> = reported.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    assert_eq!(reported, EXITS);

    let readme = read("README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let rows: Vec<&str> = rows.filter(|cell| cell.chars().all(|c| c.is_ascii_digit())).collect();
    assert_eq!(rows, EXITS);
}

#[test]
fn the_change_log_has_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let heading = format!("## [{version}]");
    assert!(read("CHANGELOG.md").lines().any(|line| line.starts_with(&heading)), "no heading `{heading}`");
}

#[test]
fn the_readme_is_short_and_names_every_command() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 200, "{} lines", readme.lines().count());
    for command in &USAGES[""].commands {
        assert!(readme.contains(&format!("etude {command}")), "`etude {command}` is not in README.md");
    }
}

/// `.ci/run` finds the two commands in README.md that it runs in a fresh clone.
#[test]
fn the_checks_find_the_two_commands_of_the_readme() {
    let done = Command::new("python3").arg(root().join(".ci/first-minute")).arg("commands").output();
    let done = done.expect("python3 is installed");
    let found = String::from_utf8_lossy(&done.stdout).into_owned();
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found.len(), 2, "{found:?} {}", String::from_utf8_lossy(&done.stderr));
    assert!(found[0].starts_with("cargo run --release -- run --pull "), "{found:?}");
    assert_eq!(found[1], "cargo test --workspace");
    // More mutations of hostile input are not a second run of the tests.
    let is_other = |line: &&str| line.contains("cargo test") && !line.contains("--test mutations");
    let other = read(".ci/run").lines().filter(is_other).count();
    assert_eq!(other, 0, "`.ci/run` runs the tests once, as README.md prints it");
}

/// `cargo run -- …`, as README.md prints it, runs `etude` and builds nothing else.
#[test]
fn cargo_run_means_the_binary() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"]).current_dir(root());
    let done = command.output().expect("cargo is there");
    let workspace: Value = serde_json::from_slice(&done.stdout).expect("cargo prints JSON");
    let members = workspace["workspace_default_members"].as_array().expect("cargo says which crates it builds");
    let packages = workspace["packages"].as_array().expect("cargo lists the crates");
    let is_binary = |target: &&Value| target["kind"][0] == "bin";
    let binaries: Vec<&str> = packages
        .iter()
        .filter(|package| members.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().into_iter().flatten().filter(is_binary))
        .filter_map(|target| target["name"].as_str())
        .collect();
    assert_eq!((members.len(), binaries), (1, vec!["etude"]));
}

#[test]
fn each_block_says_what_it_is() {
    for path in documents() {
        let known = ["sh", "console", "text", "yaml", "toml", "json", "python", "rust", "mermaid", "markdown"];
        let drawings = ["ARCHITECTURE.md", "docs/"];
        for block in blocks(&read(&path)) {
            let is_free = block.language.is_empty() && drawings.iter().any(|prefix| path.starts_with(prefix));
            assert!(is_free || known.contains(&block.language.as_str()), "{path}: a block of `{}`", block.language);
        }
    }
}
