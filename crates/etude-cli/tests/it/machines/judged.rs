//! Assert, attempts and the turn cap (`b-stages` §7, §21 D).

use super::case::walk;

/// B-R5, B-R11, B-R7, case 62: the last retry is a failure with the last reason; Exit and Next run.
#[test]
fn the_last_retry_is_a_failure() {
    walk(
        r#"
        hook assert outline {"verdict":"retry","reason":"r1"}
        hook assert outline {"verdict":"retry","reason":"r2"}
        hook exit outline {}
        hook next outline {"execution":"terminate"}
        outline done {"summary":"a"}
        outline done {"summary":"b"}
        ==> run
        exit 1
        error stage_failed
        output {"verdict":"fail","reason":"r2","parsed":{"summary":"b"},"capHit":false,"attemptCount":2}
        StageAssertOutcome outline attempt=1 verdict=retry reason=r1
        StageAssertOutcome outline attempt=2 verdict=retry reason=r2
        calls exit outline 1
        calls next outline 1
        talk outline
        - assistant: submit_outline {"summary":"a"}
        - tool: received
        - user: r1
        "#,
    );
}

/// B-F15, B-R7, case 63: with one attempt there is no retry.
#[test]
fn one_attempt_is_no_retry() {
    walk(
        r#"
        stage outline retryPolicy: {maxAttempts: 1, backoff: none}
        hook assert outline {"verdict":"retry","reason":"no"}
        outline done {"summary":"a"}
        ==> run
        exit 1
        row outline#1 completed fail 1
        "#,
    );
}

/// B-A17, case 64: each attempt has all its turns.
#[test]
fn each_attempt_has_all_its_turns() {
    walk(
        r#"
        stage outline turnCap: 1
        hook assert outline {"verdict":"retry","reason":"again"}
        hook assert outline {"verdict":"ok"}
        outline done {"summary":"a"}
        outline done {"summary":"b"}
        ==> run
        exit 0
        row outline#1 completed ok 2
        "#,
    );
}

/// B-R3, cases 65 and 66: without a judge a completion is good and a reached cap is not.
#[test]
fn without_a_judge_a_cap_is_not_good() {
    walk(
        r#"
        stage outline turnCap: 1
        stage outline retryPolicy: {maxAttempts: 1, backoff: none}
        outline say hm
        ==> run
        exit 1
        row outline#1 completed fail 1 cap
        "#,
    );
    walk("outline done {\"summary\":\"s\"}\n==> run\nexit 0\nStageAssertOutcome outline verdict=ok");
}

/// B-A4, B-R1, B-A6, case 68: the judge sees the raw conversation and whether the cap was hit, and may accept that.
#[test]
fn the_judge_sees_everything_and_decides() {
    walk(
        r#"
        stage outline turnCap: 1
        hook assert outline {"verdict":"ok"}
        outline say hm
        ==> run
        exit 0
        told assert outline 1 /act/capHit true
        told assert outline 1 /act/transcript/messages/0/content hm
        output {"verdict":"ok","capHit":true,"attemptCount":1}
        "#,
    );
    walk(
        r#"
        hook assert outline {"verdict":"ok"}
        outline call read {"p":1}
        outline done {"summary":"s"}
        ==> run
        exit 0
        told assert outline 1 /protocol stage-hook/1
        told assert outline 1 /act/parsed {"summary":"s"}
        told assert outline 1 /act/capHit false
        told assert outline 1 /act/transcript/systemPrompt "Task: T1\n"
        told assert outline 1 /act/transcript/messages/0/toolCalls/0/args {"p":1}
        told assert outline 1 /act/attempts/0/turns 2
        "#,
    );
}

/// B-L7, cases 69 and 71: the judge's verdict overrides a payload that fits; `next` routes the failed stage.
#[test]
fn a_failed_stage_is_routed() {
    walk(
        r#"
        at outline assert: {rules: [{when: {path: parsed.summary, equals: s}, verdict: fail, reason: "not good"}]}
        at outline next: [{when: {path: result.verdict, equals: fail}, sequential: [repair]}, {else: true, terminal: true}]
        stage repair
        hook setup repair {"ctx":{"task":"fix"}}
        outline done {"summary":"s"}
        repair done {"summary":"r"}
        ==> run
        exit 0
        told setup repair 1 /ctx/upstream/0/verdict fail
        told setup repair 1 /ctx/upstream/0/parsed {"summary":"s"}
        row outline#1 completed fail 1
        row repair#1 completed ok 1
        "#,
    );
}

/// B-R10, case 70: a judge that breaks gives no verdict.
#[test]
fn a_judge_that_breaks_is_no_verdict() {
    walk(
        r#"
        hook assert outline exit 3
        hook exit outline {}
        hook next outline {"execution":"terminate"}
        outline done {"summary":"s"}
        ==> run
        exit 1
        error ExtensionHost/LifecycleFailure phase=Assert exitCode=3 stderrTail=~broken stage=outline
        calls exit outline 0
        calls next outline 0
        row outline#1 failed - 1
        "#,
    );
}

/// B-R6, case 72: a backoff waits between attempts; without a backoff the next attempt starts at once.
#[test]
fn a_backoff_waits_between_attempts() {
    let noting = "sh date +%s%N >> \"$ROOT/times\"; echo '{\"verdict\":\"retry\",\"reason\":\"x\"}'";
    let case = walk(&format!(
        "stage outline retryPolicy: {{maxAttempts: 2, backoff: 400}}\nhook assert outline {noting}\noutline done {{\"summary\":\"a\"}}\noutline done {{\"summary\":\"b\"}}\n==> run\nexit 1\nasked outline 2"
    ));
    let times: Vec<u128> = case.test.read("times").lines().map(|line| line.parse().expect("a time")).collect();
    assert!(times[1] - times[0] >= 400_000_000, "{times:?}");
}

/// B-G3, case 73: the judge is not called for a stage that its gate skipped.
#[test]
fn a_stage_that_was_passed_over_is_not_judged() {
    walk(
        r#"
        stage outline resolutionPolicy: skip
        hook gate outline {"outcome":"defer","reason":"later"}
        hook assert outline {"verdict":"fail"}
        hook exit outline {}
        ==> run
        exit 0
        asked 0
        calls assert outline 0
        calls exit outline 1
        output {"verdict":"skip","reason":"later","capHit":false,"attemptCount":0}
        StageGateOutcome outline outcome=defer reason=later policy=skip effect=skip
        "#,
    );
}
