//! Overhead of the process host over a bare spawn with three pipes.
//!
//! `cargo bench -p etude-process --bench spawn [-- ROUNDS]` prints the time per process of both, in alternation, and
//! the ratio of the medians of the rounds.

#![expect(clippy::disallowed_methods, reason = "a baseline is a program without the host")]

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etude_core::effect::{self, Chunk, ProcessCall, Protocol, Setting, Stdin};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{Cancel, ChildEnvironment, HostSettings, ProcessHost, Redaction};

const INPUT: &str = "{\"output\":{\"n\":1}}";
const PER_ROUND: u32 = 100;

fn main() {
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(15);
    let dir = std::env::temp_dir();
    let settings = HostSettings {
        run_id: "bench".to_owned(),
        app_dir: dir.clone(),
        blobs: Arc::new(FileBlobs::new(dir.join("etude-bench-blobs"), false)),
    };
    let environment = ChildEnvironment::without_keys(&[]);
    let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused).build();
    for program in ["cat", "true"] {
        let (mut bare, mut hosted) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(time(|| spawn_bare(program)));
            hosted.push(time(|| spawn_hosted(&host, program)));
        }
        let (bare, hosted) = (median(bare), median(hosted));
        let ratio = hosted.as_secs_f64() / bare.as_secs_f64();
        println!("{program}: bare {bare:.1?}, hosted {hosted:.1?}, ratio {ratio:.3}");
    }
}

fn time(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..PER_ROUND {
        work();
    }
    start.elapsed() / PER_ROUND
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn spawn_bare(program: &str) {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    // `true` does not read.
    let _ = child.stdin.take().expect("piped").write_all(INPUT.as_bytes());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    child.stdout.take().expect("piped").read_to_end(&mut out).expect("read");
    child.stderr.take().expect("piped").read_to_end(&mut err).expect("read");
    child.wait().expect("ended");
}

fn spawn_hosted(host: &ProcessHost, program: &str) {
    let call = ProcessCall {
        command: effect::Command::Direct(vec![program.to_owned()]),
        dir: String::new(),
        env: Vec::new(),
        key: "bench/step".to_owned(),
        attempt: 1,
        stdin: Stdin(vec![Chunk::Text(Arc::from(INPUT))]),
        protocol: Protocol::Step,
        setting: Setting::default(),
    };
    let end = host.run(&call, &Cancel::new(), &mut |_| {}).expect("not cancelled");
    assert!(end.exit.is_success());
}
