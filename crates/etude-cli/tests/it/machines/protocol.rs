//! Protocol of scripts (`b-stages` §20.4, §21 I).

use super::case::walk;

/// B-H3, B-20.4, case 137: an empty or blank stdout is an answer only from setup and exit; a policy or a guard without output
/// permits nothing.
#[test]
fn only_setup_and_exit_may_say_nothing() {
    for nothing in ["nothing", "sh echo", "sh printf ' \\n\\n'"] {
        walk(&format!(
            "hook setup outline {nothing}\nhook exit outline {nothing}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0"
        ));
    }
    for (hook, phase) in [("gate", "CheckGate"), ("assert", "Assert"), ("next", "Next")] {
        walk(&format!(
            "hook {hook} outline nothing\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 1\nerror ExtensionHost/LifecycleFailure phase={phase} exitCode=0"
        ));
    }
    walk(
        "hook grant nothing\noutline call bash {}\noutline done {\"summary\":\"s\"}\n==> run --yolo\nexit 0\nran nothing\nLifecycleFailure outline phase=grant",
    );
    walk(
        "hook guard nothing\noutline call read {}\noutline done {\"summary\":\"s\"}\n==> run\nexit 0\nran nothing\nHookGuardFailed outline code=HookGuardFailed",
    );
}

/// B-20.4, case 138: each hook that breaks ends the run with its phase, its status and its last stderr, which no model
/// receives.
#[test]
fn a_script_that_breaks_ends_the_run() {
    for (hook, phase) in
        [("setup", "Setup"), ("gate", "CheckGate"), ("assert", "Assert"), ("exit", "Exit"), ("next", "Next")]
    {
        for (says, status) in [("{bad", 0), ("exit 7", 7), ("[1]", 0), ("{} {}", 0)] {
            let case = walk(&format!(
                "hook {hook} outline {says}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 1\nerror ExtensionHost/LifecycleFailure phase={phase} exitCode={status} stage=outline"
            ));
            assert!(!case.was_sent("broken"));
        }
    }
}

/// B-20.4, case 138: a script that takes too long is ended, and its last stderr is kept.
#[test]
fn a_script_that_takes_too_long_is_ended() {
    walk(
        r#"
        hook assert outline sh echo "last words" >&2; sleep 30
        at outline assert: {script: sh scripts/hook.sh assert-outline, timeoutMs: 8000}
        outline done {"summary":"s"}
        ==> run
        exit 1
        error ExtensionHost/LifecycleFailure phase=Assert exitCode=null stderrTail=~last words
        "#,
    );
}

/// B-20.4, case 139: validators of pipelines work as judges.
#[test]
fn a_validator_may_judge() {
    walk(
        r#"
        hook validate outline exit 1 {"errors":["a","b"]}
        hook validate outline {"valid":true}
        outline done {"summary":"1"}
        outline done {"summary":"2"}
        ==> run
        exit 0
        StageAssertOutcome outline verdict=retry reason="a\nb"
        StageAssertOutcome outline verdict=ok
        row outline#1 completed ok 2
        "#,
    );
    walk(
        "hook validate outline exit 1\noutline done {\"summary\":\"1\"}\n==> run\nexit 1\nerror ExtensionHost/LifecycleFailure phase=Assert exitCode=1",
    );
    // Its output and its exit status contradict each other: both are reported.
    walk(
        "hook validate outline exit 3 {\"valid\":true}\noutline done {\"summary\":\"1\"}\n==> run\nexit 1\nerror ExtensionHost/LifecycleFailure phase=Assert exitCode=3 message=~contradicts itself: it printed `{\"valid\": true}`, but exited with status 3",
    );
}

/// B-20.3, case 140; B-21.141: the same machine in YAML and in scripts emits the same events.
#[test]
fn yaml_and_scripts_emit_the_same() {
    let yaml = r#"
        at outline setup: {set: {task: T1}}
        at outline gate: {rules: [{when: {path: ctx.task, equals: T1}, outcome: proceed, reason: fits}]}
        at outline assert: {rules: [{when: {path: parsed.summary, equals: s}, verdict: ok, reason: good}]}
        at outline exit: {output: {digest: D}, slot: {n: 1}}
        at outline next: [{else: true, terminal: true}]
    "#;
    let scripts = r#"
        hook setup outline {"ctx":{"task":"T1"}}
        hook gate outline {"outcome":"proceed","reason":"fits"}
        hook assert outline {"verdict":"ok","reason":"good"}
        hook exit outline {"output":{"digest":"D"},"slot":{"n":1}}
        hook next outline {"execution":"terminate"}
    "#;
    let reported = |machine: &str| {
        let case =
            walk(&format!("{machine}\noutline call read {{}}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0"));
        let mut lines = case.lines();
        lines
            .iter_mut()
            .for_each(|line| drop(line["payload"].as_object_mut().and_then(|facts| facts.remove("durationMs"))));
        lines
    };
    let (first, second, again) = (reported(yaml), reported(scripts), reported(yaml));
    assert_eq!(first, second);
    assert_eq!(first, again);
}

/// B-20.4: a script may ask a person; the stage halts, and the script is called once more with the answer.
#[test]
fn a_script_may_ask_somebody() {
    for (hook, before, proceed) in [
        ("setup", "", r#"{"ctx":{"task":"T1"}}"#),
        ("gate", "", r#"{"outcome":"proceed"}"#),
        ("assert", "outline done {\"summary\":\"0\"}", r#"{"verdict":"ok"}"#),
        ("exit", "outline done {\"summary\":\"0\"}", "{}"),
    ] {
        let ask = r#"{"ask":{"kind":"Confirm","message":"sure?","about":"it"}}"#;
        let row = if before.is_empty() { 0 } else { 1 };
        walk(&format!(
            r#"
            hook {hook} outline {ask}
            hook {hook} outline {ask}
            hook {hook} outline {proceed}
            {before}
            outline done {{"summary":"s"}}
            ==> run
            exit 5
            waits Confirm /about "it"
            row outline#1 halted - {row}
            permission-required outline requestKind=Confirm
            Approval outline decision=halt requestKind=Confirm

            deny not today
            ==> resume
            exit 0
            calls {hook} outline 3
            told {hook} outline 3 /answer/approved false
            told {hook} outline 3 /answer/reason "not today"
            told {hook} outline 3 /hook {hook}
            row outline#1 completed ok 1
            "#
        ));
    }
}

/// B-20.4: a stage whose next asks has already left: its exit does not run again.
#[test]
fn a_next_that_asks_repeats_nothing() {
    walk(
        r#"
        hook exit outline {}
        hook next outline {"ask":{"message":"go on?"}}
        hook next outline {"execution":"terminate"}
        outline done {"summary":"s"}
        ==> run
        exit 5
        waits Confirm /message "go on?"
        row outline#1 completed ok 1

        approve
        ==> resume
        exit 0
        asked outline 1
        calls exit outline 1
        told next outline 2 /answer/approved true
        "#,
    );
}

/// B-20.4, B-HL2: `--yolo` answers; a script that asks again, or asks nothing, is broken.
#[test]
fn a_question_is_asked_once_and_in_words() {
    let ask = r#"{"ask":{"message":"sure?"}}"#;
    walk(&format!(
        "hook gate outline {ask}\nhook gate outline {{\"outcome\":\"proceed\"}}\noutline done {{\"summary\":\"s\"}}\n==> run --yolo\nexit 0\ntold gate outline 2 /answer/approved true"
    ));
    walk(&format!(
        "hook gate outline {ask}\nhook gate outline {ask}\n==> run --yolo\nexit 1\nerror ExtensionHost/LifecycleFailure phase=CheckGate message=~asked again after the answer; the answer is in `answer` of its stdin"
    ));
    walk(
        "hook gate outline {\"ask\":{\"kind\":\"Oracle\",\"message\":\"x\"}}\n==> run\nexit 1\nerror ExtensionHost/LifecycleFailure phase=CheckGate",
    );
}

/// B-20.4: lines for the log are reported.
#[test]
fn a_script_may_leave_lines_in_the_log() {
    walk(
        "hook setup outline {\"ctx\":{},\"audit\":[{\"code\":\"C1\",\"message\":\"m\"}]}\noutline done {\"summary\":\"s\"}\n==> run\nexit 0\nHookAudit outline code=C1 message=m",
    );
}

/// B-20.4, `strictUpstream`: scripts receive the outputs of earlier stages unless it is strict.
#[test]
fn scripts_see_the_outputs_of_earlier_stages_unless_it_is_strict() {
    let machine = "at outline exit: {output: {k: 1}}\nat outline next: [{else: true, sequential: [b]}]\nstage b\nhook setup b {\"ctx\":{}}\noutline done {\"summary\":\"o\"}\nb done {\"summary\":\"b\"}\n";
    walk(&format!("{machine}==> run\nexit 0\ntold setup b 1 /steps {{\"outline\":{{\"output\":{{\"k\":1}}}}}}"));
    walk(&format!("config strictUpstream: true\n{machine}==> run\nexit 0\ntold setup b 1 /steps null"));
}
