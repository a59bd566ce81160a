//! Processes that are killed or stopped at any moment.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use etude_postgres::{Address, Credentials, Postgres, Settings, Times};
use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, Error, Fleet as _, Limits, Record, Session};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::Server;

/// Variables that make the test binary, started again, a child.
const URL: &str = "ETUDE_POSTGRES_TEST_URL";
const DIR: &str = "ETUDE_POSTGRES_TEST_DIR";
const LEASE_S: &str = "ETUDE_POSTGRES_TEST_LEASE_S";

/// Lease in seconds that outlasts any test.
const FOR_EVER: &str = "86400";

/// Maximum time of any wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that appends to the run `r-1`, and prints a line for each acknowledged record.
struct Appender {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    acknowledged: u64,
}

impl Appender {
    fn start(server: &Server, dir: &Path) -> Self {
        Self::with_lease(server, dir, "2")
    }

    fn with_lease(server: &Server, dir: &Path, seconds: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "crash::child", "--ignored", "--nocapture"])
            .env(URL, server.url("etude"))
            .env(DIR, dir)
            .env(LEASE_S, seconds)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child can be started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines, acknowledged: 0 }
    }

    /// Waits until `records` records are acknowledged.
    fn wait_for(&mut self, records: u64) {
        while self.acknowledged < records {
            let line = self.lines.next().expect("the child continues").expect("text");
            self.note(&line);
        }
    }

    fn note(&mut self, line: &str) {
        if let Some(number) = line.split_once("ack ").and_then(|(_, number)| number.parse::<u64>().ok()) {
            self.acknowledged = number;
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("it is there");
    }

    /// Kills the process, reads the rest of its acknowledgements, and returns the number of all of them.
    fn kill(mut self) -> u64 {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it is dead");
        while let Some(Ok(line)) = self.lines.next() {
            self.note(&line);
        }
        self.acknowledged
    }
}

/// Settings with short leases, so that tests wait only briefly.
fn settings(url: &str, dir: &Path) -> Settings {
    let times = Times {
        lease: Duration::from_secs(2),
        beat: Duration::from_millis(400),
        grace: Duration::from_millis(400),
        ..Times::default()
    };
    Settings {
        address: Address::parse(url).expect("an address"),
        cache: dir.to_owned(),
        cache_limit: 1 << 30,
        credentials: Credentials::default(),
        times,
        connections: 6,
        connect_timeout: Duration::from_secs(10),
        patience: Duration::from_secs(60),
        // Only the position of its records stops the process (K-7).
        is_blind: true,
        has_callers_clock: true,
        has_no_bell: false,
    }
}

fn open(url: &str, dir: &Path) -> Postgres {
    let settings = settings(url, dir);
    Postgres::migrate(settings.address.clone(), settings.connect_timeout).expect("a schema can be created");
    Postgres::open(settings).expect("the engine can be opened")
}

/// The child process: it appends until its run is taken.
#[test]
#[ignore = "the child of other tests"]
fn child() {
    let (Ok(url), Some(dir)) = (std::env::var(URL), std::env::var_os(DIR)) else { return };
    let seconds = std::env::var(LEASE_S).ok().and_then(|seconds| seconds.parse().ok()).expect("a number");
    let mut settings = settings(&url, Path::new(&dir));
    settings.times.lease = Duration::from_secs(seconds);
    let engine = Postgres::open(settings).expect("the engine can be opened");
    let session = block_on(engine.create(&new_run("r-1", 1))).expect("create");
    let mut out = std::io::stdout();
    for number in 1_u64.. {
        match block_on(session.append(numbered(number))) {
            Ok(()) => writeln!(out, "ack {number}").expect("the test listens"),
            Err(Error::Overtaken { .. }) => break,
            Err(cause) => panic!("{cause}"),
        }
    }
    assert!(matches!(block_on(session.append(numbered(0))), Err(Error::Overtaken { .. })));
    writeln!(out, "overtaken").expect("the test listens");
}

fn numbered(number: u64) -> Record {
    record(&format!("main/step#{number}"), "1")
}

/// Takes the run as soon as its lease is over.
fn claim(engine: &Postgres) -> Box<dyn Session> {
    let since = Instant::now();
    loop {
        match engine.claim("r-1") {
            Ok(session) => return session,
            Err(Error::Busy { .. }) if since.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            Err(cause) => panic!("{cause}"),
        }
    }
}

/// Asserts that exactly the acknowledged records are there, and perhaps one whose acknowledgement was lost.
fn check(records: &[Record], acknowledged: u64) {
    let count = records.len() as u64;
    assert!((acknowledged..=acknowledged + 1).contains(&count), "{acknowledged} acknowledged, {count} there");
    assert!(records.iter().zip(1..).all(|(record, number)| *record == numbered(number)), "a record differs");
}

/// K-2, K-3.
#[test]
fn every_acknowledged_record_survives_the_death_of_its_process() {
    let Some(server) = Server::start() else { return };
    for at_least in [1, 20, 300] {
        let dir = tempfile::tempdir().expect("a directory");
        server.sql("drop schema if exists etude cascade");
        let engine = open(&server.url("etude"), dir.path());
        let mut appender = Appender::start(&server, dir.path());
        appender.wait_for(at_least);
        let acknowledged = appender.kill();
        check(&claim(&engine).records().expect("records"), acknowledged);
        assert_eq!(engine.row("r-1").expect("row").state.word(), "running");
    }
}

/// The connection of a killed process closes: a process that waits for runs notices that, however long the lease is.
#[test]
fn a_process_that_waits_for_runs_notices_the_death_of_another_one() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&server.url("etude"), dir.path());
    let mut appender = Appender::with_lease(&server, dir.path(), FOR_EVER);
    appender.wait_for(1);
    assert!(engine.next(&Limits::of_default_queue(1), 1).expect("the queue can be read").is_none());
    assert!(engine.row("r-1").expect("row").is_live);
    appender.kill();
    let since = Instant::now();
    while engine.row("r-1").expect("row").is_live {
        assert!(since.elapsed() < PATIENCE, "the run still has its worker");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(engine.deaths("r-1").expect("deaths"), 1);
}

/// K-2, K-3: the process continues when the database is back. Then both die.
#[test]
fn every_acknowledged_record_survives_the_death_of_the_database() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(&server.url("etude"), dir.path()));
    let mut appender = Appender::start(&server, dir.path());
    for round in 1..4 {
        appender.wait_for(round * 50);
        server.crash();
    }
    let before = appender.acknowledged;
    appender.wait_for(before + 50);
    let acknowledged = appender.kill();
    server.crash();
    let engine = open(&server.url("etude"), dir.path());
    check(&claim(&engine).records().expect("records"), acknowledged);
}

/// K-6, K-7: a process that is stopped during its appends, for longer than its lease, has written before the claim or
/// not at all.
#[test]
fn a_stopped_process_writes_nothing_after_its_run_was_taken() {
    let Some(server) = Server::start() else { return };
    for at_least in [1, 37, 150] {
        let dir = tempfile::tempdir().expect("a directory");
        server.sql("drop schema if exists etude cascade");
        let engine = open(&server.url("etude"), dir.path());
        let mut appender = Appender::start(&server, dir.path());
        appender.wait_for(at_least);
        appender.signal(Signal::STOP);
        let session = claim(&engine);
        let seen = session.records().expect("records");
        block_on(session.append(record("new", "2"))).expect("append");
        appender.signal(Signal::CONT);
        let last = loop {
            let line = appender.lines.next().expect("the child continues").expect("text");
            appender.note(&line);
            if line.contains("overtaken") {
                break appender.kill();
            }
        };
        check(&seen, last);
        let mut expected = seen;
        expected.push(record("new", "2"));
        assert!(session.records().expect("records") == expected, "it wrote after the claim");
        // Each session's records are contiguous.
        let sql =
            "select count(*) from (select session, lag(session) over (order by seq) as before from etude.records) s
            where session is distinct from before";
        assert_eq!(server.sql(sql), "2");
    }
}
