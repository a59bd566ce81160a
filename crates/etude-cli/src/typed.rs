//! What somebody at the terminal types.

use std::io::Write;

use etude_runtime::driver::Stop;

use crate::problem::Problem;
use crate::runtime::block_on;
use crate::signals;

/// What comes from the terminal.
pub(crate) enum Typed {
    /// A line, with its end.
    Line(String),
    /// Nothing comes any more.
    End,
    /// The user pressed Ctrl-C.
    Stopped(Stop),
}

impl Typed {
    /// Whether it is a yes.
    pub(crate) fn is_yes(line: &str) -> bool {
        ["y", "yes"].contains(&line.trim().to_lowercase().as_str())
    }
}

/// A line from the terminal, unless a signal comes first: the process may have handlers for them, so that they would do
/// nothing while it reads. Not for where others wait for what this thread does.
pub(crate) fn typed(question: &str) -> Result<Typed, Problem> {
    block_on(async {
        let mut stop = signals::listen()?;
        // Only now: a Ctrl-C at a question that is seen must be received.
        crate::render::say_part!("{question}");
        let _ = std::io::stderr().flush();
        let (sender, line) = tokio::sync::oneshot::channel();
        // A thread of its own, because a read cannot be given up: after a signal it ends with the process.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line).unwrap_or(0);
            // No one listens any more after a signal.
            let _ = sender.send((read > 0).then_some(line));
        });
        Ok(tokio::select! {
            line = line => line.ok().flatten().map_or(Typed::End, Typed::Line),
            _ = stop.changed() => Typed::Stopped(stop.borrow().clone()),
        })
    })?
}
