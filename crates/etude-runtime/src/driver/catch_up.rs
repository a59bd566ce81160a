//! Events of the time in which no process had a run: passed deadlines, and decisions before them.

use etude_core::effect::{Effect, EffectId};
use etude_core::machine::Command;
use etude_core::outcome::{Completed, Decision, Outcome};
use etude_core::report::is_below;

use super::{Driver, Error};
use crate::clock;

/// The part of a run that a timer limits: a step, a group or the pipeline.
pub(super) fn part_of(timer: &EffectId) -> Option<&str> {
    timer.as_str().rsplit_once('!').map(|(part, _)| part)
}

/// True if the decision came before the end of every part that contains the question, by `deadlines`. A decision
/// without a time counts.
pub(super) fn is_in_time(
    gate: &EffectId,
    decision: &Decision,
    deadlines: impl Iterator<Item = (EffectId, i64)>,
) -> bool {
    let Some(at_ms) = clock::from_rfc3339(&decision.at) else { return true };
    first_end(gate, deadlines).is_none_or(|ends_ms| at_ms <= ends_ms)
}

/// End of the first part of the run that contains the question, in milliseconds since 1970.
pub(super) fn first_end(gate: &EffectId, deadlines: impl Iterator<Item = (EffectId, i64)>) -> Option<i64> {
    let is_around = |timer: &EffectId| part_of(timer).is_some_and(|part| is_below(gate.as_str(), part));
    deadlines.filter(|(timer, _)| is_around(timer)).map(|(_, ends_ms)| ends_ms).min()
}

impl Driver<'_, '_> {
    /// Replays the passed deadlines and decisions of the time without a process, in their order. Effects that end with
    /// a passed deadline do not begin.
    pub(super) async fn catch_up(&mut self, mut live: Vec<Command>) -> Result<Vec<Command>, Error> {
        while let Some((at, outcome)) = self.first_passed(&live)? {
            let Command::Start(id, effect) = live.remove(at) else { continue };
            self.journal(&id, &effect, Completed { outcome, elapsed_ms: 0 }).await?;
            live = self.give_up_before_anything_begins(live).await?;
        }
        Ok(live)
    }

    /// The first timer that has ended, or the decision before it: its index in `live`, and the outcome.
    fn first_passed(&self, live: &[Command]) -> Result<Option<(usize, Outcome)>, Error> {
        let now_ms = self.now_ms();
        let end_of = |command: &Command| match command {
            Command::Start(id, Effect::Sleep { .. }) if *id == self.time.id => self.time.over_ms(now_ms),
            Command::Start(id, Effect::Sleep { .. }) => self.replay.deadline(id).filter(|ends_ms| *ends_ms <= now_ms),
            _ => None,
        };
        let ends = live.iter().enumerate().filter_map(|(at, command)| Some((end_of(command)?, at)));
        let Some((ends_ms, timer)) = ends.min() else { return Ok(None) };
        let signals = self.drive.session.signals()?;
        let decisions = live.iter().enumerate().filter_map(|(at, command)| {
            let Command::Start(id, Effect::Gate(gate)) = command else { return None };
            let decision = self.decision(&signals, id, gate)?;
            Some((clock::from_rfc3339(&decision.at).unwrap_or(i64::MIN), at, decision))
        });
        let first = decisions.filter(|(at_ms, ..)| *at_ms <= ends_ms).min_by_key(|(at_ms, at, _)| (*at_ms, *at));
        Ok(Some(first.map_or((timer, Outcome::Slept), |(_, at, decision)| (at, Outcome::Decided(decision)))))
    }
}
