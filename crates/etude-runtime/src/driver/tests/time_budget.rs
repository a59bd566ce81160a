//! The time budget of a run whose process dies.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::record::{CLOCK, Clock, of_clock};

/// A pipeline of two steps, with a destructor.
fn timed() -> Plan {
    Plan {
        before: None,
        body: sequence("p", vec![step("a", "1"), step("b", "2")]),
        after: Some(sequence("_destructor", vec![step("after", "null")])),
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    }
}

/// A run with a budget of an hour whose first step is done.
async fn begun() -> (World, Vec<Record>) {
    let mut world = World::new();
    world.limits.timeout_ms = Some(3_600_000);
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    finished(world.drive(&timed(), &*session, Stop::No).await.unwrap());
    let records = session.records().unwrap();
    let keys: Vec<&str> = records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, [CLOCK, "p/a", "p/b", "_destructor/after"]);
    (world, records)
}

/// The same run in another process, with these records.
fn restart(world: &World, records: &[Record]) -> (World, Box<dyn Session>) {
    let again = World { limits: world.limits, ..World::of(&world.run_id) };
    let session = block_on(again.engine.create(&again.new_run())).unwrap();
    records.iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    (again, session)
}

/// the working time of dead processes counts, and the time in which no process had the run does not.
#[tokio::test]
async fn a_time_budget_survives_the_death_of_its_process() {
    let (world, records) = begun().await;
    // The process worked for 50 minutes, and died in the second step.
    let dead = [of_clock(3_600_000, 0), records[1].clone(), of_clock(3_600_000, 3_000_000)];
    let without_time = |record: &Record| Record { body: record.body.replace("\"at\":", "\"_\":"), ..record.clone() };
    let dead = dead.map(|record| if record.key == CLOCK { record } else { without_time(&record) });
    let (world, session) = restart(&world, &dead);
    let result = finished(world.drive(&timed(), &*session, Stop::No).await.unwrap());
    assert_eq!((result.status, world.ledger()), (Status::Succeeded, vec!["b".to_owned(), "after".to_owned()]));
    let records = session.records().unwrap();
    assert_eq!(records[3].key, CLOCK);
    let begins = record::at_ms(&records[3]).and_then(|at| i64::try_from(at).ok()).unwrap();
    let clock = Clock::last(records[3..4].iter(), "p!timeout", 0).unwrap();
    // The clock is read once for the end, and once more for the record.
    let left = clock.ends_ms - begins;
    assert!(left <= 600_000, "{left} ms are left of 10 minutes");
    assert_eq!(clock.left_ms(begins), u64::try_from(left).unwrap());
}

/// a run without remaining time runs only its destructor.
#[tokio::test]
async fn a_run_without_time_left_begins_nothing_of_its_pipeline() {
    let (world, records) = begun().await;
    let (world, session) =
        restart(&world, &[of_clock(3_600_000, 0), records[1].clone(), of_clock(3_600_000, 3_600_000)]);
    let result = finished(world.drive(&timed(), &*session, Stop::No).await.unwrap());
    assert_eq!(result.errors[0].kind, etude_core::failure::FailureKind::BudgetExceeded);
    assert_eq!((result.status, world.ledger()), (Status::Failed, vec!["after".to_owned()]));
    // Another process comes to the same end.
    let records = session.records().unwrap();
    for cut in 3..=records.len() {
        let (world, session) = restart(&world, &records[..cut]);
        let again = finished(world.drive(&timed(), &*session, Stop::No).await.unwrap());
        assert_eq!((again.status, &again.errors), (Status::Failed, &result.errors), "cut after {cut}");
        assert!(!world.ledger().contains(&"b".to_owned()), "cut after {cut}");
    }
}

/// A session that lets the step `wait` end after the run's second sign of life.
#[derive(Debug)]
struct Listening(Box<dyn Session>, std::path::PathBuf, AtomicUsize);

impl Session for Listening {
    fn run_id(&self) -> &str {
        self.0.run_id()
    }
    fn run(&self) -> &NewRun {
        self.0.run()
    }
    fn records(&self) -> Result<Vec<Record>, engine::Error> {
        self.0.records()
    }
    fn append(&self, record: Record) -> engine::Boxed<'_, Result<(), engine::Error>> {
        if record.key == CLOCK && self.2.fetch_add(1, Ordering::Relaxed) == 1 {
            std::fs::write(&self.1, "").unwrap();
        }
        self.0.append(record)
    }
    fn signals(&self) -> Result<Vec<engine::Signal>, engine::Error> {
        self.0.signals()
    }
    fn set_state<'s>(
        &'s self,
        state: engine::RunState,
        result: Option<&'s str>,
    ) -> engine::Boxed<'s, Result<(), engine::Error>> {
        self.0.set_state(state, result)
    }
}

/// a long step leaves signs of life, which count if its process dies.
#[tokio::test]
async fn a_long_step_leaves_traces_of_its_time() {
    let mut world = World::new();
    world.limits.timeout_ms = Some(100_000);
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let session = Listening(session, world.dir.path().join("go"), AtomicUsize::new(0));
    let mut plan = timed();
    let wait = shell("wait", "while [ ! -e \"$ETUDE_APP_DIR/go\" ]; do sleep 0.02; done; echo '{\"output\":1}'");
    plan.body = sequence("p", vec![wait]);
    finished(world.drive(&plan, &session, Stop::No).await.unwrap());
    let records = session.records().unwrap();
    let clocks: Vec<&Record> = records.iter().filter(|record| record.key == CLOCK).collect();
    assert!(clocks.len() >= 2, "{clocks:?}");
    let ends = |record| Clock::last(std::iter::once(record), "p!timeout", 0).unwrap().ends_ms;
    assert_eq!(ends(clocks[0]), ends(clocks[1]), "the time goes on");
    assert!(record::at_ms(clocks[0]) < record::at_ms(clocks[1]));
    // Runs without a budget leave none.
    assert!(uninterrupted().await.1.iter().all(|record| record.key != CLOCK));
}
