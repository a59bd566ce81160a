//! A process beside a worker that ends the worker's steps after the worker dies (K-20).
//!
//! A killed worker cannot end its steps, and the run may continue on another machine. The guard reads the worker's mark and
//! the ids of its runs from a pipe. The pipe ends with the worker, however it dies. The guard then ends the processes that the
//! worker started for those runs, found by their environment. Processes that another process of this machine has since started
//! for the same run continue.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::environment::{ChildEnvironment, holder, mark_of_holder, mark_of_run};
use crate::standalone::detached;
use crate::{exempt, os};

/// The first argument that makes the program a guard.
pub const WORD: &str = "__guard-of-runs";

/// The worker's handle of its guard. Dropping it ends the guard.
#[derive(Debug)]
pub struct Guard {
    pipe: Mutex<ChildStdin>,
}

impl Guard {
    /// Starts `program`, which calls [`attend`] when its first argument is [`WORD`].
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut command = detached(program, ChildEnvironment::only(Vec::new()));
        let command =
            command.arg(WORD).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        // Leftovers of runs are killed; the guard is exempt.
        exempt(&child);
        let pipe = child.stdin.take().ok_or_else(|| io::Error::other("the guard has no pipe"))?;
        let guard = Self { pipe: Mutex::new(pipe) };
        guard.say('=', holder());
        Ok(guard)
    }

    /// Adds a run that the worker has claimed.
    pub fn watch(&self, run_id: &str) {
        self.say('+', run_id);
    }

    /// Removes a run that the worker has given up.
    pub fn forget(&self, run_id: &str) {
        self.say('-', run_id);
    }

    fn say(&self, sign: char, word: &str) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a guard, the process that continues the run on this host ends the survivors.
        let _ = pipe.write_all(format!("{sign}{word}\n").as_bytes());
    }
}

/// Body of the guard: waits for the end of `input`, then ends the processes that the worker left of its runs.
pub fn attend(input: impl Read) {
    let (holder, runs) = left(input);
    for run_id in runs {
        os::reap_survivors(vec![mark_of_run(&run_id), mark_of_holder(&holder)], Duration::ZERO);
    }
}

/// The mark of the worker, and the runs that it still had at the end of the input.
fn left(input: impl Read) -> (String, BTreeSet<String>) {
    let (mut holder, mut runs) = (String::new(), BTreeSet::new());
    for line in BufReader::new(input).lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("=", worker)) => worker.clone_into(&mut holder),
            Some(("+", run_id)) => _ = runs.insert(run_id.to_owned()),
            Some(("-", run_id)) => _ = runs.remove(run_id),
            _ => {}
        }
    }
    (holder, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K-20: the guard does not end the processes of runs that its worker gave up.
    #[test]
    fn runs_that_are_given_up_are_left_alone() {
        let (holder, runs) = left("=w\n+a\n+b\n-a\n\n?c\n+d\n-d\n".as_bytes());
        assert_eq!((holder.as_str(), runs.into_iter().collect::<Vec<_>>()), ("w", vec!["b".to_owned()]));
    }
}
