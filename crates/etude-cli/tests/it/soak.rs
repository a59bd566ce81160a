//! A fleet under random faults: workers that are killed or stopped, connections that are cut, a database that crashes or
//! freezes.
//!
//! The short form is a test. `cargo run -p xtask -- soak` runs the long one: with a synchronous standby that takes over in the
//! middle, and with values in a bucket that stalls, if `ETUDE_MOTO` names a bucket server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::database::Server;
use crate::fleet::{fleet, fleet_of};
use crate::fleet_workers::{WORKER, events};
use crate::moto::Moto;
use crate::test::{Running, Test, wait_until};

/// The variable with the seconds of the long form.
const SECONDS: &str = "ETUDE_SOAK_S";

/// The number of steps in a run.
pub(crate) const STEPS: usize = 4;

/// The number of concurrent workers.
const WORKERS: usize = 2;

/// Short times, so that many deaths fit into a short test.
pub(crate) const TIMES: &str = "engine: {lease: 12s, beat: 1s, grace: 5s, poll: 100ms, max_crashes: 0}\n";

/// A reproducible sequence of numbers.
struct Random(u64);

/// An app whose steps record each of their starts, and return a text of this length.
pub(crate) fn app(config: &str, length: usize) -> Test {
    Test::new().user_config(config).pipeline("p", |p| {
        (0..STEPS).fold(p, |p, step| {
            let print = format!(
                "cat >/dev/null; printf '{{\"output\":\"'; head -c {length} /dev/zero | tr '\\0' {step}; printf '\"}}'"
            );
            p.sh(&format!("s{step}"), &format!("echo \"$ETUDE_RUN_ID {step}\" >> \"$LEDGER\"; sleep 0.2; {print}"))
        })
    })
}

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillWorker,
    StopWorker,
    CutConnections,
    CrashDatabase,
    FreezeDatabase,
    FreezeBucket,
}

const FAULTS: [Fault; 5] =
    [Fault::KillWorker, Fault::StopWorker, Fault::CutConnections, Fault::CrashDatabase, Fault::FreezeDatabase];

/// A fleet with runs whose steps record each of their starts.
struct Soak {
    server: Server,
    /// The standby, which has every commit of the server.
    standby: Option<Server>,
    /// The store of values.
    bucket: Option<Moto>,
    test: Test,
    workers: Vec<Running>,
    submitted: usize,
    deaths: usize,
    /// The number of times a worker was stopped for longer than its lease.
    stops: usize,
}

impl Soak {
    fn start() -> Option<Self> {
        let server = Server::start()?;
        let test = fleet(&server, app(TIMES, 1));
        Some(Self::of(server, None, None, test))
    }

    fn start_long() -> Option<Self> {
        let server = Server::start()?;
        let (standby, bucket) = (server.start_standby(true), Moto::start());
        let config =
            bucket.as_ref().map(|bucket| TIMES.replace('}', &format!(", blobs: \"{}\"}}", bucket.url("soak"))));
        // Values of this length are in the bucket.
        let test = app(&config.unwrap_or(TIMES.to_owned()), 300_000);
        let test = test.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let test = fleet_of(&Server::url_of_primary([&server, &standby], "etude"), test);
        test.run(&["engine", "apply", "--format", "json"]).exit(0);
        Some(Self::of(server, Some(standby), bucket, test))
    }

    fn of(server: Server, standby: Option<Server>, bucket: Option<Moto>, test: Test) -> Self {
        let mut soak = Self { server, standby, bucket, test, workers: Vec::new(), submitted: 0, deaths: 0, stops: 0 };
        (0..WORKERS).for_each(|_| soak.employ());
        soak
    }

    /// Kills the server for good and promotes its standby.
    fn fail_over(&mut self) {
        let Some(standby) = self.standby.take() else { return };
        self.server.kill();
        standby.promote();
        self.server = standby;
    }

    fn employ(&mut self) {
        self.workers.push(self.test.start(&[&WORKER[..], &["--places", "4"]].concat()));
    }

    fn submit(&mut self, runs: usize) {
        for _ in 0..runs {
            self.test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0);
        }
        self.submitted += runs;
    }

    fn inject(&mut self, fault: Fault, random: &mut Random) {
        let victim = usize::try_from(random.below(WORKERS as u64)).expect("a small number");
        match fault {
            Fault::KillWorker => {
                self.workers.swap_remove(victim).kill();
                self.employ();
                self.deaths += 1;
            }
            Fault::StopWorker => {
                self.workers[victim].signal("STOP");
                // The pause is longer than the lease: its consequences are the subject.
                std::thread::sleep(Duration::from_secs(14));
                self.workers[victim].signal("CONT");
                self.deaths += 1;
                self.stops += 1;
            }
            Fault::CutConnections => {
                let sql =
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'etude'";
                self.server.sql(sql);
            }
            Fault::CrashDatabase => self.server.crash(),
            Fault::FreezeDatabase => {
                self.server.freeze(true);
                std::thread::sleep(Duration::from_secs(4));
                self.server.freeze(false);
                // Each worker may have stopped itself.
                self.deaths += WORKERS;
            }
            Fault::FreezeBucket => {
                let Some(bucket) = &self.bucket else { return };
                bucket.freeze(true);
                std::thread::sleep(Duration::from_secs(4));
                bucket.freeze(false);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.server.sql("select count(*) from etude.runs where state <> 'succeeded'") == "0"
    }

    /// Checks that all runs have ended, none is lost, and no step was started after a later one of its run had begun (K-12).
    fn check(self) {
        let state = |state: &str| {
            let sql = format!("select count(*) from etude.runs where state = '{state}'");
            self.server.sql(&sql).parse::<usize>().expect("a number")
        };
        let since = Instant::now();
        while state("succeeded") < self.submitted {
            let why = "select string_agg(convert_from(body, 'UTF8'), ' ') from etude.results join etude.runs using (run) where state = 'failed'";
            assert_eq!((state("failed"), state("cancelled")), (0, 0), "a fault fails a run: {}", self.server.sql(why));
            let printed: Vec<_> = self.workers.iter().map(|worker| events(worker).len()).collect();
            assert!(
                since.elapsed() < Duration::from_secs(120),
                "{} of {} runs; {printed:?}",
                state("succeeded"),
                self.submitted
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        let gaps =
            "select count(*) from (select run, count(*) as count, max(seq) as last from etude.records group by run) r
            where count <> last";
        assert_eq!(self.server.sql(gaps), "0", "positions have gaps");
        let twice = "select count(*) from (select run, key from etude.records where left(key, 1) <> '!' group by 1, 2 having count(*) > 1) r";
        assert_eq!(self.server.sql(twice), "0", "an effect is recorded twice");
        if self.bucket.is_some() {
            // A value of a step has the same bytes in all runs. None of them is in the database.
            let sql = "select count(*) || ' ' || count(c.hash) from etude.blobs left join etude.chunks c using (hash) where length >= 300000";
            assert_eq!(self.server.sql(sql), format!("{STEPS} 0"), "values in the bucket, and in the database");
        }
        let mut furthest: BTreeMap<String, usize> = BTreeMap::new();
        let mut late = 0;
        let ledger = self.test.ledger();
        for line in &ledger {
            let (run, step) = line.split_once(' ').expect("a run and a step");
            let (step, last) = (step.parse::<usize>().expect("a number"), furthest.entry(run.to_owned()).or_default());
            // A worker that is stopped between its check of the lease and the start of a step starts that step when it
            // continues.
            if step < *last {
                late += 1;
            } else {
                *last = step;
            }
        }
        assert!(late <= self.stops * 4, "{late} steps began after a later one");
        assert_eq!(furthest.len(), self.submitted);
        assert!(furthest.values().all(|last| *last == STEPS - 1));
        let again = ledger.len() - self.submitted * STEPS;
        eprintln!("{} runs, {} deaths, {again} effects started again", self.submitted, self.deaths);
        // K-13: at most the effects in progress, once for each death.
        assert!(again <= self.deaths * 4 * WORKERS, "{again} effects started again for {} deaths", self.deaths);
        for worker in self.workers {
            worker.terminate();
            worker.finish().exit(0);
        }
    }
}

/// K-2, K-3, K-12, K-13, K-16 to K-18, K-21, K-23: one fault of each kind under load loses no run, repeats no recorded effect
/// and fails nothing.
#[test]
fn a_fleet_survives_one_fault_of_each_kind() {
    let Some(mut soak) = Soak::start() else { return };
    let mut random = Random(20);
    for fault in FAULTS {
        soak.submit(3);
        let before = soak.test.ledger().len();
        wait_until("a step", || soak.test.ledger().len() > before || soak.is_over());
        soak.inject(fault, &mut random);
    }
    soak.check();
}

/// The long form, for the number of seconds in the variable.
#[test]
#[ignore = "the long form, for `cargo run -p xtask -- soak`"]
fn a_fleet_survives_random_faults() {
    let seconds = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
    let Some(mut soak) = Soak::start_long() else { return };
    let (mut random, mut counts) = (Random(seconds), BTreeMap::new());
    let faults: Vec<Fault> = FAULTS.into_iter().chain(soak.bucket.is_some().then_some(Fault::FreezeBucket)).collect();
    let (since, whole) = (Instant::now(), Duration::from_secs(seconds));
    while since.elapsed() < whole {
        soak.submit(2);
        if since.elapsed() > whole / 2 {
            soak.fail_over();
        }
        let fault = faults[usize::try_from(random.below(faults.len() as u64)).expect("a small number")];
        *counts.entry(fault).or_insert(0) += 1;
        soak.inject(fault, &mut random);
        std::thread::sleep(Duration::from_millis(random.below(3_000)));
    }
    eprintln!("faults: {counts:?}");
    soak.check();
}
