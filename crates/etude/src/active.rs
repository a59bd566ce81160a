//! How long processes have executed a run: the time between two of them does not count.

use etude_process::blob::BlobStore;
use etude_runtime::engine::{Engine, NewRun, Record};
use etude_runtime::record;

use etude_runs::document::Document;
use etude_runtime::clock::now_ms;

/// How long a run was at work before, in milliseconds, and when it goes on: a run that is not resumed begins when it was created.
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

/// Milliseconds that a run was executed before `began_at_ms`, when the current process continued it: what its last process
/// noted or, after a process that died, what its effects took.
fn before(engine: &dyn Engine, run_id: &str, records: &[Record], created_at_ms: i64, began_at_ms: i64) -> u64 {
    let blobs: &dyn BlobStore = &*engine.blobs();
    let noted = engine.result(run_id).ok().flatten().and_then(|text| Document::from_journal(&text, blobs).ok());
    let noted = noted.map_or(0, |document| document.duration_ms);
    let effects = records.iter().filter(|record| !record.key.starts_with('!'));
    let taken = effects.filter_map(|record| Some(record::to_outcome(record, blobs).ok()?.elapsed_ms)).sum::<u64>();
    let lasted = u64::try_from(began_at_ms.saturating_sub(created_at_ms)).unwrap_or(0);
    noted.max(taken).min(lasted)
}
