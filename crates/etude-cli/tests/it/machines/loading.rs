//! Stage files and machine.yaml (`b-stages` §2, §21 A).

use super::case::walk;

/// B-A2, B-F1, B-F10, case 1; B-F11: a stage of eight fields loads and does its work.
#[test]
fn a_minimal_stage_loads() {
    walk(
        r#"
        outline done {"summary":"s"}
        ==> check
        finds

        ==> run
        exit 0
        prompt outline Task: T1
        row outline#1 completed ok 1
        output {"verdict":"ok","parsed":{"summary":"s"},"capHit":false,"attemptCount":1}
        "#,
    );
}

/// B-F10 to B-F17, case 2: each required field must be present; no model is called before.
#[test]
fn every_required_field_is_required() {
    for field in [
        "id", "name", "allowedTools", "completionTool", "completionSchema", "retryPolicy", "turnCap",
        "resolutionPolicy",
    ] {
        let text = format!(
            "stage outline {field}: -\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid message=~`{field}`\nasked 0"
        );
        walk(&text);
    }
}

/// B-F6, B-F7, case 3: unknown keys change nothing, `model` and `provider` among them.
#[test]
fn unknown_keys_of_a_stage_are_inert() {
    let case = walk(
        r#"
        stage outline owner: me
        stage outline x: {deep: 1}
        stage outline model: gpt-9
        stage outline provider: p
        outline done {"summary":"s"}
        ==> run
        exit 0
        prompt outline Task: T1
        "#,
    );
    assert_eq!(case.asked("outline")[0].body["model"], "m-std");
}

/// B-F20 to B-F22, case 4: optional keys are accepted, and shown.
#[test]
fn optional_keys_are_taken_and_shown() {
    let case = walk(
        r#"
        stage outline description: Plans what to do
        stage outline tags: [read-only]
        stage outline inputsSchema: {type: object}
        ==> check
        finds
        "#,
    );
    let shown = case.test.run(&["machine", "show", "m"]).exit(0);
    assert!(shown.out().contains("Plans what to do"), "{}", shown.out());
}

/// B-0.1.3, B-F16, cases 5 and 6: a turn cap is a whole number from 1.
#[test]
fn a_turn_cap_is_a_whole_number_from_one() {
    for (cap, code) in [
        ("0", "StageTurnCapTooLow"),
        ("-1", "StageTurnCapTooLow"),
        ("1.5", "StageDefinitionInvalid"),
        ("\"3\"", "StageDefinitionInvalid"),
    ] {
        walk(&format!("stage outline turnCap: {cap}\n==> check\nfinds Validation/{code} /turnCap"));
    }
    walk("stage outline turnCap: 1\n==> check\nfinds");
}

/// B-2.5, case 7: the turn cap is reported before the template.
#[test]
fn the_turn_cap_is_reported_before_the_template() {
    walk(
        "stage outline turnCap: 0\nstage outline body: {{env.X}}\n==> run\nexit 3\nerror Validation/StageTurnCapTooLow",
    );
}

/// B-F14, case 8: the completion schema is a JSON Schema.
#[test]
fn a_completion_schema_is_a_schema() {
    walk(
        "stage outline completionSchema: {type: notARealType}\n==> check\nfinds Validation/StageCompletionSchemaInvalid /completionSchema",
    );
}

/// B-F10, cases 9 and 10: ids are kebab-case and unique.
#[test]
fn ids_are_kebab_case_and_unique() {
    walk("stage outline id: Outline_A\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid\nasked 0");
    walk(
        "stage other id: outline\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid message=~`outline` duplicateId=outline\nasked 0",
    );
}

/// B-2.5, cases 11 and 12: the entry is a stage, and there is at least one.
#[test]
fn the_entry_is_a_stage() {
    walk(
        "machine entryStage: nope\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid message=~`nope` entryStage=nope",
    );
    walk("machine stages: none/*.md\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid");
}

/// B-F15, case 13; B-F17, case 14: the number of attempts and the meaning of a closed gate are stated in full and in known
/// words.
#[test]
fn policies_are_printed_in_full() {
    walk(
        "stage outline retryPolicy: {maxAttempts: 0, backoff: none}\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid",
    );
    walk("stage outline retryPolicy: {maxAttempts: 2}\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid");
    let case = walk("stage outline resolutionPolicy: maybe\n==> run\nexit 3\nerror Validation/StageDefinitionInvalid");
    let said = case.test.run(&["check"]);
    for known in ["retry-later", "skip", "fail", "ask"] {
        assert!(said.err().contains(known), "{}", said.err());
    }
}

/// B-P4, case 15; B-P3, case 112; B-N5, case 18: invalid transitions are found before a run.
#[test]
fn static_transitions_are_checked() {
    let next =
        |next: &str| format!("stage a\nstage b\nat outline next: [{{else: true, {next}}}]\n==> run\nexit 3\nasked 0\n");
    walk(&(next("parallel: [a, b], join: z") + "error Validation/StageJoinDangling"));
    walk(&(next("parallel: [a]") + "error ExtensionHost/InvalidParallelPlan"));
    walk(&(next("sequential: [ghost]") + "error Validation/StageNextUnknown"));
}

/// B-P5, cases 16 and 17: a join is in the list, or it has none.
#[test]
fn a_join_stands_in_the_list_or_nowhere() {
    walk("stage a\nstage b\nstage j\nat outline next: [{else: true, parallel: [a, b, j], join: j}]\n==> check\nfinds");
    walk("stage a\nstage b\nat outline next: [{else: true, parallel: [a, b]}]\n==> check\nfinds");
}

/// B-F13, case 19: two stages may end with a tool of the same name; each sees its own schema.
#[test]
fn two_stages_may_share_the_name_of_their_channel() {
    let case = walk(
        r#"
        at outline next: [{else: true, sequential: [build]}]
        stage outline completionTool: submit_same
        stage build completionTool: submit_same
        stage build completionSchema: {type: object, required: [built]}
        same call submit_same {"summary":"s"}
        same call submit_same {"built":true}
        ==> run
        exit 0
        asked same 2
        row outline#1 completed ok 1
        row build#1 completed ok 1
        "#,
    );
    let required = |n: usize| case.asked("same")[n].body["tools"].as_array().and_then(|t| t.last().cloned());
    assert_eq!(required(1).map(|t| t["function"]["parameters"]["required"][0].clone()), Some("built".into()));
}

/// B-F4, case 20: a byte order mark and CRLF are accepted.
#[test]
fn a_stage_file_of_another_editor_reads_the_same() {
    let case = walk("outline done {\"summary\":\"s\"}\n==> check\nfinds");
    let path = "app/machines/m/stages/outline.md";
    case.test.put(path, &format!("\u{feff}{}", case.test.read(path).replace('\n', "\r\n")));
    let ran = case.test.run(&["machine", "run", "m", "--format", "json"]).exit(0);
    assert_eq!(ran.at("/output/parsed/summary"), serde_json::json!("s"));
    assert!(case.asked("outline")[0].system().starts_with("Task: T1"), "{}", case.asked("outline")[0].system());
}

/// B-F6, case 21: a hostile frontmatter is read or refused, and nothing breaks.
#[test]
fn hostile_frontmatter_breaks_nothing() {
    let text = format!(
        "stage outline junk: \"{}\"\nstage outline __proto__: {{toString: 1}}\noutline done {{\"summary\":\"s\"}}\n==> run",
        "x".repeat(1 << 20)
    );
    let case = walk(&text);
    let code = case.document()["errors"][0]["kind"].clone();
    assert!(code.is_null() || code == "definition_invalid", "{code}");
}

/// B-M2, B-CN6: the requirements of a machine for its runner and its model are checked.
#[test]
fn what_a_machine_needs_is_heeded() {
    walk("machine requiredCoreVersion: \">=1 <2\"\n==> check\nfinds");
    walk("machine requiredCoreVersion: ^2\n==> check\nfinds Validation/StageDefinitionInvalid /requiredCoreVersion");
    walk("machine requiredCoreVersion: soon\n==> check\nfinds Validation/StageDefinitionInvalid /requiredCoreVersion");
    walk(
        r#"
        machine capabilities: [{name: vision, level: hard}]
        ==> check
        warns Validation/StageDefinitionInvalid /capabilities

        ==> run
        exit 4
        error ProviderCapability/MissingCapability name=vision capability=vision
        asked 0
        "#,
    );
    walk(
        r#"
        machine capabilities: [toolCalling, {name: vision, level: preferred}]
        outline done {"summary":"s"}
        ==> check
        warns Validation/StageDefinitionInvalid /capabilities

        ==> run
        exit 0
        "#,
    );
}

/// B-0.1.6: the names of builtin tools are reserved.
#[test]
fn a_tool_cannot_take_the_name_of_one_that_is_built_in() {
    walk(
        r#"
        file tools/Bash.yaml name: Bash\ndescription: Ours.\ncommand: sh tools/read.sh\n
        ==> run
        exit 3
        asked 0
        "#,
    );
}
