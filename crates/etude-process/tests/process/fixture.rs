//! An app directory with a host, and constructors of calls for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use etude_core::data::Json;
use etude_core::effect::{Chunk, Command, ProcessCall, Protocol, Setting, Stdin};
use etude_core::outcome::{Exit, ProcessEnd, Stderr, Stdout};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{
    Cancel, Cancelled, ChildEnvironment, HostBuilder, HostSettings, ProcessHost, PythonWorker, Redaction,
};
use rustix::process::Pid;

/// Long enough for a busy machine; reached only by a test that would hang.
pub(crate) const HANGS: Duration = Duration::from_secs(120);

pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    pub(crate) run_id: String,
    pub(crate) host: ProcessHost,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Duration::from_secs(60), &[])
    }

    pub(crate) fn with(grace: Duration, withheld: &[&str]) -> Self {
        Self::named(&next_id(), grace, withheld)
    }

    /// Runs every Python process in a warm interpreter.
    pub(crate) fn warm(grace: Duration, withheld: &[&str]) -> Self {
        Self::with_preload(&next_id(), grace, withheld, Some("json"))
    }

    /// Runs every Python process in a warm interpreter that imports `module` first.
    pub(crate) fn preloading(module: &str) -> Self {
        Self::with_preload(&next_id(), Duration::from_millis(50), &[], Some(module))
    }

    /// A fixture that starts interpreters, and one that keeps one warm: steps must not notice the difference.
    pub(crate) fn both() -> [Self; 2] {
        [Self::new(), Self::warm(Duration::from_secs(60), &[])]
    }

    pub(crate) fn named(run_id: &str, grace: Duration, withheld: &[&str]) -> Self {
        Self::with_preload(run_id, grace, withheld, None)
    }

    /// A fixture whose processes inherit `environment`.
    pub(crate) fn inheriting(environment: ChildEnvironment) -> Self {
        Self::build(&next_id(), Duration::from_secs(60), environment, None)
    }

    fn with_preload(run_id: &str, grace: Duration, withheld: &[&str], preload: Option<&str>) -> Self {
        let withheld: Vec<String> = withheld.iter().map(|name| (*name).to_owned()).collect();
        Self::build(run_id, grace, ChildEnvironment::without_keys(&withheld), preload)
    }

    /// A fixture whose steps may print `bytes` bytes.
    pub(crate) fn limited(bytes: u64) -> Self {
        let environment = ChildEnvironment::without_keys(&[]);
        Self::build_with("run-1", Duration::from_secs(1), environment, None, |host| host.max_output(bytes))
    }

    fn build(run_id: &str, grace: Duration, environment: ChildEnvironment, preload: Option<&str>) -> Self {
        Self::build_with(run_id, grace, environment, preload, |host| host)
    }

    fn build_with(
        run_id: &str,
        grace: Duration,
        environment: ChildEnvironment,
        preload: Option<&str>,
        set: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        // Children report real paths.
        let app_dir = dir.path().canonicalize().expect("real path");
        fs::create_dir_all(app_dir.join("pipelines/p")).expect("directory");
        let settings = HostSettings {
            run_id: run_id.to_owned(),
            app_dir,
            blobs: Arc::new(FileBlobs::new(dir.path().join("blobs"), false)),
        };
        let python = match preload {
            Some(module) => PythonWorker { preload: vec![module.to_owned()], every_step: true },
            None => PythonWorker::default(),
        };
        let host = ProcessHost::builder(settings, environment, Redaction::NoSecrets, SandboxPolicy::Refused);
        let host = set(host.grace(grace).python_worker(python)).build();
        Self { dir, run_id: run_id.to_owned(), host }
    }

    /// A path in the pipeline's directory, in which processes run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("real path").join("pipelines/p").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
    }

    /// Runs a call to its end, without cancellation.
    pub(crate) fn run(&self, call: &ProcessCall) -> ProcessEnd {
        with_time_limit(|| self.host.run(call, &Cancel::new(), &mut |_| {})).expect("no one cancelled")
    }

    /// Runs a shell line that must succeed. Returns the text of its output.
    pub(crate) fn output(&self, line: &str) -> String {
        value(&self.run(&shell(line)))
    }

    /// Starts `call` on a thread, waits until it has written the file `ready`, cancels it, and waits for its end.
    pub(crate) fn cancel_when_ready(&self, call: &ProcessCall, ready: &str) -> Stderr {
        let cancel = Cancel::new();
        let mut received = 0;
        let result = with_time_limit(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    eventually("the process is ready", || self.path(ready).exists());
                    cancel.cancel();
                });
                self.host.run(call, &cancel, &mut |bytes| received += bytes.len() as u64)
            })
        });
        let Cancelled(stderr) = result.expect_err("cancelled");
        assert_eq!(stderr.bytes, received);
        stderr
    }

    /// The id that a process wrote into the file `name`.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        let mut id = None;
        eventually("an id is written", || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            id = text.strip_suffix('\n').and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
            id.is_some()
        });
        id.expect("written")
    }
}

fn next_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("run-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn call(command: Command) -> ProcessCall {
    ProcessCall {
        command,
        dir: "pipelines/p".to_owned(),
        env: Vec::new(),
        key: "p/step".to_owned(),
        attempt: 1,
        stdin: Stdin::default(),
        protocol: Protocol::Step,
        setting: Setting::default(),
    }
}

pub(crate) fn shell(line: &str) -> ProcessCall {
    call(Command::Shell(line.to_owned()))
}

pub(crate) fn direct(words: &[&str]) -> ProcessCall {
    call(Command::Direct(words.iter().map(|word| (*word).to_owned()).collect()))
}

pub(crate) fn script(path: &str) -> ProcessCall {
    call(Command::Script(path.to_owned()))
}

pub(crate) fn with_stdin(mut call: ProcessCall, text: &str) -> ProcessCall {
    call.stdin = Stdin(vec![Chunk::Text(Arc::from(text))]);
    call
}

/// The text of a value, from a process that succeeded.
pub(crate) fn value(end: &ProcessEnd) -> String {
    assert_eq!(end.exit, Exit::Status(0), "{end:?}");
    json(end).text().expect("readable").to_string()
}

pub(crate) fn json(end: &ProcessEnd) -> &Json {
    match &end.stdout {
        Stdout::Value(json) => json,
        Stdout::Unusable { problem, found } => panic!("{problem}: {found}; {end:?}"),
    }
}

pub(crate) fn not_started(end: &ProcessEnd) -> &str {
    match &end.exit {
        Exit::NotStarted(why) => why,
        exit => panic!("it was started: {exit:?}"),
    }
}

pub(crate) fn is_alive(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid).is_ok()
}

/// Waits until `holds`. Fails a test that would wait for ever.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANGS, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends the whole test program if `work` hangs: a thread that hangs cannot be ended alone.
pub(crate) fn with_time_limit<T>(work: impl FnOnce() -> T) -> T {
    let (done, waits) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waits.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a process was not ended within {HANGS:?}");
            std::process::exit(101);
        }
    });
    let result = work();
    drop(done);
    result
}

/// Runs the ignored test `name` of this program in a process of its own. Returns its output.
pub(crate) fn in_own_process(name: &str, env: &[(&str, &str)]) -> std::process::Output {
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(program);
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    let ran = command.envs(env.iter().copied()).output().expect("started");
    let printed = String::from_utf8_lossy(&ran.stdout);
    // A test that ends the process prints no result.
    assert!(printed.contains("running 1 test\n"), "there is no test `{name}`: {printed}");
    ran
}
