//! Input of the person at the terminal.

use std::io::Write;

use etude_runtime::driver::Stop;

use crate::problem::Problem;
use crate::runtime::block_on;
use crate::signals;

/// Result of reading from the terminal.
pub(crate) enum Typed {
    /// A line, with its line break.
    Line(String),
    /// End of the input.
    End,
    /// The user pressed Ctrl-C.
    Stopped(Stop),
}

impl Typed {
    /// True for the answer yes.
    pub(crate) fn is_yes(line: &str) -> bool {
        ["y", "yes"].contains(&line.trim().to_lowercase().as_str())
    }
}

/// Reads a line from the terminal, unless a signal comes first: the process may have handlers for signals, which would
/// otherwise have no effect during the read. It blocks the calling thread.
pub(crate) fn typed(question: &str) -> Result<Typed, Problem> {
    block_on(async {
        let mut stop = signals::listen()?;
        // Only now: a Ctrl-C at a visible question must be received.
        crate::render::say_part!("{question}");
        let _ = std::io::stderr().flush();
        let (sender, line) = tokio::sync::oneshot::channel();
        // A separate thread, because a read cannot be cancelled: after a signal it ends with the process.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line).unwrap_or(0);
            // After a signal there is no receiver any more.
            let _ = sender.send((read > 0).then_some(line));
        });
        Ok(tokio::select! {
            line = line => line.ok().flatten().map_or(Typed::End, Typed::Line),
            _ = stop.changed() => Typed::Stopped(stop.borrow().clone()),
        })
    })?
}
