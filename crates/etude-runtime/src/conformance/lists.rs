//! Conformance cases of paged lists, counts, and following runs.

use super::{Case, block_on, finish, ids, new_run, record, row, start};
use crate::engine::{Cause, Counts, Engine, Error, NewRun, Placement, Positioned, Query, RunState, Signal};

pub(super) const CASES: &[Case] = &[
    ("pages_give_each_run_once_while_others_begin_and_end", pages),
    ("text_finds_ids_targets_and_labels", text),
    ("filters_narrow_a_list", filters),
    ("counts_agree_with_lists", counts),
    ("what_a_run_was_submitted_with_comes_back", placement),
    ("a_tail_begins_after_a_position", tail),
    ("each_changed_run_is_reported_once_as_it_is_now", changes),
    ("the_version_differs_after_each_write", version),
];

fn labelled(id: &str, created_at_ms: i64, labels: &[(&str, &str)]) -> NewRun {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    NewRun { placement: Placement { labels, ..Placement::default() }, ..new_run(id, created_at_ms) }
}

fn create(engine: &dyn Engine, run: &NewRun) {
    drop(block_on(engine.create(run)).expect("a run can be created"));
}

/// S-52: a run that begins or ends between two pages does not move another one.
fn pages(engine: &dyn Engine) {
    // Several runs have the same millisecond, across the ends of pages.
    let times = [5, 5, 5, 5, 5, 6, 7, 7, 1, 2, 3, 3, 3];
    let all: Vec<String> = (0..times.len()).map(|run| format!("r-{run:02}")).collect();
    for (id, at) in all.iter().zip(times) {
        finish(engine, id, at, RunState::Failed);
    }
    let everything = Query { created_before_ms: Some(100), ..Query::default() };
    let expected = ids(engine, &everything);
    assert_eq!(expected.len(), all.len());
    for states in [vec![], vec![RunState::Failed], vec![RunState::Failed, RunState::Cancelled]] {
        let (mut seen, mut query) = (Vec::new(), Query { limit: Some(4), states, ..everything.clone() });
        for page in 0.. {
            let rows = engine.list(&query).expect("a page");
            seen.extend(rows.iter().map(|row| row.id.clone()));
            let Some(last) = rows.last() else { break };
            query.after = Some(last.cursor());
            // Newer runs begin; one run that was listed, and one that was not, change.
            let name = format!("new-{}-{page}", query.states.len());
            drop(start(engine, &name, 1_000 + page));
            for changed in [&expected[0], &expected[12]] {
                let session = engine.claim(changed).expect("claim");
                block_on(session.set_state(RunState::Failed, None)).expect("set_state");
            }
        }
        assert_eq!(seen, expected);
    }
}

/// S-55.
fn text(engine: &dyn Engine) {
    create(engine, &NewRun { target: "machine:deploy".to_owned(), ..new_run("abc-1", 1) });
    create(engine, &NewRun { target: "code-review".to_owned(), ..new_run("abd-2", 2) });
    let review = NewRun { target: "review".to_owned(), ..labelled("xyz-3", 3, &[("team", "core%"), ("env", "prod")]) };
    create(engine, &review);
    let found = |text: &str| ids(engine, &Query { text: Some(text.to_owned()), ..Query::default() });
    assert_eq!(found("ab"), ["abd-2", "abc-1"]);
    assert_eq!(found("bd-2"), [""; 0], "of an id, only the beginning");
    assert_eq!(found("review"), ["xyz-3", "abd-2"]);
    assert_eq!(found("eplo"), ["abc-1"]);
    assert_eq!(found("machine"), [""; 0], "the kind of a target is no part of its name");
    assert_eq!(found("env:pr"), ["xyz-3"]);
    assert_eq!(found("core%"), ["xyz-3"]);
    assert_eq!(found("%"), ["xyz-3"]);
    assert_eq!(found("_"), [""; 0]);
}

/// S-51.
fn filters(engine: &dyn Engine) {
    let api = Placement { cause: Cause::Api, ..Placement::default() };
    create(engine, &NewRun { placement: api, app: "/apps/b".to_owned(), ..new_run("r-1", 1) });
    create(engine, &labelled("r-2", 2, &[("env", "prod"), ("team", "a")]));
    create(engine, &labelled("r-3", 3, &[("env", "prod"), ("team", "b")]));
    finish(engine, "r-4", 4, RunState::Failed);
    let _live = start(engine, "r-5", 5);
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let all = Query::default();
    assert_eq!(ids(engine, &Query { cause: Some(Cause::Api), ..all.clone() }), ["r-1"]);
    assert_eq!(ids(engine, &Query { cause: Some(Cause::Cli), ..all.clone() }), ["r-5", "r-4", "r-3", "r-2"]);
    let prod = Query { labels: vec![label("env", "prod")], ..all.clone() };
    assert_eq!(ids(engine, &prod), ["r-3", "r-2"]);
    let after = engine.list(&prod).expect("list")[0].cursor();
    assert_eq!(ids(engine, &Query { after: Some(after), limit: Some(1), ..prod.clone() }), ["r-2"]);
    assert_eq!(ids(engine, &Query { created_since_ms: Some(3), ..prod.clone() }), ["r-3"]);
    let both = Query { labels: vec![label("env", "prod"), label("team", "a")], ..all.clone() };
    assert_eq!((ids(engine, &both), engine.count(&both).expect("count")), (vec!["r-2".to_owned()], 1));
    assert_eq!(ids(engine, &Query { labels: vec![label("env", "dev")], ..all.clone() }), [""; 0]);
    let apps = vec!["/apps/b".to_owned(), "/apps/none".to_owned()];
    assert_eq!(ids(engine, &Query { apps, ..all.clone() }), ["r-1"]);
    assert_eq!(ids(engine, &Query { id: Some("r-4".to_owned()), ..all.clone() }), ["r-4"]);
    assert_eq!(engine.row("r-4").expect("a row").id, "r-4");
    assert!(matches!(engine.row("r-"), Err(Error::Unknown(_))));
    let running = |is_interrupted, limit| Query {
        states: vec![RunState::Running, RunState::Failed],
        is_interrupted: Some(is_interrupted),
        limit,
        ..all.clone()
    };
    assert_eq!(ids(engine, &running(false, None)), ["r-5", "r-4"]);
    assert_eq!(ids(engine, &running(true, None)), ["r-4", "r-3", "r-2", "r-1"]);
    assert_eq!(ids(engine, &running(true, Some(2))), ["r-4", "r-3"]);
    assert_eq!(engine.count(&running(true, Some(2))).expect("count"), 4);
}

/// S-62.
fn counts(engine: &dyn Engine) {
    finish(engine, "r-1", 1, RunState::Succeeded);
    finish(engine, "r-2", 2, RunState::Failed);
    finish(engine, "r-3", 3, RunState::Failed);
    finish(engine, "r-4", 4, RunState::Cancelled);
    block_on(start(engine, "r-5", 5).set_state(RunState::Waiting, None)).expect("set_state");
    let _live = start(engine, "r-6", 6);
    create(engine, &labelled("r-7", 7, &[("env", "prod")]));
    super::queue::enqueue(engine, new_run("r-8", 8));
    let all = Query { limit: Some(1), ..Query::default() };
    let expected = Counts {
        queued: 1,
        running: 1,
        waiting: 1,
        sleeping: 0,
        interrupted: 1,
        succeeded: 1,
        failed: 2,
        cancelled: 1,
        moved: 0,
    };
    assert_eq!(engine.counts(&all).expect("counts"), expected);
    assert_eq!(expected.total(), engine.count(&all).expect("count"));
    let filters = [
        Query { states: vec![RunState::Failed, RunState::Running], ..all.clone() },
        Query { created_since_ms: Some(3), created_before_ms: Some(7), ..all.clone() },
        Query { labels: vec![("env".to_owned(), "prod".to_owned())], ..all.clone() },
        Query { apps: vec!["/apps/none".to_owned()], ..all.clone() },
        Query { text: Some("review".to_owned()), ..all.clone() },
    ];
    for query in filters {
        let mut listed = Counts::default();
        for row in engine.list(&Query { limit: None, ..query.clone() }).expect("list") {
            listed.add(row.state, row.is_live, 1);
        }
        assert_eq!(engine.counts(&query).expect("counts"), listed, "{query:?}");
    }
}

fn placement(engine: &dyn Engine) {
    let placement = Placement {
        cause: Cause::Webhook,
        by: Some("webhook:push".to_owned()),
        labels: [("a", "\"1\u{0}\""), ("b.c", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        again_of: Some("r-0".to_owned()),
        priority: -100,
        not_before_ms: Some(5_000),
        queue_timeout_ms: Some(60_000),
        limit_group: Some(crate::engine::LimitGroup { name: "demo\u{1f}deploy\u{1f}prod".to_owned(), max_runs: 3 }),
        tenant: Some("acme".to_owned()),
        queue: Some("batch".to_owned()),
        bundle: Some(etude_core::digest::Digest::of(b"bundle")),
    };
    let run = NewRun { placement, ..new_run("r-1", 1_000) };
    super::queue::enqueue(engine, run.clone());
    assert_eq!(row(engine, "r-1").placement, run.placement);
    assert_eq!(engine.view("r-1").expect("view").run, run);
    let session = engine.claim("r-1").expect("claim");
    assert_eq!(session.run(), &run);
    drop(session);
    let own = NewRun { id: "r-2".to_owned(), ..run };
    assert_eq!(block_on(engine.create(&own)).expect("create").run(), &own);
    assert_eq!((row(engine, "r-2").started_at_ms, row(engine, "r-1").started_at_ms), (Some(1_000), None));
}

fn tail(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    let other = start(engine, "r-2", 2);
    for key in ["a", "b", "c", "d"] {
        block_on(session.append(record(key, "1"))).expect("append");
        block_on(other.append(record(key, "2"))).expect("append");
    }
    let tail = |after, limit| engine.tail("r-1", after, limit).expect("a tail");
    let all = tail(0, 100);
    assert_eq!(all.iter().map(|one| one.record.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(all[0].position >= 1 && all.is_sorted_by_key(|one| one.position));
    assert_eq!(tail(0, 2), all[..2]);
    assert_eq!(tail(all[1].position, 100), all[2..]);
    assert_eq!(tail(all[3].position, 100), []);
    assert_eq!(tail(u64::MAX, 100), []);
    block_on(session.append(record("e", "1"))).expect("append");
    let [Positioned { position, record: last }] = &tail(all[3].position, 100)[..] else { panic!("one more") };
    assert!(*position > all[3].position && *last == record("e", "1"));
    drop(session);
    let session = engine.claim("r-1").expect("claim");
    assert_eq!(tail(0, 4), all, "a record keeps its position");
    block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    assert!(matches!(engine.tail("r-", 0, 1), Err(Error::Unknown(id)) if id == "r-"));
}

/// S-76.
fn changes(engine: &dyn Engine) {
    let begin = engine.last_change().expect("a number");
    assert_eq!(engine.changes(begin, 10).expect("changes"), []);
    let first = start(engine, "r-1", 30);
    finish(engine, "r-2", 20, RunState::Failed);
    super::queue::enqueue(engine, new_run("r-3", 10));
    let since = |after| engine.changes(after, 10).expect("changes");
    let seen: Vec<_> = since(begin).into_iter().map(|row| (row.id, row.state)).collect();
    let expected = [("r-1", RunState::Running), ("r-2", RunState::Failed), ("r-3", RunState::Queued)];
    assert_eq!(seen, expected.map(|(id, state)| (id.to_owned(), state)));
    let last = engine.last_change().expect("a number");
    assert_eq!((since(last), since(begin).last().map(|row| row.change)), (vec![], Some(last)));
    block_on(first.append(record("a", "1"))).expect("append");
    assert_eq!(since(last), [], "a record changes no state");
    block_on(first.set_state(RunState::Waiting, None)).expect("set_state");
    block_on(first.set_state(RunState::Running, None)).expect("set_state");
    assert_eq!(
        since(last).into_iter().map(|row| (row.id, row.state)).collect::<Vec<_>>(),
        [("r-1".to_owned(), RunState::Running)]
    );
    assert_eq!(engine.changes(begin, 1).expect("changes").len(), 1, "no more than the limit");
    let last = engine.last_change().expect("a number");
    drop(first);
    let _again = engine.claim("r-1").expect("claim");
    assert_eq!(since(last).len(), 1, "what was interrupted runs again");
    // The numbers of removed runs are never used again.
    let session = engine.claim("r-2").expect("claim");
    block_on(session.set_state(RunState::Cancelled, None)).expect("set_state");
    let last = engine.last_change().expect("a number");
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    let may_be_past = |change| engine.may_be_past(change).expect("an answer");
    assert_eq!((may_be_past(last), may_be_past(u64::MAX)), (true, false), "that of the run that was removed is past");
    finish(engine, "r-4", 40, RunState::Failed);
    assert_eq!(since(last).len(), 1);
}

fn version(engine: &dyn Engine) {
    // An engine may cache the version for a moment.
    let look = || {
        std::thread::sleep(std::time::Duration::from_millis(60));
        engine.version().expect("a number")
    };
    let session = start(engine, "r-1", 1);
    let mut before = look();
    assert_eq!(look(), before, "nothing was written");
    let signal = Signal { key: "!cancel".to_owned(), body: "{}".to_owned() };
    let writes: [&dyn Fn(); 4] = [
        &|| block_on(session.append(record("a", "1"))).expect("append"),
        &|| drop(engine.signal("r-1", &signal).expect("signal")),
        &|| block_on(session.set_state(RunState::Waiting, None)).expect("set_state"),
        &|| super::queue::enqueue(engine, new_run("r-2", 2)),
    ];
    for write in writes {
        write();
        let now = look();
        assert_ne!(now, before);
        before = now;
    }
}
