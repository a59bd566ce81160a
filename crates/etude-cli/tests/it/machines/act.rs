//! Act and the completion channel (`b-stages` §6, §21 C).

use super::case::walk;
use crate::mcp_server;
use crate::mcp_tools::SHOUT;

/// B-A13, case 35: a tool call precedes the completion.
#[test]
fn a_tool_and_then_the_completion() {
    walk(
        r#"
        outline call read {"p":"a"}
        outline done {"summary":"s"}
        ==> run
        exit 0
        ran read
        talk outline
        - assistant: read {"p":"a"}
        - tool: read-out
        "#,
    );
}

/// B-A3, cases 36 and 37: the manifest lists the callable tools, in that order and once, and then the channel.
#[test]
fn the_manifest_is_what_may_be_called_and_the_channel() {
    walk(
        r#"
        stage outline allowedTools: [write, read, write]
        outline done {"summary":"s"}
        ==> run
        exit 0
        tools outline write, read, submit_outline
        "#,
    );
    walk(
        "stage outline allowedTools: []\noutline done {\"summary\":\"s\"}\n==> run\nexit 0\ntools outline submit_outline",
    );
}

/// B-A11, cases 38 and 39: a payload that does not fit, or is not JSON, is reported to the model under its call, and Act
/// continues.
#[test]
fn a_wrong_payload_is_reported_and_act_goes_on() {
    for wrong in ["done {\"steps\":1}", "raw {bad"] {
        let case = walk(&format!(
            "hook assert outline {{\"verdict\":\"ok\"}}\noutline {wrong}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0\nasked outline 2\nStageActEnded outline turns=2 capHit=false\nStageAssertOutcome outline verdict=ok attempt=1"
        ));
        let reported = case.reported("assert-outline", 1)["act"]["attempts"][0]["parseError"].clone();
        let words = reported.as_str().expect("a parse error").to_owned();
        assert!(words.contains("summary") || words.contains("not JSON"), "{words}");
        let last = case.asked("outline")[1].body["messages"].clone();
        let result = last.as_array().and_then(|all| all.last().cloned()).expect("a message");
        assert_eq!(result["role"], "tool");
        assert!(result["tool_call_id"].as_str().is_some_and(|id| id.starts_with("call_")), "{result}");
    }
}

/// B-A12, cases 41 and 43: a model that only talks, or says nothing, is shown the call to make.
#[test]
fn talk_is_steered_back() {
    for said in ["say thinking", "say "] {
        walk(&format!(
            "outline {said}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0\ntalk outline\n- assistant: {}\n- user: Go on with your task, and call `submit_outline` when you are done.\nStageActEnded outline turns=2",
            if said == "say " { "(empty answer)" } else { "thinking" }
        ));
    }
}

/// B-A14, B-R7, case 42: talk ends at the cap; there is no third call.
#[test]
fn talk_ends_at_the_cap() {
    walk(
        r#"
        stage outline turnCap: 2
        stage outline retryPolicy: {maxAttempts: 1, backoff: none}
        outline say a
        outline say b
        ==> run
        exit 1
        asked outline 2
        StageActEnded outline turns=2 capHit=true
        row outline#1 completed fail 1 cap
        "#,
    );
}

/// B-0.1.5, B-A20 to B-A23, cases 45, 46 and 48: the channel must be called alone; nothing of such a batch runs or is parsed.
#[test]
fn a_batch_with_the_channel_is_rejected_whole() {
    for batch in [
        r#"read {}; submit_outline {"summary":"x"}"#,
        r#"submit_outline {"summary":"x"}; read {}"#,
        r#"submit_outline {"summary":"a"}; submit_outline {"summary":"b"}"#,
        r#"submit_outline {"steps":1}; read {}"#,
    ] {
        let case = walk(&format!(
            "hook assert outline {{\"verdict\":\"ok\"}}\noutline call {batch}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0\nran nothing\noutput {{\"verdict\":\"ok\",\"parsed\":{{\"summary\":\"s\"}},\"capHit\":false,\"attemptCount\":1}}\nStageActEnded outline turns=2"
        ));
        assert!(case.events(&["ToolInvocationProposed", "Approval"]).is_empty());
        assert!(case.reported("assert-outline", 1)["act"]["attempts"][0].get("parseError").is_none());
        let results = case.asked("outline")[1].results();
        assert!(results.len() == 2 && results[0] == results[1] && results[0].contains("submit_outline"), "{results:?}");
    }
}

/// B-AP2, case 49: ordinary tools are decided in order and give their results in the order of the calls.
#[test]
fn two_tools_of_one_answer() {
    walk(
        r#"
        stage outline allowedTools: [read, write]
        tool read sleep 0.2; echo '{"ok":true,"value":"slow"}'
        outline call read {}; write {}
        outline done {"summary":"s"}
        ==> run
        exit 0
        talk outline
        - assistant: read {}; write {}
        - tool: slow
        - tool: write-out
        Approval outline decision=approve source=sm-envelope toolId=read
        Approval outline decision=approve source=sm-envelope toolId=write
        "#,
    );
}

/// B-A15, B-A16, cases 50 and 51: every response counts; the tools of the last one still run, and no further call is made.
#[test]
fn the_tools_of_the_last_turn_still_run() {
    let case = walk(
        r#"
        stage outline turnCap: 1
        hook assert outline {"verdict":"ok"}
        outline call read {}
        ==> run
        exit 0
        asked outline 1
        ran read
        told assert outline 1 /act/capHit true
        "#,
    );
    let messages = case.reported("assert-outline", 1)["act"]["transcript"]["messages"].clone();
    assert_eq!((&messages[1]["role"], &messages[1]["content"]), (&"tool".into(), &"read-out".into()));
    walk(
        r#"
        stage outline retryPolicy: {maxAttempts: 1, backoff: none}
        outline call read {}
        outline call read {}
        outline call read {}
        ==> run
        exit 1
        asked outline 3
        ran read, read, read
        row outline#1 completed fail 1 cap
        "#,
    );
}

/// B-A10, case 52: the completion may come with the last turn.
#[test]
fn a_completion_on_the_last_turn_is_in_time() {
    walk(
        r#"
        outline call read {}
        outline say x
        outline done {"summary":"s"}
        ==> run
        exit 0
        row outline#1 completed ok 1
        "#,
    );
}

/// B-AP5, B-AP4, cases 53, 54, 60 and 136: the fault of a call is a result with class and code, and no more.
#[test]
fn what_is_wrong_with_a_call_is_its_result() {
    let busy = r#"echo '{"ok":false,"error":{"class":"ToolTransient","code":"ResourceBusy","message":"later"}}'"#;
    let crash = "echo 'Traceback (most recent call last): secret frame' >&2; exit 1";
    for (tool, call, result, ran) in [
        (busy, "read {}", "ToolTransient/ResourceBusy: later", "read"),
        (crash, "read {}", "ToolTerminal/ToolExecutionFailed", "read"),
        (":", "frobnicate {}", "ToolTerminal/ToolNotRegistered", "nothing"),
    ] {
        let case = walk(&format!(
            "tool read {tool}\noutline call {call}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit 0\nran {ran}\nasked outline 2"
        ));
        let reported = case.asked("outline")[1].results();
        assert!(reported[0].contains(result), "{reported:?}");
        assert!(case.events(&["InteractionRaised"]).is_empty());
    }
    let case = walk(
        r#"
        file tools/read.yaml name: read\ndescription: Reads.\ncommand: sh tools/read.sh\ninputSchema: {type: object, required: [path]}\n
        outline call read {}
        outline done {"summary":"s"}
        ==> run
        exit 0
        ran nothing
        ToolInvocationProposed outline toolName=read
        ToolInvocationStarted outline toolName=read
        ToolInvocationFailed outline errorClass=ToolTerminal errorCode=InputInvalid
        "#,
    );
    assert!(case.asked("outline")[1].results()[0].contains("InputInvalid"));
}

/// B-F12, B-F13: a channel with the name of a tool, and an unknown tool, end the stage at Init.
#[test]
fn names_that_do_not_fit_the_tools_end_the_stage_at_init() {
    for (field, code) in
        [("completionTool: write", "CompletionToolCollision"), ("allowedTools: [read, gone]", "AllowedToolUnknown")]
    {
        walk(&format!(
            "stage outline {field}\n==> run\nexit 1\nasked 0\nerror Validation/{code}\nStageInitFailed outline phase=Init code={code}\nrow outline#1 failed - 0"
        ));
    }
}

/// B-F13, case 56: tools of servers count as well.
#[test]
fn a_channel_with_the_name_of_a_servers_tool_ends_the_stage_at_init() {
    let case = walk(
        "stage outline completionTool: mcp__loud__shout\nconfig mcp: {servers: {loud: {command: python3, args: [server.py]}}}\n==> check\nfinds",
    );
    case.test.put("app/server.py", &mcp_server::with(SHOUT));
    let ran = case.test.run(&["machine", "run", "m", "--format", "json"]).exit(1);
    assert_eq!(
        (ran.at("/errors/0/class"), ran.at("/errors/0/code")),
        ("Validation".into(), "CompletionToolCollision".into())
    );
    assert!(case.asked("outline").is_empty());
}

/// B-6.4, case 58: the channel of one stage is not a tool of another.
#[test]
fn a_channel_is_no_tool_of_another_stage() {
    let case = walk(
        r#"
        at outline next: [{else: true, sequential: [build]}]
        stage build
        outline done {"summary":"s"}
        build call submit_outline {"summary":"s"}
        build done {"summary":"b"}
        ==> run
        exit 0
        tools build read, submit_build
        "#,
    );
    assert!(case.asked("build")[1].results()[0].contains("ToolNotRegistered"));
}

/// B-T13, B-M9, B-A1, B-SR1, cases 59 and 135: a stage begins with nothing but its prompt, and no context is sent to a model as
/// such.
#[test]
fn a_stage_begins_with_an_empty_conversation() {
    let case = walk(
        r#"
        at outline next: [{else: true, sequential: [build]}]
        stage build body: Build it.
        outline say what the first stage said
        outline done {"summary":"s"}
        build done {"summary":"b"}
        ==> run
        exit 0
        talk build
        "#,
    );
    let asked = case.asked("build")[0].body.to_string();
    for reported in ["what the first stage said", "workflowRunId", "upstream"] {
        assert!(!asked.contains(reported), "{reported} in {asked}");
    }
}

/// B-R8: an attempt in which the model gives no response counts.
#[test]
fn an_attempt_that_dies_counts() {
    walk(
        "outline fails 400\n==> run\nexit 1\nrow outline#1 failed - 1\nStagePostFired outline phase=Setup\nStagePostFired outline phase=Init\nStagePostFired outline phase=CheckGate\nStagePostFired outline phase=Act",
    );
}
