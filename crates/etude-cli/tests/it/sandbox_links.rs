//! Sandboxes while another process replaces the directories that they name with links.
//!
//! No test waits for a swap: a correct sandbox passes whenever one occurs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use etude_core::effect::{Command, ProcessCall, Protocol, Sandbox, Setting, Stdin, Worker};
use etude_core::outcome::{Exit, ProcessEnd, Stdout};
use etude_process::blob::FileBlobs;
use etude_process::sandbox::{self, SandboxPolicy, SandboxSettings};
use etude_process::{Cancel, ChildEnvironment, HostSettings, ProcessHost, Redaction};

use crate::test::{binary, skipped};

/// The number of processes that make an attempt.
const TRIES: usize = 100;

/// An app beside a directory that must stay out of its reach.
struct Disk {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        for made in ["app/p/out", "app/p/data", "app/p/made", "app/q", "outside/p", "scratch"] {
            fs::create_dir_all(root.join(made)).expect("made");
        }
        fs::write(root.join("outside/secret"), "CANARY").expect("written");
        fs::write(root.join("app/p/data/secret"), "own").expect("written");
        for link in ["app/p/out-link", "app/p/data-link", "app/p/made-link"] {
            symlink(root.join("outside"), root.join(link)).expect("linked");
        }
        symlink("../outside/p", root.join("app/q-link")).expect("linked");
        Self { dir, root }
    }

    fn host(&self) -> ProcessHost {
        let settings = HostSettings {
            run_id: format!("test-{}", self.dir.path().display()),
            app_dir: self.root.join("app"),
            blobs: Arc::new(FileBlobs::new(self.root.join("blobs"), false)),
        };
        let scratch = self.root.join("scratch");
        let sandboxes =
            SandboxPolicy::Enforced(SandboxSettings { program: binary().into(), scratch, is_isolated: false });
        let environment = ChildEnvironment::without_keys(&[]);
        ProcessHost::builder(settings, environment, Redaction::NoSecrets, sandboxes).build()
    }

    /// The names outside the app.
    fn outside(&self) -> Vec<String> {
        let names = fs::read_dir(self.root.join("outside")).expect("read").flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Exchanges names until it is dropped.
struct Swaps(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Swaps {
    fn of(pairs: Vec<[PathBuf; 2]>) -> Self {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let swap = move || {
            while !theirs.load(Ordering::Relaxed) {
                for [one, other] in &pairs {
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("exchanged");
                }
            }
        };
        Self(stop, Some(thread::spawn(swap)))
    }
}

impl Drop for Swaps {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().map(JoinHandle::join).transpose().expect("it swaps to the end");
    }
}

fn call(dir: &str, script: &str, outside: &Path, n: usize, worker: Option<Worker>) -> ProcessCall {
    let words = ["python3", "-c", script, &outside.to_string_lossy(), &n.to_string()];
    let own = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let sandbox = Sandbox { network: false, read: own(&["../p/data"]), write: own(&["../p/out", "../p/made/new"]) };
    ProcessCall {
        command: Command::Direct(words.map(str::to_owned).to_vec()),
        dir: dir.to_owned(),
        env: Vec::new(),
        key: format!("try{n}"),
        attempt: 1,
        stdin: Stdin::default(),
        protocol: Protocol::Document,
        setting: Setting { worker, sandbox: Some(Box::new(sandbox)), ..Setting::default() },
    }
}

const SCRIPT: &str = "import os, sys, json\n\
    outside, n = sys.argv[1:]\n\
    got = []\n\
    for path in [outside + '/secret', '../p/data/secret', '../outside/secret']:\n    \
        try: got.append(open(path).read())\n    \
        except OSError: pass\n\
    for path in [outside + '/escaped' + n, '../p/out/written' + n, 'relative' + n]:\n    \
        try: open(path, 'w').write('x')\n    \
        except OSError: pass\n\
    print(json.dumps(got))";

fn is_read(end: &ProcessEnd) -> bool {
    match &end.stdout {
        Stdout::Value(json) => json.value().is_ok_and(|value| value.to_string().contains("CANARY")),
        Stdout::Unusable { .. } => false,
    }
}

/// a sandboxed process reads, writes and creates nothing outside, whatever a parallel step swaps while the sandbox is
/// made.
#[test]
fn a_parallel_step_that_swaps_links_opens_no_sandbox() {
    if let Err(why) = sandbox::support() {
        assert!(std::env::var_os("ETUDE_REQUIRE_SANDBOX").is_none(), "{why}");
        return skipped("what a sandbox enforces under link swaps", &why);
    }
    for worker in [None, Some(Worker::Python)] {
        let disk = Disk::new();
        let host = disk.host();
        let path = |name: &str| disk.root.join(name);
        let pairs = ["app/p/out", "app/p/data", "app/p/made", "app/q"];
        let pairs = pairs.map(|name| [path(name), path(&format!("{name}-link"))]).to_vec();
        let swaps = Swaps::of(pairs);
        let (mut ran, mut refused, mut read) = (0, 0, 0);
        for n in 0..TRIES {
            let call = call("q", SCRIPT, &path("outside"), n, worker);
            let end = host.run(&call, &Cancel::new(), &mut |_| {}).expect("not cancelled");
            match &end.exit {
                Exit::NotStarted(why) => {
                    assert!(why.contains("leads out of the app") || why.contains("changes too often to read"), "{why}");
                    refused += 1;
                }
                Exit::Status(0) => ran += 1,
                other => panic!("{other:?}: {end:?}"),
            }
            read += usize::from(is_read(&end));
        }
        drop(swaps);
        println!("{TRIES} tries, worker {worker:?}: {ran} ran, {refused} refused, {read} have read what is outside");
        assert_eq!((read, disk.outside()), (0, vec!["p".to_owned(), "secret".to_owned()]));
        assert_eq!(fs::read_dir(path("outside/p")).expect("read").count(), 0);
    }
}

/// the rights of a sandboxed process to a declared directory apply to the directory that existed when the process began.
#[test]
fn what_is_declared_is_opened_once() {
    if sandbox::support().is_err() {
        return skipped("what a sandbox enforces", "it cannot be enforced here");
    }
    let disk = Disk::new();
    let script = "import os, sys, json\n\
        open('../p/out/written', 'w').write('x')\n\
        open('../p/made/new/written', 'w').write('x')\n\
        print(json.dumps([open('../p/data/secret').read(), os.getcwd()]))";
    for worker in [None, Some(Worker::Python)] {
        let end = disk.host().run(&call("q", script, &disk.root, 0, worker), &Cancel::new(), &mut |_| {});
        let end = end.expect("not cancelled");
        assert_eq!(end.exit, Exit::Status(0), "{}", end.stderr.tail);
        for written in ["app/p/out/written", "app/p/made/new/written"] {
            fs::remove_file(disk.root.join(written)).expect("written");
        }
        let Stdout::Value(json) = end.stdout else { panic!("no value") };
        let cwd = disk.root.join("app/q").to_string_lossy().into_owned();
        assert_eq!(json.value().expect("a value"), serde_json::json!(["own", cwd]));
    }
}
