//! Skill mode: an app's SKILL.md, followed by a model that calls tools, and the requests that lead to it (A-6.2,
//!

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::server::{Reply, Seen, Server};
use crate::test::Test;

/// An app with nothing but its SKILL.md.
fn app(server: &Server) -> Test {
    let test = Test::new().skill("", "Be brief.\n").model(server);
    std::fs::remove_dir(test.path("app/pipelines")).expect("it is there and empty");
    test
}

/// A pipeline that needs a name, and instructions for everything else.
fn greeter(server: &Server) -> Test {
    Test::new()
        .skill("", "You help with greetings.\n")
        .pipeline("greet", |p| {
            p.with(
                "description: \"Write a greeting for a person\"\ntriggers: [\"greet somebody\"]\ninput: {name: string}",
            )
            .note("a", "\"greeted\"")
        })
        .model(server)
}

/// A model that routes to `pipeline`, then finds `parameters`, and says "done" to everything else.
fn router(pipeline: &'static str, parameters: Value) -> Server {
    Server::by(move |seen, number| match (seen.body["model"].as_str(), number) {
        (Some("m-lite"), 0) => Reply::json(&json!({ "pipeline": pipeline })),
        (Some("m-lite"), _) => Reply::json(&parameters),
        _ => Reply::says("done"),
    })
}

fn last(server: &Server) -> Seen {
    server.seen().pop().expect("a model was asked")
}

/// a request that matches no pipeline continues in skill mode where there is a SKILL.md; the routing call counts.
#[test]
fn a_request_that_fits_nothing_is_followed_up_in_skill_mode() {
    let server = router("none", json!({}));
    let test = greeter(&server);
    test.run(&["run", "book me a flight", "--router", "llm", "--format", "json"])
        .stderr_has("note: no pipeline fits the request; following SKILL.md")
        .output("done")
        .has("/mode", "skill")
        .has("/pipeline", Value::Null)
        .has("/usage/calls", 2)
        .steps(&["helper succeeded 1"]);
    let seen = last(&server);
    assert_eq!((seen.system(), seen.request()), ("You help with greetings.".into(), "book me a flight".into()));
    assert_eq!(test.ledger(), Vec::<String>::new());
}

/// errors in a pipeline that might have matched are reported before SKILL.md is followed.
#[test]
fn pipelines_with_errors_are_reported_before_the_skill_is_followed() {
    let server = router("none", json!({}));
    let test = greeter(&server).yaml("fly", "name: fly\ndescription: Book a flight.\n");
    test.run(&["run", "book me a flight", "--router", "llm", "--format", "json"])
        .stderr_has("hint: `fly` was not considered, because it has errors: etude check")
        .output("done");
}

/// a missing required value leads to skill mode where there is a SKILL.md.
#[test]
fn a_parameter_that_the_request_does_not_state_leads_to_skill_mode() {
    let server = router("greet", json!({"name": null}));
    let test = greeter(&server);
    test.run(&["run", "greet somebody", "--router", "llm", "--format", "json"])
        .stderr_has("the request lacks required parameters of `greet`; following SKILL.md")
        .output("done")
        .has("/mode", "skill")
        .has("/usage/calls", 3);
    assert_eq!(test.ledger(), Vec::<String>::new());
}

/// a named pipeline or a typed parameter is a choice: a missing or wrong value is then an error.
#[test]
fn what_was_typed_does_not_fall_back() {
    for more in [&["-p", "greet"][..], &["-i", "nmae=Ada"], &["--input", "{\"nmae\":\"Ada\"}"]] {
        let server = router("greet", json!({"name": null}));
        let test = greeter(&server);
        let ran = test.run(&[&["run", "greet somebody", "--router", "llm", "--format", "json"], more].concat());
        ran.exit(2).has("/errors/0/kind", "input_invalid").has("/mode", "pipeline");
        assert_eq!(test.ledger(), Vec::<String>::new(), "{more:?}");
    }
}

/// only an input mismatch falls back; a step failure never does.
#[test]
fn a_step_that_fails_does_not_fall_back() {
    let server = router("p", json!({}));
    let test = Test::new().skill("", "Help.\n").pipeline("p", |p| p.sh("a", "exit 3")).model(&server);
    test.run(&["run", "do p", "--router", "llm", "--format", "json"])
        .exit(1)
        .has("/mode", "pipeline")
        .failed_with(&["business a: step_failed"]);
    assert!(server.seen().iter().all(|seen| seen.body["model"] == "m-lite"), "no agent was asked");
}

/// an app may be a SKILL.md and nothing else; there is then no routing.
#[test]
fn an_app_may_be_a_skill_and_nothing_else() {
    let server = Server::agent([]);
    let test = app(&server);
    test.run(&["run", "say done", "--format", "json"]).output("done").has("/mode", "skill").has("/usage/calls", 1);
    assert_eq!(last(&server).body["model"], "m-std");
}

/// `--skill` selects skill mode whatever pipelines there are.
#[test]
fn skill_mode_can_be_asked_for() {
    let server = Server::agent([]);
    greeter(&server).follow("greet Ada", &[]).output("done").has("/mode", "skill").has("/usage/calls", 1);
}

/// without a SKILL.md there is no skill mode, and the error lists the pipelines.
#[test]
fn without_a_skill_there_is_no_skill_mode() {
    let server = Server::agent([]);
    let test = Test::new().pipeline("audit", |p| p.note("a", "1")).model(&server);
    test.follow("audit", &[])
        .exit(2)
        .stderr_has("this app has no SKILL.md, so there is no skill mode")
        .stderr_has("pipelines of this app: audit");
    assert_eq!(server.calls(), 0);
}

/// the body of SKILL.md is the system prompt, unchanged: neither templates nor frontmatter.
#[test]
fn the_body_is_the_system_prompt_as_it_stands() {
    let server = Server::agent([]);
    let body = "# Helper\n\nUse {{input.name}} and ${HOME} as *text*.\n\n---\n\n    indented\nümlaut";
    let test = Test::new().skill("license: MIT\n", &format!("\n{body}\n\n")).model(&server);
    test.follow("go", &[]).output("done");
    assert_eq!(last(&server).system(), body);
}

/// values given besides the request reach the model as they were typed.
#[test]
fn parameters_are_part_of_what_is_asked() {
    let server = Server::agent([]);
    app(&server).follow("greet", &["-i", "name=Ada {{x}}", "--input", "{\"n\":1}"]).output("done");
    assert_eq!(last(&server).request(), "greet\n\nInput: {\"n\":1}\n\nname: Ada {{x}}");
    app(&server).follow("greet", &["--input", "{"]).exit(2).stderr_has("`--input` is not JSON");
}

/// tools are called and the model receives their results, in each of the four forms of API.
#[test]
fn tools_are_called_through_every_api() {
    for (kind, model) in
        [("anthropic", "claude-x"), ("openai", "gpt-x"), ("gemini", "gemini-x"), ("openai-compatible", "m")]
    {
        let server = Server::by(|seen, _| match seen.body.to_string().contains("forty-two") {
            false => Reply::call("Read", json!({"path": "note.txt"})),
            true => Reply::says("read it"),
        });
        let url = server.url();
        let config = format!(
            "model_mapping: {{standard: x/{model}}}\nproviders: {{x: {{kind: {kind}, base_url: \"{url}/v1\", api_key: k}}}}\n"
        );
        let test = Test::new().skill("", "Read.\n").file("note.txt", "forty-two\n").user_config(&config);
        let ran = test.follow("read the note", &[]);
        assert_eq!(ran.at("/output"), "read it", "{kind}: {}", ran.err());
        assert_eq!(server.calls(), 2, "{kind}");
    }
}

/// `allowed-tools` narrows the listed and the permitted tools, as text and as a list.
#[test]
fn allowed_tools_narrow_what_may_be_called() {
    for allowed in ["allowed-tools: Read, Bash(echo *)\n", "allowed-tools:\n  - Read\n  - Bash(echo *)\n"] {
        let server = Server::agent([
            Reply::bash("echo hi"),
            Reply::bash("touch made"),
            Reply::call("Write", json!({"path": "made"})),
        ]);
        let test = Test::new().skill(allowed, "Work.\n").model(&server);
        test.follow("go", &["--yolo"]).output("done");
        let seen = last(&server);
        assert_eq!(seen.tools(), ["Read", "Bash"], "{allowed}");
        let results = seen.results();
        assert_eq!(results[0].trim(), "hi");
        assert!(results[1].contains("allowed tools"), "{results:?}");
        assert!(results[2].contains("there is no tool of that name; there are Bash, Read"), "{results:?}");
        assert!(!test.path("app/made").exists());
    }
}

/// C-3.1: `disallowed-tools` takes tools and calls away, and leaves all others.
#[test]
fn disallowed_tools_are_taken_away() {
    let server = Server::agent([Reply::bash("echo hi"), Reply::bash("touch made")]);
    let test = Test::new().skill("disallowed-tools: Write, Edit, Bash(touch *)\n", "Work.\n").model(&server);
    test.follow("go", &["--yolo"]).output("done");
    let seen = last(&server);
    assert_eq!(seen.tools(), ["Read", "Glob", "Grep", "List", "Bash"]);
    let results = seen.results();
    assert_eq!(results[0].trim(), "hi");
    assert!(results[1].contains("allowed tools"), "{results:?}");
    assert!(!test.path("app/made").exists());
}

/// without `allowed-tools`, all available tools are listed: built-in tools, then the app's.
#[test]
fn without_a_list_all_tools_are_listed() {
    let server = Server::agent([]);
    Test::new()
        .skill("", "Work.\n")
        .file("tools/count.sh", "#!/bin/sh\n# Counts.\n")
        .executable("tools/count.sh")
        .model(&server)
        .follow("go", &[])
        .output("done");
    assert_eq!(last(&server).tools(), ["Read", "Write", "Edit", "Glob", "Grep", "List", "Bash", "count"]);
}

/// tools of the app, one with a description in YAML and one that is a script, receive JSON and return JSON.
#[test]
fn tools_of_the_app_get_json_and_give_json() {
    let sidecar = "name: add\ndescription: Adds two numbers.\ncommand: sh tools/add.sh\ngated: false\n\
                   inputSchema: {type: object, required: [a, b], properties: {a: {type: integer}, b: {type: integer}}}\n";
    let add = "cat > \"$ROOT/add.json\"; echo '{\"ok\":true,\"value\":5}'\n";
    let fails = "#!/bin/sh\n# Fails.\necho '{\"ok\":false,\"error\":{\"class\":\"ToolTerminal\",\"code\":\"Broken\",\"message\":\"no luck\"}}'\n";
    let server = Server::agent([
        Reply::call("add", json!({"a": 2, "b": 3})),
        Reply::call("add", json!({"a": "two"})),
        Reply::call("fails", json!({})),
    ]);
    let test = Test::new()
        .skill("", "Add.\n")
        .file("tools/add.yaml", sidecar)
        .file("tools/add.sh", add)
        .file("tools/fails.sh", fails)
        .executable("tools/fails.sh")
        .model(&server);
    test.follow("go", &["--yolo"]).output("done");
    let stdin: Value = serde_json::from_str(&test.read("add.json")).expect("stdin is one document");
    assert_eq!((&stdin["tool"], &stdin["args"]), (&json!("add"), &json!({"a": 2, "b": 3})));
    let seen = last(&server);
    assert_eq!(seen.body["tools"][7]["function"]["description"], "Adds two numbers.");
    let results = seen.results();
    assert_eq!(results[0], "5");
    assert!(results[1].contains("InputInvalid"), "{results:?}");
    assert!(results[2].contains("Broken") && results[2].contains("no luck"), "{results:?}");
}

/// files outside the app are out of reach, by `..`, by an absolute path, and through symbolic links.
#[test]
fn files_outside_the_app_are_out_of_reach() {
    let server = Server::agent([
        Reply::call("Read", json!({"path": "../secret.txt"})),
        Reply::call("Read", json!({"path": "/etc/passwd"})),
        Reply::call("Read", json!({"path": "link.txt"})),
        Reply::call("List", json!({"path": "out"})),
        Reply::call("Write", json!({"path": "out/made.txt", "content": "x"})),
        Reply::call("Grep", json!({"pattern": "hidden"})),
    ]);
    let test = app(&server);
    test.put("secret.txt", "hidden words\n");
    symlink(test.path("secret.txt"), test.path("app/link.txt")).expect("a link can be made");
    symlink(test.path("elsewhere"), test.path("app/out")).expect("a link can be made");
    test.follow("go", &["--yolo"]).output("done");
    let seen = last(&server);
    let results = seen.results();
    for result in &results[..5] {
        assert!(result.contains("PathRefused") && result.contains("outside the folders that tools may"), "{result}");
    }
    assert!(!seen.body["messages"].to_string().contains("hidden words"), "{results:?}");
    assert!(!test.path("elsewhere/made.txt").exists());
}

/// `--read` and `--write` grant folders, relative to the current directory; `--read` does not permit writes.
#[test]
fn folders_can_be_granted() {
    let server = Server::agent([
        Reply::call("Read", json!({"path": "../elsewhere/a.txt"})),
        Reply::call("Write", json!({"path": "../elsewhere/b.txt", "content": "x"})),
        Reply::call("Write", json!({"path": "../out/b.txt", "content": "written\n"})),
    ]);
    let test = app(&server).cwd("out");
    test.put("elsewhere/a.txt", "granted words\n");
    test.follow("go", &["--yolo", "--read", "../elsewhere", "--write", ".", "--app", "../app"]).output("done");
    let results = last(&server).results();
    assert!(results[0].contains("granted words"), "{results:?}");
    assert!(results[1].contains("PathRefused"), "{results:?}");
    assert_eq!(test.read("out/b.txt"), "written\n");
    assert!(!test.path("elsewhere/b.txt").exists());
    test.follow("go", &["--read", "nowhere", "--app", "../app"])
        .exit(2)
        .stderr_has("cannot open the directory `nowhere`");
}

/// skill mode runs without constructor and destructor, even where those are wrong.
#[test]
fn constructor_and_destructor_do_not_run() {
    let server = Server::agent([]);
    let test = app(&server)
        .pipeline("_constructor", |p| p.note("c", "1"))
        .pipeline("_destructor", |p| p.note("d", "1"))
        .pipeline("p", |p| p.note("a", "1"));
    test.follow("go", &[]).output("done").steps(&["helper succeeded 1"]);
    assert_eq!(test.ledger(), Vec::<String>::new());
}

/// other available skills are listed by name and description, and read on demand; those found only in the project wait
/// for trust.
#[test]
fn other_skills_are_listed_and_read_on_demand() {
    let skill = |name: &str| format!("---\nname: {name}\ndescription: About {name}.\n---\nThe text of {name}.\n");
    let server = Server::agent([
        Reply::call("activate_skill", json!({"name": "poems"})),
        Reply::call("activate_skill", json!({"name": "odes"})),
    ]);
    let test = app(&server).file(".agents/skills/odes/SKILL.md", &skill("odes"));
    test.put("home/.agents/skills/poems/SKILL.md", &skill("poems"));
    test.follow("go", &[]).output("done");
    let seen = last(&server);
    let (system, results) = (seen.system(), seen.results());
    assert!(system.starts_with("Be brief.") && system.contains("About poems."), "{system}");
    assert!(!system.contains("The text of") && !system.contains("odes"), "{system}");
    assert!(results[0].contains("The text of poems."), "{results:?}");
    assert!(!results[1].contains("The text of odes."), "{results:?}");
}

/// read-only calls run in parallel; calls that change something run alone and in order.
#[test]
fn what_changes_things_runs_alone_and_in_order() {
    let line = |n: u8| {
        (
            "Bash",
            json!({"command": format!("echo +{n} >> \"$LEDGER\"; sleep 0.0{}; echo -{n} >> \"$LEDGER\"", 9 - 2 * n)}),
        )
    };
    let server = Server::agent([Reply::calls([line(1), line(2), line(3)])]);
    let test = app(&server);
    test.follow("go", &["--yolo"]).output("done");
    assert_eq!(test.ledger(), ["+1", "-1", "+2", "-2", "+3", "-3"]);
    assert_eq!(last(&server).results().len(), 3);
}

/// errors in SKILL.md are reported with their place, and no model is called.
#[test]
fn a_broken_skill_is_reported_with_its_place() {
    let server = Server::agent([]);
    let test = Test::new().file("SKILL.md", "---\nname: [unclosed\n---\nBe brief.\n").model(&server);
    let ran = test.follow("go", &[]).exit(3);
    assert!(ran.err().contains("SKILL.md:2"), "{}", ran.err());
    let checked = test.run(&["check"]).exit(3);
    assert!(checked.err().contains("SKILL.md:2"), "{}", checked.err());
    assert_eq!(server.calls(), 0);
}

/// `--dry-run` describes what skill mode would do, and calls no model.
#[test]
fn a_dry_run_says_what_would_be_followed() {
    let server = Server::agent([]);
    let test = Test::new().skill("allowed-tools: Read Grep\n", "Be brief.\n").model(&server);
    let ran = test.run(&["run", "--skill", "look around", "--dry-run"]).exit(0).stderr_has("nothing was run");
    for part in ["skill `helper`", "Read", "Grep", "look around", "at most 50 turns"] {
        assert!(ran.out().contains(part), "{part}: {}", ran.out());
    }
    assert_eq!(server.calls(), 0);
}

/// cli: an empty request is wrong usage; no model is paid for it.
#[test]
fn an_empty_request_is_wrong_usage() {
    let server = Server::new([Reply::says("done")]);
    let test = Test::new().skill("", "Be brief.\n").model(&server);
    for args in [&["run", ""][..], &["run", "--skill", " "]] {
        test.run(args).exit(2).stderr_has("the request is empty");
    }
    assert_eq!(server.calls(), 0);
}
