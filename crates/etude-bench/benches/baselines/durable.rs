//! The journal alone, beside the cost of the disk, and schemas.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use etude_core::digest::Digest;
use etude_core::schema::Schema;
use etude_runtime::engine::{Engine as _, NewRun, Placement, Record};
use etude_runtime::sync::block_on;
use etude_sqlite::{Settings, Sqlite, Sync};
use serde_json::{Value, json};

use crate::measure::{Pair, Report, quantile, quartiles};

/// Size of the record of a short code step, in bytes.
pub(crate) const BODY: usize = 400;

/// Records of steps in the journal: their latency, and their rate with many runs at once. The baseline is the disk: bare
/// appends to a file, with `fdatasync` where the journal waits for the disk.
pub(crate) fn durable(report: &mut Report, home: &Path) {
    for (sync, word, what, baseline, count) in [
        (Sync::Normal, "normal", "one step into the journal", "one write to a file", 10_000),
        (Sync::Strict, "strict", "one step into the journal, on the disk", "one write and one `fdatasync`", 300),
    ] {
        let baselines = appends(&home.join(format!("baseline-{word}")), count, sync == Sync::Strict);
        let (times, alone) = sessions(&home.join(word), sync, 1, count);
        let key = format!("durable/{word}");
        for (name, share) in [("p95", 95), ("p99", 99)] {
            let slow = ms(quantile(times.clone(), share));
            report.figure(&format!("{key}-{name}"), &format!("{what}: {share} of 100 take at most"), slow, "ms");
        }
        report.pair(&Pair { key: &key, what, baseline }, times, baselines);
        report.figure(&format!("{key}-rate"), &format!("{what}, by one run"), alone, "steps a second");
        let (times, per_second) = sessions(&home.join(format!("{word}-60")), sync, 60, count / 60);
        report.figure(&format!("{key}-60"), &format!("{what}, of 60 runs at once"), ms(quartiles(times)[1]), "ms");
        report.figure(&format!("{key}-60-rate"), "the same", per_second, "steps a second");
    }
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn appends(path: &Path, count: usize, sync: bool) -> Vec<Duration> {
    let mut file = File::create(path).expect("a file");
    let bytes = [b'x'; BODY];
    times(count, |_| {
        file.write_all(&bytes).expect("written");
        if sync {
            file.sync_data().expect("synced");
        }
    })
}

pub(crate) fn sessions(dir: &Path, sync: Sync, count: usize, each: usize) -> (Vec<Duration>, f64) {
    let engine = Sqlite::open(Settings { dir: dir.to_owned(), sync }).expect("a journal");
    let since = Instant::now();
    let times: Vec<Duration> = thread::scope(|scope| {
        let engine = &engine;
        let one = |number: usize| {
            let session = block_on(engine.create(&new_run(&format!("r-{number}")))).expect("a run");
            let body = "x".repeat(BODY);
            times(each, |step| block_on(session.append(record(&format!("main/step#{step}"), &body))).expect("appended"))
        };
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let per_second = times.len() as f64 / since.elapsed().as_secs_f64();
    (times, per_second)
}

/// Header of a run for `create`.
pub(crate) fn new_run(id: &str) -> NewRun {
    NewRun {
        id: id.to_owned(),
        app: "/apps/demo".to_owned(),
        target: "code-review".to_owned(),
        abi: 1,
        created_at_ms: 1,
        header: format!(r#"{{"v":1,"run":"{id}"}}"#),
        placement: Placement::default(),
    }
}

/// The record of one step.
pub(crate) fn record(key: &str, body: &str) -> Record {
    Record { key: key.to_owned(), request: Digest::of(key.as_bytes()), body: body.to_owned(), blobs: Vec::new() }
}

pub(crate) fn times(count: usize, mut work: impl FnMut(usize)) -> Vec<Duration> {
    let one = |at| {
        let since = Instant::now();
        work(at);
        since.elapsed()
    };
    (0..count).map(one).collect()
}

/// A review with 20 issues against its schema, compiled once. The baseline is parsing the same text as JSON, which is
/// necessary anyway.
pub(crate) fn schema(report: &mut Report, _home: &Path) {
    let schema = json!({
        "type": "object", "required": ["issues", "summary"], "additionalProperties": false,
        "properties": {
            "summary": {"type": "string", "minLength": 10, "maxLength": 2000},
            "issues": {"type": "array", "maxItems": 100, "items": {
                "type": "object", "required": ["file", "line", "severity", "message"], "additionalProperties": false,
                "properties": {
                    "file": {"type": "string", "pattern": "^[a-z/_.]+$"},
                    "line": {"type": "integer", "minimum": 1},
                    "severity": {"enum": ["low", "medium", "high"]},
                    "message": {"type": "string", "minLength": 3}
                }
            }}
        }
    });
    let issue =
        json!({"file": "src/some/where.rs", "line": 17, "severity": "medium", "message": "this can be simpler"});
    let text = json!({"summary": "twenty things to look at", "issues": vec![issue; 20]}).to_string();
    let compiled = Schema::compile("review.json", schema, BTreeMap::new()).expect("a schema");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    const EACH: usize = 500;
    let pair = Pair {
        key: "schema",
        what: "500 answers against a schema (20 objects each)",
        baseline: "reading their text as JSON",
    };
    let ours = || (0..EACH).for_each(|_| assert!(compiled.violations(std::hint::black_box(&value)).is_empty()));
    let baseline = || {
        for _ in 0..EACH {
            let read: Value = serde_json::from_str(std::hint::black_box(&text)).expect("JSON");
            std::hint::black_box(read);
        }
    };
    report.compare(&pair, 15, ours, baseline);
}
