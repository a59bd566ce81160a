//! Isolation of runs of an untrusted queue on one worker (K-55).

use serde_json::{Value, json};

use crate::database::Server;
use crate::fleet::{apply, fleet};
use crate::sandbox::is_supported;
use crate::test::{Test, wait_until};

/// Status and output of a run.
fn shown(test: &Test, id: &str) -> (Value, Value) {
    let document = test.run(&["runs", "show", id, "--format", "json"]).value();
    (document["status"].clone(), document["output"].clone())
}

/// The process whose command line has this word, but not one that it has just forked.
fn process_with(word: &str) -> Option<String> {
    let read = |pid: &str, name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok().filter(|name| name.parse::<u32>().is_ok()))
        .filter(|pid| String::from_utf8_lossy(&read(pid, "cmdline")).contains(word))
        .collect();
    let parent = |pid: &str| {
        let stat = String::from_utf8_lossy(&read(pid, "stat")).into_owned();
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).map(str::to_owned)
    };
    all.iter().find(|pid| parent(pid).is_some_and(|parent| !all.contains(&parent))).cloned()
}

/// K-55: two runs of an untrusted queue, of different tenants, cannot see each other's files and processes on the worker that
/// drives both, whatever one knows of the other and writes into `PATH`. In another queue, the same attempts succeed.
#[test]
fn runs_of_an_untrusted_queue_see_nothing_of_each_other() {
    if !is_supported() {
        return;
    }
    let Some(server) = Server::start() else { return };
    let owner = fleet(&server, Test::new());
    apply(&owner, "queues: {default: {}, guests: {untrusted: true}}\n");
    server.sql("create role acme login; create role globex login; create role carrier login");
    for (kind, role) in [("tenant", "acme"), ("tenant", "globex"), ("worker", "carrier")] {
        owner.run(&["engine", "grant", kind, role]).exit(0);
    }
    let of =
        |test: Test, role: &str| test.env("ETUDE_ENGINE", &server.url("etude").replace("etude@", &format!("{role}@")));
    let worker = of(Test::new(), "carrier");
    let state = worker.path("state");
    let worker = worker.env("XDG_STATE_HOME", &state.display().to_string());
    let runs = state.join("etude/fleet/runs").display().to_string();
    // The word occurs in one command line, and in none of the spy's.
    let word = format!("canary-{}-end", std::process::id());
    let waits = r#"until [ -e "$ROOT/go" ]; do sleep 0.05; done; echo "{\"output\": 1}""#;
    let victim = Test::new()
        .file("secret.txt", "of acme\n")
        .pipeline("p", |p| p.sh_with("a", &format!("exec sh -c '{waits}' {word}"), "sandbox: {}\n"));
    let spy = format!(
        r#"look() {{ if "$@" > /dev/null 2>&1; then echo true; else echo false; fi; }}
printf '{{"output": {{"app": %s, "runs": %s, "lines": %s, "line": %s, "processes": %s, "environment": %s}}}}' \
    "$(look cat "{runs}/$RUN/"*/app/secret.txt)" "$(look ls "{runs}")" "$(look grep -qs '[c]{}' /proc/[0-9]*/cmdline)" \
    "$(look cat "/proc/$VICTIM/cmdline")" "$(look ls /proc)" "$(look cat "/proc/$VICTIM/environ")"
"#,
        &word[1..]
    );
    let fields = format!(
        "sandbox: {{}}\nenv: {{RUN: \"{{{{input.run}}}}\", VICTIM: \"{{{{input.victim}}}}\", PATH: \"/usr/bin:/bin:{runs}\"}}\n"
    );
    let spy = Test::new()
        .pipeline("p", |p| p.with("input: {run: {type: string}, victim: {type: string}}").sh_with("a", &spy, &fields));
    let (acme, globex) = (of(victim, "acme"), of(spy, "globex"));
    let submit = |test: &Test, more: &[&str]| {
        test.run(&[&["run", "-p", "p", "--detach", "--format", "json"], more].concat()).exit(0).id()
    };
    let running = worker.start(&["worker", "--queue", "guests", "--queue", "default", "--format", "jsonl"]);
    let id = submit(&acme, &["--queue", "guests"]);
    let mut pid = None;
    wait_until("the step of the other tenant", || {
        pid = process_with(&word);
        pid.is_some()
    });
    let pid = pid.expect("it waits");
    let mut found = Vec::new();
    for queue in ["default", "guests"] {
        let spying = submit(&globex, &["--queue", queue, "-i", &format!("run={id}"), "-i", &format!("victim={pid}")]);
        wait_until("the end of the spy", || {
            shown(&globex, &spying).0 != "queued" && shown(&globex, &spying).0 != "running"
        });
        found.push(shown(&globex, &spying));
    }
    let seen = |is_seen: bool| {
        let attempts = ["app", "runs", "lines", "line", "processes"].map(|name| (name.to_owned(), json!(is_seen)));
        let all: serde_json::Map<String, Value> =
            attempts.into_iter().chain([("environment".to_owned(), json!(false))]).collect();
        (json!("succeeded"), Value::Object(all))
    };
    assert_eq!(found, [seen(true), seen(false)]);
    worker.put("go", "");
    wait_until("the end of the other run", || shown(&acme, &id).0 == "succeeded");
    running.terminate();
    running.finish().exit(0);
}
