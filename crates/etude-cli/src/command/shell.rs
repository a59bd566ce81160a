//! `etude completions` and `etude man`.

use clap::CommandFactory;

use crate::args::Cli;
use crate::exit::Exit;
use crate::stdout;

pub(crate) fn completions(shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "etude", &mut script);
    stdout::with(|out| out.write_all(&script));
    Exit::Done
}

pub(crate) fn man() -> Exit {
    let mut page = Vec::new();
    let page = match clap_mangen::Man::new(Cli::command()).render(&mut page) {
        Ok(()) => page,
        Err(error) => {
            crate::render::say!("error: the manual page cannot be made: {error}");
            return Exit::Bug;
        }
    };
    stdout::with(|out| out.write_all(&page));
    Exit::Done
}
