//! A worker: runs that bring their app along, taken from queues and driven without a listener.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_runtime::engine::{LinkEvent, Standing};

use crate::server::Server;
use crate::work;
use crate::work::event::{Event, Events};

/// How often a worker looks at its own standing.
const CLOCK: Duration = Duration::from_millis(100);

/// The time that runs have to stop at the end: their steps have two seconds between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// Why a worker has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Drained,
    /// It had no run for as long as [`Worker::idle`] says.
    Idle,
}

/// How a worker has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What made it stop; a drain that came after it was idle is not a reason of its own.
    pub reason: Stopped,
    /// False if a thread still waits for the database, or a run has not let go. Only the end of the process ends it; another worker takes what
    /// is left.
    pub is_over: bool,
}

/// Drives the runs of a worker until [`Server::drain`] is called, or it was idle. `events` gets what happens.
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
            if server.works().count() > 0 {
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
    // What it lets go of from now on is in its queue again, in its place.
    server.engine().retire();
    let looking = async { drop(working.await) };
    let is_over = work::drain_beside(server.works(), looking, enough(&server), GRACE).await;
    attending.abort();
    Ended { reason, is_over }
}

/// Ends when a drain has lasted long enough: its time is over, or all runs must be handed over now. A worker without a run
/// does not wait for a database that is away: what it asks for could only be one more run.
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

/// Reports what happens to the connection, and lets go of the runs whose lease could not be renewed.
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
