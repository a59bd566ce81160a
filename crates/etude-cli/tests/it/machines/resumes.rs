//! Ids, stored state, capability and isolation (`b-stages` §12 to §16, §21 H).

use super::case::walk;
use crate::test::{KEY, wait_until};

/// B-ID3, B-ID4, case 119: one id for all attempts, another for each sibling, and one for the whole run.
#[test]
fn ids_are_those_of_executions() {
    let case = walk(
        r#"
        at outline next: [{else: true, parallel: [a, b]}]
        stage a
        stage b
        hook setup a {"ctx":{}}
        hook setup b {"ctx":{}}
        hook assert outline {"verdict":"retry","reason":"again"}
        hook assert outline {"verdict":"ok"}
        outline done {"summary":"1"}
        outline done {"summary":"2"}
        a done {"summary":"a"}
        b done {"summary":"b"}
        ==> run
        exit 0
        told assert outline 1 /run/stageExecutionId [RUN]/outline#1
        told assert outline 2 /run/stageExecutionId [RUN]/outline#1
        told assert outline 2 /run/attempt 2
        told setup a 1 /run/stageExecutionId [RUN]/a#1
        told setup b 1 /run/stageExecutionId [RUN]/b#1
        told setup b 1 /run/workflowRunId [RUN]
        "#,
    );
    assert_eq!(
        case.reported("setup-a", 1)["run"]["workflowRunId"],
        case.reported("assert-outline", 1)["run"]["workflowRunId"]
    );
}

/// A machine whose `build` waits before it begins, with data in its slot.
const KEPT: &str = r#"
        at outline exit: {slot: {n: 1}}
        at outline next: [{else: true, sequential: [build]}]
        stage build
        hook setup build {"ctx":{"task":"b"}}
        hook gate build {"outcome":"defer","reason":"later"}
        hook gate build {"outcome":"proceed"}
        outline done {"summary":"o"}
        build done {"summary":"b"}
"#;

/// B-M6, B-ST4, B-ST6, B-M5, case 124: the slot is delivered before the machine is attached, and an event reports that.
#[test]
fn a_machine_is_attached_with_its_slot() {
    walk(&format!(
        r#"{KEPT}
        ==> run
        exit 5
        SMAttached smId=m resumed=false sawSlot=true

        ==> resume
        exit 0
        asked outline 1
        told setup build 2 /slot {{"slotVersion":"1.0.0","data":{{"n":1}}}}
        SessionResumed
        SMAttached smId=m resumed=true sawSlot=true
        "#
    ));
}

fn drift(policy: &str, more: &str, came: &str) {
    for accept in ["", " --accept-changes"] {
        let slot = |version: &str| {
            format!("machine stateSlot: {{slotVersion: \"{version}\", schema: {{type: object}}, {policy}}}")
        };
        walk(&format!(
            "{KEPT}\n{more}\n{}\n==> run\nexit 5\n\n{}\n==> resume{accept}\n{came}\n",
            slot("0.9.0"),
            slot("1.0.0")
        ));
    }
}

/// B-ST3, case 123: for a slot of another version that the machine rejects, nothing is executed, and the run is unchanged.
#[test]
fn a_slot_of_another_version_is_refused() {
    let case = walk(&format!(
        r#"
        {KEPT}
        machine stateSlot: {{slotVersion: "0.9.0", schema: {{type: object}}, drift: reject}}
        ==> run
        exit 5

        machine stateSlot: {{slotVersion: "1.0.0", schema: {{type: object}}, drift: reject}}
        ==> resume
        exit 1
        error Session/SlotDriftRejected storedVersion=0.9.0 currentVersion=1.0.0
        calls setup build 1
        StateSlotDrift extId=m storedVersion=0.9.0 currentVersion=1.0.0 decision=reject

        machine stateSlot: {{slotVersion: "0.9.0", schema: {{type: object}}, drift: reject}}
        ==> resume
        exit 0
        row outline#1 completed ok 1
        row build#1 completed ok 1
        "#
    ));
    assert_eq!(case.document()["machine"], "m");
}

/// B-ST3, case 123: accepting changes does not accept a slot that the machine rejects.
#[test]
fn a_rejected_slot_is_rejected_whatever_is_accepted() {
    drift("drift: reject", "", "exit 1\nerror Session/SlotDriftRejected\nStateSlotDrift decision=reject");
}

/// B-ST3, case 123: `warn` accepts the data unchanged, and reports that. A machine that declares it has accepted that it may
/// change.
#[test]
fn a_slot_of_another_version_may_be_taken_as_it_is() {
    drift(
        "drift: warn",
        "",
        "exit 0\nasked outline 1\ntold setup build 2 /slot {\"slotVersion\":\"1.0.0\",\"data\":{\"n\":1}}\nStateSlotDrift extId=m storedVersion=0.9.0 currentVersion=1.0.0 decision=warn\nSMAttached resumed=true",
    );
}

/// B-ST3, case 123: with `migrate` a script creates the new data, which must have the machine's version.
#[test]
fn a_slot_of_another_version_is_migrated() {
    let policy = "drift: migrate, migrate: {script: sh scripts/hook.sh migrate}";
    drift(
        policy,
        r#"hook migrate {"slotVersion":"1.0.0","data":{"n":7}}"#,
        "exit 0\nasked outline 1\ncalls migrate 1\ntold migrate 1 /stored {\"slotVersion\":\"0.9.0\",\"data\":{\"n\":1}}\ntold setup build 2 /slot {\"slotVersion\":\"1.0.0\",\"data\":{\"n\":7}}\nStateSlotDrift decision=migrate",
    );
    for answer in [r#"{"slotVersion":"0.9.0","data":{}}"#, r#"{"data":{}}"#, "exit 1", "nothing"] {
        drift(
            policy,
            &format!("hook migrate {answer}"),
            "exit 1\nerror Session/SlotMigrationFailed extId=m\ncalls setup build 1",
        );
    }
}

/// B-ST3: a migrated slot has the new version from then on, in every later process.
#[test]
fn a_migrated_slot_stays_migrated() {
    let slot = "machine stateSlot: {slotVersion: \"VERSION\", schema: {type: object}, drift: migrate, migrate: {script: sh scripts/hook.sh migrate}}";
    walk(&format!(
        r#"
        {}
        {}
        hook migrate {{"slotVersion":"1.0.0","data":{{"n":7}}}}
        ==> run
        exit 5

        {}
        ==> resume
        exit 5
        calls migrate 1

        ==> resume
        exit 0
        calls migrate 1
        told setup build 3 /slot {{"slotVersion":"1.0.0","data":{{"n":7}}}}
        "#,
        KEPT.replace(
            "hook gate build {\"outcome\":\"proceed\"}",
            "hook gate build {\"outcome\":\"defer\"}\nhook gate build {\"outcome\":\"proceed\"}"
        ),
        slot.replace("VERSION", "0.9.0"),
        slot.replace("VERSION", "1.0.0"),
    ));
}

/// A machine with two forms of its slot, which waits for an approval; then its slot has another version. `migrate` is the
/// content of its script, which has its input in `$d`; `then` has the next lines of the plan.
fn two_forms(migrate: &str, then: &str) -> super::case::Case {
    let slot = |version: &str| {
        format!(
            "machine stateSlot: {{slotVersion: \"{version}\", schema: {{type: object}}, drift: migrate, migrate: {{script: sh scripts/hook.sh migrate}}}}"
        )
    };
    let stored = r#"sed -n 's/.*"stored":{"slotVersion":"[^"]*","data":\({[^}]*}\)}.*/{"slotVersion":"1.0.0","data":\1}/p' "$d/$(ls "$d" | wc -l).json""#;
    walk(&format!(
        r#"
        {}
        hook migrate sh {migrate}{stored}
        at outline exit: {{slot: {{n: 1}}}}
        at outline next: [{{else: true, parallel: [a, b, j], join: j}}]
        at a exit: {{slot: {{x: 2}}}}
        stage a
        stage b
        stage j
        hook setup j {{"ctx":{{}}}}
        outline done {{"summary":"o"}}
        a done {{"summary":"a"}}
        b call bash {{}}
        b call bash {{}}
        b done {{"summary":"b"}}
        j done {{"summary":"j"}}
        ==> run
        exit 5
        row outline#1 completed ok 1
        row a#1 completed ok 1
        row b#1 halted - 1

        approve
        {}
        {then}
        "#,
        slot("0.9.0"),
        slot("1.0.0"),
    ))
}

/// B-0.1.4, B-ST3: in a fan-out each form of the data in a branch is migrated, once.
#[test]
fn every_form_of_the_slot_in_a_fan_out_is_migrated() {
    let came = r#"told setup j 1 /slot {"slotVersion":"1.0.0","data":{"n":1,"x":2}}"#;
    two_forms("", &format!("==> resume\n exit 0\n asked a 1\n calls migrate 2\n{came}"));
}

/// B-ST3, A-5.3: a migration whose process dies continues: migrated forms are not migrated again.
#[test]
fn a_migration_that_is_killed_goes_on_where_it_was() {
    let hangs = r#"[ -e "$ROOT/go" ] || [ "$(ls "$d" | wc -l)" != 2 ] || exec sleep 60; "#;
    let case = two_forms(hangs, "==> check\nfinds");
    let id = case.test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    let running = case.test.start(&["runs", "resume", &id, "--format", "json"]);
    wait_until("the second form", || case.test.files_below("hooks/migrate").len() == 2);
    running.kill();
    case.test.put("go", "");
    case.test.run(&["runs", "resume", &id, "--format", "json"]).exit(0);
    assert_eq!(case.test.files_below("hooks/migrate").len(), 3);
    assert_eq!(case.reported("migrate", 2)["stored"], case.reported("migrate", 3)["stored"]);
}

/// B-ST3, case 123: a slot without a version is refused before anything begins.
#[test]
fn a_slot_has_a_version() {
    walk(
        "machine stateSlot: {schema: {type: object}}\n==> check\nfinds Validation/SlotVersionMissing /stateSlot/slotVersion",
    );
}

/// B-ST3: data of the old form need not fit the new schema, but the result of the script does.
#[test]
fn a_migration_may_change_the_schema() {
    let slot = |version: &str, member: &str| {
        format!(
            "machine stateSlot: {{slotVersion: \"{version}\", schema: {{type: object, required: [{member}]}}, drift: migrate, migrate: {{script: sh scripts/hook.sh migrate}}}}"
        )
    };
    for (made, came) in [
        (r#"{"m":7}"#, "exit 0\ntold setup build 2 /slot/data {\"m\":7}"),
        (r#"{"n":1}"#, "exit 1\nerror Session/SlotMigrationFailed message=~required"),
    ] {
        walk(&format!(
            "{KEPT}\n{}\nhook migrate {{\"slotVersion\":\"1.0.0\",\"data\":{made}}}\n==> run\nexit 5\n\n{}\n==> resume\n{came}\n",
            slot("0.9.0", "n"),
            slot("1.0.0", "m")
        ));
    }
    // A migration of an earlier process is read once more, and need not fit the current schema.
    walk(&format!(
        r#"
        {}
        {}
        hook migrate {{"slotVersion":"1.0.0","data":{{"m":7}}}}
        hook migrate {{"slotVersion":"2.0.0","data":{{"k":8}}}}
        ==> run
        exit 5

        {}
        ==> resume
        exit 5
        calls migrate 1

        {}
        ==> resume
        exit 0
        calls migrate 2
        told migrate 2 /stored {{"slotVersion":"1.0.0","data":{{"m":7}}}}
        told setup build 3 /slot {{"slotVersion":"2.0.0","data":{{"k":8}}}}
        "#,
        KEPT.replace(
            "hook gate build {\"outcome\":\"proceed\"}",
            "hook gate build {\"outcome\":\"defer\"}\nhook gate build {\"outcome\":\"proceed\"}"
        ),
        slot("0.9.0", "n"),
        slot("1.0.0", "m"),
        slot("2.0.0", "k"),
    ));
}

/// B-ST3: a migration of an earlier process is read once more by the script that made it, whatever the machine declares for the
/// next version: nothing, or another script.
#[test]
fn a_migration_holds_under_a_later_policy() {
    let slot = |version: &str, drift: &str| {
        format!("machine stateSlot: {{slotVersion: \"{version}\", schema: {{type: object}}, {drift}}}")
    };
    let migrate = "drift: migrate, migrate: {script: sh scripts/hook.sh migrate}";
    for (later, came) in [
        ("drift: warn", "calls migrate 1\ntold setup build 3 /slot {\"slotVersion\":\"2.0.0\",\"data\":{\"m\":7}}"),
        (
            "drift: migrate, migrate: {script: sh scripts/hook.sh migrate again}",
            "calls migrate 2\ntold migrate 2 /stored {\"slotVersion\":\"1.0.0\",\"data\":{\"m\":7}}\ntold setup build 3 /slot {\"slotVersion\":\"2.0.0\",\"data\":{\"k\":8}}",
        ),
    ] {
        walk(&format!(
            "{}\n{}\nhook migrate {{\"slotVersion\":\"1.0.0\",\"data\":{{\"m\":7}}}}\nhook migrate {{\"slotVersion\":\"2.0.0\",\"data\":{{\"k\":8}}}}\n\
             ==> run\nexit 5\n\n{}\n==> resume\nexit 5\ncalls migrate 1\n\n{}\n==> resume\nexit 0\n{came}\n",
            KEPT.replace(
                "hook gate build {\"outcome\":\"proceed\"}",
                "hook gate build {\"outcome\":\"defer\"}\nhook gate build {\"outcome\":\"proceed\"}"
            ),
            slot("0.9.0", migrate),
            slot("1.0.0", migrate),
            slot("2.0.0", later),
        ));
    }
}

/// B-ST8: an undeclared change of the machine is refused, and the document names the machine.
#[test]
fn an_undeclared_change_is_refused() {
    let case = walk(&format!("{KEPT}\n==> run\nexit 5\n\nstage build turnCap: 9\n==> resume\nexit 3\n"));
    let document = case.document();
    assert_eq!((&document["mode"], &document["machine"]), (&"machine".into(), &"m".into()));
    assert!(document["stages"].is_array(), "{document}");
}

/// B-ST7, case 125: an unknown id resumes nothing.
#[test]
fn nothing_kept_is_nothing_resumed() {
    let case = walk("outline done {\"summary\":\"s\"}\n==> run\nexit 0");
    case.test.run(&["runs", "resume", "zzzzzzzzzzzzzzzz", "--format", "json"]).exit(2);
}

/// B-ST1, case 121: messages are in no slot and in no input of a later process.
#[test]
fn no_message_is_kept_in_the_slot() {
    walk(&format!(
        "{}\n==> run\nexit 5\n\n==> resume\nexit 0\ntold setup build 2 /slot/data {{\"n\":1}}\ntold setup build 2 /ctx/attempts []\ntalk build",
        KEPT.replace("outline done", "outline say a word that must not be kept\n        outline done")
    ));
}

/// B-CN1, B-CN4, B-CN5, case 127: a model that does not guarantee tool calls is refused before it is called.
#[test]
fn a_model_has_to_guarantee_tool_calls() {
    for claim in ["absent", "preferred"] {
        let case = walk("==> check\nfinds");
        claims(&case, claim);
        let ran = case.test.run(&["machine", "run", "m", "--format", "json"]).exit(4);
        assert_eq!(ran.at("/errors/0/class"), "ProviderCapability");
        assert_eq!(
            (ran.at("/errors/0/code"), ran.at("/errors/0/context/claim")),
            ("MissingCapability".into(), claim.into())
        );
    }
}

/// Makes the configured model claim another capability.
fn claims(case: &super::case::Case, claim: &str) {
    let path = "home/.config/etude/config.yaml";
    let config = case.test.read(path).replace("toolCalling: hard", &format!("toolCalling: {claim}"));
    case.test.put(path, &config);
}

/// B-CN3, case 129: an incapable model that replaces another between two stages is refused, and the run is unchanged.
#[test]
fn a_model_that_cannot_takes_no_run_over() {
    let case = walk(&format!("{KEPT}\n==> run\nexit 5"));
    claims(&case, "absent");
    let listed = case.test.run(&["runs", "list", "--format", "json"]);
    let id = listed.id_of_first_run();
    let refused = case.test.run(&["runs", "resume", &id, "--format", "json"]).exit(4);
    assert_eq!((refused.at("/errors/0/code"), refused.at("/machine")), ("MissingCapability".into(), "m".into()));
    assert!(case.asked("build").is_empty());
    let path = "home/.config/etude/config.yaml";
    case.test.put(path, &case.test.read(path).replace("toolCalling: absent", "toolCalling: hard"));
    case.test.run(&["runs", "resume", &id, "--format", "json"]).exit(0);
}

/// B-IS2, case 130: a key in the prompt, in a tool's description or in a reason is not sent, and nowhere reported; text that
/// the user has typed is.
#[test]
fn no_model_is_reported_a_key() {
    let done = "outline done {\"summary\":\"s\"}\n";
    for (machine, part) in [
        (format!("hook setup outline {{\"ctx\":{{\"task\":\"{KEY}\"}}}}"), "systemPrompt"),
        (format!("stage outline completionSchema: {{type: object, description: {KEY}}}"), "toolManifest"),
        (format!("hook assert outline {{\"verdict\":\"retry\",\"reason\":\"use {KEY}\"}}"), "history"),
    ] {
        let case = walk(&format!(
            "{machine}\n{done}{done}==> run\nexit 1\nerror Validation/LLMContextLeak part={part} stage=outline"
        ));
        assert!(!case.was_sent(KEY), "{part}");
        let reported =
            case.document().to_string() + &format!("{:?}", case.events(&["StageInitFailed", "StageAssertOutcome"]));
        assert!(!reported.contains(KEY), "{reported}");
    }
    let case = walk(&format!(
        "at outline setup: {{set: {{task: {{from: input.task}}}}}}\n{done}==> run -i task={KEY}\nexit 0"
    ));
    assert!(case.was_sent(KEY));
}

/// B-IS2: results of tools and reasons of guards reach the model without keys.
#[test]
fn results_hold_no_keys() {
    let case = walk(&format!(
        "tool read echo '{{\"ok\":true,\"value\":\"{KEY}\"}}'\noutline call read {{}}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0"
    ));
    assert!(!case.was_sent(KEY));
    let case = walk(&format!(
        "hook guard {{\"decision\":\"deny\",\"code\":\"X\",\"reason\":\"{KEY}\"}}\noutline call read {{}}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 1\nerror Validation/LLMContextLeak part=history"
    ));
    assert!(!case.was_sent(KEY));
}

/// B-IS3: output of a script shows no key in a failure, on stderr or in a document.
#[test]
fn a_script_that_prints_a_key_does_not_show_it() {
    for hook in [
        format!("hook assert outline sh echo {KEY} >&2; exit 3"),
        format!("hook assert outline {{\"verdict\":\"{KEY}\"}}"),
        format!("hook assert outline {{\"verdict\":\"fail\",\"reason\":\"{KEY}\"}}"),
    ] {
        let case = walk(&format!("{hook}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 1"));
        let document = case.document();
        assert!(!document.to_string().contains(KEY), "{document}");
        assert!(document.to_string().contains("***"), "{document}");
    }
}

/// B-IS3, case 131: events redact text that looks like a key and cut long text; data stays unchanged.
#[test]
fn events_redact_and_cut() {
    let long = "y".repeat(70 * 1024);
    let case = walk(&format!("outline done {{\"summary\":\"my sk-abc123 key\",\"big\":\"{long}\"}}\n==> run\nexit 0"));
    for (_, facts) in case.events(&["StageExited", "StageAssertOutcome"]) {
        assert_eq!(facts["parsed"]["summary"], "my <redacted> key");
        assert!(facts["parsed"]["big"].as_str().is_some_and(|big| big.len() < 66 * 1024 && big.ends_with("in all]")));
    }
    assert_eq!(case.document()["output"]["parsed"]["big"], long);
}

/// B-ST4, case 126; B-17, case 134: events are emitted with or without an observer, and delay nothing.
#[test]
fn events_need_no_observer() {
    let case = walk(&format!("{KEPT}\n==> run\nexit 5"));
    let id = case.test.run(&["runs", "list", "--format", "json"]).id_of_first_run();
    // A pipe that no one reads.
    let mut command = case.test.command(&["runs", "resume", &id, "--format", "jsonl"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().expect("it starts");
    drop(child.stdout.take());
    let mut status = None;
    wait_until("the end of the resume", || {
        status = child.try_wait().expect("it is ours");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    let shown = case.test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
    assert_eq!(shown.at("/status"), "succeeded");
}
