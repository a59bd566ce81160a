//! Random interleavings of claims and appends of several engines, compared with the acknowledgements to each of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use etude_postgres::Postgres;
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Session};

use crate::server::Server;

const ENGINES: usize = 4;
const RUNS: usize = 2;
const TAKEOVERS: u32 = 120;

/// Takes a run from any engine that has it, by ending the leases of the others.
fn take(server: &Server, engine: &Postgres, run: &str) -> Box<dyn Session> {
    loop {
        match engine.claim(run) {
            Ok(session) => return session,
            Err(Error::Busy { .. }) => {
                let sql = format!("update etude.workers set lease_until = now() where worker <> '{}'", engine.worker());
                server.sql(&sql);
            }
            Err(cause) => panic!("{cause}"),
        }
    }
}

/// K-3: accepted records are there once and in order, refused records are not, and positions have no gaps.
#[test]
fn the_journal_is_what_was_acknowledged() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Arc<Postgres>> =
        (0..ENGINES).map(|_| Arc::new(crate::open(&server, "etude", dir.path()))).collect();
    for run in 0..RUNS {
        drop(block_on(engines[0].create(&new_run(&format!("r-{run}"), 1))).expect("create"));
    }
    let takeovers = AtomicU32::new(0);
    // Accepted and refused keys, by run.
    let ends: Vec<Mutex<(Vec<String>, Vec<String>)>> = (0..RUNS).map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for (number, engine) in engines.iter().enumerate() {
            for (run, ends) in ends.iter().enumerate() {
                let (server, takeovers) = (&server, &takeovers);
                scope.spawn(move || {
                    while takeovers.fetch_add(1, Ordering::Relaxed) < TAKEOVERS {
                        let turn = takeovers.load(Ordering::Relaxed);
                        let session = take(server, engine, &format!("r-{run}"));
                        for at in 0..40 {
                            let key = format!("{number}/{turn}/{at}");
                            match block_on(session.append(record(&key, "1"))) {
                                Ok(()) => ends.lock().expect("no panic").0.push(key),
                                Err(Error::Overtaken { .. }) => {
                                    ends.lock().expect("no panic").1.push(key);
                                    break;
                                }
                                Err(cause) => panic!("{cause}"),
                            }
                        }
                    }
                });
            }
        }
    });
    let mut refused_ones = 0;
    for (run, ends) in ends.iter().enumerate() {
        let (mut accepted, refused) = ends.lock().expect("no panic").clone();
        let records = engines[0].view(&format!("r-{run}")).expect("view").records;
        let mut there: Vec<String> = records.into_iter().map(|record| record.key).collect();
        // The records of one session, in its order.
        for session in there
            .chunk_by(|one, other| one.rsplit_once('/').map(|one| one.0) == other.rsplit_once('/').map(|other| other.0))
        {
            let order: Vec<usize> = session.iter().filter_map(|key| key.rsplit_once('/')?.1.parse().ok()).collect();
            assert_eq!(order, (0..session.len()).collect::<Vec<_>>());
        }
        assert!(refused.iter().all(|key| !there.contains(key)));
        there.sort_unstable();
        accepted.sort_unstable();
        assert_eq!(there, accepted);
        let sql = "select count(*) from (select run, count(*) as count, max(seq) as last from etude.records group by run) r where count <> last";
        assert_eq!(server.sql(sql), "0", "positions have gaps");
        refused_ones += refused.len();
    }
    assert!(refused_ones > 0, "no session met another one");
}
