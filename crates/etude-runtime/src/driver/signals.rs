//! Signals in the journal: requests of other processes to a run, and the answers to its questions.

use etude_core::effect::{Effect, EffectId, Gate};
use etude_core::outcome::{Completed, Decision, Outcome};

use super::catch_up::is_in_time;
use super::{Driver, Error};
use crate::engine::Signal;
use crate::record;

impl Driver<'_, '_> {
    pub(super) async fn handle_signals(&mut self) -> Result<(), Error> {
        if let Some(reason) = self.signalled_kill()? {
            self.kill(&reason).await?;
        }
        if let Some(reason) = self.signalled_cancel()? {
            self.cancel(&reason).await?;
        }
        self.handle_decisions().await?;
        let commands = self.poll().await?;
        self.execute_commands(commands).await
    }

    /// Reason of a cancellation that another process requests, if it is not recorded yet.
    pub(super) fn signalled_cancel(&self) -> Result<Option<String>, Error> {
        if self.replay.is_cancelled {
            return Ok(None);
        }
        let signals = self.drive.session.signals()?;
        let key = record::cancel_key(self.drive.start.attempt.number);
        let signal = signals.into_iter().find(|signal| signal.key == key);
        Ok(signal.map(|signal| record::cancel_reason(&signal.body)))
    }

    /// Reason of a kill that another process requests, if it is not done yet. The request counts in every process: a
    /// process that dies before the end leaves only the record of a cancellation.
    pub(super) fn signalled_kill(&self) -> Result<Option<String>, Error> {
        if self.is_killed {
            return Ok(None);
        }
        let key = record::kill_key(self.drive.start.attempt.number);
        let signal = self.drive.session.signals()?.into_iter().find(|signal| signal.key == key);
        Ok(signal.map(|signal| record::cancel_reason(&signal.body)))
    }

    /// Takes the answers to gates that have arrived.
    pub(super) async fn handle_decisions(&mut self) -> Result<(), Error> {
        if self.gates.is_empty() {
            return Ok(());
        }
        let signals = self.drive.session.signals()?;
        // The questions may be long, so they are hashed only if there are signals.
        if signals.is_empty() {
            return Ok(());
        }
        let decisions: Vec<(EffectId, Decision)> = self
            .gates
            .iter()
            .filter_map(|(id, gate)| Some((id.clone(), self.decision(&signals, id, gate)?)))
            .filter(|(id, decision)| is_in_time(id, decision, self.timers_under_way()))
            .collect();
        for (id, decision) in decisions {
            if let Some(gate) = self.gates.remove(&id) {
                let completed = Completed { outcome: Outcome::Decided(decision), elapsed_ms: 0 };
                self.journal(&id, &Effect::Gate(gate), completed).await?;
            }
        }
        Ok(())
    }

    /// The decision about a question, if it has arrived.
    pub(super) fn decision(&self, signals: &[Signal], id: &EffectId, gate: &Gate) -> Option<Decision> {
        let key = record::decision_key(id.as_str(), &record::question(gate, self.drive.start.attempt.number));
        signals.iter().find(|signal| signal.key == key).and_then(record::to_decision)
    }

    fn timers_under_way(&self) -> impl Iterator<Item = (EffectId, i64)> {
        self.sleeping.iter().filter(|(_, timer)| timer.is_deadline).map(|(id, timer)| (id.clone(), timer.ends_ms))
    }
}
