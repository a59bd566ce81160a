//! Messages for runs.

use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Error, Signal, Signalled};
use rusqlite::OptionalExtension as _;

use crate::journal::Journal;

impl Journal {
    /// Leaves a signal; the first one of a key counts.
    pub(crate) fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        let run = self.number(run_id)?;
        let unknown = || Error::Unknown(run_id.to_owned());
        let earlier = self.pool.transaction(|connection| {
            // The condition is for a run that is pruned at this moment.
            let left = connection
                .prepare_cached(
                    "insert or ignore into signals (run, key, body, created_at_ms)
                     select number, ?2, ?3, ?4 from runs where number = ?1",
                )?
                .execute((run, &signal.key, &signal.body, now_ms()))?;
            if left == 1 {
                return Ok(Some(None));
            }
            let earlier = connection
                .prepare_cached("select body from signals where run = ?1 and key = ?2")?
                .query_row((run, &signal.key), |row| row.get(0))
                .optional()?;
            Ok(earlier.map(Some))
        });
        match earlier?.ok_or_else(unknown)? {
            Some(body) => Ok(Signalled::TooLate(body)),
            None => {
                self.syncer.committed(&[])?;
                Ok(Signalled::Accepted)
            }
        }
    }
}
