//! Model steps: prompts, tiers, responses, validation, and the conversation about rejected responses (A-4).

use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::test::{Pipeline, Test, noting};

/// A schema for `{"n": integer}`.
const NUMBER: &str =
    r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;

/// A validator that accepts `{"n": 7}` and has two objections to everything else.
const SEVEN: &str = r#"echo validate >> "$LEDGER"
case "$(cat)" in
*'"n":7'*) echo '{"valid": true}' ;;
*) echo '{"valid": false, "errors": ["n is not 7", "seven was asked for"]}'; exit 1 ;;
esac
"#;

/// One pipeline `p` with one llm step `ask`.
fn asks(prompt: &str, fields: &str) -> Test {
    asks_with(prompt, fields, |p| p)
}

fn asks_with(prompt: &str, fields: &str, more: impl FnOnce(Pipeline) -> Pipeline) -> Test {
    Test::new().pipeline("p", |p| {
        more(p.llm("ask", prompt, fields).file("schemas/n.json", NUMBER).file("steps/seven.sh", SEVEN))
    })
}

fn schema_of(body: &Value) -> &Value {
    &body["response_format"]["json_schema"]["schema"]
}

/// A-4.1: strings are inserted unchanged, everything else as compact JSON; fields and indexes are resolved; blanks in the
/// braces are allowed; inserted text is never scanned again; `\{{` is a literal.
#[test]
fn prompts_are_rendered_once_and_exactly() {
    let server = Server::new([Reply::says("ok")]);
    let prompt = "{{input.s}}|{{ input.o }}|{{input.l.1}}|{{one.output.deep.list.0}}|{{one.output.none}}|\\{{literal}}";
    Test::new()
        .model(&server)
        .pipeline("p", |p| {
            p.with("input: {s: string, o: object, l: array}")
                .note("one", r#"{"deep":{"list":["{{input.o}}"]},"none":null}"#)
                .llm("ask", prompt, "")
        })
        .run(&[
            "run", "-p", "p", "-i", "s=a \"b\" {{input.l}}", "-i", r#"o={"k": [1, 2.50]}"#, "-i", "l=[1,true]",
            "--format", "json",
        ])
        .output("ok");
    assert_eq!(
        server.seen()[0].conversation(),
        [r#"user: a "b" {{input.l}}|{"k":[1,2.50]}|true|{{input.o}}|null|{{literal}}"#]
    );
}

/// A-4.2: `model` is a tier, `standard` by default; the mapping selects its model.
#[test]
fn each_tier_is_asked_of_its_model() {
    let server = Server::new([Reply::says("ok")]);
    Test::new()
        .model(&server)
        .pipeline("p", |p| {
            p.llm("a", "x", "model: lite")
                .llm("b", "x", "model: reasoning")
                .llm("c", "x", "")
                .llm("d", "x", "model: standard")
        })
        .run_json("p")
        .output("ok")
        .has("/steps/0/model", "mock/m-lite");
    let models: Vec<_> = server.seen().iter().map(|seen| seen.body["model"].clone()).collect();
    assert_eq!(models, ["m-lite", "m-reason", "m-std", "m-std"]);
    assert_eq!(server.seen()[0].header("authorization"), Some(&*format!("Bearer {}", crate::test::KEY)));
}

/// A-4.3: a schema is sent to the provider, and prose and fences around the response are removed.
#[test]
fn with_a_schema_the_answer_is_found_in_its_wrapping() {
    for text in ["{\"n\":7}", "```json\n{\"n\": 7}\n```", "Here you are:\n\n{\"n\": 7}\n\nHope that helps!"] {
        let server = Server::new([Reply::says(text)]);
        asks("x", "schema: schemas/n.json").model(&server).run_json("p").output(json!({"n": 7}));
        assert_eq!(schema_of(&server.seen()[0].body)["properties"], json!({"n": {"type": "integer"}}), "{text}");
    }
}

/// A-4.3: all violations of the schema are collected, each with its JSON pointer.
#[test]
fn every_violation_of_the_schema_is_reported_at_once() {
    let server = Server::new([Reply::json(&json!({"n": "x", "m": 1})), Reply::json(&json!({"n": 7}))]);
    asks("x", "schema: schemas/n.json").model(&server).run_json("p").output(json!({"n": 7}));
    let reported = server.seen()[1].conversation()[2].clone();
    assert_eq!(
        reported,
        "user: Your last answer was rejected:\n\n- /n: \"x\" is not of type \"integer\"\n- Additional properties are not allowed ('m' \
         was unexpected)\n\nAnswer again, in full, with these faults corrected."
    );
}

/// A-4.4: a retry continues the conversation: the prompt, each rejected response, each list of errors, in order.
#[test]
fn a_retry_continues_the_conversation() {
    let server =
        Server::new([Reply::says("no json at all"), Reply::json(&json!({"n": 6})), Reply::json(&json!({"n": 7}))]);
    asks("give me n", "schema: schemas/n.json\nvalidate: steps/seven.sh")
        .model(&server)
        .run_json("p")
        .output(json!({"n": 7}))
        .steps(&["ask succeeded 3"])
        .has("/usage/calls", 3);
    let seen = server.seen();
    let talk = seen[2].conversation();
    assert_eq!(talk.len(), 5);
    assert_eq!(seen[0].conversation(), ["user: give me n"]);
    assert_eq!(seen[1].conversation(), talk[..3]);
    assert_eq!(talk[1], "assistant: no json at all");
    assert!(talk[2].contains("the answer is not JSON") && talk[2].starts_with("user: "), "{}", talk[2]);
    assert_eq!(talk[3], r#"assistant: {"n":6}"#);
    assert!(talk[4].contains("- n is not 7\n- seven was asked for\n"), "{}", talk[4]);
}

/// A-4.8: the error has every attempt: its rejector, its reason, and its tokens; the last reason leads.
#[test]
fn exhausted_retries_carry_every_attempt() {
    let server = Server::new([
        Reply::json(&json!({"n": "six"})).tokens(10, 5),
        Reply::json(&json!({"n": 6})).tokens(20, 5),
        Reply::json(&json!({"n": 8})).tokens(30, 5),
    ]);
    let schema = json!({"rejected_by": "schema", "errors": ["/n: \"six\" is not of type \"integer\""], "duration_ms": 0, "tokens": 15});
    let validate = |tokens: u64| json!({"rejected_by": "validate", "errors": ["n is not 7", "seven was asked for"], "duration_ms": 0, "tokens": tokens});
    asks("x", "schema: schemas/n.json\nvalidate: steps/seven.sh")
        .model(&server)
        .run_json("p")
        .exit(1)
        .has("/errors/0/code", "R0203")
        .has("/errors/0/attempts", json!([schema, validate(25), validate(35)]))
        .has(
            "/errors/0/message",
            "llm step `ask` was rejected 3 times (1 attempt + 2 retries); last reason: n is not 7; seven was asked for",
        )
        .has("/errors/0/file", "pipelines/p/pipeline.yaml")
        .has("/errors/0/line", 4);
}

/// A-4.7: stdin of a validator is output, input and the steps before, in the order of the protocol.
#[test]
fn a_validator_gets_output_input_and_steps() {
    let server = Server::new([Reply::json(&json!({"n": 7}))]);
    let test = Test::new().model(&server).pipeline("p", |p| {
        p.with("input: {k: string}")
            .note("one", "1")
            .llm("ask", "x", "schema: schemas/n.json\nvalidate: steps/keep.sh")
            .file("schemas/n.json", NUMBER)
            .file("steps/keep.sh", "cat > \"$ROOT/stdin.json\"; pwd > \"$ROOT/dir\"; echo '{\"valid\": true}'\n")
    });
    test.run(&["run", "-p", "p", "-i", "k=v", "--format", "json"]).output(json!({"n": 7}));
    assert_eq!(test.read("stdin.json"), r#"{"output":{"n":7},"input":{"k":"v"},"steps":{"one":{"output":1}}}"#);
    assert!(test.read("dir").trim_end().ends_with("/app/pipelines/p"));
}

/// A-4.7: an executable validator is started by its shebang, whatever its extension says.
#[test]
fn an_executable_validator_is_started_by_its_shebang() {
    let server = Server::new([Reply::says("x")]);
    asks_with("x", "validate: steps/check.py", |p| {
        p.file("steps/check.py", "#!/bin/sh\ncat >/dev/null\necho '{\"valid\": true}'\n")
    })
    .executable("pipelines/p/steps/check.py")
    .model(&server)
    .run_json("p")
    .output("x");
}

/// A-4.7, A-4.8: for a validator that breaks after a rejection, its cause leads, and the rejected attempt stays.
#[test]
fn a_broken_validator_keeps_the_attempts_before_it() {
    let server = Server::new([Reply::says("not json"), Reply::json(&json!({"n": 7}))]);
    asks_with("x", "schema: schemas/n.json\nvalidate: steps/v.sh", |p| {
        p.file("steps/v.sh", "cat >/dev/null; echo no module named yaml >&2; exit 3\n")
    })
    .model(&server)
    .run_json("p")
    .exit(1)
    .failed_with(&["business ask: validator_broken"])
    .has("/errors/0/exit_status", 3)
    .has("/errors/0/stderr_tail", "no module named yaml\n")
    .has("/errors/0/attempts/0/rejected_by", "schema")
    .has("/errors/0/attempts/1", Value::Null)
    .has("/errors/0/message", "validator `steps/v.sh` failed: it exited with status 3 and printed no verdict")
    .steps(&["ask failed 2"]);
}

/// A-4.5: a refusal and a truncated response are named, and the call is not repeated.
#[test]
fn refusals_and_truncated_answers_are_named_and_not_repeated() {
    let cases = [
        (
            Reply::Refuses("I cannot help with that"),
            "model_refused",
            "mock/m-std refused to respond to llm step `ask`: I cannot help with that",
        ),
        (
            Reply::truncated("{\"n\": "),
            "model_truncated",
            "the response of mock/m-std to llm step `ask` was cut off at the maximum length (`max_tokens` is 9)",
        ),
    ];
    for (reply, kind, message) in cases {
        let server = Server::new([reply]);
        asks("x", "schema: schemas/n.json\nmax_tokens: 9")
            .model(&server)
            .run_json("p")
            .exit(1)
            .failed_with(&[&format!("business ask: {kind}")])
            .has("/errors/0/message", message)
            .has("/usage", json!({
                "calls": 1, "input_tokens": 100, "output_tokens": 10, "cached_tokens": 0, "reasoning_tokens": 0, "cost_usd": null,
                "shadow": {"calls": 0, "input_tokens": 0, "output_tokens": 0},
            }));
        assert_eq!(server.calls(), 1);
        assert_eq!(server.seen()[0].body["max_tokens"], 9);
    }
}

/// X-3: `system` and `temperature` go to the provider.
#[test]
fn system_prompt_and_temperature_are_sent() {
    let server = Server::new([Reply::says("ok")]);
    Test::new()
        .model(&server)
        .pipeline("p", |p| p.with("input: {who: string}").llm("ask", "x", "system: be {{input.who}}\ntemperature: 0.5"))
        .run(&["run", "-p", "p", "-i", "who=brief", "--format", "json"])
        .output("ok");
    assert_eq!(server.seen()[0].conversation(), ["system: be brief", "user: x"]);
    assert_eq!(server.seen()[0].body["temperature"], 0.5);
}

/// A-4.6: a later step reads the validated answer as JSON, not as text.
#[test]
fn a_code_step_reads_the_answer_as_json() {
    let server = Server::new([Reply::says("```json\n{ \"n\" : 7 }\n```")]);
    let test =
        asks_with("x", "schema: schemas/n.json", |p| p.sh("keep", "cat > \"$ROOT/stdin.json\"; echo '{\"output\":1}'"))
            .model(&server);
    test.run_json("p").output(1);
    let stdin: Value = serde_json::from_str(&test.read("stdin.json")).expect("stdin is JSON");
    assert_eq!(stdin, json!({"input": {}, "steps": {"ask": {"output": {"n": 7}}}}));
}

/// A-4.4, X-1: each element of a `for_each` has its own conversation and its own retries.
#[test]
fn elements_of_a_fan_out_have_their_own_conversations() {
    let server = Server::by(|seen, _| match seen.conversation().len() {
        1 => Reply::says("not json"),
        _ => Reply::json(&json!({"n": 7})),
    });
    Test::new()
        .model(&server)
        .pipeline("p", |p| {
            p.sh("list", &format!("{}; echo '{{\"output\":[\"a\",\"b\"]}}'", noting("list")))
                .llm(
                    "ask",
                    "item {{item}}",
                    "for_each: \"{{list.output}}\"\nschema: schemas/n.json\nretry: 1\nmax_parallel: 2",
                )
                .file("schemas/n.json", NUMBER)
        })
        .run_json("p")
        .output(json!([{"n": 7}, {"n": 7}]))
        .has("/usage/calls", 4);
    let mut prompts: Vec<String> = server.seen().iter().map(|seen| seen.conversation().join("|")).collect();
    prompts.sort();
    assert_eq!(prompts.iter().filter(|talk| talk.starts_with("user: item a|")).count(), 1);
    assert_eq!(prompts.iter().filter(|talk| talk.as_str() == "user: item b").count(), 1);
}

/// A-4.7: a validator without the executable bit is started by its extension.
#[test]
fn a_validator_that_is_not_executable_is_started_by_its_extension() {
    let server = Server::new([Reply::json(&json!({"n": 6})), Reply::json(&json!({"n": 7}))]);
    let script = "import json, sys\nn = json.load(sys.stdin)['output']['n']\n\
                  print(json.dumps({'valid': n == 7, 'errors': [] if n == 7 else ['n is %d' % n]}))\n";
    asks_with("x", "schema: schemas/n.json\nvalidate: steps/check.py", |p| p.file("steps/check.py", script))
        .model(&server)
        .run_json("p")
        .output(json!({"n": 7}))
        .steps(&["ask succeeded 2"]);
    assert!(server.seen()[1].conversation()[2].contains("- n is 6\n"));
}

/// A-4.3: a schema of an older draft follows the rules of that draft, and `$ref` to a file beside it is resolved.
#[test]
fn schemas_name_their_draft_and_their_neighbours() {
    let server =
        Server::new([Reply::json(&json!({"n": 5, "u": {"v": "x"}})), Reply::json(&json!({"n": 6, "u": {"v": 1}}))]);
    let schema = r#"{"$schema":"http://json-schema.org/draft-04/schema#","type":"object",
        "properties":{"n":{"type":"integer","minimum":5,"exclusiveMinimum":true},"u":{"$ref":"unit.json"}}}"#;
    asks_with("x", "schema: schemas/old.json", |p| {
        p.file("schemas/old.json", schema).file("schemas/unit.json", r#"{"properties":{"v":{"type":"integer"}}}"#)
    })
    .model(&server)
    .run_json("p")
    .output(json!({"n": 6, "u": {"v": 1}}));
    let reported = server.seen()[1].conversation()[2].clone();
    assert!(reported.contains("- /n: ") && reported.contains("- /u/v: "), "{reported}");
}
