//! System D through the binary: compiled skill metadata, and calls through the chain.

use serde_json::{Value, json};

use crate::chains::layered;
use crate::server::{Reply, Server};
use crate::skill_runs::is_gone;
use crate::test::{Test, binary, skipped};

/// Cases of the reference; `etude-spec` checks that the copy is exact.
const CASES: &str = include_str!("../../../etude-spec/testdata/cascade.json");

/// A project without an app.
pub(crate) fn project() -> Test {
    Test::new().cwd("project")
}

/// Writes a skill with this JSON as metadata.
fn declared(test: &Test, path: &str, name: &str, metadata: &Value) {
    test.put(&format!("project/{path}"), &format!("---\nname: {name}\nmetadata: {metadata}\n---\n"));
}

/// Writes a code tool: a shell script that has its stdin in `$in`.
pub(crate) fn tool(test: &Test, name: &str, metadata: &Value, script: &str) {
    let text = format!("---\nname: {name}\ncommand: sh {name}.sh\nmetadata: {metadata}\n---\n");
    test.put(&format!("project/skills/{name}.skill.md"), &text);
    test.put(&format!("project/skills/{name}.sh"), &format!("in=$(cat)\n{script}\n"));
}

/// Writes the main skill of the project, with this metadata in addition.
pub(crate) fn main_skill(test: &Test, metadata: Value) {
    let mut all = json!({"role": "main", "paths": ["./skills"]});
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    declared(test, "app.skill.md", "app", &all);
}

/// cli, D-4, D-6: the cases of the reference hold through `etude skill explain`: D-C01, D-C02, D-C03, D-C04, D-C06, D-C07, D-C08, D-C09, D-C11;
/// D-M01, D-M02, D-M03, D-M05, D-M06, D-M07, D-M09; D-P01, D-P02, D-P04; D-R01, D-R03, D-R04, D-R06;
/// D-O01, D-O02, D-O04, D-O05, D-O06, D-O08, D-O09, D-O10, D-O12; D-A01, D-A02, D-A04, D-A06.
#[test]
fn the_cases_of_the_reference_hold() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    for case in cases["cascade"].as_array().unwrap() {
        let test = project();
        let authority = case["authority"].as_object().unwrap();
        for (name, metadata) in case["skills"].as_object().unwrap() {
            // A main skill is the authority for skills below it.
            let path = if authority.contains_key(name) { format!("below/{name}") } else { name.clone() };
            declared(&test, &format!("{path}.skill.md"), name, metadata);
        }
        let mut args = vec!["skill", "explain", case["tool"].as_str().unwrap(), "--format", "json", "--portable-paths"];
        let sets: Vec<String> = case["config"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
            .collect();
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let ran = test.run(&args);
        let (id, expect) = (&case["id"], &case["expect"]);
        if let Some(error) = expect.get("error") {
            assert_eq!(ran.code(), 3, "{id}");
            let found = ran.value();
            let messages: Vec<String> = found["diagnostics"].as_array().unwrap().iter().map(message).collect();
            assert!(messages.contains(&error.as_str().unwrap().to_owned()), "{id}: {messages:?}");
            continue;
        }
        let found = ran.value();
        let places = |value: &Value| {
            let text = value.to_string().replace("\"/proj/", "\"${cwd}/").replace("\"/lib", "\"${library}");
            serde_json::from_str::<Value>(&text).unwrap()
        };
        assert_eq!((&found["levels"], &found["chain"]), (&expect["levels"], &expect["chain"]), "{id}");
        for (key, value) in expect["merged"].as_object().unwrap() {
            assert_eq!(found["merged"][key], places(value), "{id}: {key}");
        }
        for key in expect["absent"].as_array().unwrap() {
            assert!(found["merged"].get(key.as_str().unwrap()).is_none(), "{id}: {key}");
        }
        if let Some(statics) = expect.get("auto_static") {
            assert_eq!(&found["static"], statics, "{id}");
        }
    }
}

fn message(diagnostic: &Value) -> String {
    diagnostic["message"].as_str().unwrap().replace('`', "")
}

/// D-17, D-0.1.7: a rate limit in Python and a redactor in shell work before and after `next`.
#[test]
fn middleware_of_users_refuses_and_changes() {
    let test = project();
    main_skill(
        &test,
        json!({"rate-limit": {"max": 2}, "redact": {}, "$order": {"redact": {"after": ["$pre-execute"]}}}),
    );
    tool(
        &test,
        "greet",
        &json!({"params": {"type": "object"}}),
        r#"echo '{"result": {"text": "hi", "secret": "s3cr3t"}}'"#,
    );
    test.put(
        "project/skills/rate-limit.skill.md",
        "---\nname: rate-limit\ncommand: python3 limit.py\nmetadata: {role: middleware}\n---\n",
    );
    test.put(
        "project/skills/limit.py",
        "import json, os, sys\n\
         most = json.load(sys.stdin)['ctx']['target']['run']['tool']['metadata']['rate-limit']['max']\n\
         count = len(open('count').read()) if os.path.exists('count') else 0\n\
         if count >= most: sys.exit(f'more than {most} calls')\n\
         open('count', 'a').write('.')\n",
    );
    let redact = format!(
        "result=$({} host next) || exit 1\nprintf '{{\"result\": %s}}' \"$result\" | sed s/s3cr3t/***/",
        binary()
    );
    tool(&test, "redact", &json!({"role": "middleware"}), &redact);
    for _ in 0..2 {
        assert_eq!(test.run(&["skill", "run", "greet"]).exit(0).value(), json!({"text": "hi", "secret": "***"}));
    }
    let refused = test.run(&["skill", "run", "greet", "--format", "json"]);
    assert_eq!(refused.code(), 1);
    let document = refused.value();
    assert_eq!(
        (&document["status"], &document["errors"][0]["message"]),
        (&json!("failed"), &json!("more than 2 calls"))
    );
}

/// D-14: the failure of a skill's agent names the skill.
#[test]
fn the_failure_of_an_agent_names_its_skill() {
    let providers =
        "providers: {mock: {kind: openai-compatible, base_url: \"http://127.0.0.1:9/v1\", api_key: \"${env:NO_KEY}\"}}";
    let test = project().user_config(&format!("model_mapping: {{standard: mock/m}}\n{providers}\n"));
    test.put("project/.agents/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies.\n---\nTidy up.\n");
    test.run(&["skill", "run", "tidy"]).exit(4).stderr_has("skill `tidy` got no response");
}

/// D-10, D-X07 to D-X09, D-X11: arguments and results are checked against their schemas; the function does not run for bad
/// arguments, and no agent is called if a function has returned a value: there is no model here.
#[test]
fn arguments_and_results_are_checked() {
    let test = project();
    main_skill(&test, json!({}));
    let params = json!({"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}});
    tool(&test, "strict", &json!({"params": params}), "echo ran >> \"$LEDGER\"; echo '{\"result\": 1}'");
    tool(&test, "plain", &json!({}), "echo '{\"result\": 1}'");
    tool(&test, "text", &json!({"returns": {"type": "number"}}), "echo ran >> \"$LEDGER\"; echo '{\"result\": \"a\"}'");
    assert_eq!(test.run(&["skill", "run", "strict"]).code(), 2);
    test.run(&["skill", "run", "plain", "--arg", "x=1"])
        .exit(2)
        .stderr_has("received `x`; `metadata.params` declares them");
    assert_eq!(test.ledger(), [""; 0]);
    assert_eq!(test.run(&["skill", "run", "strict", "--arg", "x=1"]).exit(0).value(), json!(1));
    let odd = test.run(&["skill", "run", "text"]);
    assert_eq!(odd.code(), 1);
    assert!(odd.err().contains("the result of `text` is not valid"), "{}", odd.err());
    assert_eq!(test.ledger(), ["ran", "ran"]);
}

/// D-0.1.12, D-2g: an invalid schema is an error of the definition, which ends the call before the function runs; a schema from
/// another tool is known only then.
#[test]
fn schemas_that_are_none_end_a_call_before_its_function() {
    let test = project();
    main_skill(&test, json!({}));
    let script = "echo ran > ran.txt; echo '{\"result\": 1}'";
    tool(&test, "written", &json!({"returns": {"type": "strin"}}), script);
    tool(&test, "given", &json!({"returns": {"$resolve": "kind"}}), script);
    tool(&test, "kind", &json!({}), "echo '{\"result\": {\"type\": \"strin\"}}'");
    for name in ["written", "given"] {
        let ran = test.run(&["skill", "run", name]);
        assert!(
            ran.code() == 3 && ran.err().contains(&format!("`returns` of `{name}` is not a JSON Schema")),
            "{}",
            ran.err()
        );
        assert!(!test.path("project/skills/ran.txt").exists(), "{name}");
    }
    let explained = test.run(&["skill", "explain", "written"]);
    assert!(explained.code() == 3 && explained.err().contains("written.skill.md:"), "{}", explained.err());
}

/// D-2.1, D-X12: no result is `null` for people and `undefined` in the document; `null` is a result.
#[test]
fn nothing_and_null_are_distinguished() {
    let test = project();
    tool(&test, "nothing", &json!({}), "true");
    tool(&test, "empty", &json!({}), "echo '{}'");
    tool(&test, "null", &json!({}), "echo '{\"result\": null}'");
    tool(&test, "odd", &json!({}), "echo '{\"output\": 1}'");
    for (name, is_undefined) in [("nothing", true), ("empty", true), ("null", false)] {
        let document = test.run(&["skill", "run", name, "--format", "json"]).exit(0).value();
        assert_eq!((&document["result"], &document["undefined"]), (&Value::Null, &json!(is_undefined)), "{name}");
        assert_eq!(test.run(&["skill", "run", name]).exit(0).value(), Value::Null);
    }
    assert!(test.run(&["skill", "run", "odd"]).err().contains("`output`"));
}

/// D-10, D-3.1, D-X13, D-X14, D-X15, D-X16: callers may call what they list, by list or text, with arguments and denials.
#[test]
fn callers_may_call_what_they_list() {
    let test = project();
    tool(&test, "shell", &json!({"params": {"type": "object"}}), "echo '{\"result\": \"ran\"}'");
    tool(&test, "file-read", &json!({}), "echo '{\"result\": \"read\"}'");
    let caller = |name: &str, allowed: &str| {
        let text = format!(
            "---\nname: {name}\ncommand: sh {name}.sh\nallowed-tools: {allowed}\nmetadata: {{params: {{type: object}}}}\n---\n"
        );
        test.put(&format!("project/skills/{name}.skill.md"), &text);
        let script = format!(
            "in=$(cat)\nwhich=$(printf '%s' \"$in\" | sed 's/.*\"which\":\"\\([a-z-]*\\)\".*/\\1/')\n\
             cmd=$(printf '%s' \"$in\" | sed 's/.*\"cmd\":\"\\([a-z-]*\\)\".*/\\1/')\n\
             args='{{}}'; [ \"$which\" = shell ] && args=\"{{\\\"cmd\\\": \\\"$cmd\\\"}}\"\n\
             result=$({} host invoke \"$which\" --args \"$args\") || exit 1\nprintf '{{\"result\": %s}}' \"$result\"\n",
            binary()
        );
        test.put(&format!("project/skills/{name}.sh"), &script);
    };
    caller("files", "\"file-*\"");
    caller("listed", "[file-read, shell]");
    caller("denies", "\"shell(cmd=ls,$deny) shell\"");
    caller("without", "\"*\"\ndisallowed-tools: shell(cmd=ls)");
    let call = |name: &str, which: &str, cmd: &str| {
        test.run(&["skill", "run", name, "--arg", &format!("which={which}"), "--arg", &format!("cmd={cmd}")])
    };
    let refused = call("files", "shell", "ls");
    assert!(refused.code() == 1 && refused.err().contains("`files` may not call `shell`"), "{}", refused.err());
    assert_eq!(call("files", "file-read", "x").exit(0).value(), json!("read"));
    assert_eq!(call("listed", "shell", "ls").exit(0).value(), json!("ran"));
    assert_eq!(call("denies", "shell", "ls").code(), 1);
    assert_eq!(call("denies", "shell", "pwd").exit(0).value(), json!("ran"));
    assert_eq!(call("without", "shell", "ls").code(), 1);
    assert_eq!(call("without", "shell", "pwd").exit(0).value(), json!("ran"));
}

/// D-13, D-X21: without a person to ask, a rule refuses with status 4; `--yolo` passes, except for a denial.
#[test]
fn trust_rules_hold() {
    let test = project();
    let rules = "shell(cmd=rm,$deny) shell file-read($policy=allow)";
    main_skill(&test, json!({"trust": {"rules": rules}}));
    tool(&test, "shell", &json!({"params": {"type": "object"}}), "echo '{\"result\": 1}'");
    tool(&test, "file-read", &json!({}), "echo '{\"result\": 2}'");
    let refused = test.run(&["skill", "run", "shell", "--arg", "cmd=ls"]);
    assert!(refused.code() == 4 && refused.err().contains("no one can be asked"), "{}", refused.err());
    assert_eq!(test.run(&["skill", "run", "shell", "--arg", "cmd=ls", "--yolo"]).exit(0).value(), json!(1));
    assert_eq!(test.run(&["skill", "run", "shell", "--arg", "cmd=rm", "--yolo"]).code(), 4);
    assert_eq!(test.run(&["skill", "run", "file-read"]).exit(0).value(), json!(2));
}

/// D-13: unreadable rules permit nothing: nothing is called, and the expected form of rules is reported.
#[test]
fn trust_rules_that_cannot_be_read_refuse() {
    for trust in [
        json!({"rules": [{"tool": "shell", "policy": "ask"}]}),
        json!({"rules": ["file-read", {"shell": "deny"}]}),
        json!({"rules": {"shell": "deny"}}),
        json!({"rulez": "shell"}),
        json!({"store": "file"}),
        json!([["shell"]]),
        json!(true),
    ] {
        let test = project();
        main_skill(&test, json!({"trust": trust}));
        tool(&test, "shell", &json!({}), "echo ran >> \"$LEDGER\"; echo '{\"result\": 1}'");
        for more in [&[][..], &["--yolo"]] {
            let ran = test.run(&[&["skill", "run", "shell"], more].concat());
            assert_eq!(ran.code(), 4, "{trust} {more:?}: {}", ran.err());
            assert!(ran.err().contains("`trust` is not valid: it needs `rules`"), "{trust}: {}", ran.err());
        }
        assert_eq!(test.ledger(), [""; 0], "{trust}");
    }
    for trust in [json!(null), json!({}), json!({"rules": []}), json!(""), json!(["file-read"])] {
        let test = project();
        main_skill(&test, json!({"trust": trust}));
        tool(&test, "shell", &json!({}), "echo '{\"result\": 1}'");
        assert_eq!(test.run(&["skill", "run", "shell"]).exit(0).value(), json!(1), "{trust}");
    }
}

/// D-13, D-X22: a gateway that is a skill of the project answers; "always" is stored in the file store.
#[test]
fn a_gateway_may_say_yes() {
    let test = project();
    main_skill(&test, json!({"trust": {"rules": "shell", "store": "file"}}));
    tool(&test, "shell", &json!({}), "echo '{\"result\": 1}'");
    tool(
        &test,
        "gateway-receive",
        &json!({"params": {"type": "object"}}),
        "echo asked >> \"$LEDGER\"; echo '{\"result\": \"always\"}'",
    );
    for _ in 0..2 {
        assert_eq!(test.run(&["skill", "run", "shell"]).exit(0).value(), json!(1));
    }
    assert_eq!(test.ledger(), ["asked"]);
    assert_eq!(test.read("project/.etude/trust.json").trim(), "{\"shell\":true}");
}

/// D-13: a decision for a tool without `store: file` ends with the process, whatever other tools store.
#[test]
fn decisions_for_one_process_are_not_kept() {
    let test = project();
    tool(&test, "a", &json!({"trust": {"rules": "a", "store": "file"}}), "echo '{\"result\": 1}'");
    tool(&test, "b", &json!({"trust": {"rules": "b"}}), "echo '{\"result\": 2}'");
    let e = binary();
    let both =
        format!("{e} host invoke a --args '{{}}' && {e} host invoke b --args '{{}}' && echo '{{\"result\": 3}}'");
    tool(&test, "outer", &json!({"allowed-tools": "a b"}), &format!("({both}) | tail -n 1"));
    let gateway = "echo asked >> \"$LEDGER\"; echo '{\"result\": \"always\"}'";
    tool(&test, "gateway-receive", &json!({"params": {"type": "object"}}), gateway);
    for _ in 0..2 {
        test.run(&["skill", "run", "outer"]).exit(0);
    }
    assert_eq!(test.read("project/.etude/trust.json").trim(), "{\"a\":true}");
    assert_eq!(test.ledger(), ["asked", "asked", "asked"]);
}

/// cli, D-8, D-7.1, D-7.3, D-X17, D-X19: a script reads and changes the target, and invokes with `$context`.
#[test]
fn scripts_speak_with_their_host() {
    let test = project();
    let e = binary();
    main_skill(&test, json!({"mark": {"as": "seen"}}));
    tool(
        &test,
        "mark",
        &json!({"role": "middleware"}),
        &format!(
            "as=$({e} host get run.tool.metadata.mark.as)\n{e} host set locals.mark \"$as\"\n{e} host log warn 'I was here'"
        ),
    );
    tool(
        &test,
        "inner",
        &json!({}),
        &format!(
            "{e} host set nonlocals.k '\"child\"'\nprintf '{{\"result\": {{\"u\": %s, \"v\": %s}}}}' \"$({e} host get nonlocals.u)\" \"$({e} host get locals.v)\""
        ),
    );
    tool(
        &test,
        "outer",
        &json!({}),
        &format!(
            "r=$({e} host invoke inner --args '{{\"$context\": {{\"nonlocals\": {{\"u\": 1}}, \"locals\": {{\"v\": [2]}}}}}}') || exit 1\n\
         printf '{{\"result\": {{\"inner\": %s, \"mark\": %s, \"k\": %s}}}}' \"$r\" \"$({e} host get locals.mark)\" \"$({e} host get nonlocals.k)\""
        ),
    );
    let ran = test.run(&["skill", "run", "outer"]);
    let expected = json!({"inner": {"u": 1, "v": [2]}, "mark": "seen", "k": null});
    assert_eq!(ran.value(), expected, "{}", ran.err());
    assert!(ran.err().contains("warn: mark: I was here"), "{}", ran.err());
    let outside = test.run(&["host", "next"]);
    assert!(outside.code() == 2 && outside.err().contains("ETUDE_HOST"));
}

/// D-14: an agent can use other skills, but not the one that it follows.
#[test]
fn an_agent_does_not_list_its_own_skill() {
    let server = Server::by(|_, _| Reply::says("done"));
    let test = project().model(&server);
    main_skill(&test, json!({}));
    tool(&test, "file-read", &json!({}), "echo '{\"result\": 1}'");
    prompt(&test, "answer", "", &json!({}), "Find the answer.");
    test.run(&["skill", "run", "answer"]).exit(0);
    let available: Vec<Value> = server.seen()[0].body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].clone())
        .collect();
    assert!(available.contains(&json!("file-read")) && !available.contains(&json!("answer")), "{available:?}");
}

/// cli, system D: `host add` is atomic: of eight concurrent calls exactly the limit pass.
#[test]
fn a_number_is_added_to_by_one_program_at_a_time() {
    let (test, e) = (project(), binary());
    main_skill(&test, json!({}));
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do ({e} host add globals.n 1 --max 3 >/dev/null 2>>err && echo passed >> \"$LEDGER\") & done\n\
         wait\nsort -u err >&2\n{e} host set locals.text '\"x\"'\n{e} host add locals.text 2>&1 | tail -1 >&2\n\
         printf '{{\"result\": [%s, %s, %s]}}' \"$({e} host get globals.n)\" \"$({e} host add globals.m)\" \"$({e} host add globals.n -- -2.5)\""
    );
    tool(&test, "count", &json!({}), &script);
    let ran = test.run(&["skill", "run", "count"]);
    assert_eq!(ran.value(), json!([3, 1, 0.5]), "{}", ran.err());
    assert_eq!(test.ledger(), ["passed"; 3]);
    assert!(ran.err().contains("`globals.n` is 3: 1 more would exceed 3"), "{}", ran.err());
    assert!(ran.err().contains("`locals.text` is not a number"), "{}", ran.err());
}

/// D-15: an event reaches the skill that listens to it; the emitter continues, since the listener waits for it, and the command
/// ends after both.
#[test]
fn events_reach_their_handlers() {
    let test = project();
    main_skill(&test, json!({"event": {"done": "listener"}}));
    tool(
        &test,
        "listener",
        &json!({"params": {"type": "object"}}),
        "n=0; until grep -q after \"$LEDGER\" 2>/dev/null || [ $n -eq 1000 ]; do n=$((n + 1)); sleep 0.01; done\n\
         printf '%s' \"$in\" | grep -o '\"data\":{[^}]*}' | head -1 >> \"$LEDGER\"",
    );
    let speech = format!("{} host emit done '{{\"n\": 1}}'; echo after >> \"$LEDGER\"", binary());
    tool(&test, "speaker", &json!({}), &speech);
    test.run(&["skill", "run", "speaker"]).exit(0);
    assert_eq!(test.ledger(), ["after", "\"data\":{\"n\":1}"]);
}

/// D-16: flags beat the environment, local beats global, and both beat metadata.
#[test]
fn overrides_of_the_command_line_beat_metadata() {
    let test = project().env("ETUDE_LOCAL_MODEL__ID", "env").env("AGENT_APPS_GLOBAL_MODEL__REGION", "r");
    main_skill(&test, json!({"model": {"id": "file"}}));
    tool(&test, "greet", &json!({}), "true");
    let model = |args: &[&str]| {
        let all = [&["skill", "explain", "greet", "--format", "json"], args].concat();
        test.run(&all).exit(0).value()["merged"]["model"].clone()
    };
    assert_eq!(model(&[]), json!({"id": "env", "region": "r"}));
    assert_eq!(model(&["--global", "model.region=q"]), json!({"id": "env", "region": "q"}));
    assert_eq!(model(&["--global", "model.id=g"]), json!({"id": "env", "region": "r"}));
    assert_eq!(model(&["--global", "model.id=g", "--local", "model.id=7"]), json!({"id": 7, "region": "r"}));
    assert_eq!(test.run(&["skill", "explain", "greet", "--local", "x"]).code(), 2);
}

/// D-0.1.12, D-X20: the error about an unknown skill lists the existing ones.
#[test]
fn unknown_skills_are_reported() {
    let test = project();
    tool(&test, "greet", &json!({}), "true");
    let ran = test.run(&["skill", "run", "gret"]);
    assert!(ran.code() == 2 && ran.err().contains("skill not found: `gret`") && ran.err().contains("`greet`"));
    assert_eq!(test.run(&["skill", "run", "./skills/none.skill.md"]).code(), 2);
    test.run(&["skill", "run", "./skills/greet.skill.md"]).exit(0);
}

/// cli, D-2.1: a module is a skill if Node is installed (otherwise this shows nothing), with the manager of its context.
#[test]
fn modules_are_skills_where_node_is_there() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        return skipped("modules_are_skills_where_node_is_there", "Node is not installed");
    }
    let test = project();
    tool(
        &test,
        "double",
        &json!({"params": {"type": "object"}}),
        "printf '%s' \"$in\" | sed 's/.*\"n\":\\([0-9]*\\).*/{\"result\": \\1\\1}/'",
    );
    test.put(
        "project/skills/greet.skill.mjs",
        "export const frontmatter = {name: 'greet', metadata: {params: {type: 'object'}}};\n\
         export default async (ctx, args) => {\n  if (args.who === 'nobody') throw new Error('nobody is there');\n\
           return {hi: args.who, n: await ctx.manager.invoke('double', {n: 4}), name: ctx.run.tool.name};\n};\n",
    );
    assert_eq!(
        test.run(&["skill", "run", "greet", "--arg", "who=Ann"]).exit(0).value(),
        json!({"hi": "Ann", "n": 44, "name": "greet"})
    );
    let thrown = test.run(&["skill", "run", "greet", "--arg", "who=nobody"]);
    assert!(thrown.code() == 1 && thrown.err().contains("error: nobody is there"), "{}", thrown.err());
}

/// D-7.3, D-7.5, D-8: a module as middleware reads and runs the context that it serves through `envelope.target`, sees an
/// exception as `locals.error`, and can write its context as JSON.
#[test]
fn modules_are_middleware_where_node_is_there() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        return skipped("modules_are_middleware_where_node_is_there", "Node is not installed");
    }
    let test = project();
    main_skill(&test, json!({"guard": {"instead": "none"}, "$order": {"guard": {"after": ["$pre-execute"]}}}));
    test.put(
        "project/skills/guard.skill.mjs",
        "export const frontmatter = {name: 'guard', metadata: {role: 'middleware'}};\n\
         export default async (ctx) => {\n  const target = ctx.envelope.target;\n  JSON.stringify(ctx);\n\
           try { return 'seen ' + (await target.manager.next()); } catch (error) {\n\
             const thrown = await target.manager.get('locals.error');\n\
             return `${target.run.tool.metadata.guard.instead}: ${thrown.message}`;\n  }\n};\n",
    );
    test.put(
        "project/skills/greet.skill.mjs",
        "export const frontmatter = {name: 'greet', metadata: {params: {type: 'object'}}};\n\
         export default (ctx, args) => {\n  if (args.who === 'x') throw new Error('no one');\n\
           return 'hi' + (ctx.envelope.target === ctx) + JSON.parse(JSON.stringify(ctx)).envelope.target;\n};\n",
    );
    let greet = |who: &str| test.run(&["skill", "run", "greet", "--arg", who]).exit(0).value();
    assert_eq!([greet("who=Ann"), greet("who=x")], [json!("seen hitruenull"), json!("none: no one")]);
}

/// A-3.7: the frontmatter of a module is read without the keys of the environment.
#[test]
fn modules_are_read_without_keys() {
    if std::process::Command::new("node").arg("--version").output().is_err() {
        return skipped("modules_are_read_without_keys", "Node is not installed");
    }
    let test = project().env("ANTHROPIC_API_KEY", "sk-canary-0001");
    main_skill(&test, json!({}));
    let seen = test.path("seen.json");
    test.put(
        "project/skills/greet.skill.mjs",
        &format!(
            "import fs from 'node:fs';\nfs.appendFileSync('{}', JSON.stringify(process.env) + '\\n');\n\
             export const frontmatter = {{name: 'greet'}};\nexport default () => 'hi';\n",
            seen.display()
        ),
    );
    assert_eq!(test.run(&["skill", "run", "greet"]).exit(0).value(), json!("hi"));
    let seen = test.read("seen.json");
    assert!(seen.contains("\"PATH\"") && !seen.contains("canary"), "{seen}");
}

/// D-9, D-X23: a stage of the project shadows that of the library.
#[test]
fn stages_can_be_replaced() {
    let test = project();
    main_skill(&test, json!({}));
    tool(&test, "execute", &json!({"role": "middleware"}), "echo '{\"result\": \"replaced\"}'");
    tool(&test, "greet", &json!({}), "echo '{\"result\": \"own\"}'");
    assert_eq!(test.run(&["skill", "run", "greet"]).exit(0).value(), json!("replaced"));
}

/// cli, D-6: the drawing shows levels and chain.
#[test]
fn chains_are_drawn() {
    let test = project();
    main_skill(&test, json!({}));
    tool(&test, "greet", &json!({}), "true");
    let ran = test.run(&["skill", "graph", "greet"]).exit(0);
    assert!(ran.out().starts_with("flowchart TD") && ran.out().contains("[\"execute\"]"), "{}", ran.out());
    let document = test.run(&["skill", "graph", "greet", "--format", "json"]).exit(0).value();
    assert_eq!(document["levels"], json!(["greet", "app", "default"]));
}

/// Writes a Markdown skill, which is a prompt.
fn prompt(test: &Test, name: &str, head: &str, metadata: &Value, body: &str) {
    let text =
        format!("---\nname: {name}\ndescription: The skill {name}.\n{head}metadata: {metadata}\n---\n\n{body}\n");
    test.put(&format!("project/skills/{name}.skill.md"), &text);
}

/// A model's response that calls one tool.
fn calls(tool: &str, args: &Value) -> Reply {
    let call = json!({"id": "c1", "type": "function", "function": {"name": tool, "arguments": args.to_string()}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
    Reply::Body(json!({"id": "x", "model": "m", "choices": [choice], "usage": usage}).to_string())
}

/// D-11, D-10, D-14, D-X10, D-D01 to D-D04: a prompt is expanded, gets its includes, and a model follows it.
#[test]
fn prompts_are_expanded_and_followed() {
    let server = Server::new([Reply::says("Hello Ann")]);
    let test = project().model(&server).env("MOOD", "cheerful");
    main_skill(&test, json!({"include": "notes.md"}));
    test.put("project/notes.md", "Be brief.\n");
    test.put("project/skills/tail.md", "(:arg[who] again)\n");
    tool(&test, "chart", &json!({}), "echo chart >> \"$LEDGER\"; echo '{\"result\": \"<chart>\"}'");
    // A backtick in a value neither hides a directive nor reveals one in code.
    let body = "Hi :arg[who]:arg[sign], `:arg[who]` :nosuch[x] :env[MOOD] :chart[a]{w=1} :config[runtime.name] :inline[tail.md]";
    prompt(&test, "greet", "", &json!({"params": {"type": "object"}}), body);
    let ran = test.run(&["skill", "run", "greet", "--arg", "who=Ann", "--arg", "sign=`"]);
    assert_eq!(ran.value(), json!("Hello Ann"), "{}", ran.err());
    let text = server.seen()[0].body.to_string();
    assert!(text.contains("Hi Ann`, `:arg[who]` :nosuch[x] cheerful <chart> etude (Ann again)"), "{text}");
    assert!(text.contains("You are called as a tool") && text.contains("Be brief."), "{text}");
    assert_eq!(test.ledger(), ["chart"]);
}

/// D-11: prompts insert and include only files in the project or on its search path, links followed; otherwise no model is
/// called.
#[test]
fn prompts_get_no_other_files() {
    let server = Server::by(|_, _| Reply::says("read"));
    let test = project().model(&server);
    test.put("elsewhere/key", "canary");
    test.put("shared/notes.md", "shared notes");
    main_skill(&test, json!({"paths": ["./skills", {"external": "../shared"}]}));
    std::os::unix::fs::symlink(test.path("elsewhere/key"), test.path("project/link")).unwrap();
    let whole = test.path("elsewhere/key").display().to_string();
    for path in ["../../elsewhere/key", "../link", whole.as_str()] {
        prompt(&test, "inserts", "", &json!({}), &format!("It says :inline[{path}]"));
        let ran = test.run(&["skill", "run", "inserts"]).exit(1);
        assert!(ran.err().contains("is outside the project") && !ran.err().contains("canary"), "{}", ran.err());
    }
    prompt(&test, "includes", "", &json!({"include": "../elsewhere/key"}), "Read.");
    test.run(&["skill", "run", "includes"]).exit(1).stderr_has("is outside the project");
    assert_eq!(server.seen().len(), 0);
    prompt(&test, "shares", "", &json!({}), "It says :inline[../../shared/notes.md]");
    assert_eq!(test.run(&["skill", "run", "shares"]).value(), json!("read"));
    assert!(server.seen()[0].body.to_string().contains("It says shared notes"));
}

/// D-11: `:script` runs a script beside the prompt and inserts its output, which is not expanded again; a script that fails,
/// lies elsewhere or has no known language keeps the prompt from its model.
#[test]
fn prompts_get_what_scripts_print() {
    let server = Server::by(|_, _| Reply::says("read"));
    let test = project().model(&server);
    main_skill(&test, json!({}));
    test.put("project/skills/notes.py", "print('from python :arg[who]')\n");
    test.put("project/skills/fails.sh", "echo 'no luck' >&2; exit 3\n");
    test.put("elsewhere.sh", "echo reached >> \"$LEDGER\"\n");
    let run = |body: &str| {
        prompt(&test, "tells", "", &json!({}), body);
        test.run(&["skill", "run", "tells"])
    };
    assert_eq!(run("It says :script[python]{src=notes.py} and :script{src=notes.py}").value(), json!("read"));
    let text = server.seen()[0].body.to_string();
    assert!(text.contains("It says from python :arg[who] and from python :arg[who]"), "{text}");
    for (body, reported) in [
        (":script[sh]{src=fails.sh}", "no luck"),
        (":script[sh]{src=../../elsewhere.sh}", "is outside the project"),
        (":script[cobol]{src=notes.py}", "`cobol` is not a script language"),
        (":script[sh]", "name the file of the script"),
    ] {
        let ran = run(body).exit(1);
        assert!(ran.err().contains(reported), "{body}: {}", ran.err());
    }
    assert!(server.seen().len() == 1 && test.ledger().is_empty());
}

/// D-10, D-14, D-0.1.3: an agent's calls pass the chain of the called skill, and the `allowed-tools` of its skill apply.
#[test]
fn what_an_agent_calls_passes_chains() {
    let server = Server::new([
        calls("file-read", &json!({"path": "a"})),
        calls("shell", &json!({})),
        calls("submit_answer", &json!({"answer": 42})),
    ]);
    let test = project().model(&server);
    main_skill(&test, json!({"note": {}}));
    tool(&test, "note", &json!({"role": "middleware"}), &format!("{} host get run.tool.name >> \"$LEDGER\"", binary()));
    tool(&test, "file-read", &json!({"params": {"type": "object"}}), "echo '{\"result\": \"the content\"}'");
    tool(&test, "shell", &json!({}), "echo shell >> \"$LEDGER\"");
    let returns = json!({"returns": {"type": "object", "required": ["answer"]}});
    prompt(&test, "answer", "allowed-tools: file-*\n", &returns, "Find the answer.");
    let ran = test.run(&["skill", "run", "answer"]);
    assert_eq!(ran.value(), json!({"answer": 42}), "{}", ran.err());
    assert_eq!(test.ledger(), ["\"answer\"", "\"file-read\""]);
    let seen = server.seen();
    let available: Vec<&Value> =
        seen[0].body["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(available, ["file-read", "submit_answer"]);
    assert!(seen[1].body.to_string().contains("the content"), "{}", seen[1].body);
}

/// D-8, D-10: the text, calls and results of an agent are in `locals.agent.trace` of its skill.
#[test]
fn a_conversation_leaves_its_trace() {
    let server = Server::new([calls("file-read", &json!({"path": "a"})), Reply::says("found")]);
    let test = project().model(&server);
    main_skill(&test, json!({"note": {}}));
    let note = format!("{0} host next > /dev/null; {0} host get locals.agent.trace >> \"$LEDGER\"", binary());
    tool(&test, "note", &json!({"role": "middleware"}), &note);
    tool(&test, "file-read", &json!({"params": {"type": "object"}}), "echo '{\"result\": \"the content\"}'");
    prompt(&test, "answer", "allowed-tools: file-*\n", &json!({}), "Find it.");
    assert_eq!(test.run(&["skill", "run", "answer"]).value(), json!("found"));
    let trace: Value = serde_json::from_str(test.ledger().last().expect("a trace")).expect("JSON");
    assert!(trace[0]["text"].as_str().is_some_and(|text| text.contains("Find it.")), "{trace}");
    assert_eq!(
        trace.as_array().map(|all| &all[1..]),
        Some(
            &[
                json!({"role": "assistant", "text": "", "calls": [{"tool": "file-read", "args": {"path": "a"}}]}),
                json!({"role": "tool", "tool": "file-read", "text": "the content", "error": null}),
                json!({"role": "assistant", "text": "found", "calls": []}),
            ][..]
        )
    );
}

/// D-X24: a Markdown skill as middleware runs its agent, and its answer is the target's result.
#[test]
fn a_prompt_may_be_middleware() {
    let server = Server::new([Reply::says("decided by the model")]);
    let test = project().model(&server);
    main_skill(&test, json!({"judge": {}}));
    prompt(&test, "judge", "", &json!({"role": "middleware"}), "Judge.");
    tool(&test, "greet", &json!({}), "echo never >> \"$LEDGER\"");
    assert_eq!(test.run(&["skill", "run", "greet"]).value(), json!("decided by the model"));
    assert_eq!(test.ledger(), [""; 0]);
}

/// A-4.9: model calls of a prompt as middleware are in the usage of the run, and count for its budget.
#[test]
fn prompts_as_middleware_count_for_the_budget() {
    let server = Server::by(|_, _| Reply::says("decided"));
    let test = Test::new()
        .model(&server)
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], judge: {}}\n---\n")
        .file(
            "skills/judge.skill.md",
            "---\nname: judge\ndescription: Decides.\nmetadata: {role: middleware}\n---\n\nJudge.\n",
        )
        .pipeline("p", |p| p.note("first", "1").note("second", "2"));
    test.run_json("p").output("decided").has("/usage/calls", 2);
    let few = test.run(&["run", "-p", "p", "--max-tokens", "1", "--format", "json"]).exit(1);
    few.failed_with(&["business first: budget_exceeded"]).has("/usage/calls", 1);
    assert_eq!((server.seen().len(), test.ledger()), (3, Vec::<String>::new()));
}

/// D-7, D-17: the middleware of an app wraps its pipeline steps; its changes are what the journal records.
#[test]
fn middleware_wraps_code_steps() {
    let test = layered(1).pipeline("p", |p| {
        p.note("first", "{\"a\":\"s3cr3t\",\"n\":1}").sh("second", "cat > \"$ROOT/seen\"; printf '{\"output\": 2}'")
    });
    let ran = test.run_json("p").output(2);
    assert_eq!(test.ledger(), ["limit p-first", "first", "limit p-second"]);
    assert!(test.read("seen").contains("***") && !test.read("seen").contains("s3cr3t"), "{}", test.read("seen"));
    let id = ran.at("/run_id");
    assert!(!id.is_null());
    let refused = test.run_json("p").exit(1);
    assert!(
        refused.at("/errors/0/message").to_string().contains("`limit` rejected it: called too often"),
        "{}",
        refused.out()
    );
}

/// D-7, D-17: middleware also wraps the calls of agents.
#[test]
fn middleware_wraps_the_calls_of_agents() {
    let server = Server::new([
        calls("Read", &json!({"path": "secret.txt"})),
        calls("Read", &json!({"path": "secret.txt"})),
        Reply::says("done"),
    ]);
    let test = layered(1)
        .file("SKILL.md", "---\nname: helpful\ndescription: Helps.\n---\nHelp.\n")
        .file("secret.txt", "the s3cr3t\n");
    let test = test.model(&server);
    test.run(&["run", "--skill", "read it", "--format", "json"]).output("done");
    let seen = server.seen();
    let results: Vec<String> = seen[1..].iter().map(|seen| seen.conversation().concat()).collect();
    assert!(results[0].contains("***") && !results[0].contains("s3cr3t"), "{results:?}");
    assert!(results[1].contains("`limit` rejected it: called too often"), "{results:?}");
}

/// D-4, issue 6: `etude check` reports the faults of skills of an app that has a main skill, with their places.
#[test]
fn skills_are_checked_with_their_app() {
    let test = Test::new()
        .file("app.skill.md", "---\nmetadata: {role: main, paths: [./skills]}\n---\n")
        .file("skills/a.skill.md", "---\nmetadata:\n  $inherit: bse\n---\n")
        .file("skills/base.skill.md", "---\nmetadata:\n  $merge: {model: shalow}\n---\n");
    let ran = test.run(&["check", "--app", ".", "--format", "json"]).exit(3);
    let found: Vec<String> = ran
        .at("/diagnostics")
        .as_array()
        .unwrap()
        .iter()
        .map(|d| format!("{} {}:{}", d["code"].as_str().unwrap(), d["file"].as_str().unwrap(), d["line"]))
        .collect();
    assert_eq!(found, ["D0101 skills/a.skill.md:3", "D0105 skills/base.skill.md:3"]);
    test.put("app/skills/base.skill.md", "---\nname: base\n---\n");
    let reported = test.run(&["check", "--app", "."]).exit(3);
    assert!(reported.err().contains("1 error in `skills/a.skill.md`; 2 other skills are fine"), "{}", reported.err());
}

/// D-4, C-2.9, issue 6: `etude check` in a directory of skills outside of any app checks the skills: their chains, and Agent
/// Skills as `skill check` does.
#[test]
fn a_directory_of_skills_is_checked_as_it_is() {
    let test = project();
    declared(&test, "a.skill.md", "a", &json!({}));
    declared(&test, "b.skill.md", "b", &json!({"$inherit": "a"}));
    let fine = test.run(&["check"]).exit(0);
    assert!(fine.err().contains("2 skills are fine"), "{}", fine.err());
    declared(&test, "c.skill.md", "c", &json!({"$inherit": "bse"}));
    test.put("project/folder/SKILL.md", "---\nname: another\ndescription: Has another name.\n---\nText.\n");
    let found = test.run(&["check", "--format", "json"]).exit(3);
    let found: Vec<Value> = found.at("/diagnostics").as_array().unwrap().clone();
    let reported = |at: usize| (found[at]["code"].as_str().unwrap(), found[at]["file"].as_str().unwrap());
    assert!(matches!(reported(0), ("P0207", file) if file.ends_with("folder/SKILL.md")), "{found:?}");
    assert_eq!((reported(1), found.len()), (("D0101", "c.skill.md"), 2));
    let reported = test.run(&["check"]).exit(3);
    assert!(reported.err().contains("3 other skills are fine"), "{}", reported.err());
    assert_eq!(test.run(&["check", "a"]).exit(2).err().lines().count(), 2);
}

/// A-3.6, D-7: middleware that hangs does not delay the end of its run.
#[test]
fn middleware_that_hangs_can_be_given_up() {
    let test = Test::new()
        .file("app.skill.md", "---\nmetadata: {role: main, hang: {}}\n---\n")
        .file("hang.skill.md", "---\nname: hang\ncommand: sh hang.sh\nmetadata: {role: middleware}\n---\n")
        .file("hang.sh", "echo $$ > pid; echo hanging >> \"$LEDGER\"; exec sleep 600\n")
        .pipeline("p", |p| p.note("a", "1"));
    let running = test.start(&["run", "--pipeline", "p", "--format", "json"]);
    test.wait_for("hanging");
    running.interrupt();
    running.finish().exit(130);
    assert_eq!(test.ledger(), ["hanging"]);
    is_gone(&test.read("app/pid"));
}

/// C-1.13, D-7, D-17: the middleware of the user's app wraps commands of applications.
#[test]
fn middleware_wraps_commands_of_applications() {
    let test = layered(1);
    crate::echo_box::put(&test, crate::echo_box::USER, &[]);
    let ran = crate::echo_box::run(&test, &[], &["args", "s3cr3t"]);
    assert_eq!(ran.code(), 0, "{} {}", ran.out(), ran.err());
    assert!(
        !ran.at("/output").to_string().contains("s3cr3t") && ran.at("/output").to_string().contains("***"),
        "{}",
        ran.out()
    );
    let refused = crate::echo_box::run(&test, &[], &["args", "s3cr3t"]);
    assert!(refused.out().contains("`limit` rejected it: called too often"), "{}", refused.out());
    assert_eq!(test.ledger(), ["limit echo-box-args", "limit echo-box-args"]);
    assert!(!ran.err().contains("passed") && refused.err().contains("limit | called too often"), "{}", refused.err());
    let reported = crate::echo_box::run(&test, &["--verbose"], &["args", "x"]);
    for line in ["failed limit for echo-box-args after", "failed echo-box-args after"] {
        assert!(reported.err().contains(line), "{}", reported.err());
    }
}

/// D-17, C-1.16: middleware that refuses the result of a command is reported as such; the command is not reported as never run.
#[test]
fn what_middleware_makes_of_a_command_that_ran_is_reported() {
    let refuse = format!("cat >/dev/null\n{} host next >/dev/null\necho 'not this' >&2; exit 1\n", binary());
    let test = Test::new()
        .file("app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills], refuse: {}}\n---\n")
        .file("skills/refuse.skill.md", "---\nname: refuse\ncommand: sh refuse.sh\nmetadata: {role: middleware}\n---\n")
        .file("skills/refuse.sh", &refuse);
    crate::echo_box::put(&test, crate::echo_box::USER, &[]);
    let ran = crate::echo_box::run(&test, &[], &["args", "x"]);
    let reported = "the command ran, but its result was rejected: `refuse` rejected it: not this";
    assert!(ran.code() == 1 && ran.out().contains(reported) && ran.out().contains("AA_OUT_REFUSED"), "{}", ran.out());
}

/// D-4.7: `$self` of the entry skill applies to every skill, and the user's settings win over it.
#[test]
fn self_defaults_are_those_of_the_entry() {
    let test = project();
    main_skill(&test, json!({"$self": {"model": {"id": "own"}}, "model": {"id": "file"}}));
    tool(&test, "greet", &json!({}), "true");
    let model = |args: &[&str]| {
        let all = [&["skill", "explain"], args, &["--format", "json"]].concat();
        test.run(&all).exit(0).value()["merged"]["model"]["id"].clone()
    };
    assert_eq!(model(&["app"]), json!("own"));
    assert_eq!(model(&["greet"]), json!("file"));
    assert_eq!(model(&["app", "--global", "model.id=said"]), json!("said"));
}
