//! Examples of every command, for its help. Names are those of an app that `etude new` makes.

use super::help::heading;

/// Two to four for each command: a line `etude COMMAND:`, then a comment and a command line each, as help prints them.
const EXAMPLES: &str = include_str!("examples.txt");

/// The examples of a command as its help prints them.
pub(super) fn text(path: &str) -> Option<String> {
    lines(path).map(|examples| format!("{}\n{examples}", heading("Examples")))
}

/// The lines of the examples of a command.
pub(crate) fn lines(path: &str) -> Option<&'static str> {
    all().find(|(of, _)| *of == path).map(|(_, examples)| examples.trim_end())
}

/// Commands by their words after `etude`, and the lines of their examples.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXAMPLES.split("\n\n").filter_map(|block| {
        let (command, examples) = block.split_once(":\n")?;
        let command = command.strip_prefix("etude")?.trim_start();
        let is_of_server = ["serve", "token", "mcp"].contains(&command.split(' ').next().unwrap_or_default());
        (cfg!(feature = "serve") || !is_of_server).then_some((command, examples))
    })
}
