//! The forms of pages: each acts once per click, keeps typed text, and needs the scope of its action.

use etude_runtime::engine::{Fleet as _, NewRun, Placement, Submission};
use etude_server::token::Scope;
use serde_json::{Value, json};

use crate::pages::{form, id_of, page, server};
use crate::support::{Reply, Running};

/// The response with a page for a token.
fn page_of(server: &Running, token: &str, path: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    server.raw("GET", path, &[("Authorization", &bearer), ("Accept", "text/html")], None)
}

/// The key of the form of a page with the target `action`.
fn key_of(text: &str, action: &str) -> String {
    let rest = text.split(&format!("action=\"{action}\"")).nth(1).unwrap_or_else(|| panic!("no form {action}: {text}"));
    let value = rest.split("name=\"key\" value=\"").nth(1).expect("a key");
    value.split('"').next().expect("a value").to_owned()
}

fn runs(server: &Running) -> usize {
    server.send("GET", "/v1/runs", None).json()["runs"].as_array().map_or(0, Vec::len)
}

/// A second click on a button of a page is the same request: one run, one decision.
#[test]
fn a_second_click_does_nothing_more() {
    let server = server();
    let path = "/apps/demo/pipelines/p";
    let key = key_of(&page(&server, path), path);
    let click =
        |body: &str| form(&server, path, &format!("key={key}&{body}")).header("location").expect("a run").to_owned();
    let first = click("input.name=Ada");
    assert_eq!((click("input.name=Ada"), runs(&server)), (first.clone(), 1));
    assert_ne!(click("input.name=Bob"), first, "what was changed is another run");
    let again = format!("{first}/again");
    server.until(first.trim_start_matches("/runs/"), &["succeeded"]);
    let key = key_of(&page(&server, &first), &again);
    let click = || form(&server, &again, &format!("key={key}")).header("location").map(str::to_owned);
    assert_eq!((click(), runs(&server)), (click(), 3));
    server.configure("schedules:\n  hourly: {pipeline: p, every: 1h}\n");
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let fire = "/schedules/demo/hourly/fire";
    let key = key_of(&page(&server, "/schedules/demo/hourly"), fire);
    for _ in 0..2 {
        assert_eq!(form(&server, fire, &format!("key={key}")).status, 303);
    }
    assert_eq!(runs(&server), 4);
}

/// A second click on a decision leads to the run; a different decision leads to the name of the first decider.
#[test]
fn a_decision_that_was_made_is_shown() {
    let server = server();
    let run = server.run(&json!({"pipeline": "ask"}));
    let other = server.run(&json!({"pipeline": "ask"}));
    let all = server.send("GET", "/v1/decisions", None).json();
    let decision = all["decisions"].as_array().and_then(|all| all.iter().find(|one| one["run_id"] == run["run_id"]));
    let decision = decision.expect("a question");
    let id = decision["id"].as_str().expect("an id").replace('/', "%2F");
    let question = decision["question"].as_str().expect("a question");
    let decide = |approved: bool| {
        let reply =
            form(&server, &format!("/decisions/{id}"), &format!("key=k&question={question}&approved={approved}"));
        reply.header("location").map(str::to_owned).unwrap_or_else(|| reply.text())
    };
    let path = format!("/runs/{}", id_of(&run));
    assert_eq!(decide(true), path);
    assert_eq!(decide(true), path);
    server.until(id_of(&run), &["succeeded"]);
    assert_eq!(decide(true), path);
    assert_eq!(decide(false), format!("/decisions?at={}", id.replace(':', "%3A")));
    // No other question may be ready for approval in its place.
    let text = page(&server, &format!("/decisions?at={id}"));
    assert!(
        text.contains("<code>owner</code> approved this question") && text.contains(&format!("href=\"{path}\"")),
        "{text}"
    );
    assert!(!text.contains("id=\"decision\"") && text.contains(id_of(&other)), "{text}");
    assert!(page(&server, "/decisions").contains("id=\"decision\""));
}

/// Typed text is kept when a decision is refused, and a form without one of its buttons decides nothing.
#[test]
fn a_refused_decision_keeps_what_was_typed() {
    let server = Running::start();
    let schema = "{type: object, properties: {sure: {type: boolean}, list: {type: array}}}";
    server.pipeline("ask", "", &[&format!("approval: message: Go?, schema: {schema}")]);
    let run = server.run(&json!({"pipeline": "ask"}));
    let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    let path = format!("/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    let question = decision["question"].as_str().expect("a question");
    let typed = "answer.sure=false&answer.sure=true&answer.list=%5B1&reason=looked+at+it";
    for (button, status) in [("&approved=true", 422), ("", 200)] {
        let reply = form(&server, &path, &format!("question={question}&{typed}{button}"));
        assert_eq!(reply.status, status, "{}", reply.text());
        let text = reply.text();
        assert!(text.contains("value=\"true\" checked") && text.contains("looked at it</textarea>"), "{text}");
        assert_eq!(text.contains("the text is not JSON"), status == 422, "{text}");
        // The browser shows the question again, not the list above it.
        assert!(text.contains(&format!("action=\"{}#question\"", path.replace(':', "%3A"))), "{text}");
    }
    // The address of the refused form is that of a page, which the script reads again and a reader may reload.
    let reply = page_of(&server, &server.owner, &format!("{path}?at=x"));
    let inbox = path.replacen("/decisions/", "/decisions?at=", 1).replace(':', "%3A");
    assert_eq!((reply.status, reply.header("location")), (303, Some(&*inbox)));
    assert_eq!(server.until(id_of(&run), &["waiting"])["status"], "waiting");
}

/// The page of a pipeline has a chart as soon as a run has ended.
#[test]
fn a_chart_has_the_runs_that_have_ended() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: Go?"]);
    let run = server.run(&json!({"pipeline": "ask"}));
    let has_chart = || page_of(&server, &server.owner, "/apps/demo/pipelines/ask").text().contains("class=\"charts\"");
    assert!(!has_chart());
    assert_eq!(server.send("POST", &format!("/v1/runs/{}/cancel", id_of(&run)), Some(&json!({}))).status, 202);
    server.until(id_of(&run), &["cancelled"]);
    assert!(has_chart());
}

/// The page of a refused form leads back to the page with the form.
#[test]
fn a_refused_form_leads_back() {
    let server = server();
    server.configure("schedules:\n  hourly: {pipeline: p, every: 1h}\n");
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let (bearer, origin) = (format!("Bearer {}", server.owner), format!("http://{}", server.address));
    let page = format!("{origin}/schedules/demo/hourly?x=1");
    let kind = "application/x-www-form-urlencoded";
    let headers = [
        ("Authorization", &*bearer),
        ("Origin", &origin),
        ("Content-Type", kind),
        ("Accept", "text/html"),
        ("Referer", &page),
    ];
    let reply = server.raw("POST", "/schedules/demo/hourly/backfill", &headers, Some("from=x&to=y".to_owned()));
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("<a href=\"/schedules/demo/hourly?x=1\">Back</a>"), "{}", reply.text());
    let missing = page_of(&server, &server.owner, "/nothing").text();
    assert!(!missing.contains(">Back</a>"), "{missing}");
}

/// S-82: a run whose definition has changed is resumed on the page, with the changes in view.
#[test]
fn a_changed_definition_is_accepted_on_the_page() {
    let server = server();
    let run = server.run(&json!({"pipeline": "bad"}));
    let path = format!("/runs/{}", id_of(&run));
    server.pipeline(
        "bad",
        "",
        &["echo '{\"output\": {\"n\": 1}}'", "echo '{\"output\": 2}'", "echo '{\"output\": 3}'"],
    );
    for (action, from) in [("resume", ""), ("retry", "from=s1")] {
        let reply = form(&server, &format!("{path}/{action}"), from);
        assert_eq!(reply.status, 409, "{}", reply.text());
        let text = reply.text();
        for part in ["pipeline.yaml", "class=\"del\"", "name=\"accept_changes\" value=\"true\"", "Log out"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.contains("name=\"from\" value=\"s1\""), action == "retry", "{text}");
    }
    assert_eq!(form(&server, &format!("{path}/resume"), "accept_changes=true").status, 303);
    server.until(id_of(&run), &["succeeded"]);
}

/// S-15: a page has no button that its reader may not use, and a refusal has a link back.
#[test]
fn pages_have_the_buttons_that_the_reader_may_use() {
    let server = server();
    server.configure("schedules:\n  hourly: {pipeline: p, every: 1h}\n");
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let done = server.run(&json!({"pipeline": "p"}));
    server.run(&json!({"pipeline": "ask"}));
    let reader = server.token("reader", &[Scope::Read], &[], None);
    let runner = server.token("runner", &[Scope::Read, Scope::Run], &[], None);
    let run = format!("/runs/{}", id_of(&done));
    for (path, button, scope) in [
        ("/apps/demo/pipelines/p", ">Dry run<", "run"),
        (&*run, ">Run again<", "run"),
        ("/schedules/demo/hourly", ">Run now</button>", "run"),
        ("/decisions", "✓ Approve", "approve"),
    ] {
        let text = page_of(&server, &reader, path).text();
        assert!(
            !text.contains(button) && text.contains(&format!("the scope <code>{scope}</code>, which")),
            "{path}: {text}"
        );
        let text = page_of(&server, &runner, path).text();
        assert_eq!(text.contains(button), scope == "run", "{path}: {text}");
    }
    let starter = server.token("starter", &[Scope::Run], &[], None);
    let refused = page_of(&server, &starter, "/");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("Log out") && refused.text().contains("starter"), "{}", refused.text());
    assert!(page(&server, "/server").contains("action=\"/logout\""));
}

/// Typed text is kept when the server refuses the run.
#[test]
fn a_start_that_is_refused_keeps_what_was_typed() {
    let server = Running::with(|settings| settings.max_queued = 0);
    server.pipeline("typed", "input: {note: {type: string}, loud: {type: boolean, default: true}}\n", &["true"]);
    let path = "/apps/demo/pipelines/typed";
    let reply = form(&server, path, "input.note=a%0D%0Ab&input.loud=false&input.loud=true");
    assert_eq!(reply.status, 429, "{}", reply.text());
    assert!(
        reply.text().contains(">\na\r\nb</textarea>") && reply.text().contains("value=\"true\" checked"),
        "{}",
        reply.text()
    );
    assert!(reply.text().contains("Log out"));
}

/// A text parameter reaches the run with its lines.
#[test]
fn lines_of_a_text_reach_the_run() {
    let server = Running::start();
    server.pipeline("typed", "input: {note: {type: string, default: x}}\n", &["cat >/dev/null"]);
    let path = "/apps/demo/pipelines/typed";
    let long = "x".repeat(100_000);
    for (sent, wanted) in [("a%0D%0Ab", "a\nb"), ("", ""), (&*long, &*long)] {
        let run = form(&server, path, &format!("input.note={sent}")).header("location").expect("a run").to_owned();
        let run = server.send("GET", &format!("/v1{run}"), None).json();
        assert_eq!(run["input"]["note"], Value::from(wanted));
    }
}

/// S-22: the login page reports a wrong token, and a login leads to the requested page.
#[test]
fn a_login_says_what_is_wrong_and_leads_on() {
    let server = server();
    let html = ("Accept", "text/html");
    let first = server.raw("GET", "/runs/x?at=y", &[html], None).text();
    assert!(first.contains("name=\"next\" value=\"/runs/x?at=y\"") && !first.contains("is wrong"), "{first}");
    let origin = format!("http://{}", server.address);
    let post = |path: &str, body: &str, referer: &str| {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        server.raw("POST", path, &[html, ("Origin", &origin), kind, ("Referer", referer)], Some(body.to_owned()))
    };
    let wrong = post("/login", "token=x&next=%2Fruns%2Fx%3Fat%3Dy", "");
    assert_eq!(wrong.status, 401);
    let text = wrong.text();
    assert!(
        text.contains("the token is wrong, expired or revoked") && text.contains("value=\"/runs/x?at=y\""),
        "{text}"
    );
    let right = post("/login", &format!("token={}&next=%2Fruns%2Fx%3Fat%3Dy", server.owner), "");
    assert_eq!((right.status, right.header("location")), (303, Some("/runs/x?at=y")));
    let ended = post("/runs/x/cancel", "", &format!("{origin}/runs/x?at=y"));
    assert!(ended.text().contains("value=\"/runs/x?at=y\""), "{}", ended.text());
    let elsewhere = post("/runs/x/cancel", "", "http://other.example//evil");
    assert!(!elsewhere.text().contains("evil"), "{}", elsewhere.text());
    for _ in 0..10 {
        post("/login", "token=x", "");
    }
    let many = post("/login", "token=x", "");
    assert_eq!(many.status, 429);
    assert!(many.text().contains("id=\"token\"") && many.text().contains("too many wrong tokens"), "{}", many.text());
}

/// A form that arrives after its session has ended comes back with the typed text, and can be sent again; nothing was done.
#[test]
fn a_form_without_a_session_comes_back() {
    let server = Running::start();
    server.pipeline("typed", "input: {note: {type: string}}\n", &["true"]);
    let (path, origin) = ("/apps/demo/pipelines/typed", format!("http://{}", server.address));
    let post = |body: &str, cookie: &str| {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        let headers = [("Accept", "text/html"), ("Origin", &*origin), kind, ("Cookie", cookie)];
        server.raw("POST", path, &headers, Some(body.to_owned()))
    };
    let body = "key=abc&input.note=%3Cb%3E+hours%0D%0Aof+work";
    let reply = post(body, "etude=over");
    let text = reply.text();
    assert_eq!((reply.status, runs(&server)), (401, 0), "{text}");
    assert!(text.contains("<pre>&lt;b&gt; hours") && text.contains("of work</pre>") && !text.contains("<b>"), "{text}");
    assert!(text.contains(&format!("action=\"{path}\"")) && text.contains("name=\"key\" value=\"abc\""), "{text}");
    assert!(text.contains("target=\"_blank\"") && !text.contains("<pre>abc"), "{text}");
    let typed = ("Content-Type", "application/x-www-form-urlencoded");
    let foreign = server.raw("POST", path, &[("Accept", "text/html"), typed], Some(body.to_owned()));
    assert!(
        foreign.status == 401 && !foreign.text().contains("hours"),
        "another site may have sent it: {}",
        foreign.text()
    );
    assert_eq!(form(&server, path, body).status, 303);
    assert_eq!(runs(&server), 1);
}

/// A queued run has a reason for its wait, in the list and on its page.
#[test]
fn a_queued_run_has_a_reason() {
    let server = server();
    let body = json!({"pipeline": "p", "not_before": "2199-01-01T00:00:00Z"});
    let run = server.send("POST", "/v1/runs", Some(&body)).json();
    let text = page(&server, "/");
    assert!(text.contains("starts no earlier than <time datetime=\"2199-01-01T00:00:00.000Z\""), "{text}");
    // The start is empty: the run was only created at that time.
    assert!(text.contains("<td class=\"wide num\">–</td>"), "{text}");
    let text = page(&server, &format!("/runs/{}", id_of(&run)));
    assert!(text.contains("position 1") && text.contains("not before <time datetime=\"2199"), "{text}");
    let row = server.send("GET", "/v1/runs", None).json()["runs"][0].clone();
    assert_eq!(row["not_before"], "2199-01-01T00:00:00.000Z");
}

/// The row of a run that has left its list comes with the page, in its present state; rows of other runs do not.
#[test]
fn rows_that_left_a_list_are_known() {
    let server = server();
    let run = server.run(&json!({"pipeline": "p"}));
    let text = page(&server, &format!("/?status=waiting&shown={},nothing", id_of(&run)));
    assert!(text.contains("id=\"beyond\"") && text.contains("data-status=\"succeeded\""), "{text}");
    assert!(!page(&server, &format!("/?status=succeeded&shown={}", id_of(&run))).contains("id=\"beyond\""));
}

/// Pages of a log backwards leave nothing out and begin with whole lines.
#[test]
fn a_log_is_read_backwards() {
    let server = Running::start();
    server.pipeline("long", "", &["seq 1 60000 | sed 's/^/line /' >&2; echo '{\"output\": 1}'"]);
    let run = server.run(&json!({"pipeline": "long"}));
    let path = format!("/runs/{}/log/long%2Fs0/stderr", id_of(&run));
    let lines = |text: &str| -> Vec<u32> {
        let parts = text.split("<span>line ").skip(1).filter_map(|part| part.split('<').next()?.parse().ok());
        parts.collect()
    };
    let mut query = "end=true".to_owned();
    let mut expected = 60_000;
    for _ in 0..3 {
        let text = page(&server, &format!("{path}?{query}"));
        let shown = lines(&text);
        assert_eq!((shown.len(), shown.last()), (2_000, Some(&expected)));
        expected -= 2_000;
        assert_eq!(shown[0], expected + 1);
        let to = text.split("?to=").nth(1).and_then(|rest| rest.split(['"', '&']).next()).expect("a page before");
        query = format!("to={to}");
    }
}

/// A run that followed `SKILL.md` has no target that a server starts: neither the page nor the API runs it again.
#[test]
fn a_run_in_skill_mode_is_not_run_again() {
    let server = server();
    let journal = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = etude_sqlite::Sqlite::open(journal).expect("the journal");
    let app = server.dir().join("demo").canonicalize().expect("an app");
    let run = NewRun {
        id: "skillrun00000000".to_owned(),
        app: app.to_str().expect("text").to_owned(),
        target: "skill:demo".to_owned(),
        abi: etude_core::machine::ABI,
        created_at_ms: 1_795_392_000_000,
        header: "{}".to_owned(),
        placement: Placement::default(),
    };
    let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(engine.enqueue(&submission)).expect("enqueued");
    let reply = server.send("POST", "/v1/runs/skillrun00000000/again", Some(&json!({})));
    assert_eq!(reply.problem(), (422, "input_invalid".to_owned()));
    assert!(reply.text().contains("followed `SKILL.md`"), "{}", reply.text());
    assert!(!page(&server, "/runs/skillrun00000000").contains("Run again"));
}
