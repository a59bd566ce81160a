//! Code steps: their input, start, output and end (A-3). Behaviour with extensive tests from outside is only touched here.

use serde_json::json;

use crate::test::{Test, noting, with_some_limit};

fn one(script: &str) -> Test {
    Test::new().pipeline("p", |p| p.sh("a", script))
}

/// A-3.1, A-3.7: the directory is the pipeline's; the variables of the contract are set.
#[test]
fn a_step_runs_in_its_directory_with_the_variables_of_the_contract() {
    let script = "printf '{\"output\":[\"%s\",\"%s\",\"%s\",\"%s\",\"%s\",\"%s\"]}' \"$(pwd)\" \"$ETUDE_RUN_ID\" \
                  \"$ETUDE_EFFECT_ID\" \"$ETUDE_APP_DIR\" \"$ETUDE_TOOLS_DIR\" \"$ETUDE_PIPELINE_DIR\"";
    one(script)
        .run_json("p")
        .output(json!(["[APP]/pipelines/p", "[RUN]", "[RUN]/p/a", "[APP]", "[APP]/tools", "[APP]/pipelines/p"]));
}

/// A-3.2: words are split as a shell would split them, without one; shell syntax gets a shell.
#[test]
fn a_command_runs_without_a_shell_unless_it_needs_one() {
    let words = |command: &str| {
        let command = serde_json::Value::from(command);
        Test::new().pipeline("p", |p| {
            p.step(&format!("name: a\ntype: code\ncommand: {command}"))
                .file("show.sh", "for w in \"$@\"; do l=\"$l\\\"$w\\\",\"; done; echo \"{\\\"output\\\":[${l%,}]}\"")
        })
    };
    words("sh show.sh 'a b' \"c | d\" e\\ f '$HOME' '*'")
        .run_json("p")
        .output(json!(["a b", "c | d", "e f", "$HOME", "*"]));
    words("W=1; sh show.sh \"$W\" | cat").run_json("p").output(json!(["1"]));
}

/// A-3.3: a number passes through every step as it was written, however long.
#[test]
fn numbers_pass_unchanged() {
    let number = "12345678901234567890123.45678901234567890e-3";
    let test = Test::new().pipeline("p", |p| {
        p.sh("a", &format!("echo '{{\"output\":{number}}}'"))
            .sh("b", "cat > \"$ROOT/stdin\"; echo '{\"output\":1}'")
            .with("output: a")
    });
    let ran = test.run(&["run", "-p", "p"]).exit(0);
    assert_eq!(
        (ran.out().trim(), test.read("stdin")),
        (number, format!("{{\"input\":{{}},\"steps\":{{\"a\":{{\"output\":{number}}}}}}}"))
    );
}

/// A-3.3: anything but one document with `output` is an error that shows the output.
#[test]
fn anything_but_one_document_is_refused_and_shown() {
    let cases = [
        ("true", "stdout is empty"),
        ("echo '{\"output\":1}'; echo done", "done"),
        ("echo hello; echo '{\"output\":1}'", "hello"),
        ("echo '{\"result\":1}'", "`output`"),
        ("echo '[1]'", "[1]"),
        ("echo '{\"output\":NaN}'", "NaN"),
        ("printf '{\"output\":\"\\377\"}'", "UTF-8"),
    ];
    for (script, found) in cases {
        let ran = one(script).run_json("p").exit(1).failed_with(&["business a: step_output_invalid"]);
        let message = ran.at("/errors/0/message");
        assert!(message.as_str().is_some_and(|text| text.contains(found)), "{script}: {message}");
    }
}

/// A-3.5: the exit status, the signal, the tail of stderr and the time are in the error; the output of a failed step does not
/// count.
#[test]
fn a_failed_step_has_all_its_facts() {
    one("echo '{\"output\":1}'; echo first >&2; echo last >&2; exit 4").run_json("p").exit(1).has(
        "/errors",
        json!([{
            "code": "R0101", "kind": "step_failed", "phase": "business", "step": "a",
            "message": "code step `a` exited with status 4", "file": "pipelines/p/pipeline.yaml", "line": 4, "column": 11,
            "exit_status": 4, "stderr_tail": "first\nlast\n", "stderr_lines": 2, "duration_ms": 0,
        }]),
    );
    let ran = one("kill -SEGV $$").run_json("p").exit(1);
    assert_eq!((ran.at("/errors/0/signal"), ran.at("/errors/0/exit_status")), (json!("SIGSEGV"), json!(null)));
}

/// A-3.5: steps after a failed step do not start.
#[test]
fn nothing_after_a_failed_step_starts() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1").sh("b", "exit 1").note("c", "1"));
    test.run_json("p").exit(1).steps(&["a succeeded 1", "b failed 1", "c not_started 0"]);
    assert_eq!(test.ledger(), ["a"]);
}

/// A-3.3: a command that does not exist, or may not be run, is reported as such.
#[test]
fn a_command_that_cannot_be_started_says_why() {
    let test = Test::new().pipeline("p", |p| p.step("name: a\ntype: code\ncommand: no-such-program-here x"));
    let ran = test.run_json("p").exit(1).failed_with(&["business a: step_failed"]);
    let message = ran.at("/errors/0/message");
    assert!(message.as_str().is_some_and(|text| text.contains("no-such-program-here")), "{message}");
}

/// A-3.4: megabytes go in and out without a deadlock, read or not.
#[test]
fn megabytes_pass_whether_they_are_read_or_not() {
    let big = "head -c 3000000 /dev/zero | tr '\\0' x";
    let test = Test::new().pipeline("p", |p| {
        p.sh("big", &format!("printf '{{\"output\":\"'; {big}; printf '\"}}'"))
            .sh("ignores", "echo '{\"output\":1}'")
            .sh("late", "sleep 0.1; n=$(wc -c); echo \"{\\\"output\\\":$n}\"")
    });
    let ran = test.run_json("p").exit(0);
    let length: usize = r#"{"input":{},"steps":{"big":{"output":""},"ignores":{"output":1}}}"#.len() + 3_000_000;
    assert_eq!(ran.at("/output"), length);
}

/// A-3.6: a finished step does not wait for processes that it left running with its stdout, and they are gone after the run.
#[test]
fn background_children_do_not_delay_the_step_and_do_not_survive_the_run() {
    let test = one("sleep 300 & echo $! > \"$ROOT/pid\"; echo '{\"output\":1}'");
    test.run_json("p").output(1);
    let pid = test.read("pid");
    crate::test::wait_until("the end of the child", || {
        !std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
    });
}

/// A-3.6, X-1: a step that takes too long receives SIGTERM, and ends with everything it started.
#[test]
fn a_step_that_takes_too_long_is_ended() {
    let script = format!(
        "trap '{}; exit 0' TERM; printf 'still at it' >&2; {}; while :; do sleep 0.02; done",
        noting("asked").replace('\'', ""),
        noting("begun")
    );
    with_some_limit(|limit| {
        let test = Test::new().pipeline("p", |p| p.sh_with("a", &script, &format!("timeout: {limit}")));
        let ran = test.run_json("p").exit(1).failed_with(&["business a: step_timeout"]).has("/errors/0/code", "R0103");
        let has_begun = !test.ledger().is_empty();
        if has_begun {
            assert_eq!(test.ledger(), ["begun", "asked"]);
            let said = test.run(&["runs", "show", &ran.id(), "--stream", "p/a/stderr"]).exit(0);
            // Shells print messages of their own.
            assert!(said.out().starts_with("still at it"), "{}", said.out());
        }
        has_begun
    });
}

/// A-3.3: the stderr of a step is shown live, and stored completely.
#[test]
fn stderr_is_shown_and_kept() {
    let test = one("for n in $(seq 1 200); do echo \"line $n\"; done >&2; echo '{\"output\":1}'");
    let ran = test.run_json("p").output(1).stderr_has("a | line 200");
    let kept = test.run(&["runs", "show", &ran.id(), "--stream", "p/a/stderr"]).exit(0);
    assert_eq!(kept.out().lines().count(), 200);
}

/// L-46, L-50: a `require` that does not hold ends the run before the step, and reports the condition as written; the
/// destructor runs. Two values of the run can be compared.
#[test]
fn a_requirement_that_is_not_met_ends_the_run_before_its_step() {
    let guard = r#"require: {value: "{{order.output}}", equals: "{{input.user}}"}"#;
    let gone = format!("{}\necho '{{\"output\": 1}}'", noting("gone"));
    let test = Test::new()
        .yaml("p", &format!(
            "name: p\ndescription: x\ninput: {{user: string}}\nsteps:\n  - {{name: order, type: code, command: 'echo ann', output: text}}\n  \
             - {{name: gone, type: code, command: sh steps/gone.sh, {guard}}}\n"
        ))
        .file("pipelines/p/steps/gone.sh", &gone)
        .pipeline("_destructor", |p| p.note("end", "1"));
    assert!(test.run(&["graph", "p"]).exit(0).out().contains("requires order.output equals input.user"));
    test.run(&["run", "--pipeline", "p", "-i", "user=ann", "--format", "json"]).output(1);
    let ran = test.run(&["run", "--pipeline", "p", "-i", "user=bob", "--format", "json"]).exit(1);
    ran.failed_with(&["business gone: deviated"])
        .has("/errors/0/reason", "require")
        .has("/errors/0/code", "R0106")
        .has("/errors/0/condition", r#"{value: "{{order.output}}", equals: "{{input.user}}"}"#);
    assert_eq!(test.ledger(), ["gone", "end", "end"]);
}
