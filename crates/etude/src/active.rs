//! Active time of a run: the time between two processes does not count.

use etude_runtime::engine::{Engine, NewRun, Record};

use etude_runs::listing::active::before;
use etude_runtime::clock::now_ms;

/// Active time of a run before this process, in milliseconds, and the start of its current activity. An unresumed run starts
/// when it was created.
pub(crate) fn begun(
    engine: &dyn Engine,
    run: &NewRun,
    records: &[Record],
    (created_at_ms, is_resumed): (i64, bool),
) -> (u64, i64) {
    let now = now_ms();
    if !is_resumed {
        return (0, created_at_ms);
    }
    (before(engine, &run.id, records, created_at_ms, now), now)
}
