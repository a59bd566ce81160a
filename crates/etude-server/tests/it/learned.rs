//! Learned pipelines over HTTP and as pages.

use etude_server::token::Scope;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::pages::form;
use crate::support::Running;

/// Writes two learned pipelines: a candidate in shadow that has disagreed once, and one in use.
pub(crate) fn write(server: &Running) {
    let call = |id: &str| json!([{"tool": "cancel_order", "arguments": {"order_id": id}}]);
    let one = json!({
        "name": "cancel-order", "family": "cancel_order", "state": "shadow", "path": "learned/cancel-order", "edited": false,
        "evidence": {
            "requests": 3, "runs": 3, "leave_one_out": {"agreed": 3, "fell_back": 0, "disagreed": 0},
            "live": {"agreed": 1, "fell_back": 0, "disagreed": 1}, "wrong_rate_bound": 0.5272,
        },
        "waits_for": [{"need": "comparisons", "have": 5, "want": 59}, {"need": "wrong_rate", "have": 0.5272, "want": 0.05}],
        "deviations": [{"step": "get_order", "reason": "missing_value", "count": 2}], "demoted": null, "accepted_risk": null,
        "definition": {"name": "cancel-order", "steps": []},
        "bindings": [{
            "step": "cancel_order", "argument": "/order_id", "source": "input", "expression": "{{input.order_id}}", "held": 3, "of": 3,
            "alternatives": ["{{get_order.output.order_id}}"], "why": "words_first",
        }],
        "holes": [{"step": "cancel_order", "argument": "/reason", "why": "choice", "set": ["late", "<b>wrong</b>"], "by": null}],
        "guards": [{"step": "cancel_order", "condition": {"value": "{{get_order.output.status}}", "equals": "pending"}, "violated": 5}],
        "eligibility": {"kind": "asked", "reason": null}, "covers": ["3ac00a5a00f4e873"], "not_covered": [],
        "comparisons": [
            {"run": "agreed0000000000", "kind": "agreed", "reason": null, "agent": call("T-1384"), "pipeline": call("T-1384")},
            {"run": "disagreed0000000", "kind": "disagreed", "reason": null, "agent": call("T-1051"), "pipeline": call("T-1088")},
        ],
    });
    let mut other = one.clone();
    for (name, value) in
        [("name", "answer"), ("family", "read:get_order"), ("state", "active"), ("path", "pipelines/answer")]
    {
        other[name] = value.into();
    }
    other["waits_for"] = json!([]);
    std::fs::write(server.dir().join("demo/learned.json"), json!([one, other]).to_string()).expect("written");
}

/// S-16: a token for some targets sees no other learned pipeline; only a token with `admin` moves one.
#[test]
fn learned_pipelines_are_shown_and_moved_with_the_rights_of_the_token() {
    let server = Running::start();
    write(&server);
    let names = |document: &Value| -> Vec<String> {
        let rows = document["pipelines"].as_array().expect("rows");
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&server.send("GET", "/v1/apps/demo/learned", None).json()), ["cancel-order", "answer"]);
    let bearer = format!("Bearer {}", server.token("some", &[Scope::Read, Scope::Run], &["ans*"], None));
    let as_some = |method: &str, path: &str| {
        let body = (method == "POST").then(|| "{}".to_owned());
        server.raw(method, path, &[("Authorization", &bearer)], body)
    };
    assert_eq!(names(&as_some("GET", "/v1/apps/demo/learned").json()), ["answer"]);
    assert_eq!(as_some("GET", "/v1/apps/demo/learned/cancel-order").problem(), (404, "not_found".to_owned()));
    assert_eq!(as_some("GET", "/v1/apps/demo/learned/answer").json()["state"], "active");
    let moved = as_some("POST", "/v1/apps/demo/learned/answer/demote");
    assert_eq!(moved.problem(), (403, "forbidden_scope".to_owned()));
    for (app, name) in [("demo", "nothing"), ("nothing", "answer")] {
        let reply = server.send("GET", &format!("/v1/apps/{app}/learned/{name}"), None);
        assert_eq!(reply.problem(), (404, "not_found".to_owned()));
    }
}

/// L-58, L-61: a promotion has the name of the person who accepts the risk and the requested state; a refusal lists the missing
/// conditions.
#[test]
fn a_promotion_names_the_person_and_a_refusal_what_is_missing() {
    let server = Running::start();
    write(&server);
    let promote = |body: &Value| server.send("POST", "/v1/apps/demo/learned/cancel-order/promote", Some(body));
    let refused = promote(&json!({}));
    assert_eq!(refused.problem(), (409, "not_promoted".to_owned()));
    assert_eq!(refused.json()["missing"][0], json!({"need": "comparisons", "have": 5, "want": 59}));
    let done = promote(&json!({"accept_risk": true, "to": "assisted"}));
    assert_eq!((done.status, &done.json()["to"]), (200, &json!("assisted by owner")));
    for wrong in [json!({"to": "demoted"}), json!({"to": "best"}), json!({"accept_risk": "yes"})] {
        assert_eq!(promote(&wrong).problem(), (422, "input_invalid".to_owned()), "{wrong}");
    }
    let demoted = server.send("POST", "/v1/apps/demo/learned/answer/demote", Some(&json!({"reason": "wrong"})));
    assert_eq!(demoted.json()["to"], "demoted");
}

/// S-126, S-127: the pages show evidence and both sides of a disagreement; learned content is text, and forms need no script.
#[test]
fn pages_show_evidence_and_both_sides_of_a_disagreement() {
    let server = Running::start();
    let text = |path: &str| {
        let reply = server.send("GET", path, None);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.text()
    };
    assert!(text("/apps/demo/learned").contains("etude learn"), "an empty list says what makes one");
    write(&server);
    let list = text("/apps/demo/learned");
    assert!(list.contains("comparisons: 5 of 59, rate of wrong writes: 52.7 %, at most 5.0 %"), "{list}");
    assert!(text("/apps/demo").contains("/apps/demo/learned"));
    let path = "/apps/demo/learned/cancel-order";
    let page = text(path);
    for wanted in [
        "cancel_order/order_id</code> = <code>{{input.order_id}}",
        "From the request, correct in 3 of 3 runs",
        "&lt;b&gt;wrong&lt;/b&gt;",
        "T-1051",
        "T-1088",
        "Promote to assisted",
        "1 disagreed",
        "missing value",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(!page.contains("<b>wrong"));
    let first = |what: &str| page.find(what).expect("it is there");
    assert!(first("disagreed0000000") < first("agreed0000000000"), "disagreements come first");
    let refused = form(&server, path, "act=promote");
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("it has too few comparisons"));
    // The form promotes to the state of its button, also if the page is older than the state.
    assert!(page.contains("name=\"to\" value=\"assisted\""), "{page}");
    assert_eq!(form(&server, path, "act=promote&accept_risk=yes&to=nothing").status, 409);
    let done = form(&server, path, "act=promote&accept_risk=yes&to=assisted");
    assert_eq!((done.status, done.header("location")), (303, Some(path)));
    assert_eq!(form(&server, path, "act=demote&reason=").status, 303);
    assert_eq!(form(&server, path, "act=burn").problem(), (404, "not_found".to_owned()));
}

/// S-126: a person promotes in the browser: the menu opens, the box is ticked, and the console of no page has an error.
#[test]
fn a_person_promotes_in_a_browser() {
    let server = Running::start();
    write(&server);
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.complaints();
    let origin = format!("http://{}", server.address);
    browser.open(&format!("{origin}/apps/demo/learned"));
    browser.run("document.querySelector('a.target').click()");
    browser.until("return document.querySelector('h1')?.textContent === 'cancel-order'");
    browser.run(
        "document.querySelector('summary.primary').click(); document.querySelector('button[value=promote]').click()",
    );
    browser.until("return document.querySelector('[role=alert]')?.textContent.includes('too few comparisons')");
    // A refused form is a 409 in the log of the browser; there must be no other entry.
    let others: Vec<String> = browser.complaints().into_iter().filter(|line| !line.contains("409")).collect();
    assert_eq!(others, Vec::<String>::new());
    browser.run(
        "document.querySelector('[name=accept_risk]').checked = true; document.querySelector('button[value=promote]').click()",
    );
    browser.until("return document.querySelector('h1')?.textContent === 'cancel-order' && !document.querySelector('[role=alert]')");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
