//! Runs that are cancelled while their step `slow` is active: the running process, the cancelling one, and which of them is
//! killed.

use std::time::{Duration, Instant};

use super::life::{KILLED, Life, Moment};
use super::shim;
use crate::ran::Ran;
use crate::test::Test;

/// Way in which a run is cancelled, as soon as its step `slow` is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Ctrl-C for the process that runs it.
    Signal,
    /// `runs cancel` in another process, beside the one that runs it.
    Command,
    /// `runs cancel` in another process, after the one that ran it was killed.
    Death,
}

/// Number of times that `slow` has begun.
pub(super) fn begun(test: &Test) -> usize {
    test.ledger().iter().filter(|line| line.starts_with('+') && line.contains("/slow@")).count()
}

/// A process that runs the run, until it has ended or was killed. It is asked to cancel the run once `slow` has begun.
pub(super) fn process(
    test: &Test,
    args: &[&str],
    stop: Stop,
    life: &mut Life,
    moments: &mut impl Iterator<Item = Moment>,
) -> Ran {
    let moment = moments.next().unwrap_or(Moment::Never);
    let (before, since) = (begun(test), Instant::now());
    let mut running = test.start_with(shim::with_fault(test, test.command(args), moment.fault()), args);
    let (mut is_reported, mut beside) = (false, Vec::new());
    while !running.is_over() {
        if matches!(moment, Moment::After(time) if since.elapsed() >= time) {
            running.signal("KILL");
            break;
        }
        if !is_reported && begun(test) > before {
            is_reported = true;
            match stop {
                Stop::Signal => running.interrupt(),
                Stop::Death => running.signal("KILL"),
                Stop::Command => beside = cancel(test, life, moments),
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let ran = running.finish();
    life.events.push(shim::events(test));
    life.events.extend(beside);
    ran
}

/// Cancels the run from another process, again if that is killed, and records that it was accepted. Returns the operations of
/// the processes on the journal's files.
fn cancel(test: &Test, life: &mut Life, moments: &mut impl Iterator<Item = Moment>) -> Vec<Vec<shim::Event>> {
    const EVENTS: &str = "events-beside";
    let mut events = Vec::new();
    let Some(id) = super::life::run_id(test) else { return events };
    let args = ["runs", "cancel", &id, "--format", "json"];
    loop {
        let moment = moments.next().unwrap_or(Moment::Never);
        let command = shim::with_fault_reported(test, test.command(&args), moment.fault(), EVENTS);
        let mut running = test.start_with(command, &args);
        if let Moment::After(time) = moment {
            std::thread::sleep(time);
            if !running.is_over() {
                running.signal("KILL");
            }
        }
        let ran = running.finish();
        events.push(shim::events_at(test, EVENTS));
        if ran.code() != KILLED {
            let is_reported = ran.code() == 0 && ran.at("/cancelling") == true;
            if is_reported {
                life.accepted.get_or_insert(begun(test));
            } else if ran.code() != 0 && !ran.err().contains("has ended") {
                life.faults.push(format!("cancelling ended with {}: {}", ran.code(), ran.err()));
            }
            return events;
        }
        life.kills += 1;
    }
}
