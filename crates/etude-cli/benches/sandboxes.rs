//! What a sandbox costs a step: pipelines of small steps with and without one.
//!
//! `cargo bench -p etude-cli --bench sandboxes [-- ROUNDS]` prints medians of alternating rounds. The cost of a step is the
//! difference between pipelines of sixty and of twenty steps, so that what happens once a run is left out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Lengths of the pipelines.
const STEPS: [usize; 2] = [20, 60];

fn main() {
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(9);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let kinds = ["", "    sandbox: {network: false}\n"];
    for (at, steps) in STEPS.into_iter().enumerate() {
        for (kind, fields) in kinds.into_iter().enumerate() {
            write(&dir.path().join(format!("app{at}{kind}")), steps, fields);
        }
    }
    let mut times = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    // The first round warms up.
    for round in 0..=rounds {
        for (at, of_length) in times.iter_mut().enumerate() {
            for (kind, times) in of_length.iter_mut().enumerate() {
                let begin = Instant::now();
                run(dir.path(), &dir.path().join(format!("app{at}{kind}")));
                if round > 0 {
                    times.push(begin.elapsed());
                }
            }
        }
    }
    let [[bare_20, closed_20], [bare_60, closed_60]] = times.map(|of_length| of_length.map(median));
    let more = u32::try_from(STEPS[1] - STEPS[0]).unwrap_or(1);
    let (bare, closed) = (bare_60.saturating_sub(bare_20) / more, closed_60.saturating_sub(closed_20) / more);
    println!("one step   bare {bare:>9.2?}   sandboxed {closed:>9.2?}   more {:>9.2?}", closed.saturating_sub(bare));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn write(app: &Path, steps: usize, fields: &str) {
    let dir = app.join("pipelines/chain");
    fs::create_dir_all(&dir).expect("a directory");
    let steps: String = (0..steps)
        .map(|step| format!("  - name: s{step}\n    type: code\n    command: cat out.json\n{fields}"))
        .collect();
    fs::write(dir.join("pipeline.yaml"), format!("name: chain\ndescription: small steps\nsteps:\n{steps}"))
        .expect("a file");
    fs::write(dir.join("out.json"), r#"{"output": 1}"#).expect("a file");
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
