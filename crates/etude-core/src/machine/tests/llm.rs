//! llm steps (A-4).

use expect_test::expect;

use super::build::*;
use super::{Case, check, play};
use crate::failure::{FailureKind, Reason};
use crate::model::{Part, Role};
use crate::plan::Step;

const N: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

fn schema_step() -> Step {
    llm("x", "How many?").schema(N)
}

/// A-4.3: without `schema` the output is the text, a JSON string.
#[test]
fn without_a_schema_the_output_is_the_text() {
    check(
        pipeline([code("a"), llm("x", "Say {{a.output}} {{input.n}}")]).input(r#"{"n":[1, 2]}"#),
        r#"p/x answer He said "hi""#,
        expect![[r#"
            emit phase business
            emit step a started
            start p/a process a
            done p/a output "a"
            emit step a succeeded
            emit step x started
            start p/x model standard: Say a [1,2]
            done p/x answer He said "hi"
            emit step x succeeded
            result succeeded "He said \"hi\""
            row business/a code succeeded, tries 1, 10 ms
            row business/x llm succeeded, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.1: a reference without a value is an error that names it; the model is not asked.
#[test]
fn a_prompt_that_cannot_be_rendered_calls_no_model() {
    check(
        pipeline([llm("x", "Say {{input.n}}")]),
        "",
        expect![[r#"
            emit phase business
            emit step x started
            emit step x failed
            result failed
            error template_unresolved business/x `{{input.n}}` has no value: `input` is an empty object
              at x.yaml
            row business/x llm failed
        "#]],
    );
}

/// A-4.3: leading prose is tolerated, and the digits of numbers are kept.
#[test]
fn json_after_prose_is_an_answer() {
    check(
        pipeline([schema_step()]),
        r#"p/x answer Sure: {"n": 123456789012345678901234567890}"#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer Sure: {"n": 123456789012345678901234567890}
            emit step x succeeded
            result succeeded {"n": 123456789012345678901234567890}
            row business/x llm succeeded, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.6: render, call, structural validation, content validation.
#[test]
fn the_content_validator_runs_after_the_schema() {
    check(
        pipeline([schema_step().validate("check.py")]),
        r#"p/x answer {"n": 1}"#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {"n": 1}
            start p/x/validate process script check.py
            done p/x/validate output {"valid":true}
            emit step x succeeded
            result succeeded {"n": 1}
            row business/x llm succeeded, tries 1, 20 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.6: a content validator never sees output that fails its schema. A-4.4: both share one budget.
#[test]
fn schema_and_validator_share_the_retries() {
    check(
        pipeline([schema_step().validate("check.py").retry(2)]),
        r#"
        p/x answer {"n": "one"}
        p/x#2 answer {"n": 1}
        p/x#2/validate exit 1 > {"valid": false, "errors": ["too small", {"at": "/n"}]}
        p/x#3 answer {"n": 3}
        "#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {"n": "one"}
            emit step x try 1 of 3 rejected by schema: /n: "one" is not of type "integer"
            start p/x#2 model standard: (3 messages)
            done p/x#2 answer {"n": 1}
            start p/x#2/validate process script check.py
            done p/x#2/validate exit 1 > {"valid": false, "errors": ["too small", {"at": "/n"}]}
            emit step x try 2 of 3 rejected by validate: too small; {"at":"/n"}
            start p/x#3 model standard: (5 messages)
            done p/x#3 answer {"n": 3}
            start p/x#3/validate process script check.py
            done p/x#3/validate output {"valid":true}
            emit step x succeeded
            result succeeded {"n": 3}
            row business/x llm succeeded, tries 3, 50 ms, retries 2, calls 3 tokens 9+6
            usage calls 3 tokens 9+6
        "#]],
    );
}

/// A-4.4: the conversation continues with the rejected response, then a message with all the errors.
#[test]
fn a_retry_continues_the_conversation() {
    let world = play(
        &pipeline([llm("x", "How many?").schema(r#"{"required": ["n", "m"]}"#).validate("check.py")]),
        r#"
        p/x answer {}
        p/x#2 answer {"n": 1, "m": 2}
        p/x#2/validate output {"valid": false, "errors": ["too small"]}
        p/x#3 answer {"n": 2, "m": 2}
        "#,
    );
    let said = |id: &str| -> Vec<(Role, String)> {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        world.request(id).messages.iter().map(|m| (m.role, m.parts.iter().map(text).collect())).collect()
    };
    let correction = |list: &str| {
        format!("Your last answer was rejected:\n\n{list}\nAnswer again, in full, with these faults corrected.")
    };
    assert_eq!(said("p/x"), [(Role::User, "How many?".to_owned())]);
    let second = vec![
        (Role::User, "How many?".to_owned()),
        (Role::Assistant, "{}".to_owned()),
        (Role::User, correction("- \"n\" is a required property\n- \"m\" is a required property\n")),
    ];
    assert_eq!(said("p/x#2"), second);
    let third =
        [second, vec![(Role::Assistant, r#"{"n": 1, "m": 2}"#.to_owned()), (Role::User, correction("- too small\n"))]]
            .concat();
    assert_eq!(said("p/x#3"), third);
    assert!(world.request("p/x#3").schema.is_some(), "the schema goes with every call");
}

/// Providers refuse empty messages: an empty response is quoted as such.
#[test]
fn an_empty_answer_is_quoted_as_empty() {
    let world = play(&pipeline([schema_step()]), "p/x answer\np/x#2 answer {\"n\": 1}");
    assert_eq!(world.request("p/x#2").messages[1].parts, [Part::Text("(empty answer)".to_owned())]);
}

/// A-4.8: the error carries every attempt with its rejecter, reason, time and tokens; the last reason leads.
#[test]
fn exhausted_retries_carry_every_attempt() {
    check(
        pipeline([schema_step().validate("check.py").retry(1)]),
        r#"
        p/x answer none at all
        p/x#2 answer {"n": 1}
        p/x#2/validate output {"valid": false, "errors": ["too small", "too plain"]}
        "#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer none at all
            emit step x try 1 of 2 rejected by schema: the answer is not JSON (expected ident at line 1 column 2); it begins with: none at all
            start p/x#2 model standard: (3 messages)
            done p/x#2 answer {"n": 1}
            start p/x#2/validate process script check.py
            done p/x#2/validate output {"valid": false, "errors": ["too small", "too plain"]}
            emit step x failed
            result failed
            error validation_exhausted business/x llm step `x` was rejected twice (1 attempt + 1 retry); last reason: too small; too plain
              at x.yaml
              try rejected by schema (10 ms, 5 tokens): the answer is not JSON (expected ident at line 1 column 2); it begins with: none at all
              try rejected by validate (10 ms, 5 tokens): too small; too plain
            row business/x llm failed, tries 2, 30 ms, retries 1, calls 2 tokens 6+4
            usage calls 2 tokens 6+4
        "#]],
    );
}

/// A-4.4: `retry: 0` is one call.
#[test]
fn retry_0_is_one_call() {
    check(
        pipeline([schema_step().retry(0)]),
        "p/x answer {}",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {}
            emit step x failed
            result failed
            error validation_exhausted business/x llm step `x` was rejected once (no retries); last reason: "n" is a required property
              at x.yaml
              try rejected by schema (10 ms, 5 tokens): "n" is a required property
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.5: a refusal is reported as a refusal and costs no retry.
#[test]
fn a_refusal_is_not_retried() {
    check(
        pipeline([schema_step()]),
        "p/x refuses it is against policy",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x refuses it is against policy
            emit step x failed
            result failed
            error model_refused business/x test/model refused to respond to llm step `x`: it is against policy
              at x.yaml
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.5: a truncated response is reported as truncated.
#[test]
fn a_truncated_answer_is_not_retried() {
    check(
        pipeline([schema_step()]),
        r#"p/x cut {"n": 1"#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x cut {"n": 1
            emit step x failed
            result failed
            error model_truncated business/x the response of test/model to llm step `x` was cut off at the maximum length (2 tokens; set by `max_tokens` of the step or of its provider)
              at x.yaml
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.4: an empty response is rejected, with a schema or without. A run of an earlier interpreter ends with it.
#[test]
fn an_empty_answer_without_a_schema_is_asked_for_again() {
    let mut case = pipeline([llm("x", "Hi")]);
    let log = play(&case, "p/x answer\np/x#2 answer Hello").log;
    assert!(log.contains("rejected by schema: the answer is empty") && log.contains("succeeded \"Hello\""), "{log}");
    case.start.abi = 7;
    let log = play(&case, "p/x answer").log;
    assert!(log.contains("error model_error business/x test/model gave an empty response to llm step `x`"), "{log}");
}

#[test]
fn empty_answers_alone_are_a_model_error() {
    check(
        pipeline([llm("x", "Hi").retry(1)]),
        "p/x answer\np/x#2 answer",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            done p/x answer
            emit step x try 1 of 2 rejected by schema: the answer is empty
            start p/x#2 model standard: (3 messages)
            done p/x#2 answer
            emit step x failed
            result failed
            error model_error business/x test/model gave an empty response to llm step `x`
              at x.yaml
              try rejected by schema (10 ms, 5 tokens): the answer is empty
              try rejected by schema (10 ms, 5 tokens): the answer is empty
            row business/x llm failed, tries 2, 20 ms, retries 1, calls 2 tokens 6+4
            usage calls 2 tokens 6+4
        "#]],
    );
}

/// A-4.5: transport failures are reported, and do not count as attempts.
#[test]
fn a_model_that_cannot_be_reached_fails_the_step() {
    check(
        pipeline([llm("x", "Hi")]),
        "p/x no_answer HTTP 503",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            done p/x no_answer HTTP 503
            emit step x failed
            result failed
            error model_error business/x llm step `x` got no response: HTTP 503
              at x.yaml
              try rejected by transport (10 ms, 0 tokens): HTTP 503; HTTP 503; HTTP 503
            row business/x llm failed, tries 0, 10 ms
        "#]],
    );
}

/// cli contract: a missing key is a failure of the environment.
#[test]
fn a_missing_key_is_an_environment_failure() {
    check(
        pipeline([llm("x", "Hi")]),
        "p/x no_key ANTHROPIC_API_KEY is not set",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            done p/x no_key ANTHROPIC_API_KEY is not set
            emit step x failed
            result failed
            error environment business/x llm step `x` got no response: ANTHROPIC_API_KEY is not set
              at x.yaml
            row business/x llm failed, tries 0, 10 ms
        "#]],
    );
}

/// A refusal after a rejected response still shows that attempt.
#[test]
fn attempts_before_a_refusal_are_kept() {
    check(
        pipeline([schema_step()]),
        "p/x answer {}\np/x#2 refuses",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {}
            emit step x try 1 of 3 rejected by schema: "n" is a required property
            start p/x#2 model standard: (3 messages)
            done p/x#2 refuses
            emit step x failed
            result failed
            error model_refused business/x test/model refused to respond to llm step `x`
              at x.yaml
              try rejected by schema (10 ms, 5 tokens): "n" is a required property
            row business/x llm failed, tries 2, 20 ms, retries 1, calls 2 tokens 6+4
            usage calls 2 tokens 6+4
        "#]],
    );
}

/// A-4.7: case by case, the validator's output and exit decide the status of the step.
#[test]
fn what_a_validator_prints_and_how_it_exits_decide_together() {
    let cases = [
        (r#"output {"valid": true}"#, "succeeded"),
        (r#"output {"valid": false, "errors": ["e"]}"#, "validation_exhausted"),
        (r#"output {"valid": false}"#, "validation_exhausted"),
        (r#"exit 1 > {"valid": false, "errors": ["e"]}"#, "validation_exhausted"),
        (r#"exit 7 > {"valid": false, "errors": "e"}"#, "validation_exhausted"),
        (r#"exit 1 > {"errors": ["e"]}"#, "validation_exhausted"),
        (r#"exit 1 > {"valid": true}"#, "validator_broken"),
        ("exit 1 Traceback", "validator_broken"),
        ("signal SIGSEGV", "validator_broken"),
        ("not_started no such file", "validator_broken"),
        ("prints hello", "validator_broken"),
        ("prints_nothing", "validator_broken"),
        ("output 5", "validator_broken"),
        (r#"output {"valid": "yes"}"#, "validator_broken"),
        (r#"output {"errors": []}"#, "validator_broken"),
    ];
    for (outcome, expected) in cases {
        let script = format!("p/x answer {{\"n\": 1}}\np/x/validate {outcome}");
        let world = play(&pipeline([schema_step().validate("check.py").retry(0)]), &script);
        let result = world.machine.result().unwrap();
        let found = result.errors.first().map_or("succeeded", |failure| failure.kind.word());
        assert_eq!(found, expected, "{outcome}: {:?}", result.errors);
    }
}

/// A-4.7: a broken validator fails the step at once with that cause; no retry is used.
#[test]
fn a_broken_validator_spends_no_retry() {
    check(
        pipeline([schema_step().validate("check.py")]),
        "
        p/x answer {\"n\": 1}
        p/x/validate exit 1 Traceback
        ",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {"n": 1}
            start p/x/validate process script check.py
            done p/x/validate exit 1 Traceback
            emit step x failed
            result failed
            error validator_broken business/x validator `check.py` failed: it exited with status 1 and printed no verdict
              at x.yaml
              exit 1
              stderr Traceback
            row business/x llm failed, tries 1, 20 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.7: the validator's stdin is `{"output","input","steps"}`, with the output as the model wrote it.
#[test]
fn the_validator_gets_output_input_and_steps() {
    let case = pipeline([code("a"), schema_step().validate("check.py")]).input(r#"{"k":"v"}"#);
    let world = play(&case, r#"p/x answer {"n": 1.0}"#);
    let expected = r#"{"output":{"n": 1.0},"input":{"k":"v"},"steps":{"a":{"output":"a"}}}"#;
    assert_eq!(world.stdin("p/x/validate"), expected);
}

/// A-4.9: usage is summed per step and run, rejected responses included.
#[test]
fn usage_is_summed_per_step_and_run() {
    check(
        pipeline([schema_step(), llm("y", "Hi")]),
        "
        p/x spends 100 10 0.25 {}
        p/x#2 spends 200 20 0.5 {\"n\": 1}
        p/y spends 7 1 0.125 done
        ",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x spends 100 10 0.25 {}
            emit step x try 1 of 3 rejected by schema: "n" is a required property
            start p/x#2 model standard: (3 messages)
            done p/x#2 spends 200 20 0.5 {"n": 1}
            emit step x succeeded
            emit step y started
            start p/y model standard: Hi
            done p/y spends 7 1 0.125 done
            emit step y succeeded
            result succeeded "done"
            row business/x llm succeeded, tries 2, 20 ms, retries 1, calls 2 tokens 300+30 $0.75
            row business/y llm succeeded, tries 1, 10 ms, calls 1 tokens 7+1 $0.125
            usage calls 3 tokens 307+31 $0.875
        "#]],
    );
}

/// A-4.9: exceeding the budget ends the run with its own error code, and the destructor still runs.
#[test]
fn a_call_that_exceeds_the_token_budget_ends_the_run() {
    check(
        pipeline([llm("x", "Hi"), code("a")]).after([code("close")]).max_tokens(100),
        "p/x spends 90 11 0 hello",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            done p/x spends 90 11 0 hello
            emit step x failed
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result failed
            error budget_exceeded business/x the run has used 101 tokens; its budget is 100
              at x.yaml
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 90+11 $0
            row business/a code not_started
            row destructor/close code succeeded, tries 1, 10 ms
            usage calls 1 tokens 90+11 $0
        "#]],
    );
}

/// A-4.9: a used-up budget refuses the next call before it is made.
#[test]
fn a_used_up_budget_refuses_the_next_call() {
    check(
        pipeline([llm("x", "Hi"), llm("y", "Again")]).max_cost(0.5),
        "p/x spends 1 1 0.5 hello",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            done p/x spends 1 1 0.5 hello
            emit step x succeeded
            emit step y started
            emit step y failed
            result failed
            error budget_exceeded business/y the run has cost 0.5000 USD; its budget is 0.5 USD
              at y.yaml
            row business/x llm succeeded, tries 1, 10 ms, calls 1 tokens 1+1 $0.5
            row business/y llm failed
            usage calls 1 tokens 1+1 $0.5
        "#]],
    );
}

/// A-4.8, A-4.9: a retry that the budget refuses shows the earlier attempts.
#[test]
fn a_retry_that_the_budget_refuses_keeps_its_attempts() {
    check(
        pipeline([schema_step()]).max_tokens(10),
        "p/x spends 8 2 0 {}",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x spends 8 2 0 {}
            emit step x try 1 of 3 rejected by schema: "n" is a required property
            emit step x failed
            result failed
            error budget_exceeded business/x the run has used 10 tokens; its budget is 10
              at x.yaml
              try rejected by schema (10 ms, 10 tokens): "n" is a required property
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 8+2 $0
            usage calls 1 tokens 8+2 $0
        "#]],
    );
}

/// A-5.3: the destructor is guaranteed to run, and may still ask a model.
#[test]
fn the_budget_does_not_hold_in_the_destructor() {
    check(
        pipeline([llm("x", "Hi")]).after([llm("y", "Bye")]).max_tokens(10),
        "p/x spends 90 10 0 hello",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            done p/x spends 90 10 0 hello
            emit step x failed
            emit phase destructor
            emit step y started
            start _d/y model standard: Bye
            done _d/y answer y
            emit step y succeeded
            result failed
            error budget_exceeded business/x the run has used 100 tokens; its budget is 10
              at x.yaml
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 90+10 $0
            row destructor/y llm succeeded, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 2 tokens 93+12 $0
        "#]],
    );
}

/// The cost of a response counts, even after a cancellation.
#[test]
fn an_answer_that_comes_after_the_cancel_is_paid_for() {
    check(
        pipeline([llm("x", "Hi")]),
        "reach p/x\ncancel\np/x answer hello",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: Hi
            cancel
            abandon p/x
            done p/x answer hello
            emit step x cancelled
            result cancelled
            error cancelled business/x cancelled by the user
              at x.yaml
            row business/x llm cancelled, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

#[test]
fn cancel_while_the_validator_runs_stops_it() {
    check(
        pipeline([schema_step().validate("check.py")]).after([code("close")]),
        "p/x answer {\"n\": 1}\nreach p/x/validate\ncancel",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {"n": 1}
            start p/x/validate process script check.py
            cancel
            abandon p/x/validate
            done p/x/validate abandoned
            emit step x cancelled
            emit phase destructor
            emit step close started
            start _d/close process close
            done _d/close output "close"
            emit step close succeeded
            result cancelled
            error cancelled business/x cancelled by the user
              at x.yaml
            row business/x llm cancelled, tries 1, 10 ms, calls 1 tokens 3+2
            row destructor/close code succeeded, tries 1, 10 ms
            usage calls 1 tokens 3+2
        "#]],
    );
}

#[test]
fn the_timeout_covers_the_validator() {
    check(
        pipeline([schema_step().validate("check.py").timeout(30)]),
        "p/x answer {\"n\": 1}\nreach p/x/validate\np/x!timeout over",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            start p/x!timeout deadline 30000 ms
            done p/x answer {"n": 1}
            start p/x/validate process script check.py
            done p/x!timeout over
            abandon p/x/validate
            done p/x/validate abandoned
            emit step x failed
            result failed
            error step_timeout business/x llm step `x` exceeded its timeout of 30 s
              at x.yaml
            row business/x llm failed, tries 1, 10 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// X-3, A-4.7: a validator may be a command with arguments; messages show the whole command.
#[test]
fn a_validator_may_be_a_command() {
    check(
        pipeline([schema_step().validate_with(["check", "--strict"])]),
        r#"
        p/x answer {"n": 1}
        p/x/validate exit 1 Traceback
        "#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x model standard: How many?
            done p/x answer {"n": 1}
            start p/x/validate process check --strict
            done p/x/validate exit 1 Traceback
            emit step x failed
            result failed
            error validator_broken business/x validator `check --strict` failed: it exited with status 1 and printed no verdict
              at x.yaml
              exit 1
              stderr Traceback
            row business/x llm failed, tries 1, 20 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-4.9: the cost of routing counts: a run beyond its budget starts no step except those of the destructor. A run of
/// an earlier interpreter continues as it did.
#[test]
fn routing_alone_can_exceed_the_budget() {
    let mut case = pipeline([code("a")]).after([code("close")]).max_tokens(10);
    case.start.spent = crate::model::Usage { calls: 1, input_tokens: 11, ..Default::default() };
    check(
        case,
        "",
        expect![[r#"
        emit phase business
        emit phase destructor
        emit step close started
        start _d/close process close
        done _d/close output "close"
        emit step close succeeded
        result failed
        error budget_exceeded business/? the run has used 11 tokens; its budget is 10
        row business/a code not_started
        row destructor/close code succeeded, tries 1, 10 ms
        usage calls 1 tokens 11+0
    "#]],
    );
    let mut earlier = pipeline([code("a")]).max_tokens(10);
    earlier.start.spent = crate::model::Usage { calls: 1, input_tokens: 11, ..Default::default() };
    earlier.start.abi = 6;
    assert!(play(&earlier, "").log.contains("result succeeded"));
}

/// L-50: a value that is not a list deviates, as an empty list does; earlier interpreters failed as for a template
/// without a value.
#[test]
fn a_question_without_a_list_deviates() {
    let mut case = pipeline([code("a"), choose_many("x", "Which?", "{{a.output}}")]);
    let failure = |case: &Case| play(case, "p/a output {}").machine.result().expect("a result").errors[0].clone();
    let found = failure(&case);
    assert_eq!((found.kind, found.reason), (FailureKind::Deviated, Some(Reason::FieldType)), "{found:?}");
    assert_eq!(found.details, Some(json(r#"{"reason":"field_type","condition":"{{a.output}}"}"#)));
    case.start.abi = 9;
    let found = failure(&case);
    assert_eq!((found.kind, found.reason), (FailureKind::TemplateUnresolved, Some(Reason::FieldType)), "{found:?}");
}

/// L-47: `none` beside other choices is an invalid answer; a run of an earlier interpreter still accepts it.
#[test]
fn none_beside_other_choices_is_rejected() {
    let mut case = pipeline([choose_many("x", "Which?", "{{input.l}}")]).input(r#"{"l": ["a", "b"]}"#);
    let both = r#"p/x answer {"x": ["none", "a"]}"#;
    let log = play(&case, &format!("{both}\np/x#2 answer {{\"x\": [\"b\"]}}")).log;
    let rejected = "emit step x try 1 of 3 rejected by schema: /x: `none` beside other choices";
    assert!(log.contains(rejected) && log.contains("result succeeded [\"b\"]"), "{log}");
    case.start.abi = 6;
    let log = play(&case, both).log;
    assert!(log.contains("result succeeded [\"a\"]"), "{log}");
}

/// A-4.3: of several values in a response the last one that fits is taken; a run of an earlier interpreter still takes
/// the longest.
#[test]
fn a_draft_before_the_answer_is_not_the_output() {
    let mut case = pipeline([llm("x", "Which?").schema(r#"{"type": "object", "required": ["a"]}"#)]);
    let answer = r#"p/x answer Maybe {"a": 1, "note": "a long first draft"}, but no: {"a": 2}"#;
    assert!(play(&case, answer).log.contains(r#"result succeeded {"a": 2}"#), "{}", play(&case, answer).log);
    case.start.abi = 7;
    assert!(play(&case, answer).log.contains(r#"result succeeded {"a": 1, "#), "{}", play(&case, answer).log);
}

/// A-3.3, L-47: the output is the chosen element as it was written; in runs of earlier versions it is what a tree kept
/// of it.
#[test]
fn a_chosen_element_keeps_its_digits() {
    let list = r#"{"l": [{"id": "a", "n": 123456789012345678901}, {"id": "b", "n": [1.50, "\ud800", 1e400]}]}"#;
    let mut case = pipeline([choose_by("x", "Which?", "{{input.l}}", "id")]).input(list);
    let log = play(&case, r#"p/x answer {"x": ["a", "b"]}"#).log;
    let both = r#"result succeeded [{"id":"a","n":123456789012345678901},{"id":"b","n":[1.50,"\ud800",1e400]}]"#;
    assert!(log.contains(both), "{log}");
    case = case.input(r#"{"l": [{"id": 1.0, "n": 123456789012345678901}]}"#);
    assert!(
        play(&case, r#"p/x answer {"x": [1]}"#)
            .log
            .contains(r#"result succeeded [{"id":1.0,"n":123456789012345678901}]"#)
    );
    case.start.abi = 7;
    let log = play(&case, r#"p/x answer {"x": [1.0]}"#).log;
    assert!(log.contains(r#"result succeeded [{"id":1.0,"n":1.2345678901234568e+20}]"#), "{log}");
}

/// A list that cannot be looked into is the fault of its maker.
#[test]
fn a_list_that_cannot_be_looked_into_is_the_fault_of_its_maker() {
    let mut case = pipeline([choose_many("x", "Which?", "{{input.l}}")]).input(r#"{"l": ["\ud800"]}"#);
    let log = play(&case, "").log;
    let error = "error input_invalid business/x the list that step `x` chooses from cannot be parsed: ";
    assert!(log.contains(error), "{log}");
    case.start.abi = 7;
    assert!(play(&case, "").log.contains("error environment business/x the value cannot be parsed: "));
}
