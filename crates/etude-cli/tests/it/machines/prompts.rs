//! Body of a stage (`b-stages` §3, §21 B).

use super::case::walk;

/// B-X1, B-T1, B-T3, cases 22 and 23: fields, ids and the stage's own words are filled in.
#[test]
fn fields_and_ids_are_filled_in() {
    walk(
        r#"
        stage outline body: {{ctx.task}} {{ctx.workflowRunId}}|{{ctx.stageExecutionId}}|{{stage.id}}|{{ stage.name }}
        stage outline name: The Outline
        outline done {"summary":"s"}
        ==> run
        exit 0
        prompt outline T1 [RUN]|[RUN]/outline#1|outline|The Outline
        "#,
    );
}

/// B-T8, B-T10, case 24: values are text; a missing one is empty.
#[test]
fn values_are_written_as_text() {
    walk(
        r#"
        machine context: {required: [count, flag, meta, note], optional: [missing]}
        stage outline body: ({{ctx.missing}}) {{ctx.count}} {{ctx.flag}} {{ctx.meta}} {{ctx.note}}
        at outline setup: {set: {count: 12, flag: true, meta: {k: [1, 2]}, note: hey}}
        outline done {"summary":"s"}
        ==> run
        exit 0
        prompt outline () 12 true {"k":[1,2]} hey
        "#,
    );
}

/// B-T3, B-N7, cases 25 and 26: a path leads into the result of the previous stage; the entry stage has none before it.
#[test]
fn a_successor_reads_the_result_before_it() {
    walk(
        r#"
        at outline exit: {output: {digest: D}}
        at outline next: [{else: true, sequential: [build]}]
        stage outline body: [{{ctx.upstream[0].output.x}}]
        hook setup outline {"ctx":{}}
        stage build body: {{ctx.upstream[0].output.digest}}/{{ctx.upstream[0].parsed.summary}}
        outline done {"summary":"s"}
        build done {"summary":"b"}
        ==> run
        exit 0
        prompt outline []
        told setup outline 1 /ctx/upstream []
        prompt build D/s
        "#,
    );
}

/// B-T10: a missing result leaves nothing in the prompt, and causes a warning.
#[test]
fn a_result_that_is_not_there_is_warned_of() {
    let case = walk(
        r#"
        stage outline body: [{{ctx.upstream[0].output.x}}]
        outline done {"summary":"s"}
        ==> run
        exit 0
        prompt outline []
        StageWarning outline phase=Init path=/body#ctx.upstream[0].output.x
        "#,
    );
    let ran = case.test.run(&["machine", "run", "m"]);
    let warning = "`{{ctx.upstream[0].output.x}}` is empty: `ctx.upstream` has no result";
    assert!(ran.err().contains(warning), "{}", ran.err());
}

/// B-T2, B-T4, B-T5, cases 27 to 29: a prompt can name neither the environment nor attempts nor the host.
#[test]
fn what_has_no_place_in_a_prompt_is_refused() {
    for body in ["{{env.FOO}}", "{{ctx.attempts[0].parseError}}", "{{ctx.host.env}}", "{{settings.x}}", "{{ctx..x}}"] {
        let case =
            walk(&format!("stage outline body: {body}\n==> run\nexit 3\nerror Validation/StageCtxUnresolved\nasked 0"));
        assert!(!case.was_sent("hunter2"));
    }
}

/// B-0.1.12, B-T9, case 31; B-T1, case 32: filled-in text is not expanded again, and another syntax is text.
#[test]
fn nothing_is_filled_in_twice() {
    walk(
        r#"
        stage outline body: {{ctx.task}} ${ctx.task} {{ unclosed
        at outline setup: {set: {task: "{{ctx.workflowRunId}}"}}
        outline done {"summary":"s"}
        ==> run
        exit 0
        prompt outline {{ctx.workflowRunId}} ${ctx.task} {{ unclosed
        "#,
    );
}

/// B-L1, B-T7, B-R4, case 33: a further attempt continues under the same prompt; Init is entered once.
#[test]
fn a_retry_renders_nothing_again() {
    let case = walk(
        r#"
        hook assert outline {"verdict":"retry","reason":"r1"}
        hook assert outline {"verdict":"ok"}
        outline done {"summary":"s"}
        outline done {"summary":"s"}
        ==> run
        exit 0
        StagePreFired outline phase=Setup
        StagePreFired outline phase=Init
        StagePreFired outline phase=CheckGate
        StagePreFired outline phase=Act attempt=1
        StagePreFired outline phase=Assert
        StagePreFired outline phase=Act attempt=2
        StagePreFired outline phase=Assert
        StagePreFired outline phase=Exit
        StagePreFired outline phase=Next
        "#,
    );
    let asked = case.asked("outline");
    assert_eq!(asked[0].system(), asked[1].system());
}
