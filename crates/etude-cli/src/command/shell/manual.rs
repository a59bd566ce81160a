//! The manual page: one page with all commands, their options and examples.

use std::fmt::Write as _;
use std::io;

use clap::{Arg, Command};

use crate::args::{self, EXIT_STATUSES};

/// Files of the program, with their purpose.
const FILES: [(&str, &str); 4] = [
    ("etude.yaml", "Configuration of an app."),
    ("$XDG_CONFIG_HOME/etude/config.yaml", "Configuration of the user; by default in `~/.config`."),
    ("$XDG_STATE_HOME/etude", "The journal of runs; by default in `~/.local/state`."),
    ("$XDG_CACHE_HOME/etude", "Cached outputs and weights of models; by default in `~/.cache`."),
];

/// Variables of the environment, with their effect.
const VARIABLES: [(&str, &str); 4] = [
    ("ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY", "Key of a provider; the first one found selects the models."),
    ("ETUDE_SERVER, ETUDE_TOKEN", "The server of `--server`, and the access token for it."),
    ("ETUDE_ENGINE", "The database of `--engine`."),
    ("NO_COLOR", "Disables colors."),
];

/// The page in the format of `man`.
pub(super) fn page() -> io::Result<Vec<u8>> {
    let mut command = args::command();
    command.build();
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    let mut text = String::from(".SH COMMANDS\n");
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        section(&mut text, inner, inner.get_name());
    }
    text.push_str(".SH GLOBAL OPTIONS\n");
    command.get_arguments().for_each(|argument| option(&mut text, argument));
    listed(&mut text, "EXIT STATUS", &EXIT_STATUSES);
    listed(&mut text, "ENVIRONMENT", &VARIABLES);
    listed(&mut text, "FILES", &FILES);
    text.push_str(".SH EXAMPLES\n");
    examples(&mut text, "");
    page.extend(text.into_bytes());
    Ok(page)
}

/// A command with its arguments, then those below it. `path` has its words after `etude`.
fn section(text: &mut String, command: &Command, path: &str) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().lines().next().unwrap_or_default().to_owned();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, ".SS \"{}\"\n{}.\n", escaped(&usage), line(&about));
    let own = command.get_arguments().filter(|argument| !argument.is_global_set() && argument.get_id() != "help");
    own.for_each(|argument| option(text, argument));
    if path != "help" {
        examples(text, path);
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            section(text, inner, &format!("{path} {}", inner.get_name()));
        }
    }
}

/// An argument: its names and its value, then its help.
fn option(text: &mut String, argument: &Arg) {
    if argument.is_hide_set() {
        return;
    }
    let names = argument.get_short().map(|short| format!("-{short}")).into_iter();
    let names: Vec<String> = names.chain(argument.get_long().map(|long| format!("--{long}"))).collect();
    let value = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let value =
        value.and_then(|names| names.first()).map_or(String::new(), |name| format!("\\fI{}\\fR", escaped(name)));
    let names: Vec<String> = names.iter().map(|name| format!("\\fB{}\\fR", escaped(name))).collect();
    let head = [names.join(", "), value].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, ".TP\n{head}\n{}\n", line(&help));
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        let _ = writeln!(text, "[default: {}]", escaped(&defaults.join(" ")));
    }
}

fn examples(text: &mut String, path: &str) {
    if let Some(lines) = args::examples_of(path) {
        text.push_str(".PP\n.nf\n");
        lines.lines().for_each(|line| text.push_str(&format!("{}\n", begun(escaped(line)))));
        text.push_str(".fi\n");
    }
}

fn listed(text: &mut String, heading: &str, rows: &[(&str, &str)]) {
    let _ = writeln!(text, ".SH {heading}");
    for (name, meaning) in rows {
        let _ = write!(text, ".TP\n\\fB{}\\fR\n{}\n", escaped(name), line(meaning));
    }
}

/// A paragraph in one line; words in backticks are bold.
fn line(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = words.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => escaped(part),
        _ => format!("\\fB{}\\fR", escaped(part)),
    });
    begun(parts.collect())
}

/// A text without the characters that have a meaning for `man`, and in ASCII, which every version of it reads.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '"' => out.push_str("\\(dq"),
            _ if c.is_ascii() => out.push(c),
            _ => out.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    out
}

/// A line that does not begin as a request of `man`.
fn begun(line: String) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cli: the manual has every command with its options, and refers to no other page.
    #[test]
    fn the_manual_has_every_command() {
        let page = String::from_utf8(page().expect("a page")).expect("text");
        for expected in [
            ".SH NAME\n",
            ".SS \"etude run ",
            ".SS \"etude runs list ",
            "\\fB\\-n\\fR, \\fB\\-\\-limit\\fR \\fIN\\fR\n",
            "[default: 50]\n",
            ".SH EXIT STATUS\n",
            "etude run \\-C demo \\-\\-pipeline hello",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("(1)\n") && !page.contains("etude conversion"), "{page}");
        assert!(page.is_ascii(), "{page}");
        let is_request =
            |line: &str| line.starts_with('.') && !line[1..].starts_with(|c: char| c.is_ascii_alphabetic());
        assert_eq!(page.lines().find(|line| is_request(line)), None);
    }
}
