//! Policies about commands, with the shells that run them as oracles: an allowed line runs nothing else, and a denied command
//! does not run.
//!
//! `ETUDE_SHELL_LINES` is the number of lines, `ETUDE_SHELL_SEED` the seed of the first one.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use etude_tools::pattern::{Subject, Verdict};
use etude_tools::tool::{ApprovalKey, Effect, Origin, Tool};
use etude_tools::{AllowedTools, Roots};
use fastrand::Rng;
use serde_json::json;

use crate::shell_lines::{PROGRAMS, Taste, line};

/// Allowed commands: `git` with any arguments, the others exactly, and builtins that run nothing.
const ALLOWED: &str = "Bash(git *) Bash(wc) Bash(ls -l *) Bash(A=1 make *) Bash(echo *) Bash(printf *) Bash(test *) Bash([ *) \
    Bash(cd *) Bash(true) Bash(wait *)";

const DENIED: &str = "Bash Bash(rm *, $deny) Bash(touch *, $deny)";

/// A folder with nothing but programs that record their calls.
struct Sandbox {
    dir: tempfile::TempDir,
    shells: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct Count {
    lines: usize,
    executed: usize,
    ran: usize,
    stopped: usize,
}

impl Sandbox {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        fs::create_dir(dir.path().join("bin")).expect("bin");
        for program in PROGRAMS {
            let file = dir.path().join("bin").join(program);
            // One write, so that the programs of a pipe do not mix.
            let end = "\u{1e}";
            let text =
                format!("#!/bin/sh\nprintf '%s\\037' \"${{0##*/}}\" \"$A\" \"$@\" '{end}' >> '{}'\n", log.display());
            fs::write(&file, text).expect("a program");
            fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
        }
        let shells = ["/bin/sh", "/bin/dash", "/bin/bash"].map(PathBuf::from);
        let mut shells: Vec<PathBuf> = shells.into_iter().filter(|shell| shell.exists()).collect();
        shells.dedup_by_key(|shell| shell.canonicalize().expect("a shell"));
        Self { dir, shells }
    }

    /// The argument lists of the programs that a line runs; the second member is the variable `A`.
    fn run(&self, shell: &Path, line: &str, count: &mut Count) -> Vec<Vec<String>> {
        // A background process of a line may still write into its directory, so each line has its own.
        let (log, work) = (self.dir.path().join("log"), self.dir.path().join(format!("work-{}", count.executed)));
        let _ = fs::remove_file(&log);
        fs::create_dir(&work).expect("an empty directory");
        let mut command = Command::new(shell);
        command.arg("-c").arg(line).current_dir(&work).env_clear().process_group(0);
        command.env("PATH", self.dir.path().join("bin")).env("HOME", &work).env("x", "canary");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell");
        // A line that never ends is stopped; its calls until then count.
        let (ended, watch) = mpsc::channel::<()>();
        let group = rustix::process::Pid::from_child(&child);
        let watcher = thread::spawn(move || {
            let is_late = watch.recv_timeout(Duration::from_secs(2)) == Err(mpsc::RecvTimeoutError::Timeout);
            is_late && rustix::process::kill_process_group(group, rustix::process::Signal::KILL).is_ok()
        });
        child.wait().expect("a status");
        drop(ended);
        count.stopped += usize::from(watcher.join().expect("the watcher"));
        count.executed += 1;
        let _ = fs::remove_dir_all(&work);
        let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let calls = text.split("\u{1e}\u{1f}").filter(|call| !call.is_empty());
        let calls: Vec<Vec<String>> =
            calls.map(|call| call.split_terminator('\u{1f}').map(str::to_owned).collect()).collect();
        count.ran += calls.len();
        calls
    }

    /// Generates lines and runs those whose verdict satisfies `is_run`, with each shell. Every call must satisfy `is_fine`.
    fn check(&self, list: &str, taste: Taste, is_run: fn(Verdict) -> bool, is_fine: fn(&[String]) -> bool) -> Count {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let (lines, seed) = (number("ETUDE_SHELL_LINES").unwrap_or(1_000), number("ETUDE_SHELL_SEED").unwrap_or(1));
        let mut rng = Rng::with_seed(seed);
        let list = AllowedTools::parse(list);
        let roots = Roots::new(self.dir.path(), &[], &[]).expect("roots");
        let mut tool = Tool::new("Bash", "", json!({"properties": {"command": {}}}), Effect::Executes, Origin::BuiltIn);
        tool.approval_key = ApprovalKey::Command("command");
        let mut count = Count::default();
        let mut wrong = Vec::new();
        for _ in 0..lines {
            let line = line(&mut rng, taste);
            let args = json!({"command": line}).as_object().cloned().expect("an object");
            count.lines += 1;
            if !is_run(list.verdict(&Subject::new(&tool, &args, &roots))) {
                continue;
            }
            for shell in &self.shells {
                let calls = self.run(shell, &line, &mut count);
                if let Some(call) = calls.iter().find(|call| !is_fine(call)) {
                    wrong.push(format!("{}: {line:?} ran {call:?}", shell.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {} lines:\n{}", wrong.len(), count.lines, wrong.join("\n"));
        count
    }
}

/// True if the call is in [`ALLOWED`].
fn is_let_through(call: &[String]) -> bool {
    match (call[0].as_str(), call[1].as_str(), &call[2..]) {
        ("git", "", _) | ("wc", "", []) | ("make", "1", _) => true,
        ("ls", "", [first, ..]) => first == "-l",
        _ => false,
    }
}

/// ADR 0054: a command that the policy allows never executes a program outside the pattern.
#[test]
fn what_a_policy_lets_through_runs_nothing_else() {
    let sandbox = Sandbox::new();
    let started = Instant::now();
    let taste = Taste { programs: &["git", "git", "git", "echo", "wc", "true", "printf", "A=1 make"], plain: 24 };
    let count = sandbox.check(ALLOWED, taste, |verdict| verdict == Verdict::Allow, is_let_through);
    println!("let through: {count:?} with {:?} in {:?}", sandbox.shells, started.elapsed());
    assert!(count.executed > count.lines / 20, "too few lines are let through to show anything: {count:?}");
}

/// ADR 0054: a command that the policy denies does not run, in any spelling.
#[test]
fn what_a_policy_denies_does_not_run() {
    let sandbox = Sandbox::new();
    let started = Instant::now();
    let taste = Taste { programs: &["git", "git", "ls", "wc", "echo", "rm", "canary"], plain: 12 };
    let is_fine = |call: &[String]| call[0] != "rm" && call[0] != "touch";
    let count = sandbox.check(DENIED, taste, |verdict| verdict != Verdict::Deny && verdict != Verdict::Ask, is_fine);
    println!("not denied: {count:?} with {:?} in {:?}", sandbox.shells, started.elapsed());
    assert!(count.executed > count.lines / 20, "too few lines are not denied to show anything: {count:?}");
}
