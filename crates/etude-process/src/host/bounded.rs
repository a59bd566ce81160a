//! Runs a process for its raw output, up to a limit (C-1.13).

use etude_core::effect::ProcessCall;
use etude_core::outcome::{Exit, Stderr};

use super::ProcessHost;
use crate::cancel::{Cancel, Cancelled};
use crate::capture::{Capture, Captured, Diagnostics};
use crate::redactor::RedactedStream;
use crate::{os, stdin};

/// Result of a process with a limit on its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounded {
    /// Exit of the process. Meaningless if the output is too large.
    pub exit: Exit,
    /// The bytes of stdout, at most the limit.
    pub stdout: Vec<u8>,
    /// True if the process printed more than the limit. It was then ended, with everything it had started.
    pub is_too_large: bool,
    /// The last lines of stderr.
    pub stderr: Stderr,
}

impl ProcessHost {
    /// Runs a process to its end and captures at most `limit` bytes of its stdout, of any form: the protocol of the call does
    /// not matter. A process that prints more is ended at once. Blocks, and writes nothing to the store.
    ///
    /// # Errors
    /// The call was cancelled. Then the process and everything that it had started are gone.
    pub fn run_bounded(&self, call: &ProcessCall, cancel: &Cancel, limit: usize) -> Result<Bounded, Cancelled> {
        let step = os::Step {
            feed: stdin::Feed::new(&call.stdin),
            stdout: Capture::bounded(&self.blobs, limit),
            stderr: Diagnostics::tail_only(&self.blobs),
            on_stderr: &mut |_| {},
            with_redactor: RedactedStream::new(&self.redaction),
        };
        let ended = match self.attend(call, step, cancel)? {
            Ok((ended, _)) => ended,
            Err(why) => {
                let (exit, stderr) = (Exit::NotStarted(why), Stderr::default());
                return Ok(Bounded { exit, stdout: Vec::new(), is_too_large: false, stderr });
            }
        };
        let is_too_large = ended.stdout.is_over();
        let stdout = match ended.stdout.finish() {
            Captured::Memory(bytes) => bytes,
            Captured::File { .. } | Captured::Lost(_) => Vec::new(),
        };
        Ok(Bounded { exit: ended.exit, stdout, is_too_large, stderr: ended.stderr.finish() })
    }
}
