//! Lost replies, and rows that appends do not lock.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_postgres::{Address, Postgres, Settings};
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{
    Engine as _, Enqueued, Entry, EntryQuery, Expected, Fleet as _, Ledger as _, Placement, RunState, Signal,
    Signalled, Submission, UniqueKey, Write as Written, Written as Result,
};

use crate::server::Server;

/// Forwards connections to the server. After `left` replies, the next one is dropped and its connection closed.
pub(crate) struct Proxy {
    port: u16,
    left: Arc<AtomicI64>,
}

/// Number of replies with which none is lost.
const ALL: i64 = i64::MAX;

impl Proxy {
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (left, socket) = (Arc::new(AtomicI64::new(ALL)), server.socket());
        let shared = Arc::clone(&left);
        // The thread ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (left, socket) = (Arc::clone(&shared), socket.clone());
                thread::spawn(move || forward(&client, socket, &left));
            }
        });
        Self { port, left }
    }

    /// Drops the reply after `replies` others.
    pub(crate) fn lose_after(&self, replies: i64) {
        self.left.store(replies, Ordering::SeqCst);
    }

    /// True if the reply was dropped.
    pub(crate) fn has_lost(&self) -> bool {
        self.left.swap(ALL, Ordering::SeqCst) < 0
    }
}

fn forward(client: &TcpStream, socket: PathBuf, left: &AtomicI64) {
    let Ok(server) = UnixStream::connect(socket) else { return };
    let (mut requests, mut sink) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    thread::spawn(move || {
        let _ = std::io::copy(&mut requests, &mut sink);
        let _ = sink.shutdown(Shutdown::Both);
    });
    let (mut replies, mut out) = (server, client);
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = replies.read(&mut bytes) {
        // The server has finished the work that it replies to.
        if left.fetch_sub(1, Ordering::SeqCst) == 0 {
            break;
        }
        if out.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// An engine on the schema `etude` whose connections go through a proxy.
pub(crate) fn behind_proxy(server: &Server, cache: &Path) -> (Proxy, Postgres) {
    let proxy = Proxy::start(server);
    let url = format!("postgres://etude@127.0.0.1:{}/postgres", proxy.port);
    let settings =
        Settings { address: Address::parse(&url).expect("an address"), ..crate::settings(server, "etude", cache) };
    (proxy, Postgres::open(settings).expect("the engine can be opened"))
}

/// K-8: each write of a run happens once, whichever reply is lost, and no caller notices.
#[test]
fn a_lost_reply_is_neither_repeated_nor_a_failure() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(crate::open(&server, "etude", dir.path()));
    let (proxy, engine) = behind_proxy(&server, dir.path());
    let (mut lost, mut rounds) = ([0; 7], 0);
    // A heartbeat is a reply as well, and after a lost one a release may wait for the next: some rounds lose no reply
    // of a write.
    while rounds < 4 || lost.contains(&0) {
        assert!(rounds < 100, "of some write no reply was lost: {lost:?}");
        let (replies, id) = (rounds % 4, format!("r-{rounds}"));
        let mut lossy = |at: usize| {
            lost[at] += usize::from(proxy.has_lost());
            proxy.lose_after(replies);
        };
        lossy(0);
        let session = block_on(engine.create(&new_run(&id, 1))).expect("create");
        lossy(0);
        block_on(session.append(record("a", "1"))).expect("append");
        lossy(1);
        let signal = Signal { key: "!cancel".to_owned(), body: "{}".to_owned() };
        assert_eq!(engine.signal(&id, &signal).expect("signal"), Signalled::Accepted);
        lossy(2);
        drop(session);
        lossy(3);
        let session = engine.claim(&id).expect("claim");
        lossy(4);
        block_on(session.append(record("b", "2"))).expect("append");
        lossy(1);
        block_on(session.set_state(RunState::Succeeded, Some("[]"))).expect("set_state");
        lossy(5);
        let keys = vec![UniqueKey { key: id.clone(), digest: None }];
        let submission =
            Submission { run: new_run(&format!("q-{rounds}"), 1), keys, max_queued: None, needs_room: false };
        assert_eq!(block_on(engine.enqueue(&submission)).expect("enqueue"), Enqueued::Accepted);
        lossy(6);
        let entry = Entry {
            book: "b".to_owned(),
            key: id.clone(),
            state: "x".to_owned(),
            body: "{}".to_owned(),
            ..Entry::default()
        };
        let submission = Submission {
            run: new_run(&format!("l-{rounds}"), 1),
            keys: Vec::new(),
            max_queued: None,
            needs_room: false,
        };
        let write = Written { entry, expected: Expected::Nothing, submission: Some(submission), is_alone: false };
        assert_eq!(block_on(engine.write(&write)).expect("write"), Result::Done);
        proxy.has_lost();
        let view = engine.view(&id).expect("view");
        assert_eq!(view.records, [record("a", "1"), record("b", "2")]);
        assert_eq!(
            (view.row.state, view.result.as_deref(), view.signals),
            (RunState::Succeeded, Some("[]"), vec![signal])
        );
        rounds += 1;
    }
    let query = EntryQuery { book: "b".to_owned(), ..EntryQuery::default() };
    assert_eq!(engine.entries(&query).expect("entries").len(), usize::try_from(rounds).expect("a number"));
    assert_eq!(server.sql("select count(*) from etude.queue"), (2 * rounds).to_string());
    // The single claim of each run has one mark.
    assert_eq!(server.sql("select count(*) from etude.records where key = '!claim'"), rounds.to_string());
}

/// K-8: a submission whose reply is lost is accepted, even if a worker has the run before it is sent again.
#[test]
fn a_submission_is_recognized_after_its_run_is_claimed() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let local = crate::open(&server, "etude", dir.path());
    let (proxy, engine) = behind_proxy(&server, dir.path());
    let mut early = 0;
    // The reply to the commit is the last one: the first numbers lose earlier replies.
    for (number, key) in (0..16).flat_map(|replies| [(replies, true), (replies, false)]) {
        let id = format!("r-{number}-{key}");
        let keys = if key { vec![UniqueKey { key: id.clone(), digest: None }] } else { Vec::new() };
        let mut run = new_run(&id, 1);
        run.placement.bundle = Some(Digest::of(b"app"));
        let submission = Submission { run, keys, max_queued: None, needs_room: false };
        proxy.lose_after(number);
        let claimed = thread::scope(|scope| {
            let submitted = scope.spawn(|| block_on(engine.enqueue(&submission)));
            let mut claimed = None;
            while !submitted.is_finished() {
                claimed = claimed.or_else(|| local.next(&crate::claims::limits(), 0).expect("next"));
            }
            assert_eq!(submitted.join().expect("no panic").expect("it is accepted"), Enqueued::Accepted);
            claimed
        });
        early += usize::from(proxy.has_lost() && claimed.is_some());
        let session = claimed.or_else(|| local.next(&crate::claims::limits(), 0).expect("next")).expect("a run");
        assert_eq!(session.run_id(), id);
        assert!(local.next(&crate::claims::limits(), 0).expect("next").is_none(), "it is there once");
        block_on(session.set_state(RunState::Succeeded, None)).expect("set_state");
    }
    assert!(early > 0, "no run was claimed before its submission was sent again");
}

/// K-8, K-26: a claim from a queue whose reply is lost is found again, and takes no other runs.
#[test]
fn a_lost_reply_to_a_claim_takes_no_other_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let local = crate::open(&server, "etude", dir.path());
    let (proxy, engine) = behind_proxy(&server, dir.path());
    for number in 0..12 {
        crate::claims::submit(&local, &format!("r-{number}"), number, Placement::default());
    }
    let (mut sessions, mut lost) = (Vec::new(), 0);
    for replies in 0..4 {
        proxy.lose_after(replies);
        let few = engine.next_few(&crate::claims::limits(), 2, 0).expect("next");
        assert_eq!(few.len(), 2, "{replies}");
        sessions.extend(few);
        lost += usize::from(proxy.has_lost());
    }
    assert!(lost > 1, "no reply was lost");
    assert_eq!(server.sql("select count(*) from etude.runs where state = 'running'"), sessions.len().to_string());
    assert_eq!(server.sql("select count(*) from etude.queue"), (12 - sessions.len()).to_string());
    for session in &sessions {
        block_on(session.append(record("a", "1"))).expect("append");
    }
}

/// K-26: the heartbeat releases a run of this worker that no session here has, and no other.
#[test]
fn a_heartbeat_releases_what_only_the_database_knows() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(crate::open(&server, "etude", dir.path()));
    let mut settings = crate::settings(&server, "etude", dir.path());
    settings.times.beat = Duration::from_millis(100);
    let engine = Postgres::open(settings).expect("the engine can be opened");
    let held = block_on(engine.create(&new_run("held", 1))).expect("create");
    drop(block_on(engine.create(&new_run("orphan", 1))).expect("create"));
    let worker = engine.worker();
    server.sql(&format!("update etude.runs set worker = '{worker}', session = 7 where id = 'orphan'"));
    let since = Instant::now();
    while server.sql("select count(*) from etude.runs where id = 'orphan' and worker is null") == "0" {
        assert!(since.elapsed() < Duration::from_secs(60), "it is not released");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.sql("select worker from etude.runs where id = 'held'"), worker);
    block_on(held.append(record("a", "1"))).expect("append");
}

/// K-11: an append does not wait for a transaction that has locked all rows of `runs`.
#[test]
fn an_append_locks_no_row_of_runs() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = crate::open(&server, "etude", dir.path());
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    let mut psql = server.psql();
    let mut stdin = psql.stdin.take().expect("a pipe");
    stdin.write_all(b"begin; select 'locked ' || id from etude.runs for update;\n").expect("it listens");
    let mut line = String::new();
    BufReader::new(psql.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), "locked r-1");
    for number in 0..3 {
        block_on(session.append(record(&number.to_string(), "1"))).expect("append");
    }
    assert_eq!(session.records().expect("records").len(), 3);
    assert!(psql.try_wait().expect("it is ours").is_none(), "it still has the lock");
    drop(stdin);
    psql.wait().expect("it ends");
}
