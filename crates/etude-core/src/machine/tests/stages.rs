//! Stage machines, tested with their interpreter alone (`b-stages`). The product's tests cover them through the binary.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::build::*;
use super::world::{Input, World};
use super::{Case, play};
use crate::effect::{Chunk, Effect, Inherits, Subject};
use crate::machine::{ABI, Machine, replays};
use crate::model::Tier;
use crate::placeholder::Body;
use crate::plan::stages::{
    Assert, Backoff, Drift, Exit, Gate, GateOutcome, GrantDecision, GrantRule, Grants, Guard, HookOrigins, Next,
    NextCase, NextRule, Policy, Resolution, Rule, Script, Setup, Slot, SlotForm, Stage, StageMachine,
};
use crate::plan::{Application, MachineCall, MachineInput, Origin, Plan, Step, StepKind};
use crate::report::Status;
use crate::tool::ToolCalling;

/// A script of this name.
fn script(name: &str) -> Script {
    Script { command: crate::effect::Command::Direct(vec![name.to_owned()]), timeout_ms: 1000 }
}

/// A stage `one` with the tool `Read`, the completion tool `done`, and a script for its setup.
fn stage() -> Stage {
    Stage {
        id: "one".to_owned(),
        name: "One".to_owned(),
        description: String::new(),
        tags: Vec::new(),
        allowed_tools: vec!["Read".to_owned()],
        completion_tool: "done".to_owned(),
        completion_schema: schema("completion", r#"{"type": "object"}"#),
        inputs_schema: None,
        max_attempts: 1,
        backoff: Backoff::default(),
        turn_cap: 5,
        resolution: Resolution::Fail,
        front: json!({}),
        body: Body::parse("Do it.").0,
        setup: Setup::Script(script("setup")),
        gate: Gate::Rules(Vec::new()),
        assert: Assert::Rules(Vec::new()),
        exit: Exit::Values { output: None, slot: Vec::new() },
        next: NextRule::Cases(vec![NextCase { when: Vec::new(), next: Next::Terminal }]),
        origin: Origin { file: "machines/m/stages/one.md".to_owned(), line: 2, column: 5 },
        hooks: HookOrigins::default(),
    }
}

/// A machine `m` with that stage and a slot of version 2.
pub(super) fn machine() -> StageMachine {
    StageMachine {
        id: "m".to_owned(),
        dir: "machines/m".to_owned(),
        tier: Tier::Standard,
        entry: "one".to_owned(),
        stages: vec![Arc::new(stage())],
        slot: Slot { version: "2".to_owned(), schema: schema("slot", "{}"), drift: Drift::Warn },
        requires: Vec::new(),
        grants: Grants::Rules(Vec::new()),
        guards: Vec::new(),
        on_failure: None,
        max_executions: 9,
        config: json("{}"),
        policy: Policy::default(),
        origin: Origin::default(),
    }
}

/// A step `x` that runs the machine.
pub(super) fn goes_through(machine: StageMachine) -> Step {
    let call = MachineCall { machine: Arc::new(machine), input: MachineInput::Same, is_stage: false, may_skip: false };
    Step { name: "x".to_owned(), kind: StepKind::Machine(Box::new(call)), ..code("x") }
}

/// The events of tool calls, in order.
fn reported_to_tools(world: &World) -> Vec<&str> {
    let events = world.log.lines().filter_map(|line| line.strip_prefix(super::log::EVENT));
    events.filter_map(|event| event.strip_prefix(" ToolInvocation")?.split(' ').next()).collect()
}

/// X-3: runs of the first interpreter are replayed if no tool is called: not by a skill, not in a machine, and not by a
/// step, whose calls of applications had another name.
#[test]
fn runs_of_the_first_interpreter_go_on_where_no_tool_is_called() {
    let application = Application { application: "a".to_owned(), command: "c".to_owned(), args: Vec::new() };
    let application = Step { kind: StepKind::Application(Box::new(application)), ..code("app") };
    let plain = || vec![code("a"), llm("b", "x"), approval("c", "may I?")];
    let plan = |more: Option<Step>| -> Plan { pipeline(plain().into_iter().chain(more)).plan };
    assert!(replays(1, &plan(None)) && replays(ABI, &plan(None)) && !replays(0, &plan(None)));
    for step in [skill("s", "go"), goes_through(machine()), application] {
        let name = step.name.clone();
        assert!(replays(ABI, &plan(Some(step.clone()))), "{name}");
        assert!(!replays(1, &plan(Some(step.clone()))), "{name}");
        assert!(!replays(1, &plan(Some(group("g", [step.clone()])))), "{name} in a group");
        assert!(!replays(1, &plan(Some(call("p", sequence("sub", [step]))))), "{name} in a pipeline");
    }
}

/// B-ST3: a machine that moves to another process before its first stage begins with the current form of its slot.
#[test]
fn a_machine_that_has_not_begun_takes_the_form_of_its_slot_again() {
    let mut case = pipeline([goes_through(machine())]);
    let form = SlotForm { version: "1".to_owned(), drift: "warn".to_owned(), script: None };
    case.start.slots = BTreeMap::from([("m".to_owned(), form)]);
    let done = r#"p/x/one#1/turn1 calls done {}"#;
    let ready = r#"p/x/probe calls report_ready {"ready":true}"#;
    for (before, version) in [
        (String::new(), "1"),
        ("reach p/x/tools\nresume".to_owned(), "2"),
        (format!("p/x/tools doubtful Read\nreach p/x/probe\nresume\n{ready}"), "2"),
    ] {
        let world = play(&case, &format!("{before}\n{done}"));
        let reported: serde_json::Value = serde_json::from_str(&world.stdin("p/x/one#1/setup")).unwrap();
        assert_eq!(reported["slot"], json!({"slotVersion": version, "data": {}}), "{before}");
        assert!(!world.log.contains("StateSlotDrift"), "{}", world.log);
    }
}

/// The `attempts` of a machine in the result document are the responses of models, including those of a probe and
/// rejected ones.
#[test]
fn attempts_of_a_machine_are_responses() {
    let turns = "p/x/one#1/turn1 calls Read 1\np/x/one#1/turn2 answer hm\np/x/one#1/turn3 calls done {}";
    for (probe, attempts) in [("", 3), ("p/x/tools doubtful Read\np/x/probe calls report_ready {\"ready\":true}\n", 4)]
    {
        let world = play(&pipeline([goes_through(machine())]), &format!("{probe}{turns}"));
        let row = world.machine.result().expect("a result").steps[0].clone();
        assert_eq!((row.attempts, row.usage.calls), (attempts, u64::from(attempts)), "{}", world.log);
    }
}

/// B-17, case 119: every event names the run, also the events of the session.
#[test]
fn every_event_of_a_machine_names_its_run() {
    let mut case = pipeline([goes_through(machine())]);
    let form = SlotForm { version: "1".to_owned(), drift: "warn".to_owned(), script: None };
    case.start.slots = BTreeMap::from([("m".to_owned(), form)]);
    let world = play(&case, "reach p/x/one#1/setup\nresume\np/x/one#1@2/turn1 calls done {}");
    let events: Vec<&str> = world.log.lines().filter_map(|line| line.strip_prefix(super::log::EVENT)).collect();
    let own: Vec<&&str> = events.iter().filter(|event| event.contains(" {")).collect();
    for name in ["SMAttached", "SessionPersisted", "SessionResumed", "StateSlotDrift", "StageExited"] {
        assert!(own.iter().any(|event| event.trim().starts_with(name)), "{name}: {}", world.log);
    }
    for event in own {
        assert!(event.contains(r#"{"sessionId":"r1","workflowRunId":"r1","#), "{event}");
    }
}

/// B-A11: a held call has begun, and gets an end event whether its question is answered in any way or never.
#[test]
fn a_held_call_of_a_stage_ends_in_the_audit() {
    let held = "p/x/one#1/turn1 calls Read {}\np/x/one#1/turn1/Read[0] held Read(a)";
    let asked = "p/x/one#1/turn1/Read[0]!ask";
    let done = r#"p/x/one#1/turn2 calls done {}"#;
    for (answer, end) in [
        (format!("{asked} approved\n{done}"), "Succeeded"),
        (format!("{asked} denied no\n{done}"), "Failed"),
        (format!("reach {asked}\ncancel"), "Cancelled"),
    ] {
        let world = play(&pipeline([goes_through(machine())]), &format!("{held}\n{answer}"));
        assert_eq!(reported_to_tools(&world), ["Proposed", "Started", end], "{answer}: {}", world.log);
    }
}

/// B-A11: of two held calls the second one waits for its turn, and ends with the first when the stage is cancelled.
#[test]
fn held_calls_that_wait_for_their_turn_end_as_well() {
    let script = "p/x/one#1/turn1 calls Read 1; Read 2\np/x/one#1/turn1/Read[0] held Read(a)\n\
        p/x/one#1/turn1/Read[1] held Read(b)\nreach p/x/one#1/turn1/Read[0]!ask\ncancel";
    let world = play(&pipeline([goes_through(machine())]), script);
    assert_eq!(
        reported_to_tools(&world),
        ["Proposed", "Proposed", "Started", "Started", "Cancelled", "Cancelled"],
        "{}",
        world.log
    );
}

/// B-CN4, B-CN5: the message about a model differs between too weak a claim and a failed probe.
#[test]
fn a_model_that_was_tried_is_distinguished_from_one_that_claims_too_little() {
    let script = "p/x/tools doubtful Read\np/x/probe answer I am ready.";
    let world = play(&pipeline([goes_through(machine())]), script);
    let tried = &world.machine.result().expect("a result").errors[0].message;
    assert!(
        tried.contains("`test/doubtful` was asked to call one and did not: choose another model, or set"),
        "{tried}"
    );
    let message = |claim| Machine::refused_model(&machine(), "m/x", claim).map(|failure| failure.message);
    assert_eq!((message(ToolCalling::Hard), message(ToolCalling::Probed)), (None, None));
    for claim in [ToolCalling::Preferred, ToolCalling::Absent] {
        let why = message(claim).expect("a refusal");
        assert!(why.ends_with(&format!("`m/x` does not: its `toolCalling` is `{}`", claim.word())), "{why}");
    }
    let demanding = StageMachine { requires: vec!["vision".to_owned()], ..machine() };
    let why = Machine::refused_model(&demanding, "m/x", ToolCalling::Hard).expect("a refusal").message;
    assert!(why.contains("`vision`"), "{why}");
}

/// B-ST3: the failure of a refused slot names the fix.
#[test]
fn a_refused_slot_says_what_to_do() {
    let refuses = StageMachine { slot: Slot { drift: Drift::Reject, ..machine().slot }, ..machine() };
    let plan = pipeline([goes_through(refuses)]).plan;
    let form = SlotForm { version: "1".to_owned(), drift: "reject".to_owned(), script: None };
    let why = Machine::refused_drift(&plan, &BTreeMap::from([("m".to_owned(), form)])).expect("a refusal").message;
    assert!(why.ends_with("put the slot back to 1, or set `drift` to `warn` or `migrate`"), "{why}");
}

/// B-ST3, X-4: a migration that died with its process is repeated under the same key.
#[test]
fn a_migration_that_is_begun_again_keeps_its_key() {
    let drift = Drift::Migrate(script("migrate"));
    let migrates = StageMachine { slot: Slot { drift, ..machine().slot }, ..machine() };
    let mut case = pipeline([goes_through(migrates)]);
    let form = SlotForm { version: "1".to_owned(), drift: "warn".to_owned(), script: None };
    case.start.slots = BTreeMap::from([("m".to_owned(), form)]);
    let made = r#"p/x/migrate3[0] output {"slotVersion":"2","data":{}}"#;
    let reported = format!(
        "reach p/x/one#1/setup\nresume\nreach p/x/migrate1[0]\nresume\nreach p/x/tools#3\nresume\n{made}\n\
         p/x/one#1@4/turn1 calls done {{}}"
    );
    let world = play(&case, &reported);
    let keys: Vec<&str> = world
        .started
        .iter()
        .filter_map(|(id, effect)| match effect {
            Effect::Process(call) if id.as_str().contains("/migrate") => Some(call.key.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(keys, ["p/x/migrate1[0]"; 2], "{}", world.log);
    assert!(world.machine.refused_slot().is_none());
}

/// B-ST3: a slot is refused only by a machine at work that keeps data in it, not before it begins or after it ends.
#[test]
fn only_a_machine_at_work_refuses_its_slot() {
    let refuses = StageMachine { slot: Slot { drift: Drift::Reject, ..machine().slot }, ..machine() };
    let mut case = pipeline([goes_through(refuses), approval("c", "may I?")]);
    let form = SlotForm { version: "1".to_owned(), drift: "reject".to_owned(), script: None };
    case.start.slots = BTreeMap::from([("m".to_owned(), form)]);
    let mut world = World::new(&case);
    assert_eq!(world.machine.refused_slot(), None, "nothing has begun");
    world.emit(Input::Poll);
    assert_eq!(world.machine.refused_slot(), None, "nothing is kept yet");
    world.reach("p/x/one#1/setup");
    let (machine, why) = world.machine.refused_slot().expect("a refusal");
    assert!(machine == "m" && why.message.contains("put the slot back to 1"), "{machine}: {}", why.message);
    world.run_effect(r#"p/x/one#1/turn1 calls done {}"#);
    assert_eq!(world.machine.refused_slot(), None, "it has ended: {}", world.log);
}

/// Plays a stage that proposes the same calls whenever it restarts, and completes once they have run. Each entry of
/// `asked` is the index of the call in question, and the answer. Returns the tools that ran.
fn proposed(case: &Case, calls: &str, asked: &[(usize, &str)]) -> Vec<String> {
    let path = |n: usize| if n == 0 { "p/x/one#1".to_owned() } else { format!("p/x/one#1@{}", n + 1) };
    let mut script = String::new();
    for (n, (at, answer)) in asked.iter().enumerate() {
        let turn = format!("{}/turn1", path(n));
        script.push_str(&format!("{turn} calls {calls}\n{turn}/unknown[{at}]!ask {answer}\n"));
    }
    let last = path(asked.len());
    let world = play(case, &format!("{script}{last}/turn1 calls {calls}\n{last}/turn2 calls done {{}}"));
    let succeeded = world.machine.result().is_some_and(|result| result.status == Status::Succeeded);
    assert!(succeeded, "{}", world.log);
    let ran = |effect: &Effect| match effect {
        Effect::Tool(call) => Some(format!("{} {}", call.name, call.arguments)),
        _ => None,
    };
    world.started.iter().filter_map(|(_, effect)| ran(effect)).collect()
}

/// B-GT4, B-0.1.1, B-0.1.5: when a call of a batch halts it, no call of the batch runs, and the answers about its other
/// calls are kept for the next batch: N calls are N questions, even if they are equal.
#[test]
fn a_batch_that_halts_uses_up_no_answer() {
    let case = pipeline([goes_through(machine())]);
    let (first, second, third) = ((0, "approved"), (1, "approved"), (2, "approved"));
    assert_eq!(proposed(&case, "Look 1; Write 2", &[first, second]), ["Look 1", "Write 2"]);
    let ran = proposed(&case, "Look 1; Look 2; Look 3", &[first, second, third]);
    assert_eq!(ran, ["Look 1", "Look 2", "Look 3"]);
    assert_eq!(proposed(&case, "Look 1; Look 1", &[first, second]), ["Look 1", "Look 1"]);
}

/// B-0.1.1, B-GT5: an answer covers the call with the digits that were shown, and no call whose numbers a tree would round
/// to the same double. A run of an earlier interpreter rounds them.
#[test]
fn an_answer_is_bound_to_all_digits() {
    let (one, other) = (r#"Look {"n":12345678901234567890123}"#, r#"Look {"n":12345678901234567890124}"#);
    let mut case = pipeline([goes_through(machine())]);
    let mut plays = |abi, last: &str| {
        case.start.abi = abi;
        let script = format!(
            "p/x/one#1/turn1 calls {one}\np/x/one#1/turn1/unknown[0]!ask approved\np/x/one#1@2/turn1 calls {other}\nreach {last}"
        );
        play(&case, &script)
    };
    let world = plays(ABI, "p/x/one#1@2/turn1/unknown[0]!ask");
    let asked: Vec<String> = world.started.iter().filter_map(|(_, effect)| shown_in(effect)).collect();
    assert_eq!(asked, [r#"{"n":"12345678901234567890123"}"#, r#"{"n":"12345678901234567890124"}"#]);
    let ran = |world: &World| world.started.iter().any(|(_, effect)| matches!(effect, Effect::Tool(_)));
    assert!(!ran(&world));
    assert!(ran(&plays(13, "p/x/one#1@2/turn2")));
}

/// The arguments that a question about a call shows.
fn shown_in(effect: &Effect) -> Option<String> {
    let Effect::Gate(crate::effect::Gate { subject: Subject::Other { payload, .. }, .. }) = effect else { return None };
    Some(payload.value().expect("a tree")["args"].to_string())
}

/// B-0.1.1: a denial is an answer as well, and stays with its call.
#[test]
fn a_batch_that_halts_uses_up_no_denial() {
    let case = pipeline([goes_through(machine())]);
    let answers = [(0, "denied no"), (1, "approved"), (2, "approved")];
    assert_eq!(proposed(&case, "Look 1; Look 1; Write 2", &answers), ["Look 1", "Write 2"]);
}

/// B-GT3, B-0.1.5: a rule that decides once is not used up by a batch that halted, but by one that ran.
#[test]
fn a_batch_that_halts_uses_up_no_rule() {
    let rule = GrantRule { stage: None, tool: "Look".to_owned(), decision: GrantDecision::Approve, times: Some(1) };
    let case = pipeline([goes_through(StageMachine { grants: Grants::Rules(vec![rule]), ..machine() })]);
    assert_eq!(proposed(&case, "Look 1; Write 2", &[(1, "approved")]), ["Look 1", "Write 2"]);
    let answers = [(1, "approved"), (2, "approved")];
    assert_eq!(proposed(&case, "Look 1; Look 2; Write 3", &answers), ["Look 1", "Look 2", "Write 3"]);
}

/// B-GT4: a batch that runs uses up its permissions, even if a guard refuses the call.
#[test]
fn a_batch_that_runs_uses_up_its_answers() {
    let guard = Guard { script: script("guard"), dir: "machines/m".to_owned() };
    let case = pipeline([goes_through(StageMachine { guards: vec![guard], ..machine() })]);
    let world = play(
        &case,
        r"p/x/one#1/turn1 calls Look 1
        p/x/one#1/turn1/unknown[0]!ask approved
        p/x/one#1@2/turn1 calls Look 1
        p/x/one#1@2/turn2 calls Look 1
        reach p/x/one#1@2/turn2/unknown[0]!ask",
    );
    assert!(!world.started.iter().any(|(_, effect)| matches!(effect, Effect::Tool(_))), "{}", world.log);
}

/// B-0.1.1, B-ST6: if a process dies while a guard judges a call, the answer about the call is kept for the restarted
/// stage.
#[test]
fn an_answer_outlives_the_process_that_decides_by_it() {
    let guard = Guard { script: script("guard"), dir: "machines/m".to_owned() };
    let case = pipeline([goes_through(StageMachine { guards: vec![guard], ..machine() })]);
    let world = play(
        &case,
        r#"p/x/one#1/turn1 calls Look 1
        p/x/one#1/turn1/unknown[0]!ask approved
        p/x/one#1@2/turn1 calls Look 1
        reach p/x/one#1@2/turn1/unknown[0]/guard1
        resume
        p/x/one#1@3/turn1 calls Look 1
        p/x/one#1@3/turn1/unknown[0]/guard1 output {"decision":"allow"}
        p/x/one#1@3/turn2 calls done {}"#,
    );
    let succeeded = world.machine.result().is_some_and(|result| result.status == Status::Succeeded);
    assert!(succeeded && world.started.iter().any(|(_, effect)| matches!(effect, Effect::Tool(_))), "{}", world.log);
}

/// B-G5: the question whether to run although the gate is not open is asked once per execution, whatever restarts it
/// later: a question about a call, or the end of the process. A run of an earlier interpreter asks after each restart.
#[test]
fn an_answer_to_the_gate_holds_as_long_as_the_execution() {
    let gate =
        Gate::Rules(vec![Rule { when: Vec::new(), then: GateOutcome::Defer, reason: Some("closed".to_owned()) }]);
    let one = Stage { gate, resolution: Resolution::Ask, ..stage() };
    let mut case = pipeline([goes_through(StageMachine { stages: vec![Arc::new(one)], ..machine() })]);
    let asked = |case: &Case, script: &str| {
        let world = play(case, script);
        world.started.iter().filter(|(id, _)| id.as_str().ends_with("!confirm")).count()
    };
    let again = "p/x/one#1@3/turn1 calls Look 1\n p/x/one#1@3/turn2 calls done {}";
    let call =
        "p/x/one#1!confirm approved\n p/x/one#1@2/turn1 calls Look 1\n p/x/one#1@2/turn1/unknown[0]!ask approved\n";
    assert_eq!(asked(&case, &format!("{call}{again}")), 1);
    let died = "p/x/one#1!confirm approved\n reach p/x/one#1@2/turn1\n resume\n p/x/one#1@3/turn1 calls done {}";
    assert_eq!(asked(&case, died), 1);
    case.start.abi = 9;
    assert_eq!(
        asked(
            &case,
            &format!(
                "{call}p/x/one#1@3!confirm approved\n p/x/one#1@4/turn1 calls Look 1\n p/x/one#1@4/turn2 calls done {{}}"
            )
        ),
        2
    );
}

/// B-N4: a script that prints a `join` without `parallel` causes a warning, as a definition does.
#[test]
fn a_join_of_a_script_without_parallel_is_warned_of() {
    let one = Stage { next: NextRule::Script(script("next")), setup: Setup::Set(Vec::new()), ..stage() };
    let mut case = pipeline([goes_through(StageMachine { stages: vec![Arc::new(one)], ..machine() })]);
    let warns = |case: &Case, answer: &str| {
        let world = play(case, &format!("p/x/one#1/turn1 calls done {{}}\n p/x/one#1/next output {answer}"));
        world.log.contains("`join` has no effect without `parallel`")
    };
    let idle = r#"{"execution":"sequential","nextStages":[],"join":"one"}"#;
    assert!(warns(&case, idle) && warns(&case, r#"{"execution":"terminate","join":"one"}"#));
    assert!(!warns(&case, r#"{"execution":"terminate","join":null}"#));
    case.start.abi = 9;
    assert!(!warns(&case, idle), "a run of an earlier interpreter goes on as it was");
}

/// B-20.4: all scripts of a machine inherit only the basics; steps of pipelines inherit as before.
#[test]
fn scripts_of_a_machine_inherit_the_basics() {
    let guard = Guard { script: script("guard"), dir: "machines/m".to_owned() };
    let scripted = StageMachine {
        grants: Grants::Script(script("grant")),
        guards: vec![guard],
        stages: vec![Arc::new(Stage { assert: Assert::Validate(script("validate")), ..stage() })],
        ..machine()
    };
    let turns = "p/x/one#1/turn1 calls Read 1; Look 1\np/x/one#1/turn2 calls done {}";
    let world = play(&pipeline([code("a"), goes_through(scripted)]), turns);
    let mut scripts = Vec::new();
    for (id, effect) in &world.started {
        if let Effect::Process(call) = effect {
            scripts.push(id.as_str());
            let expected = if id.as_str() == "p/a" { Inherits::All } else { Inherits::Basics };
            assert_eq!(call.setting.inherits, expected, "{id}");
        }
    }
    assert_eq!(scripts.len(), 5, "{scripts:?}");
}

/// B-GT5, B-H1: grant scripts, guards and hooks read the arguments with all digits, as the tool gets them. In a run of an
/// earlier interpreter they read rounded numbers.
#[test]
fn scripts_judge_all_digits() {
    let scripted = StageMachine {
        grants: Grants::Script(script("grant")),
        guards: vec![Guard { script: script("guard"), dir: "machines/m".to_owned() }],
        stages: vec![Arc::new(Stage { assert: Assert::Validate(script("validate")), ..stage() })],
        ..machine()
    };
    let mut case = pipeline([goes_through(scripted)]);
    let id = "12345678901234567890123";
    let turns = format!(
        r#"p/x/one#1/turn1 calls Look {{"id":{id}}}
        p/x/one#1/turn1/unknown[0]/grant output {{"decision":"approve"}}
        p/x/one#1/turn1/unknown[0]/guard1 output {{"decision":"allow"}}
        p/x/one#1/turn2 calls done {{}}"#
    );
    for (abi, expected) in [(ABI, format!(r#""args":{{"id":{id}}}"#)), (13, r#""args":{"id":1.23"#.to_owned())] {
        case.start.abi = abi;
        let world = play(&case, &turns);
        let stdin = |name: &str| {
            let found = world.started.iter().find_map(|(id, effect)| match effect {
                Effect::Process(call) if id.as_str().ends_with(name) => call.stdin.0.first().cloned(),
                _ => None,
            });
            let Some(Chunk::Text(text)) = found else { panic!("{name} {}", world.log) };
            text
        };
        for name in ["/grant", "/guard1", "/assert"] {
            assert!(stdin(name).contains(&expected), "{name} {abi}: {}", stdin(name));
        }
    }
}

/// B-R2: an unknown verdict of a script is refused with a list of the four words.
#[test]
fn a_judge_is_shown_all_words() {
    let judged = Stage { assert: Assert::Script(script("judge")), ..stage() };
    let case = pipeline([goes_through(StageMachine { stages: vec![Arc::new(judged)], ..machine() })]);
    let turns = "p/x/one#1/turn1 calls done {}\np/x/one#1/assert output {\"verdict\":\"maybe\"}";
    let message = play(&case, turns).machine.result().expect("a result").errors[0].message.clone();
    assert!(
        message.ends_with(r#"printed "maybe" as `verdict`; it must be `ok`, `retry`, `fail` or `skip`"#),
        "{message}"
    );
}

/// X-3: a run of an earlier interpreter asks again about the calls of a halted batch, as it did.
#[test]
fn runs_of_earlier_interpreters_ask_as_they_did() {
    let mut case = pipeline([goes_through(machine())]);
    assert!(replays(5, &case.plan));
    case.start.abi = 5;
    let answers = [(0, "approved"), (1, "approved"), (0, "approved")];
    assert_eq!(proposed(&case, "Look 1; Write 2", &answers), ["Look 1", "Write 2"]);
}

/// B-ID2, B-ID3: machines of one run have different ids of executions: those of two steps, and of two elements. The id
/// of the machine that the run is for does not name its place. In runs of earlier versions no id does.
#[test]
fn machines_of_one_run_have_their_own_ids() {
    let ids = |case: &Case, places: &[&str]| -> Vec<String> {
        let turns = places.iter().map(|place| format!("{place}/one#1/turn1 calls done {{}}\n"));
        let world = play(case, &turns.collect::<String>());
        let result = world.machine.result().expect("a result");
        assert_eq!(result.status, Status::Succeeded, "{}", world.log);
        result.stages.rows.iter().map(|row| row.stage_execution_id.clone()).collect()
    };
    let run = |id: &str| format!("r1/{id}");
    let step = |name: &str| Step { name: name.to_owned(), ..goes_through(machine()) };
    let mut case = pipeline([step("x").for_each("{{input.list}}"), step("y")]).input(r#"{"list": [1, 2]}"#);
    let places = ["p/x[0]", "p/x[1]", "p/y"];
    assert_eq!(ids(&case, &places), places.map(|place| run(&format!("{place}/one#1"))));
    case.start.abi = 11;
    assert_eq!(ids(&case, &places), [run("one#1"), run("one#1"), run("one#1")]);
    let mut target = pipeline([step("m")]);
    target.plan.body = Arc::new(sequence("m", [step("m")]));
    assert_eq!(ids(&target, &["m/m"]), [run("one#1")]);
}

/// A machine whose first stage opens a fan-out of `a` and `b`, both with this setup.
fn forking(setup: impl Fn() -> Setup) -> StageMachine {
    let sibling = |id: &str| Arc::new(Stage { id: id.to_owned(), setup: setup(), ..stage() });
    let next = Next::Parallel { siblings: vec!["a".to_owned(), "b".to_owned()], join: None };
    let next = NextRule::Cases(vec![NextCase { when: Vec::new(), next }]);
    let fork = Arc::new(Stage { next, setup: Setup::Set(Vec::new()), ..stage() });
    StageMachine { stages: vec![fork, sibling("a"), sibling("b")], ..machine() }
}

/// B-P12, B-P9: of two siblings that fail in the same instant the first of the list is named, whichever is recorded
/// first; one that was stopped before its failure is not. Runs of earlier versions name the one that was recorded
/// first.
#[test]
fn of_two_failures_the_first_of_the_list_is_named() {
    let named = |case: &Case, script: &str| -> (String, Vec<&'static str>) {
        let world = play(case, &format!("p/x/one#1/turn1 calls done {{}}\nreach p/x/b#1/{script}"));
        let result = world.machine.result().expect("a result");
        let details = result.errors[0].details.as_ref().expect("details").value().expect("a value");
        let rows = result.stages.rows.iter().map(|row| row.status.word()).collect();
        (details["context"]["failedSiblingId"].as_str().unwrap_or_default().to_owned(), rows)
    };
    let says = |name: &str, rows: [&'static str; 2]| (name.to_owned(), [&["completed"], &rows[..]].concat());
    for (setup, effect, fails) in [
        ((|| Setup::Set(Vec::new())) as fn() -> Setup, "turn1", "no_answer HTTP 503"),
        (|| Setup::Script(script("setup")), "setup", "exit 1"),
    ] {
        let mut case = pipeline([goes_through(forking(setup))]);
        let [a, b] = ["a", "b"].map(|stage| format!("p/x/{stage}#1/{effect} {fails}"));
        let both = format!("{effect}\n{b}\n{a}");
        assert_eq!(named(&case, &both), says("a", ["failed", "failed"]));
        assert_eq!(named(&case, &format!("{effect}\npause\n{b}\n{a}\ngo_on")), says("a", ["failed", "failed"]));
        assert_eq!(named(&case, &format!("{effect}\n{a}\n{b}")), says("a", ["failed", "failed"]));
        let stopped = format!("{effect}\n{b}\np/x/a#1/{effect} abandoned");
        assert_eq!(named(&case, &stopped), says("b", ["cancelled", "failed"]));
        case.start.abi = 10;
        assert_eq!(named(&case, &both), says("b", ["cancelled", "failed"]));
    }
}

/// B-P12: the secret scans of a prompt take no time of their own. Of siblings whose gates are closed the first of the
/// list is named, whichever scan is recorded first; no script and no question begins for it. A stop of the run does not
/// wait for scans (B-P11).
#[test]
fn a_sibling_that_is_looked_through_fails_in_the_same_instant() {
    let gate = |at: usize| {
        Gate::Rules(vec![Rule { when: Vec::new(), then: GateOutcome::Block, reason: Some(format!("closed {at}")) }])
    };
    let case = |resolution: Resolution, a: fn(Stage) -> Stage| {
        let mut machine = forking(|| Setup::Set(Vec::new()));
        for (at, change) in [(1, a), (2, (|stage| stage) as fn(Stage) -> Stage)] {
            let sibling = Stage { gate: gate(at), resolution, ..(*machine.stages[at]).clone() };
            machine.stages[at] = Arc::new(change(sibling));
        }
        pipeline([goes_through(machine)])
    };
    let named = |case: &Case, then: &str| -> (String, Vec<&'static str>) {
        let world = play(case, &format!("p/x/one#1/turn1 calls done {{}}\n{then}"));
        let result = world.machine.result().expect("a result");
        let details = result.errors[0].details.as_ref().expect("details").value().expect("a value");
        let rows = result.stages.rows.iter().map(|row| row.status.word()).collect();
        assert!(!world.log.contains("!confirm") && !world.log.contains("#1/exit"), "{}", world.log);
        if let Some(last) = &result.stages.last {
            assert_eq!(
                last.value().expect("a value")["reason"],
                details["context"]["cause"]["reason"],
                "of the one that is named"
            );
        }
        (details["context"]["failedSiblingId"].as_str().unwrap_or_default().to_owned(), rows)
    };
    let says = |name: &str, rows: [&'static str; 2]| (name.to_owned(), [&["completed"], &rows[..]].concat());
    let scans = |stage: &str, parts: &[u8]| -> String {
        parts.iter().map(|part| format!("p/x/{stage}#1!scan{part} clean\n")).collect()
    };
    let same: fn(Stage) -> Stage = |stage| stage;
    // Scans of the first sibling after the other has failed: both parts, or the second of two.
    for parts in [&[1, 2][..], &[2]] {
        let before = if parts.len() == 1 { scans("a", &[1]) } else { String::new() };
        let both = format!("{before}{}{}", scans("b", &[1, 2]), scans("a", parts));
        for (resolution, ends) in
            [(Resolution::Fail, "completed"), (Resolution::Skip, "completed"), (Resolution::RetryLater, "parked")]
        {
            assert_eq!(named(&case(resolution, same), &both), says("a", [ends, ends]), "{resolution:?}");
        }
        let in_order = format!("{before}{}{}", scans("a", parts), scans("b", &[1, 2]));
        assert_eq!(named(&case(Resolution::Fail, same), &in_order), says("a", ["completed", "completed"]));
        let mut earlier = case(Resolution::Fail, same);
        earlier.start.abi = 10;
        let stopped = format!("{before}{}", scans("b", &[1, 2]));
        assert_eq!(named(&earlier, &stopped), says("b", ["cancelled", "completed"]));
        // Work that would begin an effect is cancelled instead.
        for begins in [
            (|stage| Stage { gate: Gate::Rules(Vec::new()), ..stage }) as fn(Stage) -> Stage,
            |stage| Stage { gate: Gate::Script(script("gate")), ..stage },
            |stage| Stage { exit: Exit::Script(script("exit")), ..stage },
            |stage| Stage { resolution: Resolution::Ask, ..stage },
        ] {
            assert_eq!(named(&case(Resolution::Fail, begins), &both), says("b", ["cancelled", "completed"]));
        }
    }
    let stopped = format!("p/x/one#1/turn1 calls done {{}}\n{}cancel\np/x/a#1!scan1 abandoned", scans("b", &[1, 2]));
    let world = play(&case(Resolution::Fail, same), &stopped);
    let result = world.machine.result().expect("a result");
    assert_eq!(result.status.word(), "cancelled", "{}", world.log);
    assert!(world.log.contains("abandon p/x/a#1!scan1"), "{}", world.log);
}

/// X-1, B-18: the failure of a machine that runs per element keeps its class and code, and names the element.
#[test]
fn a_machine_of_an_element_fails_with_its_own_facts() {
    let error = |abi: u32| {
        let mut case = pipeline([goes_through(machine()).for_each("{{input.l}}")]).input(r#"{"l": [1]}"#);
        case.start.abi = abi;
        let world = play(&case, "p/x[0]/one#1/setup exit 1 boom");
        crate::report::error_json(&world.machine.result().expect("a result").errors[0])
    };
    let now = error(ABI);
    assert_eq!(now["class"], "ExtensionHost", "{now}");
    assert_eq!((&now["code"], &now["stage"]), (&json!("LifecycleFailure"), &json!("one")), "{now}");
    assert_eq!(now["details"], json!({"item": 0}), "{now}");
    let before = error(12);
    assert_eq!((&before["class"], &before["details"]), (&json!(null), &json!({"item": 0})), "{before}");
}

/// B-R3, B-A14: a stage that fails at its turn limit names the faults of the last call of its completion tool, at the place
/// of the stage. A run of an earlier interpreter keeps its text.
#[test]
fn a_stage_names_the_faults_of_its_last_completion() {
    let number =
        schema("completion", r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#);
    let stage = Stage { turn_cap: 2, max_attempts: 2, completion_schema: number, ..stage() };
    let mut case = pipeline([goes_through(StageMachine { stages: vec![Arc::new(stage)], ..machine() })]);
    let turns = "p/x/one#1/turn1 calls done {}\np/x/one#1/turn2 calls done {\"n\":\"x\"}\n\
                 p/x/one#1/turn3 calls done {\"n\":\"y\"}\np/x/one#1/turn4 calls done {\"n\":\"z\"}";
    let ended = |case: &Case| {
        let world = play(case, turns);
        let failure = world.machine.result().expect("a result").errors[0].clone();
        (failure.message, failure.origin.map(|origin| origin.line))
    };
    let (message, line) = ended(&case);
    assert_eq!(
        message,
        "stage `one` failed: `done` was not called correctly in 2 turns: the arguments of `done` do not fit its schema: /n: \"z\" is not of type \"integer\""
    );
    assert_eq!(line, Some(2));
    case.start.abi = 14;
    assert_eq!(ended(&case).0, "stage `one` failed: `done` was not called in time");
}
