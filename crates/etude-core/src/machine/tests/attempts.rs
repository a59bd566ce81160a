//! Further attempts (A-5.6): outcomes that succeeded in the pipeline are fed to a fresh machine, the others restart,
//! and constructor and destructor run once per attempt of the scope.

use super::build::*;
use super::crash::{STORIES, Story, outcomes};
use super::world::{Input, World};
use super::{Case, play};
use crate::effect::{Chunk, Effect, EffectId};
use crate::machine::{Attempt, Limits};
use crate::report::{RunResult, Status};

/// The result of a finished run.
fn ended(world: &World) -> RunResult {
    world.machine.result().cloned().expect("the run is over")
}

/// The outcomes that another attempt keeps of a run.
fn kept(world: &World) -> Vec<Input> {
    let remains = ended(world).remains;
    let is_kept = |input: &&Input| match input {
        Input::Complete(id, _) => {
            is_of_pipeline(id.as_str()) && !remains.covers(id.as_str()) && id.as_str() != "p!timeout"
        }
        _ => false,
    };
    outcomes(&world.history).filter(is_kept).cloned().collect()
}

fn is_of_pipeline(id: &str) -> bool {
    !id.starts_with("_c") && !id.starts_with("_d")
}

/// The next attempt at a run of `case`, until all kept outcomes are used.
fn next_attempt(case: &Case, number: u32, before: &World) -> World {
    let mut case = Case { plan: case.plan.clone(), start: case.start.clone() };
    case.start.limits = Limits::default();
    let scope = if ended(before).remains.is_scope_over { number } else { 1 };
    case.start.attempt = Attempt::new(number, scope);
    let mut world = World::new(&case);
    world.emit(Input::Poll);
    while !world.machine.is_past_constructor() {
        let next = world.running.iter().find(|(id, _)| id.as_str().starts_with("_c")).cloned();
        let (id, effect) = next.expect("the constructor goes on");
        world.emit(Input::Complete(id.clone(), super::script::default(&id, &effect)));
        world.emit(Input::Poll);
    }
    for input in kept(before) {
        world.emit(input);
        world.emit(Input::Poll);
    }
    world
}

fn started(world: &World) -> Vec<&str> {
    world.started.iter().map(|(id, _)| id.as_str()).collect()
}

/// The ids of the effects that another attempt executed itself.
fn executed(world: &World, before: &World) -> Vec<String> {
    let kept = kept(before);
    let is_kept = |id: &EffectId| kept.iter().any(|input| matches!(input, Input::Complete(kept, _) if kept == id));
    world.started.iter().map(|(id, _)| id).filter(|id| !is_kept(id)).map(ToString::to_string).collect()
}

/// A-5.6: once the cause is gone, another attempt succeeds, whatever failed before and wherever the run was cancelled.
/// It repeats no successful effect, and opens and closes its scope under new keys.
#[test]
fn a_further_attempt_at_any_run_succeeds_without_repeating_what_succeeded() {
    for story in STORIES {
        continues(story, None);
        let (whole, _) = story.live(None);
        for at in 0..outcomes(&whole.history).count() {
            continues(story, Some(at));
        }
    }
}

fn continues(story: &Story, cancel_at: Option<usize>) {
    let (first, _) = story.live(cancel_at);
    if ended(&first).status == Status::Succeeded {
        return;
    }
    let what = format!("{}, cancelled after {cancel_at:?}", story.name);
    let mut second = next_attempt(&(story.case)(), 2, &first);
    story.repaired().proceed(&mut second, None);
    let result = ended(&second);
    assert_eq!(result.status, Status::Succeeded, "{what}\n{}\nthen\n{}", first.log, second.log);
    assert_eq!((result.attempt, result.errors.len()), (2, 0), "{what}");
    assert_eq!(result.remains.unfinished, Vec::<String>::new(), "{what}");
    let (again, is_scope_over) = (executed(&second, &first), ended(&first).remains.is_scope_over);
    for id in again.iter().filter(|id| id.starts_with("_c") || id.starts_with("_d")) {
        assert!(id.contains("@2/"), "{what}: {id}");
    }
    let constructs = again.iter().any(|id| id.starts_with("_c@2"));
    assert_eq!(constructs, is_scope_over && (story.case)().plan.before.is_some(), "{what}");
    assert_eq!(again.iter().any(|id| id.starts_with("_d@2")), (story.case)().plan.after.is_some(), "{what}");
}

/// A-5.6: the step that failed restarts with its full retry budget; the steps before it do not.
#[test]
fn the_failed_step_has_its_full_retry_budget() {
    let case = || pipeline([code("a"), code("b").retry(1), code("c")]).before([code("open")]).after([code("close")]);
    let first = play(&case(), "p/b exit 1\np/b#2 exit 1");
    assert_eq!(ended(&first).remains.unfinished, ["p/b"]);
    let mut second = next_attempt(&case(), 2, &first);
    second.run_effect("p/b exit 1");
    assert_eq!(ended(&second).status, Status::Succeeded);
    let expected = ["_c@2/open", "p/a", "p/b", "p/b!backoff1", "p/b#2", "p/c", "_d@2/close"];
    assert_eq!(started(&second), expected);
}

/// A-5.6: elements and children that succeeded are kept; failed and stopped ones restart.
#[test]
fn of_a_fan_out_only_what_did_not_succeed_starts_again() {
    let case = || pipeline([code("e").for_each("{{input.l}}").max_parallel(2)]).input(r#"{"l":[1,2,3,4]}"#);
    let first = play(&case(), "reach p/e[1]\np/e[0] output 0\np/e[2] exit 1\np/e[1] abandoned");
    assert_eq!(ended(&first).remains.unfinished, ["p/e[1]", "p/e[2]"]);
    let mut second = next_attempt(&case(), 2, &first);
    second.run_effect("");
    assert_eq!(executed(&second, &first), ["p/e[1]", "p/e[2]", "p/e[3]"]);
    assert_eq!(ended(&second).status, Status::Succeeded);
}

/// A-5.6: collected failures of elements belong to a step that succeeded, and are kept.
#[test]
fn collected_failures_are_kept() {
    let each = || code("e").for_each("{{input.l}}").collect();
    let case = || pipeline([each(), code("z")]).input(r#"{"l":[1,2]}"#);
    let first = play(&case(), "p/e[0] exit 1\np/z exit 1");
    assert_eq!(ended(&first).remains.unfinished, ["p/z"]);
}

/// A-5.6: a scope that a kill left open is not opened again; its destructor ends it.
#[test]
fn a_scope_that_was_killed_is_still_open() {
    let case = || pipeline([code("a")]).before([code("open")]).after([code("close")]);
    let first = play(&case(), "reach p/a\nkill\np/a abandoned");
    let remains = ended(&first).remains;
    assert!(!remains.is_scope_over, "{remains:?}");
    let mut second = World::new(&{
        let mut case = case();
        case.start.attempt = Attempt::new(2, 1);
        case
    });
    second.run_effect("_c/open output 1");
    assert_eq!(started(&second), ["_c/open", "p/a", "_d@2/close"]);
    assert!(!stdin(&second, "_c/open").contains("attempt"));
    assert!(stdin(&second, "_d@2/close").contains(r#""attempt":2"#));
}

/// A-5.6, A-5.1: constructor and destructor see `run.attempt` from the second attempt on.
#[test]
fn constructor_and_destructor_see_the_attempt() {
    let case = |attempt| {
        let mut case = pipeline([code("a")]).before([code("open")]).after([code("close")]);
        case.start.attempt = attempt;
        case
    };
    for (attempt, shown) in [
        (Attempt::new(1, 1), None),
        (Attempt::new(2, 2), Some(r#","attempt":2}"#)),
        (Attempt::new(3, 3), Some(r#","attempt":3}"#)),
    ] {
        let world = play(&case(attempt), "");
        for (id, effect) in world.started.iter().filter(|(id, _)| !id.as_str().starts_with('p')) {
            let Effect::Process(call) = effect else { panic!("a process") };
            let text = text(&call.stdin.0);
            match shown {
                Some(shown) => assert!(text.contains(shown), "{id}: {text}"),
                None => assert!(!text.contains("attempt"), "{id}: {text}"),
            }
        }
    }
}

#[track_caller]
fn stdin(world: &World, id: &str) -> String {
    match world.asked(id) {
        Effect::Process(call) => text(&call.stdin.0),
        other => panic!("no process: {other:?}"),
    }
}

fn text(chunks: &[Chunk]) -> String {
    let piece = |chunk: &Chunk| match chunk {
        Chunk::Text(text) => text.to_string(),
        Chunk::Json(json) => json.inline().unwrap_or_default().to_owned(),
        Chunk::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    };
    chunks.iter().map(piece).collect()
}

/// A-5.6: an agent keeps its completed turns and tool calls, and the response that exceeded the budget.
#[test]
fn an_agent_keeps_its_completed_turns() {
    let case = || pipeline([skill("x", "Do it")]);
    let first = play(&case(), "p/x/tools offers Look\np/x/turn1 calls Look {}\np/x/turn2 no_answer no route");
    assert_eq!(ended(&first).remains.unfinished, ["p/x/turn2"], "{}", first.log);
    let over = play(&case().max_tokens(4), "p/x/tools offers Look\np/x/turn1 calls Look {}");
    assert_eq!(ended(&over).remains.unfinished, Vec::<String>::new(), "{}", over.log);
}

/// A-5.6, L-49: a question that was answered together with an earlier one is asked alone when it restarts, and the
/// earlier one keeps its answer; an answer that is not older than the restart counts.
#[test]
fn a_question_of_a_joint_call_starts_again_by_itself() {
    let case = |restarts: &[(&str, u32)]| {
        let [c, d] = ["c", "d"].map(|name| choose_many(name, "Which?", "{{input.l}}"));
        let mut case = pipeline(asked_together(c, d)).input(r#"{"l":["a","b"]}"#);
        case.start.restarts = restarts.iter().map(|(part, attempt)| ((*part).to_owned(), *attempt)).collect();
        case
    };
    let joint = |answer: &str| format!("p/c answer {{\"c\": [\"a\"], \"d\": [\"{answer}\"]}}");
    let none = "p/d answer {\"d\": [\"none\"]}";
    let first = play(&case(&[]), &joint("none"));
    assert_eq!(ended(&first).remains.unfinished, ["p/d"]);
    let as_before = next_attempt(&case(&[]), 2, &first);
    assert_eq!((ended(&as_before).status, executed(&as_before, &first).len()), (Status::Failed, 0));
    let mut second = next_attempt(&case(&[("p/d", 2)]), 2, &first);
    second.run_effect(none);
    assert_eq!((ended(&second).status, executed(&second, &first)), (Status::Failed, vec!["p/d".to_owned()]));
    let mut third = next_attempt(&case(&[("p/d", 3)]), 3, &second);
    third.run_effect("p/d answer {\"d\": [\"b\"]}");
    assert_eq!((ended(&third).status, executed(&third, &second)), (Status::Succeeded, vec!["p/d".to_owned()]));
    let both = play(&case(&[("p/c", 4), ("p/d", 4)]), &joint("b"));
    assert_eq!((ended(&both).status, started(&both)), (Status::Succeeded, vec!["p/c"]));
}
