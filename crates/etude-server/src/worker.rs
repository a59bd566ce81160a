//! A worker: runs that bring their app along, taken from queues and driven without a listener.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_runtime::engine::{Limits, LinkEvent, Placement, Standing, Takes};
use serde_json::{Value, json};

use crate::server::Server;
use crate::work;

/// How often a worker looks at its own standing.
const CLOCK: Duration = Duration::from_millis(100);

/// What happened to a run of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker drives it now.
    Claimed {
        /// The run.
        run_id: String,
        /// The worker that died with it.
        taken_from: Option<String>,
    },
    /// The worker does not drive it any more.
    Released {
        /// The run.
        run_id: String,
        /// `finished`, `waiting` or `drained`.
        reason: &'static str,
    },
    /// The worker came to a stop with it, or another one has it.
    Lost {
        /// The run.
        run_id: String,
        /// `lease`, `overtaken`, or `gap` if its records or its app cannot be used.
        reason: &'static str,
    },
    /// The database cannot be reached.
    Disconnected,
    /// There is one again.
    Connected {
        /// The time without one, in milliseconds.
        after_ms: u64,
    },
}

impl Event {
    /// The event as a line.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Claimed { run_id, taken_from } => {
                json!({"event": "claimed", "run_id": run_id, "taken_from": taken_from})
            }
            Self::Released { run_id, reason } => json!({"event": "released", "run_id": run_id, "reason": reason}),
            Self::Lost { run_id, reason } => json!({"event": "lost", "run_id": run_id, "reason": reason}),
            Self::Disconnected => json!({"event": "disconnected"}),
            Self::Connected { after_ms } => json!({"event": "connected", "after_ms": after_ms}),
        }
    }
}

/// Receives the events of a worker.
pub type Events = Box<dyn Fn(&Event) + Send + Sync>;

/// Where events go.
#[derive(Default)]
pub(crate) struct Observer(std::sync::OnceLock<Events>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    pub(crate) fn set(&self, events: Events) {
        // Set once, before anything happens.
        let _ = self.0.set(events);
    }

    pub(crate) fn say(&self, event: &Event) {
        if let Some(events) = self.0.get() {
            events(event);
        }
    }
}

/// Why a worker has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Drained,
    /// It had no run for as long as [`Worker::idle`] says.
    Idle,
}

impl Server {
    /// What a process may take from each queue: of a server, the runs of its apps; of a worker, those with bundles.
    pub(crate) fn limits_of_queues(&self) -> Vec<Limits> {
        let Some(worker) = &self.settings().worker else { return vec![self.context().limits()] };
        let queues = self.works().in_order(&**self.engine(), &worker.queues);
        let of = |queue: &String| Limits { queue: queue.clone(), max_runs: u32::MAX, takes: Takes::Bundles };
        queues.iter().map(of).collect()
    }

    /// Hands all runs over at once: what is in progress is ended, and begins again elsewhere.
    pub fn leave(&self) {
        work::leave(self);
    }

    /// Whether the process drives runs like this one. Those with a bundle are the workers'.
    pub(crate) fn drives(&self, placement: &Placement) -> bool {
        placement.bundle.is_none() || self.settings().worker.is_some()
    }

    /// Whether the process has a place for another run. The limit of a server holds for all processes together and is the engine's.
    pub(crate) fn has_place(&self) -> bool {
        self.places() > 0
    }

    /// The runs for which the process has a place.
    fn places(&self) -> usize {
        let places = self.settings().worker.as_ref().map_or(usize::MAX, |worker| worker.places);
        places.saturating_sub(self.works().count())
    }

    /// How many runs the process takes at once.
    pub(crate) fn share(&self) -> usize {
        share_of(self.places())
    }
}

/// An eighth of what there are places for. So a worker with many places needs few claims, and one that looks before others leaves them
/// something.
fn share_of(places: usize) -> usize {
    places.div_ceil(8)
}

/// Drives the runs of a worker until [`Server::drain`] is called, or it was idle. `events` gets what happens.
pub async fn work_alone(server: Arc<Server>, events: Events) -> Stopped {
    server.works().observer.set(events);
    let idle = server.settings().worker.as_ref().and_then(|worker| worker.idle);
    let working = tokio::spawn(work::work(Arc::clone(&server)));
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
    let stopped = tokio::select! {
        _ = stopping.wait_for(|stop| *stop) => Stopped::Drained,
        () = was_idle => Stopped::Idle,
    };
    server.drain();
    // A look that has begun may take one more run, which is then drained too.
    let _ = working.await;
    work::drain(&server).await;
    attending.abort();
    stopped
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
            work::lapse(&server, lapses, health.standing == Standing::Closed);
        }
        tokio::time::sleep(CLOCK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::share_of;

    /// K-30: a worker that looks first leaves something to the others.
    #[test]
    fn a_worker_takes_an_eighth_of_its_places() {
        assert_eq!([0, 1, 8, 9, 64].map(share_of), [0, 1, 1, 2, 8]);
    }
}
