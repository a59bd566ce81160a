//! Relation of this process to the database, by its own monotonic clock.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use etude_runtime::engine::{Figures, Health, LinkEvent, Standing};
use tokio::sync::watch;

use crate::error::Answer;
use crate::link::lock;
use crate::worker::Times;

/// State of the connection and the lease.
#[derive(Debug)]
pub(crate) struct Pulse {
    times: Times,
    /// True if the process never checks its own lease and never stops itself (K-7).
    is_blind: bool,
    state: Mutex<State>,
    lapses: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Sending time of the last answered heartbeat.
    beat: Option<Instant>,
    /// Set while disconnected, with the results of attempts to connect.
    broken: Option<Broken>,
    /// Standing at the last look at the clock.
    standing: Standing,
    claim: Option<Instant>,
    figures: Figures,
    events: Vec<LinkEvent>,
}

#[derive(Debug, Clone, Copy)]
struct Broken {
    since: Instant,
    /// Time of the last refused attempt to connect.
    refused: Option<Instant>,
    /// True if an attempt had no answer: the database may be there for others.
    is_silent: bool,
}

/// Time for which a refused attempt proves that the database is down: attempts come twice per second.
const ANSWER: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 2 });

impl Broken {
    /// True if every attempt was refused, the last one just now, and none went without an answer.
    fn is_refused(&self) -> bool {
        !self.is_silent && self.refused.is_some_and(|at| at.elapsed() < ANSWER)
    }
}

impl Pulse {
    pub(crate) fn new(times: Times, is_blind: bool) -> Self {
        Self { times, is_blind, state: Mutex::default(), lapses: watch::Sender::new(0) }
    }

    /// Notes that a heartbeat sent at `sent` was answered.
    pub(crate) fn beaten(&self, sent: Instant) {
        // Runs that have lapsed meanwhile stay lost, however fresh the lease is now.
        self.look();
        let mut state = self.state();
        state.figures.beats += 1;
        state.beat = Some(sent);
        if let Some(broken) = state.broken.take() {
            state.figures.reconnections += 1;
            let after_ms = u64::try_from(broken.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            state.events.push(LinkEvent::Connected { after_ms });
        }
        state.standing = Standing::Held;
    }

    /// Notes that the connection broke.
    pub(crate) fn broken(&self) {
        let mut state = self.state();
        if state.broken.is_none() {
            state.broken = Some(Broken { since: Instant::now(), refused: None, is_silent: false });
            state.events.push(LinkEvent::Disconnected);
        }
    }

    /// Notes a failed attempt to reconnect.
    pub(crate) fn not_connected(&self, answer: Answer) {
        if let Some(broken) = &mut self.state().broken {
            match answer {
                Answer::Down => broken.refused = Some(Instant::now()),
                Answer::Broken => {}
                Answer::Silence => broken.is_silent = true,
            }
        }
    }

    /// Notes an answered claim, with the queue and the number of its runs.
    pub(crate) fn claimed(&self, runs: Option<(&str, usize)>, is_takeover: bool) {
        let mut state = self.state();
        state.claim = Some(Instant::now());
        if let Some((queue, count)) = runs {
            *state.figures.claims.entry(queue.to_owned()).or_default() += count as u64;
        }
        state.figures.takeovers += u64::from(is_takeover);
    }

    pub(crate) fn fenced(&self) {
        self.state().figures.fenced_writes += 1;
    }

    /// Looks at the clock. Runs are lost with the first look that finds the lease too old, and stay lost.
    pub(crate) fn look(&self) -> Standing {
        let mut state = self.state();
        let standing = self.standing(&state);
        let is_lost = |standing| matches!(standing, Standing::Expired | Standing::Closed);
        if is_lost(standing) && !is_lost(state.standing) {
            self.lapses.send_modify(|lapses| *lapses += 1);
        }
        state.standing = standing;
        standing
    }

    fn standing(&self, state: &State) -> Standing {
        let Some(beat) = state.beat.filter(|_| !self.is_blind) else { return Standing::Held };
        let is_old = beat.elapsed() >= self.times.self_stop();
        match state.broken {
            Some(broken) if broken.is_refused() => match broken.since.elapsed() < self.times.patience {
                true => Standing::Paused,
                false => Standing::Closed,
            },
            Some(_) if is_old => Standing::Expired,
            Some(broken) if broken.since.elapsed() >= self.times.grace => Standing::Closed,
            None if is_old => Standing::Expired,
            _ => Standing::Held,
        }
    }

    /// Number of times all runs were lost so far, after a look at the clock.
    pub(crate) fn lapses(&self) -> u64 {
        self.look();
        *self.lapses.borrow()
    }

    /// Returns once runs that were taken after `lapses` are lost.
    pub(crate) async fn lapsed(&self, lapses: u64) {
        // The sender is in `self`, so it cannot be gone.
        let _ = self.lapses.subscribe().wait_for(|now| *now > lapses).await.map(drop);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().broken.is_none()
    }

    pub(crate) fn events(&self) -> Vec<LinkEvent> {
        std::mem::take(&mut self.state().events)
    }

    pub(crate) fn health(&self) -> Health {
        let standing = self.look();
        let state = self.state();
        let ms = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Health {
            standing,
            lapses: *self.lapses.borrow(),
            is_disconnected: state.broken.is_some(),
            claimed_before_ms: state.claim.map(ms),
            stale_after_ms: u64::try_from((self.times.beat * 3).as_millis()).unwrap_or(u64::MAX),
            figures: state.figures.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Times {
    /// The age of the last answered heartbeat at which a worker stops itself.
    fn self_stop(&self) -> Duration {
        self.lease.saturating_sub(self.beat * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> Times {
        Times { lease: Duration::from_secs(3600), ..Times::default() }
    }

    /// An instant in the past, as if the clock had stood still since.
    fn ago(seconds: u64) -> Instant {
        Instant::now().checked_sub(Duration::from_secs(seconds)).expect("this machine is up for longer")
    }

    /// K-19: a worker stops itself two beats before its lease ends, and lost runs stay lost after the next heartbeat.
    #[test]
    fn an_old_heartbeat_loses_all_runs_once() {
        let times = Times { lease: Duration::from_secs(15), ..Times::default() };
        assert_eq!(times.self_stop(), Duration::from_secs(9));
        let pulse = Pulse::new(times, false);
        pulse.beaten(ago(1));
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Held, 0));
        pulse.beaten(ago(9));
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Expired, 1));
        pulse.beaten(Instant::now());
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Held, 1));
    }

    /// K-5: a process that slept past its lease notices that even if its next heartbeat comes before its next look at
    /// the clock.
    #[test]
    fn a_heartbeat_does_not_hide_the_time_before_it() {
        let pulse = Pulse::new(Times { lease: Duration::from_secs(15), ..Times::default() }, false);
        pulse.beaten(ago(20));
        pulse.beaten(Instant::now());
        assert_eq!(pulse.lapses(), 1);
    }

    /// K-7: a blind worker trusts the position alone.
    #[test]
    fn a_blind_worker_never_stops_itself() {
        let pulse = Pulse::new(Times { lease: Duration::from_secs(1), ..Times::default() }, true);
        pulse.beaten(ago(30));
        pulse.broken();
        pulse.not_connected(Answer::Silence);
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Held, 0));
    }

    /// K-23: a connection that breaks in the greeting proves nothing alone: the grace period counts.
    #[test]
    fn a_broken_connection_alone_is_no_refusal() {
        let pulse = Pulse::new(Times { grace: Duration::ZERO, ..times() }, false);
        pulse.beaten(Instant::now());
        pulse.broken();
        pulse.not_connected(Answer::Broken);
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Closed, 1));
    }

    /// K-23: refused connections prove that the database is down, even if one breaks in the greeting; silence proves
    /// nothing.
    #[test]
    fn a_refused_connection_is_not_silence() {
        let patient = Times { grace: Duration::ZERO, ..times() };
        let pulse = Pulse::new(patient, false);
        pulse.beaten(Instant::now());
        pulse.broken();
        pulse.not_connected(Answer::Broken);
        pulse.not_connected(Answer::Down);
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Paused, 0));
        pulse.not_connected(Answer::Broken);
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Paused, 0));
        pulse.not_connected(Answer::Silence);
        assert_eq!((pulse.look(), pulse.lapses()), (Standing::Closed, 1));
        pulse.beaten(Instant::now());
        let events = pulse.events();
        assert!(matches!(events[..], [LinkEvent::Disconnected, LinkEvent::Connected { .. }]), "{events:?}");
        assert_eq!(pulse.health().figures.reconnections, 1);
    }
}
