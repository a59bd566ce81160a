//! The engine of a fleet on a PostgreSQL server of this machine, beside its disk, beside SQLite, and beside `pgbench` with the
//! same statement. Without the server's programs there are no figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_postgres::{Address, Credentials, Postgres, Settings, Times};
use etude_runtime::engine::{
    Engine as _, Enqueued, Fleet as _, Limits, Placement, Profile, QueueRules, RunState, Session, Submission, Takes,
};
use etude_runtime::sync::block_on;

use crate::apps::{code, of_steps};
use crate::durable::{BODY, appends, ms, new_run, record, sessions, times};
use crate::measure::{Pair, Report, etude, quantile, quartiles};

/// Id of the user that starts the server, since `initdb` and `postgres` refuse root.
const UNPRIVILEGED: u32 = 65_534;

/// A server with an empty schema, on a socket in a directory of its own.
struct Server {
    bin: PathBuf,
    dir: tempfile::TempDir,
    child: Child,
}

impl Server {
    /// Starts the server, with commits on the disk. `None` if this machine has no PostgreSQL.
    fn start() -> Option<Self> {
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut bins: Vec<PathBuf> = installed.map(|version| version.path().join("bin")).collect();
        bins.sort();
        let Some(bin) = bins.pop().filter(|bin| bin.join("postgres").is_file()) else {
            eprintln!("not measured: PostgreSQL is not installed");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).ok();
        let data = dir.path().join("data");
        let mut initdb = unprivileged(&bin.join("initdb"));
        initdb.args(["-U", "etude", "-A", "trust", "-E", "UTF8", "-D"]).arg(&data).stdout(Stdio::null());
        assert!(initdb.status().expect("initdb can be started").success(), "initdb fails");
        let mut server = unprivileged(&bin.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(dir.path());
        for setting in ["listen_addresses=", "shared_buffers=256MB", "max_connections=300", "log_min_messages=fatal"] {
            server.args(["-c", setting]);
        }
        let child = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server can be started");
        let server = Self { bin, dir, child };
        let since = Instant::now();
        while server.psql("select 1").is_none() {
            assert!(since.elapsed() < Duration::from_secs(60), "the server does not start");
            thread::sleep(Duration::from_millis(20));
        }
        let address = Address::parse(&server.url()).expect("an address");
        Postgres::migrate(address, Duration::from_secs(60)).expect("a schema");
        Some(server)
    }

    fn url(&self) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://etude@{socket}/postgres?schema=etude")
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.args(["-U", "etude", "-h"]).arg(self.dir.path()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn psql(&self, sql: &str) -> Option<String> {
        let done = self.client("psql").args(["-d", "postgres", "-XqAt", "-c", sql]).output().expect("psql is there");
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    fn sql(&self, sql: &str) -> String {
        self.psql(sql).unwrap_or_else(|| panic!("it fails: {sql}"))
    }

    /// An engine of a worker with `places` places.
    fn engine(&self, cache: &Path, places: u32) -> Postgres {
        let settings = Settings {
            address: Address::parse(&self.url()).expect("an address"),
            cache: cache.to_owned(),
            cache_limit: 1 << 30,
            credentials: Credentials::default(),
            times: Times::default(),
            connections: 8,
            connect_timeout: Duration::from_secs(60),
            patience: Duration::from_secs(60),
            is_blind: false,
            has_callers_clock: false,
            has_no_bell: false,
        };
        let engine = Postgres::open(settings).expect("the engine can be opened");
        let queues = vec!["default".to_owned()];
        let profile = Profile { version: "1".to_owned(), abi: 1, queues, places, has_sandbox: true };
        engine.join(&profile).expect("a worker joins");
        engine
    }

    /// Rate of the append statement in transactions per second, by `pgbench`, whose clients have one run each.
    fn pgbench(&self, clients: usize, seconds: usize) -> f64 {
        static FIRST: AtomicUsize = AtomicUsize::new(1_000_000);
        let first = FIRST.fetch_add(clients, Ordering::Relaxed);
        let last = first + clients - 1;
        self.sql(&format!(
            "insert into etude.runs (run, id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms)
             overriding system value select n, 'b-' || n, '/a', 'p', 1, 'running', 1, 7, 1, n from generate_series({first}, {last}) n"
        ));
        let script = self.dir.path().join("append.sql");
        let body = "x".repeat(BODY);
        let text = format!(
            "\\set n :n + 1\n\
             insert into etude.records (run, seq, session, key, request, body, blobs) \
             select new.* from unnest(array[:client_id + {first}]::bigint[], array[:n]::integer[], array[7]::bigint[], \
                array['main/step#' || :n]::text[], array[sha256('main/step')]::bytea[], array['{body}']::bytea[], array[null]::bytea[]) \
                as new (run, seq, session, key, request, body, blobs) \
             where case when new.seq = 1 then exists (select 1 from etude.runs where runs.run = new.run) \
                else exists (select 1 from etude.records before \
                    where before.run = new.run and before.seq = new.seq - 1 and before.session = new.session) end \
             on conflict do nothing returning run;\n"
        );
        fs::write(&script, text).expect("a script");
        let mut command = self.client("pgbench");
        let threads = clients.min(2);
        command.args(["-n", "-M", "prepared", "-D", "n=0", "-c", &clients.to_string(), "-j", &threads.to_string()]);
        command.args(["-T", &seconds.to_string(), "-f"]).arg(&script).arg("postgres");
        let done = command.output().expect("pgbench is there");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let accepted = self.sql(&format!("select count(*) from etude.records where run between {first} and {last}"));
        assert!(done.status.success() && accepted != "0", "pgbench: {said}");
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")).expect("a rate");
        rate.split(' ').next().and_then(|rate| rate.parse().ok()).expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = unprivileged(&self.bin.join("pg_ctl"));
        stop.args(["stop", "-m", "immediate", "-D"]).arg(self.dir.path().join("data")).stdout(Stdio::null());
        let _ = stop.status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs as the server's user.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        use std::os::unix::process::CommandExt as _;
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

/// Records of steps in the database, from one run and from many at once.
pub(crate) fn append(report: &mut Report, home: &Path) {
    let Some(server) = Server::start() else { return };
    let engine = server.engine(&home.join("cache"), 64);
    let count = report.rounds(1_000);
    let baselines = appends(&home.join("baseline"), count, true);
    let session = block_on(engine.create(&new_run("one"))).expect("a run");
    let body = "x".repeat(BODY);
    let ours =
        times(count, |step| block_on(session.append(record(&format!("main/step#{step}"), &body))).expect("appended"));
    let rate = count as f64 / ours.iter().sum::<Duration>().as_secs_f64();
    let pair = Pair {
        key: "fleet/append",
        what: "one step into PostgreSQL, on the disk",
        baseline: "one write and one `fdatasync`",
    };
    report.pair(&pair, ours, baselines);
    report.figure("fleet/append-rate", "records of one run", rate, "a second");
    let seconds = report.rounds(5);
    let by_hand = "the same statement by `pgbench`";
    report.figure("fleet/append-pgbench", &format!("{by_hand}, one client"), server.pgbench(1, seconds), "a second");
    for (runs, each) in [(8, 400), (64, 200), (512, 40)] {
        let each = report.rounds(each);
        let since = Instant::now();
        thread::scope(|scope| {
            for run in 0..runs {
                let (engine, body) = (&engine, &body);
                scope.spawn(move || {
                    let session = block_on(engine.create(&new_run(&format!("r-{runs}-{run}")))).expect("a run");
                    for step in 0..each {
                        block_on(session.append(record(&format!("main/step#{step}"), body))).expect("appended");
                    }
                });
            }
        });
        let rate = (runs * each) as f64 / since.elapsed().as_secs_f64();
        report.figure(&format!("fleet/append-{runs}"), &format!("records of {runs} runs at once"), rate, "a second");
        if runs < 512 {
            let rate = server.pgbench(runs, seconds);
            report.figure(
                &format!("fleet/append-{runs}-pgbench"),
                &format!("{by_hand}, {runs} clients"),
                rate,
                "a second",
            );
            let dir = home.join(format!("sqlite-{runs}"));
            let (_, rate) = sessions(&dir, etude_sqlite::Sync::Strict, runs, each);
            report.figure(
                &format!("fleet/append-{runs}-sqlite"),
                &format!("the same {runs} runs in SQLite, on the disk"),
                rate,
                "a second",
            );
        }
    }
}

fn submission(id: &str) -> Submission {
    let mut run = new_run(id);
    run.placement = Placement { bundle: Some(Digest::of(b"app")), ..Placement::default() };
    Submission { run, keys: Vec::new(), max_queued: Some(1_000_000), needs_room: false }
}

fn limits() -> Limits {
    Limits { queue: "default".to_owned(), max_runs: u32::MAX, takes: Takes::Bundles }
}

/// Claims all queued runs like a worker with `places` places: an eighth of the free places at once.
fn drain(engine: &Postgres, places: usize, run: &(dyn Fn(&dyn Session) + Sync)) {
    thread::scope(|scope| {
        let (ended, ends) = mpsc::channel();
        let mut free = places;
        loop {
            while let Ok(()) = ends.try_recv() {
                free += 1;
            }
            if free == 0 {
                ends.recv().expect("there are runs");
                free += 1;
            }
            let few = engine.next_few(&limits(), free.div_ceil(8), 0).expect("the queue can be read");
            if few.is_empty() {
                return;
            }
            free -= few.len();
            for session in few {
                let ended = ended.clone();
                scope.spawn(move || {
                    run(&*session);
                    // The receiver may be gone already.
                    let _ = ended.send(());
                });
            }
        }
    });
}

/// Submissions, claims, whole runs of ten steps, a claim among many, and the time from a submission to its claim.
pub(crate) fn queue(report: &mut Report, home: &Path) {
    let Some(server) = Server::start() else { return };
    let engines: Vec<Postgres> = (0..4).map(|at| server.engine(&home.join(format!("cache-{at}")), 64)).collect();
    let submitted = report.rounds(3_200);
    let submit = |word: &str| {
        let since = Instant::now();
        thread::scope(|scope| {
            for at in 0..32 {
                let engine = &engines[at % engines.len()];
                scope.spawn(move || {
                    for number in 0..submitted / 32 {
                        let accepted = block_on(engine.enqueue(&submission(&format!("{word}-{at}-{number}"))));
                        assert_eq!(accepted.expect("enqueue"), Enqueued::Accepted);
                    }
                });
            }
        });
        (submitted / 32 * 32) as f64 / since.elapsed().as_secs_f64()
    };
    let rate = |since: Instant| (submitted / 32 * 32) as f64 / since.elapsed().as_secs_f64();
    report.figure("fleet/submit", "submissions, 32 at once", submit("a"), "a second");
    // The limit of the default queue would be reached.
    engines[0]
        .apply(
            Some(&BTreeMap::from([("default".to_owned(), QueueRules { limit: None, ..QueueRules::default() })])),
            None,
        )
        .expect("rules");
    let since = Instant::now();
    let held: Vec<_> = thread::scope(|scope| {
        let claims = |engine: &Postgres| {
            let few = || Some(engine.next_few(&limits(), 10, 0).expect("claims")).filter(|few| !few.is_empty());
            std::iter::from_fn(few).flatten().collect::<Vec<_>>()
        };
        let threads: Vec<_> =
            (0..8).map(|at| &engines[at % engines.len()]).map(|engine| scope.spawn(move || claims(engine))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    report.figure("fleet/claim", "claims in tens, 8 at once by 4 workers", rate(since), "a second");
    assert_eq!(held.len(), submitted / 32 * 32);
    drop(held);
    submit("b");
    let body = "x".repeat(BODY);
    let run = |session: &dyn Session| {
        for step in 0..10 {
            block_on(session.append(record(&format!("main/step#{step}"), &body))).expect("appended");
        }
        block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("the end");
    };
    let since = Instant::now();
    thread::scope(|scope| {
        for engine in &engines {
            let run = &run;
            scope.spawn(move || drain(engine, 64, run));
        }
    });
    report.figure("fleet/runs", "whole runs of ten records, 4 workers of 64 places", rate(since), "a second");
    let found: Vec<Duration> = thread::scope(|scope| {
        let (worker, count) = (&engines[0], report.rounds(200));
        let claims = scope.spawn(move || {
            let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let mut claimed = Vec::new();
            while claimed.len() < count {
                match worker.next(&limits(), 0).expect("the queue can be read") {
                    Some(session) => claimed.push((session.run_id().to_owned(), Instant::now())),
                    // As in a worker, which polls the queue whether it was rung or not.
                    None => {
                        drop(clock.block_on(async { tokio::time::timeout(Times::default().poll, worker.rung()).await }))
                    }
                }
            }
            claimed
        });
        let mut begun = Vec::new();
        for number in 0..count {
            let id = format!("c-{number}");
            begun.push((id.clone(), Instant::now()));
            block_on(engines[1].enqueue(&submission(&id))).expect("enqueue");
            thread::sleep(Duration::from_millis(20));
        }
        let claimed = claims.join().expect("no panic");
        let of = |id: &String| claimed.iter().find(|(claimed, _)| claimed == id).map(|(_, at)| *at);
        begun.iter().filter_map(|(id, since)| Some(of(id)?.duration_since(*since))).collect()
    });
    report.figure("fleet/bell", "from a submission to its claim", ms(quartiles(found.clone())[1]), "ms");
    report.figure("fleet/bell-p99", "the same, 99 of 100 take at most", ms(quantile(found, 99)), "ms");
    let (many, word) = if report.rounds(5) < 5 { (100_000, "100,000") } else { (1_000_000, "1,000,000") };
    server.sql(&format!(
        "set search_path = etude;
         insert into runs (id, app, target, abi, state, epoch, session, created_at_ms, changed_at_ms)
            select 'm-' || n, '/a', 'p', 1, 'queued', 0, n, n, n from generate_series(1, {many}) n;
         insert into headers (run, body) select run, '{{}}' from runs where id like 'm-%';
         insert into queue (queue, rank, run, not_before_ms, abi, is_bundled)
            select 'default', 2000000 - run, run, 0, 1, true from runs where id like 'm-%'; analyze"
    ));
    let claims = times(report.rounds(200), |_| {
        assert!(engines[0].next(&limits(), 0).expect("the queue can be read").is_some());
    });
    let what = format!("a claim among {word} queued runs");
    report.figure("fleet/claim-many", &what, ms(quartiles(claims)[1]), "ms");
}

/// Time until a worker is ready, and time until other workers take its run after its death, with the default times.
pub(crate) fn workers(report: &mut Report, home: &Path) {
    let Some(server) = Server::start() else { return };
    let app = of_steps(home, "p", std::iter::once(code("wait", "sleep 60")));
    let command = |args: &[&str]| {
        let mut command = etude(home, args);
        command.env("ETUDE_ENGINE", server.url()).current_dir(&app);
        command
    };
    let started = AtomicUsize::new(0);
    let worker = || {
        let path = home.join(format!("worker-{}", started.fetch_add(1, Ordering::Relaxed)));
        let out = fs::File::create(&path).expect("a file");
        let since = Instant::now();
        let child = command(&["worker", "--format", "jsonl"]).stdout(out).spawn().expect("a worker");
        until(&path, "\"event\":\"ready\"");
        (child, path, since.elapsed())
    };
    let (mut ready, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds(5).min(5) {
        // Each round has its own run, because a run that kills several workers has failed.
        let (mut first, first_path, took) = worker();
        let submit = command(&["run", "-p", "p", "--detach", "--format", "json"]).stdout(Stdio::piped()).output();
        let submitted: serde_json::Value =
            serde_json::from_slice(&submit.expect("a command").stdout).expect("a document");
        let id = submitted["run_id"].as_str().expect("an id");
        let claimed = format!("\"event\":\"claimed\",\"run_id\":\"{id}\"");
        until(&first_path, &claimed);
        let (mut second, second_path, later) = worker();
        ready.extend([took, later]);
        let since = Instant::now();
        first.kill().expect("SIGKILL");
        until(&second_path, &claimed);
        taken.push(since.elapsed());
        assert!(command(&["runs", "cancel", id]).status().expect("a command").success());
        second.kill().expect("SIGKILL");
        for worker in [&mut first, &mut second] {
            worker.wait().expect("it is dead");
        }
    }
    let baseline = times(20, |_| assert!(etude(home, &["--version"]).status().expect("a command").success()));
    let pair = Pair { key: "fleet/ready", what: "a worker is ready", baseline: "`etude --version`" };
    report.pair(&pair, ready, baseline);
    report.figure("fleet/taken", "a killed worker's run is taken by another one", ms(quartiles(taken)[1]), "ms");
}

/// An app of the examples, whose two steps start Python, by one, two and four workers with one place each: the same outputs.
pub(crate) fn example(report: &mut Report, home: &Path) {
    let Some(server) = Server::start() else { return };
    let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tool-library");
    let command = |args: &[&str]| {
        let mut command = etude(home, args);
        command.env("ETUDE_ENGINE", server.url()).current_dir(&app);
        command
    };
    let runs = report.rounds(40);
    for workers in [1, 2, 4] {
        let submit = ["run", "-p", "overdue-letters", "-i", "as_of=2026-05-01", "--detach", "-q"];
        for _ in 0..runs {
            assert!(command(&submit).status().expect("a command").success());
        }
        let start = |_| command(&["worker", "--places", "1"]).spawn().expect("a worker");
        let mut workers_at_work: Vec<Child> = (0..workers).map(start).collect();
        let left = || -> usize {
            server.sql("select count(*) from etude.runs where state <> 'succeeded'").parse().expect("a number")
        };
        // The time until workers are ready does not count.
        while left() == runs {
            thread::sleep(Duration::from_millis(2));
        }
        let (since, before) = (Instant::now(), left());
        while left() > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        let rate = before as f64 / since.elapsed().as_secs_f64();
        let what = format!("runs of examples/tool-library, workers with a place each: {workers}");
        report.figure(&format!("fleet/example-{workers}"), &what, rate, "a second");
        for worker in &mut workers_at_work {
            worker.kill().expect("SIGKILL");
            worker.wait().expect("it is dead");
        }
        let outputs = "select count(distinct convert_from(body, 'UTF8')::json ->> 'output') from etude.results";
        assert_eq!(server.sql(outputs), "1", "all outputs are equal");
    }
}

/// Waits until the file of a worker's output contains `said`.
fn until(path: &Path, said: &str) {
    let since = Instant::now();
    while !fs::read_to_string(path).unwrap_or_default().contains(said) {
        assert!(since.elapsed() < Duration::from_secs(60), "a worker has not said {said}");
        thread::sleep(Duration::from_millis(2));
    }
}
