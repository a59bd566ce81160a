//! Screenshots of all pages, for review by people: `.ci/pictures DIR`.

use std::path::Path;

use base64::Engine as _;
use etude_runtime::engine::{Entry, Expected, Ledger as _, Write};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::Running;

/// A small app that fills all pages: fan-out, a rejected response, a failure, a question, a run in progress.
pub(crate) fn demo() -> Running {
    let server = Running::with_model(say, |settings| {
        let shop =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/change").canonicalize().expect("an example");
        settings.apps.push(etude_server::ServedApp { slug: "change".to_owned(), dir: shop });
        let support = settings.apps[0].dir.with_file_name("support");
        copy(Path::new(SUPPORT), &support);
        settings.apps.push(etude_server::ServedApp { slug: "support".to_owned(), dir: support });
    });
    let write = |path: &str, text: &str| {
        let file = server.dir().join("demo").join(path);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        std::fs::write(file, text).expect("written");
    };
    for (path, text) in FILES {
        write(path, text);
    }
    crate::learned::write(&server);
    server
}

/// The runs of the demo, with at least one in each state.
pub(crate) fn runs(server: &Running) -> Vec<Value> {
    let start = |body: Value| server.run(&body);
    let background = |body: Value| server.send("POST", "/v1/runs", Some(&body)).json();
    for day in 0..6 {
        start(
            json!({"app": "demo", "pipeline": "sort-mail", "input": {"inbox": "support", "limit": 2 + day % 3}, "labels": {"inbox": "support"}}),
        );
    }
    let mut all = vec![
        start(
            json!({"app": "demo", "pipeline": "code-review", "input": {"repo": "web", "range": "main..HEAD"}, "labels": {"repo": "web", "pr": "1186"}}),
        ),
        start(
            json!({"app": "demo", "pipeline": "code-review", "input": {"repo": "api", "range": "main..HEAD"}, "labels": {"repo": "api", "pr": "2290"}}),
        ),
        start(json!({"app": "demo", "pipeline": "reminders", "input": {"count": 214}})),
        start(
            json!({"app": "demo", "pipeline": "deploy", "input": {"service": "api", "version": "4.18.2"}, "labels": {"env": "production", "version": "4.18.2"}}),
        ),
        start(
            json!({"app": "demo", "pipeline": "sort-mail", "input": {"inbox": "support", "limit": 4}, "labels": {"inbox": "support"}}),
        ),
        background(json!({"app": "demo", "pipeline": "wait", "labels": {"env": "staging"}})),
        background(json!({"app": "demo", "pipeline": "wait", "not_before": "2199-01-01T00:00:00Z"})),
    ];
    server.until(all[5]["run_id"].as_str().expect("an id"), &["running"]);
    all.reverse();
    automation(server, all[2]["run_id"].as_str().expect("an id"));
    all
}

/// Ticks, deliveries and notices, as servers have written them over the last weeks.
fn automation(server: &Running, run: &str) {
    let journal = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = etude_sqlite::Sqlite::open(journal).expect("the journal");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let app = server.dir().join("demo").canonicalize().expect("an app");
    let now = jiff::Timestamp::now().as_millisecond();
    let put = |book: &str, key: String, at_ms: i64, state: &str, body: Value| {
        let run_id = matches!(state, "ran" | "accepted" | "delivered" | "failed").then(|| run.to_owned());
        let (kind, name) = book.split_once(' ').expect("a kind");
        let (book, body, state) = (format!("{kind} {} {name}", app.display()), body.to_string(), state.to_owned());
        let entry = Entry { book, key, at_ms, state, run_id, body, ..Entry::default() };
        let write = Write { entry, expected: Expected::Anything, submission: None, is_alone: false };
        runtime.block_on(engine.write(&write)).expect("written");
    };
    const DAY: i64 = 86_400_000;
    for day in 1..=30 {
        let at = now / DAY * DAY - day * DAY + DAY / 16;
        let (state, reason) = match day {
            9 | 10 => ("skipped", Some("missed")),
            17 => ("skipped", Some("overlap")),
            22..=24 => ("skipped", Some("paused")),
            _ => ("ran", None),
        };
        put("ticks nightly-mail", at.to_string(), at, state, json!({"kind": "tick", "reason": reason, "due_ms": at}));
    }
    for hour in 1..=12 {
        let at = now / 3_600_000 * 3_600_000 - hour * 3_600_000;
        let (state, reason) = if hour < 4 { ("skipped", Some("overlap")) } else { ("ran", None) };
        put("ticks reminders", at.to_string(), at, state, json!({"kind": "tick", "reason": reason, "due_ms": at}));
    }
    let id = |nth: i64| format!("72d3162e-cc78-11e3-81ab-4c9367dc09{nth:02}");
    for (nth, verdict) in ["accepted", "repeated", "ignored", "refused", "accepted"].into_iter().enumerate() {
        let nth = i64::try_from(nth).expect("small");
        put(
            "webhook pull-request",
            id(nth),
            now - nth * 500_000,
            verdict,
            json!({"headers": {}, "delivery_id": id(nth)}),
        );
    }
    let at = etude_runtime::clock::rfc3339(now);
    for (nth, (state, attempt)) in [
        ("delivered", json!({"at": at, "status": 200, "error": null})),
        ("pending", json!({"at": at, "status": 503, "error": "status"})),
        ("failed", json!({"at": at, "status": null, "error": "private_address"})),
    ]
    .into_iter()
    .enumerate()
    {
        let nth = i64::try_from(nth).expect("small");
        let body = json!({"payload": {"type": "run.cancelled"}, "attempts": [attempt]});
        put("notice chat", format!("msg_{nth}"), now - nth * 700_000, state, body);
    }
}

/// The example whose run is in the pictures of the documents.
const SUPPORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support");

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("an example").flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("copied")),
        }
    }
}

/// The replies of the local model in the recordings of the example.
fn draft(prompt: &str) -> String {
    let reply = [
        (
            "to Lena",
            "The tea order A-2042 is currently waiting at the customs office and is expected to arrive on Thursday. If you need to track its progress, you can visit the tracking page on the website.",
        ),
        (
            "to Priya",
            "Thank you for your order. We apologize for the broken cup. We have sent you a new one free of charge. Please let us know if you need anything else.",
        ),
        (
            "leave out 'contact us'",
            "The second payment of 31.50 was returned on Monday. Please check your account for the second payment.",
        ),
        (
            "to Mei",
            "The second payment of 31.50 was returned on Monday. Please check your account for the second payment and contact us if you have any further questions.",
        ),
        ("to Omar", "Yes, you can still order A-2091 to your new address. The address can be changed until Friday."),
    ];
    let reply = reply.iter().find(|(word, _)| prompt.contains(word)).map(|(_, reply)| reply);
    json!({ "reply": reply }).to_string()
}

fn say(prompt: &str) -> Option<String> {
    if prompt.contains("You are the shop") {
        return Some(draft(prompt));
    }
    if prompt.contains("offsite agenda") && !prompt.contains("is not one of") {
        return Some(r#"{"label": "meeting", "confidence": 0.82, "reason": "The message continues a thread about the agenda of the offsite"}"#.to_owned());
    }
    if prompt.contains("Review the file") {
        return Some(r#"{"findings": "looks good"}"#.to_owned());
    }
    let label = [("Invoice", "invoice"), ("offsite", "work"), ("digest", "newsletter")]
        .iter()
        .find(|(word, _)| prompt.contains(word));
    let label = label.map_or("personal", |(_, label)| label);
    Some(format!(r#"{{"label": "{label}", "confidence": 0.97, "reason": "The subject says so."}}"#))
}

const FILES: &[(&str, &str)] = &[
    (
        "etude.yaml",
        r#"schedules:
  nightly-mail: {pipeline: sort-mail, cron: "30 2 * * *", timezone: Europe/Berlin, input: {inbox: support}, jitter: 5m}
  reminders: {pipeline: reminders, every: 6h, input: {count: 20}}
  quarterly: {pipeline: deploy, cron: "0 8 LW JAN,APR,JUL,OCT *", timezone: America/New_York}
  broken: {pipeline: sort-mail, cron: "30 25 * * *", timezone: UTC}
webhooks:
  pull-request: {pipeline: code-review, verify: {kind: github, secrets: ["${env:HOOK_SECRET}"]}, when: {header.x-github-event: pull_request}}
notices:
  - {name: chat, url: "https://chat.example/hooks/T0123", on: [run.cancelled], secret: "${env:NOTICE_SECRET}"}
"#,
    ),
    (
        "pipelines/sort-mail/pipeline.yaml",
        r#"name: sort-mail
description: Labels the newest mails of an inbox.
input:
  inbox: {type: string, description: Which inbox is read.}
  limit: {type: integer, default: 4, minimum: 1, maximum: 100, description: How many mails are read.}
steps:
  - {name: read, type: code, command: python3 steps/read.py}
  - name: label
    type: llm
    model: lite
    for_each: "{{read.output}}"
    prompt: "Label this mail: {{item}}"
    schema: schemas/label.json
    retry: 3
  - {name: list, type: code, command: "echo '{\"output\": {\"count\": 4}}'"}
"#,
    ),
    (
        "pipelines/sort-mail/schemas/label.json",
        r#"{"type": "object", "required": ["label", "confidence", "reason"], "properties": {"label": {"enum": ["invoice", "work", "newsletter", "personal"]}, "confidence": {"type": "number"}, "reason": {"type": "string", "maxLength": 120}}}"#,
    ),
    (
        "pipelines/sort-mail/steps/read.py",
        r#"import json, sys
mails = ["Invoice 2291 from Northwind", "Re: offsite agenda", "Your weekly digest", "Parental leave form"]
limit = json.load(sys.stdin)["input"]["limit"]
print(f"reading {limit} mails", file=sys.stderr)
print(json.dumps({"output": mails[:limit]}))
"#,
    ),
    (
        "pipelines/code-review/pipeline.yaml",
        r#"name: code-review
description: Reviews the changed files of a commit range and posts one comment.
input:
  repo: {type: string, description: The repository.}
  range: {type: string, description: The commits.}
  strict: {type: boolean, default: false, description: Fail on warnings.}
steps:
  - {name: checkout, type: code, command: "echo '{\"output\": {}}'"}
  - {name: fetch_diff, type: code, command: "echo '{\"output\": [\"src/main.rs\"]}'"}
  - name: review
    type: llm
    model: standard
    prompt: "Review the file {{fetch_diff.output}}"
    schema: schemas/review.json
    retry: 3
  - name: after
    type: parallel
    steps:
      - {name: summary, type: code, command: "echo '{\"output\": 1}'"}
      - {name: post, type: code, command: "echo '{\"output\": 1}'"}
"#,
    ),
    (
        "pipelines/code-review/schemas/review.json",
        r#"{"type": "object", "required": ["severity"], "properties": {"severity": {"enum": ["low", "high"]}}}"#,
    ),
    (
        "pipelines/deploy/pipeline.yaml",
        r#"name: deploy
description: Deploys a service after somebody has agreed.
input:
  service: {type: string, description: The service.}
  version: {type: string, description: The version.}
steps:
  - {name: build, type: code, command: "echo '{\"output\": {\"image\": \"registry/api:4.18.2\"}}'"}
  - {name: migrate, type: code, command: "echo '{\"output\": {\"migrations\": 1}}'"}
  - name: approve
    type: approval
    message: "Deploy {{input.service}} {{input.version}} to production?"
    approvers: [owner, lin]
    schema:
      type: object
      required: [rollout]
      properties:
        rollout: {title: Rollout, enum: ["Canary, 5 % for 15 min", "All instances"]}
        announce: {title: Announce in the release channel, type: boolean, default: true}
  - {name: release, type: code, command: "echo '{\"output\": 1}'"}
"#,
    ),
    (
        "pipelines/reminders/pipeline.yaml",
        r#"name: reminders
description: Sends reminders to customers.
input:
  count: {type: integer}
steps:
  - {name: select, type: code, command: "echo '{\"output\": 214}'"}
  - {name: confirm, type: approval, message: "Send {{input.count}} reminders to customers?"}
  - {name: send, type: code, command: "echo '{\"output\": 1}'"}
"#,
    ),
    (
        "pipelines/wait/pipeline.yaml",
        r#"name: wait
description: Waits until it is cancelled.
steps:
  - {name: prepare, type: code, command: "echo '{\"output\": 1}'"}
  - {name: wait, type: code, command: "sleep 600"}
  - {name: report, type: code, command: "echo '{\"output\": 1}'"}
"#,
    ),
];

/// The log of the first effect of a run.
fn log(server: &Running, run: &Value) -> String {
    let id = run["run_id"].as_str().expect("an id");
    let effects = server.send("GET", &format!("/v1/runs/{id}/effects"), None).json();
    let effect = effects["effects"][0]["id"].as_str().expect("an effect").replace('/', "%2F");
    format!("/runs/{id}/log/{effect}/stderr")
}

/// The pages of the gallery, by name.
fn pages(server: &Running, runs: &[Value]) -> Vec<(&'static str, String)> {
    let run = |nth: usize| format!("/runs/{}", runs[nth]["run_id"].as_str().expect("an id"));
    vec![
        ("runs", "/".to_owned()),
        ("runs-empty", "/?q=nothing".to_owned()),
        ("run", run(2)),
        ("run-item", format!("{}?at=business%2Flabel%5B1%5D", run(2))),
        ("run-failed", run(5)),
        ("run-waiting", run(3)),
        ("run-running", run(1)),
        ("decisions", "/decisions".to_owned()),
        ("apps", "/apps".to_owned()),
        ("pipeline", "/apps/demo/pipelines/code-review".to_owned()),
        ("pipeline-llm", "/apps/demo/pipelines/sort-mail".to_owned()),
        ("machine", "/apps/change/machines/change".to_owned()),
        ("learned", "/apps/demo/learned".to_owned()),
        ("learned-pipeline", "/apps/demo/learned/cancel-order".to_owned()),
        ("log", log(server, &runs[2])),
        ("schedules", "/schedules".to_owned()),
        ("schedule", "/schedules/demo/nightly-mail".to_owned()),
        ("webhooks", "/webhooks".to_owned()),
        ("server", "/server".to_owned()),
    ]
}

/// S-133: axe finds nothing on any page, light and dark, wide and narrow. `ETUDE_AXE` names its script, which is not in this tree.
#[test]
fn axe_finds_nothing() {
    let Some(script) = std::env::var_os("ETUDE_AXE") else { return };
    let axe = std::fs::read_to_string(script).expect("the script of axe");
    let server = demo();
    let runs = runs(&server);
    let Some(browser) = Browser::logged_in(&server) else { return };
    let mut found = Vec::new();
    for (name, path) in pages(&server, &runs) {
        for (width, scheme) in [(1440, "light"), (1440, "dark"), (390, "light")] {
            browser.size(width, 900);
            browser.scheme(scheme);
            browser.open(&format!("http://{}{path}", server.address));
            let look = "return axe.run().then(result => result.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? '')).slice(0, 3).join(' | ')))";
            let violations = browser.run(&format!("{axe}\n{look}"));
            let violations = violations.as_array().cloned().unwrap_or_default();
            found.extend(violations.iter().map(|violation| format!("{name} {width} {scheme} {violation}")));
        }
    }
    finish(&server, &runs);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Ends the run in progress, for which the server would wait.
fn finish(server: &Running, runs: &[Value]) {
    let id = runs[1]["run_id"].as_str().expect("an id");
    server.send("POST", &format!("/v1/runs/{id}/cancel"), Some(&json!({"mode": "kill"})));
}

/// Takes pictures of all pages, light and dark, 1440 and 390 pixels wide. Without `ETUDE_PICTURES` none is taken.
#[test]
fn pictures() {
    let Some(dir) = std::env::var_os("ETUDE_PICTURES") else { return };
    let server = demo();
    let runs = runs(&server);
    let Some(browser) = Browser::logged_in(&server) else { return };
    for (name, path) in pages(&server, &runs) {
        for (width, height) in [(1440, 900), (390, 844)] {
            browser.size(width, height);
            for scheme in ["light", "dark"] {
                browser.scheme(scheme);
                browser.open(&format!("http://{}{path}", server.address));
                let picture = base64::engine::general_purpose::STANDARD.decode(browser.picture()).expect("base64");
                std::fs::write(Path::new(&dir).join(format!("{name}-{scheme}-{width}.png")), picture).expect("written");
            }
        }
    }
    finish(&server, &runs);
}

/// Takes the pictures of README and of the documents: `.ci/pictures` without a directory. Without `ETUDE_PICTURES_DOCS` none is
/// taken.
#[test]
fn pictures_of_the_documents() {
    let Some(dir) = std::env::var_os("ETUDE_PICTURES_DOCS") else { return };
    let server = demo();
    let run = server.run(&json!({"app": "support", "pipeline": "answer-mail"}));
    let id = run["run_id"].as_str().expect("an id");
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.size(1200, 800);
    let pages = [("run", format!("/runs/{id}?at=business%2Fdraft%5B2%5D")), ("decision", "/decisions".to_owned())];
    for (name, path) in pages {
        for scheme in ["light", "dark"] {
            browser.scheme(scheme);
            browser.open(&format!("http://{}{path}", server.address));
            let picture = base64::engine::general_purpose::STANDARD.decode(browser.picture()).expect("base64");
            std::fs::write(Path::new(&dir).join(format!("{name}-{scheme}.png")), picture).expect("written");
        }
    }
}
