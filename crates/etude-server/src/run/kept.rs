//! Cache of the documents of ended runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use etude_runtime::engine::RunRow;

use crate::response::Tagged;

/// Maximum size of all cached documents, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// Maximum size of a cached document, in bytes.
const MAX_EACH: usize = 32 * 1024;

/// Documents of ended runs. Each belongs to one row of its run. A run that continues, ends again or is deleted has another row or
/// none, so its cached document is not used.
#[derive(Debug, Default)]
pub(super) struct Documents(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_run: HashMap<String, (RunRow, Arc<Tagged>)>,
    bytes: usize,
}

impl Documents {
    /// The document that was made of exactly this row.
    pub(super) fn get(&self, row: &RunRow) -> Option<Arc<Tagged>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, document) = kept.by_run.get(&row.id)?;
        (of == row).then(|| Arc::clone(document))
    }

    /// Caches the document of an ended run.
    pub(super) fn keep(&self, row: RunRow, document: &Arc<Tagged>) {
        let length = document.text().len();
        if !row.state.has_ended() || length > MAX_EACH {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + length > MAX_BYTES {
            *kept = Kept::default();
        }
        let before = kept.by_run.insert(row.id.clone(), (row, Arc::clone(document)));
        kept.bytes += length;
        kept.bytes -= before.map_or(0, |(_, document)| document.text().len());
    }
}

#[cfg(test)]
mod tests {
    use etude_runtime::engine::RunState;

    use super::*;

    fn row(id: &str, state: RunState, change: u64) -> RunRow {
        RunRow {
            id: id.to_owned(),
            number: 1,
            app: "/app".to_owned(),
            target: "one".to_owned(),
            state,
            is_live: false,
            worker: None,
            created_at_ms: 0,
            started_at_ms: Some(1),
            changed_at_ms: 2,
            change,
            placement: etude_runtime::engine::Placement::default(),
        }
    }

    fn document(length: usize) -> Arc<Tagged> {
        Arc::new(Tagged::new("x".repeat(length)))
    }

    /// S-31: a document is used for the row of which it was made, and for no other.
    #[test]
    fn a_document_belongs_to_one_row() {
        let documents = Documents::default();
        let ended = row("a", RunState::Failed, 3);
        documents.keep(ended.clone(), &document(10));
        assert!(documents.get(&ended).is_some());
        assert!(documents.get(&row("a", RunState::Failed, 5)).is_none(), "resumed, and failed again");
        assert!(documents.get(&row("a", RunState::Running, 4)).is_none());
        assert!(documents.get(&row("b", RunState::Failed, 3)).is_none());
    }

    /// The document of a run in progress changes without a change of its row.
    #[test]
    fn only_documents_of_ended_runs_are_kept() {
        let documents = Documents::default();
        for state in [RunState::Queued, RunState::Running, RunState::Waiting, RunState::Sleeping] {
            documents.keep(row("a", state, 1), &document(10));
            assert!(documents.get(&row("a", state, 1)).is_none(), "{state:?}");
        }
    }

    /// The cache is bounded, for any number of runs and any size of documents.
    #[test]
    fn what_is_kept_is_bounded() {
        let documents = Documents::default();
        let long = row("long", RunState::Succeeded, 1);
        documents.keep(long.clone(), &document(MAX_EACH + 1));
        assert!(documents.get(&long).is_none());
        for n in 0..200 {
            documents.keep(row(&format!("run-{n}"), RunState::Succeeded, 1), &document(MAX_EACH));
            let kept = documents.0.lock().expect("no panic");
            let whole: usize = kept.by_run.values().map(|(_, document)| document.text().len()).sum();
            assert_eq!(kept.bytes, whole);
            assert!(whole <= MAX_BYTES, "{whole}");
        }
        // The same run again takes no more room.
        let before = documents.0.lock().expect("no panic").bytes;
        documents.keep(row("run-199", RunState::Succeeded, 1), &document(MAX_EACH));
        assert_eq!(documents.0.lock().expect("no panic").bytes, before);
    }
}
