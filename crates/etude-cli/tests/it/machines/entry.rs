//! Setup and CheckGate (`b-stages` §5, §8, §21 E).

use super::case::walk;

/// B-L3, case 74: a setup cannot write names that etude provides.
#[test]
fn reserved_names_are_not_for_a_setup() {
    for name in ["upstream", "attempts", "host", "workflowRunId", "stageExecutionId"] {
        walk(&format!(
            "hook setup outline {{\"ctx\":{{\"{name}\":[]}}}}\n==> run\nexit 1\nasked 0\nerror Validation/ContextMutationForbidden\nStageInitFailed outline phase=Setup code=ContextMutationForbidden"
        ));
    }
}

/// B-L2, B-X2, case 75: no other hook writes the context.
#[test]
fn only_a_setup_writes_the_context() {
    for (hook, says) in [
        ("gate", r#"{"outcome":"proceed","ctx":{"x":1}}"#),
        ("assert", r#"{"verdict":"ok","ctx":{}}"#),
        ("exit", r#"{"ctx":{"x":1}}"#),
        ("next", r#"{"execution":"terminate","ctx":{"x":1}}"#),
    ] {
        walk(&format!(
            "hook {hook} outline {says}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 1\nerror Validation/ContextMutationForbidden stage=outline"
        ));
    }
}

/// B-0.1.2, B-L6, B-F21: the result of the previous stage must fit the input of this one.
#[test]
fn a_predecessor_that_does_not_fit_ends_the_stage_at_setup() {
    walk(
        r#"
        at outline next: [{else: true, sequential: [build]}]
        stage build inputsSchema: {type: object, required: [output]}
        outline done {"summary":"s"}
        ==> run
        exit 1
        asked build 0
        error Validation/StageInputInvalid index=0 stage=build
        StageInitFailed build phase=Setup class=Validation code=StageInputInvalid
        output {"verdict":"ok","parsed":{"summary":"s"},"capHit":false,"attemptCount":1}
        "#,
    );
}

/// B-F21, case 77: a join checks each sibling on its own.
#[test]
fn a_join_checks_each_sibling() {
    walk(
        r#"
        at outline next: [{else: true, parallel: [a, b, j], join: j}]
        stage a
        stage b
        stage j inputsSchema: {type: object, required: [output]}
        at a exit: {output: {x: 1}}
        outline done {"summary":"s"}
        a done {"summary":"a"}
        b done {"summary":"b"}
        ==> run
        exit 1
        asked j 0
        error Validation/StageInputInvalid index=1 stage=j
        StageInitFailed j phase=Setup path=/upstream/1
        "#,
    );
}

/// B-9, case 78: a StageResult has the fields of the contract and no others.
#[test]
fn a_result_has_no_further_fields() {
    walk(
        r#"
        at outline exit: {output: {a: 1}}
        at outline next: [{else: true, sequential: [build]}]
        stage build inputsSchema: {type: object, additionalProperties: false, required: [verdict, capHit, attemptCount], properties: {verdict: {enum: [ok, fail, skip]}, reason: {type: string}, parsed: true, capHit: {type: boolean}, attemptCount: {type: integer, minimum: 0}, output: true}}
        outline done {"summary":"s"}
        build done {"summary":"b"}
        ==> run
        exit 0
        "#,
    );
}

/// B-G2, B-G4, case 79: an open gate and a missing one let Act begin.
#[test]
fn an_open_gate_lets_act_begin() {
    walk(
        "hook gate outline {\"outcome\":\"proceed\"}\noutline done {\"summary\":\"s\"}\n==> run\nexit 0\nStageGateOutcome outline outcome=proceed effect=act",
    );
    walk("outline done {\"summary\":\"s\"}\n==> run\nexit 0\nStageGateOutcome outline outcome=proceed effect=act");
}

/// B-0.1.9, B-G1, B-G5, case 80: a deferred stage makes the run wait, and a resume enters it again at Setup with the same id.
#[test]
fn a_deferred_stage_is_entered_again() {
    walk(
        r#"
        hook setup outline {"ctx":{"task":"T1"}}
        hook gate outline {"outcome":"defer","reason":"not yet"}
        hook gate outline {"outcome":"defer","reason":"still not"}
        hook gate outline {"outcome":"proceed"}
        hook exit outline {}
        outline done {"summary":"s"}
        ==> run
        exit 5
        asked 0
        calls exit outline 0
        waits parked /reason "not yet"
        row outline#1 parked - 0
        output null

        ==> resume
        exit 5
        row outline#1 parked - 0

        ==> resume
        exit 0
        calls setup outline 3
        told setup outline 1 /run/stageExecutionId [RUN]/outline#1
        told setup outline 3 /run/stageExecutionId [RUN]/outline#1
        row outline#1 completed ok 1
        "#,
    );
}

/// B-G5, case 81: a blocked stage that may fail is routed.
#[test]
fn a_blocked_stage_fails_and_is_routed() {
    walk(
        r#"
        stage outline resolutionPolicy: fail
        hook gate outline {"outcome":"block","reason":"frozen"}
        at outline next: [{when: {path: result.verdict, equals: fail}, sequential: [repair]}, {else: true, terminal: true}]
        stage repair
        repair done {"summary":"r"}
        ==> run
        exit 0
        row outline#1 completed fail 0
        row repair#1 completed ok 1
        "#,
    );
}

/// B-G5 `ask`: a person decides about a closed gate; `--yolo` says yes.
#[test]
fn a_person_may_open_a_gate() {
    let machine = "stage outline resolutionPolicy: ask\nhook gate outline {\"outcome\":\"block\",\"reason\":\"frozen\"}\noutline done {\"summary\":\"s\"}\n";
    let asked = "==> run\nexit 5\nwaits Confirm /reason frozen\nrow outline#1 halted - 0\npermission-required outline requestKind=Confirm\n\n";
    walk(&format!("{machine}{asked}approve\n==> resume\nexit 0\nrow outline#1 completed ok 1"));
    walk(&format!("{machine}{asked}deny\n==> resume\nexit 1\nasked 0\nrow outline#1 completed fail 0"));
    walk(&format!("{machine}==> run --yolo\nexit 0"));
}

/// B-L6, B-5.1, case 82: after a setup that breaks, the phase is closed, and no model is called.
#[test]
fn a_setup_that_breaks_ends_the_stage() {
    walk(
        r#"
        hook setup outline exit 1
        ==> run
        exit 1
        asked 0
        error ExtensionHost/LifecycleFailure phase=Setup exitCode=1
        StagePreFired outline phase=Setup
        StagePostFired outline phase=Setup
        "#,
    );
}
