//! `etude completions` and `etude man`.

use clap::CommandFactory;
use serde_json::json;

use crate::args::Cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::stdout;

pub(crate) fn completions(context: &Context, shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "etude", &mut script);
    if context.is_json() {
        stdout::json(&json!({"shell": shell.to_string(), "script": String::from_utf8_lossy(&script)}));
    } else {
        stdout::with(|out| out.write_all(&script));
    }
    Exit::Done
}

pub(crate) fn man(context: &Context) -> Exit {
    let mut page = Vec::new();
    let page = match clap_mangen::Man::new(Cli::command()).render(&mut page) {
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
