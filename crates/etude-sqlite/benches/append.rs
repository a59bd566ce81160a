//! Costs of an append, beside those of the disk alone in the same run: `cargo bench -p etude-sqlite`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use etude_runtime::conformance::{block_on, new_run, record};
use etude_runtime::engine::{Engine as _, RunState};
use etude_sqlite::{Settings, Sqlite, Sync};

/// Size of the body of a short code step's record, in bytes.
const BODY: usize = 400;

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    println!("µs per append of {BODY} bytes{:>22}{:>9}{:>9}{:>9}", "mean", "p50", "p99", "max");
    baseline(&dir.path().join("baseline-write"), 20_000, false);
    sessions(&dir.path().join("normal-1"), Sync::Normal, 1, 20_000);
    sessions(&dir.path().join("normal-16"), Sync::Normal, 16, 2_000);
    baseline(&dir.path().join("baseline-sync"), 500, true);
    sessions(&dir.path().join("strict-1"), Sync::Strict, 1, 500);
    sessions(&dir.path().join("strict-16"), Sync::Strict, 16, 200);
    baseline(&dir.path().join("baseline-sync-again"), 500, true);
    println!();
    println!("µs per operation{:>36}{:>9}{:>9}{:>9}", "mean", "p50", "p99", "max");
    whole_runs(&dir.path().join("runs"));
}

/// Bare appends to a file.
fn baseline(path: &Path, count: usize, sync: bool) {
    let mut file = File::create(path).expect("a file");
    let bytes = [b'x'; BODY];
    let times = measure(count, |_| {
        file.write_all(&bytes).expect("write");
        if sync {
            file.sync_data().expect("fdatasync");
        }
    });
    report(if sync { "baseline: write + fdatasync" } else { "baseline: write" }, times, None);
}

/// Appends from several concurrent sessions.
fn sessions(dir: &Path, sync: Sync, count: usize, each: usize) {
    let engine = open(dir, sync);
    let since = Instant::now();
    let times = thread::scope(|scope| {
        let engine = &engine;
        let one = |number: usize| {
            let session = block_on(engine.create(&new_run(&format!("r-{number}"), 1))).expect("create");
            let body = "x".repeat(BODY);
            measure(each, |step| block_on(session.append(record(&format!("main/step#{step}"), &body))).expect("append"))
        };
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let per_second = (count * each) as f64 / since.elapsed().as_secs_f64();
    report(&format!("{sync:?}, {count} sessions"), times, Some(per_second));
}

/// Measures a command that runs one step, and in turn the minimum that leaves the same on disk, so that both meet the same noise.
fn whole_runs(dir: &Path) {
    let (mut baselines, mut opens, mut runs, mut drops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    std::fs::create_dir_all(dir).expect("a directory");
    let file = dir.join("baseline");
    for number in 0..200 {
        let since = Instant::now();
        bare_run(&file);
        baselines.push(since.elapsed());
        let since = Instant::now();
        let engine = open(dir, Sync::Normal);
        opens.push(since.elapsed());
        let since = Instant::now();
        let session = block_on(engine.create(&new_run(&format!("r-{number}"), 1))).expect("create");
        block_on(session.append(record("main/a#1", "{}"))).expect("append");
        block_on(session.set_state(RunState::Succeeded, Some("{}"))).expect("set_state");
        drop(session);
        runs.push(since.elapsed());
        let since = Instant::now();
        drop(engine);
        drops.push(since.elapsed());
    }
    let median = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    let ratio = (median(&opens) + median(&runs) + median(&drops)) / median(&baselines);
    report("baseline: open, three writes, close", baselines, None);
    report("open", opens, None);
    report("create, append, set_state", runs, None);
    report("drop", drops, None);
    println!("all of it / baseline: {ratio:.1} times (medians)");
}

/// Opens a file, writes the bytes of a run with one step, and closes it.
fn bare_run(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).expect("a file");
    for _ in 0..3 {
        file.write_all(&[b'x'; BODY]).expect("write");
    }
}

fn open(dir: &Path, sync: Sync) -> Sqlite {
    Sqlite::open(Settings { dir: dir.to_owned(), sync }).expect("a journal can be opened")
}

fn measure(count: usize, mut work: impl FnMut(usize)) -> Vec<Duration> {
    let one = |step| {
        let since = Instant::now();
        work(step);
        since.elapsed()
    };
    (0..count).map(one).collect()
}

fn report(what: &str, mut times: Vec<Duration>, per_second: Option<f64>) {
    times.sort();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mean = us(times.iter().sum()) / times.len() as f64;
    let (p50, p99) = (us(times[times.len() / 2]), us(times[times.len() * 99 / 100]));
    let max = us(times[times.len() - 1]);
    let rate = per_second.map(|rate| format!("  {rate:.0}/s")).unwrap_or_default();
    println!("{what:<40}{mean:>12.1}{p50:>9.1}{p99:>9.1}{max:>9.0}{rate}");
}
