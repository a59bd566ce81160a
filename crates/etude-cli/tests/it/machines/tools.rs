//! Decisions about tool calls of a stage: envelope, grants, guards (`b-stages` §11, §21 F).

use super::case::walk;

const ZAP: &str =
    "outline call bash {\"cmd\":\"ls\"}\noutline call bash {\"cmd\":\"ls\"}\noutline done {\"summary\":\"s\"}\n";

/// B-11.1, case 84: tools that the stage may call run in every mode, with one record of each call.
#[test]
fn the_envelope_comes_before_the_mode() {
    walk(
        r#"
        config approvals: {mode: allowlist, allow: []}
        outline call read {}
        outline done {"summary":"s"}
        ==> run
        exit 0
        ran read
        Approval outline decision=approve source=sm-envelope toolId=read approvalKey=read
        "#,
    );
}

/// B-0.1.1, B-0.1.10, B-GT8, B-GT1, B-GT2, B-HL1, B-HL3, case 86: any other call is asked about once, and nothing of its batch
/// runs meanwhile; an approval covers that call once.
#[test]
fn a_call_outside_the_envelope_is_asked_about() {
    let case = walk(&format!(
        r#"
        {ZAP}
        ==> run
        exit 5
        ran nothing
        waits grantStageTool /toolId bash
        row outline#1 halted - 1
        InteractionRaised outline kind=grantStageTool
        permission-required outline requestKind=grantStageTool
        Approval outline decision=halt toolId=bash

        approve
        ==> resume
        exit 0
        ran bash
        row outline#1 completed ok 1
        InteractionAnswered outline approved=true
        GrantIssued outline decision=approve
        GrantConsumed outline
        Approval outline decision=approve source=sm-grant-token
        "#
    ));
    let (_, issued) = case.events(&["GrantIssued"]).remove(0);
    assert!(issued["issuedAt"].as_str().is_some_and(|at| !at.is_empty()), "{issued}");
    let (_, consumed) = case.events(&["GrantConsumed"]).remove(0);
    assert_eq!(issued["tuple"], consumed["tuple"]);
}

/// B-GT1, B-AP3: a denial is a result; the stage continues.
#[test]
fn a_no_is_a_result() {
    let case = walk(&format!(
        "{ZAP}==> run\nexit 5\n\ndeny too risky\n==> resume\nexit 0\nran nothing\nApproval outline decision=deny\nrow outline#1 completed ok 1"
    ));
    let reported = case.asked("outline").pop().expect("it was asked").results();
    assert!(reported[0].contains("ToolTerminal/ApprovalDenied") && reported[0].contains("too risky"), "{reported:?}");
}

/// B-GT4, B-GT10, case 87; B-GT5, case 93: an answer is for one call with these arguments, in any order, once.
#[test]
fn an_answer_covers_one_call_once() {
    walk(
        r#"
        outline call bash {"a":1,"b":2}
        outline call bash {"b":2,"a":1}
        outline call bash {"a":1,"b":2}
        ==> run
        exit 5

        approve
        ==> resume
        exit 5
        ran bash
        waits grantStageTool /toolId bash
        "#,
    );
    walk(
        r#"
        outline call bash {"a":1}
        outline call bash {"a":2}
        ==> run
        exit 5

        approve
        ==> resume
        exit 5
        ran nothing
        waits grantStageTool /args {"a":2}
        "#,
    );
}

/// B-GT4, case 94: a grant ends with its stage; the same call in the next execution is asked about again.
#[test]
fn an_answer_ends_with_its_execution() {
    walk(
        r#"
        at outline next: [{when: {path: slot.again, exists: true}, terminal: true}, {else: true, sequential: [build]}]
        stage build
        outline call bash {}
        outline done {"summary":"changed its mind"}
        build call bash {}
        ==> run
        exit 5
        waits grantStageTool /stageExecutionId [RUN]/outline#1

        approve
        ==> resume
        exit 5
        ran nothing
        waits grantStageTool /stageExecutionId [RUN]/build#1
        "#,
    );
}

/// B-GT3, case 88: the machine's policy decides first: yes, no, or a person.
#[test]
fn the_policy_is_asked_first() {
    for (word, exit, ran, asked) in
        [("approve", 0, "bash", ""), ("deny", 0, "nothing", ""), ("defer", 5, "nothing", "InteractionRaised")]
    {
        let case = walk(&format!(
            "hook grant {{\"decision\":\"{word}\"}}\noutline call bash {{\"q\":1}}\noutline done {{\"summary\":\"s\"}}\n==> run\nexit {exit}\nran {ran}\ntold grant 1 /tool bash\ntold grant 1 /args {{\"q\":1}}\n{asked}"
        ));
        let tuple = case.reported("grant", 1)["tuple"].clone();
        for member in ["stageExecutionId", "attempt", "proposalId", "tool", "argsDigest"] {
            assert!(tuple.get(member).is_some(), "{tuple}");
        }
        assert_eq!(case.events(&["InteractionRaised"]).is_empty(), asked.is_empty());
    }
    walk(&format!(
        "machine grants: [{{stage: outline, tool: bash, decision: approve, times: 1}}]\n{ZAP}==> run\nexit 5\nran bash"
    ));
}

/// B-0.1.8, B-HL4, B-GT3, case 89: no mode and no flag permits calls that the policy denies, and the mode `yolo` answers
/// nothing.
#[test]
fn no_mode_widens_the_envelope() {
    walk(&format!("config approvals: {{mode: yolo}}\n{ZAP}==> run\nexit 5\nran nothing"));
    let deny =
        "machine grants: [{tool: bash, decision: deny}]\noutline call bash {}\noutline done {\"summary\":\"s\"}\n";
    walk(&format!(
        "config approvals: {{mode: yolo}}\n{deny}==> run\nexit 0\nran nothing\nApproval outline decision=deny source=sm-policy"
    ));
    walk(&format!("{deny}==> run --yolo\nexit 0\nran nothing"));
}

/// B-H5, B-GT9, case 91; B-H1: guards have the last word, also about calls that the policy allows; the grant is spent.
#[test]
fn a_guard_has_the_last_word() {
    walk(
        r#"
        machine grants: [{tool: bash, decision: approve}]
        hook guard {"decision":"deny","code":"NoBash","reason":"never"}
        outline call bash {"c":1}
        outline done {"summary":"s"}
        ==> run
        exit 0
        ran nothing
        told guard 1 /payload {"toolId":"bash","args":{"c":1},"decision":"approve"}
        GrantConsumed outline
        HookGuardDenied outline code=NoBash reason=never
        Approval outline decision=deny source=guard
        "#,
    );
}

/// B-H4, case 92: guards never see a completion.
#[test]
fn a_guard_never_sees_a_completion() {
    walk("hook guard {\"decision\":\"deny\"}\noutline done {\"summary\":\"s\"}\n==> run\nexit 0\ncalls guard 0");
}

/// B-AP2, case 95; B-0.1.5: questions are raised one after the other, each once.
#[test]
fn questions_are_raised_in_order() {
    walk(
        r#"
        outline call bash {}; write {}
        outline call bash {}; write {}
        outline call bash {}; write {}
        outline done {"summary":"s"}
        ==> run
        exit 5
        waits grantStageTool /toolId bash
        InteractionRaised outline

        approve
        ==> resume
        exit 5
        ran nothing
        waits grantStageTool /toolId write

        approve
        ==> resume
        exit 0
        ran bash, write
        "#,
    );
}

/// B-HL2, case 97: `--yolo` approves all of them.
#[test]
fn yolo_says_yes() {
    let case = walk(
        r#"
        outline call bash {}
        outline done {"summary":"s"}
        ==> run --yolo
        exit 0
        ran bash
        GrantIssued outline
        Approval outline decision=approve source=sm-grant-token
        "#,
    );
    assert!(case.events(&["GrantIssued"])[0].1["issuedAt"].is_string());
}

/// B-AP1, case 98: the decision is reported before the tool begins.
#[test]
fn a_decision_is_reported_before_the_call_begins() {
    walk(
        r#"
        outline call read {}
        outline done {"summary":"s"}
        ==> run
        exit 0
        ToolInvocationProposed outline toolName=read
        Approval outline decision=approve
        ToolInvocationStarted outline toolName=read
        ToolInvocationSucceeded outline toolName=read
        "#,
    );
}

/// B-20.5: decisions are identified by the tool's own key.
#[test]
fn decisions_are_known_by_the_tools_own_key() {
    walk(
        r#"
        file tools/read.yaml name: read\ndescription: Reads.\ncommand: sh tools/read.sh\napprovalKey: "read of {{args.path}}"\n
        outline call read {"path":"a.txt"}
        outline done {"summary":"s"}
        ==> run
        exit 0
        Approval outline approvalKey=read of a.txt
        "#,
    );
}
