//! Active time of a run: the time between two processes does not count.

use etude_process::blob::BlobStore;
use etude_runtime::engine::{Engine, NewRun, Record};
use etude_runtime::record;

use etude_runs::document::Document;
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

/// Active time of a run, in milliseconds, until the current process continued it at `began_at_ms`. It is the time that the last
/// process noted or, if that process died, the time of the run's effects.
fn before(engine: &dyn Engine, run_id: &str, records: &[Record], created_at_ms: i64, began_at_ms: i64) -> u64 {
    let blobs: &dyn BlobStore = &*engine.blobs();
    let noted = engine.result(run_id).ok().flatten().and_then(|text| Document::from_journal(&text, blobs).ok());
    let noted = noted.map_or(0, |document| document.duration_ms);
    let effects = records.iter().filter(|record| !record.key.starts_with('!'));
    let taken = effects.filter_map(|record| Some(record::to_outcome(record, blobs).ok()?.elapsed_ms)).sum::<u64>();
    let lasted = u64::try_from(began_at_ms.saturating_sub(created_at_ms)).unwrap_or(0);
    noted.max(taken).min(lasted)
}
