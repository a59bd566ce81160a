//! Every interleaving of the statements of two and three sessions of one run, each against a model of the journal.
//!
//! The database makes each statement atomic, so the interleavings of whole statements are complete.

use etude_postgres::Postgres;
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Session};

use crate::server::Server;

/// The next action of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Claim,
    Append,
}

/// Every order of the steps of the sessions in which each session keeps its own order.
fn interleavings(programs: &[Vec<Step>]) -> Vec<Vec<usize>> {
    fn extend(left: &mut [usize], order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.iter().all(|left| *left == 0) {
            all.push(order.clone());
            return;
        }
        for session in 0..left.len() {
            if left[session] > 0 {
                left[session] -= 1;
                order.push(session);
                extend(left, order, all);
                order.pop();
                left[session] += 1;
            }
        }
    }
    let mut left: Vec<usize> = programs.iter().map(Vec::len).collect();
    let mut all = Vec::new();
    extend(&mut left, &mut Vec::new(), &mut all);
    all
}

/// Takes the run from the session that has it, by ending the leases of the others.
fn take(server: &Server, engine: &Postgres, run: &str) -> Box<dyn Session> {
    loop {
        match engine.claim(run) {
            Ok(session) => return session,
            Err(Error::Busy { .. }) => {
                let others = engine.worker();
                server.sql(&format!("update etude.workers set lease_until = now() where worker <> '{others}'"));
            }
            Err(cause) => panic!("{cause}"),
        }
    }
}

/// Executes the steps in this order. The model: a record is accepted if its session took the run last, and accepted
/// records stay.
fn execute(server: &Server, engines: &[Postgres], programs: &[Vec<Step>], order: &[usize], run: &str) {
    let created = block_on(engines[0].create(&new_run(run, 1))).expect("create");
    let mut sessions: Vec<Option<Box<dyn Session>>> = engines.iter().map(|_| None).collect();
    sessions[0] = Some(created);
    let (mut owner, mut expected, mut done) = (0, Vec::new(), vec![0; programs.len()]);
    for &number in order {
        let at = done[number];
        done[number] += 1;
        match programs[number][at] {
            Step::Claim => {
                sessions[number] = Some(take(server, &engines[number], run));
                owner = number;
                let seen = sessions[number].as_ref().expect("just taken").records().expect("records");
                assert_eq!(seen, expected, "{order:?}: what was accepted before a claim is seen by it");
            }
            Step::Append => {
                let record = record(&format!("main/{number}-{at}"), "1");
                let session = sessions[number].as_ref().expect("its program begins with a claim");
                match block_on(session.append(record.clone())) {
                    Ok(()) => {
                        assert_eq!(number, owner, "{order:?}: a session that lost its run has written");
                        expected.push(record);
                    }
                    Err(Error::Overtaken { .. }) => assert_ne!(number, owner, "{order:?}: the owner was refused"),
                    Err(cause) => panic!("{order:?}: {cause}"),
                }
            }
        }
    }
    assert_eq!(engines[0].view(run).expect("view").records, expected, "{order:?}");
}

/// K-3 to K-7, K-10: in every order of the statements of two and three sessions, the position alone decides, each
/// session sees the records accepted before its claim, and no record is lost or written twice.
#[test]
fn every_order_of_claims_and_appends_is_fenced() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engines: Vec<Postgres> = (0..3).map(|_| crate::open(&server, "etude", dir.path())).collect();
    let mut executed = 0;
    for programs in [
        vec![vec![Step::Append; 3], vec![Step::Claim, Step::Append, Step::Append]],
        vec![vec![Step::Append; 2], vec![Step::Claim, Step::Append], vec![Step::Claim, Step::Append]],
    ] {
        for order in interleavings(&programs) {
            execute(&server, &engines[..programs.len()], &programs, &order, &format!("r-{executed}"));
            executed += 1;
        }
    }
    assert_eq!(executed, 20 + 90);
    let gaps =
        "select count(*) from (select run, count(*) as count, max(seq) as last from etude.records group by run) r
        where count <> last";
    assert_eq!(server.sql(gaps), "0", "positions have gaps");
}
