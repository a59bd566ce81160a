//! What is said in more than one place is said in the same way.

use crate::markdown::blocks;
use crate::usage::{USAGES, help};
use crate::{documents, read};

/// The exit statuses of the contract.
const EXITS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "70", "130"];

#[test]
fn help_and_readme_name_every_exit_status() {
    let help = help("");
    let (_, told) = help.split_once("Exit status:").expect("the help tells exit statuses");
    let told: Vec<&str> = told.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    assert_eq!(told, EXITS);

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

#[test]
fn the_readme_and_the_checks_use_the_same_test_command() {
    let tests = "cargo test --workspace";
    assert!(read("README.md").contains(tests));
    assert!(read(".ci/run").lines().any(|line| line.trim_end().ends_with(tests)));
}

#[test]
fn each_block_says_what_it_is() {
    for path in documents() {
        let known = ["sh", "console", "text", "yaml", "json", "python", "rust", "mermaid"];
        let drawings = ["ARCHITECTURE.md", "docs/"];
        for block in blocks(&read(&path)) {
            let is_free = block.language.is_empty() && drawings.iter().any(|prefix| path.starts_with(prefix));
            assert!(is_free || known.contains(&block.language.as_str()), "{path}: a block of `{}`", block.language);
        }
    }
}
