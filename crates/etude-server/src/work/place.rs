//! The places of a process, and its limits per queue.

use etude_runtime::engine::{Limits, Placement, Takes};

use super::Works;

impl Works {
    /// The limits for each queue: a server takes the runs of its apps, a worker those with bundles.
    pub(crate) fn limits_of_queues(&self) -> Vec<Limits> {
        let Some(worker) = &self.context.settings().worker else { return vec![self.context.limits()] };
        let queues = self.in_order(&**self.context.engine(), &worker.queues);
        let of = |queue: &String| Limits { queue: queue.clone(), max_runs: u32::MAX, takes: Takes::Bundles };
        queues.iter().map(of).collect()
    }

    /// True if the process drives runs with this placement. Only workers drive those with a bundle.
    pub(crate) fn drives(&self, placement: &Placement) -> bool {
        placement.bundle.is_none() || self.context.settings().worker.is_some()
    }

    /// True if the process has a place for another run. The engine enforces the limit of a server, which holds for all processes
    /// together.
    pub(crate) fn has_place(&self) -> bool {
        self.places() > 0
    }

    /// The number of free places.
    fn places(&self) -> usize {
        let places = self.context.settings().worker.as_ref().map_or(usize::MAX, |worker| worker.places);
        places.saturating_sub(self.count())
    }

    /// The number of runs that the process takes in one look.
    pub(crate) fn share(&self) -> usize {
        share_of(self.places())
    }
}

/// An eighth of the places. A worker with many places needs few claims, and leaves some runs to later workers.
fn share_of(places: usize) -> usize {
    places.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::share_of;

    /// K-30: a worker that looks first leaves some runs to the others.
    #[test]
    fn a_worker_takes_an_eighth_of_its_places() {
        assert_eq!([0, 1, 8, 9, 64].map(share_of), [0, 1, 1, 2, 8]);
    }
}
