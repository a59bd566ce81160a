//! `etude help`, `etude completions` and `etude man`.

use etude::spec::did_you_mean;
use serde_json::json;

use crate::args;
use crate::context::{Context, Problem};
use crate::exit::Exit;
use crate::render::text::visible;
use crate::stdout;

/// Prints the help of a command.
pub(crate) fn help(context: &Context, words: &[String]) -> Exit {
    let mut command = args::command();
    command.build();
    for word in words {
        let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
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
    let command = if context.global.no_color { command.color(clap::ColorChoice::Never) } else { command };
    let text = command.clone().render_long_help();
    if context.is_json() {
        stdout::json(&json!({"command": command.get_bin_name(), "help": text.to_string()}));
    } else {
        stdout::styled(&text.ansi().to_string());
    }
    Exit::Done
}

pub(crate) fn completions(context: &Context, shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "etude", &mut script);
    if context.is_json() {
        stdout::json(&json!({"shell": shell.to_string(), "script": String::from_utf8_lossy(&script)}));
    } else {
        stdout::with(|out| out.write_all(&script));
    }
    Exit::Done
}

pub(crate) fn man(context: &Context) -> Exit {
    let mut page = Vec::new();
    let page = match clap_mangen::Man::new(args::command()).render(&mut page) {
        Ok(()) => page,
        Err(error) => {
            crate::render::say!("error: the manual page cannot be made: {error}");
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
