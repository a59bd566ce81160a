//! States of learned pipelines: shadow, assisted, active, demoted (L-36, L-51 to L-66, L-78 to L-83).

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::server::{Reply, Server};
use crate::test::{Test, wait_until};

/// A tool that records its input.
const PROGRAM: &str = r#"
import json, sys
call = json.load(sys.stdin)
with open("ledger", "a") as ledger:
    ledger.write(call["tool"] + " " + call["args"]["id"] + "\n")
print(json.dumps({"ok": True, "value": {"id": call["args"]["id"], "status": "open"}}))
"#;

const STEPS: &str = "  - {name: order, type: tool, tool: get, args: {id: \"{{input.id}}\"}}\n  \
                     - {name: gone, type: tool, tool: cancel, args: {id: \"{{order.output.id}}\"}, require: {value: \"{{order.output.status}}\", equals: open}}\n";

pub(crate) const CASE: &str = "name: back 9c04d2aa31e7b650\ndigest: 9c04d2aa31e7b650\npipeline: back\nrequest: Cancel the order A-1\ninput: {id: A-1}\n\
                    tools: [{tool: get, arguments: {id: A-1}, result: {id: A-1, status: open}}, {tool: cancel, arguments: {id: A-1}, result: {}}]\n\
                    expect: {calls: [{tool: cancel, arguments: {id: A-1}}], fell_back: null}\n";

pub(crate) fn app(server: &Server) -> Test {
    let tool = |name: &str, gated: bool| {
        let schema = "{type: object, required: [id], properties: {id: {type: string}}}";
        format!(
            "name: {name}\ndescription: Does it.\ncommand: python3 tools/tool.py\ngated: {gated}\ninputSchema: {schema}\n"
        )
    };
    Test::new()
        .model(server)
        .skill("", "Help.\n")
        .file("tools/tool.py", PROGRAM)
        .file("tools/get.yaml", &tool("get", false))
        .file("tools/cancel.yaml", &tool("cancel", true))
}

/// A learned pipeline in the directory that belongs to its state.
pub(crate) fn learned(test: Test, state: &str) -> Test {
    let base = if ["proposed", "shadow"].contains(&state) { "learned" } else { "pipelines" };
    test.file(
        &format!("{base}/back/pipeline.yaml"),
        &format!("name: back\ndescription: Cancels an order.\ntriggers: [\"Cancel the order A-1\"]\nfallback: skill\ninput: {{id: {{type: string, pattern: \"[A-Z]-[0-9]+\"}}}}\nsteps:\n{STEPS}"),
    )
    .file(&format!("{base}/back/learn.yaml"), &format!("learn: 1\nstate: {state}\nfamily: cancel\n"))
}

pub(crate) fn ledger(test: &Test) -> Vec<String> {
    if !test.path("app/ledger").exists() {
        return Vec::new();
    }
    test.read("app/ledger").lines().map(str::to_owned).collect()
}

pub(crate) fn row(test: &Test) -> Value {
    test.run(&["learn", "status", "--format", "json"]).exit(0).at("/pipelines/0")
}

const RUN: &[&str] = &["run", "--pipeline", "back", "-i", "id=A-1", "--format", "json"];

fn run(test: &Test, more: &[&str]) -> Ran {
    test.run(&[RUN, more].concat())
}

/// L-36: before `assisted`, nothing lists, routes to or runs a candidate, not even one in `pipelines/`.
#[test]
fn a_candidate_is_in_no_list_and_runs_not() {
    let server = Server::agent([]);
    for (base, state) in
        [("learned", "proposed"), ("learned", "shadow"), ("pipelines", "shadow"), ("pipelines", "demoted")]
    {
        let test = learned(app(&server), "active");
        let text = test.read("app/pipelines/back/pipeline.yaml");
        std::fs::remove_dir_all(test.path("app/pipelines")).expect("removed");
        test.put(&format!("app/{base}/back/pipeline.yaml"), &text);
        test.put(&format!("app/{base}/back/learn.yaml"), &format!("learn: 1\nstate: {state}\nfamily: cancel\n"));
        assert!(!test.run(&["list"]).exit(0).out().contains("back"), "{base} {state}");
        test.run(&["route", "Cancel the order A-1", "--mode", "embedded", "--format", "json"])
            .has("/pipeline", json!(null));
        run(&test, &[]).exit(2);
        assert_eq!(ledger(&test), [""; 0]);
    }
    run(&learned(app(&server), "active"), &["--yolo"]).exit(0).has("/mode", "pipeline");
}

/// L-67: a learned pipeline whose tool was removed is left out of routing, and the agent serves the request; `route` says why.
/// A request for the pipeline by its name, or without a model for the agent, has its errors.
#[test]
fn a_pipeline_without_its_tool_leaves_its_requests_to_the_agent() {
    let request = "Cancel the order A-1";
    for (state, removed) in [("active", "get"), ("assisted", "cancel")] {
        let server = Server::by(|_, _| Reply::says("done by the agent"));
        let test = learned(app(&server), state);
        std::fs::remove_file(test.path(&format!("app/tools/{removed}.yaml"))).expect("removed");
        let why = format!(
            "learned pipeline `back` was not considered, because it has errors: there is no tool `{removed}` (see `etude check`)"
        );
        test.run(&["run", request, "--router", "embedded", "--format", "json"])
            .exit(0)
            .has("/mode", "skill")
            .output("done by the agent")
            .stderr_has(&format!("note: {why}"));
        let routed = test.run(&["route", request, "--mode", "embedded", "--format", "json"]).exit(0);
        routed.has("/pipeline", Value::Null).has("/notes/0", &*why);
        test.run(&["run", "--pipeline", "back", "-i", "id=A-1"]).exit(3).stderr_has("P0713");
        let offline = test.user_config("");
        offline.run(&["run", request, "--router", "embedded"]).exit(3).stderr_has("P0713");
    }
}

/// L-63: in `assisted`, each write waits for a decision of its own: `--yolo`, a rule and "always" do not replace it.
#[test]
fn a_write_of_an_assisted_pipeline_waits_for_its_own_answer() {
    let server = Server::agent([]);
    let test = learned(app(&server), "assisted").file("etude.yaml", "approvals: {mode: yolo, allow: [cancel]}\n");
    let waits = run(&test, &["--yolo"]).exit(5);
    assert_eq!(waits.at("/waiting/0/payload/arguments"), json!({"id": "A-1"}));
    assert_eq!(ledger(&test), ["get A-1"]);
    test.run(&["approve", "latest", "--answer", "\"always\""]).exit(0);
    test.run(&["runs", "resume", "latest"]).exit(0);
    assert_eq!(ledger(&test), ["get A-1", "cancel A-1"]);
    run(&test, &["--yolo"]).exit(5);
    let status = row(&test);
    assert_eq!((&status["state"], &status["evidence"]["live"]["agreed"]), (&json!("assisted"), &json!(1)));
}

/// L-66: a write that policy denies by name stays denied, and an `active` pipeline asks whatever skill mode asks.
#[test]
fn a_learned_pipeline_needs_no_fewer_approvals() {
    let server = Server::agent([]);
    let denies = "approvals: {mode: yolo, allow: [\"cancel, $deny\"]}\n";
    let test = learned(app(&server), "assisted").file("etude.yaml", denies);
    run(&test, &["--yolo"]).exit(0).has("/fell_back/reason", "denied");
    let test = learned(app(&server), "active").file("etude.yaml", "approvals: {unattended: wait}\n");
    run(&test, &[]).exit(5);
    assert_eq!(ledger(&test), ["get A-1"]);
}

/// L-64: a model confirms with the request, the rules and the write; any reply but yes leads to the agent.
#[test]
fn a_model_may_confirm() {
    let config = "learn: {confirm: model}\n";
    let server = Server::agent([Reply::json(&json!({"confirm": "yes"}))]);
    let test = learned(app(&server), "assisted").file("etude.yaml", config);
    run(&test, &["--yolo"]).exit(0).has("/fell_back", json!(null));
    assert_eq!(ledger(&test), ["get A-1", "cancel A-1"]);
    let asked = server.seen()[0].body.to_string();
    assert!(asked.contains("A-1") && asked.contains("Help.") && asked.contains("cancel"), "{asked}");
    let server = Server::agent([Reply::json(&json!({"confirm": "unsure"}))]);
    let test = learned(app(&server), "assisted").file("etude.yaml", config);
    run(&test, &["--yolo"]).exit(0).has("/fell_back/reason", "not_confirmed").has("/fell_back/writes_done", 0);
    assert_eq!(ledger(&test), ["get A-1"]);
}

/// L-78, L-80, L-81: a denied write demotes at once: it is reported once, no file changes, the next request goes to the agent,
/// and a promotion needs later evidence.
#[test]
fn a_denied_write_demotes() {
    let server = Server::agent([]);
    let test = learned(app(&server), "assisted");
    let before = test.read("app/pipelines/back/learn.yaml");
    run(&test, &[]).exit(5);
    test.run(&["deny", "latest", "--reason", "no"]).exit(0);
    let resumed = test.run(&["runs", "resume", "latest"]).exit(0);
    assert!(resumed.err().contains("is no longer `assisted` but `demoted` (denied"), "{}", resumed.err());
    let again = test.run(&["run", "Cancel the order A-1", "--router", "embedded", "--format", "json"]).exit(0);
    assert_eq!(again.at("/mode"), json!("skill"));
    assert!(!again.err().contains("no longer"), "{}", again.err());
    assert_eq!(test.read("app/pipelines/back/learn.yaml"), before);
    let status = row(&test);
    assert_eq!((&status["state"], &status["demoted"]["reason"]), (&json!("demoted"), &json!("denied")));
    assert!(status["demoted"]["run"].is_string() && status["demoted"]["at"].is_string(), "{status}");
    let refused = test.run(&["learn", "promote", "back", "--accept-risk", "--format", "json"]).exit(2);
    assert_eq!((refused.at("/missing/0/need"), refused.at("/to")), (json!("new_evidence"), json!("demoted")));
}

/// L-78: `runs judge bad` on a run with a write demotes, and says so.
#[test]
fn a_bad_verdict_demotes() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "B-2"}))]);
    let test = learned(app(&server), "active");
    run(&test, &["--yolo"]).exit(0);
    test.run(&["runs", "judge", "latest", "bad"]).exit(0).stderr_has("no longer `active` but `demoted` (judged_bad");
    run(&test, &[]).exit(2);
    // 1.2: the file of the pipeline does not mention the demotion, and `check` does.
    let checked = test.run(&["check", "--format", "json"]).exit(0);
    assert_eq!(checked.at("/diagnostics/0/code"), json!("P0901"), "{}", checked.out());
    assert_eq!(checked.at("/diagnostics/0/severity"), json!("warning"));
    // Another run of the same request is a new one.
    test.run(&["run", "--again", "latest", "-i", "id=B-3"]).exit(2).stderr_has("is not in use");
    // Later evidence: an agent has made the write.
    test.follow("Cancel the order B-2", &["--yolo"]).exit(0);
    let promoted = test.run(&["learn", "promote", "back", "--format", "json"]).exit(0);
    assert_eq!((promoted.at("/from"), promoted.at("/to")), (json!("demoted"), json!("proposed")));
    assert!(test.path("app/learned/back/pipeline.yaml").exists() && !test.path("app/pipelines/back").exists());
    assert_eq!(row(&test)["state"], "proposed");
}

/// L-79: two deviations of the same kind demote; the runs themselves ended as the agent ended them.
#[test]
fn two_deviations_demote() {
    let server = Server::agent([]);
    let test = learned(app(&server), "active");
    let text = test.read("app/pipelines/back/pipeline.yaml").replace("equals: open", "equals: closed");
    test.put("app/pipelines/back/pipeline.yaml", &text);
    let first = run(&test, &[]).exit(0);
    assert!(!first.err().contains("no longer"), "{}", first.err());
    assert_eq!(row(&test)["deviations"], json!([{"step": "gone", "reason": "require", "count": 1}]));
    run(&test, &[]).exit(0).stderr_has("`demoted` (deviations");
    assert_eq!(row(&test)["state"], "demoted");
}

/// L-58, L-59, L-61: conditions are named; `--accept-risk` replaces the bound and is recorded with name and time; the promotion
/// is a move of files.
#[test]
fn a_promotion_moves_files() {
    let server = Server::agent([]);
    let test =
        learned(app(&server), "proposed").file("learned/back/tests/9c04d2aa31e7b650.yaml", CASE).env("USER", "ada");
    let refused = test.run(&["learn", "promote", "back", "--to", "active", "--format", "json"]).exit(2);
    let needs: Vec<Value> =
        refused.at("/missing").as_array().expect("a list").iter().map(|need| need["need"].clone()).collect();
    assert_eq!(json!(needs), json!(["comparisons", "live_comparisons", "wrong_rate", "writes"]));
    assert_eq!((refused.at("/from"), refused.at("/to")), (json!("proposed"), json!("proposed")));
    test.run(&["learn", "promote", "back", "--format", "json"]).exit(0).has("/to", "shadow");
    assert_eq!(test.read("app/learned/back/learn.yaml"), "learn: 1\nstate: shadow\nfamily: cancel\n");
    test.run(&["learn", "promote", "back", "--to", "shadow"]).exit(2);
    let done = test.run(&["learn", "promote", "back", "--to", "active", "--accept-risk", "--format", "json"]).exit(0);
    assert_eq!(done.at("/paths"), json!(["pipelines/back", "tests/back-[RUN].yaml", "pipelines/back/learn.yaml"]));
    assert_eq!(
        test.read("app/pipelines/back/learn.yaml"),
        "learn: 1\nstate: active\nfamily: cancel\naccept_risk: true\n"
    );
    assert!(!test.path("app/learned/back").exists() && !test.path("app/pipelines/back/tests").exists());
    test.run(&["test"]).exit(0);
    let status = row(&test);
    assert_eq!((&status["state"], &status["accepted_risk"]["by"]), (&json!("active"), &json!("ada")));
    test.run(&["learn", "promote", "back"]).exit(2).stderr_has("no higher state");
    test.run(&["learn", "demote", "back", "--reason", "not now"]).exit(0);
    assert_eq!(row(&test)["demoted"]["reason"], "not now");
    test.run(&["learn", "promote", "nothing"]).exit(2).stderr_has("no learned pipeline `nothing`");
}

/// A promotion over a promoted pipeline deletes no edits of a person, and names the remedy.
#[test]
fn a_promotion_deletes_no_edited_pipeline() {
    let server = Server::agent([]);
    let case = "learned/back/tests/9c04d2aa31e7b650.yaml";
    let test = learned(learned(app(&server), "proposed").file(case, CASE), "active");
    let promote = ["learn", "promote", "back", "--to", "assisted", "--accept-risk"];
    let learn_yaml = test.read("app/pipelines/back/learn.yaml");
    test.put("app/pipelines/back/learn.yaml", &format!("{learn_yaml}content: 9c04d2aa31e7b650\n"));
    test.run(&promote).exit(2).stderr_has("have changed since it was learned").stderr_has("keep what you need");
    test.put("app/pipelines/back/.notes", "mine");
    test.run(&promote).exit(2).stderr_has("`pipelines/back/.notes` was not learned");
    assert!(test.path("app/pipelines/back/.notes").exists() && test.path(&format!("app/{case}")).exists());
    std::fs::remove_dir_all(test.path("app/pipelines/back")).expect("it is there");
    test.run(&promote).exit(0);
}

/// A-2.2: a promotion and a demotion neither write nor move anything through a link that leads out of the app.
#[test]
fn links_of_the_app_lead_learning_nowhere() {
    let server = Server::agent([]);
    let test = learned(app(&server), "proposed").file("learned/back/tests/9c04d2aa31e7b650.yaml", CASE);
    test.put("elsewhere/secret", "CANARY");
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(to, test.path(from)).expect("a link");
    let is_untouched = || {
        assert_eq!(std::fs::read_dir(test.path("elsewhere")).expect("a directory").count(), 1);
        assert_eq!(test.read("elsewhere/secret"), "CANARY");
    };
    let promote = ["learn", "promote", "back", "--to", "active", "--accept-risk"];
    for way in ["tests", "pipelines"] {
        // The app has no other pipeline.
        let _ = std::fs::remove_dir_all(test.path(&format!("app/{way}")));
        link(&format!("app/{way}"), "../elsewhere");
        test.run(&promote).exit(2).stderr_has("leads out of the app");
        assert!(test.path("app/learned/back/tests/9c04d2aa31e7b650.yaml").exists(), "nothing has moved");
        is_untouched();
        std::fs::remove_file(test.path(&format!("app/{way}"))).expect("it is there");
    }
    link("app/learned/back/learn.yaml.new", "../../../elsewhere/secret");
    test.run(&promote).exit(0);
    is_untouched();
    test.run(&["learn", "demote", "back"]).exit(0);
    is_untouched();
}

/// L-58: a failing case, or an edit since the learning, prevents a promotion, also with `--accept-risk`.
#[test]
fn a_candidate_that_was_edited_is_tested_first() {
    let server = Server::agent([]);
    let test = learned(app(&server), "proposed").file("learned/back/tests/9c04d2aa31e7b650.yaml", CASE);
    test.put("app/learned/back/learn.yaml", "learn: 1\nstate: proposed\nfamily: cancel\ncontent: \"0\"\n");
    let needs = |ran: Ran| ran.at("/missing/0/need");
    let promote = ["learn", "promote", "back", "--accept-risk", "--format", "json"];
    assert_eq!(needs(test.run(&promote).exit(2)), "unchanged_files");
    assert_eq!(row(&test)["edited"], true);
    let tested = test.run(&["learn", "test", "back", "--format", "json"]).exit(0);
    assert_eq!((tested.at("/passed"), tested.at("/tests/0/pipeline")), (json!(1), json!("back")));
    test.run(&promote).exit(0);
    assert_eq!(row(&test)["edited"], false);
    let text = test.read("app/learned/back/pipeline.yaml").replace("{{order.output.id}}", "A-9");
    test.put("app/learned/back/pipeline.yaml", &text);
    test.run(&["learn", "test", "back"]).exit(1);
    assert_eq!(needs(test.run(&promote).exit(2)), "tests");
    // 1.1: an invalid definition is reported as such.
    test.put("app/learned/back/pipeline.yaml", &text.replace("tool: get,", "tool: nothing,"));
    test.run(&["learn", "test", "back"]).exit(3).stderr_has("nothing");
}

/// L-65: comparisons of the learning were made with other files, so they do not count after an edit, whatever its promotion.
#[test]
fn a_promoted_edit_has_no_evidence_of_the_learning() {
    let server = Server::agent([]);
    let test = learned(app(&server), "proposed").file("learned/back/tests/9c04d2aa31e7b650.yaml", CASE);
    let head = "learn: 1\nstate: proposed\nfamily: cancel\ncontent: \"0\"\n";
    let evidence = "evidence: {requests: 3, runs: 3, leave_one_out: {agreed: 3, fell_back: 0, disagreed: 0}}\n";
    test.put("app/learned/back/learn.yaml", &format!("{head}{evidence}"));
    test.run(&["learn", "test", "back"]).exit(0);
    test.run(&["learn", "promote", "back"]).exit(0);
    let row = row(&test);
    assert_eq!(
        (&row["edited"], &row["state"], &row["evidence"]["requests"]),
        (&json!(false), &json!("shadow"), &json!(3))
    );
    assert_eq!(row["evidence"]["leave_one_out"]["agreed"], 0, "{row}");
}

/// L-58: a demotion during the checks of a promotion is not undone.
#[test]
fn a_demotion_during_a_promotion_stays() {
    let server = Server::agent([]);
    let test = learned(app(&server), "shadow").file("learned/back/tests/9c04d2aa31e7b650.yaml", CASE);
    let learn = test.path("app/learned/back/learn.yaml");
    let demote = format!(
        "sed 's/shadow/demoted/' '{0}' > '{0}.new' && mv '{0}.new' '{0}'; echo '{{\"output\": 1}}'\n",
        learn.display()
    );
    let pipeline = test.read("app/learned/back/pipeline.yaml");
    let step = "steps:\n  - {name: other, type: code, command: sh steps/other.sh}\n";
    test.put("app/learned/back/pipeline.yaml", &pipeline.replace("steps:\n", step));
    test.put("app/learned/back/steps/other.sh", &demote);
    test.run(&["learn", "promote", "back", "--accept-risk"]).exit(2).stderr_has("while its conditions were checked");
    assert_eq!(row(&test)["state"], "demoted");
    assert!(!test.path("app/pipelines/back").exists());
}

/// 1.8: the reason of a demotion is the text of a person: its row stays one line and controls no terminal.
#[test]
fn the_reason_of_a_demotion_is_one_harmless_line() {
    let server = Server::agent([]);
    let test = learned(app(&server), "shadow");
    test.run(&["learn", "demote", "back", "--reason", "\u{1b}[31mwrong\nitem\u{7}"]).exit(0);
    let ran = test.run(&["learn", "status"]).exit(0);
    assert!(ran.out().contains("demoted: wrong item"), "{:?}", ran.out());
    assert_eq!((ran.out().lines().count(), ran.out().contains(['\u{1b}', '\u{7}'])), (1, false));
}

/// L-62: a promotion after which another pipeline would match a recorded request is refused, and the requests are listed.
#[test]
fn a_promotion_takes_no_requests_from_others() {
    let server = Server::agent([]);
    let other = "pipeline: other\nrequest: Cancel the order of the kitchen\nexpect: {status: succeeded}\n";
    let test = learned(app(&server), "shadow")
        .file("pipelines/other/pipeline.yaml", "name: other\ndescription: Tells the weather.\ntriggers: [Cancel the order of the kitchen]\nsteps: [{name: a, type: code, command: \"true\"}]\n")
        .file("tests/other.yaml", other);
    let text =
        test.read("app/learned/back/pipeline.yaml").replace("Cancel the order A-1", "Cancel the order of the kitchen");
    test.put("app/learned/back/pipeline.yaml", &text);
    let ran = test.run(&["learn", "promote", "back", "--accept-risk", "--format", "json"]);
    let (before, after) = (ran.at("/conflicts/0/before"), ran.at("/conflicts/0/after"));
    assert_eq!(before, json!("other"));
    assert_ne!(before, after);
    assert_eq!(
        ran.exit(2).at("/missing").as_array().map(|all| all.iter().any(|need| need["need"] == "routing")),
        Some(true)
    );
}

/// L-51 to L-54, L-56: a candidate in `shadow` follows a run: its reads get the agent's results, its writes are not made, and
/// the comparison is kept with both sides and its usage.
#[test]
fn a_shadow_compares_and_writes_nothing() {
    let said =
        [Reply::call("get", json!({"id": "A-1"})), Reply::call("cancel", json!({"id": "A-1"})), Reply::says("done")];
    let server = Server::agent(said);
    let test = learned(app(&server), "shadow").file("etude.yaml", "learn: {shadow: 1}\nrouter: {mode: embedded}\n");
    let ran = test.follow("Cancel the order A-1", &["--yolo", "-i", "id=A-1"]).exit(0);
    assert_eq!(ran.at("/usage/shadow"), json!({"calls": 0, "input_tokens": 0, "output_tokens": 0}));
    wait_until("the comparison is kept", || row(&test)["evidence"]["live"]["agreed"] == 1);
    assert_eq!(ledger(&test), ["get A-1", "cancel A-1"], "nothing is called twice");
}

/// L-56: `runs show` has the usage of the shadow of a run.
#[test]
fn what_a_shadow_has_used_is_shown() {
    let said = [
        Reply::call("get", json!({"id": "A-1"})),
        Reply::call("cancel", json!({"id": "A-1"})),
        Reply::says("done"),
        Reply::says("yes"),
    ];
    let server = Server::agent(said);
    let test = learned(app(&server), "shadow").file("etude.yaml", "learn: {shadow: 1}\nrouter: {mode: embedded}\n");
    let asks = format!(
        "{}  - {{name: say, type: llm, model: lite, retry: 0, prompt: Say yes.}}\n",
        test.read("app/learned/back/pipeline.yaml")
    );
    test.put("app/learned/back/pipeline.yaml", &asks);
    let id = test.follow("Cancel the order A-1", &["--yolo", "-i", "id=A-1"]).exit(0).id();
    let used = || test.run(&["runs", "show", &id, "--format", "json"]).exit(0).at("/usage/shadow");
    wait_until("the shadow has ended", || used() != json!({"calls": 0, "input_tokens": 0, "output_tokens": 0}));
    assert_eq!(used(), json!({"calls": 1, "input_tokens": 100, "output_tokens": 10}));
}

/// L-54, 1.8: a candidate that would have written something else disagrees, and is back in `proposed`, which is not a demotion.
#[test]
fn a_shadow_that_disagrees_ends() {
    let said = [Reply::call("cancel", json!({"id": "A-7"})), Reply::says("done")];
    let server = Server::agent(said);
    let test = learned(app(&server), "shadow").file("etude.yaml", "learn: {shadow: 1}\nrouter: {mode: embedded}\n");
    test.follow("Cancel the order A-1", &["--yolo", "-i", "id=A-1"]).exit(0);
    wait_until("the comparison is kept", || row(&test)["evidence"]["live"]["disagreed"] == 1);
    assert_eq!(ledger(&test), ["cancel A-7", "get A-1"], "a read without approval is made");
    let status = row(&test);
    assert_eq!((&status["state"], &status["demoted"]), (&json!("proposed"), &json!(null)));
}

/// L-57, L-5: `shadow: 0` runs no shadow, and without learning nothing is read or kept.
#[test]
fn learning_can_be_switched_off() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "A-1"})), Reply::says("done")]);
    let test = learned(app(&server), "shadow").file("etude.yaml", "learn: {shadow: 0}\nrouter: {mode: embedded}\n");
    test.follow("Cancel the order A-1", &["--yolo"]).exit(0);
    assert_eq!(row(&test)["evidence"]["live"], json!({"agreed": 0, "fell_back": 0, "disagreed": 0}));
    test.put("app/etude.yaml", "learn: {enabled: false}\n");
    for command in [&["learn", "status"][..], &["learn", "test"], &["learn", "export"]] {
        test.run(command).exit(2).stderr_has("learning is switched off");
    }
}

/// L-40: `forget --run` removes the cases of the run's request and names the pipelines that lost evidence; `forget NAME`
/// removes a candidate.
#[test]
fn what_was_learned_is_forgotten() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "A-1"})), Reply::says("done")]);
    let test = learned(app(&server), "proposed");
    let evidence = |requests: u64, runs: u64, agreed: u64| {
        format!(
            "learn: 1\nstate: proposed\nfamily: cancel\nevidence:\n  requests: {requests}\n  runs: {runs}\n  leave_one_out:\n    agreed: {agreed}\n    fell_back: 0\n"
        )
    };
    let id = test.follow("Cancel the order A-1", &["--yolo"]).exit(0).id();
    let digest = etude_core::verbatim::request_digest(["Cancel the order A-1"]);
    let case = format!("learned/back/tests/{digest}.yaml");
    test.put(&format!("app/{case}"), CASE);
    test.put("app/learned/back/tests/0000000000000000.yaml", CASE);
    test.put("app/learned/back/learn.yaml", &format!("{}covers: [\"{digest}\"]\n", evidence(2, 3, 2)));
    let forgotten = test.run(&["learn", "forget", "--run", &id, "--format", "json"]).exit(0);
    assert_eq!(forgotten.at("/cases"), json!(["learned/back/tests/[RUN].yaml"]));
    assert_eq!(forgotten.at("/pipelines"), json!([{"name": "back", "requests_before": 2, "requests_after": 1}]));
    assert!(!test.path(&format!("app/{case}")).exists());
    assert!(test.read("app/learned/back/learn.yaml").starts_with(&evidence(1, 2, 1)), "runs and comparisons go along");
    assert!(!test.run(&["learn", "export"]).exit(0).out().contains(&id), "a forgotten run has no trace");
    test.run(&["learn", "forget", "back"]).exit(0);
    assert!(!test.path("app/learned/back").exists());
    test.run(&["learn", "forget", "back"]).exit(2);
    test.run(&["learn", "forget"]).exit(2);
}

/// L-40: of two runs with the same request, one can be forgotten without loss. Without both, the candidate contains none of
/// their words, and its remaining evidence is too little for a promotion. Files that a person has changed are named.
#[test]
fn words_of_a_forgotten_run_are_in_no_candidate() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "A-1"})), Reply::says("done")]);
    let test = app(&server);
    let run = |request: &str| test.follow(request, &["--yolo"]).exit(0).id();
    let secret = "Cancel A-1 because of my secret surgery";
    let [first, second, _, _] = [secret, secret, "Please cancel A-1", "Now cancel A-1"].map(run);
    test.run(&["learn"]).exit(0);
    let digest = etude_core::verbatim::request_digest([secret]);
    let case = test.path(&format!("app/learned/cancel/tests/{digest}.yaml"));
    let has_words = || test.read("app/learned/cancel/pipeline.yaml").contains("surgery");
    let forget = |id: &str| test.run(&["learn", "forget", "--run", id, "--format", "json"]).exit(0);
    assert!(case.exists() && has_words());
    let forgotten = forget(&first);
    assert_eq!(forgotten.at("/pipelines"), json!([{"name": "cancel", "requests_before": 3, "requests_after": 3}]));
    assert!(case.exists() && has_words(), "another run has said the same");
    let forgotten = forget(&second);
    assert_eq!(forgotten.at("/pipelines/0/requests_after"), json!(2));
    assert_eq!(forgotten.at("/reworded"), json!(["learned/cancel/pipeline.yaml"]));
    assert!(!case.exists() && !has_words());
    assert!(!test.read("app/learned/cancel/learn.yaml").contains(&digest));
    assert_eq!(row(&test)["edited"], json!(false));
    let refused = test.run(&["learn", "promote", "cancel", "--format", "json"]).exit(2);
    assert_eq!(refused.at("/missing"), json!([{"need": "comparisons", "have": 2, "want": 3}]));
}

/// 1.7: the run that makes a family large enough to learn from says so, once.
#[test]
fn a_run_says_that_its_family_can_be_learned() {
    let server = Server::agent([Reply::call("cancel", json!({"id": "A"}))]);
    let test = app(&server);
    let says = |request: &str| test.follow(request, &["--yolo"]).exit(0).err().contains("3 requests led to `cancel`");
    assert_eq!([says("Cancel A"), says("Cancel B"), says("cancel b"), says("Cancel C")], [false, false, false, true]);
}
