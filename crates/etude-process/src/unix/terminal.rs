//! Processes that the terminal has stopped.
//!
//! A step leads a group of its own, which is in the background of the user's terminal. If a process of it reads from the
//! terminal or changes its settings, the system stops the whole group, its leader as well. Nothing would ever continue it.
//!
//! A session of its own would have such a process fail at once. The standard library cannot ask for one where it starts a
//! process without a fork of our memory.

use std::sync::OnceLock;
use std::time::Duration;

use etude_core::outcome::Exit;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::signals;

/// How long a process is left alone before the first look. Most steps have ended by then.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause between two looks.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Looks now and then whether the terminal has stopped a process.
#[derive(Debug)]
pub(crate) struct Watch {
    pause: Option<Duration>,
}

impl Watch {
    /// A watch over a process that has just been started.
    pub(crate) fn new() -> Self {
        Self { pause: Some(FIRST_PAUSE) }
    }

    /// How long to wait until the next look; `None` if no terminal can stop the process.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// How the child `id` must be ended, if the terminal has stopped it.
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

/// The signal by which the terminal has stopped the child `id`, which is left to be waited for.
pub(crate) fn stopped_by(id: Pid) -> Option<Signal> {
    let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(id), look).ok().flatten()?;
    Signal::from_named_raw(status.stopping_signal()?).filter(|signal| [Signal::TTIN, Signal::TTOU].contains(signal))
}
