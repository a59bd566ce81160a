//! Conformance cases of the ledger.

use std::thread;

use super::{Case, block_on, new_run};
use crate::clock::now_ms;
use crate::engine::{
    COSTS, Engine, Entry, EntryQuery, Expected, KEY_LIFE_MS, Limits, OldEntries, Query, RunState, Submission,
    UniqueKey, Write, Written, cost_of,
};

pub(super) const CASES: &[Case] = &[
    ("an_entry_is_written_once_with_its_run", once),
    ("an_entry_changes_only_from_what_is_expected", changes),
    ("an_entry_can_wait_for_the_runs_of_its_book", alone),
    ("an_entry_without_its_run_is_not_written", refused),
    ("entries_are_listed_newest_first", listed),
    ("many_that_write_one_entry_begin_one_run", many),
    ("old_entries_go_when_their_runs_are_gone", old),
    ("the_cost_of_a_removed_run_is_kept_for_a_day", costs_of_removed_runs),
];

fn entry(key: &str, at_ms: i64, state: &str) -> Entry {
    let (book, body) = ("ticks demo".to_owned(), "{}".to_owned());
    Entry { book, key: key.to_owned(), at_ms, state: state.to_owned(), body, ..Entry::default() }
}

fn write(entry: Entry) -> Write {
    Write { entry, expected: Expected::Nothing, submission: None, is_alone: false }
}

fn with_run(entry: Entry, id: &str) -> Write {
    let submission = Submission { run: new_run(id, 1), keys: Vec::new(), max_queued: None, needs_room: false };
    Write { submission: Some(submission), ..write(entry) }
}

fn put(engine: &dyn Engine, write: &Write) -> Written {
    block_on(engine.write(write)).expect("an entry can be written")
}

fn all(engine: &dyn Engine, query: EntryQuery) -> Vec<String> {
    let query = EntryQuery { book: "ticks demo".to_owned(), ..query };
    engine.entries(&query).expect("entries can be read").into_iter().map(|entry| entry.key).collect()
}

fn old(engine: &dyn Engine) {
    let remove = |before_ms, limit| {
        let states = vec!["ran".to_owned(), "skipped".to_owned()];
        let old = OldEntries { book: "ticks demo".to_owned(), states, before_ms, limit };
        engine.remove_entries(&old).expect("entries can be removed")
    };
    assert_eq!(remove(9, 9), 0);
    put(engine, &with_run(entry("1", 1, "ran"), "a"));
    for nth in 2..6 {
        put(engine, &write(entry(&nth.to_string(), nth, "skipped")));
    }
    put(engine, &write(Entry { due_ms: Some(1), ..entry("due", 1, "skipped") }));
    put(engine, &write(entry("other", 1, "waiting")));
    put(engine, &write(Entry { book: "ticks other".to_owned(), ..entry("2", 1, "skipped") }));
    assert_eq!((remove(5, 2), remove(5, 9), remove(5, 9)), (2, 1, 0), "the oldest first, and none twice");
    assert_eq!(all(engine, EntryQuery::default()), ["5", "other", "due", "1"]);
    let session = engine.next(&Limits::of_default_queue(1), i64::MAX).expect("a queue").expect("a run");
    block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    drop(session);
    assert_eq!(remove(5, 9), 0, "its run is there");
    // An entry that refers to values of a run is removed with the run.
    let about =
        |run: &str| Entry { book: "run:demo".to_owned(), run_id: Some(run.to_owned()), ..entry(run, 1, "kept") };
    put(engine, &write(about("a")));
    put(engine, &write(about("b")));
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    let left = EntryQuery { book: "run:demo".to_owned(), ..EntryQuery::default() };
    let left: Vec<String> =
        engine.entries(&left).expect("entries can be read").into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["b"]);
    assert_eq!(remove(5, 9), 1);
    assert_eq!(all(engine, EntryQuery::default()), ["5", "other", "due"]);
}

fn once(engine: &dyn Engine) {
    assert_eq!(all(engine, EntryQuery::default()), Vec::<String>::new());
    assert_eq!(put(engine, &with_run(entry("1", 1, "ran"), "a")), Written::Done);
    let Written::Other(Some(found)) = put(engine, &with_run(entry("1", 1, "ran"), "b")) else { panic!("it is there") };
    assert_eq!(found.run_id.as_deref(), Some("a"));
    assert!(engine.row("b").is_err());
    assert_eq!(engine.row("a").expect("a run").state, RunState::Queued);
    // Another book has its own keys.
    let other = Entry { book: "ticks other".to_owned(), ..entry("1", 1, "ran") };
    assert_eq!(put(engine, &write(other)), Written::Done);
}

fn changes(engine: &dyn Engine) {
    let pending = Entry { due_ms: Some(5), ..entry("1", 1, "pending") };
    put(engine, &write(pending.clone()));
    let expected = |due_ms| Expected::Entry { state: "pending".to_owned(), due_ms };
    let later = |expected| Write { expected, ..write(Entry { due_ms: Some(9), ..pending.clone() }) };
    assert_eq!(put(engine, &later(expected(Some(5)))), Written::Done);
    assert!(matches!(put(engine, &later(expected(Some(5)))), Written::Other(Some(_))));
    assert!(matches!(put(engine, &later(expected(None))), Written::Other(Some(_))));
    assert_eq!(put(engine, &Write { expected: Expected::Anything, ..write(entry("1", 2, "done")) }), Written::Done);
    assert_eq!(put(engine, &Write { expected: expected(None), ..write(entry("2", 2, "x")) }), Written::Other(None));
    // `Exactly` compares the whole entry: a later one may have the same state and time.
    let body = |text: &str| Entry { body: text.to_owned(), ..entry("1", 2, "done") };
    let exactly =
        |found: &str, next: &str| Write { expected: Expected::Exactly(Box::new(body(found))), ..write(body(next)) };
    let there = body("\"there\"");
    assert_eq!(put(engine, &Write { expected: Expected::Anything, ..write(there.clone()) }), Written::Done);
    assert_eq!(put(engine, &exactly("\"other\"", "\"mine\"")), Written::Other(Some(Box::new(there))));
    assert_eq!(put(engine, &exactly("\"there\"", "\"mine\"")), Written::Done);
    assert!(matches!(put(engine, &exactly("\"there\"", "\"late\"")), Written::Other(Some(_))));
}

fn alone(engine: &dyn Engine) {
    put(engine, &with_run(entry("1", 1, "ran"), "a"));
    let second = Write { is_alone: true, ..with_run(entry("2", 2, "ran"), "b") };
    assert_eq!(put(engine, &second), Written::Busy(vec!["a".to_owned()]));
    let session = engine.next(&Limits::of_default_queue(1), i64::MAX).expect("a queue").expect("a run");
    assert_eq!(put(engine, &second), Written::Busy(vec!["a".to_owned()]));
    block_on(session.set_state(RunState::Waiting, None)).expect("set_state");
    assert_eq!(put(engine, &second), Written::Busy(vec!["a".to_owned()]));
    block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    assert_eq!(put(engine, &second), Written::Done);
}

fn refused(engine: &dyn Engine) {
    let keyed = |entry, id: &str, max_queued| {
        let keys = vec![UniqueKey { key: "delivery".to_owned(), digest: None }];
        let submission = Submission { run: new_run(id, 1), keys, max_queued, needs_room: false };
        Write { submission: Some(submission), ..write(entry) }
    };
    assert_eq!(put(engine, &keyed(entry("1", 1, "x"), "a", Some(0))), Written::Full);
    assert_eq!(put(engine, &keyed(entry("1", 1, "x"), "a", None)), Written::Done);
    let (run_id, key) = ("a".to_owned(), "delivery".to_owned());
    assert_eq!(put(engine, &keyed(entry("2", 1, "x"), "b", None)), Written::Repeated { run_id, key });
    assert_eq!(all(engine, EntryQuery::default()), ["1"]);
}

fn listed(engine: &dyn Engine) {
    put(engine, &write(entry("a", 10, "skipped")));
    put(engine, &write(Entry { due_ms: Some(7), ..entry("b", 20, "pending") }));
    put(engine, &with_run(entry("c", 20, "ran"), "r"));
    let all = |query| all(engine, query);
    assert_eq!(all(EntryQuery::default()), ["c", "b", "a"]);
    assert_eq!(all(EntryQuery { limit: Some(1), ..EntryQuery::default() }), ["c"]);
    assert_eq!(all(EntryQuery { after: Some((20, "c".to_owned())), ..EntryQuery::default() }), ["b", "a"]);
    assert_eq!(all(EntryQuery { state: Some("skipped".to_owned()), ..EntryQuery::default() }), ["a"]);
    assert_eq!(all(EntryQuery { due_ms: Some(7), ..EntryQuery::default() }), ["b"]);
    assert_eq!(all(EntryQuery { due_ms: Some(6), ..EntryQuery::default() }), Vec::<String>::new());
    assert_eq!(all(EntryQuery { is_unfinished: true, ..EntryQuery::default() }), ["c"]);
    let between = EntryQuery { from_ms: Some(10), until_ms: Some(19), ..EntryQuery::default() };
    assert_eq!(all(between), ["a"]);
    assert_eq!(all(EntryQuery { run_id: Some("r".to_owned()), ..EntryQuery::default() }), ["c"]);
    assert_eq!(all(EntryQuery { key: Some("b".to_owned()), ..EntryQuery::default() }), ["b"]);
}

fn many(engine: &dyn Engine) {
    let done: usize = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn(move || put(engine, &with_run(entry("1", 1, "ran"), &format!("run{n}"))) == Written::Done)
            })
            .collect();
        writers.into_iter().map(|writer| usize::from(writer.join().expect("no panic"))).sum()
    });
    assert_eq!((done, engine.list(&Query::default()).expect("a list").len()), (1, 1));
}

/// S-97, K-57.
fn costs_of_removed_runs(engine: &dyn Engine) {
    let now_ms = now_ms();
    let spend = |id: &str, created_at_ms, result: &str| {
        let session = block_on(engine.create(&new_run(id, created_at_ms))).expect("create");
        block_on(session.set_state(RunState::Failed, Some(result))).expect("set_state");
    };
    let dollars = r#"{"members":{"usage":{"cost_usd":0.25}},"output":{"usage":{"cost_usd":9},"text":"\ud800"}}"#;
    let long = format!(r#"{{"output":"{}","members":{{"usage":{{"cost_usd":2}}}}}}"#, "x".repeat(100_000));
    spend("r-1", now_ms, dollars);
    spend("r-2", now_ms - 1, &long);
    spend("free", now_ms, r#"{"members":{"usage":{"cost_usd":null}}}"#);
    spend("old", now_ms - KEY_LIFE_MS - 60_000, dollars);
    spend("kept", now_ms, dollars);
    let costs = || {
        let entries = engine.entries(&EntryQuery { book: COSTS.to_owned(), ..EntryQuery::default() }).expect("entries");
        let one = |entry: Entry| (entry.run_id.clone(), entry.at_ms, cost_of(&entry));
        entries.into_iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(costs(), []);
    for id in ["r-1", "r-2", "free", "old"] {
        let query = Query { id: Some(id.to_owned()), ..Query::default() };
        assert_eq!(engine.prune(&query).expect("prune"), 1);
    }
    let app = new_run("r-1", 1).app;
    let expected = [("r-1", now_ms, 0.25), ("r-2", now_ms - 1, 2.0)]
        .map(|(id, at_ms, cost)| (Some(id.to_owned()), at_ms, Some((app.clone(), cost))));
    assert_eq!(costs(), expected);
}
