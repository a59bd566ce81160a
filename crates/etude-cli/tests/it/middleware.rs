//! Middleware of runs and skills: observers, reports, values provided later, and parts of a run's definition.

use serde_json::{Value, json};

use crate::cascade::{self, main_skill, tool};
use crate::test::{Test, binary, noting};

/// A project whose main skill has this metadata.
fn project(metadata: Value) -> Test {
    let test = cascade::project();
    main_skill(&test, metadata);
    test
}

/// D-4.7, D-15: `$hook` calls a skill before and after every entry of a chain, exceptions included.
#[test]
fn hooks_look_on() {
    let test = project(json!({"$hook": "watch", "$static": true, "$dynamic": "execute"}));
    let reported = "printf '%s' \"$in\" | grep -o '\"phase\":\"[a-z]*\"' | head -1 >> \"$LEDGER\"; echo '{\"result\": \"nothing\"}'";
    tool(&test, "watch", &json!({"params": {"type": "object"}}), reported);
    tool(&test, "greet", &json!({}), "echo greet >> \"$LEDGER\"; echo '{\"result\": 1}'");
    tool(&test, "fails", &json!({}), "exit 3");
    assert_eq!(test.run(&["skill", "run", "greet"]).exit(0).value(), json!(1));
    assert_eq!(test.ledger(), ["\"phase\":\"before\"", "greet", "\"phase\":\"after\""]);
    test.run(&["skill", "run", "fails"]).exit(1);
    assert_eq!(test.ledger()[3..], ["\"phase\":\"before\"", "\"phase\":\"error\""]);
}

/// D-X05, D-7.5: middleware that cleans up and fails silently passes the exception on; one that prints a message, or that
/// returns a value in spite of it, does not.
#[test]
fn a_silent_end_passes_the_throw_on() {
    let e = binary();
    let layered = |after: &str| {
        let test = project(json!({"around": true}));
        let script = format!("{e} host next >/dev/null 2>&1; ended=$?; echo cleaned >> \"$LEDGER\"\n{after}");
        tool(&test, "around", &json!({"role": "middleware"}), &script);
        tool(&test, "greet", &json!({}), "echo boom >&2; exit 3");
        let ran = test.run(&["skill", "run", "greet", "--format", "json"]);
        assert_eq!(test.ledger(), ["cleaned"]);
        ran
    };
    let last = |ran: crate::ran::Ran| ran.exit(1).err().trim_end().lines().last().unwrap_or_default().to_owned();
    assert_eq!(last(layered("exit $ended")), "error: boom");
    assert_eq!(last(layered("echo mine >&2; exit 4")), "error: mine");
    assert_eq!(layered("echo '{\"result\": 2}'").exit(0).value()["result"], json!(2));
}

/// D-3.3, D-2.3, D-10: arguments are checked against a part of a schema that a tool provides.
#[test]
fn schemas_may_be_given_by_tools() {
    let test = project(json!({}));
    tool(&test, "regions", &json!({}), "echo '{\"result\": {\"enum\": [\"eu\", \"us\"]}}'");
    let params = json!({"type": "object", "properties": {"region": {"$resolve": "regions"}}});
    tool(&test, "deploy", &json!({"params": params}), "echo '{\"result\": \"done\"}'");
    let lost = json!({"type": "object", "properties": {"region": {"$resolve": "nobody"}}});
    tool(&test, "lost", &json!({"params": lost}), "echo '{\"result\": \"done\"}'");
    assert_eq!(test.run(&["skill", "run", "deploy", "--arg", "region=eu"]).exit(0).value(), json!("done"));
    let refused = test.run(&["skill", "run", "deploy", "--arg", "region=mars"]);
    assert!(
        refused.code() == 2 && refused.err().contains("the arguments of `deploy` are not valid"),
        "{}",
        refused.err()
    );
    assert!(test.run(&["skill", "run", "lost"]).exit(2).err().contains("skill not found: `nobody`"));
}

/// D-15: a queue holds events until a reader waits for them; an event that is put back comes again; waiting ends.
#[test]
fn queues_hold_events() {
    let test = project(json!({}));
    let script = format!(
        "invoke() {{ {} host invoke \"$1\" --args \"$2\" || exit 1; }}\n\
         invoke event-emit '{{\"topic\": \"t\", \"data\": 0}}' > id\n\
         invoke event-subscribe '{{\"topic\": \"t\", \"replay\": true}}' > /dev/null\n\
         invoke event-emit '{{\"topic\": \"t\", \"data\": 1}}' > /dev/null\n\
         first=$(invoke event-wait '{{\"topic\": \"t\"}}')\n\
         second=$(invoke event-wait '{{\"topic\": \"t\", \"ack\": false}}')\n\
         id=$(printf '%s' \"$second\" | grep -o '\"id\": *\"[a-z0-9]*\"' | grep -o '[a-z0-9]*\"$' | tr -d '\"')\n\
         invoke event-ack \"{{\\\"id\\\": \\\"$id\\\", \\\"nack\\\": true}}\" > /dev/null\n\
         again=$(invoke event-wait '{{\"topic\": \"t\"}}')\n\
         none=$(invoke event-wait '{{\"topic\": \"t\", \"timeout\": 20}}')\n\
         printf '{{\"result\": [%s, %s, %s, %s]}}' \"$first\" \"$second\" \"$again\" \"$none\"",
        binary()
    );
    tool(&test, "talk", &json!({}), &script);
    let ran = test.run(&["skill", "run", "talk"]);
    let found = ran.value();
    let data: Vec<&Value> = found.as_array().unwrap().iter().map(|event| &event["data"]).collect();
    assert_eq!(data, [&json!(0), &json!(1), &json!(1), &Value::Null], "{found} {}", ran.err());
    assert_eq!((&found[0]["topic"], &found[1]["id"]), (&json!("t"), &found[2]["id"]));
    assert!(found[3].is_null());
}

/// D-15: values that skills write into handlers, times and `globals` break nothing.
#[test]
fn odd_events_break_nothing() {
    let e = binary();
    let test = project(json!({"event": {"odd": [{"ref": "hears", "args": "text"}]}}));
    tool(&test, "hears", &json!({"params": {"type": "object"}}), "echo heard >> \"$LEDGER\"; echo '{}'");
    tool(
        &test,
        "speaks",
        &json!({}),
        &format!(
            "{e} host emit odd 1\n{e} host set globals.internals 5\n{e} host emit odd 2\n\
             {e} host invoke event-subscribe --args '{{\"topic\": \"odd\", \"ref\": \"hears\"}}' >/dev/null\n{e} host emit odd 3\n\
             {e} host invoke event-subscribe --args '{{\"topic\": \"much\"}}' >/dev/null\n{e} host emit much 1\n\
             {e} host invoke event-wait --args '{{\"topic\": \"much\", \"timeout\": 1e30}}' >/dev/null || exit 1\n\
             echo '{{\"result\": \"spoke\"}}'"
        ),
    );
    assert_eq!(test.run(&["skill", "run", "speaks"]).exit(0).value(), json!("spoke"));
    assert_eq!(test.ledger(), ["heard", "heard"]);
}

/// D-15, cli: a run waits for a handler that never ends until the user stops it.
#[test]
fn a_handler_that_hangs_can_be_given_up() {
    let e = binary();
    let test = Test::new()
        .file(
            "app.skill.md",
            "---\nname: app\nmetadata: {role: main, paths: [./skills], tells: {}, event: {odd: waits}}\n---\n",
        )
        .file("skills/tells.skill.md", "---\nname: tells\ncommand: sh tells.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/tells.sh", &format!("cat >/dev/null; {e} host emit odd 1\n"))
        .file(
            "skills/waits.skill.md",
            "---\nname: waits\ncommand: sh waits.sh\nmetadata: {reports: null, params: {type: object}}\n---\n",
        )
        .file("skills/waits.sh", "cat >/dev/null; echo waits >> \"$LEDGER\"; sleep 600\n")
        .pipeline("p", |p| p.note("a", "1"));
    let child = test.start(&["run", "-p", "p", "--format", "jsonl"]);
    crate::test::wait_until("the handler", || test.ledger().contains(&"waits".to_owned()));
    crate::test::wait_until("the end of the step", || child.stdout_so_far().contains("\"step_ended\""));
    child.interrupt();
    let lines = child.finish().exit(0).lines();
    assert_eq!(lines.last().map(|line| &line["output"]), Some(&json!(1)));
}

/// D-9.1, D-F04: a file may have several skills, with separate names and addresses.
#[test]
fn one_of_several_skills_in_a_file_is_called() {
    let test = project(json!({}));
    let one = |name: &str, n: u32| {
        test.put(&format!("project/skills/{name}.sh"), &format!("echo '{{\"result\": {n}}}'\n"));
        format!("---\nname: {name}\ncommand: sh {name}.sh\n---\nText.\n")
    };
    test.put("project/skills/multi.skill.md", &(one("one", 1) + &one("two", 2)));
    let whole = format!("file://{}#two", test.path("project/skills/multi.skill.md").display());
    for reference in ["two", "./skills/multi.skill.md#two", &whole] {
        assert_eq!(test.run(&["skill", "run", reference]).exit(0).value(), json!(2), "{reference}");
    }
    assert_eq!(test.run(&["skill", "run", "./skills/multi.skill.md"]).exit(0).value(), json!(1));
    test.run(&["skill", "run", "./skills/multi.skill.md#three"]).exit(2);
}

/// D-9.1, D-9.3, D-F05: a skill that is written while another runs is found.
#[test]
fn a_skill_that_is_written_later_is_found() {
    let test = project(json!({}));
    let script = format!(
        "mv late.txt late.skill.md\nr=$({} host invoke late) || exit 1\nprintf '{{\"result\": %s}}' \"$r\"",
        binary()
    );
    tool(&test, "writer", &json!({}), &script);
    test.put("project/skills/late.txt", "---\nname: late\ncommand: sh late.sh\n---\n");
    test.put("project/skills/late.sh", "echo '{\"result\": 3}'\n");
    let ran = test.run(&["skill", "run", "writer"]);
    assert_eq!(ran.value(), json!(3), "{}", ran.err());
}

/// D-9.4, D-0.1.1: the project is found from a directory below it, with its main skill, whose `paths` apply at once.
#[test]
fn the_project_is_found_from_below() {
    let test = project(json!({"mark": {}})).cwd("project/deep/below");
    let config = format!("echo \"{{\\\"result\\\": $({} host get globals.config)}}\"", binary());
    tool(&test, "greet", &json!({}), &config);
    tool(&test, "mark", &json!({"role": "middleware"}), "echo mark >> \"$LEDGER\"");
    let ran = test.run(&["skill", "run", "greet"]);
    let found = ran.value();
    assert_eq!((&found["mainTool"], &found["library"]), (&json!("app"), &json!("library:")), "{found} {}", ran.err());
    assert_eq!(found["cwd"], json!("[ROOT]/project"));
    assert_eq!(test.ledger(), ["mark"]);
}

/// D-10, D-X11, D-0.1.5: a code tool with a result calls no model; an entry of a chain is not checked itself.
#[test]
fn code_asks_no_model_and_entries_are_not_checked() {
    let server = crate::server::Server::new([]);
    let test = project(json!({"mark": {}})).model(&server);
    let strict =
        json!({"role": "middleware", "params": {"type": "object", "required": ["x"]}, "returns": {"type": "number"}});
    tool(&test, "mark", &strict, "echo mark >> \"$LEDGER\"");
    tool(&test, "greet", &json!({}), "echo '{\"result\": \"hi\"}'");
    assert_eq!(test.run(&["skill", "run", "greet"]).exit(0).value(), json!("hi"));
    assert_eq!((test.ledger(), server.seen().len()), (vec!["mark".to_owned()], 0));
}

/// D-16, D-L04, D-L05: reports are selected by level and scope; `--log` alone lists both and calls nothing.
#[test]
fn what_is_reported_is_chosen() {
    let test = project(json!({}));
    tool(
        &test,
        "greet",
        &json!({}),
        &format!(
            "{} host log info hello; {0} host log debug details; {0} host log trace 'every bit'; {0} host emit t 1; echo ran >> \"$LEDGER\"",
            binary()
        ),
    );
    let err = |args: &[&str]| test.run(&[&["skill", "run", "greet"], args].concat()).exit(0).err().to_owned();
    assert!(err(&[]).contains("info: greet: hello") && !err(&[]).contains("started"));
    assert!(!err(&["--log", "level=warn"]).contains("hello") && !err(&["-q"]).contains("hello"));
    let all = err(&["-v"]);
    assert!(all.contains("started greet") && all.contains("emitted") && all.contains("hello"), "{all}");
    assert!(!all.contains("details") && err(&["-vvv"]).contains("debug: greet: details"));
    assert!(!err(&["-vvv"]).contains("every bit") && err(&["-vvvv"]).contains("trace: greet: every bit"));
    let events = err(&["--log", "events"]);
    assert!(events.contains("emitted") && !events.contains("started greet") && !events.contains("hello"), "{events}");
    let documents =
        |text: &str| text.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect::<Vec<_>>();
    let json = err(&["--log", "reporter=json", "--log", "level=debug"]);
    let logged: Vec<Value> = documents(&json).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let texts: Vec<&Value> = logged.iter().filter(|line| line["event"] == "log").map(|line| &line["text"]).collect();
    assert_eq!(texts, [&json!("hello"), &json!("details")], "{json}");
    assert!(!json.contains("info: greet"), "{json}");
    let reported = err(&["--log", "reporter=events", "-v"]);
    assert!(reported.contains("emitted") && !reported.contains("started greet"), "{reported}");
    let before = test.ledger().len();
    let listed = test.run(&["skill", "run", "greet", "--log"]).exit(0);
    assert!(listed.out().contains("levels: trace, debug") && listed.out().contains("pipeline"), "{}", listed.out());
    assert_eq!(test.run(&["skill", "run", "--log"]).exit(0).out(), listed.out());
    let document = test.run(&["skill", "run", "--log", "--format", "json"]).exit(0).doc();
    assert_eq!((&document["levels"][0], document["scopes"].get("pipeline").is_some()), (&json!("trace"), true));
    assert_eq!(test.ledger().len(), before);
    test.run(&["skill", "run", "--log", "level=warn"]).exit(2).stderr_has("name the skill to run");
    test.run(&["skill", "run"]).exit(2);
    assert!(
        test.run(&["skill", "run", "greet", "--log", "level=loud"]).exit(2).err().contains("`loud` is not a level")
    );
    assert!(
        test.run(&["skill", "run", "greet", "--log", "reporter=loud"])
            .exit(2)
            .err()
            .contains("`loud` is not a reporter")
    );
    let test = project(json!({"log": {"reporter": "json", "level": "debug", "scope": "tools"}}));
    tool(&test, "greet", &json!({}), &format!("{} host log debug details", binary()));
    let declared = test.run(&["skill", "run", "greet"]).exit(0);
    assert_eq!(documents(declared.err()).len(), 1, "{}", declared.err());
}

/// D-4.2, F-06: several skill files in a project's directory without a main skill cause a warning.
#[test]
fn a_project_without_one_main_skill_is_warned_of() {
    let test = cascade::project();
    for name in ["a", "b"] {
        test.put(&format!("project/{name}.skill.md"), &format!("---\nname: {name}\nmetadata: {{}}\n---\n"));
    }
    test.run(&["skill", "explain", "a"]).stderr_has("declares itself as the main skill");
    // A directory of skills need not be a project, but two main skills are wrong in either.
    assert!(!test.run(&["check"]).exit(0).err().contains("main skill"));
    for name in ["a", "b"] {
        let main = format!("---\nname: {name}\nmetadata: {{role: main}}\n---\n");
        test.put(&format!("project/{name}.skill.md"), &main);
    }
    test.run(&["check"]).exit(3).stderr_has("main skill");
}

/// D-11: nothing evaluates expressions (`Evaluation::Off`): `:eval` stays as written.
#[test]
fn nothing_is_evaluated() {
    let server = crate::server::Server::new([crate::server::Reply::says("done")]);
    let test = project(json!({})).model(&server);
    test.put("project/skills/ask.skill.md", "---\nname: ask\n---\n\nWhat is :eval[1+1]?\n");
    test.run(&["skill", "run", "ask"]).exit(0);
    assert!(server.seen()[0].body.to_string().contains("What is :eval[1+1]?"));
}

/// D-7: the middleware that a run passes is part of its definition, with its scripts: a resume notices an edit.
#[test]
fn middleware_belongs_to_the_definition_of_a_run() {
    let hold = format!("{}; while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{{\"output\":2}}'", noting("hold"));
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], mark: {}}\n---\n")
        .file("skills/mark.skill.md", "---\nname: mark\ncommand: sh mark.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/mark.sh", "cat >/dev/null\n")
        .file("skills/other.skill.md", "---\nname: other\ncommand: sh other.sh\n---\n")
        .file("skills/other.sh", "true\n")
        .pipeline("p", |p| p.sh("hold", &hold));
    let running = test.start(&["run", "-p", "p", "--format", "json"]);
    test.wait_for("hold");
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    test.put("go", "");
    let resume = |more: &[&str]| test.run(&[&["runs", "resume", &id, "--format", "json"], more].concat());
    test.put("app/skills/other.sh", "false\n");
    test.put("app/skills/mark.sh", "cat >/dev/null; true\n");
    let refused = test.run(&["runs", "resume", &id]).exit(3);
    assert!(refused.err().contains("changed skills/mark.sh") && !refused.err().contains("other"), "{}", refused.err());
    resume(&["--accept-changes"]).output(2);
}

/// D-7: a program of middleware belongs to its run: its key is that of the step, the same after a resume, and one that
/// outlived its runner is killed before its step runs again.
#[test]
fn programs_of_middleware_belong_to_their_run() {
    let mark = "cat >/dev/null\necho $$ >> \"$ROOT/pids\"\necho \"$ETUDE_EFFECT_ID\" >> \"$LEDGER\"\n[ -e \"$ROOT/go\" ] || exec sleep 300\n";
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], mark: {}}\n---\n")
        .file("skills/mark.skill.md", "---\nname: mark\ncommand: sh mark.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/mark.sh", mark)
        .pipeline("p", |p| p.sh("a", "echo \"$ETUDE_EFFECT_ID\" >> \"$LEDGER\"; echo '{\"output\":2}'"));
    let running = test.start(&["run", "-p", "p", "--format", "json"]);
    crate::test::wait_until("the layer", || !test.ledger().is_empty());
    let id = test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    running.kill();
    test.put("go", "");
    test.run(&["runs", "resume", &id, "--format", "json"]).output(2);
    let layer = format!("{id}/p/a~mark");
    assert_eq!(test.ledger(), [layer.clone(), layer, format!("{id}/p/a")]);
    #[cfg(target_os = "linux")]
    {
        let pid = test.read("pids").lines().next().map(str::to_owned).expect("a process");
        let is_alive = std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        assert!(!is_alive, "process {pid} of the dead runner goes on");
    }
}

/// two calls of one command are two effects, also for the middleware around them.
#[test]
fn middleware_of_two_calls_of_one_command_has_keys_of_its_own() {
    let mark = "cat >/dev/null\necho \"$ETUDE_EFFECT_ID\" >> \"$LEDGER\"\n";
    let call =
        |name: &str| format!("{{name: {name}, type: application, application: echo-box, command: args, args: [x]}}");
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], mark: {}}\n---\n")
        .file("skills/mark.skill.md", "---\nname: mark\ncommand: sh mark.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/mark.sh", mark)
        .pipeline("p", |p| p.step(&format!("{{name: both, type: parallel, steps: [{}, {}]}}", call("a"), call("b"))));
    crate::echo_box::put(&test, crate::echo_box::USER, &[]);
    test.run_json("p").exit(0);
    let mut keys = test.ledger();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 4, "one for the chain of each step, and one for that of each command: {keys:?}");
}

/// D-7.5: middleware that could not call its `next` is not started, and the obstacle is reported.
#[test]
fn a_socket_that_cannot_be_made_is_reported() {
    let long = "long/".repeat(40);
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], around: {}}\n---\n")
        .file("skills/around.skill.md", "---\nname: around\ncommand: sh around.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/around.sh", "echo started >> \"$LEDGER\"\n")
        .file(&format!("{long}here"), "")
        .pipeline("p", |p| p.note("one", "1"));
    let place = test.path(&format!("app/{long}")).display().to_string();
    let test = test.env("TMPDIR", &place);
    let ran = test.run(&["run", "-p", "p", "--format", "json"]).exit(1);
    assert!(ran.err().contains("cannot create its host socket") && ran.err().contains("set TMPDIR"), "{}", ran.err());
    assert_eq!(test.ledger(), Vec::<String>::new());
}
