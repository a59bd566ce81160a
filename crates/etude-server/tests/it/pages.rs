//! The contents of pages, with and without script.

use etude_server::token::Scope;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::Running;

pub(crate) const OK: &str = "echo '{\"output\": {\"n\": 1}}'";

pub(crate) fn server() -> Running {
    let server = Running::start();
    server.pipeline("p", "input: {name: {type: string, required: false}}\n", &[OK, OK]);
    server.pipeline("bad", "", &[OK, "echo 'disk is full' >&2; exit 3", OK]);
    server.pipeline("ask", "", &[OK, "approval: message: Deploy?"]);
    server
}

/// The text of a page.
#[track_caller]
pub(crate) fn page(server: &Running, path: &str) -> String {
    let reply = server.send("GET", path, None);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    reply.text()
}

pub(crate) fn id_of(run: &Value) -> &str {
    run["run_id"].as_str().expect("an id")
}

/// S-128: the list has a row for each run, counts as tabs, and filters in its URL.
#[test]
fn the_list_of_runs_has_rows_counts_and_filters() {
    let server = server();
    let failed = server.run(&json!({"pipeline": "bad", "labels": {"env": "test"}}));
    server.run(&json!({"pipeline": "p"}));
    let text = page(&server, "/");
    assert_eq!(text.matches("<tr class=\"run\"").count(), 2);
    assert!(text.contains("data-status=\"failed\""));
    assert!(text.contains("exited with status 3"), "the reason of a failure is in the list: {text}");
    let text = page(&server, "/?status=failed&label=env%3Atest&days=7");
    assert_eq!(text.matches("<tr class=\"run\"").count(), 1);
    assert!(text.contains(id_of(&failed)));
    assert_eq!(page(&server, "/?q=nothing").matches("<tr class=\"run\"").count(), 0);
    let reply = server.send("GET", "/?days=x", None);
    assert_eq!(reply.problem(), (422, "input_invalid".to_owned()));
}

/// S-136: an empty list explains how to start a run, or how to see all.
#[test]
fn empty_lists_say_what_to_do() {
    let server = server();
    assert!(page(&server, "/").contains("etude run --pipeline NAME"));
    assert!(page(&server, "/?status=failed").contains("Show all runs"));
}

/// language.md: the title of an error page is a sentence like the titles of other pages.
#[test]
fn the_title_of_an_error_page_begins_with_a_capital() {
    let server = server();
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Accept", "text/html")];
    let reply = server.raw("GET", "/runs/nothing", &headers, None);
    assert!(reply.text().contains("<h1>There is no such resource</h1>"), "{}", reply.text());
}

/// S-129: a failed run opens at its first error; a link to an effect shows the same node to every reader.
#[test]
fn a_failed_run_opens_at_its_error_and_links_show_their_node() {
    let server = server();
    let run = server.run(&json!({"pipeline": "bad"}));
    let path = format!("/runs/{}", id_of(&run));
    let text = page(&server, &path);
    assert!(text.contains("<code>business/s1</code>"), "{text}");
    assert!(text.contains("disk is full"), "{text}");
    let effects = server.send("GET", &format!("/v1{path}/effects?node=business/s0"), None).json();
    let effect = effects["effects"][0]["id"].as_str().expect("an effect").replace('/', "%2F");
    let text = page(&server, &format!("{path}?at={effect}"));
    assert!(text.contains("<code>business/s0</code>"), "{text}");
    assert!(!text.contains("<code>business/s1</code>"));
}

/// S-129: a failed run opens at the step that failed, not at the group around it.
#[test]
fn a_failed_group_opens_at_the_failed_step() {
    let server = server();
    let dir = server.dir().join("demo/pipelines/group");
    std::fs::create_dir_all(&dir).expect("a directory");
    let steps = "steps:\n  - name: both\n    type: parallel\n    steps:\n      - {name: fine, type: code, command: sleep 600}\n      - {name: broken, type: code, command: \"sh -c 'exit 3'\"}\n";
    std::fs::write(dir.join("pipeline.yaml"), format!("name: group\ndescription: The pipeline group.\n{steps}"))
        .expect("written");
    let run = server.run(&json!({"pipeline": "group"}));
    let text = page(&server, &format!("/runs/{}", id_of(&run)));
    assert!(text.contains("<code>business/broken</code>") && !text.contains("<code>business/both</code>"), "{text}");
}

/// S-127: markup in names, labels, messages and output is text.
#[test]
fn markup_is_text() {
    let server = server();
    let markup = "<img src=x onerror=alert(1)>";
    server.pipeline("hostile", "input: {x: {type: string}}\n", &["cat; echo '<b>bold</b>' >&2; exit 1"]);
    let run = server.run(&json!({"pipeline": "hostile", "input": {"x": markup}, "labels": {"l": markup}}));
    for path in ["/".to_owned(), format!("/runs/{}", id_of(&run))] {
        let text = page(&server, &path);
        assert!(!text.contains("<img"), "{path}");
        assert!(!text.contains("<b>bold"), "{path}");
        assert!(text.contains("&lt;img src=x"), "{path}");
    }
}

/// S-128: cancel, resume, retry and again are forms, which need no script; posts from other sites are refused.
#[test]
fn actions_are_forms() {
    let server = server();
    let run = server.run(&json!({"pipeline": "ask"}));
    let path = format!("/runs/{}", id_of(&run));
    let text = page(&server, &path);
    assert!(text.contains(&format!("action=\"{path}/cancel\"")));
    let bearer = format!("Bearer {}", server.owner);
    let form = |path: &str, body: &str| {
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/x-www-form-urlencoded")];
        server.raw("POST", path, &headers, Some(body.to_owned()))
    };
    let reply = form(&format!("{path}/cancel"), "mode=cancel&reason=enough");
    assert_eq!((reply.status, reply.header("location")), (303, Some(path.as_str())));
    server.until(id_of(&run), &["cancelled"]);
    let reply = form(&format!("{path}/again"), "");
    assert_eq!(reply.status, 303);
    assert_ne!(reply.header("location"), Some(path.as_str()));
    assert_eq!(form(&format!("{path}/burn"), "").problem(), (404, "not_found".to_owned()));
    assert_eq!(form(&format!("{path}/retry"), "from=nothing").problem(), (422, "input_invalid".to_owned()));
}

/// S-126: pages load in a browser without a console error and without a request to another host.
#[test]
fn a_browser_has_no_complaint() {
    let server = server();
    server.configure(AUTOMATION);
    server.poll("/v1/schedules", |document| document["schedules"].as_array().is_some_and(|all| all.len() == 2));
    let run = server.run(&json!({"pipeline": "bad"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    let origin = format!("http://{}", server.address);
    // The login form is a 401 to browsers without a session.
    browser.complaints();
    let others =
        ["/", "/decisions", "/apps", "/schedules", "/schedules/demo/nightly", "/webhooks", "/server", "/login"];
    for path in others.map(str::to_owned).into_iter().chain([format!("/runs/{}", id_of(&run))]) {
        browser.open(&format!("{origin}{path}"));
        let script = "return performance.getEntriesByType('resource').map(entry => entry.name)";
        let loaded: Vec<String> = serde_json::from_value(browser.run(script)).expect("names");
        let foreign: Vec<&String> = loaded.iter().filter(|name| !name.starts_with(&origin)).collect();
        assert!(foreign.is_empty(), "{path}: {foreign:?}");
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{path}");
    }
}

/// S-137: new runs wait behind a button; shown rows change in place and do not move.
#[test]
fn new_runs_wait_and_known_rows_change_in_place() {
    let server = server();
    let waiting = server.run(&json!({"pipeline": "ask"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.until("return document.getElementById('connection').textContent === 'Live'");
    let first = "return document.querySelector('tr.run').dataset";
    assert_eq!(browser.run(first), json!({"key": id_of(&waiting), "status": "waiting"}));
    server.run(&json!({"pipeline": "p"}));
    server.send("POST", &format!("/v1/runs/{}/cancel", id_of(&waiting)), Some(&json!({})));
    browser.until("return document.querySelector('.news')?.textContent === 'Show 1 new run'");
    browser.until("return document.querySelector('tr.run').dataset.status === 'cancelled'");
    assert_eq!(browser.run(first)["key"], id_of(&waiting));
    assert_eq!(browser.run("return [...document.querySelectorAll('.gone')].map((row) => row.textContent)"), json!([]));
    browser.run("document.querySelector('.news button').click()");
    browser.until("return document.querySelectorAll('tr.run').length === 2 && !document.querySelector('.news')");
}

/// A node is selected by keys alone, without a reload; its address shows the same node to others.
#[test]
fn keys_move_through_list_and_tree() {
    let server = server();
    let run = server.run(&json!({"pipeline": "bad"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    ready(&browser);
    browser.keys("j{Enter}");
    browser.until("return location.pathname.startsWith('/runs/') && document.querySelector('[data-tree]')");
    ready(&browser);
    let focused = "return document.activeElement.dataset.key";
    browser.keys("e");
    assert_eq!(browser.until(focused), "business");
    browser.keys("e");
    assert_eq!(browser.run(focused), "business/s1");
    browser.keys("k");
    assert_eq!(browser.run(focused), "business/s0");
    browser.run("window.same = true");
    browser.keys("{Enter}");
    browser.until("return document.querySelector('#details code').textContent === 'business/s0'");
    assert_eq!(browser.run("return [window.same, location.search]"), json!([true, "?at=business%2Fs0"]));
    browser.keys("{Left}");
    assert_eq!(browser.run(focused), "business");
    browser.keys("{Left}");
    let shown =
        "return [...document.querySelectorAll('.tree-row:not([hidden]) .arrow')].map((arrow) => arrow.textContent)";
    assert_eq!(browser.run(shown), json!(["▸"]));
    // A node that the reader has closed stays closed when the page is read again.
    browser.until("return document.getElementById('connection').dataset.state === 'live'");
    browser.run("document.addEventListener('etude:refreshed', () => (window.refreshed = true))");
    server.run(&json!({"pipeline": "bad"}));
    browser.until("return window.refreshed");
    assert_eq!(browser.run(shown), json!(["▸"]));
    browser.keys("{Right}{Right}");
    assert_eq!(browser.run(focused), "business/s0");
    browser.keys("?");
    assert_eq!(browser.run("return document.getElementById('keys').open"), true);
    let _ = run;
}

/// Sends a form as browsers do.
pub(crate) fn form(server: &Running, path: &str, body: &str) -> crate::support::Reply {
    let bearer = format!("Bearer {}", server.owner);
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/x-www-form-urlencoded")];
    server.raw("POST", path, &headers, Some(body.to_owned()))
}

/// A question of several lines: the first one is its title in every list, and the page has the others below it.
#[test]
fn a_long_question_has_a_title() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: \"Send 2 answers?\\n\\nTo Ada:\\nOne.\"", "cat"]);
    let run = server.run(&json!({"pipeline": "ask"}));
    let text = page(&server, "/decisions");
    assert!(text.contains(r#"<span class="value">Send 2 answers?</span>"#), "{text}");
    assert!(text.contains(r#"<h1 id="question">Send 2 answers?</h1>"#), "{text}");
    assert!(text.contains("<p class=\"lines\">To Ada:\nOne.</p>"), "{text}");
    let text = page(&server, &format!("/runs/{}", id_of(&run)));
    assert!(text.contains("Send 2 answers? <a") && !text.contains("To Ada:\nOne. <a"), "{text}");
    // The bar of a waiting step ends where the timeline ends.
    let bar = text.split("bar-waiting").nth(1).expect("a bar");
    let value = |name: &str| {
        let rest = bar.split(&format!("{name}=\"")).nth(1).expect("a place");
        rest.split('%').next().expect("a share").parse::<f64>().expect("a number")
    };
    assert!((value("x") + value("width") - 100.0).abs() < 0.1, "{bar}");
}

/// S-128: questions have a form built from their schema, which needs no script; an invalid value is refused beside its field.
#[test]
fn a_question_is_answered_with_a_form() {
    let server = Running::start();
    let schema = "{type: object, required: [size], properties: {size: {enum: [s, m]}, count: {type: integer}, sure: {type: boolean}}}";
    server.pipeline("ask", "", &[&format!("approval: message: 'Deploy <b>?', schema: {schema}"), "cat; exit 1"]);
    assert!(page(&server, "/decisions").contains("No open questions"));
    let run = server.run(&json!({"pipeline": "ask"}));
    assert_eq!(run["status"], "waiting", "{run}");
    let text = page(&server, "/decisions");
    assert!(text.contains("<title>(1) Decisions"));
    assert!(text.contains("Deploy &lt;b&gt;?"));
    for field in [
        "type=\"radio\" name=\"answer.size\" value=\"s\"",
        "name=\"answer.count\"",
        "type=\"checkbox\" name=\"answer.sure\"",
    ] {
        assert!(text.contains(field), "{field}: {text}");
    }
    let decision = server.send("GET", "/v1/decisions", None).json()["decisions"][0].clone();
    let path = format!("/decisions/{}", decision["id"].as_str().expect("an id").replace('/', "%2F"));
    let question = decision["question"].as_str().expect("a question");
    let reply = form(&server, &path, &format!("question={question}&approved=true&answer.size=m&answer.count=many"));
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("value=\"many\""), "what was typed is kept");
    assert!(
        reply.text().contains("id=\"answer.count-help\"><p class=\"fault\""),
        "the fault is at its field: {}",
        reply.text()
    );
    let reply = form(
        &server,
        &path,
        &format!("question={question}&approved=true&answer.size=m&answer.count=7&answer.sure=false&answer.sure=true"),
    );
    assert_eq!(reply.status, 303, "{}", reply.text());
    server.until(id_of(&run), &["failed"]);
    let effects = server.send("GET", &format!("/v1/runs/{}/effects?node=business/s1", id_of(&run)), None).json();
    let stdin = format!(
        "/v1/runs/{}/effects/{}/stdin",
        id_of(&run),
        effects["effects"][0]["id"].as_str().expect("an effect").replace('/', "%2F")
    );
    let stdin = server.send("GET", &stdin, None).text();
    assert!(
        stdin.contains(r#""size":"m""#) && stdin.contains(r#""count":7"#) && stdin.contains(r#""sure":true"#),
        "{stdin}"
    );
}

/// A pipeline's page has its graph, the states of its last run, a form that starts a run, and figures.
#[test]
fn a_pipelines_page_shows_its_graph_and_starts_runs() {
    let server = server();
    let path = "/apps/demo/pipelines/p";
    assert!(page(&server, "/apps").contains(path));
    let text = page(&server, path);
    assert!(text.contains("etude run --pipeline p"), "an empty list says how to start a run");
    let reply = form(&server, path, "input.name=Ada");
    assert_eq!(reply.status, 303, "{}", reply.text());
    let run = reply.header("location").expect("a run").to_owned();
    server.until(run.trim_start_matches("/runs/"), &["succeeded"]);
    let text = page(&server, path);
    assert!(text.contains(&format!("href=\"{run}?at=business%2Fs1\"")), "a node is a link: {text}");
    assert!(text.contains("100 %"));
    assert!(form(&server, path, "dry=true").text().contains("nothing was started"));
    server.pipeline("typed", "input: {count: {type: integer}}\n", &[OK]);
    let reply = form(&server, "/apps/demo/pipelines/typed", "input.count=many");
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("class=\"fault\""), "{}", reply.text());
    server.pipeline("broken", "nonsense: 1\n", &[OK]);
    let reply = server.send("GET", "/apps/demo/pipelines/broken", None);
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("nonsense"), "diagnostics are shown: {}", reply.text());
}

/// S-132: a log of any size is shown in lines, searched and downloaded without reading it whole.
#[test]
fn a_log_is_shown_in_pieces() {
    let server = server();
    server.pipeline("loud", "", &["seq 1 200000 | sed 's/^/line /' >&2; echo '{\"output\": 1}'"]);
    let run = server.run(&json!({"pipeline": "loud"}));
    let effects = server.send("GET", &format!("/v1/runs/{}/effects", id_of(&run)), None).json();
    let effect = effects["effects"][0]["id"].as_str().expect("an effect").replace('/', "%2F");
    let path = format!("/runs/{}/log/{effect}/stderr", id_of(&run));
    let text = page(&server, &path);
    assert!(text.contains("line 1<") && text.contains("line 2000<") && !text.contains("line 2001<"));
    assert!(text.contains("rel=\"next\""));
    let text = page(&server, &format!("{path}?end=true"));
    assert!(text.contains("line 200000<") && !text.contains("line 1<"));
    assert_eq!(text.matches("<li>").count(), 2_000);
    let text = page(&server, &format!("{path}?q=line+19999"));
    assert_eq!(text.matches("<mark>").count(), 11);
}

/// Truncates the only stored value of a journal to this many bytes: a reader of more bytes fails.
fn keep_beginning(server: &Running, len: u64) {
    let dirs = std::fs::read_dir(server.dir().join("blobs")).expect("values").flatten();
    let files = dirs.filter_map(|dir| std::fs::read_dir(dir.path()).ok()).flatten().flatten();
    let large: Vec<_> = files.filter(|file| file.metadata().is_ok_and(|of| of.len() > len)).collect();
    let [value] = &large[..] else { panic!("one value is large: {large:?}") };
    let path = value.path();
    let mut permissions = std::fs::metadata(&path).expect("a file").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    std::fs::set_permissions(&path, permissions).expect("it is ours");
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(len)).expect("cut");
}

/// S-131, S-132: pages about a run read only the beginning of its values, whatever their size.
#[test]
fn pages_read_no_more_of_a_value_than_they_show() {
    let server = server();
    let print = "printf '{\"output\": \"begin'; head -c 2000000 /dev/zero | tr '\\0' x; echo '\"}'";
    server.pipeline("large", "", &[print]);
    server.pipeline("asks", "", &[print, "approval: message: Deploy?"]);
    let [run, asking] = ["large", "asks"].map(|name| server.run(&json!({"pipeline": name})));
    let id = id_of(&run);
    let (path, value) = (format!("/v1/runs/{id}"), format!("/v1/runs/{id}/output"));
    let whole = server.send("GET", &value, None);
    assert_eq!((whole.body.len(), whole.json() == run["output"]), (2_000_007, true));
    let bearer = format!("Bearer {}", server.owner);
    let known = [("Authorization", &*bearer), ("If-None-Match", whole.header("etag").expect("a tag"))];
    assert_eq!(server.raw("GET", &value, &known, None).status, 304);
    keep_beginning(&server, 300_000);
    assert_eq!(server.send("GET", &path, None).status, 503, "a document has all of it");
    let brief = server.send("GET", &format!("{path}?brief=true"), None).json();
    assert_eq!((&brief["status"], brief.get("output"), brief.get("input")), (&json!("succeeded"), None, None));
    let part = [("Authorization", &*bearer), ("Range", "bytes=0-5")];
    let part = server.raw("GET", &value, &part, None);
    assert_eq!((part.status, part.text().as_str()), (206, "\"begin"));
    assert_eq!(part.header("content-type"), Some("application/octet-stream"), "a part of a JSON text is none");
    assert_eq!(part.header("content-range"), Some("bytes 0-5/2000007"));
    let text = page(&server, &format!("/runs/{id}"));
    assert!(text.contains("&quot;beginxxx") && text.contains("The beginning of 1.9 MiB."), "{text}");
    assert!(text.contains(&format!("href=\"{value}\"")));
    page(&server, &format!("/runs/{id}?at=large%2Fs0"));
    let question = server.send("GET", "/v1/decisions", None).json()["decisions"][0]["id"].as_str().map(str::to_owned);
    let question = question.expect("a question").replace('/', "%2F");
    let asking = format!("/runs/{}", id_of(&asking));
    for path in ["/", "/apps/demo/pipelines/large", "/decisions", &format!("/decisions?at={question}"), &asking] {
        page(&server, path);
    }
}

/// Figures of the last runs: success, failures by step, durations.
#[test]
fn figures_are_over_the_last_runs() {
    let server = server();
    server.run(&json!({"pipeline": "p"}));
    server.run(&json!({"pipeline": "bad"}));
    let all = server.send("GET", "/v1/runs/stats", None).json();
    assert_eq!((&all["stats"]["runs"], &all["stats"]["success_rate"]), (&json!(2), &json!(0.5)));
    let bad = server.send("GET", "/v1/runs/stats?pipeline=bad", None).json();
    assert_eq!((&bad["stats"]["failed"], &bad["stats"]["failures"][0]["runs"]), (&json!(1), &json!(1)));
    assert_eq!(server.send("GET", "/v1/runs/stats?pipeline=none", None).json()["stats"]["runs"], 0);
}

/// Waits until the scripts of a page listen.
#[track_caller]
pub(crate) fn ready(browser: &Browser) {
    browser.until("return !!document.getElementById('connection')?.dataset.state");
}

/// Moves the focus with `Tab` until it is on an element whose text ends with `text`.
#[track_caller]
pub(crate) fn tab_to(browser: &Browser, text: &str) {
    for _ in 0..60 {
        if browser.run(&format!("return document.activeElement.textContent.trim().endsWith({text:?})")) == true {
            return;
        }
        browser.keys("{Tab}");
    }
    panic!("no focus on {text}");
}

/// S-134: a reader can approve, deny, cancel and open a failed step by keyboard alone.
#[test]
fn everything_is_done_by_keyboard_alone() {
    let server = server();
    let runs: Vec<Value> = (0..3).map(|_| server.run(&json!({"pipeline": "ask"}))).collect();
    let failed = server.run(&json!({"pipeline": "bad"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    let origin = format!("http://{}", server.address);
    for (run, answer, status) in [(&runs[0], "Approve", "succeeded"), (&runs[1], "Deny", "failed")] {
        browser.open(&format!("{origin}/decisions"));
        ready(&browser);
        browser.keys("a");
        assert_eq!(browser.run("return document.activeElement.id"), "reason");
        tab_to(&browser, answer);
        browser.keys("{Enter}");
        browser.until("return location.pathname.startsWith('/runs/')");
        server.until(id_of(run), &[status]);
    }
    browser.open(&format!("{origin}/runs/{}", id_of(&runs[2])));
    tab_to(&browser, "Cancel");
    browser.keys("{Enter}");
    tab_to(&browser, "Cancel the run");
    browser.keys("{Enter}");
    server.until(id_of(&runs[2]), &["cancelled"]);
    browser.open(&format!("{origin}/?status=failed&pipeline=bad"));
    ready(&browser);
    browser.keys("j{Enter}");
    browser.until(&format!("return location.pathname === '/runs/{}'", id_of(&failed)));
    ready(&browser);
    browser.keys("ee{Enter}");
    browser.until("return document.querySelector('#details').textContent.includes('disk is full')");
}

/// S-130: ten tabs of one browser have one stream, and each is up to date when it becomes visible.
#[test]
fn ten_tabs_stay_live_with_one_stream() {
    let server = server();
    server.run(&json!({"pipeline": "p"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    let tabs: Vec<String> = (0..10)
        .map(|_| {
            let tab = browser.tab();
            browser.open(&format!("http://{}/", server.address));
            browser.until("return document.getElementById('connection').textContent === 'Live'");
            tab
        })
        .collect();
    server.run(&json!({"pipeline": "p"}));
    for tab in &tabs {
        browser.turn_to(tab);
        browser.until("return document.querySelector('.news')?.textContent === 'Show 1 new run'");
    }
    let metrics = server.send("GET", "/metrics", None).text();
    assert!(metrics.contains("etude_streams 1\n"), "{metrics}");
}

/// S-135: the page shows a restart, and recovers without a reload and without another login.
#[test]
fn a_page_survives_the_server() {
    let server = server();
    server.run(&json!({"pipeline": "p"}));
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.until("return document.getElementById('connection').textContent === 'Live'");
    browser.run("window.same = true");
    let port = server.address.port();
    let dir = server.stop();
    browser.until("return document.getElementById('connection').dataset.state === 'lost'");
    let server = Running::on_port(dir, port);
    server.run(&json!({"pipeline": "p"}));
    browser.until("return document.getElementById('connection').textContent === 'Live'");
    browser.until("return document.querySelector('.news')?.textContent === 'Show 1 new run'");
    assert_eq!(browser.run("return window.same"), true);
}

/// S-131: the page of a run with 10,000 effects has a bounded number of elements and a small heap.
#[test]
fn a_run_of_ten_thousand_effects_is_a_small_page() {
    let server = Running::with_model(|_| Some("1".to_owned()), |_| ());
    let dir = server.dir().join("demo/pipelines/wide");
    std::fs::create_dir_all(&dir).expect("a directory");
    let text = "name: wide\ndescription: Many elements.\nsteps:\n  - {name: list, type: code, command: 'echo \"{\\\"output\\\": [$(seq -s, 1 10000)]}\"'}\n  - {name: each, type: llm, model: lite, for_each: '{{list.output}}', max_items: 10000, max_parallel: 50, prompt: 'x {{item}}'}\n";
    std::fs::write(dir.join("pipeline.yaml"), text).expect("written");
    let run = server.run(&json!({"pipeline": "wide"}));
    let run = server.until(id_of(&run), &["succeeded", "failed"]);
    assert_eq!(run["status"], "succeeded", "{}", run["errors"]);
    let Some(browser) = Browser::logged_in(&server) else { return };
    for at in ["", "?at=business%2Feach", "?at=business%2Feach%5B77%5D"] {
        browser.open(&format!("http://{}/runs/{}{at}", server.address, id_of(&run)));
        browser.until("return document.querySelectorAll('.tree-row').length > 2");
        let size = browser.run("return [document.querySelectorAll('*').length, performance.memory.usedJSHeapSize]");
        let (elements, heap) = (size[0].as_u64().expect("a number"), size[1].as_u64().expect("a number"));
        assert!(elements <= 2_500 && heap < 60 * 1024 * 1024, "{at}: {elements} elements, {heap} bytes");
    }
}

/// Two hundred steps are boxes of one size in lines of five, each a link.
#[test]
fn a_graph_of_two_hundred_steps_is_readable() {
    let server = server();
    let steps: Vec<&str> = std::iter::repeat_n(OK, 200).collect();
    server.pipeline("long", "", &steps);
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/apps/demo/pipelines/long", server.address));
    let look = "const svg = document.querySelector('.graph svg').getBoundingClientRect();
        const boxes = [...document.querySelectorAll('.graph .box')].map(box => box.getBoundingClientRect());
        const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        const frame = document.querySelector('.graph').getBoundingClientRect();
        return [boxes.length, Math.min(...boxes.map(box => box.width)), boxes.some((a, n) => boxes.slice(n + 1).some(b => overlap(a, b))), svg.width <= frame.width]";
    assert_eq!(browser.run(look), json!([200, 168, false, true]));
    assert_eq!(browser.run("return document.querySelectorAll('.graph a[href]').length"), 200);
    // The zoom shows the whole graph, one step larger, and the original size.
    let click = |button: &str| browser.run(&format!("document.querySelector('[data-zoom] [value={button}]').click()"));
    let is_whole = "const frame = document.querySelector('.graph'); return frame.scrollHeight <= frame.clientHeight && frame.scrollWidth <= frame.clientWidth";
    let width = "return document.querySelector('.graph svg').getBoundingClientRect().width";
    let drawn = browser.run(width).as_f64().expect("a number");
    assert_eq!(browser.run(is_whole), false);
    click("fit");
    assert_eq!(browser.run(is_whole), true);
    let fitted = browser.run(width).as_f64().expect("a number");
    click("in");
    assert!(browser.run(width).as_f64().expect("a number") > fitted);
    click("whole");
    assert_eq!(browser.run(width).as_f64(), Some(drawn));
}

/// The page of the server lists the tokens by their names.
#[test]
fn the_page_of_the_server_names_tokens() {
    let server = server();
    let token = server.token("nightly-ci", &[Scope::Read, Scope::Run], &["deploy-*"], None);
    let page = page(&server, "/server");
    assert!(page.contains("nightly-ci") && page.contains("read, run, only deploy-*"), "{page}");
    assert!(!page.contains(&token));
}

/// A step in progress has a start and grows: its row is live without a reload.
#[test]
fn a_step_in_progress_is_live() {
    let server = server();
    let gate = server.dir().join("gate");
    let wait = format!("until test -e {}; do sleep 0.05; done; echo '{{\"output\": 1}}'", gate.display());
    server.pipeline("slow", "", &[OK, &wait, OK]);
    let run = server.send("POST", "/v1/runs", Some(&json!({"pipeline": "slow"}))).json();
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.open(&format!("http://{}/runs/{}", server.address, id_of(&run)));
    browser.until("return document.querySelector('[data-key=\"business/s1\"]')?.dataset.status === 'running'");
    browser.until("return document.querySelectorAll('[data-key=\"business/s1\"] rect.bar-running').length === 1");
    assert_eq!(browser.run("return document.querySelector('#details code').textContent"), "business/s1");
    std::fs::write(gate, "").expect("written");
    browser.until("return document.querySelector('[data-key=\"business/s2\"]').dataset.status === 'succeeded'");
    browser.until("return document.querySelector('#head [role=status]').textContent === 'Succeeded'");
}

const AUTOMATION: &str = r#"schedules:
  nightly: {pipeline: p, cron: "30 2 * * MON-FRI", timezone: America/New_York}
  bad: {pipeline: p, cron: "0 25 * * *", timezone: UTC}
webhooks:
  push: {pipeline: p, verify: {kind: token, secrets: [s3cret]}}
notices:
  - {name: chat, url: "https://127.0.0.1:9/secret-path", on: [run.failed], secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}
"#;

/// S-136: pages without any entry explain how to write one.
#[test]
fn pages_without_schedules_and_webhooks_say_how_to_write_one() {
    let server = server();
    assert!(page(&server, "/schedules").contains("schedules: {nightly:"));
    let text = page(&server, "/webhooks");
    assert!(text.contains("webhooks: {push:") && text.contains("notices: [{name: chat"));
}

/// S-105, S-111, S-127, S-128: the page of a schedule shows its times and why ticks started no run, and acts without a script.
#[test]
fn the_page_of_a_schedule_shows_and_acts() {
    let server = server();
    server.configure(AUTOMATION);
    server.poll("/v1/schedules", |document| document["schedules"].as_array().is_some_and(|all| all.len() == 2));
    let text = page(&server, "/schedules");
    for part in ["At 02:30 from Monday to Friday", "America/New_York", "Broken", "the hour cannot be"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let form = |path: &str, body: &str| {
        let origin = format!("http://{}", server.address);
        let bearer = format!("Bearer {}", server.owner);
        let kind = "application/x-www-form-urlencoded";
        let headers = [("Authorization", &*bearer), ("Origin", &origin), ("Content-Type", kind)];
        server.raw("POST", path, &headers, Some(body.to_owned()))
    };
    assert_eq!(form("/schedules/demo/nightly/pause", "reason=%3Cb%3Eaudit").status, 303);
    // S-127: markup in foreign text is text.
    for path in ["/schedules", "/schedules/demo/nightly"] {
        let text = page(&server, path);
        assert!(text.contains("&lt;b&gt;audit") && !text.contains("<b>audit"), "{text}");
    }
    assert_eq!(form("/schedules/demo/nightly/unpause", "").status, 303);
    assert_eq!(form("/schedules/demo/nightly/fire", "").status, 303);
    let times = "from=2026-11-02T00%3A00&to=2026-11-04T02%3A30";
    assert_eq!(form("/schedules/demo/nightly/backfill", times).status, 303);
    let text = page(&server, "/schedules/demo/nightly");
    // Times of a form are in the schedule's zone.
    for at in ["2026-11-02T07:30:00.000Z", "2026-11-03T07:30:00.000Z"] {
        assert!(text.contains(at), "{at}: {text}");
    }
    assert!(!text.contains("2026-11-04T07:30:00.000Z") && text.contains(">fire<") && text.contains(">backfill<"));
    assert_eq!(form("/schedules/demo/nightly/delete", "").status, 404);
}

/// On a phone, the strip of many ticks stands below its title, which keeps its one line.
#[test]
fn a_long_strip_of_ticks_does_not_break_its_title() {
    let server = server();
    server.configure(AUTOMATION);
    server.poll("/v1/schedules", |document| document["schedules"].as_array().is_some_and(|all| all.len() == 2));
    assert_eq!(server.send("POST", "/v1/schedules/demo/nightly/fire", Some(&json!({}))).status, 202);
    let Some(browser) = Browser::logged_in(&server) else { return };
    browser.size(390, 844);
    browser.open(&format!("http://{}/schedules/demo/nightly", server.address));
    // The strip leaves a few pixels beside it.
    browser.run(
        "const header = document.querySelector('.card > header'), svg = header.querySelector('.strip svg');
        svg.setAttribute('width', header.clientWidth - 66 - svg.nextElementSibling.offsetWidth)",
    );
    let lines = "const title = document.querySelector('.card > header h2');
        return title.textContent + Math.round(title.clientHeight / parseFloat(getComputedStyle(title).lineHeight))";
    assert_eq!(browser.run(lines), "Ticks1");
}

/// S-125, S-128: deliveries are shown with their verdicts, and a notice that was set aside can be sent again.
#[test]
fn the_page_of_webhooks_shows_deliveries() {
    let server = server();
    server.configure(AUTOMATION);
    server.poll("/v1/notices/demo/chat/deliveries", |document| document["deliveries"].is_array());
    let deliver =
        |token: &str| server.raw("POST", "/in/demo/push", &[("X-Webhook-Token", token)], Some("{}".to_owned()));
    assert_eq!((deliver("s3cret").status, deliver("s3cret").status, deliver("wrong").status), (202, 202, 401));
    let failed = |document: &Value| document["deliveries"][0]["state"] == "failed";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // The server reports only events after it has seen the notice.
    let sent = loop {
        server.run(&json!({"pipeline": "bad"}));
        let document = server.send("GET", "/v1/notices/demo/chat/deliveries", None).json();
        if document["deliveries"].as_array().is_some_and(|all| !all.is_empty()) {
            break server.poll("/v1/notices/demo/chat/deliveries", failed);
        }
        assert!(std::time::Instant::now() < deadline, "nothing was sent");
    };
    let text = page(&server, "/webhooks");
    for part in ["Accepted", "Repeated", "Refused", "Send again", "the address is private", "https://127.0.0.1:9<"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("secret-path") && !text.contains("s3cret") && !text.contains("MfKQ9r8"), "{text}");
    assert!(page(&server, "/webhooks/demo/push").contains("Run again"));
    let id = sent["deliveries"][0]["delivery_id"].as_str().expect("an id");
    let origin = format!("http://{}", server.address);
    let bearer = format!("Bearer {}", server.owner);
    let kind = "application/x-www-form-urlencoded";
    let headers = [("Authorization", &*bearer), ("Origin", &origin), ("Content-Type", kind)];
    let again = server.raw("POST", &format!("/notices/demo/chat/{id}"), &headers, Some(String::new()));
    assert_eq!((again.status, again.header("location")), (303, Some("/notices/demo/chat")));
    server.poll("/v1/notices/demo/chat/deliveries", |document| {
        let all = document["deliveries"].as_array().expect("deliveries");
        all.iter().any(|one| one["delivery_id"] == id && one["attempts"].as_array().is_some_and(|all| all.len() == 2))
    });
}

/// The empty lists of automation name the file that the server reads.
#[test]
fn empty_lists_of_automation_name_the_file_of_the_server() {
    let own = Running::start();
    let named = Running::with(|settings| settings.config = Some("/etc/etude/serve.yaml".into()));
    for path in ["/schedules", "/webhooks"] {
        assert!(page(&own, path).contains("Write one into the app's <code>etude.yaml</code>"), "{path}");
        let text = page(&named, path);
        assert!(text.contains("Write one into <code>/etc/etude/serve.yaml</code>"), "{text}");
        assert!(!text.contains("etude.yaml"), "{text}");
    }
}

/// On a phone, the times of a schedule are in its own zone, which is named; the reader's time has its own words.
#[test]
fn the_times_of_a_schedule_on_a_phone_are_in_its_zone() {
    let server = server();
    server.configure("schedules:\n  daily: {pipeline: p, cron: '30 2 * * *', timezone: Etc/GMT-5}\n");
    server.poll("/v1/schedules", |document| document["schedules"][0]["next_at"].is_string());
    let text = page(&server, "/schedules");
    let line = text.split_once("<p class=\"phone small dim\">").expect("a line").1;
    let line = line.split_once("</p>").expect("its end").0;
    let (next, yours) = line.split_once("yours: ").expect("the reader's time");
    assert!(next.contains(" · Etc/GMT-5 · next ") && next.contains("02:30"), "{line}");
    assert!(yours.contains("21:30"), "{line}");
}
