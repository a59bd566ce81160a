//! Times, their medians, and their report.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

/// Printer of the figures, as text or as JSON.
pub(crate) struct Report {
    is_json: bool,
    is_quick: bool,
}

/// A measured operation with its baseline.
pub(crate) struct Pair<'a> {
    /// Identifier for programs, such as `one/durable`.
    pub(crate) key: &'a str,
    /// Description of the operation, for people.
    pub(crate) what: &'a str,
    /// Description of the baseline, for people.
    pub(crate) baseline: &'a str,
}

impl Report {
    pub(crate) fn new(is_json: bool, is_quick: bool) -> Self {
        Self { is_json, is_quick }
    }

    /// The number of rounds; a fifth of it with `--quick`, which shows only the order of magnitude.
    pub(crate) fn rounds(&self, rounds: usize) -> usize {
        if self.is_quick { rounds.div_ceil(5).max(2) } else { rounds }
    }

    /// Runs both alternately, after one warm-up, and reports their medians. Returns the quartiles of `ours`.
    pub(crate) fn compare(
        &mut self,
        pair: &Pair<'_>,
        rounds: usize,
        mut ours: impl FnMut(),
        mut baseline: impl FnMut(),
    ) -> [Duration; 3] {
        let mut times = [Vec::new(), Vec::new()];
        ours();
        baseline();
        for _ in 0..self.rounds(rounds) {
            for (at, run) in [&mut ours as &mut dyn FnMut(), &mut baseline].into_iter().enumerate() {
                let begin = Instant::now();
                run();
                times[at].push(begin.elapsed());
            }
        }
        let [ours, baseline] = times;
        self.pair(pair, ours, baseline)
    }

    /// Reports the medians of two series. Returns the quartiles of `ours`.
    pub(crate) fn pair(&mut self, pair: &Pair<'_>, ours: Vec<Duration>, baseline: Vec<Duration>) -> [Duration; 3] {
        let rounds = ours.len();
        let ([low, ours, high], [_, baseline, _]) = (quartiles(ours), quartiles(baseline));
        let found = [low, ours, high];
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let ratio = ours.as_secs_f64() / baseline.as_secs_f64();
        if self.is_json {
            let line = json!({"key": pair.key, "what": pair.what, "baseline_is": pair.baseline, "ms": ms(ours), "baseline_ms": ms(baseline),
                "quartiles_ms": [ms(low), ms(high)], "rounds": rounds});
            println!("{line}");
        } else {
            println!(
                "{:<58} {ours:>10.2?}   baseline {baseline:>10.2?} ({})   ratio {ratio:.2}   difference {:.2?}",
                pair.what,
                pair.baseline,
                ours.saturating_sub(baseline)
            );
        }
        found
    }

    /// Reports a single figure.
    pub(crate) fn figure(&mut self, key: &str, what: &str, value: f64, unit: &str) {
        if self.is_json {
            println!("{}", json!({"key": key, "what": what, "value": value, "unit": unit}));
        } else {
            println!("{what:<58} {value:>10.2} {unit}");
        }
    }
}

/// The quartiles of a series, with its median in the middle.
pub(crate) fn quartiles(mut times: Vec<Duration>) -> [Duration; 3] {
    times.sort();
    [times[times.len() / 4], times[times.len() / 2], times[times.len() * 3 / 4]]
}

/// The time that `share` percent of a series do not exceed.
pub(crate) fn quantile(mut times: Vec<Duration>, share: usize) -> Duration {
    times.sort();
    times[(times.len() * share / 100).min(times.len() - 1)]
}

/// The program to measure: `ETUDE_BIN`, or the one that was built with this.
pub(crate) fn program() -> PathBuf {
    let beside = || std::env::current_exe().expect("a path").with_file_name("etude");
    std::env::var_os("ETUDE_BIN").map_or_else(beside, PathBuf::from)
}

/// A command of the program with its own home.
pub(crate) fn etude(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(args)
        .env("HOME", home)
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Runs the program to its end, which must be a success.
pub(crate) fn run(home: &Path, args: &[&str]) {
    let ended = etude(home, args).status().expect("the program starts");
    assert!(ended.success(), "etude {args:?}: {ended}");
}

/// Runs the program and returns its output.
pub(crate) fn output(home: &Path, args: &[&str]) -> Output {
    etude(home, args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("the program starts")
}
