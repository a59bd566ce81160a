//! Stage machines through the binary, with a scripted model: grants, guards, gates, fan-out, crashes, capability.

mod act;
mod case;
mod entry;
mod judged;
mod loading;
mod prompts;
mod protocol;
mod resumes;
mod tools;
mod transitions;

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Seen, Server};
use crate::test::{IN_HOOKS, Test};

/// The calling stage: prompts begin with `STAGE-<id>`.
pub(crate) fn stage_of(seen: &Seen) -> String {
    let system = seen.system();
    system.split("STAGE-").nth(1).and_then(|rest| rest.split('.').next()).unwrap_or_default().to_owned()
}

fn done(stage: &str) -> Reply {
    Reply::call(&format!("submit_{stage}"), json!({"summary": stage}))
}

fn stage(test: Test, id: &str, more: &str) -> Test {
    let text = format!(
        "---\nid: {id}\nname: {id}\nallowedTools: [look]\ncompletionTool: submit_{id}\ncompletionSchema: {{type: object, required: [summary]}}\nretryPolicy: {{maxAttempts: 2, backoff: none}}\nturnCap: 4\nresolutionPolicy: {}\n---\nSTAGE-{id}. Task: {{{{ctx.task}}}}\n",
        if more.is_empty() { "retry-later" } else { more }
    );
    test.file(&format!("machines/m/stages/{id}.md"), &text)
}

/// A machine `m` with the given `pipeline`; `extra` are further top-level keys.
fn machine(stages: &[&str], pipeline: &str, extra: &str) -> Test {
    let tool = |test: Test, name: &str| {
        test.file(
            &format!("tools/{name}.yaml"),
            &format!("name: {name}\ndescription: The tool {name}.\ncommand: sh tools/{name}.sh\n"),
        )
        .file(
            &format!("tools/{name}.sh"),
            &format!("cat > /dev/null\necho {name} >> \"$LEDGER\"\necho '{{\"ok\":true,\"value\":\"{name}-out\"}}'\n"),
        )
    };
    let test = tool(tool(Test::new(), "look"), "zap");
    let test = test.file(
        "machines/m/machine.yaml",
        &format!("kind: StateMachine\nid: m\nentryStage: {}\nstateSlot: {{slotVersion: \"1.0.0\", schema: {{type: object}}}}\n{extra}pipeline:\n{pipeline}\n", stages[0]),
    );
    stages.iter().fold(test, |test, id| stage(test, id, ""))
}

fn events(ran: &Ran, name: &str) -> Vec<Value> {
    let lines = ran.lines();
    lines.into_iter().filter(|line| line["event"] == name).map(|line| line["payload"].clone()).collect()
}

const RUN: [&str; 5] = ["machine", "run", "m", "--format", "jsonl"];
const TASK: &str = "  plan: {setup: {set: {task: T1}}}";

/// B-H1, B-H4, case 92: a guard of the configuration sees calls of tools and may deny them; it never sees a completion.
#[test]
fn guards_see_calls_and_never_completions() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::call("look", json!({"p": 1})),
        _ => done("plan"),
    });
    let test = machine(&["plan"], TASK, "")
        .model_claiming(&server, "hard")
        .file("etude.yaml", "guards: [{command: sh guard.sh}]\n")
        .file(
            "guard.sh",
            &format!("{IN_HOOKS}cat >> \"$ROOT/guard.json\"\necho '{{\"decision\":\"deny\",\"code\":\"NotNow\",\"reason\":\"late\"}}'\n"),
        );
    let ran = test.run(&RUN).exit(0);
    let seen: Value = serde_json::from_str(&test.read("guard.json")).expect("one call");
    assert_eq!(seen["payload"], json!({"toolId": "look", "args": {"p": 1}, "decision": "approve"}));
    assert_eq!(events(&ran, "HookGuardDenied")[0]["code"], "NotNow");
    assert_eq!(events(&ran, "Approval")[0]["source"], "guard");
    assert_eq!(test.ledger(), Vec::<String>::new());
}

/// B-ST6, B-ID2, case 121: killed inside a stage: finished stages are not repeated, the other begins at Setup with the same id
/// and an empty conversation.
#[test]
fn a_stage_whose_process_is_killed_restarts() {
    let server = Server::by(|seen, _| match (stage_of(seen).as_str(), seen.turn()) {
        ("build", 0) => Reply::call("look", json!({})),
        (stage, _) => done(stage),
    });
    let pipeline = "  plan: {setup: {set: {task: T1}}, next: [{else: true, sequential: [build]}]}\n  build: {setup: {script: sh scripts/setup.sh}}";
    let test = machine(&["plan", "build"], pipeline, "").model_claiming(&server, "hard")
        .file("machines/m/scripts/setup.sh", &format!("{IN_HOOKS}cat >> \"$ROOT/setups.jsonl\"\necho >> \"$ROOT/setups.jsonl\"\n"))
        .file("tools/look.sh", "cat > /dev/null\necho look >> \"$LEDGER\"\n[ -e \"$ROOT/second\" ] || sleep 60\necho '{\"ok\":true,\"value\":1}'\n");
    let running = test.start(&RUN);
    test.wait_for("look");
    running.kill();
    test.put("second", "");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    let ran = test.run(&["runs", "resume", &id, "--format", "jsonl"]).exit(0);
    let setups: Vec<Value> =
        test.read("setups.jsonl").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(setups.len(), 2);
    assert_eq!(setups[0]["run"]["stageExecutionId"], setups[1]["run"]["stageExecutionId"]);
    let asked: Vec<(String, usize)> = server.seen().iter().map(|seen| (stage_of(seen), seen.turn())).collect();
    assert_eq!(asked, [("plan", 0), ("build", 0), ("build", 0), ("build", 1)].map(|(s, t)| (s.to_owned(), t)));
    assert_eq!(events(&ran, "SMAttached")[0]["resumed"], true);
    let rows = ran.lines().pop().expect("a document")["stages"].as_array().expect("rows").len();
    assert_eq!(rows, 2, "one row an execution, also after a resume");
}

/// B-CN4, B-CN5, cases 127 and 128: a model that does not guarantee tool calls is refused before the first stage; one that may
/// support them is tried once.
#[test]
fn a_model_without_tool_calls_is_refused_and_a_doubtful_one_is_tried() {
    let server = Server::by(|_, _| done("plan"));
    let test = machine(&["plan"], TASK, "").model_claiming(&server, "absent");
    let ran = test.run(&["machine", "run", "m", "--format", "json"]).exit(4);
    assert_eq!(
        (ran.at("/errors/0/code"), ran.at("/errors/0/context/capability")),
        (json!("MissingCapability"), json!("toolCalling"))
    );
    assert_eq!(server.calls(), 0);
    test.run(&["check"]).exit(0).stderr_has("warning[P0217]").stderr_has("its `toolCalling` is `absent`");
    let test =
        test.user_config("model_mapping: {lite: recorded/x}\nproviders: {recorded: {kind: recorded, path: r.json}}\n");
    test.run(&["check"])
        .exit(0)
        .stderr_has("machine `m` needs a model of the tier `standard`, and `model_mapping` has none");
    let able = Server::by(|seen, _| match seen.tools().first().map(String::as_str) {
        Some("report_ready") => Reply::call("report_ready", json!({"ready": true})),
        _ => done("plan"),
    });
    let test = machine(&["plan"], TASK, "").model_claiming(&able, "probed");
    test.run(&["machine", "run", "m", "--format", "json"]).exit(0);
    test.run(&["machine", "run", "m", "--format", "json"]).exit(0);
    assert_eq!(able.calls(), 3, "one probe, and one answer a run");
    let unable = Server::by(|_, _| Reply::says("I am ready."));
    let test = machine(&["plan"], TASK, "").model_claiming(&unable, "probed");
    test.run(&["machine", "run", "m", "--format", "json"]).exit(4);
}

/// B-K2, B-K3, case 132: a cancelled stage runs no exit, and its tool's whole process group is gone.
#[test]
fn a_cancelled_stage_runs_no_exit() {
    let server = Server::by(|_, _| Reply::call("look", json!({})));
    let pipeline = "  plan: {setup: {set: {task: T1}}, exit: {script: sh scripts/exit.sh}}";
    let test = machine(&["plan"], pipeline, "")
        .model_claiming(&server, "hard")
        .file("machines/m/scripts/exit.sh", "echo exit >> \"$LEDGER\"\n")
        .file("tools/look.sh", "cat > /dev/null\necho look >> \"$LEDGER\"\nsleep 60\n");
    let running = test.start(&RUN);
    test.wait_for("look");
    running.interrupt();
    let ran = running.finish().exit(130);
    let document = ran.lines().pop().expect("a document");
    assert_eq!((&document["status"], &document["errors"][0]["code"]), (&json!("cancelled"), &json!("TurnCancelled")));
    assert_eq!((&document["stages"][0]["status"], test.ledger()), (&json!("cancelled"), vec!["look".to_owned()]));
    let closed = events(&ran, "StagePostFired");
    assert_eq!(closed.last().expect("phases")["phase"], "Act");
}

/// a stage and a machine as steps; a verdict other than `ok` fails the step.
#[test]
fn stages_and_machines_are_steps_of_pipelines() {
    let server = Server::by(|seen, _| done(&stage_of(seen)));
    let test = machine(&["plan"], "  plan: {setup: {set: {task: {from: input.task}}}}", "input: {task: string}\n")
        .model_claiming(&server, "hard");
    let alone = test.read("app/machines/m/stages/plan.md").replace("plan", "alone");
    let test = test.file("pipelines/p/stages/alone.md", &alone).yaml(
        "p",
        "name: p\ndescription: Steps of stages\nsteps:\n- {name: one, type: stage, stage: stages/alone.md, input: {task: first}}\n- {name: two, type: machine, machine: m, input: {task: \"{{one.output.parsed.summary}}\"}}\n",
    );
    let ran = test.run_json("p").exit(0);
    assert_eq!(ran.at("/output/parsed/summary"), json!("plan"));
    assert!(server.seen()[0].system().contains("Task: first") && server.seen()[1].system().contains("Task: alone"));
    let test = test.file("machines/m/machine.yaml", "id: m\nentryStage: plan\nstateSlot: {slotVersion: \"1.0.0\", schema: {}}\npipeline: {plan: {assert: {rules: [{verdict: fail, reason: no}]}}}\n");
    let ran = test.run_json("p").exit(1);
    assert_eq!((ran.at("/errors/0/kind"), ran.at("/errors/0/step")), (json!("stage_failed"), json!("two")));
}

/// A run of a pipeline that waits in its machine, whose slot has data, or behind it.
fn waits(behind: &str) -> (Test, Server, String) {
    let server = Server::by(|seen, _| done(&stage_of(seen)));
    let pipeline = "  plan: {setup: {set: {task: T1}}, exit: {slot: {n: 1}}, next: [{else: true, sequential: [build]}]}\n  \
                    build: {gate: {script: sh scripts/gate.sh}}";
    let gate = "ROOT=$XDG_TEST_ROOT\ncat >/dev/null\n[ -e \"$ROOT/go\" ] && echo '{\"outcome\":\"proceed\"}' || echo '{\"outcome\":\"defer\",\"reason\":\"later\"}'\n";
    let test = machine(&["plan", "build"], pipeline, "")
        .model_claiming(&server, "hard")
        .file("machines/m/scripts/gate.sh", gate);
    let test = test.pipeline("p", |p| {
        let p = p.note("one", "1").step("name: two\ntype: machine\nmachine: m");
        if behind.is_empty() { p.note("three", "3") } else { p.step(behind) }
    });
    if !behind.is_empty() {
        test.put("go", "");
    }
    let id = test.run_json("p").exit(5).id();
    test.put("go", "");
    (test, server, id)
}

/// Gives the machine another slot.
fn drifts(test: &Test, from: &str, to: &str) {
    let path = "app/machines/m/machine.yaml";
    let text = test.read(path);
    assert!(text.contains(from), "{text}");
    test.put(path, &text.replace(from, to));
}

const OLD: &str = "slotVersion: \"1.0.0\", schema: {type: object}";
const REJECTS: &str = "slotVersion: \"2.0.0\", schema: {type: object}, drift: reject";

/// B-ST3, X-3: a machine step that rejects a slot of another version does not change its run, like a machine that runs by
/// itself.
#[test]
fn a_rejected_slot_of_a_step_leaves_the_run_as_it_was() {
    let (test, server, id) = waits("");
    let asked = server.calls();
    drifts(&test, OLD, REJECTS);
    for more in [&[][..], &["--accept-changes"]] {
        let args = [&["runs", "resume", &id, "--format", "json"], more].concat();
        let refused = test.run(&args).exit(1).stderr_has("the run is unchanged");
        assert_eq!((refused.at("/errors/0/code"), refused.at("/pipeline")), ("SlotDriftRejected".into(), "p".into()));
    }
    assert_eq!((server.calls(), test.ledger()), (asked, vec!["one".to_owned()]));
    test.run(&["runs", "list", "--format", "json"]).exit(0).has("/runs/0/status", "waiting");
    drifts(&test, REJECTS, OLD);
    test.run(&["runs", "resume", &id, "--format", "json"]).output(3);
    assert_eq!(test.ledger(), ["one", "three"]);
}

/// B-ST3: the slot of a finished machine does not concern the steps after it.
#[test]
fn a_slot_of_a_step_that_is_over_is_not_rejected() {
    let (test, _server, id) = waits("name: gate\ntype: approval\nmessage: go on?");
    drifts(&test, OLD, REJECTS);
    let waiting = test.run(&["runs", "resume", &id, "--format", "json"]).exit(5);
    let gate: Value = serde_json::from_slice(&waiting.raw).expect("a document");
    test.run(&["approve", gate["waiting"][0]["id"].as_str().expect("a gate")]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(0).has("/status", "succeeded");
}

/// B-G3: a stage that is suspended by its gate waits for no answer: nothing can be approved or denied, and a resume continues.
#[test]
fn a_suspended_stage_cannot_be_approved() {
    let server = Server::by(|_, _| done("plan"));
    let gate = "  plan: {setup: {set: {task: T1}}, gate: {rules: [{when: {path: ctx.task, equals: T1}, outcome: defer, reason: later}]}}";
    let test = machine(&["plan"], gate, "").model_claiming(&server, "hard");
    let waiting = test.run(&["machine", "run", "m", "--format", "json"]).exit(5).has("/waiting/0/kind", "parked");
    let id = waiting.id();
    let effect = waiting.at("/waiting/0/id").as_str().expect("an id").replace("[RUN]", &id);
    for args in [["approve", &id], ["deny", &id], ["approve", &effect]] {
        test.run(&args)
            .exit(2)
            .stderr_has("is suspended and is not waiting for an answer")
            .stderr_has("etude runs resume");
    }
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(5).has("/waiting/0/kind", "parked");
}

/// B-F20, cli: a directory with only machines is an app; `list`, `machine show` and `graph` include them.
#[test]
fn machines_are_listed_shown_and_drawn() {
    let pipeline = "  plan: {setup: {set: {task: T1}}, next: [{else: true, parallel: [a, b, j], join: j}]}";
    let test = machine(&["plan", "a", "b", "j"], pipeline, "description: Plans and builds\n");
    std::fs::remove_dir(test.path("app/pipelines")).expect("it is empty");
    let listed = test.run(&["list", "--format", "json"]).exit(0);
    assert_eq!((listed.at("/machines/0/name"), listed.at("/machines/0/valid")), (json!("m"), json!(true)));
    let shown = test.run(&["machine", "show", "m", "--format", "json"]).exit(0);
    let stages: Vec<Value> = (0..4).map(|at| shown.at(&format!("/stages/{at}/id"))).collect();
    assert_eq!(stages, ["plan", "a", "b", "j"], "in the order of the run");
    assert!(shown.at("/mermaid").as_str().expect("a drawing").starts_with("flowchart"));
    assert!(test.run(&["graph", "m"]).exit(0).out().contains("n1 --> n2"), "from a sibling to the join");
    for what in ["stage", "machine", "test", "application", "skill"] {
        test.run(&["schema", what]).exit(0);
    }
    test.run(&["machine", "run", "n", "--format", "json"]).exit(2);
}

/// The example: plan with read tools, change, concurrent tests and lint, a review that does not approve, a repair, and a second
/// review; on real files, with real tools, and with hand-written turns.
#[test]
fn the_example_changes_its_repository() {
    let server = Server::by(|seen, _| example_turn(seen));
    let test = Test::new();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/change");
    copy(&example, &test.path("app"));
    let test = test.model_claiming(&server, "hard");
    let task = "task=Basket.total ignores how many of an item are bought";
    let ran = test.run(&["machine", "run", "change", "-i", task, "--format", "json"]).exit(0);
    let stages = ran.at("/stages");
    let walked: Vec<&str> = stages.as_array().expect("rows").iter().filter_map(|row| row["stageId"].as_str()).collect();
    assert_eq!(walked, ["plan", "implement", "test", "lint", "review", "repair", "test", "lint", "review"]);
    assert_eq!(ran.at("/output/parsed/approved"), json!(true));
    assert!(test.read("app/shop/basket.py").contains("price * count for _, price, count in"));
    let asked = |id: &str| server.seen().into_iter().find(|seen| seen.system().contains(id)).expect("it was asked");
    assert!(!asked("You are planning").tools().iter().any(|tool| tool == "Edit"), "plans with read tools only");
    let denied = server.seen().into_iter().flat_map(|seen| seen.results()).find(|text| text.contains("OutsideTheShop"));
    assert!(denied.is_some(), "the guard keeps the change below shop/");
}

/// The same with the recorded turns of a real, small model, for which the prompts and judges of the example are made.
#[test]
fn the_example_ends_well_with_the_turns_of_a_small_model() {
    let test = Test::new();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/change");
    copy(&example, &test.path("app"));
    // Not among the example's own tests, because it changes the folder that it runs in.
    let test = test.file(
        "tests/a-bug-is-fixed.yaml",
        "machine: change\ninput: {task: Basket.total ignores how many of an item are bought}\nexpect:\n  status: succeeded\n  output: {/parsed/approved: true}\n",
    );
    test.run(&["test", "a-bug-is-fixed"]).exit(0);
    assert!(test.read("app/shop/basket.py").contains("sum(price * count for _, price, count in self.items)"));
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory can be made");
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("it can be copied");
        }
    }
}

/// Responses of the example's model, by stage and turn.
fn example_turn(seen: &Seen) -> Reply {
    let edit = |path: &str, old: &str, new: &str| {
        Reply::call("Edit", json!({"path": path, "old_string": old, "new_string": new}))
    };
    let system = seen.system();
    let is = |words: &str| system.contains(words);
    let (last, turn) = (seen.results().last().cloned().unwrap_or_default(), seen.turn());
    match turn {
        0 if is("You are planning") => Reply::call("Read", json!({"path": "shop/basket.py"})),
        _ if is("You are planning") => Reply::call(
            "submit_plan",
            json!({"summary": "Count matters.", "steps": ["multiply by count in shop/basket.py"]}),
        ),
        0 if is("You are making") => edit("tools/run_tests.py", "text", "text"),
        1 if is("You are making") => {
            edit("shop/basket.py", "sum(price for _, price, _ in", "sum(price * count for _, price, count in\t")
        }
        _ if is("You are making") => Reply::call("submit_change", json!({"files": ["shop/basket.py"]})),
        0 if is("Run the tests") => Reply::call("run_tests", json!({})),
        _ if is("Run the tests") => {
            let passed = last.contains("\"passed\":true");
            Reply::call("submit_test", json!({"passed": passed, "problems": []}))
        }
        0 if is("Run `run_lint`") => Reply::call("run_lint", json!({})),
        _ if is("Run `run_lint`") => {
            let problems: Vec<&str> = if last.contains("a tab") { vec!["a tab in shop/basket.py"] } else { Vec::new() };
            Reply::call("submit_lint", json!({"problems": problems}))
        }
        _ if is("You are reviewing") => {
            let found = is("a tab in shop/basket.py");
            let problems: Vec<&str> = if found { vec!["remove the tab"] } else { Vec::new() };
            Reply::call("submit_review", json!({"approved": !found, "problems": problems}))
        }
        0 => edit("shop/basket.py", "count in\t", "count in"),
        _ => Reply::call("submit_repair", json!({"files": ["shop/basket.py"]})),
    }
}

/// a request in words finds a machine by its description and triggers.
#[test]
fn a_request_in_words_finds_a_machine() {
    let server = Server::by(|seen, _| if seen.turn() == 0 { done("outline") } else { Reply::says("?") });
    let head = "description: Update the documents of the project after a change.\ntriggers: [\"update the docs\", \"bring the documentation up to date\"]\n";
    let test = machine(&["outline"], "  outline: {next: [{else: true, terminal: true}]}", head);
    let test = test.model_claiming(&server, "hard");
    test.run(&["route", "please update the docs", "--mode", "embedded", "--format", "json"])
        .exit(0)
        .has("/pipeline", "m");
    let ran = test.run(&["run", "please update the docs", "--router", "embedded", "--format", "json"]).exit(0);
    assert_eq!((ran.at("/mode"), ran.at("/machine")), (json!("machine"), json!("m")));
}
