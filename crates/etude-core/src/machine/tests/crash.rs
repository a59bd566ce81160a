//! Crashes: a run is cut after every outcome and replayed into a fresh machine from its records.
//!
//! No completed effect is executed again, and the result is that of the uncut run.

use super::build::*;
use super::world::{Input, World, ends_by_itself};
use super::{Case, script};
use crate::effect::{Effect, EffectId};
use crate::failure::Phase;

/// A plan with its unusual outcomes. `hangs` means that the effect ends only when it is abandoned.
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) case: fn() -> Case,
    says: &'static [(&'static str, &'static str)],
}

/// A-5.3: after a crash the run continues at the first unfinished effect, and still ends in its destructor.
#[test]
fn a_run_that_is_cut_after_any_outcome_ends_as_if_it_had_not_been() {
    for story in STORIES {
        survives_every_crash(story, None);
    }
}

/// A-5.3: a cancelled run also survives a crash after any outcome: the cancellation is recorded as well.
#[test]
fn a_cancelled_run_that_is_cut_after_any_outcome_ends_as_if_it_had_not_been() {
    for story in STORIES {
        let (world, _) = story.live(None);
        for at in 0..outcomes(&world.history).count() {
            survives_every_crash(story, Some(at));
        }
    }
}

/// A-5.3: a destructor that has begun is finished once, whenever the cancellation comes; it begins unless the
/// constructor had not ended (A-5.2).
#[test]
fn a_cancelled_run_runs_its_destructor_once() {
    for story in STORIES.iter().filter(|story| (story.case)().plan.after.is_some()) {
        let (world, _) = story.live(None);
        for at in 0..outcomes(&world.history).count() {
            let (world, _) = story.live(Some(at));
            let ended = |id: &str| {
                outcomes(&world.history).filter(|o| matches!(o, Input::Complete(i, _) if i.as_str() == id)).count()
            };
            let is_due = story.case_has_begun_business(&world);
            assert_eq!(ended("_d/close"), usize::from(is_due), "{} cancelled after {at}:\n{}", story.name, world.log);
        }
    }
}

fn survives_every_crash(story: &Story, cancel_at: Option<usize>) {
    let (whole, executed) = story.live(cancel_at);
    let records: Vec<Input> = outcomes(&whole.history).cloned().collect();
    for cut in 0..=records.len() {
        let what = format!("{}, cancelled after {cancel_at:?}, cut after {cut}", story.name);
        let mut second = World::new(&(story.case)());
        second.emit(Input::Poll);
        for record in &records[..cut] {
            second.emit(record.clone());
            second.emit(Input::Poll);
            replay_record(&mut second, record);
        }
        // All records are delivered again after the first pass.
        for record in &records[..cut] {
            replay_record(&mut second, record);
        }
        let known: Vec<&EffectId> = records[..cut].iter().filter_map(completed).collect();
        for (id, _) in &second.running {
            assert!(!known.contains(&id), "{what}: `{id}` is asked for again");
        }
        let mut all: Vec<EffectId> = known.into_iter().cloned().collect();
        all.extend(story.proceed(&mut second, cancel_at));
        assert_eq!(second.machine.result(), whole.machine.result(), "{what}");
        assert_eq!(second.log, whole.log, "{what}");
        assert_eq!(second.machine.outstanding().count(), 0, "{what}");
        all.sort();
        assert_eq!(all, executed, "{what}: what was performed");
    }
}

/// Reports an outcome a second time, which must change nothing.
fn replay_record(world: &mut World, record: &Input) {
    if let Input::Complete(id, outcome) = record {
        world.machine.complete(id, script::outcome(outcome));
        assert_eq!(world.machine.poll(), [], "`{id}` counted twice");
    }
}

/// The inputs that a journal would hold.
pub(super) fn outcomes(history: &[Input]) -> impl Iterator<Item = &Input> {
    history.iter().filter(|input| !matches!(input, Input::Poll))
}

fn completed(record: &Input) -> Option<&EffectId> {
    match record {
        Input::Complete(id, _) => Some(id),
        _ => None,
    }
}

impl Story {
    /// A run that is never cut, with its executed effects, sorted.
    pub(super) fn live(&self, cancel_at: Option<usize>) -> (World, Vec<EffectId>) {
        let mut world = World::new(&(self.case)());
        world.emit(Input::Poll);
        let mut executed = self.proceed(&mut world, cancel_at);
        executed.sort();
        assert!(executed.windows(2).all(|two| two[0] != two[1]), "{}: performed twice: {executed:?}", self.name);
        (world, executed)
    }

    /// The same plan in a world in which every effect succeeds.
    pub(super) const fn repaired(&self) -> Self {
        Self { name: self.name, case: self.case, says: &[("p/x", r#"answer {"n": 1}"#), ("p/a", "output [1,2,3]")] }
    }

    /// Executes running effects, abandoned ones first and then the oldest, until the run is over.
    pub(super) fn proceed(&self, world: &mut World, cancel_at: Option<usize>) -> Vec<EffectId> {
        let mut executed = Vec::new();
        loop {
            if cancel_at == Some(outcomes(&world.history).count()) {
                world.emit(Input::Cancel);
                world.emit(Input::Poll);
            }
            let given_up = world.running.iter().find(|(id, _)| world.given_up.contains(id));
            let Some((id, outcome)) = given_up.map(|(id, _)| (id.clone(), "abandoned".to_owned())).or_else(|| {
                world.running.iter().find_map(|(id, effect)| Some((id.clone(), self.outcome(id, effect)?)))
            }) else {
                break;
            };
            executed.push(id.clone());
            world.emit(Input::Complete(id, outcome));
            world.emit(Input::Poll);
        }
        assert!(world.machine.result().is_some(), "{} hangs; log:\n{}", self.name, world.log);
        executed
    }

    fn outcome(&self, id: &EffectId, effect: &Effect) -> Option<String> {
        match self.says.iter().find(|(said, _)| *said == id.as_str()) {
            Some((_, "hangs")) => None,
            Some((_, outcome)) => Some((*outcome).to_owned()),
            None if ends_by_itself(effect) || matches!(effect, Effect::Gate(_)) => Some(script::default(id, effect)),
            None => None,
        }
    }

    /// True if the business pipeline was reached: the constructor succeeded, or there is none.
    fn case_has_begun_business(&self, world: &World) -> bool {
        (self.case)().plan.before.is_none() || world.has_begun(Phase::Business)
    }
}

pub(super) const STORIES: &[Story] = &[
    Story {
        name: "sequence with constructor and destructor",
        case: || {
            pipeline([code("a"), code("b").timeout(9), code("c").when("{{a.output}}")])
                .before([code("open")])
                .after([code("close")])
        },
        says: &[],
    },
    Story {
        name: "business and destructor fail",
        case: || {
            pipeline([code("a"), code("b")])
                .before([code("open")])
                .after([code("close"), code("sweep")])
                .run_timeout(60)
        },
        says: &[("p/a", "exit 1 boom"), ("_d/close", "exit 2")],
    },
    Story {
        name: "constructor fails",
        case: || pipeline([code("a")]).before([code("open"), code("lock")]).after([code("close")]),
        says: &[("_c/lock", "signal SIGKILL")],
    },
    Story {
        name: "retries of a code step",
        case: || pipeline([code("a").retry(2).timeout(99), code("b").retry(1)]).after([code("close").retry(1)]),
        says: &[
            ("p/a", "exit 1"),
            ("p/a#2", "signal SIGSEGV"),
            ("p/b", "exit 1"),
            ("p/b#2", "exit 2"),
            ("_d/close", "exit 1"),
        ],
    },
    Story {
        name: "rejected answers",
        case: || {
            let n = llm("x", "How many?").schema(r#"{"required": ["n"]}"#).validate("check.py");
            pipeline([n.timeout(60), llm("y", "{{x.output.n}}")]).after([code("close")])
        },
        says: &[
            ("p/x", "answer none"),
            ("p/x#2", r#"answer {"n": 1}"#),
            ("p/x#2/validate", r#"exit 1 > {"valid": false, "errors": ["too small"]}"#),
            ("p/x#3", r#"answer {"n": 2}"#),
        ],
    },
    Story {
        name: "budget used up in a for_each that collects",
        case: || {
            let x = llm("x", "{{item}}").for_each("{{input.l}}").max_parallel(2).collect();
            pipeline([x, code("z")]).after([code("close")]).input(r#"{"l":[1,2,3,4,5]}"#).max_tokens(11)
        },
        says: &[],
    },
    Story {
        name: "group with all kinds of children",
        case: || {
            let sub = sequence("sub", [code("u"), group("h", [code("v"), llm("w", "Hi")])]);
            let children =
                [code("a").retry(1), llm("b", "Hi").cached(), approval("ok", "Ship?").timeout(60), call("s", sub)];
            pipeline([group("g", children).max_parallel(3), code("z")]).after([code("close")])
        },
        says: &[("p/g/a", "exit 1")],
    },
    Story {
        name: "group stops at a failure",
        case: || pipeline([group("g", [code("a"), code("b").retry(1), code("c"), code("d")])]).after([code("close")]),
        says: &[
            ("p/g/a", "hangs"),
            ("p/g/b", "exit 1"),
            ("p/g/b!backoff1", "hangs"),
            ("p/g/c", "exit 2"),
            ("p/g/d", "hangs"),
        ],
    },
    Story {
        name: "group waits after a failure",
        case: || {
            pipeline([group("g", [code("a"), code("b"), code("c")]).wait().max_parallel(2)]).after([code("close")])
        },
        says: &[("p/g/a", "exit 1"), ("p/g/b", "exit 2")],
    },
    Story {
        name: "for_each collects",
        case: || {
            let sub = sequence("sub", [code("u").retry(1), code("v").env("N", "{{input.n}}")]);
            let each = call("s", sub).with("n", "{{item}}").for_each("{{a.output}}").max_parallel(2).collect();
            pipeline([code("a"), each]).after([code("close")])
        },
        says: &[
            ("p/a", "output [1,2,3]"),
            ("p/s[0]/u", "exit 1"),
            ("p/s[1]/v", "exit 9"),
            ("p/s[2]/u", "signal SIGKILL"),
            ("p/s[2]/u#2", "exit 1"),
        ],
    },
    Story {
        name: "for_each stops",
        case: || {
            let each = code("e").for_each("{{input.l}}").max_parallel(2);
            pipeline([each, code("z")]).input(r#"{"l":[1,2,3,4]}"#).after([code("close")])
        },
        says: &[("p/e[0]", "hangs"), ("p/e[2]", "exit 1")],
    },
    Story {
        name: "group per element",
        case: || {
            let each = group("g", [code("a").env("I", "{{item}}"), approval("ok", "{{index}}?")]);
            pipeline([each.for_each("{{input.l}}").max_parallel(2).collect()])
                .input(r#"{"l":[1,2]}"#)
                .after([code("close")])
        },
        says: &[("p/g[1]/ok", "denied no")],
    },
    Story {
        name: "timeouts",
        case: || {
            let slow = group("g", [code("a"), code("b").timeout(5), call("s", sequence("sub", [code("u")]))]);
            pipeline([slow.wait().timeout(60)]).after([code("close").timeout(9)])
        },
        says: &[("p/g/b", "hangs"), ("p/g/b!timeout", "over"), ("p/g/s/u", "hangs"), ("p/g!timeout", "over")],
    },
    Story {
        name: "time budget",
        case: || pipeline([code("a"), code("b")]).before([code("open")]).after([code("close")]).run_timeout(60),
        says: &[("p/b", "hangs"), ("p!timeout", "over")],
    },
    Story {
        name: "cache",
        case: || pipeline([code("a").cached(), code("b").cached(), llm("x", "Hi").cached()]).after([code("close")]),
        says: &[("p/b!recall", "found 7")],
    },
    Story {
        name: "deviation after a write",
        case: || {
            let steps = [tool("t", "get", "1"), tool("b", "put", "{{t.output}}"), tool("c", "get", "2"), code("d")];
            pipeline(steps).before([code("open")]).after([code("close")]).run_timeout(60).fallback()
        },
        says: &[
            ("p/b", "held put(1)"),
            ("p/c", "fails gone"),
            ("p@skill/agent/turn1", r#"calls put {"id":"get-out"}; Write {"id":2}"#),
            ("p@skill/agent/turn1/Write[1]", "held Write(2)"),
            ("p@skill/agent/turn2", "calls Read 1"),
        ],
    },
    Story {
        name: "deviation in a group and in an element",
        case: || {
            let sub = sequence("sub", [tool("u", "get", "{{input.n}}")]);
            let each = call("s", sub).with("n", "{{item}}").for_each("{{a.output}}").max_parallel(2);
            let group = group("g", [tool("x", "put", "1"), code("y"), tool("z", "get", "2")]);
            pipeline([code("a"), group, each]).after([code("close")]).fallback()
        },
        says: &[("p/a", "output [1,2,3]"), ("p/s[1]/u", "fails gone"), ("p/s[0]/u", "hangs")],
    },
    Story {
        name: "agent that fails after a deviation",
        case: || pipeline([tool("t", "put", "1"), code("b").when("{{t.output.no}}")]).after([code("close")]).fallback(),
        says: &[("p@skill/agent/turn1", "calls Write 1"), ("p@skill/agent/turn2", "no_answer gone")],
    },
    Story {
        name: "pipeline that an agent calls",
        case: || {
            let steps = [tool("t", "get", "{{input.id}}"), tool("b", "put", "{{t.output}}"), tool("c", "get", "2")];
            pipeline([offering(skill("x", "go"), sequence("look", steps))]).after([code("close")]).run_timeout(60)
        },
        says: &[
            ("p/x/turn1", r#"calls Look {"id":1}; Look {}; Look {"id":2}"#),
            ("p/x/turn1/Look[0]/b", "held put(1)"),
            ("p/x/turn1/Look[2]/c", "fails gone"),
            ("p/x/turn2", r#"calls put {"id":"get-out"}"#),
        ],
    },
    Story {
        name: "approvals that no one answers",
        case: || {
            let ok =
                approval("ok", "{{item}}?").timeout(60).on_timeout(crate::plan::OnTimeout::Deny).continue_on_deny();
            pipeline([ok.for_each("{{input.l}}").max_parallel(2)]).input(r#"{"l":[1,2,3]}"#).after([code("close")])
        },
        says: &[("p/ok[1]", "hangs"), ("p/ok[2]", "hangs"), ("p/ok!timeout", "over")],
    },
];
