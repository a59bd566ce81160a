//! Detection of processes that the terminal has stopped.
//!
//! A step leads a group of its own, which is in the background of the user's terminal. If one of its processes reads from the
//! terminal or changes its settings, the system stops the whole group with its leader. Nothing would ever continue it.
//!
//! In a session of its own, such a process would fail at once. The standard library cannot request one when it starts a
//! process without a fork of this process's memory.

use std::sync::OnceLock;
use std::time::Duration;

use etude_core::outcome::Exit;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::signals;

/// Pause before the first check. Most steps have ended by then.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Maximum pause between two checks.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Periodic check for a process that the terminal has stopped.
#[derive(Debug)]
pub(crate) struct Watch {
    pause: Option<Duration>,
}

impl Watch {
    /// A watch over a process that was just started.
    pub(crate) fn new() -> Self {
        Self { pause: Some(FIRST_PAUSE) }
    }

    /// Time until the next check; `None` if no terminal can stop the process.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// The exit to report for the child `id`, if the terminal has stopped it.
    pub(crate) fn look(&mut self, id: Pid) -> Option<Exit> {
        self.pause = self.pause.filter(|_| has_terminal()).map(|pause| (pause * 2).min(MAX_PAUSE));
        self.pause?;
        let number = stopped_by(id)?.as_raw();
        Some(Exit::Signal { number, name: signals::name(number) })
    }
}

/// True if this process has a controlling terminal, which its children have as well.
fn has_terminal() -> bool {
    static HAS_TERMINAL: OnceLock<bool> = OnceLock::new();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    *HAS_TERMINAL.get_or_init(|| rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok())
}

/// The signal by which the terminal has stopped the child `id`, which is not reaped.
pub(crate) fn stopped_by(id: Pid) -> Option<Signal> {
    let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(id), look).ok().flatten()?;
    Signal::from_named_raw(status.stopping_signal()?).filter(|signal| [Signal::TTIN, Signal::TTOU].contains(signal))
}
