use etude_core::data::Json;
use etude_core::effect::EffectId;
use etude_core::failure::{Phase, Reason, RejectedBy};
use etude_core::model::Usage;
use etude_core::report::{FellBack, Items, StepStatus};
use expect_test::expect;

use super::*;

/// A row with all members that a published event can have.
fn full() -> StepRow {
    StepRow {
        status: StepStatus::Failed,
        attempts: 3,
        retries: 2,
        duration_ms: 1_234,
        cached: true,
        items: Some(Items { total: 4, succeeded: 2, cached: 1, failed: vec![0, 3] }),
        usage: Usage { calls: 2, input_tokens: 30, output_tokens: 4, cost_usd: Some(0.1 + 0.2), ..Usage::default() },
        model: Some("mock/\"m\"".to_owned()),
        ..StepRow::new(Phase::Business, "ask \"é\"\n\u{1}".to_owned(), "llm")
    }
}

/// One event of each kind and form, except those of stage machines.
fn events() -> Vec<Event> {
    let label = |text: &str| Some(text.into());
    let (effect, name) = (|| EffectId::new("p/ask/turn1"), || "Read".to_owned());
    let fell_back =
        FellBack { pipeline: "p".to_owned(), step: "ask".to_owned(), reason: Reason::Denied, writes_done: 1 };
    let rejected = |item| Event::AttemptRejected {
        row: 1,
        item,
        attempt: 1,
        max_attempts: 3,
        rejected_by: RejectedBy::Validate,
        reasons: vec!["no".to_owned(), "\"\\/\t".to_owned()],
    };
    let ended = |status, error| Event::ItemEnded {
        row: 0,
        item: Item { index: 1, label: label("one") },
        status,
        cached: status == StepStatus::Succeeded,
        error,
        done: 1,
        total: 2,
    };
    vec![
        Event::PhaseStarted(Phase::Business),
        Event::FellBack { fell_back, message: "it was \"denied\"".to_owned() },
        Event::StepStarted { row: 0, item: None },
        Event::StepStarted { row: 1, item: Some(Item { index: 7, label: None }) },
        rejected(None),
        rejected(Some(Item { index: 7, label: None })),
        Event::ItemStarted { row: 0, item: Item { index: 0, label: label("a\"b") } },
        ended(StepStatus::Succeeded, None),
        ended(StepStatus::Failed, Some("element 1 of 2: no".to_owned())),
        Event::AgentText { row: 0, turn: 2, text: "so\r\n".to_owned() },
        Event::ToolStarted {
            row: 0,
            effect: effect(),
            name: name(),
            arguments: r#" {"b": 1.50, "a": [1e3, null, 12345678901234567890]} "#.to_owned(),
        },
        Event::ToolStarted { row: 0, effect: effect(), name: name(), arguments: "not {json".to_owned() },
        Event::ToolEnded { row: 0, effect: effect(), name: name(), error: None, elapsed_ms: 3 },
        Event::ToolEnded {
            row: 0,
            effect: effect(),
            name: name(),
            error: Some("input/x: y".to_owned()),
            elapsed_ms: 0,
        },
        Event::Detour { row: 0, why: "so".to_owned() },
        Event::ToolsMissing { row: 0, problems: vec!["so".to_owned()] },
        Event::ContextTrimmed { row: 0, left_out: 2 },
        Event::Stage { name: "stage.entered", payload: Json::trusted(r#"{ "b": 1.0, "a": "x" }"#) },
        Event::StepEnded { row: 0, item: None, status: full().status, duration_ms: 0 },
        Event::StepEnded {
            row: 1,
            item: Some(Item { index: 7, label: None }),
            status: StepStatus::Cancelled,
            duration_ms: 8,
        },
    ]
}

/// The published bytes of events are a contract: clients compare them, and a stream has the same ones on every read.
#[test]
fn the_form_of_each_event_is_fixed() {
    let rows = [full(), StepRow::new(Phase::Constructor, "plain".to_owned(), "code")];
    let texts = events().iter().map(|event| event_json(event, &rows).to_string() + "\n").collect::<String>();
    expect![[r#"
        {"event":"phase_started","phase":"business"}
        {"pipeline":"p","step":"ask","reason":"denied","writes_done":1,"event":"fell_back","message":"it was \"denied\""}
        {"event":"step_started","phase":"business","step":"ask \"é\"\n\u0001","type":"llm"}
        {"event":"step_started","phase":"constructor","step":"plain","type":"code","item":{"index":7,"label":null}}
        {"event":"attempt_rejected","phase":"constructor","step":"plain","type":"code","attempt":1,"max_attempts":3,"rejected_by":"validate","errors":["no","\"\\/\t"]}
        {"event":"attempt_rejected","phase":"constructor","step":"plain","type":"code","attempt":1,"max_attempts":3,"rejected_by":"validate","errors":["no","\"\\/\t"],"item":{"index":7,"label":null}}
        {"event":"item_started","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","item":{"index":0,"label":"a\"b"}}
        {"event":"item_ended","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","item":{"index":1,"label":"one"},"status":"succeeded","cached":true,"error":null,"done":1,"total":2}
        {"event":"item_ended","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","item":{"index":1,"label":"one"},"status":"failed","cached":false,"error":"element 1 of 2: no","done":1,"total":2}
        {"event":"agent_said","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","turn":2,"text":"so\r\n"}
        {"event":"tool_started","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","effect":"p/ask/turn1","tool":"Read","arguments":{"b":1.5,"a":[1000.0,null,12345678901234567890]}}
        {"event":"tool_started","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","effect":"p/ask/turn1","tool":"Read","arguments":"not {json"}
        {"event":"tool_ended","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","effect":"p/ask/turn1","tool":"Read","error":null,"duration_ms":3}
        {"event":"tool_ended","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","effect":"p/ask/turn1","tool":"Read","error":"input/x: y","duration_ms":0}
        {"event":"detour","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","why":"so"}
        {"event":"tools_missing","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","problems":["so"]}
        {"event":"context_trimmed","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","left_out":2}
        {"event":"stage.entered","payload":{"b":1.0,"a":"x"}}
        {"event":"step_ended","phase":"business","step":"ask \"é\"\n\u0001","type":"llm","status":"failed","attempts":3,"duration_ms":1234,"retries":2,"cached":true,"items":{"total":4,"succeeded":2,"failed":[0,3],"cached":1},"usage":{"calls":2,"input_tokens":30,"output_tokens":4,"cached_tokens":0,"reasoning_tokens":0,"cost_usd":0.3},"model":"mock/\"m\""}
        {"event":"step_ended","phase":"constructor","step":"plain","type":"code","item":{"index":7,"label":null},"status":"cancelled","attempts":0,"duration_ms":8}
    "#]].assert_eq(&texts);
}

fn text(event: &Event, rows: &[StepRow], seq: Option<u64>) -> String {
    let mut text = Vec::new();
    Published { event, rows, seq, at: Some("now") }.write(&mut text).expect("text");
    String::from_utf8(text).expect("UTF-8")
}

/// The text of a stream's event is that of its document, with the time last. Events of stage machines are numbered.
#[test]
fn the_text_of_an_event_is_its_document_with_the_time() {
    let rows = [full(), StepRow::new(Phase::Constructor, "plain".to_owned(), "code")];
    for event in events() {
        let mut document = event_json(&event, &rows);
        assert_eq!(document["event"], name_of(&event));
        document["at"] = "now".into();
        assert_eq!(text(&event, &rows, None), document.to_string());
    }
    let event = Event::Stage { name: "stage.entered", payload: Json::trusted("{}") };
    assert_eq!(text(&event, &[], Some(3)), r#"{"event":"stage.entered","seq":3,"payload":{},"at":"now"}"#);
}
