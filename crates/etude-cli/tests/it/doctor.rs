//! `etude doctor`: one finding a line, its fix, and an exit status for scripts.

use serde_json::Value;

use crate::server::{Reply, Server};
use crate::test::{KEY, Test};

/// Findings of a check by its name.
#[track_caller]
fn finding(ran: &crate::ran::Ran, check: &str) -> Value {
    let findings = ran.at("/findings");
    let found = findings.as_array().into_iter().flatten().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no finding `{check}`: {findings:#}")).clone()
}

fn app() -> Test {
    Test::new().pipeline("p", |p| p.llm("a", "x", ""))
}

/// cli: a sound environment has exit status 0; no model is called, no key is shown, and no journal is created.
#[test]
fn a_sound_environment_is_usable() {
    let server = Server::new([]);
    let test = app().model(&server);
    let ran = test.run(&["doctor", "--format", "json"]).exit(0).stderr("");
    assert_eq!(ran.at("/usable"), true);
    for check in ["etude", "app", "configuration", "model standard", "journal"] {
        assert_eq!(finding(&ran, check)["status"], "ok", "{check}: {:#}", finding(&ran, check));
    }
    let model = finding(&ran, "model standard")["message"].as_str().unwrap_or_default().to_owned();
    assert!(model.contains("mock/m-std") && model.contains("not called"), "{model}");
    assert!(!ran.out().contains(KEY));
    assert_eq!(server.calls(), 0, "a model was called");
    assert!(!test.path("home/.local/state/etude").exists());
    let ran = test.run(&["doctor"]).exit(0);
    assert!(ran.out().lines().any(|line| line.starts_with("✓ app ")), "{}", ran.out());
}

/// cli: with `--call` each model is called once.
#[test]
fn with_call_each_model_is_called_once() {
    let server = Server::new(["ok", "ok", "ok"].map(Reply::says));
    let test = app().model(&server);
    let ran = test.run(&["doctor", "--call", "--format", "json"]).exit(0);
    assert!(finding(&ran, "model lite")["message"].as_str().is_some_and(|text| text.contains("responds in")));
    assert_eq!(server.calls(), 3);
}

/// cli: a fault that keeps the app from running is an error with its fix, and exit status 4.
#[test]
fn what_keeps_the_app_from_running_has_exit_status_4() {
    let broken = Test::new().yaml("p", "name: p\ndescription: x\nsteps: []\n");
    let ran = broken.run(&["doctor", "--format", "json"]).exit(4);
    assert_eq!(
        (&finding(&ran, "app")["status"], &finding(&ran, "app")["fix"]),
        (&"error".into(), &"etude check".into())
    );
    assert_eq!(ran.at("/usable"), false);

    let without_key =
        app().user_config("model_mapping: {lite: anthropic/a, standard: anthropic/b, reasoning: anthropic/c}\n");
    let ran = without_key.run(&["doctor", "--format", "json"]).exit(4);
    let found = finding(&ran, "model standard");
    assert_eq!((&found["status"], &found["fix"]), (&"error".into(), &"set ANTHROPIC_API_KEY".into()));
    // No pipeline calls this tier.
    assert_eq!(finding(&ran, "model lite")["status"], "warning");

    let unreadable = app().file("etude.yaml", "router: 3\n");
    let ran = unreadable.run(&["doctor", "--format", "json"]).exit(4);
    let found = finding(&ran, "configuration");
    let message = found["message"].as_str().unwrap_or_default();
    assert_eq!(found["status"], "error");
    // One line, without the drawn lines of the file.
    assert!(message.contains("etude.yaml:1:9: ") && !message.contains("-->"), "{message}");

    let damaged = Test::new().pipeline("p", |p| p.note("a", "1"));
    damaged.put("home/.local/state/etude/journal.db", "this is no database, however long it may be");
    let ran = damaged.run(&["doctor", "--format", "json"]).exit(4);
    assert_eq!(finding(&ran, "journal")["status"], "error");
}

/// cli: a journal that cannot be created is an error with its fix, and so it is for a run.
#[test]
fn a_journal_that_cannot_be_created_is_an_error() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    test.put("file", "not a directory");
    let place = test.path("file/state").display().to_string();
    let test = test.env("XDG_STATE_HOME", &place);
    let ran = test.run(&["doctor", "--format", "json"]).exit(4);
    let found = finding(&ran, "journal");
    let fix = "set XDG_STATE_HOME to a writable directory";
    assert_eq!((&found["status"], &found["fix"]), (&"error".into(), &fix.into()));
    assert!(found["message"].as_str().is_some_and(|text| text.contains("cannot be created")), "{found}");
    test.run(&["run", "-p", "p"]).exit(4).stderr_has(&format!("hint: {fix}"));
}

/// cli: a missing interpreter is a warning with its fix; completions of the user's shell are checked.
#[test]
fn interpreters_and_completions_are_looked_for() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).env("PATH", "/nowhere").env("SHELL", "/bin/bash");
    let ran = test.run(&["doctor"]).exit(0);
    assert!(ran.out().contains("! python3"), "{}", ran.out());
    assert!(
        ran.out().contains("not installed for bash; fix: add `source <(etude completions bash)` to ~/.bashrc"),
        "{}",
        ran.out()
    );
    test.put("home/.bashrc", "source <(etude completions bash)\n");
    let ran = test.run(&["doctor", "--format", "json"]).exit(0);
    assert_eq!(finding(&ran, "completions")["status"], "ok");
}
