//! The whole program against its floors, in the same run: what is quoted is the ratio of medians.
//!
//! - start: `etude --version` against `true`;
//! - steps: a pipeline of 1,000 code steps against a bare loop that spawns the same processes and pipes the same bytes;
//! - list: `etude list` over 10,000 pipelines against reading their files;
//! - skills: `etude skill list` over 5,000 skills against reading their files;
//! - check: `etude check` over 1,000 skills of a project, chains included, against reading their files.
//!
//! `cargo bench -p etude-cli --bench floors [-- start|steps|list|skills|check]`

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STEPS: usize = 1_000;
const PIPELINES: usize = 10_000;
const SKILLS: usize = 5_000;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let dir = tempfile::tempdir().expect("a temporary directory");
    if is_wanted("start") {
        start(dir.path());
    }
    if is_wanted("steps") {
        steps(dir.path());
    }
    if is_wanted("list") {
        list(dir.path());
    }
    if is_wanted("skills") {
        skills(dir.path());
    }
    if is_wanted("check") {
        check(dir.path());
    }
}

/// Runs two things in turn, so that both meet the same noise, and prints their medians.
fn compare(name: &str, rounds: usize, mut ours: impl FnMut(), mut floor: impl FnMut()) {
    let mut times = [Vec::new(), Vec::new()];
    ours();
    floor();
    for _ in 0..rounds {
        for (at, run) in [&mut ours as &mut dyn FnMut(), &mut floor].into_iter().enumerate() {
            let begin = Instant::now();
            run();
            times[at].push(begin.elapsed());
        }
    }
    let [a, b] = times.map(median);
    let ratio = a.as_secs_f64() / b.as_secs_f64();
    println!("{name:<44} {a:>10.2?}   floor {b:>10.2?}   ratio {ratio:.2}   difference {:.2?}", a.saturating_sub(b));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn etude(home: &Path, args: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_etude"))
        .args(args)
        .env("HOME", home)
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "etude {args:?} failed");
}

fn start(home: &Path) {
    let floor = || assert!(Command::new("true").status().is_ok_and(|s| s.success()));
    compare("etude --version / true", 100, || etude(home, &["--version"]), floor);
}

fn steps(home: &Path) {
    let app = home.join("steps");
    let dir = app.join("pipelines/chain");
    fs::create_dir_all(&dir).expect("a directory");
    let mut yaml = "name: chain\ndescription: many small steps\nsteps:\n".to_owned();
    for step in 0..STEPS {
        yaml.push_str(&format!("  - name: s{step}\n    type: code\n    command: cat out.json\n"));
    }
    fs::write(dir.join("pipeline.yaml"), yaml).expect("a file");
    fs::write(dir.join("out.json"), r#"{"output": {"n": 1}}"#).expect("a file");
    let app = app.display().to_string();
    let ours = || etude(home, &["run", "-C", &app, "--pipeline", "chain", "--quiet"]);
    compare("1,000 code steps / bare loop", 7, ours, || bare_loop(&dir));
}

/// What the steps are given and print, without a runner: no journal, no checks, no groups.
fn bare_loop(dir: &Path) {
    let mut members = String::new();
    for step in 0..STEPS {
        let stdin = format!(r#"{{"input":{{}},"steps":{{{members}}}}}"#);
        let mut child = Command::new("cat")
            .arg("out.json")
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        // A step that does not read its stdin may be gone already.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(stdin.as_bytes()));
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut stdout));
        child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut stderr));
        assert!(child.wait().is_ok_and(|status| status.success()));
        members.push_str(&format!(r#"{}"s{step}":{{"output":{{"n": 1}}}}"#, if step == 0 { "" } else { "," }));
    }
}

fn list(home: &Path) {
    let app = home.join("list");
    for at in 0..PIPELINES {
        let dir = app.join(format!("pipelines/p{at:05}"));
        fs::create_dir_all(&dir).expect("a directory");
        let text = format!(
            "name: p{at:05}\ndescription: \"Do the thing number {at} and report what came of it\"\ntriggers:\n  - \"do thing {at}\"\n  - \"thing {at} please\"\ninput:\n  path: string\nsteps:\n  - name: fetch\n    type: code\n    command: \"sh steps/fetch.sh\"\n  - name: explain\n    type: llm\n    prompt: \"Explain {{{{fetch.output}}}} of {{{{input.path}}}}\"\n"
        );
        fs::write(dir.join("pipeline.yaml"), text).expect("a file");
        fs::create_dir_all(dir.join("steps")).expect("a directory");
        fs::write(dir.join("steps/fetch.sh"), "cat\n").expect("a file");
    }
    let path = app.display().to_string();
    compare(
        "etude list over 10,000 pipelines / reading",
        7,
        || etude(home, &["list", "-C", &path, "--format", "json"]),
        || {
            let mut bytes = 0;
            for entry in fs::read_dir(app.join("pipelines")).expect("the pipelines") {
                bytes += fs::read(entry.expect("an entry").path().join("pipeline.yaml")).expect("a file").len();
            }
            assert!(bytes > PIPELINES * 100);
        },
    );
}

fn skills(home: &Path) {
    let root = home.join(".agents/skills");
    for at in 0..SKILLS {
        let dir = root.join(format!("skill-{at:05}"));
        fs::create_dir_all(dir.join("references")).expect("a directory");
        let body = "Do the thing, one step after the other, and say what came of it.\n".repeat(60);
        let text = format!(
            "---\nname: skill-{at:05}\ndescription: Does the thing number {at} and reports what came of it. Use when somebody asks for thing {at}, or for anything like it.\nlicense: MIT\nmetadata:\n  author: somebody\n  version: \"1.0\"\n---\n# Thing {at}\n\n{body}"
        );
        fs::write(dir.join("SKILL.md"), text).expect("a file");
        fs::write(dir.join("references/more.md"), "more\n").expect("a file");
    }
    let start = home.join("elsewhere");
    fs::create_dir_all(&start).expect("a directory");
    let start = start.display().to_string();
    compare(
        "etude skill list over 5,000 skills / reading",
        7,
        || etude(home, &["skill", "list", "-C", &start, "--format", "json"]),
        || {
            let mut bytes = 0;
            for entry in fs::read_dir(&root).expect("the skills") {
                bytes += fs::read(entry.expect("an entry").path().join("SKILL.md")).expect("a file").len();
            }
            assert!(bytes > SKILLS * 1_000);
        },
    );
}

fn check(home: &Path) {
    let app = home.join("check");
    fs::create_dir_all(app.join("skills")).expect("a directory");
    fs::create_dir_all(app.join("pipelines")).expect("a directory");
    let main = "---\nname: app\nmetadata:\n  role: main\n  paths: [./skills]\n  limit: {rpm: 3}\n---\n";
    fs::write(app.join("app.skill.md"), main).expect("a file");
    fs::write(app.join("skills/limit.skill.md"), "---\nname: limit\nmetadata: {role: middleware}\n---\n")
        .expect("a file");
    for at in 0..1_000 {
        let parent = if at > 0 && at % 3 == 0 { "  $inherit: skill-1\n" } else { "" };
        let text = format!(
            "---\nname: skill-{at}\ndescription: Does the thing number {at}.\nallowed-tools: file-* shell(cmd=ls)\nmetadata:\n{parent}  \
             params:\n    type: object\n    required: [who]\n    properties:\n      who: {{type: string}}\n  include: notes-{at}.md\n  \
             tags: [a, b]\n---\n\n{}",
            "Some instructions of a usual length, line by line, for a model that reads them.\n".repeat(20)
        );
        fs::write(app.join(format!("skills/skill-{at}.skill.md")), text).expect("a file");
    }
    let path = app.display().to_string();
    compare(
        "etude check over 1,000 skills / reading",
        31,
        || etude(home, &["check", "-C", &path]),
        || {
            let entries = fs::read_dir(app.join("skills")).expect("the skills").flatten();
            let bytes: usize = entries.map(|entry| fs::read(entry.path()).expect("a file").len()).sum();
            assert!(bytes > 1_000_000);
        },
    );
}
