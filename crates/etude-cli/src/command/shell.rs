//! `etude help`, `etude completions` and `etude man`.

mod manual;

use std::io::IsTerminal;

use clap::ValueEnum;
use etude_core::failure::FailureKind;
use etude_spec::did_you_mean;
use serde_json::json;

use crate::args::{self, Shell};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::text::visible;
use crate::stdout;

/// Prints the help of a command.
pub(crate) fn help(context: &Context, words: &[String]) -> Exit {
    let mut command = args::command();
    command.build();
    for word in words {
        let visible_ones = command.get_subcommands().filter(|known| !known.is_hide_set());
        let known: Vec<&str> = visible_ones.map(clap::Command::get_name).collect();
        let Some(inner) = command.find_subcommand(word).cloned() else {
            let name = command.get_bin_name().unwrap_or("etude").to_owned();
            let problem = Problem::usage(format!("`{name}` has no command `{}`", visible(word)));
            let problem = match did_you_mean(word, known.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None if known.is_empty() => {
                    problem.hint(format!("see its options: etude help {}", &name["etude ".len()..]))
                }
                None => problem.hint(format!("its commands: {}", known.join(", "))),
            };
            return context.report(None, &problem);
        };
        command = inner;
    }
    let name = command.get_bin_name().unwrap_or("etude").to_owned();
    let asked = ["etude"].into_iter().chain(words.iter().map(String::as_str)).chain(["--help"]);
    let Err(help) = args::command().try_get_matches_from(asked) else { return Exit::Bug };
    let text = help.render();
    if context.is_json() {
        stdout::json(&json!({"command": name, "help": text.to_string()}));
    } else {
        stdout::styled(&text.ansi().to_string());
    }
    Exit::Done
}

/// Installation of completions in a shell: the line to add, and its start-up file.
const fn installation(shell: Shell) -> (&'static str, &'static str) {
    match shell {
        Shell::Bash => ("source <(etude completions bash)", "~/.bashrc"),
        Shell::Zsh => ("source <(etude completions zsh)", "~/.zshrc, after `compinit`"),
        Shell::Fish => ("etude completions fish | source", "~/.config/fish/completions/etude.fish"),
        Shell::Elvish => ("eval (etude completions elvish | slurp)", "~/.config/elvish/rc.elv"),
        Shell::Pwsh => ("etude completions powershell | Out-String | Invoke-Expression", "$PROFILE"),
    }
}

/// Instruction for the installation of completions in the named shell.
pub(crate) fn installation_of(shell: &str) -> String {
    let known = Shell::from_str(shell, true).map(installation);
    known.map_or_else(|_| "etude completions SHELL".to_owned(), |(line, file)| format!("add `{line}` to {file}"))
}

/// The script for bash. That of clap has no values of `-i KEY=VALUE` and `--option=VALUE`, and does not quote names of files.
const BASH: &str = include_str!("shell/complete.bash");

/// The script for zsh. That of clap puts a space after `KEY=`, mixes options with names, sorts runs that have the same
/// description, and as a file of completions does nothing at its first use.
const ZSH: &str = include_str!("shell/complete.zsh");

/// Prints the script with which a shell asks this program for candidates.
pub(crate) fn completions(context: &Context, shell: Shell) -> Exit {
    let name = shell.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let shells = clap_complete::env::Shells::builtins();
    let mut script = Vec::new();
    let written = shells
        .completer(&name)
        .map(|known| known.write_registration("COMPLETE", "etude", "etude", "etude", &mut script));
    if !matches!(written, Some(Ok(()))) {
        let problem =
            Problem::new(Exit::Bug, FailureKind::Internal, format!("cannot write the completion script for {name}"));
        return context.report(None, &problem);
    }
    let (line, file) = installation(shell);
    let script = match shell {
        Shell::Bash => BASH.into(),
        Shell::Zsh => ZSH.into(),
        _ => String::from_utf8_lossy(&script),
    };
    // The first line of a zsh script must come first, so the comment follows at the end.
    let script = format!("{}\n# Install: put this line into {file}:\n#   {line}\n", script.trim_end());
    if context.is_json() {
        stdout::json(&json!({"shell": name, "script": script, "install": {"line": line, "file": file}}));
        return Exit::Done;
    }
    stdout::text(&script);
    if std::io::stdout().is_terminal() && !context.global.quiet {
        crate::render::say!("hint: put this line into {file}: {line}");
    }
    Exit::Done
}

pub(crate) fn man(context: &Context) -> Exit {
    let page = match manual::page() {
        Ok(page) => page,
        Err(error) => {
            crate::render::say!("error: cannot create the manual page: {error}");
            return Exit::Bug;
        }
    };
    if context.is_json() {
        stdout::json(&json!({"page": String::from_utf8_lossy(&page)}));
    } else {
        stdout::with(|out| out.write_all(&page));
    }
    Exit::Done
}
