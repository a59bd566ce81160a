//! What a warm interpreter saves: a pipeline of ten Python steps with and without it, and what one step costs.
//!
//! `cargo bench -p etude-cli --bench workers [-- ROUNDS]` prints medians of alternating rounds and their ratios. The cost of
//! a step is the difference between pipelines of thirty and of ten steps, so that what happens once a run is left out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Lengths of the pipelines.
const STEPS: [usize; 2] = [10, 30];

/// What a small step does.
const SCRIPT: &str =
    "import json, sys\ndata = json.load(sys.stdin)\nprint(json.dumps({'output': len(data['steps'])}))\n";

fn main() {
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(9);
    let dir = tempfile::tempdir().expect("a temporary directory");
    // A version manager's script between us and the interpreter would be measured as well.
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
    let mut times = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for (at, steps) in STEPS.into_iter().enumerate() {
        for (warm, worker) in ["", "    worker: python\n"].into_iter().enumerate() {
            write(&dir.path().join(format!("app{at}{warm}")), steps, &python, worker);
        }
    }
    // The first round warms up.
    for round in 0..=rounds {
        for (at, of_length) in times.iter_mut().enumerate() {
            for (warm, times) in of_length.iter_mut().enumerate() {
                let begin = Instant::now();
                run(dir.path(), &dir.path().join(format!("app{at}{warm}")));
                if round > 0 {
                    times.push(begin.elapsed());
                }
            }
        }
    }
    let [[cold_10, warm_10], [cold_30, warm_30]] = times.map(|of_length| of_length.map(median));
    let more = u32::try_from(STEPS[1] - STEPS[0]).unwrap_or(1);
    let (cold, warm) = (cold_30.saturating_sub(cold_10) / more, warm_30.saturating_sub(warm_10) / more);
    show("ten Python steps, the whole run", cold_10, warm_10);
    show("one Python step", cold, warm);
}

fn show(what: &str, cold: Duration, warm: Duration) {
    let ratio = cold.as_secs_f64() / warm.as_secs_f64();
    println!("{what:<34} cold {cold:>10.2?}   warm {warm:>10.2?}   ratio {ratio:.1}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn write(app: &Path, steps: usize, python: &str, worker: &str) {
    let dir = app.join("pipelines/chain");
    fs::create_dir_all(&dir).expect("a directory");
    let steps: String = (0..steps)
        .map(|step| format!("  - name: s{step}\n    type: code\n    command: {python} step.py\n{worker}"))
        .collect();
    fs::write(dir.join("pipeline.yaml"), format!("name: chain\ndescription: Python steps\nsteps:\n{steps}"))
        .expect("a file");
    fs::write(dir.join("step.py"), SCRIPT).expect("a file");
}

fn run(home: &Path, app: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_etude"))
        .args(["run", "--pipeline", "chain", "--quiet", "-C"])
        .arg(app)
        .env("HOME", home)
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the run failed");
}
