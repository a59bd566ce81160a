//! How a run is stopped: by its own process, and before anything of it begins.

use etude_core::effect::Effect;
use etude_core::machine::Command;
use etude_core::outcome::{Completed, Outcome};

use super::{Driver, Error};
use crate::record;

/// What the user has said so far about stopping the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stop {
    /// The run goes on.
    #[default]
    No,
    /// Stop; the destructor still runs.
    Cancel(String),
    /// The run ends at once, without its destructor; the reason.
    Kill(String),
    /// The process will end, and the run continues in another one: nothing new begins, and the drive returns
    /// [`Error::Left`] when everything under way has ended. A timer or a gate is not waited for.
    Drain,
    /// The same at once: what is under way is ended, and begins again in the other process.
    Leave,
}

impl Driver<'_, '_> {
    /// A run that must be cancelled from the first moment on, because no one was running it or because its process died
    /// before it heeded that, does not begin again what it would give up at once: it would be an effect in the world that
    /// no one asked for. A process that was asked to leave the run, or to end, before this begins nothing either.
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

    /// What the machine gives up now does not begin.
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
                        // They leave no record, as in `abandon`.
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
            // What a drain held back belongs to a run that is now ended here: what is given up does not begin.
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
