//! Usage of commands, parsed from the binary's help.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

/// Flags and subcommands of one command.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Flags such as `--long` and `-s`.
    pub(crate) flags: BTreeSet<String>,
    /// Flags that have a value.
    pub(crate) with_value: BTreeSet<String>,
    /// Names of the subcommands.
    pub(crate) commands: BTreeSet<String>,
}

/// All commands by their words; the empty text is the binary itself.
pub(crate) static USAGES: LazyLock<BTreeMap<String, Usage>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    let mut left = vec![String::new()];
    while let Some(words) = left.pop() {
        let usage = parse(&help(&words));
        left.extend(usage.commands.iter().map(|name| format!("{words} {name}").trim().to_owned()));
        all.insert(words, usage);
    }
    all
});

/// Long help of a command.
pub(crate) fn help(words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etude"));
    let done = command.args(words.split_whitespace()).arg("--help").output().expect("the binary starts");
    assert!(done.status.success(), "`etude {words} --help`: {}", done.status);
    String::from_utf8(done.stdout).expect("help is UTF-8")
}

fn parse(help: &str) -> Usage {
    let mut usage = Usage::default();
    let mut is_commands = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            is_commands = line.ends_with("ommands:");
        } else if is_commands && line.starts_with("  ") && !line.starts_with("   ") {
            usage.commands.extend(line.split_whitespace().next().map(str::to_owned));
        } else if line.trim_start().starts_with('-') && !line.trim_start().starts_with("- ") {
            let has_value = line.contains('<');
            for word in line.split_whitespace().map(|word| word.trim_end_matches(',')) {
                if word.starts_with('-') {
                    usage.flags.insert(word.to_owned());
                    if has_value {
                        usage.with_value.insert(word.to_owned());
                    }
                }
            }
        }
    }
    usage
}

#[test]
fn help_is_understood() {
    let run = &USAGES["run"];
    for flag in ["--pipeline", "-p", "-i", "--dry-run", "--app", "-C", "--format", "--help"] {
        assert!(run.flags.contains(flag), "{flag}: {run:?}");
    }
    assert!(run.with_value.contains("-i") && !run.with_value.contains("--dry-run"));
    assert!(USAGES[""].commands.contains("explain"));
    assert!(USAGES["runs resume"].flags.contains("--accept-changes"));
}
