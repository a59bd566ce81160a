//! Active time of a run: waits and interruptions do not count (ADR 0217).

use etude_process::blob::BlobStore;
use etude_runtime::engine::{Engine, Error, Record, RunRow, RunState, RunView};
use etude_runtime::record;

use super::readable_result;
use crate::document::Document;

/// Active time of a run in milliseconds, until a process continued it at `began_at_ms`. It is the time that the last process
/// noted or, if that process died, the time of the run's effects.
pub fn before(engine: &dyn Engine, run_id: &str, records: &[Record], created_at_ms: i64, began_at_ms: i64) -> u64 {
    let blobs: &dyn BlobStore = &*engine.blobs();
    let text = engine.result(run_id).ok().flatten();
    active(noted(text.as_deref(), blobs), records, blobs).min(between(created_at_ms, began_at_ms))
}

/// Active time of a run without a result of its own, in milliseconds: the time before, and that of the process that executes
/// the run. It is `duration_ms` of a run at work, and grows to that of its result.
///
/// # Errors
/// The store fails.
pub fn so_far(engine: &dyn Engine, row: &RunRow, now_ms: i64) -> Result<u64, Error> {
    let Some(started_at_ms) = row.started_at_ms else { return Ok(0) };
    let since_start = between(started_at_ms, now_ms);
    if row.state == RunState::Running && row.is_live {
        // The state of a run changes as a process takes it. The first process has nothing before it.
        let text = match row.changed_at_ms > started_at_ms {
            true => readable_result(engine, &row.id)?.ok().flatten(),
            false => None,
        };
        let (Ok(before) | Err(before)) = noted(text.as_deref(), &*engine.blobs());
        return Ok(before.saturating_add(between(row.changed_at_ms, now_ms)).min(since_start));
    }
    match engine.view(&row.id) {
        Ok(RunView { result, records, .. }) => {
            let blobs: &dyn BlobStore = &*engine.blobs();
            Ok(active(noted(result.as_deref(), blobs), &records, blobs).min(since_start))
        }
        // Removed or damaged: it holds up no other run in a list.
        Err(Error::Unknown(_) | Error::Damaged { .. }) => Ok(0),
        Err(error @ Error::Store { .. }) if engine.is_shared() => Err(error),
        Err(Error::Store { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}

/// The active time in a result document. `Err` if it is only that of earlier processes.
fn noted(text: Option<&str>, blobs: &dyn BlobStore) -> Result<u64, u64> {
    let Some(document) = text.and_then(|text| Document::from_journal(text, blobs).ok()) else { return Err(0) };
    let ms = document.duration_ms;
    if document.status() == RunState::Running.word() { Err(ms) } else { Ok(ms) }
}

/// The noted time or, if the last process noted none, at least the time of the effects.
fn active(noted: Result<u64, u64>, records: &[Record], blobs: &dyn BlobStore) -> u64 {
    noted.unwrap_or_else(|earlier_ms| {
        let effects = records.iter().filter(|record| !record.key.starts_with('!'));
        let taken = effects.filter_map(|record| Some(record::to_outcome(record, blobs).ok()?.elapsed_ms));
        earlier_ms.max(taken.sum())
    })
}

fn between(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use etude_core::model::Usage;
    use etude_runtime::blob::FileBlobs;
    use etude_runtime::conformance::{block_on, new_run};
    use etude_runtime::memory::MemoryEngine;

    use super::*;
    use crate::target::Target;

    /// ADR 0217: a wait does not count, neither while another process continues the run nor after it died.
    #[test]
    fn waits_do_not_count() {
        const HOUR_MS: i64 = 3_600_000;
        let dir = tempfile::tempdir().expect("a directory");
        let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().to_owned(), false)));
        let session = block_on(engine.create(&new_run("r-1", 10))).expect("create");
        let target = Target::Pipeline("p".to_owned());
        let set = |state, document: &Document| {
            block_on(session.set_state(state, Some(&document.to_journal()))).expect("set_state");
            let row = engine.row("r-1").expect("the row");
            let started_at_ms = Some(row.changed_at_ms - HOUR_MS);
            RunRow { started_at_ms, ..row }
        };
        let ended = Document { duration_ms: 5_000, ..Document::not_started(Some(&target), &[], &Usage::default()) };
        let row = set(RunState::Waiting, &ended);
        let at = row.changed_at_ms;
        assert_eq!(so_far(&engine, &row, at + HOUR_MS).expect("the time"), 5_000);
        assert_eq!(before(&engine, "r-1", &[], at - HOUR_MS, at), 5_000);
        let row = set(RunState::Running, &Document::continued("r-1", &target, 5_000));
        let active_ms = |row: &RunRow| so_far(&engine, row, row.changed_at_ms + 700).expect("the time");
        assert_eq!(active_ms(&row), 5_700);
        assert_eq!(active_ms(&RunRow { is_live: false, ..row.clone() }), 5_000);
        assert_eq!(
            active_ms(&RunRow { started_at_ms: Some(row.changed_at_ms), ..row.clone() }),
            700,
            "the first process"
        );
        assert_eq!(active_ms(&RunRow { started_at_ms: None, state: RunState::Queued, ..row }), 0);
    }
}
