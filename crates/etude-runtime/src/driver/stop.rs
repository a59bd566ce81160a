//! Stops of a run: by its own process, and before any of its effects begins.

use etude_core::effect::Effect;
use etude_core::machine::Command;
use etude_core::outcome::{Completed, Outcome};

use super::{Driver, Error};
use crate::record;

/// The user's request to stop the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stop {
    /// The run continues.
    #[default]
    No,
    /// The run stops with this reason; its destructor still runs.
    Cancel(String),
    /// The run ends at once with this reason, without its destructor.
    Kill(String),
    /// The process will end, and the run continues in another one: no effect begins, and the drive returns
    /// [`Error::Left`] when all effects under way have ended. It does not wait for timers and gates.
    Drain,
    /// Like `Drain`, at once: effects under way are ended, and begin again in the other process.
    Leave,
}

impl Driver<'_, '_> {
    /// Cancels or kills a run before any effect begins, if that was requested while no process had it or before its
    /// process died. Effects that the machine would abandon at once are not begun: they would change the world without
    /// anyone having asked for them. A process that must leave the run or end begins nothing either.
    pub(super) async fn stop_before_anything_begins(&mut self, live: Vec<Command>) -> Result<Vec<Command>, Error> {
        let said = self.drive.stop.borrow().clone();
        let killed = if self.drive.is_resumed { self.signalled_kill()? } else { None };
        match (killed, said) {
            (Some(reason), _) => self.kill(&reason).await?,
            (None, Stop::Kill(reason)) => self.kill(&reason).await?,
            (None, Stop::Cancel(reason)) => self.cancel(&reason).await?,
            (None, Stop::Leave) => return Err(Error::Left),
            (None, said) => {
                self.is_draining = said == Stop::Drain;
                let cancelled = if self.drive.is_resumed { self.signalled_cancel()? } else { None };
                let Some(reason) = cancelled else { return Ok(live) };
                self.cancel(&reason).await?;
            }
        }
        self.give_up_before_anything_begins(live).await
    }

    /// Lets the machine abandon effects before they begin.
    pub(super) async fn give_up_before_anything_begins(&mut self, live: Vec<Command>) -> Result<Vec<Command>, Error> {
        let mut left = live;
        loop {
            let commands = match self.replay.has_earlier(&self.machine) {
                true => self.poll().await?,
                false => self.machine.poll(),
            };
            if commands.is_empty() {
                return Ok(left);
            }
            for command in commands {
                let Command::Abandon(given_up) = &command else {
                    left.push(command);
                    continue;
                };
                let is_it = |command: &Command| matches!(command, Command::Start(id, _) if id == given_up);
                if let Some(at) = left.iter().position(is_it)
                    && let Command::Start(id, effect) = left.remove(at)
                {
                    let completed = Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 };
                    match effect {
                        // Gates and sleeps leave no record, as in `abandon`.
                        Effect::Gate(_) | Effect::Sleep { .. } => self.machine.complete(&id, completed),
                        effect => self.journal(&id, &effect, completed).await?,
                    }
                }
            }
        }
    }

    pub(super) async fn handle_stop(&mut self) -> Result<(), Error> {
        let stop = self.drive.stop.borrow_and_update().clone();
        match stop {
            Stop::No => return Ok(()),
            Stop::Leave => return Err(Error::Left),
            Stop::Drain => {
                self.is_draining = true;
                return Ok(());
            }
            Stop::Cancel(reason) => self.cancel(&reason).await?,
            Stop::Kill(reason) => self.kill(&reason).await?,
        }
        if self.is_draining {
            // A drain held back effects of a run that is now ended here: abandoned effects do not begin.
            let commands = self.poll().await?;
            self.execute_commands(commands).await?;
            self.is_draining = false;
            for command in std::mem::take(&mut self.held_back) {
                if let Command::Start(id, effect) = command {
                    self.start(id, effect).await?;
                }
            }
        }
        let commands = self.poll().await?;
        self.execute_commands(commands).await
    }

    pub(super) async fn cancel(&mut self, reason: &str) -> Result<(), Error> {
        if !self.replay.is_cancelled {
            self.replay.is_cancelled = true;
            self.drive.session.append(record::of_cancel(reason, self.at_ms())).await?;
            self.machine.cancel(reason);
        }
        Ok(())
    }

    pub(super) async fn kill(&mut self, reason: &str) -> Result<(), Error> {
        self.is_killed = true;
        self.cancel(reason).await?;
        self.machine.kill(reason);
        Ok(())
    }
}
