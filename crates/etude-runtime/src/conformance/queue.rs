//! Conformance cases of the queue.

use std::thread;

use etude_core::digest::Digest;

use super::{Case, block_on, ids, new_run, record, row};
use crate::engine::{
    Engine, Enqueued, Error, LimitGroup, Limits, NewRun, Placement, Query, QueueReason, RunState, Session, Submission,
    Takes, UniqueKey,
};

pub(super) const CASES: &[Case] = &[
    ("a_queued_run_begins_when_it_is_taken", begins),
    ("the_queue_is_in_order_of_priority_and_age", order),
    ("several_runs_are_taken_in_the_order_of_the_queue", few),
    ("a_run_begins_at_its_time", not_before),
    ("a_clock_that_is_set_back_delays_no_queued_run", clock_set_back),
    ("there_are_never_more_runs_than_allowed", max_runs),
    ("runs_of_one_limit_wait_for_one_another", groups),
    ("a_queued_run_has_a_place_and_a_reason", places),
    ("a_queued_run_that_is_ended_never_begins", ended),
    ("a_run_that_waited_too_long_does_not_begin", expires),
    ("a_run_that_has_ended_is_queued_again", queue_again),
    ("a_run_that_is_queued_again_waits_from_then_on", again_expires),
    ("only_runs_without_a_driver_are_queued_again", again_refused),
    ("a_key_names_one_run_for_as_long_as_it_is_there", keys),
    ("a_key_of_a_removed_run_lives_for_a_day", keys_of_removed_runs),
    ("many_submissions_with_one_key_are_one_run", one_of_many),
    ("a_full_queue_takes_no_more", full),
    ("a_run_that_needs_room_is_refused_without_it", held),
    ("a_run_is_taken_by_name_within_the_limits", take),
    ("a_run_is_taken_by_who_has_its_app", of_apps),
    ("many_that_ask_at_once_get_different_runs", many_ask),
];

const NOW: i64 = 1_000_000_000;

fn submit(engine: &dyn Engine, run: NewRun, keys: &[UniqueKey]) -> Enqueued {
    let submission = Submission { run, keys: keys.to_vec(), max_queued: None, needs_room: false };
    block_on(engine.enqueue(&submission)).expect("a run can be queued")
}

pub(super) fn enqueue(engine: &dyn Engine, run: NewRun) {
    assert_eq!(submit(engine, run, &[]), Enqueued::Accepted);
}

fn placed(id: &str, created_at_ms: i64, placement: Placement) -> NewRun {
    NewRun { placement, ..new_run(id, created_at_ms) }
}

fn of_group(id: &str, created_at_ms: i64, group: &str, max_runs: u32) -> NewRun {
    let limit_group = Some(LimitGroup { name: group.to_owned(), max_runs });
    placed(id, created_at_ms, Placement { limit_group, ..Placement::default() })
}

fn limits(max_runs: u32) -> Limits {
    Limits::of_default_queue(max_runs)
}

fn next(engine: &dyn Engine, max_runs: u32) -> Option<Box<dyn Session>> {
    engine.next(&limits(max_runs), NOW).expect("the queue can be read")
}

fn next_id(engine: &dyn Engine) -> Option<String> {
    let session = next(engine, 1)?;
    block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    Some(session.run_id().to_owned())
}

fn begins(engine: &dyn Engine) {
    assert!(next(engine, 1).is_none());
    let run = new_run("r-1", 1_000);
    enqueue(engine, run.clone());
    let waiting = row(engine, "r-1");
    assert_eq!((waiting.state, waiting.is_live, waiting.started_at_ms), (RunState::Queued, false, None));
    assert_eq!(ids(engine, &Query { states: vec![RunState::Queued], ..Query::default() }), ["r-1"]);
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 0, "only what has ended is removed");
    let again = Submission { run: run.clone(), keys: vec![], max_queued: None, needs_room: false };
    assert!(matches!(block_on(engine.enqueue(&again)), Err(Error::Exists(id)) if id == "r-1"));
    let session = next(engine, 1).expect("it is next");
    assert_eq!((session.run(), session.began_at_ms()), (&run, NOW));
    assert_eq!(session.records().expect("records"), []);
    let begun = row(engine, "r-1");
    assert_eq!((begun.state, begun.is_live, begun.started_at_ms), (RunState::Running, true, Some(NOW)));
    assert!(next(engine, 9).is_none(), "it is taken once");
    assert!(matches!(engine.claim("r-1"), Err(Error::Busy { .. })));
    block_on(session.append(record("a", "1"))).expect("append");
    // Its process dies: the run is interrupted, not queued.
    drop(session);
    assert_eq!((row(engine, "r-1").state, row(engine, "r-1").is_live), (RunState::Running, false));
    assert!(next(engine, 9).is_none());
    assert_eq!(engine.deaths("r-1").expect("a number"), 0, "it was let go of");
    assert!(matches!(engine.deaths("r"), Err(Error::Unknown(_))));
    let session = engine.claim("r-1").expect("claim");
    assert_eq!((session.records().expect("records").len(), session.began_at_ms()), (1, NOW));
}

/// S-93.
fn order(engine: &dyn Engine) {
    let minute = 60_000;
    let of = |id: &str, at, priority| placed(id, at, Placement { priority, ..Placement::default() });
    enqueue(engine, of("late-urgent", 10 * minute, 20));
    enqueue(engine, of("old", 0, 0));
    enqueue(engine, of("old-too", 0, 0));
    enqueue(engine, of("newer", 3 * minute, 2));
    enqueue(engine, of("newer-low", 2 * minute, -1));
    enqueue(engine, of("new-raised", 5 * minute, 5));
    let mut seen = Vec::new();
    while let Some(id) = next_id(engine) {
        seen.push(id);
    }
    assert_eq!(seen, ["late-urgent", "old", "old-too", "new-raised", "newer", "newer-low"]);
}

/// S-93: runs that are taken together are the next ones too.
fn few(engine: &dyn Engine) {
    for at in 0..4 {
        enqueue(engine, new_run(&format!("r-{at}"), at));
    }
    let few = |max_runs, count| engine.next_few(&limits(max_runs), count, NOW).expect("the queue can be read");
    assert!(few(9, 0).is_empty());
    // The engine decides the number of runs taken at once, and not their order.
    let mut held = Vec::new();
    while let Some(found) = Some(few(3, 2)).filter(|found| !found.is_empty()) {
        assert!(found.len() <= 2);
        held.extend(found);
    }
    assert_eq!(held.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["r-0", "r-1", "r-2"]);
}

/// A process takes runs of its own apps, or runs that bring their app along.
fn of_apps(engine: &dyn Engine) {
    let of = |id: &str, at, app: &str, bundle| NewRun {
        app: app.to_owned(),
        ..placed(id, at, Placement { bundle, ..Placement::default() })
    };
    enqueue(engine, of("elsewhere", 1, "/elsewhere", None));
    enqueue(engine, of("here", 2, "/here", None));
    enqueue(engine, of("bundled", 3, "/elsewhere", Some(Digest::of(b"bundle"))));
    let next = |takes: Takes| {
        let session = engine.next(&Limits { takes, ..limits(9) }, NOW).expect("the queue can be read")?;
        block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
        Some(session.run_id().to_owned())
    };
    let of = |apps: &[&str]| Takes::Apps(apps.iter().map(|app| (*app).to_owned()).collect());
    assert_eq!(next(of(&["/here"])).as_deref(), Some("here"));
    assert_eq!(next(of(&["/here"])), None);
    assert_eq!(next(of(&[])), None);
    assert_eq!(next(Takes::Bundles).as_deref(), Some("bundled"));
    assert_eq!(next(Takes::Bundles), None);
    assert_eq!(next(Takes::Any).as_deref(), Some("elsewhere"));
}

/// S-50.
fn not_before(engine: &dyn Engine) {
    let at = |at| Placement { not_before_ms: Some(at), priority: 100, ..Placement::default() };
    enqueue(engine, placed("later", 1, at(NOW + 1)));
    enqueue(engine, placed("now", 2, at(NOW)));
    assert_eq!(next_id(engine).as_deref(), Some("now"));
    assert_eq!(next_id(engine), None);
    let session = engine.next(&limits(1), NOW + 1).expect("next").expect("its time has come");
    assert_eq!(session.run_id(), "later");
}

/// S-50: a clock that is set back after the submission delays no run that waits for no time, also if it is queued again.
fn clock_set_back(engine: &dyn Engine) {
    enqueue(engine, new_run("r-1", NOW));
    let next = || engine.next(&limits(1), NOW - 3_600_000).expect("next").map(|session| session.run_id().to_owned());
    assert_eq!(next().as_deref(), Some("r-1"));
    requeue(engine, "r-1", NOW).expect("its driver is gone");
    assert_eq!(next().as_deref(), Some("r-1"));
}

/// S-91.
fn max_runs(engine: &dyn Engine) {
    for run in 0..5 {
        enqueue(engine, new_run(&format!("r-{run}"), run));
    }
    // A run of the command line does not count.
    let _own = block_on(engine.create(&new_run("own", 1))).expect("create");
    let first = next(engine, 2).expect("one");
    let second = next(engine, 2).expect("two");
    assert!(next(engine, 2).is_none());
    block_on(first.set_state(RunState::Failed, None)).expect("set_state");
    let third = next(engine, 2).expect("one has ended");
    block_on(second.set_state(RunState::Waiting, None)).expect("set_state");
    drop(second);
    let _fourth = next(engine, 2).expect("one is suspended");
    assert!(next(engine, 2).is_none());
    drop(third);
    let _fifth = next(engine, 2).expect("the process of one has died");
    assert!(next(engine, 9).is_none());
}

/// S-92: see the tests of each engine for two processes.
fn groups(engine: &dyn Engine) {
    enqueue(engine, of_group("a-1", 1, "a", 1));
    enqueue(engine, of_group("a-2", 2, "a", 1));
    enqueue(engine, of_group("b-1", 3, "b", 2));
    enqueue(engine, of_group("b-2", 4, "b", 2));
    enqueue(engine, of_group("b-3", 5, "b", 2));
    enqueue(engine, new_run("free", 6));
    let mut sessions: Vec<_> = std::iter::from_fn(|| next(engine, 9)).collect();
    let names: Vec<_> = sessions.iter().map(|session| session.run_id().to_owned()).collect();
    assert_eq!(names, ["a-1", "b-1", "b-2", "free"]);
    block_on(sessions[0].set_state(RunState::Succeeded, None)).expect("set_state");
    sessions.push(next(engine, 9).expect("the next one of its group"));
    assert_eq!(sessions[4].run_id(), "a-2");
    assert!(next(engine, 9).is_none());
    let of_b = Query { limit_group: Some("b".to_owned()), states: vec![RunState::Running], ..Query::default() };
    assert_eq!(ids(engine, &of_b), ["b-2", "b-1"]);
}

fn places(engine: &dyn Engine) {
    enqueue(engine, of_group("a-1", 1, "a", 1));
    enqueue(engine, of_group("a-2", 2, "a", 1));
    enqueue(engine, new_run("free", 3));
    enqueue(engine, placed("later", 4, Placement { not_before_ms: Some(NOW + 1), ..Placement::default() }));
    let place = |id: &str, max_runs| {
        let place = engine.place(id, &limits(max_runs), NOW).expect("a place")?;
        Some((place.position, place.reason))
    };
    let session = next(engine, 1).expect("a-1");
    assert_eq!(place("a-1", 1), None);
    assert_eq!(place("a-2", 1), Some((1, QueueReason::MaxRuns)));
    assert_eq!(place("a-2", 2), Some((1, QueueReason::Pipeline)));
    assert_eq!(place("free", 1), Some((2, QueueReason::MaxRuns)));
    assert_eq!(place("later", 2), Some((3, QueueReason::NotBefore)));
    assert!(matches!(engine.place("none", &limits(1), NOW), Err(Error::Unknown(_))));
    drop(session);
}

/// S-80.
fn ended(engine: &dyn Engine) {
    enqueue(engine, new_run("r-1", 1));
    enqueue(engine, new_run("r-2", 2));
    let session = engine.claim("r-1").expect("claim");
    assert_eq!(row(engine, "r-1").state, RunState::Queued, "it has not begun");
    // A run that a session holds does not begin.
    let second = next(engine, 9).expect("the other one");
    assert_eq!(second.run_id(), "r-2");
    assert!(next(engine, 9).is_none());
    block_on(session.set_state(RunState::Cancelled, Some("{}"))).expect("set_state");
    assert!(next(engine, 9).is_none());
    let over = row(engine, "r-1");
    assert_eq!((over.state, over.started_at_ms), (RunState::Cancelled, None));
    // A run that is released without a state stays in its place.
    enqueue(engine, new_run("r-3", 3));
    drop(engine.claim("r-3").expect("claim"));
    assert_eq!(next(engine, 9).expect("it is still there").run_id(), "r-3");
}

/// S-96.
fn expires(engine: &dyn Engine) {
    let within = |ms| Placement { queue_timeout_ms: Some(ms), ..Placement::default() };
    enqueue(engine, placed("short", NOW - 10, within(10)));
    enqueue(engine, placed("long", NOW - 10, within(11)));
    let later = Placement { not_before_ms: Some(NOW), ..within(10) };
    enqueue(engine, placed("later", NOW - 100, later));
    enqueue(engine, new_run("patient", 1));
    let over = engine.expired(NOW).expect("expired");
    assert_eq!(over.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["short"]);
    assert_eq!(engine.expired(NOW).expect("expired").len(), 0, "a session has it");
    block_on(over[0].set_state(RunState::Failed, Some("{}"))).expect("set_state");
    drop(over);
    assert_eq!((row(engine, "short").state, row(engine, "short").started_at_ms), (RunState::Failed, None));
    let begun: Vec<_> = std::iter::from_fn(|| next(engine, 9)).map(|session| session.run_id().to_owned()).collect();
    assert_eq!(begun, ["patient", "later", "long"]);
    assert_eq!(engine.expired(NOW + 1_000).expect("expired").len(), 0, "what has begun waits no more");
}

fn requeue(engine: &dyn Engine, id: &str, now_ms: i64) -> Result<(), Error> {
    block_on(engine.requeue(id, now_ms))
}

/// S-91, S-92: the run keeps its records and the time of its first beginning, and counts for its limits.
fn queue_again(engine: &dyn Engine) {
    enqueue(engine, of_group("a-1", 1, "a", 1));
    let session = engine.take("a-1", &limits(9), NOW - 5).expect("take").expect("there is room");
    block_on(session.append(record("a", "1"))).expect("append");
    block_on(session.set_state(RunState::Failed, Some("{}"))).expect("set_state");
    enqueue(engine, of_group("a-2", 2, "a", 1));
    let other = next(engine, 9).expect("the other one of the group");
    requeue(engine, "a-1", NOW).expect("it has ended");
    requeue(engine, "a-1", NOW + 1).expect("it is queued already");
    let waiting = engine.view("a-1").expect("view");
    let row = &waiting.row;
    assert_eq!((row.state, row.started_at_ms, row.is_live), (RunState::Queued, Some(NOW - 5), false));
    assert_eq!((row.changed_at_ms, waiting.result.as_deref()), (NOW, None));
    let place = engine.place("a-1", &limits(9), NOW).expect("a place").expect("it is queued");
    assert_eq!((place.position, place.reason), (1, QueueReason::Pipeline));
    assert!(next(engine, 9).is_none(), "its group has no room");
    block_on(other.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
    let session = next(engine, 9).expect("there is room");
    assert_eq!((session.run_id(), session.began_at_ms()), ("a-1", NOW - 5));
    assert_eq!(session.records().expect("records"), [record("a", "1")]);
    let begun = super::row(engine, "a-1");
    assert_eq!((begun.state, begun.started_at_ms), (RunState::Running, Some(NOW - 5)));
    assert!(next(engine, 9).is_none(), "it is taken once");
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
    // A driver that sets the state by itself keeps the time, too.
    requeue(engine, "a-1", NOW).expect("it has ended");
    let session = engine.claim("a-1").expect("claim");
    assert_eq!(session.began_at_ms(), NOW - 5);
    block_on(session.set_state(RunState::Running, None)).expect("set_state");
    drop(session);
    assert_eq!(super::row(engine, "a-1").started_at_ms, Some(NOW - 5));
    assert!(next(engine, 9).is_none(), "it has begun");
    // An interrupted run is queued as well.
    requeue(engine, "a-1", NOW).expect("it has no driver");
    assert_eq!(super::row(engine, "a-1").state, RunState::Queued);
    assert_eq!(next(engine, 9).expect("it is queued").run_id(), "a-1");
}

/// S-96: the queue timeout counts from the moment at which the run was queued again.
fn again_expires(engine: &dyn Engine) {
    let within = Placement { queue_timeout_ms: Some(10), ..Placement::default() };
    enqueue(engine, placed("short", NOW - 100, within));
    let session = engine.take("short", &limits(9), NOW - 95).expect("take").expect("there is room");
    block_on(session.set_state(RunState::Failed, Some("{}"))).expect("set_state");
    requeue(engine, "short", NOW).expect("it has ended");
    assert_eq!(engine.expired(NOW + 9).expect("expired").len(), 0);
    let over = engine.expired(NOW + 10).expect("expired");
    assert_eq!(over.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["short"]);
}

/// A suspended run keeps its state and its result.
fn again_refused(engine: &dyn Engine) {
    enqueue(engine, new_run("r-1", 1));
    let session = next(engine, 9).expect("r-1");
    assert!(matches!(requeue(engine, "r-1", NOW), Err(Error::Busy { .. })));
    assert!(matches!(requeue(engine, "none", NOW), Err(Error::Unknown(_))));
    block_on(session.set_state(RunState::Waiting, Some("{}"))).expect("set_state");
    drop(session);
    requeue(engine, "r-1", NOW).expect("nothing to do");
    let suspended = engine.view("r-1").expect("view");
    assert_eq!((suspended.row.state, suspended.result.as_deref()), (RunState::Waiting, Some("{}")));
    assert!(next(engine, 9).is_none());
}

fn key(key: &str, of: &[u8]) -> UniqueKey {
    UniqueKey { key: key.to_owned(), digest: Some(Digest::of(of)) }
}

/// S-46, S-48.
fn keys(engine: &dyn Engine) {
    let all = [key("k:1", b"x"), UniqueKey { key: "tick:1".to_owned(), digest: None }, key("d:1", b"y")];
    assert_eq!(submit(engine, new_run("r-1", 1), &all), Enqueued::Accepted);
    let repeated = |of: &str, is_same| Enqueued::Repeated { run_id: "r-1".to_owned(), key: of.to_owned(), is_same };
    for own in &all {
        assert_eq!(submit(engine, new_run("r-2", 2), std::slice::from_ref(own)), repeated(&own.key, true));
    }
    assert_eq!(submit(engine, new_run("r-2", 2), &[key("other", b"x"), key("k:1", b"z")]), repeated("k:1", false));
    assert!(matches!(engine.view("r-2"), Err(Error::Unknown(_))), "nothing was written");
    assert_eq!(submit(engine, new_run("r-2", 2), &[key("other", b"x")]), Enqueued::Accepted);
    let session = next(engine, 9).expect("r-1");
    block_on(session.set_state(RunState::Failed, None)).expect("set_state");
    assert_eq!(submit(engine, new_run("r-3", 3), &all), repeated("k:1", true), "a failed run keeps its keys");
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    assert_eq!(submit(engine, new_run("r-3", 3), &all), Enqueued::Accepted);
}

/// Keys live as long as their run, and at least a day, even if the run was removed earlier.
fn keys_of_removed_runs(engine: &dyn Engine) {
    let now_ms = crate::clock::now_ms();
    let all = [key("k:1", b"x"), UniqueKey { key: "tick:1".to_owned(), digest: None }];
    let remove = |id: &str| {
        let session = engine.claim(id).expect("a run");
        block_on(session.set_state(RunState::Failed, None)).expect("set_state");
        drop(session);
        let query = Query { id: Some(id.to_owned()), ..Query::default() };
        assert_eq!(engine.prune(&query).expect("prune"), 1);
        assert!(matches!(engine.view(id), Err(Error::Unknown(_))));
    };
    assert_eq!(submit(engine, new_run("r-1", now_ms), &all), Enqueued::Accepted);
    remove("r-1");
    let repeated = |of: &str, is_same| Enqueued::Repeated { run_id: "r-1".to_owned(), key: of.to_owned(), is_same };
    for own in &all {
        assert_eq!(submit(engine, new_run("r-2", now_ms), std::slice::from_ref(own)), repeated(&own.key, true));
    }
    assert_eq!(submit(engine, new_run("r-2", now_ms), &[key("k:1", b"z")]), repeated("k:1", false));
    assert_eq!(submit(engine, new_run("r-2", now_ms), &[key("k:2", b"z")]), Enqueued::Accepted);
    // Another prune removes no young key.
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 0);
    assert_eq!(submit(engine, new_run("r-3", now_ms), &all), repeated("k:1", true));
    // The day of this key is over.
    let old = now_ms - crate::engine::KEY_LIFE_MS - 60_000;
    assert_eq!(submit(engine, new_run("r-4", old), &[key("k:4", b"z")]), Enqueued::Accepted);
    remove("r-4");
    assert_eq!(submit(engine, new_run("r-5", now_ms), &[key("k:4", b"z")]), Enqueued::Accepted);
}

/// S-44.
fn one_of_many(engine: &dyn Engine) {
    let submissions: Vec<Enqueued> = thread::scope(|scope| {
        let one =
            |run: i64| scope.spawn(move || submit(engine, new_run(&format!("r-{run}"), run), &[key("same", b"body")]));
        let threads: Vec<_> = (0..50).map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let accepted = submissions.iter().filter(|end| **end == Enqueued::Accepted).count();
    let queued = ids(engine, &Query::default());
    assert_eq!((accepted, queued.len()), (1, 1));
    let repeated = Enqueued::Repeated { run_id: queued[0].clone(), key: "same".to_owned(), is_same: true };
    assert_eq!(submissions.iter().filter(|end| **end == repeated).count(), 49);
}

/// S-95.
fn full(engine: &dyn Engine) {
    let submit = |id: &str, keys: Vec<UniqueKey>| {
        let submission = Submission { run: new_run(id, 1), keys, max_queued: Some(2), needs_room: false };
        block_on(engine.enqueue(&submission)).expect("the queue can be asked")
    };
    assert_eq!(submit("r-1", vec![key("k", b"")]), Enqueued::Accepted);
    assert_eq!(submit("r-2", vec![]), Enqueued::Accepted);
    assert_eq!(submit("r-3", vec![key("other", b"")]), Enqueued::Full);
    assert!(matches!(submit("r-3", vec![key("k", b"")]), Enqueued::Repeated { .. }), "it is there already");
    let _first = next(engine, 1).expect("one begins");
    assert_eq!(submit("r-3", vec![key("other", b"")]), Enqueued::Accepted, "what is refused leaves no key");
}

/// S-94: a run that needs room is refused in the transaction that would accept it, so that one of many processes is
/// accepted.
fn held(engine: &dyn Engine) {
    let submit = |id: &str, group: &str, max_runs: u32, keys: Vec<UniqueKey>| {
        let submission = Submission { run: of_group(id, 1, group, max_runs), keys, max_queued: None, needs_room: true };
        block_on(engine.enqueue(&submission)).expect("the queue can be asked")
    };
    let held = |id: &str| Enqueued::Held { run_id: id.to_owned() };
    let enqueued: Vec<Enqueued> = thread::scope(|scope| {
        let one = |run: i64| scope.spawn(move || submit(&format!("r-{run}"), "a", 1, vec![]));
        let threads: Vec<_> = (0..20).map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let queued = ids(engine, &Query::default());
    assert_eq!(queued.len(), 1);
    assert_eq!(enqueued.iter().filter(|end| **end == held(&queued[0])).count(), 19);
    assert_eq!(submit("b-1", "b", 2, vec![key("k", b"")]), Enqueued::Accepted);
    assert_eq!(submit("b-2", "b", 2, vec![]), Enqueued::Accepted, "two have room");
    assert_eq!(submit("b-3", "b", 2, vec![key("other", b"")]), held("b-1"));
    assert!(matches!(submit("b-3", "b", 2, vec![key("k", b"")]), Enqueued::Repeated { .. }), "it is there already");
    let session = engine.take("b-1", &limits(9), NOW).expect("it can be asked for").expect("there is room");
    assert_eq!(submit("b-3", "b", 2, vec![]), held("b-1"), "a run in progress has the room too");
    block_on(session.set_state(RunState::Waiting, Some("{}"))).expect("set_state");
    assert_eq!(submit("b-3", "b", 2, vec![key("other", b"")]), Enqueued::Accepted, "a suspended run has none");
}

fn take(engine: &dyn Engine) {
    enqueue(engine, new_run("r-1", 1));
    enqueue(engine, new_run("r-2", 2));
    enqueue(engine, of_group("a-1", 3, "a", 1));
    enqueue(engine, of_group("a-2", 4, "a", 1));
    let take = |id: &str, max_runs| engine.take(id, &limits(max_runs), NOW).expect("it can be asked for");
    let waiting = take("r-2", 2).expect("out of its turn");
    assert_eq!((row(engine, "r-2").state, row(engine, "r-2").started_at_ms), (RunState::Running, Some(NOW)));
    assert!(matches!(engine.take("r-2", &limits(9), NOW), Err(Error::Busy { .. })));
    block_on(waiting.set_state(RunState::Waiting, Some("{}"))).expect("set_state");
    drop(waiting);
    let first = next(engine, 1).expect("r-1");
    assert!(take("r-2", 1).is_none());
    let again = take("r-2", 2).expect("within the limit");
    let as_before = engine.view("r-2").expect("view");
    assert_eq!((as_before.row.state, as_before.result.as_deref()), (RunState::Waiting, Some("{}")));
    assert!(next(engine, 2).is_none(), "it counts, although it has not said that it runs");
    drop((first, again));
    let _of_group = take("a-1", 9).expect("one of its group");
    assert!(take("a-2", 9).is_none());
    // A run that its own process began counts once it was taken.
    drop(block_on(engine.create(&new_run("own", 1))).expect("create"));
    let _own = take("own", 2).expect("it was interrupted");
    assert!(take("r-2", 2).is_none());
    assert!(matches!(engine.take("none", &limits(9), NOW), Err(Error::Unknown(_))));
}

fn many_ask(engine: &dyn Engine) {
    for run in 0..12 {
        enqueue(engine, new_run(&format!("r-{run:02}"), run));
    }
    let taken: Vec<Box<dyn Session>> = thread::scope(|scope| {
        let some = || (0..4).filter_map(|_| next(engine, 8)).collect::<Vec<_>>();
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut names: Vec<_> = taken.iter().map(|session| session.run_id().to_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, (0..8).map(|run| format!("r-{run:02}")).collect::<Vec<_>>());
}
