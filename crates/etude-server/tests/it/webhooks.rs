//! Incoming webhooks over HTTP.

use serde_json::{Value, json};

use crate::support::{Reply, Running};

const ECHO: &str = "printf '{\"output\": {\"done\": true}}'";

fn server(webhook: &str) -> Running {
    let server = Running::start();
    server.pipeline(
        "p",
        "input: {n: {type: integer, required: false}, text: {type: string, required: false}}\n",
        &[ECHO],
    );
    server.configure(&format!("webhooks:\n  hook: {webhook}\n"));
    // A server uses a changed file within two seconds.
    server.poll("/v1/webhooks/demo/hook/deliveries", |document| document["deliveries"].is_array());
    server
}

/// Sends a delivery with a token of the webhook.
fn deliver(server: &Running, id: &str, token: &str, body: &str) -> Reply {
    let headers = [("X-Webhook-Token", token), ("X-Delivery", id), ("X-Kind", "push"), ("Content-Type", "text/x-odd")];
    server.raw("POST", "/in/demo/hook", &headers, Some(body.to_owned()))
}

fn runs(server: &Running) -> usize {
    server.send("GET", "/v1/runs?cause=webhook", None).json()["runs"].as_array().map_or(0, Vec::len)
}

const TOKEN: &str = "{pipeline: p, verify: {kind: token, secrets: [s3cret, other], id_header: X-Delivery}";

/// S-114, S-116, S-117, S-119: a delivery is one run, even under another id; a wrong secret starts none.
#[test]
fn a_delivery_is_one_run() {
    let server = server(&format!("{TOKEN}}}"));
    assert_eq!(deliver(&server, "d1", "s3cres", "{\"n\": 1}").problem(), (401, "unauthenticated".to_owned()));
    assert_eq!(runs(&server), 0);
    let first = deliver(&server, "d1", "s3cret", "{\"n\": 1}");
    assert_eq!((first.status, &first.json()["delivery_id"]), (202, &json!("d1")), "{}", first.text());
    let run = server.until(first.json()["run_id"].as_str().expect("a run"), &["succeeded"]);
    assert_eq!(
        (&run["cause"], &run["by"], &run["input"]),
        (&json!("webhook"), &json!("webhook:hook"), &json!({"n": 1}))
    );
    assert_eq!(deliver(&server, "d1", "other", "{\"n\": 1}").json(), first.json());
    assert_eq!(deliver(&server, "d2", "s3cret", "{\"n\": 1}").json(), first.json());
    assert_eq!(runs(&server), 1);
    assert_ne!(deliver(&server, "d3", "s3cret", "{\"n\":  1}").json(), first.json());
    assert_eq!(runs(&server), 2);
    let list = server.send("GET", "/v1/webhooks/demo/hook/deliveries", None).json();
    let mut verdicts: Vec<&str> =
        list["deliveries"].as_array().expect("deliveries").iter().filter_map(|one| one["verdict"].as_str()).collect();
    verdicts.sort_unstable();
    assert_eq!(verdicts, ["accepted", "accepted", "refused", "repeated", "repeated"]);
    assert!(!list.to_string().contains("s3cret"), "{list:#}");
}

/// S-12: a stranger who sends no body to a webhook that does not exist gets the response at once. A server that waited for the
/// body first would respond that it did not arrive in time.
#[test]
fn a_webhook_is_looked_up_before_its_body_is_read() {
    let server = server(&format!("{TOKEN}}}"));
    let head = format!(
        "POST /in/demo/none HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\nConnection: close\r\n\r\n",
        server.address
    );
    assert_eq!(server.exchange(head.as_bytes()).problem(), (404, "not_found".to_owned()));
}

/// L-36: a learned pipeline that is not in use is unknown to webhooks too.
#[test]
fn a_delivery_starts_no_learned_pipeline_that_is_not_in_use() {
    for (state, status, begun) in [("shadow", 422, 0), ("demoted", 422, 0), ("active", 202, 1)] {
        let server = server(&format!("{TOKEN}}}"));
        let learn = format!("learn: 1\nstate: {state}\nfamily: read:p\n");
        std::fs::write(server.dir().join("demo/pipelines/p/learn.yaml"), learn).expect("written");
        let reply = deliver(&server, "d1", "s3cret", "{\"n\": 1}");
        assert_eq!((reply.status, runs(&server)), (status, begun), "{state}: {}", reply.text());
    }
}

/// ADR 0116, S-120: the numbers of a `when` are compared to the last digit, and by value.
#[test]
fn a_when_compares_numbers_by_value() {
    let server = server(&format!(
        "{TOKEN}, when: {{body.order: 36893488147419103233, body.n: 3}}, input: {{text: \"{{{{raw}}}}\", n: 1}}}}"
    ));
    for (id, body, is_begun) in [
        ("a", r#"{"order": 36893488147419103234, "n": 3}"#, false),
        ("b", r#"{"order": 36893488147419103233, "n": "3"}"#, false),
        ("c", r#"{"order": 36893488147419103233, "n": 3.0}"#, true),
    ] {
        let reply = deliver(&server, id, "s3cret", body).json();
        assert_eq!(reply["run_id"].is_string(), is_begun, "{body}: {reply}");
    }
}

/// S-27, S-120: a body that is not JSON is refused with the position of the fault; a delivery that does not match `when`, or
/// lacks its value, is `ignored`.
#[test]
fn a_delivery_that_does_not_fit_is_ignored() {
    let more = ", when: {header.x-kind: push, body.ref: main}, input: {text: \"{{body.ref}} {{header.x-kind}}\", n: \"{{body.n}}\"}}";
    let server = server(&format!("{TOKEN}{more}"));
    for (id, body) in [("a", "{\"ref\": \"other\"}"), ("b", "{}")] {
        let reply = deliver(&server, id, "s3cret", body);
        assert_eq!((reply.status, reply.json()), (202, json!({"delivery_id": id, "run_id": null, "ignored": "when"})));
        assert_eq!(deliver(&server, id, "s3cret", body).json(), reply.json());
    }
    assert_eq!(runs(&server), 0);
    let reply = deliver(&server, "c", "s3cret", "{\"ref\": \"main\", \"n\": 12}").json();
    let run = server.until(reply["run_id"].as_str().expect("a run"), &["succeeded"]);
    assert_eq!(run["input"], json!({"n": 12, "text": "main push"}));
    let malformed = deliver(&server, "d", "s3cret", "{\n \"ref\": main}");
    assert_eq!(malformed.problem(), (400, "malformed".to_owned()));
    assert_eq!(
        (&malformed.json()["line"], &malformed.json()["column"]),
        (&json!(2), &json!(9)),
        "{}",
        malformed.text()
    );
    let wrong = deliver(&server, "e", "s3cret", "{\"ref\": \"main\", \"n\": \"x\"}");
    assert_eq!(wrong.problem(), (422, "input_invalid".to_owned()));
    // Refused deliveries are listed with their reason.
    let list = server.send("GET", "/v1/webhooks/demo/hook/deliveries", None).json();
    let of = |id: &str| list["deliveries"].as_array().and_then(|all| all.iter().find(|one| one["delivery_id"] == id));
    for (id, reason) in [("d", "malformed"), ("e", "input_invalid")] {
        let one = of(id).unwrap_or_else(|| panic!("{id}: {list:#}"));
        assert_eq!(
            (&one["verdict"], &one["reason"], &one["run_id"]),
            (&json!("refused"), &json!(reason), &Value::Null)
        );
    }
    assert_eq!(of("c").expect("accepted")["reason"], Value::Null);
    assert!(server.send("GET", "/webhooks", None).text().contains("the input does not match the pipeline"));
}

/// S-33: a number that is taken from the body keeps its digits.
#[test]
fn numbers_of_a_delivery_keep_their_digits() {
    let server = server(&format!("{TOKEN}, input: {{n: \"{{{{body.count}}}}\"}}}}"));
    server.pipeline("p", "input: {n: {type: number}}\n", &[ECHO]);
    let reply = deliver(&server, "a", "s3cret", "{\"count\": 1.2345678901234567890}");
    assert_eq!(reply.status, 202, "{}", reply.text());
    let run = reply.json()["run_id"].as_str().expect("a run").to_owned();
    let input = server.send("GET", &format!("/v1/runs/{run}/input"), None).text();
    assert!(input.contains("1.2345678901234567890"), "{input}");
}

/// S-117: `repeat: allow` accepts equal bodies under other ids.
#[test]
fn equal_bodies_can_be_allowed() {
    let server = server(&format!("{TOKEN}, repeat: allow}}"));
    let ids: Vec<Value> =
        ["a", "b", "a"].iter().map(|id| deliver(&server, id, "s3cret", "{}").json()["run_id"].clone()).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
}

/// S-121: bodies with odd spacing and escapes verify, because the signature covers the bytes.
#[test]
fn odd_bodies_verify() {
    let server = server("{pipeline: p, verify: {kind: github, secrets: [key]}, input: {text: \"{{raw}}\"}}");
    let body = "{ \"a\" :\t\"\\u00e9\\/\" }";
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"key");
    let tag = ring::hmac::sign(&key, body.as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let signature = format!("sha256={hex}");
    let headers = [("X-Hub-Signature-256", &*signature), ("X-GitHub-Delivery", "1")];
    let reply = server.raw("POST", "/in/demo/hook", &headers, Some(body.to_owned()));
    assert_eq!(reply.status, 202, "{}", reply.text());
    let other = server.raw("POST", "/in/demo/hook", &headers, Some(body.replace('\t', " ")));
    assert_eq!(other.problem().0, 401);
    assert_eq!(server.raw("POST", "/in/demo/none", &headers, Some(body.to_owned())).problem().0, 404);
}

/// Refused deliveries, which anyone can send, do not fill the journal.
#[test]
fn refused_deliveries_do_not_fill_the_journal() {
    let server = server(&format!("{TOKEN}}}"));
    for nth in 0..150 {
        assert_eq!(deliver(&server, "d", "wrong", &format!("{{\"n\": {nth}}}")).status, 401);
    }
    let list = server.send("GET", "/v1/webhooks/demo/hook/deliveries?limit=200", None).json();
    let count = list["deliveries"].as_array().map_or(0, Vec::len);
    assert!((1..=100).contains(&count), "{count}");
    assert_eq!(runs(&server), 0);
}

/// Old deliveries are removed from the journal, except those with an existing run: a repetition of one of these still finds it.
#[test]
fn old_deliveries_leave_the_journal() {
    let server = server(&format!("{TOKEN}, when: {{header.x-kind: push, body.n: 1}}}}"));
    let first = deliver(&server, "d1", "s3cret", "{\"n\": 1}");
    server.until(first.json()["run_id"].as_str().expect("a run"), &["succeeded"]);
    deliver(&server, "d2", "s3cret", "{\"n\": 2}");
    let verdicts = |document: &Value| -> Vec<String> {
        let deliveries = document["deliveries"].as_array().expect("deliveries").iter();
        deliveries.filter_map(|one| one["verdict"].as_str().map(str::to_owned)).collect()
    };
    let path = "/v1/webhooks/demo/hook/deliveries";
    assert_eq!(verdicts(&server.send("GET", path, None).json()).len(), 2);
    server.clock.set_offset(91 * 24 * 3_600_000);
    server.poll(path, |document| verdicts(document) == ["accepted"]);
    assert_eq!(deliver(&server, "d1", "s3cret", "{\"n\": 1}").json(), first.json());
    assert_eq!(runs(&server), 1);
}
