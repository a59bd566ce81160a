//! Signals for runs.

use std::time::{Duration, Instant};

use etude_runtime::clock::now_ms;
use etude_runtime::engine::{Error, Signal, Signalled};
use rusqlite::OptionalExtension as _;

use crate::journal::Journal;
use crate::pool::lock;

/// Time for which a look at the signals of all runs stays valid.
const LOOK: Duration = Duration::from_millis(50);

/// The last look at the signals of all runs, so that many runs need only one.
#[derive(Debug, Default)]
pub(crate) struct News {
    looked: Option<Instant>,
    newest: i64,
}

impl Journal {
    /// The number of the newest signal of any run, at most [`LOOK`] old. It changes with each new signal.
    pub(crate) fn newest_signal(&self) -> Result<i64, Error> {
        let mut news = lock(&self.news);
        if news.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            news.newest = self.pool.write(|connection| {
                connection.prepare_cached("select coalesce(max(id), 0) from signals")?.query_row([], |row| row.get(0))
            })?;
            news.looked = Some(Instant::now());
        }
        Ok(news.newest)
    }

    /// Leaves a signal; the first one with a key counts.
    pub(crate) fn signal(&self, run_id: &str, signal: &Signal) -> Result<Signalled, Error> {
        let run = self.find_here(run_id)?.number;
        let earlier = self.pool.transaction(|connection| {
            // The condition covers a run that is pruned or moved at this moment.
            let left = connection
                .prepare_cached(
                    "insert or ignore into signals (run, key, body, created_at_ms)
                     select number, ?2, ?3, ?4 from runs where number = ?1 and state <> 'moved'",
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
        let Some(earlier) = earlier? else {
            self.find_here(run_id)?;
            return Err(Error::Unknown(run_id.to_owned()));
        };
        match earlier {
            Some(body) => Ok(Signalled::TooLate(body)),
            None => {
                self.syncer.committed(&[])?;
                Ok(Signalled::Accepted)
            }
        }
    }
}
