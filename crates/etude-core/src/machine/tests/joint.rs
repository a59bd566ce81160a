//! Questions that share a call (L-49).

use std::sync::Arc;

use super::build::*;
use super::world::World;
use super::{Case, play};
use crate::effect::{Effect, EffectId};
use crate::failure::{Failure, FailureKind, Reason};
use crate::model::Part;
use crate::plan::{Choose, Llm, Step, StepKind};
use crate::report::Status;

/// A question with two possible answers and no retry.
fn question(name: &str) -> Step {
    choose_many(name, "Which?", "{{input.l}}").retry(0)
}

fn llm_of(step: &mut Step) -> &mut Llm {
    let StepKind::Llm(llm) = &mut step.kind else { panic!("no llm step") };
    llm
}

fn choose_of(step: &mut Step) -> &mut Choose {
    llm_of(step).choose.as_mut().expect("a question")
}

/// Questions, each of which shares the call of an earlier one.
fn in_a_row(mut steps: Vec<Step>) -> Vec<Step> {
    for at in (0..steps.len()).rev() {
        let after = steps[at + 1..].iter().cloned().map(Arc::new).collect();
        choose_of(&mut steps[at]).together = after;
    }
    steps
}

/// The same as children of a group.
fn in_a_group(steps: Vec<Step>) -> Step {
    let mut steps = in_a_row(steps);
    for at in (0..steps.len()).rev() {
        let after = steps[at + 1..].iter().cloned().map(Arc::new).collect();
        choose_of(&mut steps[at]).beside = Some(after);
    }
    group("g", steps)
}

fn case(steps: impl IntoIterator<Item = Step>) -> Case {
    pipeline(steps).input(r#"{"l": ["a", "b"], "yes": true, "no": false, "other": []}"#)
}

/// The started calls, with the questions of each.
fn calls(world: &World) -> Vec<(String, Vec<String>)> {
    let call = |(id, effect): &(EffectId, Effect)| {
        let Effect::Model(request) = effect else { panic!("{id} is no model call") };
        let schema = &request.schema.as_ref().expect("a schema").schema;
        let names = schema["required"].as_array().expect("a list").iter();
        (id.to_string(), names.map(|name| name.as_str().expect("a name").to_owned()).collect())
    };
    world.started.iter().map(call).collect()
}

fn call(id: &str, questions: &[&str]) -> (String, Vec<String>) {
    (id.to_owned(), questions.iter().map(|name| (*name).to_owned()).collect())
}

#[track_caller]
fn status(world: &World) -> Status {
    world.machine.result().expect("a result").status
}

#[track_caller]
fn failure(world: &World) -> Failure {
    world.machine.result().expect("a result").errors[0].clone()
}

/// The statuses of all rows.
fn rows(world: &World) -> Vec<(String, &'static str)> {
    let rows = world.machine.result().expect("a result").steps.iter();
    rows.map(|row| (row.name.clone(), row.status.word())).collect()
}

fn row(name: &str, status: &'static str) -> (String, &'static str) {
    (name.to_owned(), status)
}

/// L-49: a question with a `when` or a `require` shares a call, and a skipped one is left out. Runs of earlier versions
/// ask each alone.
#[test]
fn questions_with_conditions_share_a_call() {
    let steps = || {
        let guarded = question("d").when("{{input.yes}}").require("{{input.l}}");
        in_a_row(vec![
            question("c").require("{{input.yes}}"),
            guarded,
            question("e").when("{{input.no}}"),
            question("f"),
        ])
    };
    let mut case = case(steps());
    let world = play(&case, r#"p/c answer {"c": ["a"], "d": ["b"], "f": ["a", "b"]}"#);
    assert_eq!((status(&world), calls(&world)), (Status::Succeeded, vec![call("p/c", &["c", "d", "f"])]));
    assert_eq!(rows(&world)[2], row("e", "skipped"));
    case.start.abi = 10;
    let script = "p/c answer {\"c\": [\"a\"]}\np/d answer {\"d\": [\"a\"]}\np/f answer {\"f\": [\"a\"]}";
    let world = play(&case, script);
    let alone = vec![call("p/c", &["c"]), call("p/d", &["d"]), call("p/f", &["f"])];
    assert_eq!((status(&world), calls(&world)), (Status::Succeeded, alone));
}

/// L-46, L-49, L-50: the run deviates as if each question were asked alone, and a question after the deviation is in no
/// call.
#[test]
fn a_call_has_no_question_that_a_deviation_comes_before() {
    let open = choose_many("d", "Which?", "{{input.other}}").retry(0);
    let unclear = choose_many("d", "Which of {{input.unknown}}?", "{{input.l}}").retry(0);
    for (second, reason) in [
        (question("d").require("{{input.no}}"), Reason::Require),
        (question("d").when("{{input.unknown}}"), Reason::FieldMissing),
        (open, Reason::ChooseEmpty),
        (unclear, Reason::FieldMissing),
    ] {
        let case = case(in_a_row(vec![question("c"), second, question("e")]));
        let world = play(&case, r#"p/c answer {"c": ["a"]}"#);
        let found = failure(&world);
        assert_eq!(calls(&world), [call("p/c", &["c"])], "{}", world.log);
        assert_eq!((found.step.as_deref(), found.reason), (Some("d"), Some(reason)), "{}", world.log);
        let world = play(&case, r#"p/c answer {"c": []}"#);
        assert_eq!((failure(&world).step.as_deref(), failure(&world).reason), (Some("c"), Some(Reason::ChooseNone)));
    }
}

/// L-49: the question without a valid answer is the one that fails; earlier ones keep their answers. In runs of earlier
/// versions the first one failed.
#[test]
fn the_question_that_used_up_the_retries_fails() {
    let mut case = case(in_a_row(["c", "d", "e"].map(|name| question(name).retry(1)).into()));
    let bad = |call: &str| format!("{call} answer {{\"c\": [\"a\"], \"d\": [\"x\"], \"e\": [\"b\"]}}\n");
    let both = format!("{}{}", bad("p/c"), bad("p/c#2"));
    let world = play(&case, &both);
    let found = failure(&world);
    let said = (found.kind, found.step.as_deref(), found.reason, found.attempts.len());
    assert_eq!(said, (FailureKind::ValidationExhausted, Some("d"), Some(Reason::ChooseExhausted), 2), "{}", world.log);
    let message = "llm step `d` was rejected twice (1 attempt + 1 retry); last reason: /d/0: ";
    assert!(found.message.starts_with(message), "{}", found.message);
    assert_eq!(found.origin.map(|origin| origin.file).as_deref(), Some("d.yaml"));
    assert_eq!(rows(&world), [row("c", "succeeded"), row("d", "failed"), row("e", "not_started")]);
    assert_eq!(world.machine.result().expect("a result").remains.unfinished, ["p/d"]);
    // The last response counts, and of several questions without a valid answer the first.
    let last = "p/c#2 answer {\"c\": [\"none\", \"a\"], \"d\": [\"x\"], \"e\": [\"b\"]}";
    assert_eq!(failure(&play(&case, &format!("{}{last}", bad("p/c")))).step.as_deref(), Some("c"));
    let none = play(&case, "p/c answer I do not know.\np/c#2 answer Neither do I.");
    assert_eq!(failure(&none).step.as_deref(), Some("c"), "{}", none.log);
    case.start.abi = 10;
    let earlier = play(&case, &both);
    assert_eq!(failure(&earlier).step.as_deref(), Some("c"));
    assert_eq!(rows(&earlier)[0], row("c", "failed"));
}

/// A-5.6, L-49: the question that used up the retries is asked alone in the next attempt; the others keep their answers.
#[test]
fn a_question_without_a_good_answer_starts_again_by_itself() {
    let mut case = case(in_a_row(["c", "d", "e"].map(question).into()));
    let joint = r#"p/c answer {"c": ["a"], "d": ["x"], "e": ["b"]}"#;
    case.start.restarts.insert("p/d".to_owned(), 2);
    let world = play(&case, &format!("{joint}\np/d answer {{\"d\": [\"b\"]}}"));
    let expected = vec![call("p/c", &["c", "d", "e"]), call("p/d", &["d"])];
    assert_eq!((status(&world), calls(&world)), (Status::Succeeded, expected), "{}", world.log);
}

/// L-49: the images of every question are sent, each once. Runs of earlier versions send only those of the first.
#[test]
fn the_images_of_all_questions_are_sent() {
    let with_image = |name: &str, image: &str| {
        let mut step = question(name);
        llm_of(&mut step).images.push(template(image));
        step
    };
    let steps = vec![with_image("c", "1.png"), with_image("d", "2.png"), with_image("e", "1.png")];
    let mut case = case(in_a_row(steps));
    let images = |case: &Case| -> Vec<String> {
        let world = play(case, r#"p/c answer {"c": ["a"], "d": ["b"], "e": ["b"]}"#);
        let parts = world.request("p/c").messages[0].parts.iter();
        let image = |part: &Part| match part {
            Part::Image { path } => Some(path.clone()),
            _ => None,
        };
        parts.filter_map(image).collect()
    };
    assert_eq!(images(&case), ["pipelines/p/1.png", "pipelines/p/2.png"]);
    case.start.abi = 10;
    assert_eq!(images(&case), ["pipelines/p/1.png"]);
}

/// L-49: children of a group share a call, whatever other children are between them. Runs of earlier versions ask each
/// alone.
#[test]
fn children_of_a_group_share_a_call() {
    let skipped = question("e").when("{{input.no}}");
    let steps = || vec![question("c"), question("d").require("{{input.yes}}"), skipped.clone(), question("f")];
    let mut case = case([in_a_group(steps())]);
    let world = play(&case, r#"p/g/c answer {"c": ["a"], "d": ["b"], "f": ["a"]}"#);
    assert_eq!((status(&world), calls(&world)), (Status::Succeeded, vec![call("p/g/c", &["c", "d", "f"])]));
    let output = world.machine.result().expect("a result").output.clone();
    assert_eq!(output, Some(json(r#"{"c":["a"],"d":["b"],"e":null,"f":["a"]}"#)));
    case.start.abi = 10;
    let script = "p/g/c answer {\"c\": [\"a\"]}\np/g/d answer {\"d\": [\"a\"]}\np/g/f answer {\"f\": [\"a\"]}";
    let world = play(&case, script);
    let alone = vec![call("p/g/c", &["c"]), call("p/g/d", &["d"]), call("p/g/f", &["f"])];
    assert_eq!((status(&world), calls(&world)), (Status::Succeeded, alone));
}

/// L-49: a child whose call has failed takes no answer from the others; they ask on their own, the first of them for
/// the rest.
#[test]
fn children_of_a_group_do_not_depend_on_each_other() {
    let case = case([in_a_group(["c", "d", "e"].map(question).into()).wait()]);
    for first in [r#"answer {"c": [], "d": ["a"], "e": ["a"]}"#, "no_answer HTTP 503", "answer hm"] {
        let script = format!("p/g/c {first}\np/g/d answer {{\"d\": [\"b\"], \"e\": [\"b\"]}}");
        let world = play(&case, &script);
        let expected = [call("p/g/c", &["c", "d", "e"]), call("p/g/d", &["d", "e"])];
        assert_eq!(calls(&world), expected, "{}", world.log);
        let statuses = [row("g", "failed"), row("c", "failed"), row("d", "succeeded"), row("e", "succeeded")];
        assert_eq!(rows(&world), statuses, "{first}");
    }
    let world = play(&case, r#"p/g/c answer {"c": ["a"], "d": ["x"], "e": ["x"]}"#);
    let errors: Vec<_> = world.machine.result().expect("a result").errors.iter().map(|e| e.step.clone()).collect();
    assert_eq!(errors, [Some("d".to_owned()), Some("e".to_owned())], "{}", world.log);
    assert_eq!(calls(&world).len(), 1);
}

/// X-3: a child that waits for the call of a sibling is stopped with its group.
#[test]
fn a_child_that_waits_for_a_siblings_call_is_stopped() {
    let world =
        play(&case([in_a_group(vec![question("c"), question("d")])]), "p/g/c answer {\"c\": [], \"d\": [\"a\"]}");
    assert_eq!(rows(&world)[1..], [row("c", "failed"), row("d", "cancelled")], "{}", world.log);
    let world = play(&case([in_a_group(vec![question("c"), question("d")])]), "reach p/g/c\ncancel\np/g/c abandoned");
    assert_eq!(rows(&world)[1..], [row("c", "cancelled"), row("d", "cancelled")], "{}", world.log);
}

/// A-5.6: a child of a group that restarts is asked alone, and questions that its siblings have answers to are not
/// repeated.
#[test]
fn a_child_that_starts_again_asks_by_itself() {
    let restarted = |part: &str| {
        let mut case = case([in_a_group(["c", "d", "e"].map(question).into()).wait()]);
        case.start.restarts.insert(part.to_owned(), 2);
        case
    };
    let joint = r#"p/g/c answer {"c": ["a"], "d": ["none"], "e": ["b"]}"#;
    let world = play(&restarted("p/g/d"), &format!("{joint}\np/g/d answer {{\"d\": [\"b\"]}}"));
    assert_eq!(calls(&world), [call("p/g/c", &["c", "d", "e"]), call("p/g/d", &["d"])], "{}", world.log);
    assert_eq!(status(&world), Status::Succeeded);
    let rest = "p/g/c answer {\"c\": [\"a\"]}\np/g/d answer {\"d\": [\"b\"], \"e\": [\"b\"]}";
    let world = play(&restarted("p/g/c"), rest);
    assert_eq!(calls(&world), [call("p/g/c", &["c"]), call("p/g/d", &["d", "e"])], "{}", world.log);
    assert_eq!(status(&world), Status::Succeeded);
}
