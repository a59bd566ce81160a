//! Conformance cases of runs that move between engines.

use std::collections::BTreeMap;

use etude_core::digest::Digest;

use super::{Case, block_on, finish, new_run, record, row, start};
use crate::blob::{INLINE_LIMIT, put};
use crate::engine::{
    ArchivedRun, Cause, Engine, Enqueued, Error, LimitGroup, Limits, Placement, Query, RunState, Signal, Signalled,
    Stamp, Submission, UniqueKey,
};

/// The cases of exports and imports.
pub(super) const CASES: &[Case] = &[
    ("what_is_admitted_is_captured_again", admitted),
    ("a_run_is_admitted_once", admitted_once),
    ("an_admitted_run_keeps_its_values_and_loses_them_with_it", values),
    ("an_admitted_run_continues_where_it_was", continues),
    ("an_admitted_run_begins_from_its_queue", begins),
    ("a_moved_run_is_out_of_reach", moved),
    ("a_run_that_has_changed_is_not_moved", changed),
    ("a_moved_run_is_listed_and_pruned", listed),
];

fn signal(key: &str) -> Signal {
    Signal { key: key.to_owned(), body: r#"{"v":1}"#.to_owned() }
}

/// A run with a value in every member, whose app is in the store.
fn archived(engine: &dyn Engine, id: &str, state: RunState) -> ArchivedRun {
    let (bundle, _) = put(&*engine.blobs(), format!("the app of {id}").as_bytes()).expect("a value can be kept");
    let (large, _) = put(&*engine.blobs(), format!("a value of {id}").as_bytes()).expect("a value can be kept");
    let placement = Placement {
        cause: Cause::Api,
        by: Some("ada".to_owned()),
        labels: BTreeMap::from([("team".to_owned(), "blue \" \0".to_owned())]),
        again_of: Some("r-0".to_owned()),
        priority: -3,
        not_before_ms: Some(5),
        queue_timeout_ms: Some(u64::from(u32::MAX)),
        limit_group: Some(LimitGroup { name: "app\0p".to_owned(), max_runs: 7 }),
        tenant: Some("acme".to_owned()),
        queue: Some("slow".to_owned()),
        bundle: Some(bundle),
    };
    let mut needing = record("main/b", "{\"v\":1,\"text\":\"\u{0}\\u0000 \u{1f600}\"}");
    needing.blobs = vec![large];
    let result = format!("\"{}\"", "r".repeat(INLINE_LIMIT));
    ArchivedRun {
        run: crate::engine::NewRun { placement, ..new_run(id, 10) },
        state,
        started_at_ms: Some(20),
        changed_at_ms: 30,
        keys: vec![
            UniqueKey { key: format!("run {id}"), digest: Some(Digest::of(b"request")) },
            UniqueKey { key: format!("tick {id}"), digest: None },
        ],
        records: vec![record("main/a", "{}"), needing, record("main/a", "{}")],
        signals: vec![signal("!cancel"), signal("main/gate")],
        result: Some(result),
        values: Vec::new(),
    }
}

/// K-64.
fn admitted(engine: &dyn Engine) {
    let states = RunState::ALL.into_iter().filter(|state| *state != RunState::Moved);
    for (at, state) in states.enumerate() {
        let run = archived(engine, &format!("r-{}", at + 1), state);
        let needed = ArchivedRun { values: run.run.placement.bundle.into_iter().collect(), ..run.clone() };
        assert!(engine.admit(&needed).expect("admit"));
        let captured = engine.capture(&run.run.id).expect("capture");
        assert!(captured.run == run, "{state:?}: {:#?}", ArchivedRun { result: None, ..captured.run });
        assert!(!captured.is_live);
        assert_eq!((captured.stamp.state, captured.stamp.records, captured.stamp.signals), (state, 3, 2));
        let view = engine.view(&run.run.id).expect("view");
        assert_eq!((view.row.state, view.row.is_live, &view.run), (state, false, &run.run));
        let labelled = Query { labels: run.run.placement.labels.clone().into_iter().collect(), ..Query::default() };
        assert_eq!(engine.count(&labelled).expect("count"), at as u64 + 1);
    }
    let bare = ArchivedRun {
        run: new_run("bare", 1),
        state: RunState::Queued,
        started_at_ms: None,
        changed_at_ms: 1,
        keys: Vec::new(),
        records: Vec::new(),
        signals: Vec::new(),
        result: None,
        values: Vec::new(),
    };
    assert!(engine.admit(&bare).expect("admit"));
    assert_eq!(engine.capture("bare").expect("capture").run, bare);
    assert!(matches!(engine.capture("bar"), Err(Error::Unknown(_))), "a whole id is asked for");
}

/// K-64, K-65.
fn admitted_once(engine: &dyn Engine) {
    let run = archived(engine, "r-1", RunState::Failed);
    assert!(engine.admit(&run).expect("admit"));
    let other = ArchivedRun { state: RunState::Succeeded, records: Vec::new(), ..run.clone() };
    assert!(!engine.admit(&other).expect("admit"));
    assert_eq!(engine.capture("r-1").expect("capture").run, run);
    // A key stays with the run that has it.
    let second = archived(engine, "r-2", RunState::Failed);
    let rival = ArchivedRun { keys: [run.keys.clone(), second.keys.clone()].concat(), ..second.clone() };
    assert!(engine.admit(&rival).expect("admit"));
    assert_eq!(engine.capture("r-2").expect("capture").run.keys, second.keys);
    assert_eq!(engine.capture("r-1").expect("capture").run.keys, run.keys);
    // A key belongs to a tenant (K-29).
    let mut again = new_run("r-3", 1);
    again.placement.tenant.clone_from(&run.run.placement.tenant);
    let submission = Submission { run: again, keys: run.keys, max_queued: None, needs_room: false };
    let enqueued = block_on(engine.enqueue(&submission)).expect("enqueue");
    assert!(matches!(enqueued, Enqueued::Repeated { run_id, is_same: true, .. } if run_id == "r-1"));
}

/// K-48.
fn values(engine: &dyn Engine) {
    let mut run = archived(engine, "r-1", RunState::Succeeded);
    let (input, _) = put(&*engine.blobs(), b"a large input").expect("a value can be kept");
    run.values = [run.run.placement.bundle, Some(input)].into_iter().flatten().collect();
    assert!(engine.admit(&run).expect("admit"));
    finish(engine, "r-2", 1, RunState::Failed);
    let failed = Query { states: vec![RunState::Failed], ..Query::default() };
    assert_eq!(engine.prune(&failed).expect("prune"), 1);
    for value in run.values.iter().chain(run.records.iter().flat_map(|record| &record.blobs)) {
        assert!(engine.blobs().open(*value).is_ok(), "{value} is needed");
    }
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    assert!(matches!(engine.capture("r-1"), Err(Error::Unknown(_))));
    assert!(engine.admit(&run).expect("what was pruned can be admitted again"));
}

/// K-64.
fn continues(engine: &dyn Engine) {
    for (id, state) in [("r-1", RunState::Running), ("r-2", RunState::Waiting), ("r-3", RunState::Failed)] {
        let run = archived(engine, id, state);
        assert!(engine.admit(&run).expect("admit"));
        let session = engine.claim(id).expect("no one has it");
        assert_eq!((session.run(), session.began_at_ms()), (&run.run, 20));
        assert_eq!(session.records().expect("records"), run.records);
        assert_eq!(session.signals().expect("signals"), run.signals);
        block_on(session.append(record("main/c", "{}"))).expect("it continues");
        assert_eq!(session.records().expect("records").len(), 4);
        block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
        drop(session);
        let captured = engine.capture(id).expect("capture");
        assert_eq!(
            (captured.stamp.records, captured.run.records.len(), captured.run.state),
            (4, 4, RunState::Succeeded)
        );
    }
}

/// K-64.
fn begins(engine: &dyn Engine) {
    let mut run = archived(engine, "r-1", RunState::Queued);
    (run.records, run.signals, run.result, run.started_at_ms) = (Vec::new(), Vec::new(), None, None);
    assert!(engine.admit(&run).expect("admit"));
    let limits = Limits { queue: "slow".to_owned(), ..Limits::of_default_queue(10) };
    assert!(engine.place("r-1", &limits, 100).expect("place").is_some_and(|place| place.position == 1));
    let session = engine.next(&limits, 100).expect("next").expect("it waits in its queue");
    assert_eq!(session.run(), &run.run);
    block_on(session.append(record("main/a", "{}"))).expect("append");
    drop(session);
    assert_eq!(row(engine, "r-1").state, RunState::Running);
}

/// The current stamp of a run.
fn stamp(engine: &dyn Engine, id: &str) -> Stamp {
    engine.capture(id).expect("capture").stamp
}

/// K-64.
fn moved(engine: &dyn Engine) {
    let old = start(engine, "r-1", 1);
    block_on(old.append(record("a", "{}"))).expect("append");
    block_on(old.set_state(RunState::Waiting, Some("{}"))).expect("set_state");
    let others = engine.move_away(&[stamp(engine, "r-1")]).expect("move");
    assert_eq!(others, ["r-1"], "its driver lives");
    drop(old);
    let queued = Submission { run: new_run("r-2", 2), keys: Vec::new(), max_queued: None, needs_room: false };
    block_on(engine.enqueue(&queued)).expect("enqueue");
    let stamps = [stamp(engine, "r-1"), stamp(engine, "r-2")];
    assert_eq!(engine.move_away(&stamps).expect("move"), [""; 0]);
    let limits = Limits::of_default_queue(10);
    for id in ["r-1", "r-2"] {
        assert_eq!(row(engine, id).state, RunState::Moved);
        assert!(matches!(engine.claim(id), Err(Error::Moved(run)) if run == id));
        assert!(matches!(engine.take(id, &limits, 100), Err(Error::Moved(_))));
        assert!(matches!(engine.signal(id, &signal("!cancel")), Err(Error::Moved(_))));
        assert!(engine.place(id, &limits, 100).expect("place").is_none());
    }
    assert!(engine.next(&limits, 100).expect("next").is_none());
    assert_eq!(engine.expired(i64::MAX).expect("expired").len(), 0);
    assert_eq!(engine.view("r-1").expect("view").records, [record("a", "{}")]);
    let again = stamp(engine, "r-1");
    assert_eq!(engine.move_away(&[again, stamps[1].clone()]).expect("move"), ["r-1", "r-2"], "they are gone already");
}

/// K-64: a change after the capture is missing from the file, so the run stays.
fn changed(engine: &dyn Engine) {
    for id in ["answered", "taken", "as-it-was"] {
        drop(start(engine, id, 1));
    }
    finish(engine, "over", 1, RunState::Failed);
    let stamps: Vec<Stamp> = ["answered", "taken", "as-it-was", "over"].map(|id| stamp(engine, id)).into();
    assert_eq!(engine.signal("answered", &signal("main/gate")).expect("signal"), Signalled::Accepted);
    let session = engine.claim("taken").expect("claim");
    block_on(session.append(record("a", "{}"))).expect("append");
    drop(session);
    let unknown = Stamp { run_id: "unknown".to_owned(), ..stamps[0].clone() };
    let mut others = engine.move_away(&[stamps.clone(), vec![unknown]].concat()).expect("move");
    others.sort();
    assert_eq!(others, ["answered", "over", "taken", "unknown"]);
    let states = ["answered", "taken", "as-it-was", "over"].map(|id| row(engine, id).state);
    assert_eq!(states, [RunState::Running, RunState::Running, RunState::Moved, RunState::Failed]);
    drop(engine.claim("taken").expect("it is still here"));
}

/// K-64.
fn listed(engine: &dyn Engine) {
    let before = engine.last_change().expect("a number");
    drop(start(engine, "r-1", 1));
    drop(start(engine, "r-2", 2));
    engine.move_away(&[stamp(engine, "r-1")]).expect("move");
    let moved = Query { states: vec![RunState::Moved], ..Query::default() };
    let rows = engine.list(&moved).expect("list");
    assert_eq!(rows.iter().map(|row| (row.id.as_str(), row.is_live)).collect::<Vec<_>>(), [("r-1", false)]);
    let counts = engine.counts(&Query::default()).expect("counts");
    assert_eq!((counts.moved, counts.interrupted, counts.total()), (1, 1, 2));
    assert!(engine.changes(before, 10).expect("changes").iter().any(|row| row.state == RunState::Moved));
    assert_eq!(engine.prunable(&Query::default()).expect("prunable").runs.len(), 1);
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    assert!(matches!(engine.claim("r-1"), Err(Error::Unknown(_))));
    drop(engine.claim("r-2").expect("it is still here"));
}
