//! File tools while another thread swaps directories for links.
//!
//! Nothing here waits for a swap: a correct tool passes whenever the swaps come.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use etude_tools::confine::PathArgument;
use etude_tools::pattern::{AllowedTools, Subject, Verdict};
use etude_tools::{CallContext, ToolResult, ToolSet};
use serde_json::{Value, json};

use crate::fixture::App;

/// Number of repetitions of each call.
const ROUNDS: usize = 200;

/// Exchanges pairs of names again and again until dropped.
struct Swaps {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Swaps {
    fn of(pairs: Vec<[PathBuf; 2]>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut swaps = 0;
            while !theirs.load(Ordering::Relaxed) {
                for [one, other] in &pairs {
                    exchange(one, other);
                    swaps += 1;
                }
            }
            swaps
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swaps {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let swaps = self.thread.take().map(|thread| thread.join().expect("it swaps to the end"));
        println!("{} swaps", swaps.unwrap_or_default());
    }
}

#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("exchanged");
}

#[cfg(not(target_os = "linux"))]
fn exchange(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    for (from, to) in [(one, aside.as_path()), (other, one), (aside.as_path(), other)] {
        fs::rename(from, to).expect("renamed");
    }
}

/// An app with `notes/sub` and `file`, each beside a link of the other kind. A directory outside contains the canary.
fn app() -> (App, PathBuf) {
    let app = App::new();
    let outside = app.path().with_file_name("elsewhere");
    fs::create_dir_all(outside.join("deep")).expect("made");
    for file in ["canary", "file", "deep/canary"] {
        fs::write(outside.join(file), "CANARY\n").expect("written");
    }
    app.write("notes/sub/file", "inside\n").write("notes/sub/deep/file", "inside\n").write("file", "inside\n");
    app.write("etude.yaml", "kept\n");
    symlink(&outside, app.path().join("notes/link")).expect("linked");
    symlink(outside.join("canary"), app.path().join("filelink")).expect("linked");
    symlink("..", app.path().join("notes/up")).expect("linked");
    app.write("notes/real/etude.yaml", "a note\n");
    (app, outside)
}

fn swaps(app: &App) -> Swaps {
    let pair = |one: &str, other: &str| [app.path().join(one), app.path().join(other)];
    Swaps::of(vec![pair("notes/sub", "notes/link"), pair("file", "filelink"), pair("notes/up", "notes/real")])
}

async fn call(tools: &ToolSet, name: &str, args: &Value, path: Option<Arc<PathArgument>>) -> ToolResult {
    let found = tools.find(name).await.expect("a tool");
    let args = args.as_object().cloned().expect("an object");
    found.call(Arc::new(args.into()), CallContext { path, ..CallContext::default() }).await
}

/// All files below a directory, with contents.
fn state(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("read").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(state(&path)),
            path => found.push((path.clone(), fs::read(&path).expect("read"))),
        }
    }
    found.sort();
    found
}

/// nothing outside is read, named or written, whatever is swapped during a call.
#[tokio::test]
async fn nothing_outside_is_touched_under_link_swaps() {
    let (app, outside) = app();
    let before = state(&outside);
    let tools = app.tools();
    let calls = [
        ("Read", json!({"path": "notes/sub/file"})),
        ("Read", json!({"path": "file"})),
        ("Write", json!({"path": "notes/sub/written", "content": "x"})),
        ("Write", json!({"path": "notes/sub/new/written", "content": "x"})),
        ("Edit", json!({"path": "notes/sub/file", "old_string": "inside", "new_string": "inside"})),
        ("Edit", json!({"path": "notes/sub/file", "old_string": "CANARY", "new_string": "x"})),
        ("Glob", json!({"pattern": "**"})),
        ("Glob", json!({"pattern": "*", "path": "notes/sub"})),
        ("Grep", json!({"pattern": "[A-Z]{6}"})),
        ("Grep", json!({"pattern": "[A-Z]{6}", "path": "notes/sub", "mode": "files"})),
        ("List", json!({"depth": 5})),
        ("List", json!({"path": "notes/sub", "depth": 3})),
    ];
    let (mut made, mut leaks) = (0, Vec::new());
    let swaps = swaps(&app);
    for _ in 0..ROUNDS {
        for (name, args) in &calls {
            let result = call(&tools, name, args, None).await;
            made += 1;
            // The target of a link inside is shown; its content is not.
            let shown = result.content.replace("elsewhere/canary", "");
            if shown.contains("canary") || shown.contains("CANARY\n") || shown.contains(": CANARY") {
                leaks.push(format!("{name}: {shown}"));
            }
        }
    }
    drop(swaps);
    println!("{made} calls, {} leaks", leaks.len());
    assert_eq!(leaks, Vec::<String>::new());
    assert!(state(&outside) == before, "nothing outside was written");
}

/// the path that a pattern allows is the one that is written, whatever is swapped between the decision and the call.
#[tokio::test]
async fn what_was_judged_is_what_is_written_under_link_swaps() {
    let (app, _) = app();
    let tools = app.tools();
    let list = AllowedTools::parse("Write(notes/**)");
    let args = json!({"path": "notes/up/etude.yaml", "content": "overwritten\n"});
    let found = tools.find("Write").await.expect("a tool");
    let map = args.as_object().cloned().expect("an object");
    let swaps = swaps(&app);
    let (mut allowed, mut refused) = (0, 0);
    for _ in 0..4 * ROUNDS {
        let path = found.tool.path(&map).map(|path| Arc::new(tools.roots().resolve(path)));
        match list.verdict(&Subject::of(&found.tool, &map, tools.roots(), path.as_ref())) {
            Verdict::Allow => {
                allowed += 1;
                call(&tools, "Write", &args, path).await;
            }
            _ => refused += 1,
        }
        assert_eq!(app.read("etude.yaml"), "kept\n");
    }
    drop(swaps);
    println!("{allowed} allowed, {refused} not");
}

/// ignore files that are links, pipes or endless are skipped without blocking.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn ignore_files_that_are_no_files_are_passed_over() {
    let app = App::new();
    app.write("a/file", "x").write("b/file", "x").write("c/file", "x").write("c/.gitignore", "file\n");
    symlink("/dev/zero", app.path().join(".gitignore")).expect("linked");
    symlink("../c/.gitignore", app.path().join("a/.gitignore")).expect("linked");
    rustix::fs::mkfifoat(rustix::fs::CWD, app.path().join("b/.ignore"), rustix::fs::Mode::RWXU).expect("made");
    let found = app.ok("Glob", json!({"pattern": "file"})).await;
    assert_eq!(found, "a/file\nb/file");
}

/// ignore files apply to everything below them, the nearest wins, and those of a repository end at its root.
#[tokio::test]
async fn ignore_files_hold_as_in_git() {
    let app = App::new();
    app.write(".gitignore", "*.log\n/top\nbuild/\n")
        .write("in/.gitignore", "!kept.log\n")
        .write("in/.ignore", "aside\n");
    for file in ["a.log", "top", "in/kept.log", "in/b.log", "in/top", "in/aside", "build/x", "in/build/x"] {
        app.write(file, "x");
    }
    app.write("repo/.git/info/exclude", "excluded\n").write("repo/excluded", "x").write("repo/c.log", "x");
    let all = "in/kept.log\nin/top\nrepo/c.log";
    let found = app.ok("Glob", json!({"pattern": "*"})).await;
    assert_eq!(found, format!(".gitignore\nin/.gitignore\nin/.ignore\n{all}"));
    assert_eq!(
        app.ok("Glob", json!({"pattern": "*", "path": "in"})).await,
        "in/.gitignore\nin/.ignore\nin/kept.log\nin/top"
    );
}

/// folders that nest without end are an error, not an exhaustion of descriptors.
#[tokio::test]
async fn folders_nested_too_deep_are_an_error() {
    let app = App::new();
    app.write(&format!("{}file", "d/".repeat(200)), "x");
    let (_, content) = app.error("Glob", json!({"pattern": "file"})).await;
    assert!(content.contains("more than 128 deep"), "{content}");
}
