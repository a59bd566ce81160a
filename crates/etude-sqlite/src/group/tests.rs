use std::time::Duration;

use etude_runtime::blob::FileBlobs;

use super::*;
use crate::syncer::Syncer;

async fn soon<T>(write: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), write).await.expect("no one waits for ever")
}

/// A thread that panics fails the writes that wait for it, and the next write has a thread again.
#[test]
fn a_thread_that_breaks_down_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let pool = Arc::new(Pool::new(dir.path().join("journal.db")));
    let blobs = Arc::new(FileBlobs::new(dir.path().join("blobs"), false));
    let syncer = Syncer::new(Arc::clone(&pool), blobs, false);
    let group = Group::new(pool, syncer.handle());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let broken = soon(group.write(Vec::new(), |_| panic!("on purpose"))).await;
        let Err(Error::Store { why, .. }) = broken else { panic!("{broken:?}") };
        assert!(why.contains("the writer thread panicked"), "{why}");
        while lock(&group.shared.queue).has_thread {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let one = |connection: &Connection| connection.query_row("select 1", [], |row| row.get(0));
        assert!(soon(group.write(Vec::new(), one)).await.expect("it is written"));
    });
}
