use etude_core::machine::Limits;
use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Reasoning, Stop, Tool, ToolCall, Usage};
use etude_core::outcome::{Conditions, Exit, ProcessEnd, Stderr, Warmth};
use etude_core::tool::{AvailableTool, ToolList, ToolReply, ToolResult};

use super::*;
use crate::blob::{FileBlobs, put};

fn store() -> (tempfile::TempDir, FileBlobs) {
    let dir = tempfile::tempdir().unwrap();
    let blobs = FileBlobs::new(dir.path(), false);
    (dir, blobs)
}

fn every_outcome(blobs: &FileBlobs) -> Vec<Outcome> {
    let text = r#"{"output":[1,2]}"#;
    let (blob, source) = put(blobs, text.as_bytes()).unwrap();
    let stored = Json::stored(Stored { blob, offset: 10, len: 5, digest: Digest::of(b"[1,2]"), source });
    let process = |exit, stdout| {
        Outcome::Process(ProcessEnd { exit, stdout, stderr: Stderr::default(), conditions: Conditions::default() })
    };
    let answer = |stop| {
        Outcome::Response(Box::new(ModelResponse {
            text: "t\n".to_owned(),
            tool_calls: vec![ToolCall { id: "1".into(), name: "n".into(), arguments: "{}".into() }],
            stop,
            usage: Usage {
                calls: 1,
                input_tokens: 2,
                output_tokens: 3,
                cached_tokens: 1,
                reasoning_tokens: 1,
                cost_usd: Some(0.5),
            },
            model: "p/m".to_owned(),
            reasoning: Some(Reasoning { model: "p/m".to_owned(), json: r#"{"n":1.0}"#.into() }),
            transport_failures: vec!["429".to_owned()],
        }))
    };
    let failed =
        |kind| Outcome::CallFailed(CallFailure { kind, message: "m".into(), model: None, transport_failures: vec![] });
    vec![
        process(Exit::Status(0), Stdout::Value(Json::trusted(r#"{"n": 123456789012345678901234567890}"#))),
        process(Exit::Status(0), Stdout::Value(Json::null())),
        process(Exit::Status(0), Stdout::Value(stored.clone())),
        process(
            Exit::Signal { number: 9, name: "SIGKILL".into() },
            Stdout::Unusable { problem: "p".into(), found: "f".into() },
        ),
        process(Exit::NotStarted("no".into()), Stdout::Unusable { problem: "p".into(), found: String::new() }),
        Outcome::Process(ProcessEnd {
            exit: Exit::Status(3),
            stdout: Stdout::Unusable { problem: "p".into(), found: "f".into() },
            stderr: Stderr { tail: "e".into(), lines: 9, bytes: 99, blob: Some(blob) },
            conditions: Conditions { worker: Some(Warmth::Warm), sandbox: Some("no network".to_owned()) },
        }),
        Outcome::Process(ProcessEnd {
            exit: Exit::Status(0),
            stdout: Stdout::Value(Json::null()),
            stderr: Stderr::default(),
            conditions: Conditions { worker: Some(Warmth::Cold("w".to_owned())), sandbox: None },
        }),
        answer(Stop::End),
        answer(Stop::ToolCalls),
        answer(Stop::Length),
        answer(Stop::Refusal("r".into())),
        failed(CallFailureKind::Environment),
        failed(CallFailureKind::Model),
        failed(CallFailureKind::NotRecorded),
        Outcome::Opened(Box::new(ToolList {
            tools: vec![AvailableTool {
                tool: Tool {
                    name: "Read".into(),
                    description: "d".into(),
                    parameters: Arc::new(serde_json::json!({"type": "object"})),
                },
                is_pipeline: true,
                is_exclusive: true,
                is_kept: true,
                approval_key: Some("t({{args.n}})".to_owned()),
            }],
            context: "c".into(),
            window_tokens: Some(9),
            model: "x/y".to_owned(),
            tool_calling: etude_core::tool::ToolCalling::Probed,
            problems: vec!["p".into()],
        })),
        Outcome::Tool(Box::new(ToolReply::Held { key: "k".into(), question: "q".into(), is_once: true })),
        Outcome::Tool(Box::new(ToolReply::Done(ToolResult {
            sandbox: Some("no network".to_owned()),
            ..ToolResult::ok("c")
        }))),
        Outcome::Tool(Box::new(ToolReply::Done(ToolResult::denied("no")))),
        Outcome::Slept,
        Outcome::Decided(Decision {
            approved: true,
            answer: Json::trusted("[1]"),
            by: "b".into(),
            at: "a".into(),
            reason: None,
        }),
        Outcome::Recalled(Some(stored)),
        Outcome::Recalled(Some(Json::trusted("1.50"))),
        Outcome::Recalled(None),
        Outcome::Scanned(Vec::new()),
        Outcome::Scanned(vec!["API_KEY".into()]),
        Outcome::Remembered,
        Outcome::Abandoned,
    ]
}

#[test]
fn every_outcome_survives_the_journal_unchanged() {
    let (_dir, blobs) = store();
    for outcome in every_outcome(&blobs) {
        let completed = Completed { outcome, elapsed_ms: 7 };
        let record = of_outcome(&EffectId::new("p/a"), Digest::of(b"r"), &completed, None, 9);
        assert_eq!(to_outcome(&record, &blobs).unwrap(), completed, "{}", record.body);
        assert_eq!(at_ms(&record), Some(9), "{}", record.body);
        assert_eq!(to_checked_outcome(&record, &blobs).unwrap(), completed, "{}", record.body);
    }
}

/// A-5.3: a large value is read when a run continues with it, and not for a list of outcomes.
#[test]
fn a_changed_value_is_found_by_those_who_need_it() {
    let (dir, blobs) = store();
    let text = format!("{{\"output\":\"{}\"}}", "x".repeat(1000));
    let (blob, source) = put(&blobs, text.as_bytes()).unwrap();
    let value = &text[10..text.len() - 1];
    let len = value.len() as u64;
    let stored = Json::stored(Stored { blob, offset: 10, len, digest: Digest::of(value.as_bytes()), source });
    let end = ProcessEnd {
        exit: Exit::Status(0),
        stdout: Stdout::Value(stored.clone()),
        stderr: Stderr::default(),
        conditions: Conditions::default(),
    };
    for outcome in [Outcome::Process(end), Outcome::Recalled(Some(stored))] {
        let completed = Completed { outcome, elapsed_ms: 1 };
        let record = of_outcome(&EffectId::new("p/a"), Digest::of(b"r"), &completed, None, 9);
        let files: Vec<_> = files_below(dir.path());
        for (damaged, found) in
            [(text.replacen("xx", "xy", 1), "it was changed"), (text[..500].to_owned(), "it has 490")]
        {
            for file in &files {
                write_over(file, &damaged);
            }
            assert!(to_outcome(&record, &blobs).is_ok());
            let error = to_checked_outcome(&record, &blobs).unwrap_err();
            assert!(matches!(&error, Error::Lost { why, .. } if why.starts_with(found)), "{error}");
        }
        for file in &files {
            write_over(file, &text);
        }
        assert_eq!(to_checked_outcome(&record, &blobs).unwrap(), completed);
    }
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Replaces a stored file, since stored files are read-only.
fn write_over(file: &std::path::Path, text: &str) {
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, text).unwrap();
}

/// cli: records that a reopened run has left behind do not count, and neither do those of the next reopening.
#[test]
fn records_that_were_left_behind_do_not_count() {
    let record =
        |key: &str| Record { key: key.to_owned(), request: Digest::of(b"r"), body: String::new(), blobs: vec![] };
    // An earlier version of the program wrote it.
    let reopened = Record { body: r#"{"v":1,"without":[1]}"#.to_owned(), ..record(REOPENED) };
    let continued = continuation(2, 2, &[3, 9]).to_record();
    let records = [record("a"), record("b"), reopened, record("b"), record("c"), continued, record("b")];
    let found: Vec<_> = counting(&records).map(|(at, record)| (at, record.key.as_str())).collect();
    assert_eq!(found, [(0, "a"), (2, REOPENED), (4, "c"), (5, ATTEMPT), (6, "b")]);
    assert_eq!((attempt_number(&records[..5]), attempt_number(&records)), (1, 2));
    assert_eq!(counting(&records[..2]).count(), 2);
}

fn continuation(number: u32, scope: u32, without: &[usize]) -> Continuation {
    let (limits, usage) = (Limits::default(), Usage::default());
    Continuation {
        number,
        scope,
        without: without.to_vec(),
        limits,
        usage,
        used_ms: 0,
        at_ms: 9,
        refresh: false,
        restarts: Default::default(),
    }
}

/// A-5.6: a continuation survives the journal; the attempt has the time that earlier ones have left.
#[test]
fn a_continuation_comes_back_as_it_was_written() {
    let limits = Limits { max_cost_usd: Some(2.5), max_tokens: Some(7), timeout_ms: Some(1000) };
    let usage = Usage { calls: 3, input_tokens: 4, output_tokens: 5, cost_usd: Some(0.25), ..Usage::default() };
    let restarts = [("p/a".to_owned(), 2), ("p/b[1]".to_owned(), 3)].into();
    let written = Continuation { limits, usage, used_ms: 400, refresh: true, restarts, ..continuation(3, 2, &[4, 5]) };
    let records = [continuation(2, 2, &[]).to_record(), written.to_record()];
    assert_eq!(Continuation::last(&records), Some((1, written.clone())));
    assert_eq!(Continuation::last(&records[..1]), Some((0, continuation(2, 2, &[]))));
    assert!(
        !records[0].body.contains("refresh") && !records[0].body.contains("restarts"),
        "as records were before there was such a member"
    );
    assert_eq!(written.limits_left().timeout_ms, Some(600));
    let (earlier, current) = by_scope(records.to_vec());
    assert_eq!((earlier.len(), current.len()), (0, 2), "the third attempt continues the scope of the second");
}

/// A-5.6: a cancellation and the answer to a question are for one attempt.
#[test]
fn signals_are_for_one_attempt() {
    assert_eq!(
        (cancel_signal("no", 1).key, cancel_signal("no", 2).key),
        ("!cancel".to_owned(), "!cancel@2".to_owned())
    );
    let gate = Gate { message: "Ship?".to_owned(), schema: None, approvers: Vec::new(), subject: Default::default() };
    assert_ne!(question(&gate, 1), question(&gate, 2));
}

/// A-3.3, X-3: an answer keeps its digits and escapes, even if no other form could hold its values.
#[test]
fn an_answer_keeps_its_digits() {
    for (given, kept) in [
        (r#"{ "n": 123456789012345678901 }"#, r#"{"n":123456789012345678901}"#),
        (r#"["\ud800", 1e400, 1.50]"#, r#"["\ud800",1e400,1.50]"#),
        ("null", "null"),
    ] {
        let (answer, by, at) = (Json::trusted(given), "ann".to_owned(), "now".to_owned());
        let decision = Decision { approved: true, answer, by, at, reason: Some("so".to_owned()) };
        let read = to_decision(&decision_signal("p/gate", "q", &decision)).expect("a decision");
        assert_eq!(read, Decision { answer: Json::trusted(kept), ..decision });
    }
    // The form of an earlier version, and bodies that are not decisions.
    let signal = |body: &str| Signal { key: "p/gate@q".to_owned(), body: body.to_owned() };
    let earlier = to_decision(&signal(r#"{"v":1,"approved":false,"answer":null,"by":"ann","at":"now","reason":null}"#));
    assert!(earlier.is_some_and(|decision| !decision.approved && decision.reason.is_none() && decision.by == "ann"));
    assert!(to_decision(&cancel_signal("no", 1)).is_none() && to_decision(&signal("[]")).is_none());
}

#[test]
fn a_record_names_the_blobs_that_it_needs() {
    let (_dir, blobs) = store();
    let counts: Vec<usize> = every_outcome(&blobs)
        .into_iter()
        .map(|outcome| {
            of_outcome(&EffectId::new("p/a"), Digest::of(b"r"), &Completed { outcome, elapsed_ms: 0 }, None, 9)
                .blobs
                .len()
        })
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 3);
}

/// X-2: results of tools from before their sandboxes were recorded are read, and results without a sandbox are written
/// in the same way.
#[test]
fn a_result_without_a_sandbox_names_none() {
    let (_dir, blobs) = store();
    let body = r#"{"v":1,"ms":1,"at":9,"tool":{"result":"c"}}"#;
    let outcome = Outcome::Tool(Box::new(ToolReply::Done(ToolResult::ok("c"))));
    let written = of_outcome(&EffectId::new("p/a"), Digest::of(b"r"), &Completed { outcome, elapsed_ms: 1 }, None, 9);
    assert_eq!(written.body, body);
    assert_eq!(
        to_outcome(&written, &blobs).unwrap().outcome,
        Outcome::Tool(Box::new(ToolReply::Done(ToolResult::ok("c"))))
    );
}

#[test]
fn a_record_of_a_newer_version_is_refused_as_such() {
    let (_dir, blobs) = store();
    let record = Record {
        key: "p/a".into(),
        request: Digest::of(b"r"),
        body: r#"{"v":2,"ms":1,"anything":true}"#.into(),
        blobs: vec![],
    };
    assert!(matches!(to_outcome(&record, &blobs), Err(Error::TooNew { found: 2, .. })));
}

#[test]
fn a_damaged_record_is_an_error_and_no_outcome() {
    let (_dir, blobs) = store();
    for body in ["", "{}", r#"{"v":1,"ms":1}"#, r#"{"v":1,"ms":1,"plain":"?"}"#, r#"{"v":1,"ms":1,"process":{}}"#] {
        let record = Record { key: "p/a".into(), request: Digest::of(b"r"), body: body.into(), blobs: vec![] };
        assert!(matches!(to_outcome(&record, &blobs), Err(Error::Damaged { .. })), "{body}");
    }
}

/// Version 1 as it is on the disks of users: these texts must be readable for ever.
#[test]
fn old_records_are_readable() {
    let (_dir, blobs) = store();
    for body in [
        r#"{"v":1,"ms":3,"process":{"status":0,"output":{"json":{"k": 1.0}}}}"#,
        r#"{"v":1,"ms":3,"process":{"signal":[9,"SIGKILL"],"unusable":["stdout is empty",""],"stderr":{"tail":"x","lines":1,"bytes":2}}}"#,
        r#"{"v":1,"ms":3,"answer":{"text":"x","stop":"end","usage":{"calls":1,"input":1,"output":2},"model":"p/m"}}"#,
        r#"{"v":1,"ms":3,"call_failed":{"kind":"model","message":"m"}}"#,
        r#"{"v":1,"ms":3,"decided":{"approved":true,"answer":null,"by":"b","at":"a"}}"#,
        r#"{"v":1,"ms":3,"plain":"abandoned"}"#,
    ] {
        let record = Record { key: "p/a".into(), request: Digest::of(b"r"), body: body.into(), blobs: vec![] };
        assert_eq!(to_outcome(&record, &blobs).unwrap().elapsed_ms, 3, "{body}");
    }
}

#[test]
fn a_model_call_is_kept_with_what_was_asked() {
    let (_dir, blobs) = store();
    let mut request = etude_core::model::Request { system: Some("be brief".into()), ..Default::default() };
    request.messages = vec![etude_core::model::Message::user("why?"), etude_core::model::Message::assistant("because")];
    let outcome = every_outcome(&blobs).remove(6);
    let record = of_outcome(
        &EffectId::new("p/a"),
        Digest::of(b"r"),
        &Completed { outcome, elapsed_ms: 1 },
        Some(&Effect::Model(Box::new(request))),
        9,
    );
    assert_eq!(
        to_prompt(&record).unwrap(),
        "--- system ---\nbe brief\n--- user ---\nwhy?\n--- assistant ---\nbecause\n"
    );
}

/// L-43: a step's call is kept with its tool and its arguments; an agent's call is not, because it is in the agent's
/// response.
#[test]
fn a_call_of_a_step_is_kept_with_what_was_asked() {
    let call = |id: &str| {
        Effect::Tool(Box::new(etude_core::tool::ToolCall {
            tool_selection: Arc::default(),
            name: "get".to_owned(),
            arguments: r#"{"id":1}"#.to_owned(),
            id: id.to_owned(),
            key: "p/a".to_owned(),
            is_approved: false,
            is_confirmed: false,
            approved_key: None,
            stage_execution: None,
        }))
    };
    let completed = Completed { outcome: Outcome::Slept, elapsed_ms: 1 };
    let record = |id: &str| of_outcome(&EffectId::new("p/a"), Digest::of(b""), &completed, Some(&call(id)), 9);
    assert_eq!(to_call(&record("p/a")), Some(("get".to_owned(), r#"{"id":1}"#.to_owned())));
    assert_eq!(to_call(&record("c1")), None);
}

/// A-7.2: a turn of an agent is recorded with its new messages only, so that a long conversation is kept once and not
/// once per turn.
#[test]
fn a_turn_is_recorded_without_what_came_before() {
    use etude_core::model::{Message, Request};
    let tool = Tool { name: "Read".into(), description: String::new(), parameters: Arc::default() };
    let messages =
        vec![Message::user("first words"), Message::assistant("first answer"), Message::user("second words")];
    let request = Request { system: Some("s".into()), messages, tools: vec![tool], ..Request::default() };
    let completed = Completed { outcome: Outcome::Slept, elapsed_ms: 1 };
    let record = |request: &Request| {
        let asked = Effect::Model(Box::new(request.clone()));
        of_outcome(&EffectId::new("p/x/turn2"), Digest::of(b""), &completed, Some(&asked), 9)
    };
    let prompt = to_prompt(&record(&request)).unwrap();
    assert_eq!(prompt, "--- after 2 messages ---\n--- user ---\nsecond words\n");
    let whole = to_prompt(&record(&Request { tools: Vec::new(), ..request })).unwrap();
    assert!(whole.contains("first words") && whole.starts_with("--- system ---\ns\n"), "{whole}");
}

/// B-ST3: the forms of slots come back as they were, with the scripts of their migrations; those of earlier versions of
/// the program, without a script, are read as well.
#[test]
fn forms_of_slots_come_back_with_their_scripts() {
    let form = |command: Option<Command>| SlotForm {
        version: "1.0.0".to_owned(),
        drift: if command.is_some() { "migrate" } else { "warn" }.to_owned(),
        script: command.map(|command| Script { command, timeout_ms: 5 }),
    };
    let direct = Command::Direct(vec!["python3".to_owned(), "m.py".to_owned()]);
    let slots: SlotForms = [
        ("a", None),
        ("b", Some(direct)),
        ("c", Some(Command::Shell("x | y".to_owned()))),
        ("d", Some(Command::Script("m.sh".to_owned()))),
    ]
    .map(|(id, command)| (id.to_owned(), form(command)))
    .into();
    assert_eq!(to_slots(&slots_json(&slots)), slots);
    let before = to_slots(&serde_json::json!({"m": ["1.0.0", "migrate"], "bad": ["1.0.0"]}));
    assert_eq!(before.keys().collect::<Vec<_>>(), ["m"]);
    assert_eq!((before["m"].drift.as_str(), &before["m"].script), ("migrate", &None));
}

/// The cost of a model call counts once, even if its outcome was recorded again later in another place.
#[test]
fn an_outcome_that_was_written_at_another_time_is_the_same_one() {
    let (_dir, blobs) = store();
    let outcome = every_outcome(&blobs).into_iter().find(|outcome| matches!(outcome, Outcome::Response(_))).unwrap();
    let completed = Completed { outcome, elapsed_ms: 3 };
    let at = |ms| of_outcome(&EffectId::new("p/a"), Digest::of(b"r"), &completed, None, ms);
    let [once, twice] = [vec![at(5)], vec![at(5), at(70)]].map(|records| usage_of(records.iter(), &blobs));
    assert_eq!((once.calls, once), (twice.calls, twice));
    assert!(once.calls > 0);
}

/// The time at the beginning of a body is read without the rest; any other body is read as a whole.
#[test]
fn the_time_of_a_record_does_not_depend_on_its_place() {
    for (body, time) in [
        (r#"{"v":1,"ms":3,"at":12,"plain":"slept"}"#, Some(12)),
        (r#"{"v":1,"at":12}"#, Some(12)),
        (r#"{"v":1,"plain":"slept","ms":3,"at":12}"#, Some(12)),
        (r#"{ "v": 1, "ms": 3, "at": 12 }"#, Some(12)),
        (r#"{"v":1,"ms":3,"at":null,"plain":"slept"}"#, None),
        (r#"{"v":1,"ms":3,"at":1.5,"plain":"slept"}"#, None),
        (r#"{"v":1,"ms":3,"at":99999999999999999999,"plain":"slept"}"#, None),
        (r#"{"v":1,"ms":3,"at_ms":12}"#, None),
        (r#"{"v":1,"ms":3,"at":12"#, None),
        ("", None),
    ] {
        let record =
            Record { key: "p/a".to_owned(), request: Digest::of(b"r"), body: body.to_owned(), blobs: Vec::new() };
        assert_eq!(at_ms(&record), time, "{body}");
    }
}

/// Earlier records without a time are readable.
#[test]
fn a_record_of_before_has_no_time() {
    let (_dir, blobs) = store();
    let body = r#"{"v":1,"ms":3,"plain":"slept"}"#.to_owned();
    let record = Record { key: "p/a".to_owned(), request: Digest::of(b"r"), body, blobs: Vec::new() };
    assert_eq!(at_ms(&record), None);
    assert_eq!(to_outcome(&record, &blobs).unwrap().elapsed_ms, 3);
    assert_eq!(at_ms(&of_cancel("enough", 4)), Some(4));
    assert_eq!(cancel_reason(&of_cancel("enough", 4).body), "enough");
}
