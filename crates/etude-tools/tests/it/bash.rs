//! Runs of the `Bash` tool.

use std::sync::{Arc, Mutex};

use etude_tools::CallContext;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fixture::{App, Call, until};

#[tokio::test]
async fn both_streams_come_in_their_order() {
    let app = App::new();
    let shown = app.ok("Bash", json!({"command": "echo a; echo b >&2; echo c; pwd"})).await;
    assert_eq!(shown, format!("a\nb\nc\n{}\n", app.path().display()));
    assert_eq!(app.ok("Bash", json!({"command": "true"})).await, "[done, nothing was printed]");
    assert_eq!(
        app.ok("Bash", json!({"command": "[[ a == a ]] && x=(1 2) && echo ${x[1]} \"it's\""})).await,
        "2 it's\n"
    );
}

#[tokio::test]
async fn the_exit_status_is_part_of_the_result() {
    let app = App::new();
    let (code, content) = app.error("Bash", json!({"command": "echo no; exit 3"})).await;
    assert_eq!((code.as_str(), content.as_str()), ("ToolExecutionFailed", "no\n[exit status 3]"));
    let (_, content) = app.error("Bash", json!({"command": "kill -9 $$"})).await;
    assert!(content.contains("SIGKILL"), "{content}");
}

#[tokio::test]
async fn long_output_keeps_both_ends() {
    let app = App::new();
    let shown = app.ok("Bash", json!({"command": "seq 1 100000"})).await;
    assert!(shown.len() <= 30_000 && shown.starts_with("1\n2\n") && shown.ends_with("\n100000\n"), "{}", shown.len());
    assert!(shown.contains("bytes of 588895 left out here; send the output to a file"));
}

/// A-3.7: scripts do not get the keys that etude uses itself.
#[tokio::test]
async fn the_environment_is_redacted_and_there_is_no_input() {
    let app = App::new();
    let shown =
        app.ok("Bash", json!({"command": "echo ${ETUDE_TEST_SECRET-none} $ETUDE_APP_DIR; cat; echo end"})).await;
    assert_eq!(shown, format!("none {}\nend\n", app.path().display()));
}

/// A time limit ends everything that the command has started.
#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_its_children() {
    // A slow machine needs longer until the command has begun.
    for seconds in [1, 15, 60] {
        let app = App::new();
        let command = "echo begun; (sleep 600; touch late) & echo $! > new; mv new child; wait";
        let result = app.call("Bash", json!({"command": command, "timeout": seconds})).await;
        let error = result.error.expect("error");
        assert_eq!((error.class.word(), error.code.as_str()), ("ToolTransient", "ExecutionTimeout"));
        if !app.path().join("child").exists() {
            continue;
        }
        let expected = format!("begun\n[the command took longer than {seconds} s");
        assert!(result.content.starts_with(&expected), "{}", result.content);
        let child = app.read("child");
        let alive = std::process::Command::new("kill").args(["-0", child.trim()]).output().expect("kill");
        assert!(!alive.status.success());
        return;
    }
    panic!("this machine begins no command within a minute");
}

#[tokio::test]
async fn a_cancelled_command_is_ended_and_output_is_seen_as_it_comes() {
    let app = App::new();
    let (cancel, seen) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let (asked, into) = (cancel.clone(), Arc::clone(&seen));
    let cx = CallContext {
        cancel,
        on_output: Some(Arc::new(move |bytes: &[u8]| {
            into.lock().expect("seen").extend_from_slice(bytes);
            asked.cancel();
        })),
        ..CallContext::default()
    };
    let result = app.tools().call("Bash", r#"{"command": "echo first; sleep 600"}"#, cx).await;
    assert_eq!(result.error.expect("error").code, "ToolCancelled");
    assert_eq!(*seen.lock().expect("seen"), b"first\n");
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let app = App::new();
    let tools = app.tools();
    let call = tokio::spawn(async move {
        tools.call("Bash", r#"{"command": "echo $$ > pid; sleep 600"}"#, CallContext::default()).await
    });
    until(|| app.path().join("pid").exists() && app.read("pid").ends_with('\n')).await;
    call.abort();
    let pid = app.read("pid");
    until(|| !std::process::Command::new("kill").args(["-0", pid.trim()]).output().expect("kill").status.success())
        .await;
}

/// A background process of a command does not delay its result, and ends with the run.
#[tokio::test]
async fn a_background_process_does_not_delay_the_result() {
    let app = App::new();
    let host = app.host();
    let roots = etude_tools::Roots::new(&app.path(), &[], &[]).expect("roots");
    let tools = etude_tools::ToolSet::built_in(roots, Arc::clone(&host));
    let command = r#"{"command": "sleep 600 & echo $! > pid; echo started"}"#;
    let result = tools.call("Bash", command, CallContext::default()).await;
    assert_eq!(result.content, "started\n");
    let alive = || {
        let pid = app.read("pid");
        std::process::Command::new("kill").args(["-0", pid.trim()]).output().expect("kill").status.success()
    };
    assert!(alive());
    tokio::task::spawn_blocking(move || host.kill_leftovers()).await.expect("swept");
    assert!(!alive());
}

/// Tool calls of one response run at the same time.
#[tokio::test]
async fn commands_run_side_by_side() {
    let app = App::new();
    let tools = app.tools();
    let call = |mine: &str, theirs: &str| {
        let command = format!("touch {mine}; until [ -e {theirs} ]; do sleep 0.01; done; echo {mine}");
        let (tools, args) = (tools.clone(), json!({"command": command}).to_string());
        async move { tools.call("Bash", &args, CallContext::default()).await.content }
    };
    let both = tokio::join!(call("a", "b"), call("b", "a"));
    assert_eq!(both, ("a\n".to_owned(), "b\n".to_owned()));
}
