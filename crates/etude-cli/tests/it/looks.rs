//! Commands that only look at an app: a stranger's app in which everything that could be started or contacted is a canary.
//!
//! No such command starts a program, opens a connection, or shows a key (SECURITY.md, ADR 0052).

use std::collections::BTreeSet;
use std::net::TcpListener;

use crate::echo_box::{self, PROJECT};
use crate::test::{Test, skipped};

/// Keys of the user.
const KEYS: [(&str, &str); 3] = [
    ("OPENAI_API_KEY", "sk-canary-look-1"),
    ("ANTHROPIC_API_KEY", "sk-canary-look-2"),
    ("OTHER_TOKEN", "sk-canary-look-3"),
];

/// A program that leaves a line in the ledger wherever it is started.
const CANARY: &str = "#!/bin/sh\necho \"$0 $*\" >> \"$LEDGER\"\necho '{\"output\":1}'\n";

/// A port to which nothing may connect.
struct Door(TcpListener);

impl Door {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("it can be asked without waiting");
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("it is bound"))
    }

    /// True if a client has connected. The system completes connections by itself.
    fn was_knocked_at(&self) -> bool {
        self.0.accept().is_ok()
    }
}

/// A module that records that it runs.
fn module(name: &str, exported: &str) -> String {
    format!(
        "import fs from 'node:fs';\nfs.appendFileSync(process.env.LEDGER ?? '{name}.ran', '{name}\\n');\n\
         export const frontmatter = {exported};\nexport default () => 1;\n"
    )
}

/// An app in which everything is a canary.
fn stranger(door: &Door) -> Test {
    let url = door.url();
    let config = format!(
        "model_mapping: {{lite: [far/m, program/m, weights/m], standard: program/m, reasoning: openai/m}}\n\
         router: {{mode: llm}}\nguards: [{{command: sh canary.sh guard}}]\nworker: {{python: {{preload: [canary]}}}}\n\
         providers:\n  far: {{kind: openai-compatible, base_url: \"{url}/v1\", api_key: \"${{env:OTHER_TOKEN}}\", headers: {{X-A: \
         \"${{env:OPENAI_API_KEY}}\"}}}}\n  program: {{kind: command, command: sh canary.sh provider}}\n  weights: {{kind: local, \
         base_url: \"{url}\", path: weights}}\n  openai: {{base_url: \"{url}\"}}\n  anthropic: {{base_url: \
         \"{url}/${{env:ANTHROPIC_API_KEY}}\"}}\n  taped: {{kind: recorded, path: tape, record: openai/m}}\n\
         mcp:\n  servers:\n    near: {{command: sh, args: [canary.sh, mcp]}}\n    far: {{url: \"{url}/mcp\", headers: {{X-A: \
         \"${{env:OTHER_TOKEN}}\"}}}}\n"
    );
    let test = Test::new()
        .pipeline("_constructor", |p| p.step("name: begin\ntype: code\ncommand: sh ../../canary.sh constructor"))
        .pipeline("_destructor", |p| p.step("name: end\ntype: code\ncommand: sh ../../canary.sh destructor"))
        .pipeline("p", |p| {
            p.with("description: \"Sort the mails of a person\"\ntriggers: [\"sort my mails\"]\ninput: {who: {type: string, default: me}, count: {type: integer, default: 3}}")
                .step("name: read\ntype: code\ncommand: sh ../../canary.sh step")
                .llm("ask", "Look at {{input.who}}", "validate: steps/check.sh")
                .file("steps/check.sh", CANARY)
        })
        .pipeline("q", |p| p.with("description: \"Archive old letters\"").step("name: a\ntype: code\ncommand: sh ../../canary.sh q"))
        .file("canary.sh", CANARY)
        .file("canary.py", "import os\nopen(os.environ['LEDGER'], 'a').write('preloaded\\n')\n")
        .file("etude.yaml", &config)
        .file("SKILL.md", "---\nname: helper\ndescription: Helps.\n---\nHelp: !`sh canary.sh body`\n")
        .file("tools/peek.yaml", "name: peek\ndescription: Peeks.\ncommand: sh canary.sh tool\n")
        .file("tests/one.yaml", "pipeline: p\ninput: {}\nexpect: {status: succeeded}\n")
        .file(
            "machines/m/machine.yaml",
            "kind: StateMachine\nid: m\nentryStage: plan\nstateSlot: {slotVersion: \"1.0.0\", schema: {type: object}}\n\
             pipeline:\n  plan: {setup: {script: sh scripts/setup.sh}}\n",
        )
        .file("machines/m/scripts/setup.sh", CANARY)
        .file(
            "machines/m/stages/plan.md",
            "---\nid: plan\nname: plan\nallowedTools: [peek]\ncompletionTool: submit_plan\ncompletionSchema: {type: object}\n\
             retryPolicy: {maxAttempts: 2, backoff: none}\nturnCap: 4\nresolutionPolicy: retry-later\n---\nTask\n",
        )
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], watch: {on: true}}\n---\n")
        .file("skills/plain.skill.mjs", &module("plain", "{name: 'plain', metadata: {params: {type: 'object'}}}"))
        .file("skills/computed.skill.mjs", &module("computed", "{name: ['comp', 'uted'].join('')}"))
        .file(
            "skills/greet.skill.md",
            &format!("---\nname: greet\ncommand: sh ../canary.sh greet\nmetadata:\n  mcp: {{near: {{command: sh, args: [canary.sh, skill-mcp]}}, far: {{url: \"{url}/mcp\"}}}}\n---\n"),
        )
        .file("skills/watch.skill.md", "---\nname: watch\ncommand: sh ../canary.sh watch\nmetadata: {role: middleware}\n---\n")
        .file(".agents/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies.\n---\nHello !`sh canary.sh tidy`\n");
    echo_box::put(&test, PROJECT, &[]);
    test.put(
        "app/apps/echo-box/app/box.py",
        "import os\nopen(os.environ.get('LEDGER', 'box.ran'), 'a').write('box\\n')\n",
    );
    test.put("elsewhere/labelled.jsonl", "{\"request\": \"sort my mails\", \"expected\": \"p\"}\n");
    KEYS.iter().fold(test, |test, (name, key)| test.env(name, key))
}

/// Classification of a subcommand.
enum Row {
    /// Command lines that only look.
    Looks(&'static [&'static [&'static str]]),
    /// It runs the app, or changes what the user names: that is its purpose.
    Runs,
}

use Row::{Looks, Runs};

/// All subcommands. A new one must be classified here.
const ROWS: &[(&str, Row)] = &[
    (
        "run",
        Looks(&[
            &["run", "--dry-run", "-p", "p"],
            &["run", "--dry-run", "-p", "p", "for Ada please"],
            &["run", "--dry-run", "please sort my mails"],
            &["run", "--dry-run", "--router", "llm", "please sort my mails"],
            &["run", "--dry-run", "--router", "auto", "mails or letters of Ada"],
            &["run", "--dry-run", "--skill", "help me"],
            &["run", "--dry-run", "--max-cost", "1", "-p", "p"],
        ]),
    ),
    (
        "route",
        Looks(&[
            &["route", "please sort my mails"],
            &["route", "--mode", "auto", "mails or letters of Ada"],
            &["route", "--mode", "llm", "please sort my mails"],
            &["route", "--mode", "llm", "--test", "../elsewhere/labelled.jsonl"],
            &["route", "--mode", "embedded", "please sort my mails"],
        ]),
    ),
    ("machine run", Runs),
    ("machine show", Looks(&[&["machine", "show", "m"]])),
    ("runs list", Looks(&[&["runs", "list"], &["runs", "list", "--all"]])),
    ("runs show", Looks(&[&["runs", "show", "latest"], &["runs", "show", "latest", "--verbose"]])),
    ("runs resume", Runs),
    ("runs retry", Runs),
    ("runs cancel", Runs),
    (
        "runs export",
        Looks(&[&["runs", "export", "latest"], &["runs", "export", "--all", "--out", "../elsewhere/runs.tar"]]),
    ),
    ("runs import", Looks(&[&["runs", "import", "../elsewhere/runs.tar"]])),
    ("runs watch", Looks(&[&["runs", "watch", "latest"]])),
    ("runs judge", Runs),
    ("learn export", Looks(&[&["learn", "export"]])),
    ("learn show", Looks(&[&["learn", "show", "p"]])),
    ("learn status", Looks(&[&["learn", "status"]])),
    ("learn test", Runs),
    ("learn promote", Runs),
    ("learn demote", Runs),
    ("learn forget", Runs),
    ("runs diff", Looks(&[&["runs", "diff", "latest", "latest"]])),
    ("runs stats", Looks(&[&["runs", "stats"]])),
    ("runs delete", Looks(&[&["runs", "delete", "none"]])),
    ("runs prune", Looks(&[&["runs", "prune", "--keep-last", "1"]])),
    ("runs backup", Looks(&[&["runs", "backup", "../elsewhere/copy.db"]])),
    ("cache list", Looks(&[&["cache", "list"]])),
    ("cache clear", Looks(&[&["cache", "clear"]])),
    ("approve", Looks(&[&["approve", "latest"]])),
    ("deny", Looks(&[&["deny", "latest"]])),
    ("new", Looks(&[&["new", "pipeline", "another"], &["new", "skill", "another"], &["new", "../elsewhere/fresh"]])),
    ("check", Looks(&[&["check"], &["check", "--portable"], &["check", "p"]])),
    ("list", Looks(&[&["list"]])),
    ("graph", Looks(&[&["graph", "p"], &["graph", "m"]])),
    ("test", Runs),
    ("convert", Runs),
    ("import", Looks(&[&["import", "missing.yml"]])),
    ("schema", Looks(&[&["schema", "config"]])),
    ("apps list", Looks(&[&["apps", "list"]])),
    ("apps show", Looks(&[&["apps", "show", "echo-box"]])),
    ("apps check", Looks(&[&["apps", "check"], &["apps", "check", "apps/echo-box"]])),
    ("apps run", Runs),
    ("skill list", Looks(&[&["skill", "list"], &["skill", "list", "--compat", "claude-code"]])),
    ("skill show", Looks(&[&["skill", "show", "tidy"], &["skill", "show", "tidy", "--compat", "claude-code"]])),
    (
        "skill check",
        Looks(&[&["skill", "check", ".agents/skills/tidy"], &["skill", "check", ".agents/skills/tidy", "--strict"]]),
    ),
    ("skill catalog", Looks(&[&["skill", "catalog"]])),
    (
        "skill explain",
        Looks(&[
            &["skill", "explain", "plain"],
            &["skill", "explain", "computed"],
            &["skill", "explain", "greet", "--portable-paths"],
        ]),
    ),
    ("skill graph", Looks(&[&["skill", "graph", "plain"], &["skill", "graph", "greet"]])),
    ("skill run", Runs),
    ("trust", Looks(&[&["trust", "--list"]])),
    ("untrust", Looks(&[&["untrust", ".agents/skills/tidy"]])),
    ("host invoke", Looks(&[&["host", "invoke", "greet"]])),
    ("host next", Looks(&[&["host", "next"]])),
    ("host get", Looks(&[&["host", "get", "a"]])),
    ("host set", Looks(&[&["host", "set", "a", "1"]])),
    ("host add", Looks(&[&["host", "add", "a", "1"]])),
    ("host emit", Looks(&[&["host", "emit", "a", "1"]])),
    ("host ask", Looks(&[&["host", "ask", "{}"]])),
    ("host log", Looks(&[&["host", "log", "info", "a"]])),
    ("model list", Looks(&[&["model", "list"]])),
    ("model pull", Looks(&[&["model", "pull", "none"]])),
    ("model serve", Looks(&[&["model", "serve", "none"], &["model", "serve", "--listen", "0.0.0.0:0"]])),
    ("model test", Looks(&[&["model", "test"]])),
    ("serve", Runs),
    ("mcp", Runs),
    ("token new", Looks(&[&["token", "new", "deploy"]])),
    ("token list", Looks(&[&["token", "list"]])),
    ("token revoke", Looks(&[&["token", "revoke", "deploy"]])),
    ("engine check", Looks(&[&["engine", "check"]])),
    ("engine migrate", Looks(&[&["engine", "migrate"]])),
    ("engine apply", Looks(&[&["engine", "apply"]])),
    ("engine grant", Looks(&[&["engine", "grant", "tenant", "acme"]])),
    ("push", Runs),
    ("bundles list", Looks(&[&["bundles", "list"]])),
    ("bundles show", Looks(&[&["bundles", "show", "a"]])),
    ("worker", Runs),
    ("workers", Looks(&[&["workers"]])),
    ("doctor", Looks(&[&["doctor"], &["doctor", "--call"]])),
    ("explain", Looks(&[&["explain", "R0101"]])),
    ("completions", Looks(&[&["completions", "bash"]])),
    ("man", Looks(&[&["man"]])),
    ("help", Looks(&[&["help"]])),
];

/// Candidates of completions after `words`.
fn available(test: &Test, words: &[&str]) -> Vec<String> {
    let mut command = test.command(&[&["--", "etude"], words].concat());
    let done = command.env("COMPLETE", "fish").output().expect("the binary starts");
    let text = String::from_utf8(done.stdout).expect("candidates are UTF-8");
    text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

/// All subcommands without further ones below, as the command line itself lists them.
fn leaves(test: &Test, above: &[&str]) -> BTreeSet<String> {
    let below = available(test, &[&["help"], above, &[""]].concat());
    let below: Vec<&String> = below.iter().filter(|word| !word.starts_with('-')).collect();
    if below.is_empty() {
        return BTreeSet::from([above.join(" ")]);
    }
    below.iter().flat_map(|word| leaves(test, &[above, &[word.as_str()]].concat())).collect()
}

#[test]
fn every_subcommand_has_a_row() {
    let listed: BTreeSet<String> = ROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(leaves(&Test::new(), &[]), listed, "say whether a new command runs the app or only looks at it");
}

/// SECURITY.md: commands that only look start nothing of an app, contact no host that it names, and show no key.
#[test]
fn nothing_that_only_looks_starts_or_contacts_anything() {
    let door = Door::new();
    let test = stranger(&door);
    // A real run of the app puts data into the journal; then the canaries are counted again.
    test.run(&["run", "-p", "q"]);
    assert!(!test.ledger().is_empty(), "the canary sings");
    let notes = ["ledger", "app/skills/plain.ran", "app/skills/computed.ran"];
    notes.iter().for_each(|note| drop(std::fs::remove_file(test.path(note))));
    for (name, row) in ROWS {
        let Looks(lines) = row else { continue };
        for line in *lines {
            for format in ["human", "json"] {
                let ran = test.run(&[line, &["--format", format][..]].concat());
                let shown = format!("{}{}", ran.out(), ran.err());
                assert!(!test.path("ledger").exists(), "{name}: {line:?} started {:?}", test.ledger());
                assert!(!door.was_knocked_at(), "{name}: {line:?} made a connection: {shown}");
                assert!(KEYS.iter().all(|(_, key)| !shown.contains(key)), "{name}: {line:?} shows a key: {shown}");
            }
        }
    }
    let ran = test.files_below("app").into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "ran"));
    assert_eq!(ran.collect::<Vec<_>>(), [] as [std::path::PathBuf; 0]);
}

/// The same for completions while a command line is typed.
#[test]
fn completions_start_and_contact_nothing() {
    let door = Door::new();
    let test = stranger(&door);
    for words in [
        &["run", "-p", ""][..],
        &["run", "-p", "p", "-i", ""],
        &["run", "-p", "p", "-i", "count="],
        &["machine", "run", ""],
        &["graph", ""],
        &["skill", "explain", ""],
        &["skill", "run", ""],
        &["apps", "run", ""],
        &["runs", "show", ""],
        &["runs", "retry", "latest", "--from", ""],
        &["model", "test", ""],
        &["check", ""],
    ] {
        available(&test, words);
        assert!(!test.path("ledger").exists() && !door.was_knocked_at(), "{words:?}: {:?}", test.ledger());
    }
}

/// The error names the unused entry, its place, and the remedy.
#[test]
fn a_look_that_needs_the_model_of_the_app_says_so() {
    let door = Door::new();
    let test = stranger(&door);
    for args in
        [&["run", "--dry-run", "--router", "llm", "sort my mails"][..], &["route", "--mode", "llm", "sort my mails"]]
    {
        let ran = test.run(args).exit(4);
        ran.stderr_has("provider `far` is not used: line 6 of the app's `etude.yaml` defines it")
            .stderr_has("`--config etude.yaml`");
    }
    // The embedded router needs no model.
    test.run(&["route", "--mode", "embedded", "please sort my mails", "--format", "json"])
        .exit(0)
        .has("/pipeline", "p");
    let ran = test.run(&["model", "list", "--format", "json"]).exit(0);
    assert!(ran.at("/tiers/0/lacks").as_str().is_some_and(|why| why.contains("`far` is not used")), "{}", ran.out());
}

/// D-2.1: the metadata of a module is read if it is a plain object; nothing of it runs to be explained.
#[test]
fn modules_are_explained_without_being_run() {
    let door = Door::new();
    let test = stranger(&door);
    let ran = test.run(&["skill", "explain", "plain", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/merged/params/type"), "object");
    let ran = test.run(&["skill", "explain", "computed", "--format", "json"]).exit(3);
    assert_eq!(ran.at("/diagnostics/0/code"), "D0110");
    assert!(!test.path("ledger").exists(), "{:?}", test.ledger());
    if std::process::Command::new("node").arg("--version").output().is_err() {
        return skipped("modules_are_explained_without_being_run", "Node is not installed, so none can be called");
    }
    assert!(!test.path("app/skills/plain.ran").exists());
    // A call runs the module.
    test.run(&["skill", "run", "plain"]);
    assert!(test.path("app/skills/plain.ran").exists());
}
