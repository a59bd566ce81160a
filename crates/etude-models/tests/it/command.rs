//! Programs as models.

use std::path::Path;

use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Request, Stop};
use etude_models::{Models, ProviderKind, ProviderSettings, Settings};
use serde_json::json;

use crate::setup::{ask, ask_for, settings};

fn program(argv: &[&str]) -> ProviderSettings {
    let mut provider = ProviderSettings::new("cli", ProviderKind::Command);
    provider.command = argv.iter().map(ToString::to_string).collect();
    provider
}

async fn call(settings: Settings, request: &Request) -> Result<ModelResponse, CallFailure> {
    Models::new(settings).expect("the settings hold").call(request).await
}

async fn shell(script: &str, request: &Request) -> Result<ModelResponse, CallFailure> {
    call(settings(vec![program(&["sh", "-c", script])]), request).await
}

#[tokio::test]
async fn a_program_reads_the_prompt_and_prints_the_response() {
    let request = Request { system: Some("be brief".into()), ..ask("hi $HOME") };
    let response = shell("printf '  '; cat; echo", &request).await.expect("an answer");
    assert_eq!((response.text.as_str(), response.stop), ("be brief\n\nhi $HOME", Stop::End));
    assert_eq!((response.model.as_str(), response.usage.calls, response.usage.cost_usd), ("cli/m", 1, None));
}

#[tokio::test]
async fn the_schema_is_reported_and_can_be_an_argument() {
    let request = ask_for(json!({ "type": "integer" }));
    let settings = settings(vec![program(&["sh", "-c", "cat; echo \"|$1|$2\"", "sh", "{model}", "{schema}"])]);
    let text = call(settings, &request).await.expect("an answer").text;
    assert!(text.starts_with("count the words\n\nAnswer with a single JSON value"), "{text}");
    assert!(text.ends_with("{\"type\":\"integer\"}|m|{\"type\":\"integer\"}"), "{text}");
}

#[tokio::test]
async fn a_result_object_brings_usage_and_cost() {
    let script =
        r#"echo '{"type":"result","result":"4","total_cost_usd":0.5,"usage":{"input_tokens":3,"output_tokens":2}}'"#;
    let response = shell(script, &ask("2+2")).await.expect("an answer");
    assert_eq!((response.text.as_str(), response.usage.cost_usd), ("4", Some(0.5)));
    assert_eq!((response.usage.input_tokens, response.usage.output_tokens), (3, 2));
}

/// A program that the system stops because it asks the terminal for a password is killed. Here it stops itself.
#[tokio::test]
async fn a_program_that_waits_for_a_terminal_is_killed() {
    let failure = shell("kill -TTIN $$; echo late", &ask("hi")).await.expect_err("it fails");
    let expected = "`cli/m`: program `sh` read from the terminal, which is not available, and was killed";
    assert_eq!((failure.kind, failure.message.as_str()), (CallFailureKind::Model, expected));
}

#[tokio::test]
async fn a_failing_program_is_quoted_without_secrets() {
    let mut providers = vec![program(&["sh", "-c", "echo sk-canary-7f3a9 is expired >&2; exit 3"])];
    providers.push(crate::setup::provider(ProviderKind::OpenAi, "http://127.0.0.1:1"));
    let failure = call(settings(providers), &ask("hi")).await.expect_err("it fails");
    assert_eq!(failure.kind, CallFailureKind::Model);
    let expected = "`cli/m`: program `sh` failed with exit status: 3; stderr ends with: *** is expired";
    assert_eq!(failure.message, expected);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_environment_failure() {
    let failure = call(settings(vec![program(&["etude-no-such-program"])]), &ask("hi")).await.expect_err("it fails");
    assert_eq!(failure.kind, CallFailureKind::Environment);
    assert!(failure.message.contains("program `etude-no-such-program` cannot be started"), "{}", failure.message);
}

#[tokio::test]
async fn no_output_is_an_empty_response() {
    let response = shell("true", &ask("hi")).await.expect("an answer");
    assert_eq!(response.text, "");
}

/// A prompt that fills the pipe while the program does not read does not block a program that responds first.
#[tokio::test]
async fn a_large_prompt_and_a_large_response_do_not_block_each_other() {
    let text = "x".repeat(3_000_000);
    let response = shell("cat; cat /dev/null >&2", &ask(&text)).await.expect("an answer");
    assert_eq!(response.text.len(), text.len());
    let unread = shell("echo done", &ask(&text)).await.expect("an answer");
    assert_eq!(unread.text, "done");
}

/// Programs do not inherit provider keys.
#[tokio::test]
async fn hidden_variables_are_not_inherited() {
    let name = if std::env::var_os("CARGO_MANIFEST_DIR").is_some() { "CARGO_MANIFEST_DIR" } else { "PATH" };
    let script = format!("printf %s \"${{{name}:-none}}\"");
    let providers = vec![program(&["/bin/sh", "-c", &script])];
    let seen = call(settings(providers.clone()), &ask("hi")).await.expect("an answer").text;
    let hidden = Settings { withheld_env: vec![name.to_owned()], ..settings(providers) };
    assert_ne!(seen, call(hidden, &ask("hi")).await.expect("an answer").text);
}

/// A background child that holds stdout open does not delay the response, and is killed.
#[tokio::test]
async fn the_response_is_there_when_the_program_has_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let provider = program(&["sh", "-c", "sleep 600 & echo $! > pid; echo done"]);
    let settings = Settings { app_dir: dir.path().to_owned(), ..settings(vec![provider]) };
    assert_eq!(call(settings, &ask("hi")).await.expect("an answer").text, "done");
    assert_gone(&dir.path().join("pid")).await;
}

/// The children of a program end with it, whether it runs too long or its call is dropped.
#[tokio::test]
async fn nothing_that_a_program_started_outlives_its_call() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "sleep 600 & echo $! > pid.tmp; mv pid.tmp pid; wait";
    let make = |timeout_ms| {
        let provider = ProviderSettings { timeout_ms, ..program(&["sh", "-c", script]) };
        let settings = Settings { app_dir: dir.path().to_owned(), ..settings(vec![provider]) };
        Models::new(settings).expect("the settings hold")
    };
    let mut has_begun = false;
    // A slow machine needs longer until the program has begun.
    for timeout_ms in [1_000, 10_000, 60_000] {
        let failure = make(Some(timeout_ms)).call(&ask("hi")).await.expect_err("it runs too long");
        let expected = format!("did not respond within {} s and was killed", timeout_ms / 1_000);
        assert!(failure.message.contains(&expected), "{}", failure.message);
        has_begun = dir.path().join("pid").exists();
        if has_begun {
            break;
        }
    }
    assert!(has_begun);
    assert_gone(&dir.path().join("pid")).await;

    let (models, request) = (make(None), ask("hi"));
    {
        let call = models.call(&request);
        tokio::pin!(call);
        while !dir.path().join("pid").exists() {
            let tick = tokio::time::sleep(std::time::Duration::from_millis(5));
            tokio::select! { _ = &mut call => panic!("it waits"), () = tick => {} }
        }
    }
    assert_gone(&dir.path().join("pid")).await;
}

/// Waits until the process whose id is in `file` is gone. The time limit is that of the test runner.
async fn assert_gone(file: &Path) {
    let pid = std::fs::read_to_string(file).expect("the script wrote it");
    std::fs::remove_file(file).expect("it is there");
    let alive = || {
        let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output().expect("ps runs");
        let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
        !state.is_empty() && !state.starts_with('Z')
    };
    while alive() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A-4.2: a program that prints without end, and reads nothing, is ended once it has printed more than a response may have.
#[tokio::test]
async fn a_response_without_end_is_refused() {
    let prompt = "x".repeat(3_000_000);
    let failure = shell("exec yes", &ask(&prompt)).await.expect_err("there is no end of it");
    assert_eq!(failure.kind, CallFailureKind::Model);
    let expected = "`cli/m`: program `sh` printed more than 67108864 bytes, the limit of a response, and was killed";
    assert_eq!(failure.message, expected);
}

/// A-4.2: the end of long stderr is quoted, whether the program fails or responds.
#[tokio::test]
async fn much_stderr_is_quoted_by_its_end() {
    let noise = "yes | head -c 30000000 >&2; echo the reason >&2";
    let failure = shell(&format!("{noise}; exit 3"), &ask("hi")).await.expect_err("it fails");
    assert!(failure.message.ends_with("y\nthe reason") && failure.message.len() < 3_000, "{}", failure.message);
    assert_eq!(shell(&format!("{noise}; echo done"), &ask("hi")).await.expect("an answer").text, "done");
}
