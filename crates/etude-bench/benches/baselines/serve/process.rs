//! Servers as processes: `etude serve`, and the bare ones that this program runs with `--child-…`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http;
use crate::measure::{etude, output};

/// A server process, ended when this is dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) port: u16,
}

impl Process {
    /// Starts this program as a bare server, which prints its port.
    pub(crate) fn bare(args: &[&str]) -> Self {
        let own = std::env::current_exe().expect("a path");
        let mut child =
            Command::new(own).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let port = first_line(&mut child).trim().parse().expect("a port");
        Self { child, port }
    }

    /// Writes the line that the server waits for.
    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("written");
    }

    /// Processor time of the process, without its children.
    pub(crate) fn used(&self) -> Duration {
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u32>().expect("a number");
        TICK * (ticks(11) + ticks(12))
    }

    /// Memory in MiB: `VmRSS` now, or `VmHWM`, the peak since [`Self::forget_peak`].
    pub(crate) fn memory(&self, which: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).expect("a number") / 1024.0
    }

    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("written");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    line
}

/// `etude serve` with its owner's token.
pub(crate) struct Served {
    pub(crate) process: Process,
    pub(crate) token: String,
    home: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Served {
    /// Serves the app in `home/app`. Returns the server and the time until it listened.
    pub(crate) fn start(home: &Path) -> (Self, Duration) {
        let app = home.join("app").display().to_string();
        let since = Instant::now();
        let mut child = etude(home, &["serve", &app, "--port", "0", "--format", "json", "--quiet"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let line = first_line(&mut child);
        let took = since.elapsed();
        let line: Value = serde_json::from_str(&line).expect("a line of JSON");
        let address = line["addresses"][0].as_str().expect("an address");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let token = Path::new(line["socket"].as_str().expect("a socket")).with_file_name("owner.token");
        let token = fs::read_to_string(token).expect("a token").trim().to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let home = home.to_owned();
        (Self { process: Process { child, port }, token, home, runtime: runtime.expect("a runtime") }, took)
    }

    /// Creates `count` more tokens that may read.
    pub(crate) fn readers(&self, count: usize) -> Vec<String> {
        let one = |at: usize| {
            let name = format!("reader-{at}");
            let made = output(&self.home, &["token", "new", &name, "--scope", "read", "--format", "json"]);
            let made: Value = serde_json::from_slice(&made.stdout).expect("a document");
            made["token"].as_str().expect("a token").to_owned()
        };
        (0..count).map(one).collect()
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn request(&self, what: &str, headers: &str, body: Option<&Value>) -> Vec<u8> {
        http::request(self.process.port, &self.token, what, headers, body.map(Value::to_string).as_deref())
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        let response = self.wait(http::once(self.process.port, &self.request(&format!("GET {path}"), "", None)));
        assert_eq!(response.status, 200, "{path}: {}", String::from_utf8_lossy(&response.body));
        response.body
    }

    /// Starts a run and returns its id.
    pub(crate) fn begin(&self, pipeline: &str, input: &Value) -> String {
        let request = self.request("POST /v1/runs", "", Some(&json!({"pipeline": pipeline, "input": input})));
        let response = self.wait(http::once(self.process.port, &request));
        let run: Value = serde_json::from_slice(&response.body).expect("a document");
        run["run_id"].as_str().unwrap_or_else(|| panic!("{run}")).to_owned()
    }

    /// Runs a pipeline to its end and returns the run's id.
    pub(crate) fn run(&self, pipeline: &str, input: &Value) -> String {
        let run = self.begin(pipeline, input);
        loop {
            let seen: Value = serde_json::from_slice(&self.get(&format!("/v1/runs/{run}"))).expect("a document");
            match seen["status"].as_str() {
                Some("queued" | "running") => std::thread::sleep(Duration::from_millis(50)),
                Some("succeeded") => return run,
                status => panic!("{pipeline}: {status:?}"),
            }
        }
    }

    /// Path of the journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.home.join("state/etude/journal.db")
    }
}
