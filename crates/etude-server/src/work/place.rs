//! The places of a process, and what it takes from the queues.

use etude_runtime::engine::{Limits, Placement, Takes};

use super::Works;

impl Works {
    /// What a process may take from each queue: of a server, the runs of its apps; of a worker, those with bundles.
    pub(crate) fn limits_of_queues(&self) -> Vec<Limits> {
        let Some(worker) = &self.context.settings().worker else { return vec![self.context.limits()] };
        let queues = self.in_order(&**self.context.engine(), &worker.queues);
        let of = |queue: &String| Limits { queue: queue.clone(), max_runs: u32::MAX, takes: Takes::Bundles };
        queues.iter().map(of).collect()
    }

    /// Whether the process drives runs like this one. Those with a bundle are the workers'.
    pub(crate) fn drives(&self, placement: &Placement) -> bool {
        placement.bundle.is_none() || self.context.settings().worker.is_some()
    }

    /// Whether the process has a place for another run. The limit of a server holds for all processes together and is the engine's.
    pub(crate) fn has_place(&self) -> bool {
        self.places() > 0
    }

    /// The runs for which the process has a place.
    fn places(&self) -> usize {
        let places = self.context.settings().worker.as_ref().map_or(usize::MAX, |worker| worker.places);
        places.saturating_sub(self.count())
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

#[cfg(test)]
mod tests {
    use super::share_of;

    /// K-30: a worker that looks first leaves something to the others.
    #[test]
    fn a_worker_takes_an_eighth_of_its_places() {
        assert_eq!([0, 1, 8, 9, 64].map(share_of), [0, 1, 1, 2, 8]);
    }
}
