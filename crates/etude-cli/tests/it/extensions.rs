//! Extensions of the protocol: fields of any step (X-1), of code steps (X-2), and further step types (X-3).

use serde_json::json;

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::{Test, noting, printing, with_some_limit};

/// X-1: outputs of a fan-out are in the order of the elements, whichever ends first; the element and its index are available in
/// `env`.
#[test]
fn a_fan_out_keeps_the_order_of_its_elements() {
    let script = "case $N in 0) while [ ! -e \"$ROOT/second\" ]; do sleep 0.01; done ;; 1) touch \"$ROOT/second\" ;; esac; \
                  echo \"{\\\"output\\\":\\\"$N:$V\\\"}\"";
    Test::new()
        .pipeline("p", |p| {
            p.note("list", r#"[{"v":"x"},{"v":"y"},{"v":"z"}]"#).sh_with(
                "each",
                script,
                "for_each: \"{{list.output}}\"\nmax_parallel: 2\nenv: {N: \"{{index}}\", V: \"{{item.v}}\"}",
            )
        })
        .run_json("p")
        .output(json!(["0:x", "1:y", "2:z"]))
        .steps(&["list succeeded 1", "each succeeded 3"]);
}

/// X-1: a failing element stops the rest, or is collected beside the outputs of the others.
#[test]
fn a_failing_element_stops_the_rest_or_is_collected() {
    let test = |policy: &str| {
        let script = format!("{}; [ \"$N\" != 1 ] || exit 3; {}", noting("each"), printing("true"));
        Test::new().pipeline("p", |p| {
            p.note("list", "[0,1,2]").sh_with(
                "each",
                &script,
                &format!("for_each: \"{{{{list.output}}}}\"\nenv: {{N: \"{{{{item}}}}\"}}\n{policy}"),
            )
        })
    };
    let stopping = test("on_item_failure: stop");
    stopping.run_json("p").exit(1).failed_with(&["business each: step_failed"]).has("/errors/0/details/item", 1);
    assert_eq!(stopping.ledger(), ["list", "each", "each"]);
    let collecting = test("on_item_failure: collect");
    let ran = collecting.run_json("p").exit(0);
    assert_eq!(ran.at("/output/0"), json!({"output": true}));
    assert_eq!(
        (ran.at("/output/1/error/kind"), ran.at("/output/1/error/exit_status")),
        (json!("step_failed"), json!(3))
    );
    assert_eq!(ran.at("/output/2"), json!({"output": true}));
    assert_eq!(ran.at("/steps/1/items"), json!({"total": 3, "succeeded": 2, "failed": [1]}));
    assert!(ran.err().contains("each: 2 of 3, 1 failed: [1]"), "{}", ran.err());
    assert_eq!(collecting.ledger().len(), 4);
}

/// X-3: the events of a step in a group per element have the element and its own end. The lines of such steps are shown with
/// `-v`; otherwise the element has one.
#[test]
fn steps_of_an_element_have_their_own_ends() {
    let children = "type: parallel, for_each: \"{{list.output}}\", on_item_failure: collect, steps: [{name: v, type: code, \
                    env: {N: \"{{item}}\"}, command: \"test $N != 1 && echo '{\\\"output\\\": 1}'\"}]";
    let list = "{name: list, type: code, command: \"echo '{\\\"output\\\": [0, 1, 2]}'\"}";
    let steps = format!("  - {list}\n  - {{name: g, {children}}}\n");
    let test = Test::new().yaml("p", &format!("name: p\ndescription: Groups.\nsteps:\n{steps}"));
    let ran = test.run(&["run", "-p", "p", "--format", "jsonl"]).exit(0);
    let out = ran.out().to_owned();
    let events = out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let ends = events.filter(|event| event["event"] == "step_ended" && event["step"] == "v");
    let ends: Vec<_> = ends.map(|event| format!("{} {}", event["item"]["index"], event["status"])).collect();
    assert_eq!(ends, ["0 \"succeeded\"", "1 \"failed\"", "2 \"succeeded\""]);
    let (usual, verbose) = (test.run(&["run", "-p", "p"]).exit(0), test.run(&["run", "-p", "p", "-v"]).exit(0));
    assert!(!usual.err().contains("✗ v") && usual.err().contains("✗ g[1] 1 failed"), "{}", usual.err());
    let own = ["▸ v[1] 1 code", "✓ v[0] 0", "✗ v[1] 1", "✓ v[2] 2"];
    assert!(own.iter().all(|line| verbose.err().contains(line)), "{}", verbose.err());
}

/// X-3: a group's output is that of its children by name; they run concurrently and do not see each other.
#[test]
fn a_group_runs_its_children_at_once() {
    let wait = |mine: &str, other: &str| {
        format!(
            "touch \"$ROOT/{mine}\"; while [ ! -e \"$ROOT/{other}\" ]; do sleep 0.01; done; cat > \"$ROOT/{mine}.json\"; echo '{{\"output\":\"{mine}\"}}'"
        )
    };
    let test = Test::new().pipeline("p", |p| {
        p.step(
            "name: g\ntype: parallel\nsteps:\n  - {name: l, type: code, command: sh steps/l.sh}\n  \
             - {name: r, type: code, command: sh steps/r.sh}",
        )
        .file("steps/l.sh", &wait("l", "r"))
        .file("steps/r.sh", &wait("r", "l"))
        .sh("after", "cat > \"$ROOT/after.json\"; echo '{\"output\":1}'")
        .with("output: g")
    });
    test.run_json("p").output(json!({"l": "l", "r": "r"}));
    assert_eq!(test.read("l.json"), r#"{"input":{},"steps":{}}"#);
    assert_eq!(test.read("after.json"), r#"{"input":{},"steps":{"g":{"output":{"l":"l","r":"r"}}}}"#);
}

/// X-3: a failing child stops its siblings, or is waited for; the group fails either way.
#[test]
fn a_failing_child_stops_or_awaits_its_siblings() {
    let test = |policy: &str| {
        let pause = if policy.ends_with("stop") { "exec sleep 300" } else { "sleep 0.5" };
        Test::new().pipeline("p", |p| {
            p.step(&format!(
                "name: g\ntype: parallel\n{policy}\nsteps:\n  - {{name: bad, type: code, command: sh steps/bad.sh}}\n  \
                 - {{name: slow, type: code, command: sh steps/slow.sh}}"
            ))
            .file(
                "steps/bad.sh",
                "while [ ! -e \"$ROOT/begun\" ]; do sleep 0.01; done; touch \"$ROOT/failed\"; exit 5\n",
            )
            .file(
                "steps/slow.sh",
                &format!(
                    "touch \"$ROOT/begun\"; while [ ! -e \"$ROOT/failed\" ]; do sleep 0.01; done; {}; {}; {}\n",
                    pause,
                    noting("slow"),
                    printing("1")
                ),
            )
        })
    };
    let stopping = test("on_failure: stop");
    stopping.run_json("p").exit(1).failed_with(&["business bad: step_failed"]);
    assert_eq!(stopping.ledger(), [""; 0]);
    let waiting = test("on_failure: wait");
    waiting.run_json("p").exit(1).failed_with(&["business bad: step_failed"]);
    assert_eq!(waiting.ledger(), ["slow"]);
}

/// X-3: a sub-pipeline gets its own input, runs in its own directory, and has neither constructor nor destructor.
#[test]
fn a_sub_pipeline_runs_without_constructor_and_destructor() {
    let test = Test::new()
        .pipeline("_constructor", |p| p.note("c", "1"))
        .pipeline("_destructor", |p| p.note("d", "1"))
        .pipeline("inner", |p| {
            p.with("input: {who: string, n: integer}")
                .sh("deep", "cat > \"$ROOT/inner.json\"; echo \"{\\\"output\\\":\\\"$(pwd)\\\"}\"")
        })
        .pipeline("p", |p| {
            p.with("input: {n: integer}").note("one", "\"Ada\"").step(
                "name: sub\ntype: pipeline\npipeline: inner\ninput: {who: \"{{one.output}}\", n: \"{{input.n}}\"}",
            )
        });
    test.run(&["run", "-p", "p", "-i", "n=3", "--format", "json"]).output("[APP]/pipelines/inner");
    assert_eq!(test.read("inner.json"), r#"{"input":{"who":"Ada","n":3},"steps":{}}"#);
    assert_eq!(test.ledger(), ["c", "one", "d"]);
}

/// X-3: input that does not fit the sub-pipeline fails its step, and a failure within is reported with its own place.
#[test]
fn a_sub_pipeline_fails_with_the_place_of_the_failure() {
    let test = Test::new()
        .pipeline("inner", |p| p.sh("deep", "exit 6"))
        .pipeline("p", |p| p.step("name: sub\ntype: pipeline\npipeline: inner"));
    let ran = test.run_json("p").exit(1);
    assert_eq!(
        (ran.at("/errors/0/exit_status"), ran.at("/errors/0/file")),
        (json!(6), json!("pipelines/inner/pipeline.yaml"))
    );
}

/// X-2: a code step is retried according to its `retry`, and keeps every attempt.
#[test]
fn a_code_step_is_tried_again_as_its_retry_says() {
    let script = format!("{}; [ $(wc -l < \"$LEDGER\") -ge 3 ] || exit 75; {}", noting("try"), printing("\"third\""));
    let test = |retry: &str| Test::new().pipeline("p", |p| p.sh_with("a", &script, retry));
    test("retry: {max: 2, backoff: 10ms}").run_json("p").output("third").steps(&["a succeeded 3"]);
    test("retry: {max: 5, backoff: 10ms, on: [75]}").run_json("p").output("third");
    let short = test("retry: {max: 1, backoff: 10ms}");
    short
        .run_json("p")
        .exit(1)
        .failed_with(&["business a: step_failed"])
        .steps(&["a failed 2"])
        .has("/errors/0/message", "code step `a` exited with status 75 (after 2 attempts)");
    let unlisted = test("retry: {max: 5, backoff: 10ms, on: [1, timeout]}");
    unlisted.run_json("p").exit(1).steps(&["a failed 1"]);
    assert_eq!(unlisted.ledger(), ["try"]);
}

/// X-2: `allow_exit` makes a status a result; `env` is set; `schema` applies without a retry.
#[test]
fn allowed_statuses_environment_and_schema_of_code_steps() {
    let test = |script: &str, fields: &str| {
        Test::new().pipeline("p", |p| {
            p.with("input: {who: string}")
                .sh_with("a", script, fields)
                .file("s.json", r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#)
        })
    };
    let run = |test: &Test| test.run(&["run", "-p", "p", "-i", "who=Ada", "--format", "json"]);
    run(&test("echo '{\"output\":\"found\"}'; exit 1", "allow_exit: [0, 1]")).output("found");
    run(&test("echo '{\"output\":1}'; exit 2", "allow_exit: [0, 1]")).exit(1).has("/errors/0/exit_status", 2);
    run(&test("echo \"{\\\"output\\\":\\\"$WHO\\\"}\"", "env: {WHO: \"for {{input.who}}\"}")).output("for Ada");
    run(&test("echo '{\"output\":{\"n\":1}}'", "schema: s.json")).output(json!({"n": 1}));
    let broken = test(&format!("{}; echo '{{\"output\":{{\"n\":\"x\"}}}}'", noting("a")), "schema: s.json\nretry: 2");
    let ran = run(&broken).exit(1).failed_with(&["business a: step_output_invalid"]);
    assert!(ran.at("/errors/0/message").as_str().is_some_and(|text| text.contains("/n")), "{:#}", ran.doc());
    assert_eq!(broken.ledger(), ["a"]);
}

/// X-2: with `output: text` the printed text is a string, also from warm interpreters, for elements of a fan-out, with statuses
/// that are results, and from the cache.
#[test]
fn text_is_an_output_wherever_a_step_runs() {
    let test = Test::new().pipeline("p", |p| {
        p.note("list", "[1,2]")
            .sh_with(
                "each",
                "echo \"n: $N\"; exit 1",
                "output: text\nallow_exit: [1]\nfor_each: \"{{list.output}}\"\nenv: {N: \"{{item}}\"}",
            )
            .step("name: warm\ntype: code\ncommand: python3 steps/warm.py\nworker: python\noutput: text\ncache: true")
            .file(
                "steps/warm.py",
                "import json, sys\nprint('\"' + json.load(sys.stdin)['steps']['each']['output'][1] + '\"')\n",
            )
    });
    test.run_json("p").output("\"n: 2\"");
    test.run_json("p").output("\"n: 2\"").has("/steps/2/cached", true);
}

/// X-1: a step's time limit covers all its attempts, model calls included; the run continues with its destructor.
#[test]
fn a_time_limit_holds_for_model_steps_as_well() {
    with_some_limit(|limit| {
        let server = Server::new([Reply::Hang]);
        let test = Test::new()
            .model(&server)
            .pipeline("p", |p| p.llm("ask", "x", &format!("timeout: {limit}")))
            .pipeline("_destructor", |p| p.note("d", "1"));
        test.run_json("p").exit(1).failed_with(&["business ask: step_timeout"]);
        assert_eq!(test.ledger(), ["d"]);
        assert!(server.calls() <= 1);
        server.calls() == 1
    });
}

/// X-4: an effect's id is the path of names that leads to it.
#[test]
fn effect_ids_are_paths_of_names() {
    let test = Test::new()
        .pipeline("inner", |p| p.sh("deep", "echo \"${ETUDE_EFFECT_ID#*/}\" >> \"$LEDGER\"; echo '{\"output\":1}'"))
        .pipeline("p", |p| {
            p.note("list", "[1,2]").step("name: each\ntype: pipeline\npipeline: inner\nfor_each: \"{{list.output}}\"")
        });
    test.run_json("p").output(json!([1, 1]));
    assert_eq!(test.ledger(), ["list", "p/each[0]/deep", "p/each[1]/deep"]);
}

/// X-2: a warm interpreter runs every Python step that requests it, and the record says so.
#[test]
fn python_steps_run_in_a_warm_interpreter() {
    let code = "import json, sys; d = json.load(sys.stdin); print(json.dumps({'output': len(d['steps'])}))";
    let test = Test::new().file("pipelines/p/count.py", code).pipeline("p", |p| {
        p.step("name: a\ntype: code\ncommand: python3 count.py\nworker: python")
            .step("name: b\ntype: code\ncommand: python3 count.py\nworker: python")
            .step("name: c\ntype: code\ncommand: python3 count.py | cat\nworker: python")
    });
    let summaries = summaries(&test, &test.run_json("p").output(json!(2)));
    assert!(summaries[..2].iter().all(|summary| summary.ends_with(", in a warm interpreter")), "{summaries:?}");
    assert!(
        summaries[2].contains(", in a new interpreter (the command is not a single Python process"),
        "{summaries:?}"
    );
    let reported = test.run(&["run", "--pipeline", "p"]);
    assert_eq!(
        reported.err().matches("no warm interpreter: the command is not a single").count(),
        1,
        "{}",
        reported.err()
    );
}

/// X-2: the app may request it for all its steps, and name modules that are imported once.
#[test]
fn an_app_may_have_all_its_python_steps_warm() {
    let code = "import sys; print('{\"output\": %s}' % str('wave' in sys.modules).lower())";
    for (config, warm, preloaded) in [
        ("", false, false),
        ("worker: python\n", true, false),
        ("worker: {python: {preload: [wave]}}\n", true, true),
        ("worker: {python: {preload: [wave], steps: marked}}\n", false, false),
    ] {
        let test = Test::new().file("pipelines/p/a.py", code).file("etude.yaml", config);
        let test = test.pipeline("p", |p| p.step("name: a\ntype: code\ncommand: python3 a.py"));
        let summaries = summaries(&test, &test.run_json("p").output(json!(preloaded)));
        assert_eq!(summaries[0].ends_with(", in a warm interpreter"), warm, "{config}{summaries:?}");
    }
}

/// Summaries in `runs show` of the effects of a run.
fn summaries(test: &Test, ran: &Ran) -> Vec<String> {
    let shown = test.run(&["runs", "show", &ran.id(), "--format", "json"]).exit(0).doc();
    let effects = shown["effects"].as_array().expect("effects");
    effects.iter().map(|effect| effect["summary"].as_str().expect("a summary").to_owned()).collect()
}

/// X-2: a step that a worker cannot run is a warning of `etude check`.
#[test]
fn check_reports_which_workers_do_nothing() {
    let test = Test::new().file("pipelines/p/a.js", "").pipeline("p", |p| {
        p.step("name: a\ntype: code\ncommand: node a.js\nworker: node")
            .step("name: b\ntype: code\ncommand: \"python3 -c pass | cat\"\nworker: python")
    });
    let found = test.run(&["check", "--format", "json"]).exit(0).doc();
    let found: Vec<_> =
        found["diagnostics"].as_array().expect("a list").iter().map(|d| (&d["code"], &d["severity"])).collect();
    assert_eq!(found, vec![(&json!("P0240"), &json!("warning")); 2]);
}

/// X-1: a step that changes the outside world is never taken from a cache: both together are a definition error.
#[test]
fn a_step_with_effects_is_not_cached() {
    Test::new()
        .pipeline("p", |p| p.sh_with("a", &printing("1"), "effects: true\ncache: true"))
        .run_json("p")
        .exit(3)
        .failed_with(&["- -: definition_invalid"]);
}
