//! Records of runs in skill mode for learning: `learn export` and `runs judge`.

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::{KEY, Test};

/// An app with a skill and tools: `find` reads, `cancel` declares that it writes, `leak` prints a key.
fn app(server: &Server) -> Test {
    let tool = |name: &str, more: &str, script: &str| {
        let head = format!("name: {name}\ndescription: Does it.\ninputSchema: {{type: object}}\n{more}\n");
        (
            format!("tools/{name}.yaml"),
            format!("{head}command: sh tools/{name}.sh\n"),
            format!("tools/{name}.sh"),
            script.to_owned(),
        )
    };
    let tools = [
        tool(
            "find",
            "gated: false",
            "cat >/dev/null; echo '{\"ok\": true, \"value\": {\"orders\": [\"A-16\", \"A-17\"], \"total\": 12.5}}'",
        ),
        tool("cancel", "effects: true", "cat >/dev/null; echo '{\"ok\": true, \"value\": \"cancelled\"}'"),
        tool("leak", "", &format!("cat >/dev/null; echo '{{\"ok\": true, \"value\": \"the key {KEY} is here\"}}'")),
    ];
    let test = Test::new().skill("", "Be brief.\n").model(server);
    tools.into_iter().fold(test, |test, (yaml, text, sh, script)| test.file(&yaml, &text).file(&sh, &script))
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.out().lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn shop() -> Server {
    let said = Reply::Calls { text: "I look for A-17.".into(), calls: vec![("find".into(), json!({"who": "ada"}))] };
    let cancel = Reply::call("cancel", json!({"id": "A-17", "because": "unheard of", "sum": 12.5}));
    Server::agent([said, cancel])
}

/// L-1, L-2: a run is one line: the request apart from the other input, every message and call in order, with class, approval,
/// result as a value, and all places of each argument.
#[test]
fn a_run_in_skill_mode_is_exported_as_a_trace() {
    let server = shop();
    let test = app(&server).pipeline("p", |p| p.note("a", "1"));
    test.run_json("p").exit(0);
    let id = test.follow("Cancel A-17", &["-i", "who=ada", "--input", "{\"n\": [7]}", "--yolo"]).output("done").id();
    let ran = test.run(&["learn", "export"]).exit(0);
    assert_eq!(test.run(&["learn", "export", "--format", "json"]).out(), ran.out(), "the same bytes (L-4)");
    let [line]: [Value; 1] = lines(&ran).try_into().expect("one run followed a skill");
    assert_eq!((&line["trace"], &line["request"]), (&json!(1), &json!("Cancel A-17")));
    assert_eq!((&line["input"], &line["skill"]), (&json!({"n": [7], "who": "ada"}), &json!("helper")));
    assert_eq!(
        (&line["status"], &line["judged"], &line["answer"]),
        (&json!("succeeded"), &json!("unknown"), &json!("done"))
    );
    assert_eq!(line["usage"], json!({"calls": 3, "input_tokens": 300, "output_tokens": 30}));
    let [said, find, cancel]: [Value; 3] =
        line["events"].as_array().cloned().unwrap_or_default().try_into().expect("a message and two calls");
    assert_eq!(said, json!({"said": "agent", "text": "I look for A-17."}));
    assert_eq!(
        (&find["effect_class"], &find["approval"], &find["error"]),
        (&json!("reads"), &json!("none"), &json!(null))
    );
    assert_eq!(find["result"], json!({"orders": ["A-16", "A-17"], "total": 12.5}));
    assert_eq!(find["origins"], json!({"/who": [{"from": "input", "at": "/who"}]}));
    assert_eq!((&cancel["effect_class"], &cancel["result"]), (&json!("writes"), &json!("cancelled")));
    assert!(cancel["duration_ms"].is_u64(), "{cancel}");
    let found = "skill/helper/turn1/find[0]";
    assert_eq!(
        cancel["origins"],
        json!({
            "/because": [],
            "/id": [{"from": "input", "at": "/request"}, {"from": "event/0", "at": ""}, {"from": found, "at": "/orders/1"}],
            "/sum": [{"from": found, "at": "/total"}],
        })
    );
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
    assert_eq!(shown.at("/calls/1/origins"), cancel["origins"]);
}

/// L-1, 1.3: a call that was denied has no result and the error that the agent received; L-4: no key is in an export.
#[test]
fn denied_calls_and_keys_are_not_in_an_export() {
    let server = Server::agent([Reply::call("cancel", json!({})), Reply::call("leak", json!({}))]);
    let test = app(&server).file("etude.yaml", "approvals: {unattended: wait}\n");
    let id = test.follow("go", &[]).exit(5).id();
    test.run(&["learn", "export"]).exit(0).stdout("");
    test.run(&["learn", "export", "--runs", &id]).exit(2).stderr_has("has not ended");
    test.run(&["deny", "latest", "--reason", "no"]).exit(0);
    test.run(&["runs", "resume", "latest"]).exit(5);
    test.run(&["approve", "latest"]).exit(0);
    test.run(&["runs", "resume", "latest"]).exit(0);
    let ran = test.run(&["learn", "export", "--runs", "latest"]).exit(0);
    assert!(!ran.out().contains(KEY), "{}", ran.out());
    let line = lines(&ran).remove(0);
    let of = |n: usize| (line["events"][n]["approval"].clone(), line["events"][n]["result"].is_null());
    assert_eq!((of(0), of(1)), ((json!("denied"), true), (json!("granted"), false)));
    assert!(line["events"][1]["result"].to_string().contains("***"), "{line}");
    let denied =
        json!({"class": "ToolTerminal", "code": "ApprovalDenied", "message": "the user said no to `cancel`: no"});
    assert_eq!(line["events"][0]["error"], denied);
    assert!(server.seen().iter().any(|seen| seen.body.to_string().contains("the user said no to `cancel`: no")));
    assert_eq!(test.run(&["runs", "show", &id, "--format", "json"]).exit(0).at("/calls/0/error"), denied);
}

/// L-6: a verdict is stored, shown and exported; the last one counts, and an unknown run is a usage error.
#[test]
fn a_run_is_judged() {
    let server = shop();
    let test = app(&server);
    test.run(&["learn", "export"]).exit(0).stdout("");
    let id = test.follow("Cancel A-17", &["--yolo"]).exit(0).id();
    for verdict in ["good", "bad"] {
        test.run(&["runs", "judge", &id, verdict, "--format", "json"])
            .exit(0)
            .has("/run_id", "[RUN]")
            .has("/judged", verdict);
    }
    assert_eq!(lines(&test.run(&["learn", "export", "--runs", &id]))[0]["judged"], "bad");
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/judged", "bad");
    test.run(&["runs", "judge", "nosuchrun", "bad"]).exit(2);
    test.run(&["runs", "judge", &id, "soso"]).exit(2);
}
