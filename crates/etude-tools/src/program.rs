//! Runs programs for tools, with a time limit and cancellation.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use etude_core::effect::{ProcessCall, Sandbox};
use etude_core::outcome::ProcessEnd;
use etude_process::{Cancel, ProcessHost, sandbox};
use tokio_util::sync::CancellationToken;

/// The host that runs the programs of tools, and the sandbox that all of them are in.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) host: Arc<ProcessHost>,
    pub(crate) sandbox: Option<Box<Sandbox>>,
}

/// Outcome of a program.
#[derive(Debug)]
pub(crate) enum Ran {
    /// The program ended by itself, with or without success.
    Ended(Box<ProcessEnd>),
    /// The program exceeded its time limit. Everything that it had started is gone.
    TimedOut,
    /// The program was cancelled.
    Cancelled,
    /// The observer of its stderr ended it.
    Stopped,
}

impl Ran {
    /// Description of the rules that were enforced on the program. A program that was ended has no record of them; its sandbox
    /// was the common one.
    pub(crate) fn sandbox(&self, programs: &Programs) -> Option<String> {
        match self {
            Self::Ended(end) => end.conditions.sandbox.clone(),
            Self::TimedOut | Self::Cancelled | Self::Stopped => sandbox::enforced(programs.sandbox.as_deref()?),
        }
    }
}

/// Runs a program on a thread for blocking work. `on_stderr` may end it.
pub(crate) async fn run(
    programs: &Programs,
    mut call: ProcessCall,
    timeout: Duration,
    token: &CancellationToken,
    mut on_stderr: impl FnMut(&[u8]) -> ControlFlow<()> + Send + 'static,
) -> Ran {
    let cancel = Cancel::new();
    // Dropping this future cancels the program, too.
    let _dropped = CancelOnDrop(cancel.clone());
    call.setting.sandbox = programs.sandbox.clone();
    let (host, theirs, ours) = (Arc::clone(&programs.host), cancel.clone(), cancel.clone());
    let mut running = tokio::task::spawn_blocking(move || {
        let mut stopped = false;
        let end = host.run(&call, &theirs, &mut |bytes| {
            if !stopped && on_stderr(bytes).is_break() {
                stopped = true;
                ours.cancel();
            }
        });
        (end, stopped)
    });
    let given_up = tokio::select! {
        ended = &mut running => return ended.map_or(Ran::Cancelled, settle),
        () = token.cancelled() => Ran::Cancelled,
        () = tokio::time::sleep(timeout) => Ran::TimedOut,
    };
    cancel.cancel();
    match running.await {
        // The program ended by itself just before.
        Ok((Ok(end), _)) => Ran::Ended(Box::new(end)),
        _ => given_up,
    }
}

fn settle((end, stopped): (Result<ProcessEnd, etude_process::Cancelled>, bool)) -> Ran {
    match end {
        Ok(end) => Ran::Ended(Box::new(end)),
        Err(_) if stopped => Ran::Stopped,
        Err(_) => Ran::Cancelled,
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
