//! Tests that need the inside of the crate: old sessions, the age of blobs.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_runtime::blob::put;
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{
    CacheLabel, Entry, Error, Expected, Limits, NewRun, Placement, Query, RunOwner, RunState, Session as _, Signal,
    Submission, Write,
};

use crate::journal::Journal;
use crate::session::SqliteSession;
use crate::{Settings, Sqlite, Sync, migrate};

mod values;

fn open(dir: &tempfile::TempDir) -> Arc<Journal> {
    let settings = Settings { dir: dir.path().join("journal"), sync: Sync::Normal };
    Arc::new(Journal::open(settings).expect("a journal can be opened"))
}

/// Claims a run as if file locks did not work: the other process sees none of them.
fn claim_without_lock(journal: &Journal, dir: &tempfile::TempDir, id: &str) -> SqliteSession {
    remove_files_of_owners(journal);
    open(dir).claim(id).expect("no one has it")
}

fn remove_files_of_owners(journal: &Journal) {
    for entry in std::fs::read_dir(&journal.locks).expect("a directory") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("it can be removed");
    }
}

/// S-96: a run that is moved away at the moment of its expiry keeps no other run from expiring.
#[test]
fn a_moved_run_keeps_no_other_from_expiring() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    for (id, at) in [("moved", 1), ("over", 2)] {
        let placement = Placement { queue_timeout_ms: Some(10), ..Placement::default() };
        let run = NewRun { placement, ..new_run(id, at) };
        let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
        journal.enqueue(&submission).expect("accepted");
    }
    // Its row of the queue is as it was read before the move.
    let sql = "update runs set state = 'moved' where id = 'moved'";
    journal.pool.write(|connection| connection.execute(sql, [])).expect("write");
    let over = journal.expired(1_000).expect("expired");
    assert_eq!(over.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["over"]);
}

/// S-96: a damaged run keeps no other run from expiring, and is reported when it is the only one left.
#[test]
fn a_damaged_run_keeps_no_other_from_expiring() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    for (id, at) in [("damaged", 1), ("over", 2)] {
        let placement = Placement { queue_timeout_ms: Some(10), ..Placement::default() };
        let run = NewRun { placement, ..new_run(id, at) };
        let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
        journal.enqueue(&submission).expect("accepted");
    }
    let sql = "delete from headers where run = (select number from runs where id = 'damaged')";
    journal.pool.write(|connection| connection.execute(sql, [])).expect("write");
    let over = journal.expired(1_000).expect("expired");
    assert_eq!(over.iter().map(|session| session.run_id()).collect::<Vec<_>>(), ["over"]);
    assert!(journal.expired(1_000).is_err());
}

/// S-84: damaged runs keep no other run waiting in the queue, and are reported when no other is left.
#[test]
fn damaged_runs_keep_no_other_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    for (id, at) in [("no-header", 1), ("unread", 2), ("sound", 3)] {
        let submission = Submission { run: new_run(id, at), keys: Vec::new(), max_queued: None, needs_room: false };
        journal.enqueue(&submission).expect("accepted");
    }
    for sql in [
        "delete from headers where run = (select number from runs where id = 'no-header')",
        "update runs set labels = '{' where id = 'unread'",
    ] {
        journal.pool.write(|connection| connection.execute(sql, [])).expect("write");
    }
    let limits = Limits::of_default_queue(8);
    let next = journal.next(&limits, 10).expect("next").expect("a run");
    assert_eq!(next.run_id(), "sound");
    let failed = journal.next(&limits, 10).expect_err("only damaged ones are left").to_string();
    assert!(failed.contains("run `no-header`: it has no header"), "{failed}");
}

/// ADR 0188: a list leaves out runs whose rows cannot be read, has as many others as it may, and reports the damaged ones.
#[test]
fn a_list_leaves_out_damaged_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    journal.serve().expect("serve");
    let create = |at| drop(block_on(journal.create(&new_run(&format!("r-{at}"), at))).expect("create"));
    (1..=5).for_each(create);
    let sql = "update runs set cause = 'x', state = case id when 'r-4' then 'failed' else state end where id in ('r-5', 'r-4')";
    journal.pool.write(|connection| connection.execute(sql, [])).expect("write");
    create(6);
    let ids = |query: Query| journal.list(&query).expect("list").into_iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(ids(Query::default()), ["r-6", "r-3", "r-2", "r-1"]);
    assert_eq!(ids(Query { limit: Some(2), ..Query::default() }), ["r-6", "r-3"]);
    let states = vec![RunState::Running, RunState::Failed];
    assert_eq!(ids(Query { limit: Some(3), states, ..Query::default() }), ["r-6", "r-3", "r-2"]);
    let counted = |query: Query| journal.count(&query).expect("count");
    let counts = journal.counts(&Query::default()).expect("counts");
    assert_eq!((counted(Query::default()), counts.interrupted, counts.failed), (4, 4, 0));
    let begin = journal.row("r-3").expect("the row").change;
    let follow =
        |limit| journal.changes(begin, limit).expect("changes").into_iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(
        (follow(1), follow(2)),
        (vec!["r-6".to_owned()], vec!["r-6".to_owned()]),
        "no page has only damaged runs"
    );
    let changed = journal.changes(0, 10).expect("changes");
    assert!(changed.iter().all(|row| row.id != "r-4" && row.id != "r-5"));
    let damaged = journal.damaged.noted();
    assert_eq!(damaged.iter().map(|run| &*run.id).collect::<Vec<_>>(), ["r-4", "r-5"]);
    assert!(damaged[0].why.contains("`x` is not a cause"), "{damaged:?}");
}

#[test]
fn a_session_that_lost_its_run_cannot_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let old = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(old.append(record("a", "1"))).expect("append");
    let new = claim_without_lock(&journal, &dir, "r-1");
    let mut with_blob = record("b", "2");
    with_blob.blobs.push(Digest::of(b"x"));
    for refused in [
        block_on(old.append(record("b", "2"))),
        block_on(old.append(with_blob.clone())),
        block_on(old.set_state(RunState::Failed, Some("{}"))),
    ] {
        assert!(matches!(refused, Err(Error::Overtaken { .. })), "{refused:?}");
    }
    block_on(new.append(record("b", "3"))).expect("the new one writes");
    let view = journal.view("r-1").expect("view");
    assert_eq!(view.records, [record("a", "1"), record("b", "3")]);
    assert_eq!((view.row.state, view.result, view.run), (RunState::Running, None, new_run("r-1", 1)));
}

/// Every file and directory of a journal is for its owner only.
#[test]
fn the_files_of_a_journal_are_for_their_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let _session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    let (mut dirs, mut files) = (vec![journal.dir.clone()], 0);
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            let metadata = std::fs::metadata(&path).expect("it is there");
            assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
            match metadata.is_dir() {
                true => dirs.push(path),
                false => files += 1,
            }
        }
    }
    assert!(files >= 2, "the journal and its lock were seen");
}

/// A child of a dead process may hold a copy of its lock for a moment: a claim waits for that. A claim does not wait for a living
/// process.
#[test]
fn the_lock_of_a_dead_process_is_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    drop(block_on(journal.create(&new_run("r-1", 1))).expect("create"));
    let hold = |pid: u32| {
        let name = format!("{pid}-1");
        let file = File::create(journal.locks.join(format!("{name}.lock"))).expect("it can be made");
        file.try_lock().expect("it is free");
        let sql = "update runs set holder = ?1 where id = 'r-1'";
        journal.pool.write(|connection| connection.execute(sql, [name])).expect("write");
        file
    };
    // No process can have this number.
    let held = hold(i32::MAX as u32);
    let letting_go = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        held.unlock().expect("it was locked");
    });
    drop(journal.claim("r-1").expect("the lock is free in a moment"));
    letting_go.join().expect("nothing that panics");
    let _held = hold(std::process::id());
    let refused = journal.claim("r-1");
    assert!(
        matches!(refused, Err(Error::Busy { holder, .. }) if holder == Some(RunOwner::process(std::process::id())))
    );
}

/// The first claim of a dead process's run removes the process's file in `locks`, and so does a prune. A name in a row leads to
/// no other place.
#[test]
fn files_of_dead_lock_owners_do_not_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    drop(block_on(journal.create(&new_run("r-1", 1))).expect("create"));
    let outside = journal.dir.join("outside.lock");
    let left = ["1-a", "1-b"].map(|name| journal.locks.join(format!("{name}.lock")));
    for path in left.iter().chain([&outside]) {
        std::fs::write(path, "").expect("it can be written");
    }
    let named = |name: &str| {
        let sql = "update runs set holder = ?1";
        journal.pool.write(|connection| connection.execute(sql, [name])).expect("write");
        drop(journal.claim("r-1").expect("no one has it"));
    };
    named("1-a");
    assert_eq!([&left[0], &left[1]].map(|path| path.exists()), [false, true]);
    named("../outside");
    journal.prune(&Query::default()).expect("prune");
    assert_eq!([&left[1], &outside].map(|path| path.exists()), [false, true]);
    let session = journal.claim("r-1").expect("no one has it");
    journal.prune(&Query::default()).expect("prune");
    assert!(matches!(open(&dir).claim("r-1"), Err(Error::Busy { .. })), "a prune leaves those who live");
    drop(session);
}

/// A process that cannot check a holder takes no run from it.
#[test]
fn what_cannot_be_looked_at_is_not_free() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    drop(block_on(journal.create(&new_run("r-1", 1))).expect("create"));
    // A link to itself cannot be opened by any user.
    std::os::unix::fs::symlink("7-7.lock", journal.locks.join("7-7.lock")).expect("a link");
    let sql = "update runs set holder = '7-7'";
    journal.pool.write(|connection| connection.execute(sql, [])).expect("write");
    let refused = journal.claim("r-1").map(|_| ());
    assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
    assert!(journal.view("r-1").expect("view").row.is_live);
}

/// The file of the lock that creates a journal is readable only by the owner, as all others are.
#[test]
fn the_lock_of_the_format_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let file = open(&dir).locks.join("=format.lock");
    assert_eq!(std::fs::metadata(file).expect("a file").permissions().mode() & 0o777, 0o600);
}

/// The end of the only run is synced at once, not when a group of commits was gathered.
#[test]
fn the_end_of_the_only_run_is_synced_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    journal.syncer.gather_for(Duration::from_secs(600));
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(session.append(record("a", "1"))).expect("append");
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("an end");
    assert!(journal.syncer.is_synced_within(Duration::from_secs(30)));
}

/// The log is empty for the next process, which would otherwise read all of it and append to it. A reader keeps it for now, and
/// nothing waits for that reader.
#[test]
fn the_log_is_empty_for_the_next_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let length = || std::fs::metadata(journal.pool.log()).expect("a log").len();
    let reader = journal.pool.separate().expect("a connection");
    let sql = |text| reader.execute_batch(text).expect("sql");
    sql("begin; select count(*) from runs");
    drop(block_on(journal.create(&new_run("r-1", 1))).expect("create"));
    journal.syncer.empty_log();
    assert!(length() > 0);
    sql("commit");
    journal.syncer.empty_log();
    assert_eq!(length(), 0);
    assert_eq!(open(&dir).view("r-1").expect("view").row.id, "r-1");
}

/// After the files in `locks` were removed, later runs are safe again.
#[test]
fn a_removed_file_of_a_lock_owner_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    drop(block_on(journal.create(&new_run("r-1", 1))).expect("create"));
    let _open = block_on(journal.create(&new_run("r-0", 1))).expect("create");
    remove_files_of_owners(&journal);
    let _second = block_on(journal.create(&new_run("r-2", 2))).expect("create");
    assert!(journal.view("r-0").expect("view").row.is_live, "this process knows better");
    assert!(matches!(journal.claim("r-0"), Err(Error::Busy { .. })));
    let _first = journal.claim("r-1").expect("no one has it");
    for id in ["r-1", "r-2"] {
        assert!(matches!(open(&dir).claim(id), Err(Error::Busy { .. })), "{id}");
    }
}

/// The number of a run that was not written is given to the next one; the failed creation must not release that one.
#[test]
fn a_creation_that_failed_lets_go_of_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let abandoned = journal.pending_run(&new_run("r-1", 1)).expect("a holder");
    let undone = journal.pool.transaction(|connection| {
        abandoned.write(connection)?;
        Err::<(), _>(rusqlite::Error::QueryReturnedNoRows)
    });
    assert!(undone.is_err());
    let _next = block_on(journal.create(&new_run("r-2", 2))).expect("create");
    drop(abandoned);
    assert!(matches!(journal.claim("r-2"), Err(Error::Busy { .. })));
}

async fn begin_and_leave<T>(write: impl Future<Output = T>) {
    let mut write = std::pin::pin!(write);
    let begin = std::future::poll_fn(|context| std::task::Poll::Ready(write.as_mut().poll(context).is_pending()));
    assert!(begin.await, "it has to wait");
}

/// A session that stops waiting for its group releases the run, and does not harm the others.
#[test]
fn a_write_that_has_no_waiter_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let others: Vec<_> =
        (0..8).map(|run| block_on(journal.create(&new_run(&format!("r-{run}"), 1))).expect("create")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // Meanwhile no other process can write.
    let holder = journal.pool.separate().expect("a connection");
    let sql = |text| holder.execute_batch(text).expect("sql");
    runtime.block_on(async {
        let run = new_run("left", 1);
        sql("begin immediate");
        begin_and_leave(journal.create(&run)).await;
        begin_and_leave(others[0].append(record("a", "1"))).await;
        sql("commit");
        others[0].append(record("b", "2")).await.expect("it has a number of its own");
        sql("begin immediate");
        begin_and_leave(others[0].set_state(RunState::Waiting, None)).await;
        sql("commit");
    });
    assert_eq!(others[0].records().expect("records"), [record("a", "1"), record("b", "2")]);
    drop(others);
    while journal.view("r-0").expect("view").row.state == RunState::Running {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(open(&dir).claim("r-0").expect("it was let go of"));
    drop(open(&dir).claim("left").expect("no one has it"));
}

/// Runs check for new signals five times a second: they see each signal once, whichever process left it.
#[test]
fn runs_are_notified_of_news_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (journal, other) = (open(&dir), open(&dir));
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    let has_news = || {
        std::thread::sleep(Duration::from_millis(60));
        session.has_news().expect("it can be asked")
    };
    let signal = |key: &str| Signal { key: key.to_owned(), body: "{}".to_owned() };
    assert_eq!([has_news(), has_news()], [true, false]);
    other.signal("r-1", &signal("!cancel")).expect("signal");
    assert_eq!([has_news(), has_news()], [true, false]);
    // The numbers of a removed run's signals are not used again.
    let done = block_on(other.create(&new_run("r-2", 2))).expect("create");
    other.signal("r-2", &signal("!cancel")).expect("signal");
    block_on(done.set_state(RunState::Cancelled, None)).expect("set_state");
    assert!(has_news());
    assert_eq!(other.prune(&Query::default()).expect("prune"), 1);
    other.signal("r-1", &signal("gate")).expect("signal");
    assert!(has_news());
}

/// SQLite continues to write to a file without a name, whose content could never be found.
#[test]
fn a_journal_that_is_gone_is_not_written_to() {
    let dir = tempfile::tempdir().expect("a directory");
    // The first record is on the disk before the journal moves: a failed sync ends the session for good.
    let settings = Settings { dir: dir.path().join("journal"), sync: Sync::Strict };
    let journal = Arc::new(Journal::open(settings).expect("a journal can be opened"));
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(session.append(record("a", "1"))).expect("append");
    let (here, there) = (journal.dir.clone(), dir.path().join("elsewhere"));
    std::fs::rename(&here, &there).expect("it can be moved");
    for refused in
        [block_on(session.append(record("b", "2"))), block_on(session.set_state(RunState::Succeeded, Some("{}")))]
    {
        let Err(Error::Store { why, .. }) = refused else { panic!("{refused:?}") };
        assert!(why.contains("deleted or moved"), "{why}");
    }
    std::fs::rename(&there, &here).expect("it can be moved");
    block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("it is there again");
}

/// A journal whose creation failed half-way is given its write-ahead log later.
#[test]
fn a_journal_without_a_log_is_given_one() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&dir));
    let path = dir.path().join("journal/journal.db");
    let mode = |change: &str| {
        let connection = rusqlite::Connection::open(&path).expect("it opens");
        connection
            .query_row(&format!("pragma journal_mode{change}"), [], |row| row.get::<_, String>(0))
            .expect("a mode")
    };
    assert_eq!(mode(" = delete"), "delete");
    drop(open(&dir));
    assert_eq!(mode(""), "wal");
}

#[test]
fn a_session_of_a_pruned_run_cannot_write_into_another_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let old = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(old.set_state(RunState::Failed, None)).expect("set_state");
    assert_eq!(journal.prune(&Query::default()).expect("prune"), 1);
    let other = block_on(journal.create(&new_run("r-2", 2))).expect("create");
    assert!(matches!(block_on(old.append(record("a", "1"))), Err(Error::Unknown(_))));
    assert_eq!(other.records().expect("records"), []);
}

#[test]
fn the_newest_format_is_refused_with_its_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let settings = Settings { dir: journal.dir.clone(), sync: Sync::Normal };
    journal.pool.write(|connection| connection.pragma_update(None, "user_version", 99)).expect("write");
    let refused = Sqlite::open(settings).map(|_| ());
    assert!(matches!(refused, Err(Error::TooNew { found: 99, known: 4, .. })), "{refused:?}");
}

/// A future format: every kind of row is written again, a table gets a column, and another table is created.
const NEXT: &str = "
    alter table runs add column note text;
    create table moved (id integer primary key, key text not null, request blob not null, body text not null, blobs blob,
        run integer generated always as (id >> 32) virtual, seq integer generated always as (id & 0xffffffff) virtual) strict;
    insert into moved (id, key, request, body, blobs) select id, key, request, body, blobs from records;
    drop table records;
    alter table moved rename to records;
    update runs set note = 'was there before';
    create table more (run integer primary key) strict;";

/// A-5.3: a journal is migrated to the next format with all its content: a finished run, a run of a dead process, its signals and
/// large values. The run continues, a new journal gets the format too, and a program that knows only the previous format refuses
/// it.
#[test]
fn the_next_format_takes_over_runs_that_are_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let settings = || Settings { dir: dir.path().join("journal"), sync: Sync::Normal };
    let done = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(done.append(record("a", "1"))).expect("append");
    block_on(done.set_state(RunState::Succeeded, Some("{\"output\":1}"))).expect("set_state");
    let dead = block_on(journal.create(&new_run("r-2", 2))).expect("create");
    let value = put(&*journal.blobs, &[b'x'; 300_000]).expect("kept").0;
    let mut with_blob = record("b", "2");
    with_blob.blobs.push(value);
    block_on(dead.append(with_blob.clone())).expect("append");
    let signal = Signal { key: "!cancel".to_owned(), body: "{}".to_owned() };
    journal.signal("r-2", &signal).expect("signal");
    drop((done, dead));
    let before = ["r-1", "r-2"].map(|id| journal.view(id).expect("view"));
    drop(journal);

    let steps = [migrate::STEPS, &[NEXT]].concat();
    for _ in 0..2 {
        let next = Arc::new(Journal::of_format(settings(), &steps).expect("it is brought to the next format"));
        let after = ["r-1", "r-2"].map(|id| next.view(id).expect("view"));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!((&before.row, &before.result, &before.run), (&after.row, &after.result, &after.run));
            assert_eq!(before.records, after.records);
        }
        let facts = next.pool.read(|connection| {
            let sql = "select user_version, (select count(*) from runs where note = 'was there before'),
                       (select count(*) from more), (select count(*) from blob_refs) from pragma_user_version";
            connection.query_row(sql, [], |row| Ok([0, 1, 2, 3].map(|at| row.get::<_, i64>(at).unwrap_or(-1))))
        });
        assert_eq!(facts.expect("read"), [5_i64, 2, 0, 1]);
    }
    let next = Arc::new(Journal::of_format(settings(), &steps).expect("it is there"));
    let resumed = next.claim("r-2").expect("it can go on");
    assert_eq!(resumed.signals().expect("signals"), [signal]);
    block_on(resumed.append(record("c", "3"))).expect("append");
    assert_eq!(resumed.records().expect("records"), [with_blob, record("c", "3")]);
    block_on(resumed.set_state(RunState::Cancelled, None)).expect("set_state");
    drop(resumed);
    assert_eq!(next.prune(&Query::default()).expect("prune"), 2);
    let refused = Journal::open(settings()).map(|_| ());
    assert!(matches!(refused, Err(Error::TooNew { found: 5, known: 4, .. })), "{refused:?}");
    let new = Settings { dir: dir.path().join("new"), sync: Sync::Normal };
    Journal::of_format(new, &steps).expect("a new one takes every step");
}

/// A-5.3: a failing step to the next format leaves the journal unchanged, and programs that know only the old format can use it.
#[test]
fn a_format_that_cannot_be_reached_leaves_the_journal_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(session.append(record("a", "1"))).expect("append");
    drop((session, journal));
    let settings = || Settings { dir: dir.path().join("journal"), sync: Sync::Normal };
    let steps = [
        migrate::STEPS,
        &["drop table records; alter table runs add column note text; insert into nowhere values (1)"],
    ];
    Journal::of_format(settings(), &steps.concat()).expect_err("there is no such table");
    let journal = Arc::new(Journal::open(settings()).expect("it is as it was"));
    assert_eq!(journal.view("r-1").expect("view").records, [record("a", "1")]);
}

#[test]
fn a_checkpoint_empties_the_log_behind_the_appends() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    let body = format!("\"{}\"", "b".repeat(10_000));
    let since = Instant::now();
    for number in 0.. {
        block_on(session.append(record(&number.to_string(), &body))).expect("append");
        if journal.pool.log_pages() < 200 && number > 1_000 {
            assert_eq!(session.records().expect("records").len(), number + 1);
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(120), "the log has {} pages", journal.pool.log_pages());
        // Far more than the log may hold before it is used again from its beginning: a slow disk needs time.
        if number > 20_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn room_is_given_back_after_a_large_prune() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let body = format!("\"{}\"", "b".repeat(100_000));
    for run in 0..3 {
        let session = block_on(journal.create(&new_run(&format!("r-{run}"), run))).expect("create");
        for number in 0..100 {
            block_on(session.append(record(&number.to_string(), &body))).expect("append");
        }
        block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    }
    assert_eq!(journal.prune(&Query::default()).expect("prune"), 3);
    let size = std::fs::metadata(journal.dir.join("journal.db")).expect("the file is there").len();
    assert!(size < 1_000_000, "{size} bytes are left");
}

#[test]
fn an_append_fails_when_the_disk_cannot_be_relied_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { dir: dir.path().to_owned(), sync: Sync::Strict };
    let journal = Arc::new(Journal::open(settings).expect("a journal can be opened"));
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    std::fs::remove_file(dir.path().join("journal.db-wal")).expect("the log is there");
    for _ in 0..2 {
        let refused = block_on(session.append(record("a", "1"))).expect_err("the log is gone").to_string();
        assert!(refused.contains("the log of the journal was deleted or moved"), "{refused}");
    }
}

/// Writes to a deleted log are lost when the process ends, so they are refused.
#[test]
fn a_deleted_log_is_noticed_at_the_next_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let session = block_on(journal.create(&new_run("r-1", 1))).expect("create");
    block_on(session.append(record("a", "1"))).expect("append");
    std::fs::remove_file(journal.pool.log()).expect("the log is there");
    let refused = block_on(session.append(record("b", "2"))).expect_err("the log is gone").to_string();
    assert!(refused.contains("journal.db-wal") && refused.contains("was deleted or moved"), "{refused}");
    assert!(block_on(session.set_state(RunState::Succeeded, None)).is_err(), "a run that is not kept does not succeed");
}

/// A run that is taken from the queue while the disk fails is not kept by a process that does not drive it.
#[test]
fn a_run_whose_start_is_not_on_the_disk_is_released() {
    let dir = tempfile::tempdir().expect("a directory");
    let submission = Submission { run: new_run("r-1", 1), keys: vec![], max_queued: None, needs_room: false };
    open(&dir).enqueue(&submission).expect("accepted");
    let settings = Settings { dir: dir.path().join("journal"), sync: Sync::Strict };
    let journal = Arc::new(Journal::open(settings).expect("it opens"));
    std::fs::remove_file(journal.pool.log()).expect("the log is there");
    let taken = journal.next(&Limits::of_default_queue(1), 1).map(drop);
    assert!(matches!(taken, Err(Error::Store { .. })), "{taken:?}");
    journal.claim("r-1").map(drop).expect("it is free");
}

/// S-73: while another process holds the journal's lock, the writes of a server wait and its other tasks are done.
#[test]
fn a_locked_journal_stops_no_other_task() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let sessions = ["r-1", "r-2", "r-3"].map(|id| block_on(journal.create(&new_run(id, 1))).expect("created"));
    let other = rusqlite::Connection::open(dir.path().join("journal/journal.db")).expect("the file");
    other.execute_batch("begin immediate").expect("locked");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let (done, is_done) = std::sync::mpsc::channel();
    let writes: Vec<_> = sessions
        .into_iter()
        .map(|session| runtime.spawn(async move { session.append(record("p/s", "{}")).await.expect("appended") }))
        .collect();
    // Each of them waits, for the file or for the first one.
    std::thread::sleep(Duration::from_millis(100));
    runtime.spawn(async move { done.send(()) });
    is_done.recv_timeout(Duration::from_secs(60)).expect("another task is done meanwhile");
    assert!(writes.iter().all(|write| !write.is_finished()));
    other.execute_batch("rollback").expect("unlocked");
    writes.into_iter().for_each(|write| runtime.block_on(write).expect("no panic"));
}

/// K-35: the records that a process writes when it takes a run are not progress, whatever their number.
#[test]
fn records_of_a_process_that_takes_a_run_are_not_progress() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(&dir);
    let mut holders = vec![block_on(journal.create(&new_run("r", 1))).expect("create")];
    for (noticed, key) in (1..).zip(etude_runtime::record::TAKEN) {
        holders.push(claim_without_lock(&journal, &dir, "r"));
        block_on(holders.last().expect("a holder").append(record(key, "1"))).expect("append");
        assert_eq!(journal.deaths("r").expect("a number"), noticed, "{key}");
    }
    let last = claim_without_lock(&journal, &dir, "r");
    block_on(last.append(record("a", "1"))).expect("append");
    assert_eq!(journal.deaths("r").expect("a number"), 0);
}
