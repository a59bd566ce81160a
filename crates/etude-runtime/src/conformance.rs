//! Conformance cases of the engine contract, which the tests of each engine run. They are not part of the product.
//!
//! A case panics, as a test does, when the engine breaks the contract of [`crate::engine`].

mod ledger;
mod lists;
mod queue;
mod transfer;

use std::thread;
use std::time::{Duration, Instant};

use etude_core::data::{Json, Stored};
use etude_core::digest::Digest;

use crate::blob::{INLINE_LIMIT, put};
use crate::engine::{
    CacheLabel, CacheQuery, CacheRow, Engine, Error, NewRun, Placement, Query, Record, RunRow, RunState, RunView,
    Session, Signal, Signalled,
};

pub use crate::sync::block_on;

/// A case: its claim, and the function that checks it on a fresh, empty engine.
pub type Case = (&'static str, fn(&dyn Engine));

/// The cases of runs, sessions and values.
const CASES: &[Case] = &[
    ("a_new_run_is_live_running_and_as_it_was_created", created),
    ("an_id_is_used_once", used_once),
    ("a_run_has_one_session_at_a_time", one_session),
    ("an_unknown_run_is_unknown_everywhere", unknown),
    ("records_come_back_in_order_and_exactly", records_exactly),
    ("a_key_may_be_recorded_again", recorded_again),
    ("the_next_session_goes_on_with_the_records", goes_on),
    ("records_of_two_runs_do_not_mix", runs_apart),
    ("the_first_signal_of_a_key_wins", first_signal),
    ("an_id_may_be_shortened_while_it_is_unambiguous", shortened),
    ("a_state_comes_with_its_result", states),
    ("a_large_result_comes_back_exactly", large_result),
    ("a_header_can_be_replaced", header),
    ("a_listing_is_newest_first_and_filtered", listing),
    ("prune_removes_finished_runs_only", prune),
    ("prune_spares_a_run_that_somebody_has", prune_live),
    ("prune_keeps_values_that_a_run_needs", prune_values),
    ("the_cache_forgets_after_its_time", cache),
    ("the_cache_keeps_stored_values_by_reference", cache_stored),
    ("cached_outputs_are_listed_and_removed", cache_list),
];

/// Runs every case, each on an engine of its own.
///
/// # Panics
/// The engine breaks the contract. The panic prints the broken claim.
pub fn all(make: &dyn Fn() -> Box<dyn Engine>) {
    let more = queue::CASES.iter().chain(ledger::CASES).chain(transfer::CASES);
    for (claim, case) in CASES.iter().chain(lists::CASES).chain(more) {
        let engine = make();
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&*engine)));
        assert!(held.is_ok(), "the engine does not keep the contract: {claim}");
    }
}

/// A run to be created, with the given id and time.
pub fn new_run(id: &str, created_at_ms: i64) -> NewRun {
    NewRun {
        id: id.to_owned(),
        app: "/apps/demo".to_owned(),
        target: "code-review".to_owned(),
        abi: 1,
        created_at_ms,
        header: format!(r#"{{"v":1,"run":"{id}"}}"#),
        placement: Placement::default(),
    }
}

/// A record with the given key and body.
pub fn record(key: &str, body: &str) -> Record {
    Record { key: key.to_owned(), request: Digest::of(key.as_bytes()), body: body.to_owned(), blobs: Vec::new() }
}

fn start(engine: &dyn Engine, id: &str, created_at_ms: i64) -> Box<dyn Session> {
    block_on(engine.create(&new_run(id, created_at_ms))).expect("a run can be created")
}

fn finish(engine: &dyn Engine, id: &str, created_at_ms: i64, state: RunState) {
    block_on(start(engine, id, created_at_ms).set_state(state, Some("{}"))).expect("the state can be set");
}

fn row(engine: &dyn Engine, id: &str) -> RunRow {
    engine.view(id).expect("the run is there").row
}

fn ids(engine: &dyn Engine, query: &Query) -> Vec<String> {
    engine.list(query).expect("runs can be listed").into_iter().map(|row| row.id).collect()
}

fn created(engine: &dyn Engine) {
    let run = new_run("r-1", 1_000);
    let session = block_on(engine.create(&run)).expect("a run can be created");
    assert_eq!((session.run_id(), session.run()), ("r-1", &run));
    assert_eq!(session.records().expect("records"), []);
    let view = engine.view("r-1").expect("the run is there");
    assert_eq!(view.run, run);
    assert_eq!((view.row.state, view.row.is_live), (RunState::Running, true));
    assert_eq!((view.row.created_at_ms, view.row.changed_at_ms), (1_000, 1_000));
    assert_eq!((view.row.app, view.row.target), (run.app, run.target));
    assert_eq!((view.records, view.signals, view.result), (vec![], vec![], None));
}

fn used_once(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    assert!(matches!(block_on(engine.create(&new_run("r-1", 2))), Err(Error::Exists(id)) if id == "r-1"));
    block_on(session.append(record("a", "1"))).expect("the first one still has it");
    drop(session);
    assert!(matches!(block_on(engine.create(&new_run("r-1", 2))), Err(Error::Exists(_))));
    assert_eq!(row(engine, "r-1").created_at_ms, 1);
}

fn one_session(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    assert!(matches!(engine.claim("r-1"), Err(Error::Busy { run, .. }) if run == "r-1"));
    assert!(row(engine, "r-1").is_live);
    drop(session);
    assert!(!row(engine, "r-1").is_live);
    assert_eq!(row(engine, "r-1").state, RunState::Running);
    let again = engine.claim("r-1").expect("no one has it");
    assert!(matches!(engine.claim("r-1"), Err(Error::Busy { .. })));
    assert!(row(engine, "r-1").is_live);
    drop(again);
    drop(engine.claim("r-1").expect("no one has it"));
}

fn unknown(engine: &dyn Engine) {
    let signal = Signal { key: "!cancel".to_owned(), body: "{}".to_owned() };
    drop(start(engine, "r-1", 1));
    // Only a view takes a shortened id: a change needs the whole one.
    for id in ["r-2", "r", ""] {
        assert!(matches!(engine.claim(id), Err(Error::Unknown(of)) if of == id), "{id}");
        assert!(matches!(engine.signal(id, &signal), Err(Error::Unknown(of)) if of == id), "{id}");
    }
    for id in ["r-2", "", "%", "r_1", "R-1"] {
        assert!(matches!(engine.view(id), Err(Error::Unknown(of)) if of == id), "{id}");
    }
}

fn records_exactly(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    let bodies = [
        String::new(),
        r#"{"n": 12345678901234567890.000000000000000001}"#.to_owned(),
        "\"\u{0}\u{1F600} \\u0000\n\"".to_owned(),
        format!("\"{}\"", "x".repeat(INLINE_LIMIT)),
    ];
    let mut expected = Vec::new();
    for round in 0..20 {
        for (index, body) in bodies.iter().enumerate() {
            let mut record = record(&format!("main/step[{index}]#{round}"), body);
            record.blobs = (0..index).map(|blob| Digest::of(&[blob as u8])).collect();
            block_on(session.append(record.clone())).expect("a record can be appended");
            expected.push(record);
        }
    }
    assert!(session.records().expect("records") == expected, "the session's records differ");
    assert!(engine.view("r-1").expect("view").records == expected, "the view's records differ");
}

fn recorded_again(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    let both = [record("main/a", "1"), record("main/a", "2"), record("main/a", "2")];
    for record in &both {
        block_on(session.append(record.clone())).expect("a record can be appended");
    }
    assert_eq!(session.records().expect("records"), both);
}

fn goes_on(engine: &dyn Engine) {
    let run = new_run("r-1", 1);
    let session = block_on(engine.create(&run)).expect("a run can be created");
    block_on(session.append(record("a", "1"))).expect("append");
    block_on(session.append(record("b", "2"))).expect("append");
    drop(session);
    let session = engine.claim("r-1").expect("no one has it");
    assert_eq!(session.run(), &run);
    assert_eq!(session.records().expect("records"), [record("a", "1"), record("b", "2")]);
    block_on(session.append(record("c", "3"))).expect("append");
    assert_eq!(session.records().expect("records"), [record("a", "1"), record("b", "2"), record("c", "3")]);
}

fn runs_apart(engine: &dyn Engine) {
    let sessions: Vec<_> = (0..3).map(|run| start(engine, &format!("r-{run}"), run)).collect();
    for step in 0..10 {
        for (run, session) in sessions.iter().enumerate() {
            block_on(session.append(record(&format!("{run}/{step}"), "null"))).expect("append");
        }
    }
    for (run, session) in sessions.iter().enumerate() {
        let keys: Vec<_> = session.records().expect("records").into_iter().map(|record| record.key).collect();
        assert_eq!(keys, (0..10).map(|step| format!("{run}/{step}")).collect::<Vec<_>>());
    }
}

fn first_signal(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    let _other = start(engine, "r-2", 2);
    let signal = |key: &str, body: &str| Signal { key: key.to_owned(), body: body.to_owned() };
    let send = |run: &str, key: &str, body: &str| engine.signal(run, &signal(key, body)).expect("a signal can be left");
    assert_eq!(session.signals().expect("signals"), []);
    assert!(session.has_news().expect("it can be asked"), "the first time");
    assert_eq!(send("r-1", "main/gate", "true"), Signalled::Accepted);
    assert_eq!(send("r-1", "main/gate", "false"), Signalled::TooLate("true".to_owned()));
    assert_eq!(send("r-1", "!cancel", "{}"), Signalled::Accepted);
    assert_eq!(send("r-2", "!cancel", "1"), Signalled::Accepted);
    let expected = [signal("main/gate", "true"), signal("!cancel", "{}")];
    let since = Instant::now();
    while !session.has_news().expect("it can be asked") {
        assert!(since.elapsed() < Duration::from_secs(60), "no one tells of them");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(session.signals().expect("signals"), expected);
    assert_eq!(engine.view("r-1").expect("view").signals, expected);
    drop(session);
    assert_eq!(send("r-1", "late", "1"), Signalled::Accepted);
    assert_eq!(engine.claim("r-1").expect("claim").signals().expect("signals").len(), 3);
}

fn shortened(engine: &dyn Engine) {
    for id in ["abc-1", "abc-12", "abd-1", "x%y", "xzy"] {
        drop(start(engine, id, 1));
    }
    let found = |prefix: &str| engine.view(prefix).map(|view| view.row.id);
    assert_eq!(found("abd").ok().as_deref(), Some("abd-1"));
    assert_eq!(found("abc-1").ok().as_deref(), Some("abc-1"), "an exact id is never ambiguous");
    assert_eq!(found("abc-12").ok().as_deref(), Some("abc-12"));
    assert_eq!(found("x%").ok().as_deref(), Some("x%y"));
    assert!(matches!(found("ab"), Err(Error::Ambiguous { prefix, count: 3 }) if prefix == "ab"));
    assert!(matches!(found("abc"), Err(Error::Ambiguous { count: 2, .. })));
    assert!(matches!(found("abcd"), Err(Error::Unknown(_))));
}

fn states(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    let seen = || {
        let view = engine.view("r-1").expect("view");
        (view.row.state, view.result)
    };
    block_on(session.set_state(RunState::Waiting, Some(r#"{"gate":1}"#))).expect("set_state");
    assert_eq!(seen(), (RunState::Waiting, Some(r#"{"gate":1}"#.to_owned())));
    block_on(session.set_state(RunState::Running, None)).expect("set_state");
    assert_eq!(seen(), (RunState::Running, None));
    let at_work = row(engine, "r-1");
    assert!(at_work.changed_at_ms > 1 && at_work.is_live);
    for state in [RunState::Failed, RunState::Cancelled, RunState::Succeeded] {
        block_on(session.set_state(state, Some("[]"))).expect("set_state");
        assert_eq!(seen(), (state, Some("[]".to_owned())));
    }
    assert!(!row(engine, "r-1").is_live, "no one needs what is over");
    let again = engine.claim("r-1").expect("a finished run can be taken, for a new attempt");
    let late = [block_on(session.append(record("late", "1"))), block_on(session.set_state(RunState::Failed, None))];
    assert!(late.iter().all(|write| matches!(write, Err(Error::Overtaken { .. }))), "{late:?}");
    drop(session);
    assert_eq!(seen(), (RunState::Succeeded, Some("[]".to_owned())));
    assert!(row(engine, "r-1").is_live, "the end of the old session is not that of the new one");
    assert!(matches!(engine.claim("r-1"), Err(Error::Busy { .. })));
    drop(again);
    assert!(!row(engine, "r-1").is_live);
}

fn large_result(engine: &dyn Engine) {
    let result = format!("\"{}\"", "0123456789".repeat(INLINE_LIMIT / 4));
    block_on(start(engine, "r-1", 1).set_state(RunState::Succeeded, Some(&result))).expect("set_state");
    assert!(engine.view("r-1").expect("view").result.as_deref() == Some(&*result), "the result differs");
}

fn header(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    let header = new_run("r-1", 1).header;
    assert_eq!(engine.view("r-1").expect("view").run.header, header);
    drop(session);
    assert_eq!(engine.claim("r-1").expect("claim").run().header, header);
}

fn listing(engine: &dyn Engine) {
    finish(engine, "r-2", 20, RunState::Failed);
    finish(engine, "r-4", 40, RunState::Succeeded);
    let other = NewRun { app: "/apps/other".to_owned(), target: "audit".to_owned(), ..new_run("r-1", 10) };
    let _live = block_on(engine.create(&other)).expect("create");
    drop(start(engine, "r-3", 30));
    drop(start(engine, "r-3b", 30));
    let all = Query::default();
    assert_eq!(ids(engine, &all), ["r-4", "r-3b", "r-3", "r-2", "r-1"]);
    let live: Vec<_> = engine.list(&all).expect("list").into_iter().map(|row| row.is_live).collect();
    assert_eq!(live, [false, false, false, false, true]);
    assert_eq!(ids(engine, &Query { limit: Some(2), ..all.clone() }), ["r-4", "r-3b"]);
    assert_eq!(ids(engine, &Query { created_before_ms: Some(20), ..all.clone() }), ["r-1"]);
    assert_eq!(ids(engine, &Query { apps: vec!["/apps/other".to_owned()], ..all.clone() }), ["r-1"]);
    assert_eq!(ids(engine, &Query { target: Some("audit".to_owned()), ..all.clone() }), ["r-1"]);
    assert_eq!(ids(engine, &Query { created_since_ms: Some(30), ..all.clone() }), ["r-4", "r-3b", "r-3"]);
    assert_eq!(engine.count(&Query { limit: Some(1), ..all.clone() }).expect("count"), 5);
    assert_eq!(engine.count(&Query { created_since_ms: Some(30), ..all.clone() }).expect("count"), 3);
    assert!(engine.result("r-3").expect("result").is_none());
    assert_eq!(engine.result("r-4").expect("result"), engine.view("r-4").expect("view").result);
    for id in ["r-3", "r-4"] {
        let view = engine.view(id).expect("view");
        for key in view.records.iter().map(|record| record.key.as_str()).chain(["none"]) {
            let records: Vec<_> = view.records.iter().filter(|record| record.key == key).cloned().collect();
            assert!(engine.records_of(id, key).expect("records") == records, "{key} of {id} differs from its view");
        }
        let outline = RunView { records: Vec::new(), signals: Vec::new(), ..view };
        assert!(engine.outline(id).expect("outline") == outline, "the outline of {id} differs from its view");
    }
    assert!(matches!(engine.result("r-"), Err(Error::Unknown(_) | Error::Ambiguous { .. })));
    let states = vec![RunState::Failed, RunState::Succeeded];
    assert_eq!(ids(engine, &Query { states: states.clone(), ..all.clone() }), ["r-4", "r-2"]);
    assert_eq!(ids(engine, &Query { states, limit: Some(1), created_before_ms: Some(40), ..all }), ["r-2"]);
}

fn prune(engine: &dyn Engine) {
    finish(engine, "r-1", 10, RunState::Succeeded);
    finish(engine, "r-2", 20, RunState::Failed);
    finish(engine, "r-3", 30, RunState::Cancelled);
    drop(start(engine, "interrupted", 1));
    block_on(start(engine, "waiting", 2).set_state(RunState::Waiting, None)).expect("set_state");
    let unfinished = Query { states: vec![RunState::Running, RunState::Waiting], ..Query::default() };
    assert_eq!(engine.prune(&unfinished).expect("prune"), 0);
    let failed = Query { states: vec![RunState::Failed, RunState::Waiting], ..Query::default() };
    let prunable = engine.prunable(&failed).expect("prunable");
    assert_eq!(prunable.runs.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["r-2"]);
    assert!(prunable.bytes > 0);
    assert_eq!(engine.prunable(&unfinished).expect("prunable").runs, []);
    assert_eq!(engine.prune(&failed).expect("prune"), 1);
    assert!(matches!(engine.view("r-2"), Err(Error::Unknown(_))));
    assert_eq!(engine.prune(&Query { created_before_ms: Some(30), ..Query::default() }).expect("prune"), 1);
    assert_eq!(ids(engine, &Query::default()), ["r-3", "waiting", "interrupted"]);
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    assert_eq!(ids(engine, &Query::default()), ["waiting", "interrupted"]);
    assert!(matches!(engine.claim("r-1"), Err(Error::Unknown(_))));
}

fn prune_live(engine: &dyn Engine) {
    let session = start(engine, "r-1", 1);
    block_on(session.append(record("a", "1"))).expect("append");
    block_on(session.set_state(RunState::Failed, None)).expect("set_state");
    drop(session);
    let session = engine.claim("r-1").expect("a new attempt");
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 0);
    block_on(session.append(record("b", "2"))).expect("the run is still there");
    drop(session);
    assert_eq!(engine.view("r-1").expect("view").records.len(), 2);
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
}

fn prune_values(engine: &dyn Engine) {
    let bytes = b"\"a value that two runs share\"";
    let (digest, _) = put(&*engine.blobs(), bytes).expect("a value can be kept");
    let mut needing = record("a", "1");
    needing.blobs.push(digest);
    let session = start(engine, "r-1", 1);
    block_on(session.append(needing.clone())).expect("append");
    block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    drop(session);
    let session = start(engine, "r-2", 2);
    block_on(session.append(needing.clone())).expect("append");
    assert_eq!(engine.prune(&Query::default()).expect("prune"), 1);
    let blob = engine.blobs().open(digest).expect("r-2 needs it");
    let mut read = [0; 64];
    assert_eq!(blob.read_at(0, &mut read), Ok(bytes.len()));
    assert_eq!(&read[..bytes.len()], bytes);
}

fn cache(engine: &dyn Engine) {
    let (key, other) = (Digest::of(b"a"), Digest::of(b"b"));
    let recall = |key, ttl| engine.recall(key, ttl).expect("the cache can be read");
    assert_eq!(recall(key, None), None);
    engine.remember(key, &Json::trusted("1.0"), &label()).expect("remember");
    engine.remember(other, &Json::trusted("2"), &label()).expect("remember");
    assert_eq!(recall(key, None), Some(Json::trusted("1.0")));
    engine.remember(key, &Json::trusted("1.00"), &label()).expect("remember");
    assert_eq!(recall(key, Some(3_600_000)), Some(Json::trusted("1.00")), "the latest one counts");
    assert_eq!(recall(key, Some(u64::MAX)), Some(Json::trusted("1.00")));
    thread::sleep(Duration::from_millis(20));
    assert_eq!(recall(key, Some(5)), None);
    assert_eq!(recall(key, None), Some(Json::trusted("1.00")));
    let everything = Query { created_before_ms: Some(i64::MAX), ..Query::default() };
    engine.prune(&Query { apps: vec!["/apps/demo".to_owned()], ..everything.clone() }).expect("prune");
    assert!(recall(key, None).is_some(), "the cache belongs to no app");
    engine.prune(&everything).expect("prune");
    assert_eq!((recall(key, None), recall(other, None)), (None, None));
}

fn label() -> CacheLabel {
    CacheLabel { app: "/apps/demo".to_owned(), pipeline: "p".to_owned(), step: "a[0]".to_owned() }
}

/// X-1: cached outputs are listed with their origin and number of uses, and removed by app, pipeline and age.
fn cache_list(engine: &dyn Engine) {
    let other = CacheLabel { pipeline: "q".to_owned(), ..label() };
    engine.remember(Digest::of(b"one"), &Json::trusted("[1]"), &label()).expect("remember");
    engine.remember(Digest::of(b"two"), &Json::trusted("\"two\""), &other).expect("remember");
    engine.recall(Digest::of(b"one"), None).expect("recall");
    engine.recall(Digest::of(b"none"), None).expect("recall");
    let list = |query: &CacheQuery| engine.cached(query).expect("a list");
    let of = |pipeline: &str| CacheQuery { pipeline: Some(pipeline.to_owned()), ..CacheQuery::default() };
    let rows = list(&of("p"));
    let facts = |row: &CacheRow| (row.label.clone(), row.bytes, row.hits);
    assert_eq!(rows.iter().map(facts).collect::<Vec<_>>(), [(label(), 3, 1)]);
    assert_eq!(list(&CacheQuery::default()).len(), 2);
    assert_eq!(list(&CacheQuery { app: Some("/elsewhere".to_owned()), ..CacheQuery::default() }), []);
    let young = CacheQuery { created_before_ms: Some(rows[0].created_at_ms), ..of("p") };
    assert_eq!(engine.forget(&young).expect("forget"), 0);
    assert_eq!(engine.forget(&of("p")).expect("forget"), 1);
    assert_eq!(engine.recall(Digest::of(b"one"), None).expect("recall"), None);
    assert_eq!(engine.forget(&CacheQuery::default()).expect("forget"), 1);
    assert_eq!(list(&CacheQuery::default()), []);
}

fn cache_stored(engine: &dyn Engine) {
    let blobs = engine.blobs();
    let (blob, source) = put(&*blobs, b"  [1, 2.50]  tail").expect("a value can be kept");
    let text = "[1, 2.50]";
    let digest = Digest::of(text.as_bytes());
    let part = Json::stored(Stored { blob, offset: 2, len: text.len() as u64, digest, source });
    let large = Json::string(&"y".repeat(INLINE_LIMIT + 1));
    for (key, value) in [(Digest::of(b"part"), part), (Digest::of(b"large"), large)] {
        engine.remember(key, &value, &label()).expect("remember");
        engine.prune(&Query::default()).expect("prune");
        let back = engine.recall(key, None).expect("recall").expect("it was remembered");
        assert_eq!(back.len(), value.len());
        assert!(back.text().expect("its text") == value.text().expect("its text"), "the text differs");
        assert_eq!(back.digest(), value.digest());
    }
}
