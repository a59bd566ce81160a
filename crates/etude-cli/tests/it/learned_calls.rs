//! Learned pipelines as tools of agents (L-77), and command lines in them (L-33).

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::states::{app, learned, ledger, row};
use crate::test::Test;

fn back(id: &str) -> Reply {
    Reply::call("back", json!({"id": id}))
}

/// The run of an agent that calls the pipeline, in an app with this configuration.
fn calling(state: &str, turns: impl IntoIterator<Item = Reply>) -> (Server, Test) {
    let server = Server::agent(turns);
    let test = learned(app(&server), state).file("etude.yaml", "approvals: {unattended: wait}\n");
    (server, test)
}

/// L-77, L-66: an `active` pipeline is a tool with its parameters as schema; its steps run and ask as if routed to.
#[test]
fn an_active_pipeline_is_a_tool_that_asks_as_if_routed_to() {
    let (server, test) = calling("active", [back("A-1"), Reply::says("done")]);
    let waits = test.follow("Cancel the order A-1", &[]).exit(5);
    assert_eq!(waits.at("/waiting/0/payload/arguments"), json!({"id": "A-1"}));
    assert_eq!(waits.at("/waiting/0/payload/tool"), json!("cancel"));
    assert_eq!(ledger(&test), ["get A-1"]);
    let seen = server.seen();
    assert!(seen[0].tools().contains(&"back".to_owned()), "{:?}", seen[0].tools());
    test.run(&["approve", "latest"]).exit(0);
    let ended = test.run(&["runs", "resume", "latest", "--format", "json"]).exit(0);
    assert_eq!((ended.at("/status"), ended.at("/mode")), (json!("succeeded"), json!("skill")));
    assert_eq!(ledger(&test), ["get A-1", "cancel A-1"], "a resume repeats nothing");
    let results = server.seen().last().map(|seen| seen.results()).unwrap_or_default();
    assert_eq!(results, [r#"{"id":"A-1","status":"open"}"#]);
    let wrong = calling("active", [Reply::call("back", json!({"id": 7})), Reply::says("done")]);
    wrong.1.follow("Cancel the order", &["--yolo"]).exit(0);
    assert_eq!(ledger(&wrong.1), [""; 0]);
    assert!(wrong.0.seen()[1].results()[0].contains("the arguments of `back` do not fit"));
}

/// L-77: in any other state it is not a tool.
#[test]
fn only_an_active_pipeline_is_a_tool() {
    for state in ["assisted", "demoted", "shadow"] {
        let (server, test) = calling(state, [back("A-1"), Reply::says("done")]);
        test.follow("Cancel the order A-1", &["--yolo"]).exit(0);
        assert!(!server.seen()[0].tools().contains(&"back".to_owned()), "{state}");
        assert_eq!(ledger(&test), [""; 0]);
    }
}

/// L-77, L-68, L-69: a deviation is an error of the tool with the reads so far; a call that has changed data is not made again.
#[test]
fn a_deviation_is_an_error_of_the_tool_with_the_reads_so_far() {
    let edit = |test: &Test, from: &str, to: &str| {
        let text = test.read("app/pipelines/back/pipeline.yaml");
        assert!(text.contains(from), "{text}");
        test.put("app/pipelines/back/pipeline.yaml", &text.replace(from, to));
    };
    let (server, test) = calling("active", [back("A-1"), Reply::says("done")]);
    edit(&test, "equals: open", "equals: shut");
    let ran = test.follow("Cancel the order A-1", &["--yolo"]).exit(0);
    assert_eq!(ran.at("/status"), json!("succeeded"), "the agent goes on");
    assert_eq!(ledger(&test), ["get A-1"]);
    let said = server.seen()[1].results().concat();
    for part in ["deviated at its step `gone` (require)", "<data>", r#""result":{"id":"A-1","status":"open"}"#] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let again = [back("A-1"), Reply::call("cancel", json!({"id": "A-1"})), Reply::says("done")];
    let (server, test) = calling("active", again);
    let more = "equals: open}}\n  - {name: late, type: tool, tool: get, args: {id: x}, require: {value: \"{{order.output.status}}\", equals: shut}}\n";
    edit(&test, "equals: open}}\n", more);
    test.follow("Cancel the order A-1", &["--yolo"]).exit(0);
    assert_eq!(ledger(&test), ["get A-1", "cancel A-1"]);
    let seen = server.seen();
    assert!(seen[1].results()[0].contains(r#""changed":true"#), "{:?}", seen[1].results());
    assert!(seen[2].results()[1].contains("not made again"), "{:?}", seen[2].results());
}

/// L-78: a write that a person denies demotes the pipeline also if an agent called it, and so does a bad verdict on the run.
#[test]
fn a_denied_write_of_a_called_pipeline_demotes_it() {
    let (server, test) = calling("active", [back("A-1"), Reply::says("done")]);
    test.follow("Cancel the order A-1", &[]).exit(5);
    test.run(&["deny", "latest"]).exit(0);
    test.run(&["runs", "resume", "latest"]).exit(0);
    assert!(server.seen().last().is_some_and(|seen| seen.results()[0].contains("(denied)")));
    let status = row(&test);
    assert_eq!((&status["state"], &status["demoted"]["reason"]), (&json!("demoted"), &json!("denied")));
    test.follow("Cancel the order A-1", &["--yolo"]).exit(0);
    assert_eq!(ledger(&test), ["get A-1"], "it is not a tool any more");
    let (_server, test) = calling("active", [back("A-1"), Reply::says("done")]);
    let id = test.follow("Cancel the order A-1", &["--yolo"]).exit(0).id();
    assert_eq!(row(&test)["state"], json!("active"));
    test.run(&["runs", "judge", &id, "bad"]).exit(0).stderr_has("judged_bad");
    assert_eq!(row(&test)["state"], json!("demoted"));
}

/// L-79: two deviations of the same kind demote a pipeline also if agents called it; different kinds do not.
#[test]
fn two_deviations_of_a_called_pipeline_demote_it() {
    let server = Server::agent([back("A-1"), Reply::says("done")]);
    let test = learned(app(&server), "active");
    let definition = test.read("app/pipelines/back/pipeline.yaml");
    test.put("app/pipelines/back/pipeline.yaml", &definition.replace("equals: open", "equals: closed"));
    let call = || test.follow("Cancel the order A-1", &["--yolo"]).exit(0);
    let first = call();
    assert!(!first.err().contains("no longer"), "{}", first.err());
    assert_eq!(row(&test)["deviations"], json!([{"step": "gone", "reason": "require", "count": 1}]));
    assert_eq!(row(&test)["state"], json!("active"));
    call().stderr_has("`demoted` (deviations");
    assert_eq!(row(&test)["state"], json!("demoted"));
    call();
    assert_eq!(server.seen().last().map(|seen| seen.tools().contains(&"back".to_owned())), Some(false));
    assert_eq!(ledger(&test), ["get A-1", "get A-1"], "it is not a tool any more");
}

/// Trap 23, L-54: nothing is learned from a run in which the agent called a learned pipeline, whose writes are those of the
/// run.
#[test]
fn nothing_is_learned_from_a_run_of_a_pipeline() {
    let (_server, test) = calling("active", [back("A-1"), Reply::says("done")]);
    let id = test.follow("Cancel the order A-1", &["--yolo"]).exit(0).id();
    let found = test.run(&["learn", "--runs", &id, "--dry-run", "--format", "json"]).exit(0);
    assert_eq!(found.at("/unusable/0/tools"), json!(["back"]), "{}", found.out());
    assert_eq!(row(&test)["state"], json!("active"));
}

/// An agent that creates the requested directory.
fn directories() -> (Server, Test) {
    let server = Server::by(|seen, _| {
        if seen.tools().is_empty() {
            return Reply::json(&json!({"allowed": "yes", "rule": "any"}));
        }
        let request = seen.request();
        let name = request.split_whitespace().find(|word| word.starts_with("ORD-")).unwrap_or("none").to_owned();
        match seen.turn() {
            0 => {
                Reply::call("Bash", json!({"command": format!("mkdir {name}"), "description": format!("Makes {name}")}))
            }
            _ => Reply::says("done"),
        }
    });
    let test = Test::new().skill("", "# Desk\n\nMake directories.\n").model(&server);
    for id in ["ORD-100", "ORD-205", "ORD-311"] {
        test.follow(&format!("Make a directory for {id} please"), &["--yolo"]).exit(0);
        assert!(test.path(&format!("app/{id}")).is_dir());
    }
    (server, test)
}

/// L-33: a word of the user in a command line becomes an argument beside the line. A hostile value cannot become an option, a
/// path or syntax: the run deviates, and the agent gets the request.
#[test]
fn a_word_of_a_command_line_is_an_argument() {
    let (_server, test) = directories();
    let found = test.run(&["learn", "--format", "json"]).exit(0);
    assert_eq!(found.at("/candidates/0/name"), json!("bash"), "{}", found.out());
    assert_eq!(found.at("/candidates/0/parameters"), json!(["argument_1"]));
    test.run(&["check"]).exit(0);
    test.run(&["learn", "test", "bash"]).exit(0);
    let definition = test.run(&["learn", "show", "bash", "--format", "json"]).exit(0).at("/definition");
    let write = definition["steps"].as_array().and_then(|steps| steps.last()).cloned().unwrap_or_default();
    assert_eq!(write["args"], json!({"command": "mkdir \"$1\"", "argument_1": "{{input.argument_1}}"}));
    test.run(&["learn", "promote", "bash", "--to", "active", "--accept-risk"]).exit(0);
    let run = |value: &str, more: &[&str]| {
        let input = format!("argument_1={value}");
        test.run(&[&["run", "-p", "bash", "-i", &input, "--format", "json"], more].concat())
    };
    let settings = "approvals: {allow: [\"Bash(mkdir *)\"]}\nlearn: {demote: {after: 20, window: 20}}\n";
    test.put("app/etude.yaml", settings);
    assert_eq!(
        run("ORD-902", &[]).exit(0).at("/fell_back"),
        Value::Null,
        "a rule for the agent's call is one for this"
    );
    assert!(test.path("app/ORD-902").is_dir());
    for value in [
        "x; touch pwned", "$(touch pwned)", "`touch pwned`", "-m0", "../out", "a b", "a\ntouch pwned",
        "'; touch pwned; '",
    ] {
        assert_eq!(run(value, &[]).at("/fell_back/reason"), json!("require"), "{value}");
    }
    assert!(!test.path("app/pwned").exists() && !test.path("out").exists() && !test.path("app/a").exists());
}

/// L-33, L-43: the arguments of a step of `Bash` are never shell text, whatever they contain, and policy judges the line with
/// them.
#[test]
fn arguments_of_a_command_line_are_no_shell_text() {
    let steps =
        "  - {name: make, type: tool, tool: Bash, args: {command: 'mkdir \"$1\"', argument_1: \"{{input.name}}\"}}\n";
    let definition = |steps: &str| format!("name: p\ndescription: d\ninput: {{name: string}}\nsteps:\n{steps}");
    let test = Test::new().file("pipelines/p/pipeline.yaml", &definition(steps)).file(
        "etude.yaml",
        "approvals: {unattended: wait, allow: [\"Bash(mkdir *)\", \"Bash(mkdir secret, $deny)\"]}\n",
    );
    let run = |name: &str| {
        let input = format!("name={name}");
        test.run(&["run", "-p", "p", "-i", &input, "--format", "json"])
    };
    for name in ["x; touch pwned", "$(touch pwned)", "a' b\"", "*", "~", "\"$1\""] {
        run(name).exit(0);
        assert!(test.path("app").join(name).is_dir(), "{name}");
    }
    assert!(!test.path("app/pwned").exists());
    assert_eq!(run("secret").exit(1).at("/errors/0/kind"), json!("approval_denied"));
    assert_eq!(run("-p").exit(1).at("/errors/0/kind"), json!("step_failed"));
    test.put("app/etude.yaml", "approvals: {unattended: wait}\n");
    let waits = run("a b").exit(5);
    assert_eq!(waits.at("/waiting/0/payload/key"), json!("Bash(mkdir 'a b')"));
    for line in ["mkdir $1", "sh -c \"$1\"", "mkdir \"$1\" > log", "mkdir \"x$1\""] {
        let text = steps.replace("mkdir \"$1\"", line);
        test.put("app/pipelines/p/pipeline.yaml", &definition(&text));
        let failed = run("b").exit(1);
        assert_eq!(failed.at("/errors/0/kind"), json!("step_failed"), "{line}");
        assert!(failed.at("/errors/0/message").to_string().contains("the arguments of `Bash`"), "{line}");
    }
}
