use super::*;
use crate::code::Code;
use crate::diagnostic::Severity;
use crate::source::MemorySources;

const STAGE: &str = "---\nid: outline\nname: Outline\nallowedTools: []\ncompletionTool: done\ncompletionSchema: {$ref: schemas/done.json}\nretryPolicy: {maxAttempts: 2, backoff: {kind: exponential, initialMs: 5}}\nturnCap: 3\nresolutionPolicy: ask\nx: {deep: 1}\n__proto__: {a: 1}\n---\n\n  Task: {{ctx.task}}\n---\n";

fn files(stage: &str) -> MemorySources {
    let machine = "kind: StateMachine\nid: m\nentryStage: outline\nstateSlot: {slotVersion: \"1.0.0\", schema: {}}\n";
    MemorySources::new()
        .with("machines/m/machine.yaml", machine)
        .with("machines/m/stages/outline.md", stage)
        .with("machines/m/schemas/done.json", "{\"type\": \"object\", \"required\": [\"summary\"]}")
}

fn load(stage: &str) -> Machine {
    let files = files(stage);
    let (machine, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
    assert_eq!(diagnostics, []);
    machine.unwrap()
}

/// B-F4, B-F5: the body is verbatim except for one blank line; a BOM and Windows line breaks make no difference.
#[test]
fn line_breaks_and_a_mark_at_the_start_make_no_difference() {
    let ctx = serde_json::json!({"task": "T1"});
    let body = |stage: &str| load(stage).plan.stages[0].body.render(&ctx, &serde_json::Value::Null);
    assert_eq!(body(STAGE), "  Task: T1\n---\n");
    assert_eq!(body(&format!("\u{feff}{}", STAGE.replace('\n', "\r\n"))), "  Task: T1\n---\n");
    assert_eq!(body(&STAGE.replace("\n\n  Task: {{ctx.task}}\n---\n", "\n")), "");
}

/// B-20.1: a schema may refer to files of the machine.
#[test]
fn schemas_may_lie_in_files_of_the_machine() {
    let machine = load(STAGE);
    let schema = &machine.plan.stages[0].completion_schema;
    assert_eq!(schema.violations(&serde_json::json!({})).len(), 1);
    assert!(machine.files.contains(&"machines/m/schemas/done.json".to_owned()));
}

/// B-R6: all forms of `backoff` are read.
#[test]
fn waits_are_read_in_all_their_forms() {
    let wait = |form: &str| {
        let text = STAGE.replace("{kind: exponential, initialMs: 5}", form);
        let backoff = load(&text).plan.stages[0].backoff;
        [backoff.after(1), backoff.after(2), backoff.after(3)]
    };
    assert_eq!(wait("none"), [0, 0, 0]);
    assert_eq!(wait("250"), [250, 250, 250]);
    assert_eq!(wait("{kind: fixed, initialMs: 7}"), [7, 7, 7]);
    assert_eq!(wait("{kind: exponential, initialMs: 5}"), [5, 10, 20]);
    assert_eq!(wait("{kind: exponential, initialMs: 5, factor: 3, maxMs: 20}"), [5, 15, 20]);
}

/// B-2.5: the fault of the earliest check comes first, in any file.
#[test]
fn faults_come_in_the_order_in_which_they_are_looked_for() {
    let machine = "kind: StateMachine\nid: m\nentryStage: outline\nstateSlot: {slotVersion: \"1.0.0\", schema: {}}\npipeline:\n  outline: {next: [{else: true, parallel: [outline, b], join: z}]}\n";
    let stage = STAGE.replace("{{ctx.task}}", "{{env.X}}").replace("{$ref: schemas/done.json}", "{type: nope}");
    let other = STAGE.replace("id: outline", "id: b");
    let files = files(&stage).with("machines/m/machine.yaml", machine).with("machines/m/stages/b.md", other.as_str());
    let (_, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
    let errors = diagnostics.iter().filter(|fault| fault.is_error());
    let names: Vec<_> = errors.map(|fault| fault.rule.as_ref().map_or("", |rule| rule.name)).collect();
    assert_eq!(names, ["StageCtxUnresolved", "StageCompletionSchemaInvalid", "StageJoinDangling"]);
}

/// B-F6: values of the author's own keys are never errors, and those that JSON can express are usable.
#[test]
fn odd_values_of_unknown_keys_are_no_errors() {
    let found = |own: &str| {
        let stage = STAGE.replace("Task: {{ctx.task}}", "{{stage.id}} {{stage.x.deep}}");
        let (machine, diagnostics) =
            Machines::new(&files(&stage.replacen("---\n", &format!("---\n{own}\n"), 1)), Rules::default()).machine("m");
        let stage = machine.unwrap_or_else(|| panic!("{own}: {diagnostics:?}")).plan.stages[0].clone();
        assert_eq!(stage.body.render(&serde_json::json!({}), &stage.front), "  outline 1\n---\n", "{own}");
        diagnostics.iter().map(|fault| fault.code).collect::<Vec<_>>()
    };
    for own in ["score: .nan", "meta: {q: .inf}", "meta: [1, -.inf]"] {
        assert_eq!(found(own), [], "{own}");
    }
    for (own, code) in [
        ("meta: !custom x", Code::UnknownTag),
        ("s: !!set {a, b}", Code::UnknownTag),
        ("n: !!binary aGk=", Code::UnknownTag),
        ("meta: {<<: {a: 1}}", Code::MergeKey),
        ("meta: {a: 1, a: 2}", Code::DuplicateKey),
        ("owner: a\nowner: b", Code::DuplicateKey),
        ("? [a, b]\n: c", Code::KeyNotText),
    ] {
        assert_eq!(found(own), [code], "{own}");
    }
    for own in ["id: other", "tags: !custom [a]", "<<: {a: 1}", "description: {a: 1, a: 2}"] {
        let (machine, _) =
            Machines::new(&files(&STAGE.replacen("---\n", &format!("---\n{own}\n"), 1)), Rules::default()).machine("m");
        assert!(machine.is_none(), "{own}");
    }
}

/// B-H2: a script that a machine names and does not have is reported, wherever it should lie.
#[test]
fn a_missing_script_of_a_machine_is_reported() {
    let sources = files(STAGE);
    let text = String::from_utf8(sources.read("machines/m/machine.yaml", 1 << 20).expect("a machine")).expect("text");
    let found = |command: &str| -> Vec<String> {
        let own = format!("{text}guards: [{{script: {command}}}]\n");
        let found =
            Machines::new(&sources.clone().with("machines/m/machine.yaml", own), Rules::default()).machine("m").1;
        found.into_iter().filter(|fault| fault.code == Code::MissingScript).map(|fault| fault.message).collect()
    };
    for script in ["scripts/guard.py", "guard.py", "checks/guard.py"] {
        let message = format!("the command names `{script}`, which does not exist");
        assert_eq!(found(&format!("python3 -B {script}")), [message]);
    }
    assert_eq!(found("opa eval"), [""; 0]);
}

/// B-F6: keys inside of `retryPolicy` are the author's own as well. One that resembles a field is a warning, and stands
/// for that field's absence.
#[test]
fn unknown_keys_of_a_retry_policy_are_inert() {
    let found = |policy: &str| {
        let text = STAGE.replace("{maxAttempts: 2, backoff: {kind: exponential, initialMs: 5}}", policy);
        let files = files(&text);
        let (machine, found) = Machines::new(&files, Rules::default()).machine("m");
        let found: Vec<_> = found.into_iter().map(|fault| (fault.severity, fault.code.as_str())).collect();
        (machine.is_some(), found)
    };
    let (warning, error) = ((Severity::Warning, "P0201"), (Severity::Error, "P0201"));
    assert_eq!(found("{maxAttempts: 2, backoff: none, note: x}"), (true, vec![]));
    assert_eq!(found("{maxAttempts: 2, owner: me, backoff: {kind: fixed, initialMs: 5, note: x}}"), (true, vec![]));
    let near = "{maxAttempts: 2, backoff: {kind: exponential, initialMs: 5, maxMss: 9}}";
    assert_eq!(found(near), (true, vec![warning]));
    assert_eq!(found("{maxAttempts: 2, maxAttempt: 3, backoff: none}"), (true, vec![warning]));
    assert_eq!(found("{maxAttempt: 2, backoff: none}"), (false, vec![error]));
    assert_eq!(found("{note: x, backoff: none}"), (false, vec![(Severity::Error, "P0203")]));
}

/// B-F13, B-F14: the completion channel is a tool: providers accept its name, and its arguments are an object.
#[test]
fn a_completion_is_a_call_of_a_tool() {
    let found = |from: &str, to: &str| {
        let faults = Machines::new(&files(&STAGE.replace(from, to)), Rules::default()).machine("m").1;
        let rule = |fault: &Diagnostic| fault.rule.as_ref().map(|rule| format!("{} {}", rule.name, rule.path));
        faults.iter().filter(|fault| fault.is_error()).filter_map(rule).collect::<Vec<_>>()
    };
    let tool = "completionTool: done";
    for name in ["bad name!", "a.b", &"x".repeat(65)] {
        let expected = ["StageDefinitionInvalid /completionTool"];
        assert_eq!(found(tool, &format!("completionTool: {name:?}")), expected, "{name}");
    }
    assert_eq!(found(tool, &format!("completionTool: {}", "x".repeat(64))), [""; 0]);
    for (schema, fits) in [
        ("{type: array, items: {type: string}}", false),
        ("{type: [string, \"null\"]}", false),
        ("{type: [object, \"null\"]}", true),
        ("{}", true),
        ("{required: [a]}", true),
    ] {
        let expected: &[&str] = if fits { &[] } else { &["StageCompletionSchemaInvalid /completionSchema"] };
        assert_eq!(found("{$ref: schemas/done.json}", schema), expected, "{schema}");
    }
}

/// B-2.5, case 10: a fault names its subject with the contract's word.
#[test]
fn faults_of_a_machine_name_what_they_are_about() {
    let subject = |files: MemorySources| {
        let faults = Machines::new(&files, Rules::default()).machine("m").1;
        let subjects = faults.iter().filter(|fault| fault.is_error()).map(|fault| fault.rule.clone().unwrap().subject);
        subjects.flatten().map(|(name, id)| format!("{name} {id}")).collect::<Vec<_>>()
    };
    assert_eq!(subject(files(STAGE).with("machines/m/stages/two.md", STAGE)), ["duplicateId outline"]);
    assert_eq!(subject(files(&STAGE.replace("turnCap: 3", "turnCap: 0"))), ["stageId outline"]);
    assert_eq!(subject(files(&STAGE.replace("id: outline", "id: other"))), ["entryStage outline"]);
}

/// B-P5: the switch of the configuration lets a join stand outside its list.
#[test]
fn the_switch_lets_a_join_stand_outside_its_list() {
    let mut files = files(STAGE);
    for id in ["a", "b", "j"] {
        files = files.with(&format!("machines/m/stages/{id}.md"), STAGE.replace("id: outline", &format!("id: {id}")));
    }
    let machine = "kind: StateMachine\nid: m\nentryStage: outline\nstateSlot: {slotVersion: \"1.0.0\", schema: {}}\npipeline: {outline: {next: [{parallel: [a, b], join: j}]}}\n";
    let files = files.with("machines/m/machine.yaml", machine);
    let names = |join_outside_next_stages| {
        let policy = Policy { join_outside_next_stages, ..Policy::default() };
        let report = Machines::new(&files, Rules { policy, guards: Vec::new() }).check(&[]);
        report.diagnostics.into_iter().filter(Diagnostic::is_error).map(|d| d.rule.unwrap().name).collect::<Vec<_>>()
    };
    assert_eq!(names(false), ["StageJoinDangling"]);
    assert_eq!(names(true), Vec::<&str>::new());
}

/// cli, "authoring": the schemas for editors are valid, and accept valid definitions.
#[test]
fn editor_schemas_are_schemas() {
    for schema in [stage_schema(), machine_schema()] {
        assert!(jsonschema::meta::is_valid(&schema));
    }
    let front = serde_json::json!({"id": "a", "name": "A", "allowedTools": [], "completionTool": "d", "turnCap": 1,
        "completionSchema": {}, "retryPolicy": {"maxAttempts": 1, "backoff": "none"}, "resolutionPolicy": "ask", "own": 1});
    let validator = jsonschema::validator_for(&stage_schema()).unwrap();
    assert!(validator.is_valid(&front));
    let mut bad = front;
    bad["turnCap"] = 0.into();
    assert!(!validator.is_valid(&bad));
}

/// B-F12: a tool that keeps a stage from starting is reported before any cost. Patterns are errors; unknown names are
/// warnings, because the tools of a run are known only during the run.
#[test]
fn tools_that_do_not_exist_are_reported() {
    let reported = |tools: &str, completion: &str| -> Vec<String> {
        let stage = STAGE.replace("allowedTools: []", &format!("allowedTools: {tools}"));
        let stage = stage.replace("completionTool: done", &format!("completionTool: {completion}"));
        let files = files(&stage).with("tools/lookup.yaml", "name: lookup\ndescription: d\ncommand: cat\n");
        let (machine, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
        assert_eq!(machine.is_none(), diagnostics.iter().any(Diagnostic::is_error));
        let rule =
            |d: &Diagnostic| d.rule.as_ref().map(|rule| format!("{} {}", rule.name, rule.path)).unwrap_or_default();
        diagnostics.iter().map(|d| format!("{} {} {}", d.severity.word(), rule(d), d.message)).collect()
    };
    assert_eq!(reported("[Read, lookup, mcp__git__log]", "done"), Vec::<String>::new());
    assert_eq!(
        reported("[Read, \"Bash(python3 *)\"]", "done"),
        [
            "error AllowedToolUnknown /allowedTools/1 `allowedTools` of a stage must list tool names; `Bash(python3 *)` is a pattern"
        ]
    );
    assert_eq!(
        reported("[Raed]", "lookup"),
        [
            "warning AllowedToolUnknown /allowedTools/0 there is no tool `Raed`: the stage cannot start",
            "warning CompletionToolCollision /completionTool the completion tool has the name of the tool `lookup`: the stage cannot start",
        ]
    );
}

/// B-20.3: braces in fields that are used as written are errors, with a hint; prose and prompts may have them.
#[test]
fn references_in_fields_without_templates_are_errors() {
    let machine = "kind: StateMachine\nid: m\ndescription: Knows {{ctx.task}}.\nentryStage: outline\nstateSlot: {slotVersion: \"1.0.0\", schema: {}}\nconfig: {prompt: \"{{ctx.task}}\"}\npipeline:\n  outline:\n    setup: {set: {task: \"{{input.task}}\"}}\n    assert: {script: \"sh judge.sh {{parsed.summary}}\"}\n    exit: {output: {a: [\"{{parsed.summary}}\"]}}\n    next: [{when: {path: \"{{result.verdict}}\", equals: ok}, terminal: true}, {else: true, terminal: true}]\n";
    let stage = STAGE.replace("name: Outline", "name: \"{{ctx.task}}\"\ndescription: \"{{ctx.task}}\"");
    let files = files(&stage).with("machines/m/machine.yaml", machine);
    let (_, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
    let reported: Vec<_> = diagnostics
        .iter()
        .map(|d| {
            let path = d.rule.as_ref().map(|rule| rule.path.as_str()).unwrap_or_default();
            format!("{} {path} {} / {}", d.code, d.message, d.hint.as_deref().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        reported,
        [
            "P0317 /pipeline `script` is not a template: `{{parsed.summary}}` would be passed on as written / the script reads `ctx`, `input` and more as JSON from stdin",
            "P0317 /pipeline `output` is not a template: `{{parsed.summary}}` would be passed on as written / take the value from its place: `{from: PATH}`, such as `{from: input.task}`",
            "P0317 /pipeline `path` is not a template: `{{result.verdict}}` would be passed on as written / write the path without braces: `path: parsed.summary`",
            "P0317 /name `name` is not a template: `{{ctx.task}}` would be passed on as written / write the value itself",
        ]
    );
}

/// B-20.3: a path into the slot must name a member that its schema declares. An open schema gives a warning, and one
/// that declares nothing accepts everything.
#[test]
fn a_path_into_the_slot_names_a_declared_member() {
    let found = |schema: &str, hooks: &str| -> Vec<(bool, String, Option<String>)> {
        let machine = format!(
            "kind: StateMachine\nid: m\nentryStage: outline\nstateSlot: {{slotVersion: \"1.0.0\", schema: {schema}}}\npipeline:\n  outline: {hooks}\n"
        );
        let files = files(STAGE).with("machines/m/machine.yaml", machine);
        let (_, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
        let is_of_slot = |diagnostic: &&crate::Diagnostic| diagnostic.message.contains("state slot");
        let reported = |diagnostic: &crate::Diagnostic| {
            assert!(diagnostic.position().is_some());
            (diagnostic.is_error(), diagnostic.message.clone(), diagnostic.hint.clone())
        };
        diagnostics.iter().filter(is_of_slot).map(reported).collect()
    };
    let closed = "{type: object, properties: {topic: {type: string}}, additionalProperties: false}";
    let reported = |is_error| {
        let (message, hint) = ("the state slot has no member `topik`", "did you mean `topic`?");
        vec![(is_error, message.to_owned(), Some(hint.to_owned()))]
    };
    assert_eq!(found(closed, "{setup: {set: {task: {from: slot.topik}}}}"), reported(true));
    assert_eq!(found(closed, "{setup: {set: {task: {from: slot.topic}}}}"), []);
    let next = "{next: [{when: {path: slot.topik, exists: true}, terminal: true}, {else: true, terminal: true}]}";
    assert_eq!(found(closed, next), reported(true));
    let declared = "{type: object, properties: {topic: {type: string}}}";
    assert_eq!(found(declared, "{setup: {set: {task: {from: slot.topik}}}}"), reported(false));
    for open in ["{}", "{type: object, properties: {topic: {}}, additionalProperties: true}"] {
        assert_eq!(found(open, "{setup: {set: {task: {from: slot.topik}}}}"), [], "{open}");
    }
}

/// B-20.3: a rule or value with a number that cannot be held is reported and not left out.
#[test]
fn numbers_that_are_out_of_range_are_reported() {
    let found = |hooks: &str| -> Vec<String> {
        let machine = format!(
            "kind: StateMachine\nid: m\nentryStage: outline\nstateSlot: {{slotVersion: \"1.0.0\", schema: {{}}}}\npipeline:\n  outline: {hooks}\n"
        );
        let files = files(STAGE).with("machines/m/machine.yaml", machine);
        let (_, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
        diagnostics.iter().filter(|found| found.is_error()).map(|found| found.message.clone()).collect()
    };
    let rule =
        |number: &str| format!("{{gate: {{rules: [{{when: {{path: input.x, gt: {number}}}, outcome: block}}]}}}}");
    assert_eq!(found(&rule("1e300")), Vec::<String>::new());
    assert_eq!(found(&rule("1e999")), ["`gt` holds a number that is out of range"]);
    assert_eq!(found("{setup: {set: {task: [-1e999]}}}"), ["a value holds a number that is out of range"]);
}

/// Codes and messages of the faults of the machine with these hooks, a second stage `b`, and a schema for the slot.
fn faults(hooks: &str) -> Vec<(&'static str, String)> {
    let slot = "{slotVersion: \"1.0.0\", schema: {type: object, properties: {n: {type: integer}, o: {type: object, properties: {p: {type: string}, q: {type: string}}}}}}";
    let machine = format!("kind: StateMachine\nid: m\nentryStage: outline\nstateSlot: {slot}\npipeline:\n{hooks}\n");
    let done = "{type: object, properties: {ok: {type: boolean}}}";
    let stage = STAGE.replace("{$ref: schemas/done.json}", done).replace("{{ctx.task}}", "it");
    let other = stage.replace("id: outline", "id: b");
    let files = files(&stage).with("machines/m/machine.yaml", machine).with("machines/m/stages/b.md", other.as_str());
    let (_, diagnostics) = Machines::new(&files, Rules::default()).machine("m");
    diagnostics.into_iter().map(|fault| (fault.code.as_str(), fault.message)).collect()
}

fn codes(hooks: &str) -> Vec<&'static str> {
    faults(hooks).into_iter().map(|(code, _)| code).collect()
}

/// A fault of `next` makes its transitions unknown: a stage that they would lead to is not unreachable as well.
#[test]
fn a_faulty_next_hides_no_other_cause() {
    assert_eq!(codes("  outline: {next: [{else: true, terminal: true}]}"), ["P0710"]);
    assert_eq!(codes("  outline: {next: [{else: true, parallel: [outline, b], join: z}]}"), ["P0706"]);
    assert_eq!(codes("  outlin: {next: [{else: true, sequential: [b]}]}"), ["P0705"]);
}

/// B-20.3: a comparison with a value of another type is reported if a schema names the type.
#[test]
fn comparisons_of_other_types_are_reported() {
    let found = |when: &str| {
        faults(&format!("  outline: {{next: [{{when: {when}, sequential: [b]}}, {{else: true, terminal: true}}]}}"))
    };
    assert_eq!(
        found("{path: slot.n, equals: \"3\"}"),
        [("P0215", "the condition is never true: `slot.n` is an integer, and `equals` has another type".to_owned())]
    );
    assert_eq!(
        found("[{path: parsed.ok, notEquals: \"true\"}]"),
        [(
            "P0215",
            "the condition is always true: `parsed.ok` is a boolean, and `notEquals` has another type".to_owned()
        )]
    );
    for sound in ["{path: slot.n, equals: 3}", "{path: slot.o.x, equals: 3}", "{path: input.n, equals: \"3\"}"] {
        assert_eq!(found(sound), [], "{sound}");
    }
}

/// Each fault of a value for the slot is reported, at its member.
#[test]
fn all_faults_of_a_slot_value_are_reported() {
    let found = faults("  outline: {exit: {slot: {o: {p: 1, q: 2}}}, next: [{else: true, sequential: [b]}]}");
    assert_eq!(found.iter().map(|(code, _)| *code).collect::<Vec<_>>(), ["P0218", "P0218"], "{found:?}");
}
