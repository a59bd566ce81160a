//! The help of every command: groups and exit statuses at the top, examples everywhere.

use std::fmt::Write;

use clap::builder::Styles;
use clap::{Command, CommandFactory};

use super::{Cli, examples};

/// The version, with the commit where the build knew it.
pub(crate) const VERSION: &str = env!("ETUDE_VERSION");

/// The commands as the top level of help groups them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run commands", &["run", "route", "machine", "runs", "learn", "cache", "approve", "deny"]),
    ("Server commands", &["serve", "token", "mcp", "engine", "push", "bundles", "worker", "workers"]),
    ("Authoring commands", &["new", "convert", "import", "check", "list", "graph", "test", "schema"]),
    ("Agent commands", &["apps", "skill", "trust", "untrust", "host", "model"]),
    ("Other commands", &["doctor", "explain", "help", "completions", "man"]),
];

/// Maximum line width of help.
const MAX_WIDTH: usize = 100;

/// Columns before the description of a command.
const INDENT: usize = 15;

/// Minimum width of the description of a command.
const MIN_ABOUT: usize = 20;

/// The exit statuses of the contract.
pub(crate) const EXIT_STATUSES: [(&str, &str); 8] = [
    ("0", "success"),
    ("1", "the run failed"),
    ("2", "usage error"),
    ("3", "the definition is invalid"),
    ("4", "the environment is at fault: missing key, unreachable provider, trust not granted"),
    ("5", "waiting for an approval"),
    ("70", "internal error"),
    ("130", "interrupted"),
];

/// The command line with its examples.
pub(crate) fn command() -> Command {
    let command = with_examples(Cli::command(), "");
    let template = top(&command, width());
    let footer = format!("{}\n\n{}", examples::text("").unwrap_or_default(), exit_statuses());
    command.help_template(template).after_help(footer)
}

/// Adds to a command and to those below it their examples. `path` is its words after `etude`.
fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |inner| with_examples(inner, path.trim()))
    });
    match examples::text(path) {
        Some(text) => command.after_help(text),
        None => command,
    }
}

/// A heading as clap writes its own.
pub(super) fn heading(text: &str) -> String {
    let styles = Styles::styled();
    let header = styles.get_header();
    format!("{header}{text}:{header:#}")
}

/// The line width of help, as clap finds it: that of the terminal, or of `COLUMNS`.
fn width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(variable).unwrap_or(MAX_WIDTH).min(MAX_WIDTH)
}

/// The template of the top level: the commands in groups, then the options.
fn top(command: &Command, width: usize) -> String {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    let about = |name: &str| command.find_subcommand(name).filter(|inner| !inner.is_hide_set());
    let ungrouped = |name: &str| !GROUPS.iter().any(|(_, names)| names.contains(&name));
    let styles = Styles::styled();
    let literal = styles.get_literal();
    for (heading_text, names) in GROUPS {
        let is_last = heading_text == GROUPS[GROUPS.len() - 1].0;
        let others = command.get_subcommands().map(Command::get_name).filter(|name| is_last && ungrouped(name));
        let _ = writeln!(text, "{}", heading(heading_text));
        for inner in names.iter().copied().chain(others).filter_map(about) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let about = wrapped(&about, width.saturating_sub(INDENT).max(MIN_ABOUT));
            let _ = writeln!(text, "  {literal}{:<12}{literal:#} {about}", inner.get_name());
        }
        text.push('\n');
    }
    let _ = write!(text, "{}\n{{options}}{{after-help}}", heading("Options"));
    text
}

/// The words of a description in lines of at most `width` characters, each but the first behind the names of commands.
fn wrapped(text: &str, width: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            let _ = write!(out, "\n{:INDENT$}", "");
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

fn exit_statuses() -> String {
    let lines = EXIT_STATUSES.map(|(status, meaning)| format!("  {status:<4} {meaning}"));
    format!("{}\n{}", heading("Exit status"), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: the list of commands fits a narrow terminal.
    #[test]
    fn the_list_of_commands_is_wrapped() {
        let shown = |width: usize| anstream::adapter::strip_str(&top(&Cli::command(), width)).to_string();
        let longest = |width: usize| shown(width).lines().map(|line| line.chars().count()).max();
        assert!(longest(40) <= Some(40) && longest(100) > Some(60), "{}", shown(40));
        assert!(
            shown(40).contains("\n  run          Run a pipeline, or route\n               a request to one and run\n")
        );
    }
}
