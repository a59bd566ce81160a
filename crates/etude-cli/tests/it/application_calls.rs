//! Applications called from pipelines and by agents (X-3 `application`, C-1.13, C-1.14).

use serde_json::json;

use crate::echo_box::{self, Judged, PROJECT, USER, started, with};
use crate::server::{Reply, Server};
use crate::test::Test;

/// A pipeline `p` with one step that calls `command` with these arguments.
fn step(test: Test, command: &str, args: &str) -> Test {
    test.yaml(
        "p",
        &format!(
            "name: p\ndescription: Calls a box.\ninput: {{v: {{type: string, default: \"x y\"}}}}\nsteps:\n  \
             - {{name: box, type: application, application: echo-box, command: {command}, args: {args}}}\n"
        ),
    )
}

/// X-3: the step's output is the JSON that the command prints; each argument is one argument, whatever it contains.
#[test]
fn the_output_of_an_application_step_is_what_the_command_prints() {
    let test = step(with(&[]), "args", r#"["{{input.v}}", "$(touch made); `id`"]"#);
    let ran = test.run_json("p").exit(0);
    let output = ran.at("/output").to_string();
    assert!(output.contains("x y") && output.contains("$(touch made); `id`"), "{output}");
    assert!(!test.path(&format!("{USER}/echo-box/made")).exists());
    test.run_json("p").exit(0).steps(&["box succeeded 1"]);
}

/// A-3.7, X-3: a command within a run has the run's id and a separate key for each call, the same after a crash.
#[test]
fn each_call_of_a_command_has_a_key_of_its_own() {
    let call = "type: application, application: echo-box, command: env, args: []";
    let test = with(&[]).yaml(
        "p",
        &format!("name: p\ndescription: Calls twice.\nsteps:\n  - {{name: one, {call}}}\n  - {{name: two, {call}}}\noutput: one\n"),
    );
    let ran = test.run_json("p").exit(0);
    assert_eq!(ran.at("/output/env/ETUDE_RUN_ID"), json!("[RUN]"));
    assert_eq!(ran.at("/output/env/ETUDE_EFFECT_ID"), json!("[RUN]/p/one"));
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    let exported = test.run(&["runs", "export", &id]).exit(0);
    assert!(exported.out().contains("/p/two"), "{}", exported.out());
    assert!(String::from_utf8_lossy(&ran.raw).contains(&format!("\"{id}/p/one\"")), "it is this run");
}

/// A-3.6, X-3: the end of a command ends nothing else of its run: neither a concurrent step nor processes that a constructor
/// started for later steps.
#[test]
fn a_command_ends_nothing_but_itself() {
    let call = "type: application\napplication: echo-box\ncommand: args\nargs: [\"x\"]";
    let test = with(&[])
        .pipeline("_constructor", |p| {
            p.sh("serve", "cat >/dev/null; sleep 300 >/dev/null 2>&1 & echo $! > \"$ROOT/pid\"; echo '{\"output\":1}'")
        })
        .pipeline("inner", |p| {
            p.step(&format!("name: box\n{call}")).sh("then", "echo > \"$ROOT/go\"; echo '{\"output\":1}'")
        })
        .pipeline("p", |p| {
            let p = p.step(
                "name: both\ntype: parallel\nsteps:\n  - {name: slow, type: code, command: sh steps/slow.sh}\n  \
                 - {name: calls, type: pipeline, pipeline: inner}",
            );
            let waits =
                "cat >/dev/null; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{\"output\":\"slow\"}'";
            let asks = "cat >/dev/null; kill -0 \"$(cat \"$ROOT/pid\")\" && echo '{\"output\":\"alive\"}'";
            p.file("steps/slow.sh", waits)
                .file("steps/asks.sh", asks)
                .step("name: asks\ntype: code\ncommand: sh steps/asks.sh")
        });
    test.run_json("p").output("alive");
}

/// C-1.14: a confirmation waits in the journal, is requested again for each run, and the command runs once for each.
#[test]
fn a_step_that_needs_confirmation_waits_for_it() {
    let test = step(with(&[]), "wipe", "[--confirm]");
    let before = started(&test).len();
    let ran = test.run_json("p").exit(5);
    assert_eq!(started(&test).len(), before, "nothing is started before somebody has confirmed it");
    assert_eq!(ran.at("/waiting/0/kind"), json!("Confirm"));
    let id = ran.id();
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(0).has("/status", "succeeded");
    assert_eq!(started(&test).iter().filter(|line| line.contains("wipe")).count(), 1);
    let again = test.run_json("p").exit(5);
    test.run(&["deny", &again.id(), "--reason", "not today"]).exit(0);
    test.run(&["runs", "resume", &again.id(), "--format", "json"])
        .exit(1)
        .failed_with(&["business box: approval_denied"]);
    assert_eq!(started(&test).iter().filter(|line| line.contains("wipe")).count(), 1);
}

/// C-1.11: a pipeline does not run discovered packages without approval either; that is an environment error.
#[test]
fn a_step_does_not_run_what_is_not_trusted() {
    let test = Test::new();
    echo_box::put(&test, PROJECT, &[]);
    let test = step(test, "ping", "[]");
    let ran = test.run_json("p").exit(4).failed_with(&["business box: environment"]);
    assert!(ran.at("/errors/0/message").to_string().contains("etude trust"), "{}", ran.out());
    test.run(&["trust", "apps/echo-box"]).exit(0);
    test.run_json("p").exit(0);
}

/// C-1.11: changes by its own commands keep the approval of a package, within one run too.
#[test]
fn a_command_that_changes_its_own_package_runs_twice_in_one_run() {
    let test = Test::new();
    echo_box::put(&test, PROJECT, &[]);
    let program = format!("{PROJECT}/echo-box/app/box.py");
    let noting = "import pathlib\nwith (pathlib.Path(__file__).parent / 'notes.txt').open('a') as notes:\n    notes.write('x')\n";
    test.put(&program, &format!("{noting}{}", test.read(&program)));
    let call = "type: application, application: echo-box, command: ping, args: []";
    let test = test.yaml(
        "p",
        &format!("name: p\ndescription: Calls twice.\nsteps:\n  - {{name: one, {call}}}\n  - {{name: two, {call}}}\n"),
    );
    test.run(&["trust", "apps/echo-box"]).exit(0);
    test.run_json("p").exit(0).steps(&["one succeeded 1", "two succeeded 1"]);
    assert_eq!(test.read(&format!("{PROJECT}/echo-box/app/notes.txt")), "xx");
}

/// C-1.9, C-1.10: an agent sees applications by name, source, trust and description, reads a contract, and runs its commands.
#[test]
fn an_agent_reads_a_contract_and_runs_a_command() {
    let turns = [
        Reply::call("activate_application", json!({"application": "echo-box"})),
        Reply::call("run_application", json!({"application": "echo-box", "command": "ping"})),
    ];
    let server = Server::agent(turns);
    let test = with(&[]).file("SKILL.md", "Be brief.\n").model(&server);
    test.run(&["run", "--skill", "go", "--yolo", "--format", "json"]).exit(0).output("done");
    let seen = server.seen();
    let listed = seen[0].system();
    assert!(listed.contains("- echo-box (") && listed.contains("; user, approved): "), "{listed}");
    assert!(listed.contains(". Commands: ") && !listed.contains(".. Commands"), "{listed}");
    let results = seen.last().expect("a model was asked").results();
    assert!(results[0].contains("<application_content slug=\"echo-box\""), "{}", results[0]);
    assert!(results[1].contains("\"status\":\"succeeded\""), "{}", results[1]);
}

/// C-1.14: no mode of a run replaces a confirmation, not even `--yolo`.
#[test]
fn yolo_confirms_nothing() {
    let wipe = Reply::call("run_application", json!({"application": "echo-box", "command": "wipe"}));
    let server = Server::by(move |seen, _| if seen.turn() == 0 { wipe.clone() } else { Reply::says("done") });
    let test = with(&[]).file("SKILL.md", "Be brief.\n").model(&server);
    test.run(&["run", "--skill", "go", "--yolo", "--format", "json"]).exit(0);
    let results: Vec<String> = server.seen().last().map(crate::server::Seen::results).unwrap_or_default();
    assert!(results[0].contains("needs a person's confirmation"), "{results:?}");
    assert!(!started(&test).iter().any(|line| line.contains("wipe")));
}

/// The example whose application is pip works from a pipeline, and from skill mode (C-1.13).
#[test]
fn a_program_of_unknown_origin_is_used_from_a_pipeline_and_by_an_agent() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tool-library");
    let turns = [
        Reply::call("activate_application", json!({"application": "python-packages"})),
        Reply::call("run_application", json!({"application": "python-packages", "command": "list"})),
    ];
    let server = Server::agent(turns);
    let test = Test::new().model(&server);
    test.run(&["trust", &format!("{example}/apps/python-packages")]).exit(0);
    let ran = test.run(&["run", "-C", example, "--pipeline", "packages", "--format", "json"]).exit(0);
    assert!(ran.at("/output/count").as_u64().is_some_and(|count| count > 0), "{}", ran.out());
    test.run(&["run", "-C", example, "--skill", "is pip there?", "--yolo", "--format", "json"]).exit(0).output("done");
    let results = server.seen().last().map(crate::server::Seen::results).unwrap_or_default();
    assert!(results[1].contains("pip"), "{results:?}");
}

/// A-7.3: the effects of an application are unknown: its commands need approval like any other, and `allowed-tools` narrows
/// them as well.
#[test]
fn commands_of_applications_pass_the_policy_and_the_list() {
    let ping = Reply::call("run_application", json!({"application": "echo-box", "command": "ping"}));
    let script = move |seen: &crate::server::Seen, _| if seen.turn() == 0 { ping.clone() } else { Reply::says("done") };
    let server = Server::by(script.clone());
    let test = with(&[]).file("SKILL.md", "Be brief.\n").model(&server);
    test.run(&["run", "--skill", "go", "--format", "json"]).exit(0);
    let results: Vec<String> = server.seen().last().map(crate::server::Seen::results).unwrap_or_default();
    assert!(results[0].contains("needs approval"), "{results:?}");
    let server = Server::by(script);
    let test = with(&[])
        .file("SKILL.md", "---\nname: a\ndescription: d\nallowed-tools: Read\n---\nBe brief.\n")
        .model(&server);
    test.run(&["run", "--skill", "go", "--yolo", "--format", "json"]).exit(0);
    assert_eq!(server.seen()[0].tools(), ["Read"]);
    assert!(started(&test).is_empty());
}

/// C-1.14: a confirmation applies to the shown package: a package that has changed since needs a new one.
#[test]
fn a_confirmation_does_not_hold_for_a_package_that_has_changed() {
    let test = step(with(&[]), "wipe", "[--confirm]");
    let id = test.run_json("p").exit(5).id();
    test.run(&["approve", &id]).exit(0);
    test.put(&format!("{USER}/echo-box/app/more.py"), "x");
    let ran = test.run(&["runs", "resume", &id, "--format", "json"]).exit(1);
    assert!(ran.at("/errors/0/message").to_string().contains("changed since it was confirmed"), "{}", ran.out());
    assert!(!started(&test).iter().any(|line| line.contains("wipe")));
}

/// C-1.17, C-2.8, AA-37: activated content is sent to the model in full while the task continues, even if its window is full;
/// results of commands make room.
#[test]
fn an_activated_contract_survives_the_compaction_of_its_conversation() {
    let long = Reply::call(
        "run_application",
        json!({"application": "echo-box", "command": "args", "args": ["x".repeat(9_000)]}),
    );
    let activate = Reply::call("activate_application", json!({"application": "echo-box"}));
    let turns = [activate, long.clone(), long.clone(), long.clone(), long];
    let server = Server::agent(turns);
    let test = with(&[]).file("SKILL.md", "Be brief.\n").model_with(&server, "context: 6000");
    let lines = test.run(&["run", "--skill", "go", "--yolo", "--format", "jsonl"]).exit(0).lines();
    assert!(lines.iter().any(|line| line["event"] == "context_trimmed"), "{lines:?}");
    let seen = server.seen();
    let first = seen[1].results();
    let last = seen.last().expect("a model was asked").results();
    assert!(first[0].starts_with("<application_content slug=\"echo-box\""), "{}", first[0]);
    assert!(
        first[0].contains("empties the box") && first[0].contains("Put a value before you get it."),
        "{}",
        first[0]
    );
    assert_eq!(last[0], first[0], "the contract, its safety rules and its skill are there to the last byte");
    assert!(last[1].contains("bytes left out to save room"), "{}", &last[1][..200]);
}

/// C-1.15, AA-62, AA-64: an agent that wants to schedule an action is refused if the package does not support it, or does not
/// document it; nothing runs, and nothing is invented.
#[test]
fn nothing_is_scheduled_that_the_contract_does_not_document() {
    let supported = ("scheduling: notSupported", "scheduling: supported");
    for (changes, word) in [(&[][..], "AA_SCHED_UNSUPPORTED"), (&[supported], "AA_SCHED_UNDOCUMENTED")] {
        let later = json!({"application": "echo-box", "command": "put", "args": ["k", "v"], "when": "tomorrow"});
        let later = Reply::call("run_application", later);
        let server = Server::by(move |seen, _| if seen.turn() == 0 { later.clone() } else { Reply::says("done") });
        let test = with(changes).file("SKILL.md", "Be brief.\n").model(&server);
        test.run(&["run", "--skill", "remind me tomorrow", "--yolo", "--format", "json"]).exit(0).output("done");
        let results = server.seen().last().map(crate::server::Seen::results).unwrap_or_default();
        assert!(results[0].contains(word), "{results:?}");
        assert!(started(&test).is_empty());
        echo_box::run(&test, &[], &["schedule", "tomorrow"]).is("refused", 2, &["AA_CMD_UNDECLARED", word]);
        assert!(started(&test).is_empty());
    }
}

/// C-1.15, AA-63: if the contract documents an option for scheduling, the agent receives and uses it.
#[test]
fn what_the_contract_documents_is_what_schedules() {
    let run = |args: serde_json::Value| Reply::call("run_application", args);
    let turns = [
        run(json!({"application": "echo-box", "command": "put", "args": ["k", "v"], "when": "tomorrow"})),
        run(json!({"application": "echo-box", "command": "put", "args": ["k", "v", "--due", "2026-11-23"]})),
    ];
    let server = Server::agent(turns);
    let documented = ("Not supported.", "`put K V --due DATE` puts it off to that day.");
    let test = with(&[("scheduling: notSupported", "scheduling: supported"), documented])
        .file("SKILL.md", "Be brief.\n")
        .model(&server);
    test.run(&["run", "--skill", "remind me tomorrow", "--yolo", "--format", "json"]).exit(0).output("done");
    let seen = server.seen();
    assert!(seen[0].system().contains("Scheduling: as its contract says."), "{}", seen[0].system());
    let results = seen.last().expect("a model was asked").results();
    assert!(results[0].contains("nothing was run") && results[0].contains("`put K V --due DATE`"), "{results:?}");
    assert_eq!(started(&test), ["put k v --due 2026-11-23"]);
    let words = echo_box::words(&echo_box::run(&test, &[], &["schedule", "tomorrow"]).exit(2).doc());
    assert_eq!(words, ["AA_CMD_UNDECLARED"]);
}

/// C-1.9, C-1.10, C-1.14: a stage that lists the tools lets its agent read contracts and run commands; an entry in the list is
/// not a confirmation, and the prompt stays the stage's own.
#[test]
fn a_stage_reads_contracts_and_runs_commands() {
    let run = |command: &str| Reply::call("run_application", json!({"application": "echo-box", "command": command}));
    let activate = Reply::call("activate_application", json!({"application": "echo-box"}));
    let turns = [activate, run("ping"), run("wipe"), Reply::call("submit_look", json!({"summary": "s"}))];
    let server = Server::agent(turns);
    let test = with(&[])
        .file("machines/m/machine.yaml", "kind: StateMachine\nid: m\nentryStage: look\nstateSlot: {slotVersion: \"1.0.0\", schema: {type: object}}\n")
        .file(
            "machines/m/stages/look.md",
            "---\nid: look\nname: Look\nallowedTools: [activate_application, run_application]\ncompletionTool: submit_look\ncompletionSchema: {type: object}\nretryPolicy: {maxAttempts: 1, backoff: none}\nturnCap: 6\nresolutionPolicy: retry-later\n---\nLook into the box.\n",
        )
        .model_claiming(&server, "hard");
    test.run(&["machine", "run", "m", "--yolo", "--format", "json"]).exit(0).has("/status", "succeeded");
    let seen = server.seen();
    assert_eq!(seen[0].tools(), ["activate_application", "run_application", "submit_look"]);
    assert_eq!(seen[0].system(), "Look into the box.\n");
    let reported = seen[0].body["tools"][0]["function"]["description"].to_string();
    assert!(reported.contains("- echo-box ("), "{reported}");
    let results = seen.last().expect("a model was asked").results();
    assert!(results[0].starts_with("<application_content slug=\"echo-box\""), "{results:?}");
    assert!(results[1].contains("\"status\":\"succeeded\""), "{results:?}");
    assert!(
        results[2].contains("needs a person's confirmation") && results[2].contains("etude approve ask-"),
        "{results:?}"
    );
    assert_eq!(started(&test), ["ping"]);
}

/// X-3, C-1.8: `check` knows the packages of the app and of the user. It reports a misspelled package or command, and the
/// faults of the app's own packages with their places.
#[test]
fn a_check_knows_the_packages() {
    let test = step(with(&[]), "args", "[]");
    test.run(&["check"]).exit(0).stderr("1 pipeline is fine\n");
    let test = step(with(&[]), "arg", "[]");
    test.run(&["check"])
        .exit(0)
        .stderr_has("warning[P1301]: package `echo-box` does not declare the command `arg`")
        .stderr_has("did you mean `args`?");
    let call = "{name: a, type: application, application: echo-bax, command: args, args: []}";
    let test = with(&[]).yaml("p", &format!("name: p\ndescription: d\nsteps: [{call}]\n"));
    test.run(&["check"])
        .exit(0)
        .stderr_has("warning[P1301]: there is no package `echo-bax`")
        .stderr_has("did you mean `echo-box`?");
    let test = test.file("apps/torn/APP.md", "---\nname: \"torn\nslug: torn\n---\n");
    let ran = test.run(&["check", "--format", "json"]).exit(3);
    let faults = ran.at("/diagnostics");
    let of_file = |fault: &&serde_json::Value| fault["file"] == "apps/torn/APP.md" && fault["severity"] == "error";
    let fault = faults.as_array().and_then(|all| all.iter().find(of_file)).expect("the fault of the package");
    assert!(fault["line"].is_u64(), "{fault}");
}
