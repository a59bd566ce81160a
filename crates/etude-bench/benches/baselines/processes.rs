//! Code steps: one, a thousand, large ones, Python, and in a sandbox.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::apps::{code, of_steps, write};
use crate::measure::{Pair, Report, run};

pub(crate) const STEPS: usize = 1_000;
const LARGE: usize = 100 * 1_000 * 1_000;

/// Starts a program like a step of a pipeline, without a runner: three pipes, all of them drained.
pub(crate) fn bare(dir: &Path, words: &[&str], stdin: &[u8]) -> String {
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    // A step that does not read its stdin may have ended already.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(stdin));
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut stdout));
    child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut stderr));
    assert!(child.wait().is_ok_and(|status| status.success()));
    stdout
}

pub(crate) fn app_of(home: &Path, steps: impl Iterator<Item = String>) -> (PathBuf, String) {
    let app = of_steps(home, "p", steps);
    let dir = app.join("pipelines/p");
    write(&dir.join("out.json"), r#"{"output": {"n": 1}}"#);
    (dir, app.display().to_string())
}

pub(crate) fn one(report: &mut Report, home: &Path) {
    let (dir, app) = app_of(home, std::iter::once(code("s", "cat out.json")));
    let pair = Pair { key: "one", what: "one-step run, end to end", baseline: "the step's process" };
    let baseline = || drop(bare(&dir, &["cat", "out.json"], b"{}"));
    report.compare(&pair, 60, || run(home, &["run", "-C", &app, "-p", "p", "-q"]), baseline);
    let pair = Pair { key: "one/strict", what: "the same with `--strict`", baseline: "the step's process and 3 syncs" };
    let mut file = File::create(home.join("synced")).expect("a file");
    let baseline = || {
        drop(bare(&dir, &["cat", "out.json"], b"{}"));
        for _ in 0..3 {
            file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("a sync");
        }
    };
    report.compare(&pair, 30, || run(home, &["run", "-C", &app, "-p", "p", "-q", "--strict"]), baseline);
}

pub(crate) fn steps(report: &mut Report, home: &Path) {
    let (dir, app) = app_of(home, (0..STEPS).map(|at| code(&format!("s{at}"), "cat out.json")));
    let pair = Pair { key: "steps", what: "1,000 chained code steps", baseline: "a bare loop over their processes" };
    report.compare(&pair, 7, || run(home, &["run", "-C", &app, "-p", "p", "-q"]), || bare_loop(&dir));
}

/// The input and output of the steps, without a runner: no journal, no checks, no groups.
fn bare_loop(dir: &Path) {
    let mut members = String::new();
    for step in 0..STEPS {
        let stdin = format!(r#"{{"input":{{}},"steps":{{{members}}}}}"#);
        bare(dir, &["cat", "out.json"], stdin.as_bytes());
        members.push_str(&format!(r#"{}"s{step}":{{"output":{{"n": 1}}}}"#, if step == 0 { "" } else { "," }));
    }
}

/// One step prints 100 MB, and the next one receives them.
pub(crate) fn data(report: &mut Report, home: &Path) {
    // Outside the app, whose files are its definition.
    let large = home.join("large.json").display().to_string();
    let steps = [code("make", &format!("cat {large}")), code("take", "sh take.sh")];
    let (dir, app) = app_of(home, steps.into_iter());
    let mut file = File::create(&large).expect("a file");
    file.write_all(br#"{"output": ""#).expect("written");
    file.write_all(&vec![b'x'; LARGE]).expect("written");
    file.write_all(br#""}"#).expect("written");
    write(&dir.join("take.sh"), "n=$(wc -c)\necho \"{\\\"output\\\": $n}\"\n");
    let pair = Pair {
        key: "data",
        what: "100 MB from one step to the next",
        baseline: "the two processes, with the bytes held in memory between them",
    };
    let baseline = || {
        let value = bare(&dir, &["cat", &large], b"{}");
        bare(&dir, &["sh", "take.sh"], value.as_bytes());
    };
    report.compare(&pair, 5, || run(home, &["run", "-C", &app, "-p", "p", "-q"]), baseline);
}

/// Steps of Python: ten of them, with and without a warm interpreter, and the cost of one more.
pub(crate) fn python(report: &mut Report, home: &Path) {
    const SCRIPT: &str = "import json, sys\nread = json.load(sys.stdin)\nprint(json.dumps({'output': len(read)}))\n";
    const WARM: &str = "    worker: python\n";
    const MORE: u32 = 20;
    let python = interpreter();
    let command = format!("{python} step.py");
    let app = |name: &str, steps: u32, fields: &str| {
        let app = of_steps(home, name, (0..steps).map(|at| code(&format!("s{at}"), &command) + fields));
        write(&app.join(format!("pipelines/{name}/step.py")), SCRIPT);
        app
    };
    let place = app("cold", 10, "");
    app("warm", 10, WARM);
    app("longer", 10 + MORE, WARM);
    let dir = place.join("pipelines/cold");
    let place = place.display().to_string();
    let ours = |name: &str| run(home, &["run", "-C", &place, "-p", name, "-q"]);
    let baseline = |steps: u32| {
        for _ in 0..steps {
            bare(&dir, &[&python, "step.py"], br#"{"input":{},"steps":{}}"#);
        }
    };
    let pair = Pair { key: "python", what: "ten steps of Python", baseline: "their processes" };
    report.compare(&pair, 7, || ours("cold"), || baseline(10));
    let pair = Pair {
        key: "python/warm",
        what: "ten steps of Python with `worker: python`",
        baseline: "their processes, cold",
    };
    report.compare(&pair, 7, || ours("warm"), || baseline(10));
    let pair = Pair {
        key: "python/step",
        what: "one more step of Python with `worker: python`",
        baseline: "its process, cold",
    };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..report.rounds(15) {
        // The fixed cost of a run, with the start of the interpreter, is in both.
        let (short, long) = (timed(|| ours("warm")), timed(|| ours("longer")));
        times[0].push(long.saturating_sub(short) / MORE);
        times[1].push(timed(|| baseline(MORE)) / MORE);
    }
    let [more, cold] = times;
    report.pair(&pair, more, cold);
}

/// The path of the interpreter itself: a version manager's script before it would be measured as well.
fn interpreter() -> String {
    let reported = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    String::from_utf8(reported.stdout).expect("a plain path").trim().to_owned()
}

fn timed(work: impl FnOnce()) -> Duration {
    let since = Instant::now();
    work();
    since.elapsed()
}

/// Small steps, each in its own sandbox.
pub(crate) fn sandbox(report: &mut Report, home: &Path) {
    if let Err(why) = etude_process::sandbox::support() {
        eprintln!("`sandbox` is not measured: {why}");
        return;
    }
    let app = |home: &Path, fields: &str| {
        let (_, app) = app_of(home, (0..40).map(|at| code(&format!("s{at}"), "cat out.json") + fields));
        app
    };
    let closed = app(&home.join("closed"), "    sandbox: {network: false}\n");
    let open = app(&home.join("open"), "");
    let pair = Pair { key: "sandbox", what: "40 code steps, each in a sandbox", baseline: "the same run without" };
    let ours = |app: &str| run(home, &["run", "-C", app, "-p", "p", "-q"]);
    report.compare(&pair, 9, || ours(&closed), || ours(&open));
}
