//! Code steps (A-3, X-2).

use expect_test::expect;

use super::build::*;
use super::{check, play, starts_after};
use crate::effect::{Effect, ProcessCall, Protocol, Sandbox, Setting, Worker};
use crate::plan::{RetryOn, Step};

/// Asserts that a step whose program ends like this fails with this error and these details, without a retry.
#[track_caller]
fn fails(a: Step, end: &str, kind: &str, error: &str, details: &[&str]) {
    let details: String = details.iter().map(|detail| format!("  {detail}\n")).collect();
    let log = play(&pipeline([a]), &format!("p/a {end}")).log;
    let result = format!(
        "result failed\nerror {kind} business/a {error}\n  at a.yaml\n{details}row business/a code failed, tries 1, 10 ms\n"
    );
    assert!(log.ends_with(&result), "the result differs from\n{result}\nin the log\n{log}");
}

/// A-3.5: exit status, stderr tail and duration are in the error.
#[test]
fn a_non_zero_exit_fails_the_step_and_ends_the_pipeline() {
    check(
        pipeline([code("a"), code("b")]),
        "p/a exit 2 no such file",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 2 no such file
            emit step a failed
            result failed
            error step_failed business/a code step `a` exited with status 2
              at a.yaml
              exit 2
              stderr no such file
            row business/a code failed, tries 1, 10 ms
            row business/b code not_started
        "#]],
    );
}

/// A-3.5: death by a signal names it.
#[test]
fn a_signal_fails_the_step() {
    fails(
        code("a"),
        "signal SIGKILL",
        "step_failed",
        "code step `a` was killed by SIGKILL (signal 9)",
        &["signal SIGKILL"],
    );
}

/// A-3.5: the failure of a process that the terminal stopped says why its host had to end it.
#[test]
fn a_signal_of_the_terminal_says_what_it_means() {
    fails(
        code("a"),
        "signal SIGTTIN",
        "step_failed",
        "code step `a` was killed by SIGTTIN (signal 9), because it read from the terminal, which is not available",
        &["signal SIGTTIN"],
    );
}

#[test]
fn a_program_that_cannot_be_started_fails_the_step_without_a_retry() {
    fails(
        code("a").retry(3),
        "not_started no such program: `a`",
        "step_failed",
        "code step `a` could not be started: no such program: `a`",
        &["try rejected by transport (10 ms, 0 tokens): code step `a` could not be started: no such program: `a`"],
    );
}

/// A-3.3: anything but one JSON object with `output` is an error that shows what was found.
#[test]
fn unusable_stdout_is_shown() {
    fails(
        code("a"),
        "prints hello",
        "step_output_invalid",
        "code step `a`: text before the JSON document; stdout must be exactly one JSON object with `output`; found: hello",
        &[],
    );
}

#[test]
fn empty_stdout_is_an_error() {
    fails(
        code("a"),
        "prints_nothing",
        "step_output_invalid",
        "code step `a`: stdout is empty; stdout must be exactly one JSON object with `output`",
        &[],
    );
}

/// A-3.5: the exit status takes precedence over an empty stdout.
#[test]
fn the_exit_status_comes_before_the_output() {
    fails(code("a"), "exit 4 > 1", "step_failed", "code step `a` exited with status 4", &["exit 4"]);
}

/// X-2: these exit statuses are results.
#[test]
fn an_allowed_exit_status_is_a_result() {
    check(
        pipeline([code("a").allow_exit([0, 1])]),
        "p/a exit 1 > 5",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 1 > 5
            emit step a succeeded
            result succeeded 5
            row business/a code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-2: `{"output"}` is still required.
#[test]
fn an_allowed_exit_status_still_needs_an_output() {
    fails(
        code("a").allow_exit([0, 1]),
        "exit 1 oops",
        "step_output_invalid",
        "code step `a`: stdout is empty; stdout must be exactly one JSON object with `output`",
        &["stderr oops"],
    );
}

/// X-2: with `output: text` the message states the rule for text.
#[test]
fn a_text_step_fails_for_what_is_no_text() {
    fails(
        code("a").text().allow_exit([0, 1]),
        "exit 1",
        "step_output_invalid",
        "code step `a`: stdout is empty; with `output: text` stdout must be UTF-8 text",
        &[],
    );
}

/// X-2: an exit status that is not listed is a failure, even 0.
#[test]
fn exit_status_0_fails_where_it_is_not_allowed() {
    fails(code("a").allow_exit([1]), "output 1", "step_failed", "code step `a` exited with status 0", &["exit 0"]);
}

/// X-2: the output is validated as for llm steps, but without a retry.
#[test]
fn an_output_that_breaks_the_schema_fails_without_a_retry() {
    fails(
        code("a").schema(r#"{"required": ["n", "m"]}"#).retry(2),
        "output {}",
        "step_output_invalid",
        r#"the output of code step `a` does not satisfy `schema.json`: "n" is a required property; "m" is a required property"#,
        &[
            r#"try rejected by schema (10 ms, 0 tokens): the output of code step `a` does not satisfy `schema.json`: "n" is a required property; "m" is a required property"#,
        ],
    );
}

#[test]
fn an_output_that_satisfies_the_schema_passes() {
    check(
        pipeline([code("a").schema(r#"{"type": "integer"}"#)]),
        "p/a output 1",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output 1
            emit step a succeeded
            result succeeded 1
            row business/a code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-2: `retry` tries again after a growing pause, with an id per attempt.
#[test]
fn retries_wait_longer_each_time_up_to_the_limit() {
    check(
        pipeline([code("a").retry(3)]),
        "
        p/a exit 1 first
        p/a#2 signal SIGSEGV
        p/a#3 exit 1
        p/a#4 output 5
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 1 first
            emit step a try 1 of 4 rejected by transport: code step `a` exited with status 1
            start p/a!backoff1 sleep 100 ms
            done p/a!backoff1 over
            start p/a#2 process a
            done p/a#2 signal SIGSEGV
            emit step a try 2 of 4 rejected by transport: code step `a` was killed by SIGSEGV (signal 9)
            start p/a!backoff2 sleep 200 ms
            done p/a!backoff2 over
            start p/a#3 process a
            done p/a#3 exit 1
            emit step a try 3 of 4 rejected by transport: code step `a` exited with status 1
            start p/a!backoff3 sleep 300 ms
            done p/a!backoff3 over
            start p/a#4 process a
            done p/a#4 output 5
            emit step a succeeded
            result succeeded 5
            row business/a code succeeded, tries 4, 70 ms, retries 3
        "#]],
    );
}

/// X-2: `retry: N` is N retries; every attempt is in the error.
#[test]
fn exhausted_retries_carry_every_attempt() {
    check(
        pipeline([code("a").retry(1)]),
        "
        p/a exit 1 first
        p/a#2 exit 2 second
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 1 first
            emit step a try 1 of 2 rejected by transport: code step `a` exited with status 1
            start p/a!backoff1 sleep 100 ms
            done p/a!backoff1 over
            start p/a#2 process a
            done p/a#2 exit 2 second
            emit step a failed
            result failed
            error step_failed business/a code step `a` exited with status 2 (after 2 attempts)
              at a.yaml
              exit 2
              stderr second
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 1
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 2
            row business/a code failed, tries 2, 30 ms, retries 1
        "#]],
    );
}

/// X-2: `on` names the failures that are retried.
#[test]
fn a_failure_that_is_not_listed_is_not_retried() {
    check(
        pipeline([code("a").retry(5).retry_on([RetryOn::Status(75), RetryOn::Signal])]),
        "
        p/a exit 75
        p/a#2 signal SIGKILL
        p/a#3 exit 1
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 75
            emit step a try 1 of 6 rejected by transport: code step `a` exited with status 75
            start p/a!backoff1 sleep 100 ms
            done p/a!backoff1 over
            start p/a#2 process a
            done p/a#2 signal SIGKILL
            emit step a try 2 of 6 rejected by transport: code step `a` was killed by SIGKILL (signal 9)
            start p/a!backoff2 sleep 200 ms
            done p/a!backoff2 over
            start p/a#3 process a
            done p/a#3 exit 1
            emit step a failed
            result failed
            error step_failed business/a code step `a` exited with status 1 (after 3 attempts)
              at a.yaml
              exit 1
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 75
              try rejected by transport (10 ms, 0 tokens): code step `a` was killed by SIGKILL (signal 9)
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 1
            row business/a code failed, tries 3, 50 ms, retries 2
        "#]],
    );
}

/// A-3.7: the idempotency key is the same for every attempt; the number of the attempt is not part of the request's digest.
#[test]
fn every_attempt_has_the_same_key_and_digest() {
    let world = play(&pipeline([code("a").retry(1)]), "p/a exit 1");
    let call = |id: &str| match world.asked(id) {
        Effect::Process(call) => (call.key.clone(), call.attempt, call.dir.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(call("p/a"), ("p/a".to_owned(), 1, "pipelines/p".to_owned()));
    assert_eq!(call("p/a#2"), ("p/a".to_owned(), 2, "pipelines/p".to_owned()));
    assert_eq!(world.asked("p/a").digest(), world.asked("p/a#2").digest());
}

/// X-2: jitter takes off less than half of a pause, depends only on step and attempt, and differs between steps.
#[test]
fn jitter_is_bounded_and_the_same_on_every_run() {
    let pauses = |name: &str| {
        let script: String = (1..=3)
            .map(|n| format!("p/{name}{} exit 1\n", if n == 1 { String::new() } else { format!("#{n}") }))
            .collect();
        let world = play(&pipeline([code(name).retry(3).jitter()]), &script);
        (1..=3)
            .map(|n| match world.asked(&format!("p/{name}!backoff{n}")) {
                Effect::Sleep { ms, deadline: false } => *ms,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    for name in ["a", "b", "fetch", "build", "deploy"] {
        let found = pauses(name);
        for (ms, full) in found.iter().zip([100, 200, 300]) {
            assert!(*ms > full / 2 && *ms <= full, "{name}: {found:?}");
        }
        assert_eq!(found, pauses(name));
    }
    assert_ne!(pauses("a"), pauses("b"));
}

/// Cancellation during a pause ends the step at once: no further attempt begins.
#[test]
fn cancel_during_a_pause_starts_no_further_attempt() {
    check(
        pipeline([code("a").retry(3)]).after([code("close")]),
        "
        p/a exit 1
        reach p/a!backoff1
        cancel
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a exit 1
            emit step a try 1 of 4 rejected by transport: code step `a` exited with status 1
            start p/a!backoff1 sleep 100 ms
            cancel
            abandon p/a!backoff1
            emit step a cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/a cancelled by the user
              at a.yaml
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 1
            row business/a code cancelled, tries 1, 10 ms
            row destructor/close code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-1: the timeout covers all attempts and their pauses.
#[test]
fn the_timeout_ends_a_step_that_waits_for_its_next_attempt() {
    check(
        pipeline([code("a").retry(3).timeout(5)]),
        "
        p/a exit 1
        reach p/a!backoff1
        p/a!timeout over
        ",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            start p/a!timeout deadline 5000 ms
            done p/a exit 1
            emit step a try 1 of 4 rejected by transport: code step `a` exited with status 1
            start p/a!backoff1 sleep 100 ms
            done p/a!timeout over
            abandon p/a!backoff1
            emit step a failed
            result failed
            error step_timeout business/a code step `a` exceeded its timeout of 5 s
              at a.yaml
              try rejected by transport (10 ms, 0 tokens): code step `a` exited with status 1
            row business/a code failed, tries 1, 10 ms
        "#]],
    );
}

/// X-2: `env` values are templates.
#[test]
fn env_values_are_rendered() {
    starts_after(r#"{"name": "ada"}"#, code("b").env("WHO", "{{a.output.name}}"), "b WHO=ada");
}

/// X-2: the paths of a sandbox are templates.
#[test]
fn paths_of_a_sandbox_are_rendered() {
    starts_after(
        r#"{"dir": "/data"}"#,
        code("b").sandbox("{{a.output.dir}}/in", "out"),
        "b sandboxed read /data/in write out",
    );
}

/// X-2: a step whose warm interpreter is not available runs all the same, and the observer gets the reason.
#[test]
fn a_step_that_is_not_warm_is_reported() {
    check(
        pipeline([code("a")]),
        "p/a cold it has ended",
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a cold it has ended
            emit step a detour: no warm interpreter: it has ended
            emit step a succeeded
            result succeeded null
            row business/a code succeeded, tries 1, 10 ms
        "#]],
    );
}

/// X-2, A-3.7: the digest includes the sandbox of a process, the names of its variables from the environment and
/// `output: text`, but not the worker.
#[test]
fn a_sandbox_and_names_of_variables_count_for_the_digest_and_a_worker_does_not() {
    let call = |protocol: Protocol, setting: Setting| {
        Effect::Process(Box::new(ProcessCall {
            command: crate::effect::Command::Shell("x".to_owned()),
            dir: String::new(),
            env: Vec::new(),
            key: "k".to_owned(),
            attempt: 1,
            stdin: crate::effect::Stdin::default(),
            protocol,
            setting,
        }))
        .digest()
    };
    let digest = |setting: Setting| call(Protocol::Step, setting);
    let sandbox = |network, read: &[&str], write: &[&str]| {
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let sandbox = Sandbox { network, read: paths(read), write: paths(write) };
        digest(Setting { sandbox: Some(Box::new(sandbox)), ..Setting::default() })
    };
    let bare = digest(Setting::default());
    assert_eq!(
        bare.to_string(),
        "1232f92523cd827723fb8b9a026c990993a465179c9a26a72c9bfd049ca4eeec",
        "digests in journals stay as they were"
    );
    assert_eq!(digest(Setting { worker: Some(Worker::Python), ..Setting::default() }), bare);
    let from = |name: &str, source: &str| {
        digest(Setting { env_from: vec![(name.to_owned(), source.to_owned())], ..Setting::default() })
    };
    let all = [
        bare,
        call(Protocol::Text, Setting::default()),
        from("A", "KEY"),
        from("B", "KEY"),
        from("A", "OTHER_KEY"),
        sandbox(false, &[], &[]),
        sandbox(true, &[], &[]),
        sandbox(false, &["a"], &[]),
        sandbox(false, &[], &["a"]),
        sandbox(false, &["a"], &["a"]),
    ];
    assert_eq!(all.into_iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
}

/// A-4.1: a reference without a value is an error that names it.
#[test]
fn an_env_value_without_a_value_fails_before_anything_starts() {
    check(
        pipeline([code("a"), code("b").env("WHO", "{{a.output.name}}")]),
        r#"p/a output {"id": 1}"#,
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output {"id": 1}
            emit step a succeeded
            emit step b started
            emit step b failed
            result failed
            error template_unresolved business/b `{{a.output.name}}` has no value: `a.output` has no member `name`; it has `id`
              at b.yaml
            row business/a code succeeded, tries 1, 10 ms
            row business/b code failed
        "#]],
    );
}

/// An outcome of another kind than the effect is an internal error, and is reported as such.
#[test]
fn an_outcome_of_the_wrong_kind_is_an_internal_failure() {
    fails(code("a"), "kept", "internal", "internal error: the outcome of `p/a` does not match its effect", &[]);
}
