//! Deadlines that pass while no process has a run (X-3, ADR 0060).

use etude_core::failure::FailureKind;

use super::attempts::{approval, approve, waiting};
use super::*;

const IN_TIME: &str = "1970-01-01T00:00:00.999Z";
const PASSED_MS: i64 = 1_000;
const LATE: &str = "1970-01-01T00:00:01.001Z";

fn asking(timeout_ms: Option<u64>) -> Plan {
    Plan { before: None, body: sequence("p", vec![approval("ok", timeout_ms), step("b", "2")]), ..plan() }
}

/// The result of a run that waited past its deadline, with a decision made at `at`; its world and records.
async fn decided(plan: &Plan, limits: Limits, timer: &str, at: &str) -> (RunResult, World, Vec<Record>) {
    let first = World { limits, ..World::new() };
    let session = block_on(first.engine.create(&first.new_run())).unwrap();
    let gates = waiting(first.drive(plan, &*session, Stop::No).await.unwrap());
    let world = World { limits, is_resumed: true, ..World::of(&first.run_id) };
    let passed = record::of_deadline(&EffectId::new(timer), PASSED_MS);
    let is_noted = |record: &Record| if record.key == passed.key { passed.clone() } else { record.clone() };
    let records: Vec<Record> = session.records().unwrap().iter().map(is_noted).collect();
    assert!(records.contains(&passed), "{records:?}");
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    records.iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    approve(&world, &gates[0], 1, at);
    let result = finished(world.drive(plan, &*session, Stop::No).await.unwrap());
    let again = finished(world.drive(plan, &*session, Stop::No).await.unwrap());
    assert_eq!((again.status, &again.errors), (result.status, &result.errors), "the journal leads to the same end");
    (result, world, session.records().unwrap())
}

/// a decision counts if it was made before the deadline of its question, even if a process finds it later.
#[tokio::test]
async fn a_decision_counts_until_the_deadline() {
    let plan = asking(Some(3_600_000));
    let (result, world, _) = decided(&plan, Limits::default(), "p/ok!timeout", LATE).await;
    assert_eq!((result.status, result.errors[0].kind), (Status::Failed, FailureKind::StepTimeout));
    assert!(!world.ledger().contains(&"b".to_owned()));
    let (result, world, _) = decided(&plan, Limits::default(), "p/ok!timeout", IN_TIME).await;
    assert_eq!((result.status, &world.ledger()[0][..]), (Status::Succeeded, "b"), "{:?}", result.errors);
}

/// a used-up time budget ends a run before its next step begins; an earlier decision is recorded.
#[tokio::test]
async fn a_time_budget_that_has_passed_ends_a_run_before_its_next_step() {
    let limits = Limits { timeout_ms: Some(3_600_000), ..Limits::default() };
    for (at, is_decided) in [(IN_TIME, true), (LATE, false)] {
        let (result, world, records) = decided(&asking(None), limits, "p!timeout", at).await;
        assert_eq!((result.status, result.errors[0].kind), (Status::Failed, FailureKind::BudgetExceeded), "{at}");
        assert!(!world.ledger().contains(&"b".to_owned()), "{at}");
        assert_eq!(records.iter().any(|record| record.key == "p/ok"), is_decided, "{at}");
    }
}
