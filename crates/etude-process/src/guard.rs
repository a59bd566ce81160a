//! A process beside a worker that ends the worker's steps when the worker is dead (K-20).
//!
//! A worker that is killed cannot end its steps, and the run may continue on another machine. The guard reads the ids of the
//! worker's runs from a pipe. The pipe ends with the worker, however it dies; the guard then ends the processes of those runs,
//! found by their environment.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::environment::ChildEnvironment;
use crate::standalone::detached;
use crate::{exempt, os};

/// The first argument of the program that makes it a guard.
pub const WORD: &str = "__guard-of-runs";

/// The worker's end of its guard. The guard ends with it.
#[derive(Debug)]
pub struct Guard {
    pipe: Mutex<ChildStdin>,
}

impl Guard {
    /// Starts `program`, which calls [`attend`] when its first argument is [`WORD`].
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut command = detached(program, ChildEnvironment::only(Vec::new()));
        let command =
            command.arg(WORD).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        // What runs leave behind is ended; the guard is none of it.
        exempt(&child);
        let pipe = child.stdin.take().ok_or_else(|| io::Error::other("the guard has no pipe"))?;
        Ok(Self { pipe: Mutex::new(pipe) })
    }

    /// The worker has this run from now on.
    pub fn watch(&self, run_id: &str) {
        self.say('+', run_id);
    }

    /// The worker does not have it any more.
    pub fn forget(&self, run_id: &str) {
        self.say('-', run_id);
    }

    fn say(&self, sign: char, run_id: &str) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a guard, survivors are ended by the process that continues the run on this host.
        let _ = pipe.write_all(format!("{sign}{run_id}\n").as_bytes());
    }
}

/// What the guard does: it waits for the end of `input`, and ends the processes of the runs that are left.
pub fn attend(input: impl Read) {
    for run_id in left(input) {
        os::reap_survivors(format!("ETUDE_RUN_ID={run_id}"), Duration::ZERO);
    }
}

/// The runs that were not given up by the end of the input.
fn left(input: impl Read) -> BTreeSet<String> {
    let mut runs = BTreeSet::new();
    for line in BufReader::new(input).lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", run_id)) => _ = runs.insert(run_id.to_owned()),
            Some(("-", run_id)) => _ = runs.remove(run_id),
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K-20: what was given up is not the guard's.
    #[test]
    fn runs_that_are_given_up_are_left_alone() {
        let runs = left("+a\n+b\n-a\n\n?c\n+d\n-d\n".as_bytes());
        assert_eq!(runs.into_iter().collect::<Vec<_>>(), ["b"]);
    }
}
