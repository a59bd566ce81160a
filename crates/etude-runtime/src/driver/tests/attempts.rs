//! Further attempts at a run: a continued journal that is cut anywhere leads to the same end.

use etude_core::outcome::Decision;
use etude_core::plan::{Approval, OnFailure, OnTimeout, Parallel};
use etude_core::template::Template;

use super::*;
use crate::record::Continuation;

/// The plan with a last step that fails until the file `repaired` exists.
fn broken() -> Plan {
    let mut plan = plan();
    let last = "echo last >> \"$ETUDE_APP_DIR/ledger\"; test -e \"$ETUDE_APP_DIR/repaired\" && echo '{\"output\":1}'";
    let mut body = (*plan.body).clone();
    body.steps[2] = shell("last", last);
    plan.body = Arc::new(body);
    plan
}

impl World {
    fn repair(&self) {
        std::fs::write(self.dir.path().join("repaired"), "").unwrap();
    }
}

/// Appends the continuation of a run that ended with `result`.
fn continue_after(session: &dyn Session, result: &RunResult) {
    let records = session.records().unwrap();
    let number = record::attempt_number(&records) + 1;
    let is_void = |key: &str| !is_below(key, "p") || result.remains.covers(key);
    let without = records.iter().enumerate().filter(|(_, record)| is_void(&record.key)).map(|(at, _)| at).collect();
    let (limits, usage) = (Limits::default(), Default::default());
    let next = Continuation {
        number,
        scope: number,
        without,
        limits,
        usage,
        used_ms: 0,
        at_ms: 0,
        refresh: false,
        restarts: Default::default(),
    };
    block_on(session.append(next.to_record())).unwrap();
}

/// A run that failed, was continued and succeeded: its records, and the index of the continuation.
async fn continued() -> (RunResult, Vec<Record>, usize, World) {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let failed = finished(world.drive(&broken(), &*session, Stop::No).await.unwrap());
    assert_eq!((failed.status, failed.attempt), (Status::Failed, 1));
    assert_eq!(failed.remains.unfinished, ["p/last"]);
    assert!(failed.remains.is_scope_over);
    let at = session.records().unwrap().len();
    continue_after(&*session, &failed);
    world.repair();
    let result = finished(world.drive(&broken(), &*session, Stop::No).await.unwrap());
    (result, session.records().unwrap(), at, world)
}

/// the constructor runs again first, kept steps are not repeated, the failed step starts again, and the
/// destructor runs again at the end.
#[tokio::test]
async fn a_continued_run_repeats_only_what_did_not_succeed() {
    let (result, records, at, world) = continued().await;
    assert_eq!((result.status, result.attempt), (Status::Succeeded, 2));
    let first = ["before", "list", "each", "each", "each", "last", "after"];
    assert_eq!(world.ledger(), [&first[..], &["before", "last", "after"]].concat());
    let keys: Vec<&str> = records[at..].iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["!attempt", "_constructor@2/before", "p/last", "_destructor@2/after"]);
}

/// a further attempt can be killed after any record: the next process ends in the same way, and repeats nothing
/// that is in the journal.
#[tokio::test]
async fn a_continued_run_that_is_cut_anywhere_leads_to_the_same_result() {
    let (whole, records, at, first) = continued().await;
    let states = |r: &RunResult| r.steps.iter().map(|s| (s.name.clone(), s.status, s.attempts)).collect::<Vec<_>>();
    for cut in at + 1..=records.len() {
        let world = World::of(&first.run_id);
        world.repair();
        let session = block_on(world.engine.create(&world.new_run())).unwrap();
        records[..cut].iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
        let result = finished(world.drive(&broken(), &*session, Stop::No).await.unwrap());
        assert_eq!((result.status, result.attempt), (whole.status, whole.attempt), "cut after {cut}");
        assert_eq!((result.output.clone(), states(&result)), (whole.output.clone(), states(&whole)), "cut after {cut}");
        assert_eq!(world.ledger().len(), records.len() - cut, "cut after {cut}: {:?}", world.ledger());
        let keys = |records: &[Record]| records.iter().map(|record| record.key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&session.records().unwrap()), keys(&records), "cut after {cut}: the journal");
    }
}

/// a run can be continued after every failure; every attempt of the scope has its own keys.
#[tokio::test]
async fn a_run_is_continued_as_often_as_it_fails() {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    for attempt in 1..=3 {
        let failed = finished(world.drive(&broken(), &*session, Stop::No).await.unwrap());
        assert_eq!((failed.status, failed.attempt), (Status::Failed, attempt));
        continue_after(&*session, &failed);
    }
    world.repair();
    let result = finished(world.drive(&broken(), &*session, Stop::No).await.unwrap());
    assert_eq!((result.status, result.attempt), (Status::Succeeded, 4));
    let count = |name: &str| world.ledger().iter().filter(|line| *line == name).count();
    assert_eq!((count("before"), count("list"), count("last"), count("after")), (4, 1, 4, 4));
}

pub(super) fn approval(name: &str, timeout_ms: Option<u64>) -> Arc<Step> {
    let approval = Approval {
        effects: Vec::new(),
        message: Template::literal("Ship?"),
        schema: None,
        approvers: Vec::new(),
        on_timeout: OnTimeout::Fail,
        continue_on_deny: false,
    };
    Arc::new(Step { kind: StepKind::Approval(Box::new(approval)), timeout_ms, ..(*step(name, "1")).clone() })
}

pub(super) fn waiting(driven: Driven) -> Vec<(EffectId, Gate)> {
    match driven {
        Driven::Waiting { gates, .. } => gates,
        Driven::Finished(result) => panic!("the run is over: {result:?}"),
    }
}

pub(super) fn approve(world: &World, (id, gate): &(EffectId, Gate), attempt: u32, at: &str) {
    let decision =
        Decision { approved: true, answer: Json::null(), by: "ada".to_owned(), at: at.to_owned(), reason: None };
    let signal = record::decision_signal(id.as_str(), &record::question(gate, attempt), &decision);
    world.engine.signal(&world.run_id, &signal).unwrap();
}

/// outcomes that an attempt takes over from an earlier one are taken over by each process that continues it,
/// even if they were requested only after another step of the attempt had ended.
#[tokio::test]
async fn what_was_kept_is_kept_in_the_next_process_too() {
    let first = "echo c0 >> \"$ETUDE_APP_DIR/ledger\"; test -e \"$ETUDE_APP_DIR/repaired\" && echo '{\"output\":1}'";
    let children = vec![shell("c0", first), step("c1", "1"), step("c2", "1")];
    let group = Parallel { steps: children, max_parallel: Some(1), on_failure: OnFailure::Wait };
    let group = Step { kind: StepKind::Parallel(group), ..(*step("group", "1")).clone() };
    let steps = vec![Arc::new(group), approval("ok", None), step("last", "1")];
    let plan = Plan { before: None, body: sequence("p", steps), ..plan() };
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let failed = finished(world.drive(&plan, &*session, Stop::No).await.unwrap());
    assert_eq!(
        (failed.status, world.ledger()),
        (Status::Failed, ["c0", "c1", "c2", "after"].map(str::to_owned).into())
    );
    continue_after(&*session, &failed);
    world.repair();
    let gates = waiting(world.drive(&plan, &*session, Stop::No).await.unwrap());
    assert_eq!(world.ledger()[4..], ["c0"]);
    let before = session.records().unwrap();
    waiting(world.drive(&plan, &*session, Stop::No).await.unwrap());
    assert_eq!((&world.ledger()[4..], session.records().unwrap()), (&["c0".to_owned()][..], before));
    let cancelled = World::of(&world.run_id);
    let session_of_cancelled = block_on(cancelled.engine.create(&cancelled.new_run())).unwrap();
    session.records().unwrap().iter().for_each(|record| block_on(session_of_cancelled.append(record.clone())).unwrap());
    approve(&world, &gates[0], 2, "");
    for (world, session, stop, status, ends) in [
        (&world, &session, Stop::No, Status::Succeeded, &["c0", "last", "after"][..]),
        (&cancelled, &session_of_cancelled, Stop::Cancel("no".to_owned()), Status::Cancelled, &["after"]),
    ] {
        let result = finished(world.drive(&plan, &**session, stop).await.unwrap());
        assert_eq!(
            (result.status, &world.ledger()[world.ledger().len() - ends.len()..]),
            (status, &ends.iter().map(|end| (*end).to_owned()).collect::<Vec<_>>()[..])
        );
        // Another process finds everything in the journal.
        let (ledger, records) = (world.ledger(), session.records().unwrap());
        let again = finished(world.drive(&plan, &**session, Stop::No).await.unwrap());
        let steps =
            |result: &RunResult| result.steps.iter().map(|step| (step.name.clone(), step.status)).collect::<Vec<_>>();
        assert_eq!((again.status, steps(&again)), (status, steps(&result)));
        assert_eq!((world.ledger(), session.records().unwrap()), (ledger, records), "{status:?}");
    }
}

/// the signal that cancelled an attempt does not cancel its continuation.
#[tokio::test]
async fn a_continued_run_is_not_cancelled_by_an_earlier_signal() {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let cancelled = finished(world.drive(&plan(), &*session, Stop::Cancel("no".to_owned())).await.unwrap());
    assert_eq!(cancelled.status, Status::Cancelled);
    world.engine.signal(&world.run_id, &record::cancel_signal("no", 1)).unwrap();
    continue_after(&*session, &cancelled);
    let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
    assert_eq!((result.status, result.attempt), (Status::Succeeded, 2));
}
