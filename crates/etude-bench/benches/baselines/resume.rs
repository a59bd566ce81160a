//! Resuming of runs that were killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::apps::{code, write};
use crate::commands::bare_process;
use crate::measure::{Pair, Report, etude, output, quartiles, run};
use crate::processes::{STEPS, app_of, bare};

/// A run of 1,000 steps whose process is killed in the last step is resumed, again and again from the same journal.
pub(crate) fn resume(report: &mut Report, home: &Path) {
    let long = Killed::new(&home.join("long"), STEPS);
    let short = Killed::new(&home.join("short"), 1);
    let what = "resume of a run of 1,000 steps, killed in the last one";
    let baseline = "a bare process, the last step's, and reading 1,000 records with SQLite";
    let pair = Pair { key: "resume", what, baseline };
    let [mut longs, mut shorts, mut baselines] = [const { Vec::new() }; 3];
    for _ in 0..report.rounds(15) {
        longs.push(long.resume());
        shorts.push(short.resume());
        baselines.push(long.baseline());
    }
    report.pair(&pair, longs, baselines);
    let short = quartiles(shorts)[1].as_secs_f64() * 1e3;
    report.figure("resume/one", "resume of a run of one step", short, "ms");
}

/// A run whose process was killed, with a copy of its journal.
struct Killed {
    home: PathBuf,
    app: String,
    run: String,
}

impl Killed {
    fn new(home: &Path, steps: usize) -> Self {
        let last = code("last", "sh last.sh");
        let (dir, app) = app_of(home, (1..steps).map(|at| code(&format!("s{at}"), "cat out.json")).chain([last]));
        write(&dir.join("last.sh"), "test -e ../../../resumed || kill -9 $PPID\ncat out.json\n");
        let ended = etude(home, &["run", "-C", &app, "-p", "p", "-q"]).status().expect("the program starts");
        assert_eq!(ended.code(), None, "it was killed");
        write(&home.join("resumed"), "");
        let reported = output(home, &["runs", "list", "-C", &app, "--format", "json"]);
        let runs: serde_json::Value = serde_json::from_slice(&reported.stdout).expect("a document");
        let run = runs["runs"][0]["run_id"].as_str().expect("a run").to_owned();
        fs::rename(home.join("state"), home.join("left")).expect("moved");
        Self { home: home.to_owned(), app, run }
    }

    /// Time of a resume from that journal.
    fn resume(&self) -> Duration {
        self.put_back();
        let since = Instant::now();
        run(&self.home, &["runs", "resume", &self.run, "-C", &self.app, "-q"]);
        since.elapsed()
    }

    /// Time to start a process, read the content of the journal, and run the remaining step.
    fn baseline(&self) -> Duration {
        self.put_back();
        let journal = self.home.join("state/etude/journal.db");
        let since = Instant::now();
        bare_process();
        let read = Connection::open(journal).expect("the journal");
        let mut query = read.prepare("select key, request, body from records order by id").expect("a query");
        let mut rows = query.query(()).expect("records");
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.next().expect("a record") {
            bytes += row.get_ref(2).expect("a body").as_bytes_or_null().expect("a text").map_or(0, <[u8]>::len);
            count += 1;
        }
        assert!(count >= STEPS - 1 && bytes > count);
        bare(&Path::new(&self.app).join("pipelines/p"), &["cat", "out.json"], b"{}");
        since.elapsed()
    }

    fn put_back(&self) {
        let _ = fs::remove_dir_all(self.home.join("state"));
        copy(&self.home.join("left"), &self.home.join("state"));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a copy");
        }
    }
}
