//! Tests of the one chain of the whole program: the middleware of users, the program's own middleware, and the reported events.

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::test::{IN_HOOKS, Test, binary, noting, printing};

/// An app with a main skill that has this middleware: a rate limit in Python, which refuses the calls after the first `most` of
/// each name, and a redactor in shell, which changes results on their way out.
pub(crate) fn layered(most: u32) -> Test {
    let redact = format!(
        "cat >/dev/null\nr=$({} host next) || exit 1\nprintf '{{\"result\": %s}}' \"$r\" | sed s/s3cr3t/***/g\n",
        binary()
    );
    Test::new()
        .file(
            "app.skill.md",
            &format!(
                "---\nname: app\nmetadata:\n  role: main\n  paths: [./skills]\n  limit: {{max: {most}}}\n  redact: {{}}\n  \
                 $order: {{redact: {{after: [$pre-execute]}}}}\n---\n"
            ),
        )
        .file("skills/limit.skill.md", "---\nname: limit\ncommand: python3 limit.py\nmetadata: {role: middleware}\n---\n")
        .file(
            "skills/limit.py",
            "import json, os, sys\n\
             tool = json.load(sys.stdin)['ctx']['target']['run']['tool']\n\
             open(os.environ['LEDGER'], 'a').write('limit ' + tool['name'] + '\\n')\n\
             count = open(os.environ['LEDGER']).read().count('limit ' + tool['name'] + '\\n')\n\
             if count > tool['metadata']['limit']['max']: sys.exit('called too often')\n",
        )
        .file("skills/redact.skill.md", "---\nname: redact\ncommand: sh redact.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/redact.sh", &redact)
}

/// D-7: the limit of the example passes exactly its number of calls, however many are concurrent.
#[test]
fn the_limit_of_the_example_holds_for_calls_at_once() {
    let shipped = |name: &str| {
        let path = format!("{}/../../examples/customers/skills/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("the example")
    };
    let limit = shipped("limit.py").replace("\"etude\"", &format!("{:?}", binary()));
    let once = format!("{}; {}", noting("passed"), printing("1"));
    let each = "for_each: \"{{list.output}}\"\nmax_parallel: 8\non_item_failure: collect";
    let test = Test::new()
        .pipeline("p", |p| p.note("list", "[1,2,3,4,5,6,7,8]").sh_with("each", &once, each))
        .file(
            "app.skill.md",
            "---\nname: app\nmetadata:\n  role: main\n  paths: [./skills]\n  limit: {calls: 4}\n---\n",
        )
        .file("skills/limit.skill.md", &shipped("limit.skill.md"))
        .file("skills/limit.py", &limit);
    let ran = test.run_json("p");
    let passed = test.ledger().iter().filter(|line| *line == "passed").count();
    assert_eq!(passed, 4, "{}", ran.out());
    assert!(ran.out().contains("was called 4 times in this run already"), "{}", ran.out());
}

/// A stage `plan` that may call `look`, which returns a secret.
fn machine(test: Test, server: &Server, pipeline: &str) -> Test {
    test.model_claiming(server, "hard")
    .file("tools/look.yaml", "name: look\ndescription: Looks.\ncommand: sh tools/look.sh\n")
    .file("tools/look.sh", "cat > /dev/null\necho looked >> \"$LEDGER\"\necho '{\"ok\":true,\"value\":\"the s3cr3t\"}'\n")
    .file(
        "machines/m/machine.yaml",
        &format!("kind: StateMachine\nid: m\nentryStage: plan\nstateSlot: {{slotVersion: \"1.0.0\", schema: {{type: object}}}}\npipeline:\n  plan: {{{pipeline}}}\n"),
    )
    .file(
        "machines/m/stages/plan.md",
        "---\nid: plan\nname: plan\nallowedTools: [look]\ncompletionTool: submit_plan\ncompletionSchema: {type: object, required: [summary]}\nretryPolicy: {maxAttempts: 2, backoff: none}\nturnCap: 4\nresolutionPolicy: retry-later\n---\nPlan {{ctx.task}}.\n",
    )
}

fn looks_twice() -> Server {
    Server::by(|seen, _| match seen.turn() {
        0 | 1 => Reply::call("look", json!({})),
        _ => Reply::call("submit_plan", json!({"summary": "planned"})),
    })
}

const RUN: [&str; 5] = ["machine", "run", "m", "--format", "jsonl"];

/// D-7, D-17, B-AP1: tools of stages pass the chain: the second call is refused, and no model reads redacted text.
#[test]
fn tools_of_stages_pass_the_chain() {
    let server = looks_twice();
    let test = machine(layered(1), &server, "setup: {set: {task: T1}}");
    test.run(&RUN).exit(0);
    let seen = server.seen();
    assert!(seen[1].results()[0].contains("the ***"), "{:?}", seen[1].results());
    assert!(seen[2].results()[1].contains("`limit` rejected it: called too often"), "{:?}", seen[2].results());
    assert_eq!(test.ledger(), ["limit look", "looked", "limit look"]);
}

/// D-7, B-20.4: hooks of stages pass the chain: the stage continues with the answer as changed by middleware.
#[test]
fn hooks_of_stages_pass_the_chain() {
    let server = Server::by(|_, _| Reply::call("submit_plan", json!({"summary": "planned"})));
    let test = machine(layered(9), &server, "setup: {script: sh scripts/setup.sh}, exit: {script: sh scripts/exit.sh}")
        .file("machines/m/scripts/setup.sh", "cat >/dev/null\necho '{\"ctx\": {\"task\": \"the s3cr3t\"}}'\n")
        // An empty answer means that all is well, also for middleware.
        .file("machines/m/scripts/exit.sh", &format!("{IN_HOOKS}cat >/dev/null\necho exit >> \"$LEDGER\"\n"));
    test.run(&RUN).exit(0);
    assert!(server.seen()[0].system().contains("Plan the ***."), "{}", server.seen()[0].system());
    let ledger = test.ledger();
    assert!(ledger.contains(&"exit".to_owned()), "{ledger:?}");
    assert_eq!(ledger.iter().filter(|line| line.starts_with("limit ")).count(), 2, "{ledger:?}");
}

/// D-7, A-4: a model's response to a step passes the chain.
#[test]
fn answers_of_models_pass_the_chain() {
    let server = Server::new([Reply::says("the s3cr3t")]);
    let test = layered(1).model(&server).pipeline("p", |p| p.llm("ask", "x", ""));
    test.run_json("p").output("the ***");
    test.run_json("p").exit(1);
    assert_eq!((test.ledger(), server.calls()), (vec!["limit p-ask".to_owned(), "limit p-ask".to_owned()], 1));
}

/// D-7.5, A-3.4: middleware that throws the error of `next` again has changed nothing: the step fails as without it, with its
/// own status and its own stderr, and is retried.
#[test]
fn what_middleware_throws_again_is_the_same() {
    let script = "cat >/dev/null; echo once >> \"$LEDGER\"; echo why >&2; exit 7";
    let document = |test: Test| {
        let test = test.pipeline("p", |p| p.sh("a", script));
        let ran = test.run_json("p").exit(1);
        ran.at("/errors/0").clone()
    };
    let (with, without) = (document(layered(9)), document(Test::new()));
    assert_eq!((&with["kind"], &with["message"]), (&without["kind"], &without["message"]));
    assert_eq!(with["attempts"], without["attempts"]);
}

/// D-13, A-7.3: a trust rule of the main skill holds an agent's call until a person has answered; then it runs once.
#[test]
fn trust_rules_hold_the_calls_of_agents() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::bash("echo done >> \"$LEDGER\""),
        _ => Reply::says("ok"),
    });
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, trust: {rules: Bash}}\n---\n")
        .file("SKILL.md", "---\nname: helpful\ndescription: Helps.\n---\nHelp.\n")
        .file("etude.yaml", "approvals: {mode: yolo, unattended: wait}\n")
        .model(&server);
    let ran = test.run(&["run", "--skill", "go", "--format", "json"]);
    assert_eq!(ran.code(), 5, "{}", ran.out());
    assert!(test.ledger().is_empty());
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"]).output("ok");
    assert_eq!(test.ledger(), ["done"]);
}

/// D-13: rules about arguments also apply to steps, even if a value is so long that it is stored in a file.
#[test]
fn trust_rules_see_the_arguments_of_steps() {
    let deny = "\"p-a(input.mode=wipe,$deny)\"";
    let main = format!("---\nname: app\nmetadata: {{role: main, trust: {{rules: {deny}}}}}\n---\n");
    let test = Test::new().file("app.skill.md", &main).pipeline("p", |p| {
        p.with("input: {mode: {type: string}, text: {type: string}}").step("{name: a, type: code, command: sh a.sh}")
    });
    test.put("app/pipelines/p/a.sh", "cat >/dev/null; echo ran >> \"$LEDGER\"; echo '{\"output\": 1}'\n");
    let run = |mode: &str, text: &str| {
        let input = json!({"mode": mode, "text": text}).to_string();
        test.put("input.json", &input);
        let file = format!("@{}", test.path("input.json").display());
        test.run(&["run", "-p", "p", "--input", &file, "--format", "json"])
    };
    run("keep", "short").exit(0);
    let refused = run("wipe", "short").exit(1);
    assert!(refused.at("/errors/0/message").as_str().unwrap().contains("p-a"), "{}", refused.out());
    run("wipe", &"long ".repeat(400_000)).exit(1);
    assert_eq!(test.ledger(), ["ran"]);
}

/// D-7.5, B-18: a failed tool behind middleware that throws the error again keeps its own message and code, as without the
/// middleware.
#[test]
fn failures_of_tools_are_passed_on_by_middleware() {
    let reported = |test: Test| {
        let server = Server::by(|seen, _| match seen.turn() {
            0 => Reply::bash("echo the output; echo why >&2; exit 3"),
            _ => Reply::says("ok"),
        });
        let test = test.file("SKILL.md", "---\nname: helpful\ndescription: Helps.\n---\nHelp.\n").model(&server);
        test.run(&["run", "--skill", "go", "--yolo", "--format", "json"]).output("ok");
        server.seen().pop().expect("it was asked").results()[0].clone()
    };
    let without = reported(Test::new());
    assert!(without.contains("the output"), "{without}");
    assert_eq!(reported(layered(9)), without);
}

/// D-17, issue 6: with `--verbose` the events of every invocation are reported, with its middleware, durations and errors.
#[test]
fn every_invocation_is_reported() {
    let test = layered(1).pipeline("p", |p| p.sh("a", "cat >/dev/null; echo '{\"output\": 1}'"));
    let reported = |ran: &crate::ran::Ran| -> Vec<Value> {
        let lines = ran.lines().into_iter();
        lines.filter(|line| line["event"].as_str().is_some_and(|name| name.starts_with("invocation_"))).collect()
    };
    let ran = test.run(&["run", "--pipeline", "p", "--format", "jsonl", "--verbose"]).exit(0);
    let events = reported(&ran);
    let find = |name: &str, tool: &str| {
        events.iter().find(|line| line["event"] == name && line["tool"] == tool).cloned().unwrap_or_default()
    };
    assert_eq!(find("invocation_started", "limit")["serves"], "p-a");
    let ended = find("invocation_ended", "redact");
    assert!(ended["duration_ms"].is_number() && ended["error"].is_null(), "{ended}");
    assert_eq!(find("invocation_ended", "p-a")["serves"], Value::Null);
    let refused = reported(&test.run(&["run", "--pipeline", "p", "--format", "jsonl", "--verbose"]).exit(1));
    let failed = refused.iter().find(|line| line["tool"] == "limit" && line["event"] == "invocation_ended");
    assert_eq!(failed.map(|line| &line["error"]), Some(&json!("called too often")));
    // Without it there are only the events of steps.
    assert_eq!(reported(&test.run(&["run", "--pipeline", "p", "--format", "jsonl"])), Vec::<Value>::new());
}

/// D-7: middleware of one run shares `globals`, so one in shell may count without a file.
#[test]
fn middleware_of_a_run_shares_globals() {
    let etude = binary();
    let count = format!(
        "cat >/dev/null\nn=$({etude} host get globals.count)\n[ \"$n\" = null ] && n=0\n{etude} host set globals.count $((n + 1))\n\
         echo \"count $n\" >> \"$LEDGER\"\n"
    );
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, count: {}}\n---\n")
        .file("count.skill.md", "---\nname: count\ncommand: sh count.sh\nmetadata: {role: middleware}\n---\n")
        .file("count.sh", &count)
        .pipeline("p", |p| p.note("a", "1").note("b", "2"));
    test.run_json("p").output(2);
    assert_eq!(test.ledger(), ["count 0", "a", "count 1", "b"]);
}

/// D-2, D-7: a skill with the name of a step is not run in its place.
#[test]
fn a_skill_does_not_stand_in_for_a_step() {
    let test = layered(9)
        .file("skills/p-a.skill.md", "---\nname: p-a\ncommand: sh other.sh\n---\n")
        .file("skills/other.sh", "echo other >> \"$LEDGER\"\n")
        .pipeline("p", |p| p.note("a", "1"));
    test.run_json("p").output(1);
    assert_eq!(test.ledger(), ["limit p-a", "a"]);
}

/// D-14, D-X24: a prompt may be middleware around a step: its agent runs, and its answer is the step's.
#[test]
fn a_prompt_may_be_middleware_around_a_step() {
    let server = Server::new([Reply::says("decided by the model")]);
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, judge: {}}\n---\n")
        .file("judge.skill.md", "---\nname: judge\nmetadata: {role: middleware}\n---\nJudge.\n")
        .model(&server)
        .pipeline("p", |p| p.note("a", "1"));
    test.run_json("p").output("decided by the model");
    assert!(test.ledger().is_empty());
}

/// An app in skill mode with a tool `strict` that takes a number.
fn strict(server: &Server, more: &str) -> Test {
    Test::new()
        .file("SKILL.md", "---\nname: helpful\ndescription: Helps.\n---\nHelp.\n")
        .file("etude.yaml", &format!("approvals: {{mode: yolo{more}}}\n"))
        .file(
            "tools/strict.yaml",
            "name: strict\ndescription: A tool.\ncommand: sh tools/strict.sh\n\
             inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}\n",
        )
        .file("tools/strict.sh", "cat >/dev/null\necho ran >> \"$LEDGER\"\necho '{\"ok\":true,\"value\":1}'\n")
        .model(server)
}

fn skill_mode(test: &Test, more: &[&str]) -> crate::ran::Ran {
    test.run(&[&["run", "--skill", "go", "--format", "jsonl"], more].concat())
}

/// D-7, A-7.1, issue 6: without a main skill a call passes only the program's own middleware, in this order.
#[test]
fn the_programs_own_checks_are_middleware() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::call("strict", json!({"n": 1})),
        _ => Reply::says("ok"),
    });
    let test = strict(&server, "");
    let ran = skill_mode(&test, &["--verbose"]).exit(0);
    let lines = ran.lines();
    let begun = lines.iter().filter(|line| line["event"] == "invocation_started");
    let named: Vec<&str> = begun.map(|line| line["tool"].as_str().unwrap_or_default()).collect();
    let expected = [
        "strict", "scrub", "validate-args", "validate-allowed-tools", "approve", "confirm", "execute",
        "validate-returns",
    ];
    assert_eq!(named, expected);
    assert_eq!(test.ledger(), ["ran"]);
}

/// `b-stages` §11.1 (5), D-10: a tool is not started with invalid arguments; its model receives all faults.
#[test]
fn arguments_that_do_not_fit_start_nothing() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::call("strict", json!({"n": "x"})),
        _ => Reply::says("ok"),
    });
    let test = strict(&server, "");
    skill_mode(&test, &[]).exit(0);
    let result = server.seen()[1].results().remove(0);
    assert!(result.contains("InputInvalid") && result.contains("/n"), "{result}");
    assert!(test.ledger().is_empty());
}

/// D-6.2, A-7.3: `$order` places users' middleware among that of the program: this one counts approved calls, not questions.
#[test]
fn middleware_may_stand_behind_an_approval() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::call("strict", json!({"n": 1})),
        _ => Reply::says("ok"),
    });
    let test = strict(&server, ", unattended: wait")
        .file("etude.yaml", "approvals: {mode: ask, unattended: wait}\n")
        .file(
            "app.skill.md",
            "---\nname: app\nmetadata:\n  role: main\n  count: {}\n  $order: {count: {after: [approve], before: [$execute]}}\n---\n",
        )
        .file("count.skill.md", "---\nname: count\ncommand: sh count.sh\nmetadata: {role: middleware}\n---\n")
        .file("count.sh", "cat >/dev/null\necho counted >> \"$LEDGER\"\n");
    skill_mode(&test, &[]).exit(5);
    assert!(test.ledger().is_empty());
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    test.run(&["approve", &id]).exit(0);
    test.run(&["runs", "resume", &id, "--format", "json"]).output("ok");
    assert_eq!(test.ledger(), ["counted", "ran"]);
}

/// D-7, ADR 0020: a model receives the messages of middleware about a call without known secrets.
#[test]
fn refusals_of_middleware_hold_no_secrets() {
    let server = Server::by(|seen, _| match seen.turn() {
        0 => Reply::call("strict", json!({"n": 1})),
        _ => Reply::says("ok"),
    });
    let test = strict(&server, "")
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, leak: {}}\n---\n")
        .file("leak.skill.md", "---\nname: leak\ncommand: sh leak.sh\nmetadata: {role: middleware}\n---\n")
        .file("leak.sh", &format!("cat >/dev/null\necho 'not with {}' >&2\nexit 1\n", crate::test::KEY));
    skill_mode(&test, &[]).exit(0);
    let result = server.seen()[1].results().remove(0);
    assert!(result.contains("`leak` rejected it: not with ***"), "{result}");
}

/// X-3, C-1.13, D-7: a command that a step calls is an invocation inside another one.
#[test]
fn commands_that_steps_call_pass_two_chains() {
    let test = layered(9).pipeline("p", |p| {
        p.step("{name: box, type: application, application: echo-box, command: args, args: [s3cr3t]}")
    });
    crate::echo_box::put(&test, crate::echo_box::USER, &[]);
    let ran = test.run_json("p").exit(0);
    assert!(ran.at("/output").to_string().contains("***") && !ran.at("/output").to_string().contains("s3cr3t"));
    assert_eq!(test.ledger(), ["limit p-box", "limit echo-box-args"], "the step, and the command that it calls");
}
