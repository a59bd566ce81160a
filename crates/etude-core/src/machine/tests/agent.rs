//! Agents: skill mode and steps of type `skill` (A-7, X-3).

use expect_test::expect;
use serde_json::json;

use super::build::*;
use super::{check, play};
use crate::effect::{Effect, Subject};
use crate::model::{Part, Role};

/// A-7.1: the body is the system prompt, the request the first message; tools are listed first, and a response without
/// tool calls is the output.
#[test]
fn an_answer_without_tool_calls_is_the_output() {
    check(
        pipeline([skill("x", "Tidy {{input.what}}")]).input(r#"{"what":"up"}"#),
        "p/x/turn1 answer Done.",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x/tools open everything
            done p/x/tools offers Read Look Write!
            start p/x/turn1 model standard: Tidy up
            done p/x/turn1 answer Done.
            emit step x succeeded
            result succeeded "Done."
            row business/x skill succeeded, tries 1, 20 ms, calls 1 tokens 3+2
            usage calls 1 tokens 3+2
        "#]],
    );
}

/// A-7.2: every model turn and tool call is an effect; reading calls of one response run side by side, and their
/// results go back in the order of the calls.
#[test]
fn calls_that_only_read_run_side_by_side() {
    let world = play(
        &pipeline([skill("x", "go")]),
        r#"
        p/x/turn1 calls Read {"p":1}; Look {"p":2}
        reach p/x/turn1/Look[1]
        p/x/turn1/Look[1] gives second
        p/x/turn1/Read[0] gives first
        p/x/turn2 answer ok
        "#,
    );
    let last = world.request("p/x/turn2").messages.last().expect("results").clone();
    assert_eq!(last.role, Role::Tool);
    let said = |part: &Part| match part {
        Part::ToolResult { id, content } => format!("{id}: {content}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(last.parts.iter().map(said).collect::<Vec<_>>(), ["c1: first", "c2: second"]);
}

/// A-7.2: a call that changes things runs alone, after the calls before it and before the calls after it.
#[test]
fn a_call_that_changes_things_runs_alone() {
    let script = r#"
        p/x/turn1 calls Read 1; Write 2; Look 3
        reach p/x/turn1/Read[0]
    "#;
    let started = |more: &str| -> Vec<String> {
        let world = play(&pipeline([skill("x", "go")]), &format!("{script}\n{more}\np/x/turn2 answer ok"));
        let is_tool = |effect: &Effect| matches!(effect, Effect::Tool(_));
        world.started.iter().filter(|(_, effect)| is_tool(effect)).map(|(id, _)| id.to_string()).collect()
    };
    assert_eq!(started("p/x/turn1/Read[0] gives r"), ["p/x/turn1/Read[0]", "p/x/turn1/Write[1]", "p/x/turn1/Look[2]"]);
    check(
        pipeline([skill("x", "go")]),
        "p/x/turn1 calls Write 1; Write 2\np/x/turn2 answer ok",
        expect![[r#"
            emit phase business
            emit step x started
            start p/x/tools open everything
            done p/x/tools offers Read Look Write!
            start p/x/turn1 model standard: go
            done p/x/turn1 calls Write 1; Write 2
            emit step x turn 1 says 
            start p/x/turn1/Write[0] tool Write 1
            emit step x calls p/x/turn1/Write[0]
            done p/x/turn1/Write[0] gives Write-out
            emit step x p/x/turn1/Write[0] over
            start p/x/turn1/Write[1] tool Write 2
            emit step x calls p/x/turn1/Write[1]
            done p/x/turn1/Write[1] gives Write-out
            emit step x p/x/turn1/Write[1] over
            start p/x/turn2 model standard: (3 messages)
            done p/x/turn2 answer ok
            emit step x succeeded
            result succeeded "ok"
            row business/x skill succeeded, tries 2, 50 ms, calls 2 tokens 6+4
            usage calls 2 tokens 6+4
        "#]],
    );
}

/// A-7.3: a call that needs approval waits for it, and runs once it is approved; its start and its end are reported
/// once each.
#[test]
fn a_held_call_runs_after_it_was_approved() {
    check(
        pipeline([skill("x", "go")]),
        r#"
        p/x/turn1 calls Write {"path":"a"}
        p/x/turn1/Write[0] held Write(a)
        p/x/turn1/Write[0]!ask approved
        p/x/turn2 answer ok
        "#,
        expect![[r#"
            emit phase business
            emit step x started
            start p/x/tools open everything
            done p/x/tools offers Read Look Write!
            start p/x/turn1 model standard: go
            done p/x/turn1 calls Write {"path":"a"}
            emit step x turn 1 says 
            start p/x/turn1/Write[0] tool Write {"path":"a"}
            emit step x calls p/x/turn1/Write[0]
            done p/x/turn1/Write[0] held Write(a)
            start p/x/turn1/Write[0]!ask gate may I Write(a)?
            done p/x/turn1/Write[0]!ask approved
            start p/x/turn1/Write[0]#2 tool Write {"path":"a"}, approved
            done p/x/turn1/Write[0]#2 gives Write-out
            emit step x p/x/turn1/Write[0] over
            start p/x/turn2 model standard: (3 messages)
            done p/x/turn2 answer ok
            emit step x succeeded
            result succeeded "ok"
            row business/x skill succeeded, tries 2, 60 ms, calls 2 tokens 6+4
            usage calls 2 tokens 6+4
        "#]],
    );
}

fn results(world: &super::World, turn: &str) -> Vec<String> {
    let request = world.request(turn);
    let message = request.messages.iter().rev().find(|m| m.role == Role::Tool).expect("results");
    let said = |part: &Part| match part {
        Part::ToolResult { content, .. } => content.clone(),
        other => panic!("{other:?}"),
    };
    message.parts.iter().map(said).collect()
}

/// A-7.3: a denial is a result for the model, with the reason; the run continues.
#[test]
fn a_denied_call_is_reported_to_the_model() {
    let script = r#"
        p/x/turn1 calls Write 1
        p/x/turn1/Write[0] held Write(a)
        p/x/turn1/Write[0]!ask denied not today
        p/x/turn2 answer ok
    "#;
    let world = play(&pipeline([skill("x", "go")]), script);
    assert_eq!(
        results(&world, "p/x/turn2"),
        ["ToolTerminal/ApprovalDenied: the user said no to `Write(a)`: not today"]
    );
}

/// A-7.3: an answer for always covers later calls of the same key, and no others.
#[test]
fn an_answer_for_always_is_not_asked_again() {
    let script = r#"
        p/x/turn1 calls Write 1; Write 2
        p/x/turn1/Write[0] held Write(a)
        p/x/turn1/Write[0]!ask approved "always"
        p/x/turn1/Write[1] held Write(a)
        p/x/turn2 calls Write 3
        p/x/turn2/Write[0] held Write(b)
        p/x/turn2/Write[0]!ask denied
        p/x/turn3 answer ok
    "#;
    let world = play(&pipeline([skill("x", "go")]), script);
    let asked: Vec<&str> = world.started.iter().map(|(id, _)| id.as_str()).filter(|id| id.ends_with("!ask")).collect();
    assert_eq!(asked, ["p/x/turn1/Write[0]!ask", "p/x/turn2/Write[0]!ask"]);
}

/// A-7.3: a question about a call shows all digits of its numbers, as its tool gets them. In a run of an earlier
/// interpreter it shows them rounded.
#[test]
fn a_question_shows_all_digits() {
    let mut case = pipeline([skill("x", "go")]);
    let mut shown = |abi| {
        case.start.abi = abi;
        let call = r#"calls Write {"n": 12345678901234567890123, "m": 1.5, "k": 1e2}"#;
        let world =
            play(&case, &format!("p/x/turn1 {call}\np/x/turn1/Write[0] held Write(a)\nreach p/x/turn1/Write[0]!ask"));
        let payload = world.started.iter().find_map(|(_, effect)| match effect {
            Effect::Gate(gate) => Some(gate.subject.clone()),
            _ => None,
        });
        let Some(Subject::Other { payload, .. }) = payload else { panic!("{}", world.log) };
        payload.value().expect("a tree")["arguments"].clone()
    };
    assert_eq!(shown(crate::machine::ABI), json!({"n": "12345678901234567890123", "m": 1.5, "k": 100.0}));
    assert_eq!(shown(13), json!({"n": 1.2345678901234568e22, "m": 1.5, "k": 100.0}));
}

/// A-7.1: a tool that is not in the list does not run, whatever name a model gives.
#[test]
fn a_tool_that_was_not_available_does_not_run() {
    let world = play(&pipeline([skill("x", "go")]), "p/x/turn1 calls ../../rm {}\np/x/turn2 answer ok");
    let reported = results(&world, "p/x/turn2");
    assert_eq!(reported.len(), 1);
    assert!(
        reported[0].starts_with("ToolTerminal/ToolNotRegistered: ") && reported[0].contains("Look, Read, Write"),
        "{reported:?}"
    );
    assert!(!world.started.iter().any(|(_, effect)| matches!(effect, Effect::Tool(_))));
}

/// A-7.2: bounded by turns; the model is informed of its last turn, and the failure names the setting to change.
#[test]
fn the_turn_cap_ends_an_agent() {
    let script = "p/x/turn1 calls Read 1\np/x/turn2 calls Read 2\np/x/turn3 calls Read 3";
    let world = play(&pipeline([skill("x", "go")]), script);
    let result = world.machine.result().expect("a result");
    assert_eq!(result.errors[0].kind, crate::failure::FailureKind::BudgetExceeded);
    assert_eq!(
        result.errors[0].message,
        "skill `tidy` did not finish within 3 turns; raise the limit with `max_turns`"
    );
    let last = world.request("p/x/turn3").messages.last().expect("a message").clone();
    assert!(matches!(&last.parts[..], [Part::Text(text)] if text.contains("last turn")), "{last:?}");
    assert!(!world.started.iter().any(|(id, _)| id.as_str() == "p/x/turn4"));
}

/// D-14: bounded by tool calls: a call beyond the limit is an error for the model, and another turn with calls ends the
/// agent.
#[test]
fn the_step_cap_ends_an_agent() {
    let capped = || {
        let mut step = skill("x", "go");
        if let crate::plan::StepKind::Skill(agent) = &mut step.kind {
            agent.step_cap = Some(2);
        }
        pipeline([step])
    };
    let script = "p/x/turn1 calls Read 1; Read 2; Read 3\np/x/turn2 ";
    let world = play(&capped(), &format!("{script}answer ok"));
    assert!(results(&world, "p/x/turn2")[2].starts_with("ToolTerminal/StepLimit: all 2 tool calls are used up"));
    assert_eq!(world.started.iter().filter(|(_, effect)| matches!(effect, Effect::Tool(_))).count(), 2);
    assert!(world.machine.result().expect("a result").errors.is_empty());
    let world = play(&capped(), &format!("{script}calls Read 4"));
    let failure = &world.machine.result().expect("a result").errors[0];
    assert_eq!(failure.kind, crate::failure::FailureKind::BudgetExceeded);
    assert!(failure.message.contains("2 tool calls") && failure.message.contains("`maxSteps`"), "{}", failure.message);
}

/// A-7.2: bounded by tokens.
#[test]
fn the_budget_of_the_run_holds_for_agents() {
    let world = play(&pipeline([skill("x", "go")]).max_tokens(5), "p/x/turn1 calls Read 1");
    let result = world.machine.result().expect("a result");
    assert_eq!(result.errors[0].kind, crate::failure::FailureKind::BudgetExceeded);
    assert!(!world.started.iter().any(|(id, _)| id.as_str() == "p/x/turn2"));
}

/// X-3: with a schema the answer goes through its own tool, is checked, and is repeated until it fits.
#[test]
fn an_answer_with_a_schema_goes_through_a_channel() {
    let n = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;
    let script = r#"
        p/x/turn1 calls Read {}; submit_answer {"n": 1}
        p/x/turn2 calls submit_answer {"n": "one"}
        p/x/turn3 calls submit_answer {"n": 2}
    "#;
    let world = play(&pipeline([skill("x", "go").schema(n)]), script);
    let result = world.machine.result().expect("a result");
    assert_eq!(result.output.as_ref().and_then(|o| o.inline()), Some(r#"{"n": 2}"#));
    let alone = results(&world, "p/x/turn2");
    assert!(alone.len() == 2 && alone[0].contains("only tool call") && alone[0] == alone[1], "{alone:?}");
    let reported = results(&world, "p/x/turn3");
    assert!(reported[0].contains("do not fit its schema") && reported[0].contains("n"), "{reported:?}");
    assert!(!world.started.iter().any(|(_, effect)| matches!(effect, Effect::Tool(_))), "nothing of that batch runs");
}

/// D-14, X-3: providers accept only objects as arguments, so any other answer is their member `value`.
#[test]
fn an_answer_that_is_no_object_is_a_member_of_the_arguments() {
    let script = r#"
        p/x/turn1 calls submit_answer {"value": "two"}
        p/x/turn2 calls submit_answer {"value": 2.50}
    "#;
    let world = play(&pipeline([skill("x", "go").schema(r#"{"type": "number"}"#)]), script);
    let result = world.machine.result().expect("a result");
    assert_eq!(result.output.as_ref().and_then(|o| o.inline()), Some("2.50"));
    let tools = &world.request("p/x/turn1").tools;
    let channel = tools.iter().find(|tool| tool.name == "submit_answer").expect("the channel");
    let expected = r#"{"type":"object","properties":{"value":{"type":"number"}},"required":["value"],"additionalProperties":false}"#;
    assert_eq!(channel.parameters.to_string(), expected);
    let reported = results(&world, "p/x/turn2");
    assert!(reported[0].contains("is not of type \"number\""), "{reported:?}");
}

const N: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

/// X-3: a text that fits the schema is the answer, also in a code fence; if strings fit, the text itself is the answer.
#[test]
fn a_text_that_fits_the_schema_is_the_answer() {
    let output = |schema: &str, answer: &str| {
        let world = play(&pipeline([skill("x", "go").schema(schema)]), &format!("p/x/turn1 answer {answer}"));
        assert!(!world.started.iter().any(|(id, _)| id.as_str() == "p/x/turn2"), "{answer}");
        let result = world.machine.result().expect("a result");
        result.output.as_ref().and_then(|output| output.inline().map(str::to_owned))
    };
    assert_eq!(output(N, r#"{"n": 2}"#).as_deref(), Some(r#"{"n": 2}"#));
    assert_eq!(output(N, r#"It is {"n": 2}."#).as_deref(), Some(r#"{"n": 2}"#));
    assert_eq!(output(r#"{"type": "string"}"#, "two").as_deref(), Some(r#""two""#));
    assert_eq!(output(r#"{"type": "string"}"#, r#""two""#).as_deref(), Some(r#""two""#));
}

/// X-3: of several values in a text the last one that fits is taken; a run of an earlier interpreter still takes the
/// longest.
#[test]
fn a_draft_in_a_text_is_not_the_answer() {
    let mut case = pipeline([skill("x", "go").schema(N)]);
    let script = r#"p/x/turn1 answer Maybe {"n": 1, "note": "a first draft"}, but no: {"n": 2}"#;
    for (abi, expected) in [(crate::machine::ABI, r#"{"n": 2}"#), (7, r#"{"n": 1, "note": "a first draft"}"#)] {
        case.start.abi = abi;
        let world = play(&case, script);
        let result = world.machine.result().expect("a result");
        assert_eq!(result.output.as_ref().and_then(|output| output.inline()), Some(expected));
    }
}

/// X-3: after a text that does not fit, the model must call the answer tool; three misfits in a row end the agent.
#[test]
fn a_text_that_does_not_fit_forces_the_call_of_the_answer_tool() {
    let forced = |world: &super::World, turn: &str| world.request(turn).must_call.clone();
    let script = r#"
        p/x/turn1 answer I am done.
        p/x/turn2 calls submit_answer {"n": 2}
    "#;
    let world = play(&pipeline([skill("x", "go").schema(N)]), script);
    assert_eq!(forced(&world, "p/x/turn1"), None);
    assert_eq!(forced(&world, "p/x/turn2").as_deref(), Some("submit_answer"));
    let result = world.machine.result().expect("a result");
    assert_eq!(result.output.as_ref().and_then(|o| o.inline()), Some(r#"{"n": 2}"#));
    let script = r#"
        p/x/turn1 answer I am done.
        p/x/turn2 calls submit_answer {"n": "two"}
        p/x/turn3 answer {"n": "three"}
    "#;
    let world = play(&pipeline([skill("x", "go").schema(N)]), script);
    assert_eq!(forced(&world, "p/x/turn3"), None, "it called the tool");
    let result = world.machine.result().expect("a result");
    assert_eq!(result.errors[0].kind, crate::failure::FailureKind::ValidationExhausted);
    assert!(result.errors[0].message.contains("3 responses in a row"), "{}", result.errors[0].message);
}

/// X-3: other work between misfits resets their count.
#[test]
fn misfits_are_counted_in_a_row() {
    let script = r#"
        p/x/turn1 answer Soon.
        p/x/turn2 answer Very soon.
        p/x/turn3 calls Read {}
        p/x/turn4 answer Now.
        p/x/turn5 calls submit_answer {"n": 5}
    "#;
    let mut step = skill("x", "go").schema(N);
    if let crate::plan::StepKind::Skill(agent) = &mut step.kind {
        agent.turn_cap = 9;
    }
    let world = play(&pipeline([step]), script);
    let result = world.machine.result().expect("a result");
    assert_eq!(result.output.as_ref().and_then(|o| o.inline()), Some(r#"{"n": 5}"#));
}

/// A-7.2: an empty response does not count as an answer; the model is asked again, and the turn counts.
#[test]
fn an_empty_answer_is_asked_for_again() {
    let world = play(&pipeline([skill("x", "go")]), "p/x/turn1 answer \np/x/turn2 answer ok");
    assert_eq!(
        world.machine.result().and_then(|r| r.output.clone()).and_then(|o| o.inline().map(str::to_owned)),
        Some("\"ok\"".to_owned())
    );
}

/// A-7.2: three empty responses in a row end an agent, even if turns are left.
#[test]
fn a_silent_model_ends_its_agent_early() {
    let world = play(&pipeline([skill("x", "go")]), "p/x/turn1 answer \np/x/turn2 answer \np/x/turn3 answer ");
    let result = world.machine.result().expect("a result");
    assert_eq!((result.errors[0].kind, result.usage.calls), (crate::failure::FailureKind::ModelError, 3));
    assert!(result.errors[0].message.contains("an empty response 3 times in a row"), "{}", result.errors[0].message);
}

/// A-7.2: a cancelled agent waits for its calls to end and starts no others.
#[test]
fn a_cancelled_agent_waits_for_its_calls_to_end() {
    let script = "p/x/turn1 calls Read 1; Look 2\nreach p/x/turn1/Look[1]\ncancel\np/x/turn1/Read[0] abandoned\np/x/turn1/Look[1] abandoned";
    let world = play(&pipeline([skill("x", "go")]), script);
    let result = world.machine.result().expect("a result");
    assert_eq!(result.status, crate::report::Status::Cancelled);
    assert!(world.given_up.len() >= 2, "{:?}", world.given_up);
}

/// C-1.17, C-2.8, AA-36, SK-21: a second, unchanged activation is a note; one copy stays in the conversation.
#[test]
fn a_second_activation_is_a_note() {
    let script = r#"
        p/x/tools offers Learn*
        p/x/turn1 calls Learn 1
        p/x/turn1/Learn[0] gives the contract
        p/x/turn2 calls Learn 1
        p/x/turn2/Learn[0] gives the contract
        p/x/turn3 answer ok
    "#;
    let world = play(&pipeline([skill("x", "go")]), script);
    assert_eq!(all_results(&world, "p/x/turn3"), ["the contract", ACTIVE]);
}

const ACTIVE: &str = "This is active already, unchanged: see above.";

/// Every tool result in the model's request for that turn.
fn all_results(world: &super::World, turn: &str) -> Vec<String> {
    let parts = world.request(turn).messages.iter().flat_map(|message| &message.parts);
    let content = |part: &Part| match part {
        Part::ToolResult { content, .. } => Some(content.clone()),
        _ => None,
    };
    parts.filter_map(content).collect()
}

/// C-1.17, C-2.8: the note refers only to a copy that stays in the conversation, never to a result that may be left out.
#[test]
fn what_is_not_kept_is_no_activation() {
    let script = r#"
        p/x/tools offers Read Learn*
        p/x/turn1 calls Read 1
        p/x/turn1/Read[0] gives the contract
        p/x/turn2 calls Learn 1
        p/x/turn2/Learn[0] gives the contract
        p/x/turn3 answer ok
    "#;
    let world = play(&pipeline([skill("x", "go")]), script);
    assert_eq!(all_results(&world, "p/x/turn3"), ["the contract", "the contract"]);
}

/// C-1.17, C-2.8: two equal activations in one response are one copy and a note.
#[test]
fn equal_activations_of_one_answer_are_one_copy() {
    let script = r#"
        p/x/tools offers Learn*
        p/x/turn1 calls Learn 1; Learn 2; Learn 1
        p/x/turn1/Learn[0] gives the contract
        p/x/turn1/Learn[1] gives another
        p/x/turn1/Learn[2] gives the contract
        p/x/turn2 answer ok
    "#;
    let world = play(&pipeline([skill("x", "go")]), script);
    assert_eq!(all_results(&world, "p/x/turn2"), ["the contract", "another", ACTIVE]);
}

/// A-7.2: a cut-off response may have cut a call's arguments: none of its calls runs.
#[test]
fn calls_of_an_answer_that_was_cut_off_do_not_run() {
    let world = play(&pipeline([skill("x", "go")]), "p/x/turn1 cut_calls Write ; Read 1\np/x/turn2 answer ok");
    assert!(!world.started.iter().any(|(_, effect)| matches!(effect, Effect::Tool(_))));
    assert!(results(&world, "p/x/turn2").iter().all(|reported| reported.contains("cut off")));
}

/// A-4.5: an agent whose responses are repeatedly cut off ends as truncated, with the limit; a run of earlier versions
/// continues.
#[test]
fn answers_that_are_cut_off_again_and_again_end_the_agent() {
    let turn = |n: usize| format!("p/x/turn{n} {}", if n == 3 { "calls Read 1" } else { "cut_calls Write" });
    let script = [1, 2, 3, 4, 5, 6].map(turn).join("\n");
    let case = || {
        let mut step = skill("x", "go");
        if let crate::plan::StepKind::Skill(agent) = &mut step.kind {
            agent.turn_cap = 9;
        }
        pipeline([step])
    };
    let log = play(&case(), &script).log;
    let error = "error model_truncated business/x 3 responses of test/model to skill `tidy` in a row were cut off at the maximum \
                 length (2 tokens; set by `max_tokens` of its provider)";
    assert!(log.contains(error), "{log}");
    let mut earlier = case();
    earlier.start.abi = 7;
    let log = play(&earlier, &format!("{script}\np/x/turn7 answer ok")).log;
    assert!(log.contains("result succeeded"), "{log}");
}

/// L-77, L-68, L-69: a pipeline that an agent calls runs its steps alone; a deviation is an error with the results so
/// far, and a write that was made is not made again.
#[test]
fn a_pipeline_that_is_called_runs_its_steps() {
    let steps = || {
        let put = tool("b", "put", "{{t.output}}").require("{{t.output}}");
        [tool("t", "get", "{{input.id}}"), put, tool("c", "get", "2")]
    };
    let case = || pipeline([offering(skill("x", "go"), sequence("look", steps()))]);
    let results = |world: &super::World, turn: &str| -> Vec<String> {
        let parts = world.request(turn).messages.iter().flat_map(|message| &message.parts);
        let text = |part: &Part| match part {
            Part::ToolResult { content, .. } => Some(content.clone()),
            _ => None,
        };
        parts.filter_map(text).collect()
    };
    let play = |case: &super::Case, script: &str| play(case, &format!("p/x/tools offers Look^\n{script}"));
    let world = play(&case(), "p/x/turn1 calls Look {\"id\":1}; Look {}");
    let said = results(&world, "p/x/turn2");
    assert_eq!(said[0], "get-out");
    assert!(said[1].contains("do not fit"), "{}", said[1]);
    let script = r#"
        p/x/turn1 calls Look {"id":1}
        p/x/turn1/Look[0]/c fails gone
        p/x/turn2 calls put {"id":"get-out"}
    "#;
    let world = play(&case(), script);
    let said = results(&world, "p/x/turn2").concat();
    for part in ["deviated at its step `c` (tool_error)", r#""tool":"get","arguments":{"id":1}"#, r#""changed":true"#] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(results(&world, "p/x/turn3").concat().contains("not made again"));
    let result = world.machine.result().expect("it is over");
    let deviated: Vec<(&str, &str, &str)> =
        result.deviations.iter().map(|one| (one.pipeline.as_str(), one.step.as_str(), one.reason)).collect();
    assert_eq!(deviated, [("Look", "c", "tool_error")], "L-79: the run's result says so");
    let world = play(&case(), "p/x/turn1 calls Look {\"id\":1}\np/x/turn1/Look[0]/t gives {}");
    let said = results(&world, "p/x/turn2").concat();
    assert!(said.contains("deviated at its step `b` (require)") && !said.contains(r#""changed":"#), "{said}");
}

/// L-77: a call goes to a pipeline only if the tool list has it as one; a tool of that name is the tool. Runs of
/// earlier versions behave as they did.
#[test]
fn a_tool_with_the_name_of_a_pipeline_is_the_tool() {
    let mut case = pipeline([offering(skill("x", "go"), sequence("look", [tool("t", "get", "{{input.id}}")]))]);
    let script = "p/x/tools offers Look!\np/x/turn1 calls Look {\"id\":1}\np/x/turn2 answer ok";
    for (abi, called) in [(crate::machine::ABI, "p/x/turn1/Look[0]"), (8, "p/x/turn1/Look[0]/t")] {
        case.start.abi = abi;
        let world = play(&case, script);
        let calls: Vec<&str> = world.started.iter().map(|(id, _)| id.as_str()).filter(|id| id.contains('[')).collect();
        assert_eq!(calls, [called]);
    }
}
