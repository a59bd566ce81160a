//! Commands that run nothing: the cost of a start, and the time to list the contents of an app.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::apps;
use crate::measure::{Pair, Report, output, run};

const PIPELINES: usize = 10_000;
const SKILLS: usize = 5_000;

pub(crate) fn start(report: &mut Report, home: &Path) {
    let pair = Pair { key: "start", what: "`etude --version`", baseline: "`true`" };
    report.compare(&pair, 100, || run(home, &["--version"]), bare_process);
}

/// Runs a process that does nothing.
pub(crate) fn bare_process() {
    assert!(Command::new("true").status().is_ok_and(|s| s.success()));
}

pub(crate) fn list(report: &mut Report, home: &Path) {
    let app = apps::of_pipelines(home, PIPELINES);
    let path = app.display().to_string();
    let pair = Pair { key: "list", what: "`etude list` over 10,000 pipelines", baseline: "reading their files" };
    let ours = || run(home, &["list", "-C", &path, "--format", "json"]);
    report.compare(&pair, 7, ours, || read_each(&app.join("pipelines"), "pipeline.yaml"));
}

pub(crate) fn skills(report: &mut Report, home: &Path) {
    let root = apps::skills(home, SKILLS);
    let start = home.join("elsewhere");
    fs::create_dir_all(&start).expect("a directory");
    let start = start.display().to_string();
    let pair = Pair { key: "skills", what: "`etude skill list` over 5,000 skills", baseline: "reading their files" };
    let ours = || run(home, &["skill", "list", "-C", &start, "--format", "json"]);
    report.compare(&pair, 7, ours, || read_each(&root, "SKILL.md"));
}

/// `etude check` over the skills of a project, with the chains of their middleware.
pub(crate) fn check(report: &mut Report, home: &Path) {
    let app = home.join("check");
    fs::create_dir_all(app.join("pipelines")).expect("a directory");
    let main = "---\nname: app\nmetadata:\n  role: main\n  paths: [./skills]\n  limit: {rpm: 3}\n---\n";
    apps::write(&app.join("app.skill.md"), main);
    apps::write(&app.join("skills/limit.skill.md"), "---\nname: limit\nmetadata: {role: middleware}\n---\n");
    for at in 0..1_000 {
        let parent = if at > 0 && at % 3 == 0 { "  $inherit: skill-1\n" } else { "" };
        let text = format!(
            "---\nname: skill-{at}\ndescription: Does the thing number {at}.\nallowed-tools: file-* shell(cmd=ls)\nmetadata:\n{parent}  \
             params:\n    type: object\n    required: [who]\n    properties:\n      who: {{type: string}}\n  include: notes-{at}.md\n  \
             tags: [a, b]\n---\n\n{}",
            "Some instructions of a usual length, line by line, for a model that reads them.\n".repeat(20)
        );
        apps::write(&app.join(format!("skills/skill-{at}.skill.md")), &text);
    }
    let path = app.display().to_string();
    let pair =
        Pair { key: "check", what: "`etude check` over 1,000 skills of a project", baseline: "reading their files" };
    let baseline = || {
        let entries = fs::read_dir(app.join("skills")).expect("the skills").flatten();
        let bytes: usize = entries.map(|entry| fs::read(entry.path()).expect("a file").len()).sum();
        assert!(bytes > 1_000_000);
    };
    report.compare(&pair, 21, || run(home, &["check", "-C", &path]), baseline);
}

fn read_each(dir: &Path, name: &str) {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).expect("a directory") {
        bytes += fs::read(entry.expect("an entry").path().join(name)).expect("a file").len();
    }
    assert!(bytes > 100);
}

/// A routing decision from the command line, and in a running process.
pub(crate) fn route(report: &mut Report, home: &Path) {
    let app = apps::of_routes(home);
    let pipelines = app.join("pipelines");
    let app = app.display().to_string();
    let baseline_is = "a bare process and reading their files";
    let pair = Pair { key: "route", what: "`etude route` among 150 pipelines", baseline: baseline_is };
    let request = "could somebody please look over the newest invoice";
    let ours = || run(home, &["route", request, "-C", &app, "--mode", "embedded", "--format", "json"]);
    let baseline = || {
        bare_process();
        read_each(&pipelines, "pipeline.yaml");
    };
    report.compare(&pair, 20, ours, baseline);
    let cases: String = (0..500)
        .map(|at| {
            let request =
                ["review my invoice", "translate this contract", "what is the weather", "publish the podcast"];
            format!("{}\n", serde_json::json!({"request": format!("{} {at}", request[at % 4]), "expected": null}))
        })
        .collect();
    let file = home.join("cases.jsonl");
    fs::write(&file, cases).expect("a file");
    let file = file.display().to_string();
    let reported = output(home, &["route", "-C", &app, "--mode", "embedded", "--test", &file, "--format", "json"]);
    let summary: serde_json::Value = serde_json::from_slice(&reported.stdout).expect("a document");
    let median = summary["latency_ms"]["p50"].as_f64().expect("a median");
    report.figure("route/decision", "one decision among 150 pipelines, in the process", median, "ms");
}
