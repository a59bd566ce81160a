//! A worker: drives runs with bundles, which it takes from queues, without a listener.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_runtime::engine::{Health, LinkEvent, Standing};

use crate::server::Server;
use crate::work;
use crate::work::event::{Event, Events};

/// Interval at which a worker checks its connection and lease.
const CLOCK: Duration = Duration::from_millis(100);

/// Time for runs to stop at the end: their steps have two seconds between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// Reason why a worker has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// A drain was requested.
    Drained,
    /// The worker had no run for the time in [`idle`](crate::settings::Worker::idle).
    Idle,
}

/// The end of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The first reason to stop: a drain after the idle time is ignored.
    pub reason: Stopped,
    /// False if a thread still waits for the database, or a run has not stopped. Only the end of the process ends it; another
    /// worker takes the run.
    pub is_over: bool,
}

/// Drives the runs of a worker until [`Server::drain`] is called, or until it was idle for too long. `events` receives its
/// events.
pub async fn work_alone(server: Arc<Server>, events: Events) -> Ended {
    server.works().observer.set(events);
    let idle = server.settings().worker.as_ref().and_then(|worker| worker.idle);
    let working = tokio::spawn(work::work(Arc::clone(server.works())));
    let mut stopping = server.context().stopping();
    let was_idle = async {
        let Some(idle) = idle else { return std::future::pending().await };
        let mut since = Instant::now();
        while since.elapsed() < idle {
            tokio::time::sleep(work::LOOK.min(idle)).await;
            if !is_idle(server.works().count(), &server.engine().health()) {
                since = Instant::now();
            }
        }
    };
    let attending = tokio::spawn(attend_link(Arc::clone(&server)));
    let reason = tokio::select! {
        _ = stopping.wait_for(|stop| *stop) => Stopped::Drained,
        () = was_idle => Stopped::Idle,
    };
    server.drain();
    // A run that is released from now on is in its queue again, at its old position.
    server.engine().retire();
    let looking = async { drop(working.await) };
    let is_over = work::drain_beside(server.works(), looking, enough(&server), GRACE).await;
    attending.abort();
    Ended { reason, is_over }
}

/// True for a worker without a run that would see one that waits: an unreachable database never ends a worker (K-27).
fn is_idle(runs: usize, health: &Health) -> bool {
    runs == 0 && !health.is_disconnected
}

/// Ends when a drain has lasted long enough: its time is over, or all runs must be handed over now. A worker without a run does
/// not wait for an unreachable database: the pending claim could only bring one more run.
async fn enough(server: &Server) {
    let mut leaving = server.leaving();
    let away = async {
        while server.works().count() > 0 || !server.engine().health().is_disconnected {
            tokio::time::sleep(CLOCK).await;
        }
    };
    tokio::select! {
        () = tokio::time::sleep(server.settings().drain_timeout) => {}
        _ = leaving.wait_for(|leave| *leave) => {}
        () = away => {}
    }
}

/// Reports events of the connection, and releases the runs whose lease could not be renewed.
async fn attend_link(server: Arc<Server>) {
    let mut lapses = 0;
    loop {
        let health = server.engine().health();
        for event in server.engine().link_events() {
            server.works().observer.say(&match event {
                LinkEvent::Disconnected => Event::Disconnected,
                LinkEvent::Connected { after_ms } => Event::Connected { after_ms },
            });
        }
        if health.lapses > lapses {
            lapses = health.lapses;
            work::lapse(server.works(), lapses, health.standing == Standing::Closed);
        }
        tokio::time::sleep(CLOCK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K-27: a worker waits for its database, whatever `--idle` says.
    #[test]
    fn a_worker_without_its_database_is_not_idle() {
        let away = Health { is_disconnected: true, ..Health::default() };
        assert!(is_idle(0, &Health::default()));
        assert!(!is_idle(0, &away) && !is_idle(1, &Health::default()));
    }
}
