//! Next, lists, fan-out and join (`b-stages` §10, §21 G).

use super::case::walk;
use crate::test::wait_until;

/// B-L8, B-L10, B-N9, B-N7, B-L9, B-ST4, cases 99 and 126: a chain of two stages is two turns, each recorded before the next
/// begins.
#[test]
fn a_chain_of_two_stages() {
    walk(
        r#"
        at outline next: [{else: true, sequential: [build]}]
        stage build
        hook setup build {"ctx":{"task":"b"}}
        outline done {"summary":"o"}
        build done {"summary":"b"}
        ==> run
        exit 0
        told setup build 1 /ctx/upstream [{"verdict":"ok","parsed":{"summary":"o"},"capHit":false,"attemptCount":1}]
        row outline#1 completed ok 1
        row build#1 completed ok 1
        SMAttached resumed=false sawSlot=true
        SessionTurnStart outline
        StageExited outline
        SessionTurnEnd outline
        SessionPersisted
        SMTransition outline from=outline to=build nextKind=sequential
        SessionTurnStart build
        StageExited build
        SessionTurnEnd build
        SessionPersisted
        SMTransition build from=build to=null
        "#,
    );
}

/// B-N1, B-N3, case 100: all ways to declare that nothing comes next.
#[test]
fn every_way_to_say_that_it_is_over() {
    for next in [
        r#"hook next outline {"execution":"sequential","nextStages":[]}"#,
        r#"hook next outline {"execution":"terminate"}"#,
        r#"hook next outline {"output":{"execution":"terminate"}}"#,
        "at outline next: [{else: true, terminal: true}]",
    ] {
        walk(&format!(
            "{next}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0\nSMTransition outline nextKind=terminate"
        ));
    }
}

/// B-N6, case 101: the successors of a stage in a list come before the next stage of the list.
#[test]
fn a_list_is_gone_through_in_depth() {
    walk(
        r#"
        at outline next: [{else: true, sequential: [a, b]}]
        at a next: [{else: true, sequential: [c]}]
        stage a
        stage b
        stage c
        hook setup b {"ctx":{}}
        outline done {"summary":"o"}
        a done {"summary":"a"}
        b done {"summary":"b"}
        c done {"summary":"c"}
        ==> run
        exit 0
        row outline#1 completed ok 1
        row a#1 completed ok 1
        row c#1 completed ok 1
        row b#1 completed ok 1
        told setup b 1 /ctx/upstream/0/parsed {"summary":"c"}
        "#,
    );
}

/// B-N2, case 102: the list has another name; both with different content are a fault.
#[test]
fn the_list_has_another_name() {
    walk(
        r#"
        stage b
        hook next outline {"execution":"sequential","stages":["b"]}
        outline done {"summary":"o"}
        b done {"summary":"b"}
        ==> run
        exit 0
        asked b 1
        "#,
    );
    walk(
        r#"
        stage b
        hook next outline {"execution":"sequential","stages":["b"],"nextStages":[]}
        outline done {"summary":"o"}
        ==> run
        exit 1
        error ExtensionHost/LifecycleFailure phase=Next
        "#,
    );
}

/// B-P6, B-N5: a script's answer is checked when it arrives. The stage is still done, and reported once.
#[test]
fn what_a_script_says_comes_next_is_checked() {
    for (says, error) in [
        (
            r#"{"execution":"sequential","nextStages":["ghost"]}"#,
            "ExtensionHost/LifecycleFailure phase=Next unknownStage=ghost",
        ),
        (r#"{"execution":"parallel","nextStages":["a","b"],"join":"outline"}"#, "Validation/StageJoinDangling"),
        (r#"{"execution":"parallel","nextStages":["b"]}"#, "ExtensionHost/InvalidParallelPlan"),
        (r#"{"execution":"onwards"}"#, "ExtensionHost/LifecycleFailure phase=Next"),
    ] {
        walk(&format!(
            "stage a\nstage b\nhook next outline {says}\noutline done {{\"summary\":\"o\"}}\n==> run\nexit 1\nerror {error}\nrow outline#1 completed ok 1\nStageExecution outline outcome=ok\noutput {{\"verdict\":\"ok\",\"parsed\":{{\"summary\":\"o\"}},\"capHit\":false,\"attemptCount\":1}}"
        ));
    }
}

/// A machine that runs `a` and `b` concurrently, and then `j`.
fn fan(more: &str) -> String {
    format!(
        "at outline next: [{{else: true, parallel: [a, b, j], join: j}}]\nstage a\nstage b\nstage j\noutline done {{\"summary\":\"o\"}}\na done {{\"summary\":\"a\"}}\nb done {{\"summary\":\"b\"}}\nj done {{\"summary\":\"j\"}}\n{more}\n"
    )
}

/// B-P1, B-P2, B-P13, B-P14, B-P18, cases 104 and 105: siblings overlap and see nothing of earlier conversations; the join
/// follows both, with their results in order; all of it is one turn.
#[test]
fn siblings_and_their_join_are_one_turn() {
    let meet = |own: &str, other: &str| {
        format!(
            "hook setup {own} sh touch \"$ROOT/{own}\"; n=0; while [ ! -e \"$ROOT/{other}\" ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done; [ -e \"$ROOT/{other}\" ] && echo '{{\"ctx\":{{}}}}'"
        )
    };
    let text = fan(&format!(
        r#"
        {}
        {}
        hook setup j {{"ctx":{{}}}}
        hook exit a sh sleep 0.3; echo '{{}}'
        ==> run
        exit 0
        told setup a 1 /ctx/upstream []
        told setup b 1 /ctx/upstream []
        told setup j 1 /ctx/upstream/0/parsed {{"summary":"a"}}
        told setup j 1 /ctx/upstream/1/parsed {{"summary":"b"}}
        told setup j 1 /run/compoundTurnId "[RUN]:outline:compound:1"
        SessionTurnStart outline
        SessionTurnEnd outline
        SessionTurnStart outline execution=parallel compoundTurnId=[RUN]:outline:compound:1
        SessionTurnEnd j parentCompoundTurnId=[RUN]:outline:compound:1
        "#,
        meet("a", "b"),
        meet("b", "a")
    ));
    walk(&text);
}

/// B-P8, B-P9, B-P10, case 107: the first sibling that does not succeed ends the turn; the join never runs, and the machine is
/// reported.
#[test]
fn the_first_failure_ends_the_fan_out() {
    for (b, cause) in [
        ("hook assert b {\"verdict\":\"fail\",\"reason\":\"tabs\"}", "cause.verdict=fail cause.reason=tabs"),
        ("hook setup b exit 1", "cause.class=ExtensionHost cause.code=LifecycleFailure"),
    ] {
        walk(&fan(&format!(
            r#"
        {b}
        hook exit a sh sleep 30
        hook onFailure {{}}
        ==> run
        exit 1
        asked j 0
        error ExtensionHost/ParallelSiblingFailure failedSiblingId=b failedSibling=b joinReady=false {cause}
        ParallelSiblingFailure outline failedSiblingId=b
        told onFailure 1 /hook onFailure
        told onFailure 1 /event/failedSiblingId b
        "#
        )));
    }
}

/// B-R9, B-P7, cases 108 and 109: neither a retry inside a sibling nor a cap that its judge accepts is a failure.
#[test]
fn what_a_judge_accepts_is_a_success() {
    walk(&fan(
        "hook assert b {\"verdict\":\"retry\",\"reason\":\"again\"}\nhook assert b {\"verdict\":\"ok\"}\nb done {\"summary\":\"b2\"}\n==> run\nexit 0\nasked b 2\nasked j 1",
    ));
    walk(&fan(
        "stage a turnCap: 1\nstage c turnCap: 1\nat outline next: [{else: true, parallel: [a, c, j], join: j}]\nat b next: [{else: true, terminal: true}]\nhook assert c {\"verdict\":\"ok\"}\nc say hm\n==> run\nexit 0\nasked j 1",
    ));
}

/// B-G7: a sibling that its gate keeps out does not count as a success, whatever the policy; the row of a suspended one says
/// so.
#[test]
fn a_sibling_that_its_gate_keeps_out_is_no_success() {
    for (policy, row) in
        [("retry-later", "b#1 parked - 0"), ("skip", "b#1 completed skip 0"), ("fail", "b#1 completed fail 0")]
    {
        let case = walk(&fan(&format!(
            "stage b resolutionPolicy: {policy}\nhook gate b {{\"outcome\":\"defer\",\"reason\":\"z\"}}\n==> run\nexit 1\nasked j 0\nerror ExtensionHost/ParallelSiblingFailure failedSiblingId=b"
        )));
        let rows = case.rows();
        assert!(rows.iter().any(|found| found == row), "{rows:?}");
    }
}

/// B-P14, B-P17, case 111: without a join the turn ends with the last sibling.
#[test]
fn a_fan_out_without_a_join_ends_with_its_last_sibling() {
    walk(
        r#"
        at outline next: [{else: true, parallel: [a, b]}]
        stage a
        stage b
        outline done {"summary":"o"}
        a done {"summary":"a"}
        b done {"summary":"b"}
        ==> run
        exit 0
        SessionTurnStart outline
        SessionTurnEnd outline
        SessionTurnStart outline execution=parallel
        SessionTurnEnd outline execution=parallel
        "#,
    );
}

/// B-X6, case 113: siblings do not see what the others write.
#[test]
fn siblings_do_not_see_each_other() {
    walk(&fan("at a setup: {set: {task: A}}\n==> run\nexit 0\nprompt a Task: A\nprompt b Task: "));
}

/// B-K6, B-P11, B-K3, case 114: a cancellation from outside ends all siblings, and counts as a failure of none.
#[test]
fn a_cancellation_outranks_the_failure_of_siblings() {
    let case = walk(
        r#"
        at outline next: [{else: true, parallel: [a, b]}]
        stage a
        stage b
        hook exit a {}
        tool read sleep 60
        outline done {"summary":"o"}
        a call read {}
        b call read {}
        ==> check
        finds
        "#,
    );
    let running = case.test.start(&["machine", "run", "m", "--format", "jsonl"]);
    wait_until("both siblings at work", || case.test.ledger().len() == 2);
    running.interrupt();
    let ran = running.finish().exit(130);
    let document = ran.lines().pop().expect("a document");
    assert_eq!((&document["status"], &document["errors"][0]["code"]), (&"cancelled".into(), &"TurnCancelled".into()));
    let statuses: Vec<&str> =
        document["stages"].as_array().into_iter().flatten().filter_map(|row| row["status"].as_str()).collect();
    assert_eq!(statuses, ["completed", "cancelled", "cancelled"]);
    assert!(!ran.out().contains("ParallelSiblingFailure") && case.test.files_below("hooks/exit-a").is_empty());
}

/// B-K4, case 133: a machine that is cancelled before it begins emits nothing.
#[test]
fn a_machine_that_is_cancelled_before_it_begins_emits_nothing() {
    let case = walk("==> check\nfinds");
    let text = "name: p\ndescription: Asks, then goes through the machine\nsteps:\n- {name: sure, type: approval, message: Sure?}\n- {name: two, type: machine, machine: m}\n";
    case.test.put("app/pipelines/p/pipeline.yaml", text);
    let waiting = case.test.run_json("p").exit(5);
    let ran = case.test.run(&["runs", "cancel", &waiting.id(), "--format", "jsonl"]);
    let lines = ran.lines();
    assert_eq!(lines.last().map(|document| document["status"].clone()), Some("cancelled".into()));
    assert!(!ran.out().contains("SessionTurnStart") && !ran.out().contains("SMAttached"), "{}", ran.out());
    assert!(case.asked("outline").is_empty());
}

/// B-P16, case 115: the successors of a sibling run before the join, which sees the sibling's own result.
#[test]
fn a_sibling_may_have_a_branch() {
    let case = walk(&fan(
        "at b exit: {output: {partial: true}}\nat b next: [{else: true, sequential: [recover]}]\nstage recover\nrecover done {\"summary\":\"r\"}\nhook setup j {\"ctx\":{}}\n==> run\nexit 0\ntold setup j 1 /ctx/upstream/1/output {\"partial\":true}",
    ));
    let rows = case.rows();
    let at = |id: &str| rows.iter().position(|row| row.starts_with(id)).expect("a row");
    assert!(at("recover#1") < at("j#1"), "{rows:?}");
}

/// B-P15, case 116: a failed join is a failed stage: its exit runs, and its next routes it.
#[test]
fn a_join_that_fails_is_routed() {
    walk(&fan(r#"
        hook assert j {"verdict":"fail","reason":"no"}
        hook exit j {}
        at j next: [{when: {path: result.verdict, equals: fail}, sequential: [recover]}, {else: true, terminal: true}]
        stage recover
        recover done {"summary":"r"}
        ==> run
        exit 0
        asked recover 1
        calls exit j 1
        "#));
}

/// B-N8, B-ID3, case 118: a stage that is reached again is another execution; an endless loop is ended.
#[test]
fn a_stage_may_be_reached_again() {
    walk(
        r#"
        at outline next: [{else: true, sequential: [build]}]
        stage build
        hook exit outline sh n=$(ls "$ROOT/hooks/exit-outline" | wc -l); echo "{\"slot\":{\"n\":$n}}"
        at build next: [{when: {path: slot.n, lt: 2}, sequential: [outline]}, {else: true, terminal: true}]
        outline done {"summary":"1"}
        outline done {"summary":"2"}
        build done {"summary":"1"}
        build done {"summary":"2"}
        ==> run
        exit 0
        row outline#1 completed ok 1
        row build#1 completed ok 1
        row outline#2 completed ok 1
        row build#2 completed ok 1
        "#,
    );
    walk(
        r#"
        machine maxStageExecutions: 2
        at outline next: [{else: true, sequential: [outline]}]
        outline done {"summary":"1"}
        outline done {"summary":"2"}
        outline done {"summary":"3"}
        ==> run
        exit 1
        asked outline 2
        error ExtensionHost/LifecycleFailure phase=Next maxStageExecutions=2
        "#,
    );
}

/// B-20.3, B-0.1.11: a next without a matching case is a fault.
#[test]
fn a_next_without_a_case_that_holds_is_a_fault() {
    walk(
        r#"
        at outline next: [{when: {path: result.verdict, equals: fail}, terminal: true}]
        outline done {"summary":"s"}
        ==> run
        exit 1
        error ExtensionHost/LifecycleFailure phase=Next
        "#,
    );
}

/// B-N4: a join after a list is ignored.
#[test]
fn a_join_after_a_list_is_ignored() {
    walk(
        r#"
        hook next outline {"execution":"sequential","nextStages":[],"join":"x"}
        outline done {"summary":"s"}
        ==> run
        exit 0
        SMTransition outline nextKind=terminate
        "#,
    );
}

/// B-SR2: the output of a stage has at most 1 MiB.
#[test]
fn an_output_has_a_largest_size() {
    let big = |bytes: u32| {
        format!(
            "hook exit outline sh printf '{{\"output\":\"'; head -c {bytes} /dev/zero | tr '\\0' x; printf '\"}}'\noutline done {{\"summary\":\"s\"}}\n==> run\n"
        )
    };
    walk(&(big(1_100_000) + "exit 1\nerror ExtensionHost/LifecycleFailure phase=Exit\nrow outline#1 failed - 1"));
    walk(&(big(1_000_000) + "exit 0"));
}
