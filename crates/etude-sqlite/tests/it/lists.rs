//! Lists of many runs.

use std::time::{Duration, Instant};

use etude_runtime::conformance::{block_on, new_run};
use etude_runtime::engine::{Cause, Engine as _, Fleet as _, NewRun, Placement, Query, RunState, Submission};
use etude_sqlite::Sync;

use crate::open;

const RUNS: i64 = 100_000;

/// The median and the 99th percentile of the durations of `times` looks.
fn measured(times: usize, mut look: impl FnMut()) -> (Duration, Duration) {
    let mut took: Vec<Duration> = (0..times)
        .map(|_| {
            let since = Instant::now();
            look();
            since.elapsed()
        })
        .collect();
    took.sort_unstable();
    (took[times / 2], took[times * 99 / 100])
}

/// S-54: prints the times of lists of a large journal. Only for measurements.
#[test]
#[ignore = "measures"]
fn measure_lists() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path(), Sync::Normal);
    let since = Instant::now();
    for run in 0..RUNS {
        let labels = [("team".to_owned(), format!("t{}", run % 10)), ("rare".to_owned(), format!("v{}", run / 500))];
        let cause = if run % 3 == 0 { Cause::Api } else { Cause::Cli };
        let placement =
            Placement { cause, labels: if run % 4 == 0 { labels.into() } else { [].into() }, ..Placement::default() };
        let of_run = NewRun {
            app: format!("/srv/applications/{}", if run % 50 == 0 { "rare" } else { "common" }),
            target: if run % 1_000 == 0 { "seldom".to_owned() } else { format!("pipeline-{}", run % 7) },
            placement,
            ..new_run(&format!("{:016x}", (run as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)), run * 1_000)
        };
        block_on(engine.enqueue(&Submission { run: of_run, keys: vec![], max_queued: None, needs_room: false }))
            .expect("enqueue");
    }
    println!("{:.0} runs queued per second", RUNS as f64 / since.elapsed().as_secs_f64());
    // All but the last ones have ended.
    let connection = rusqlite::Connection::open(dir.path().join("journal.db")).expect("it opens");
    connection
        .execute_batch(
            "update runs set state = case when number % 40 = 0 then 'failed' else 'succeeded' end where number < 99900;
             delete from queue where run < 99900",
        )
        .expect("sql");
    let all = Query { limit: Some(50), ..Query::default() };
    let last_page = {
        let before = engine.list(&Query { created_before_ms: Some(60_000), ..all.clone() }).expect("list");
        Query { after: before.first().map(|row| row.cursor()), ..all.clone() }
    };
    let apps = vec!["/srv/applications/common".to_owned()];
    let rare = vec!["/srv/applications/rare".to_owned()];
    let text = |text: &str| Query { text: Some(text.to_owned()), ..all.clone() };
    let label = |key: &str, value: &str| Query { labels: vec![(key.to_owned(), value.to_owned())], ..all.clone() };
    let middle = engine.list(&Query { created_before_ms: Some(50_000_000), ..all.clone() }).expect("list")[0].cursor();
    let queries = [
        ("first page", all.clone()),
        ("a page in the middle", Query { after: Some(middle), ..all.clone() }),
        ("last page", last_page.clone()),
        ("first page of one app", Query { apps: apps.clone(), ..all.clone() }),
        ("last page of one app", Query { apps: apps.clone(), ..last_page.clone() }),
        ("first page of an app with 2 %", Query { apps: rare.clone(), ..all.clone() }),
        ("failed of one app", Query { apps: apps.clone(), states: vec![RunState::Failed], ..all.clone() }),
        ("cancelled (none)", Query { apps: apps.clone(), states: vec![RunState::Cancelled], ..all.clone() }),
        ("failed or queued", Query { states: vec![RunState::Failed, RunState::Queued], ..all.clone() }),
        ("target with 14 %", Query { target: Some("pipeline-3".to_owned()), ..all.clone() }),
        ("target with 0.1 %", Query { target: Some("seldom".to_owned()), ..all.clone() }),
        ("target that is not there", Query { target: Some("none".to_owned()), ..all.clone() }),
        ("cause", Query { cause: Some(Cause::Api), ..all.clone() }),
        ("cause that is not there", Query { cause: Some(Cause::Mcp), ..all.clone() }),
        ("label with 2.5 %", label("team", "t2")),
        ("label with 125 runs", label("rare", "v7")),
        ("text, many", text("pipeline")),
        ("text, rare", text("seld")),
        ("text, none", text("nothing has this")),
    ];
    for (name, query) in queries {
        let rows = engine.list(&query).expect("list").len();
        let (median, p99) = measured(100, || drop(engine.list(&query).expect("list")));
        println!("{name:32} {rows:3} rows  median {median:>10.1?}  p99 {p99:>10.1?}");
    }
    for (name, query) in [("counts", all.clone()), ("counts of one app", Query { apps, ..all.clone() })] {
        let (median, p99) = measured(20, || {
            engine.counts(&query).expect("counts");
        });
        println!("{name:41} median {median:>10.1?}  p99 {p99:>10.1?}");
    }
    let last = engine.last_change().expect("a number");
    let (median, p99) = measured(1_000, || drop(engine.changes(last, 100).expect("changes")));
    println!("{:41} median {median:>10.1?}  p99 {p99:>10.1?}", "changes, none");
    let (median, p99) = measured(1_000, || drop(engine.tail("0000000000000000", 0, 100).expect("tail")));
    println!("{:41} median {median:>10.1?}  p99 {p99:>10.1?}", "tail, none");
}
