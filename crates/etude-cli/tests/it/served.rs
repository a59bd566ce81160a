//! The server as a process: reads without changes, a full disk, and the effect of the configuration.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use etude_server::routes;
use serde_json::{Value, json};

use crate::crash::shim::{self, ENOSPC, Fault, with_fault};
use crate::serve::Serving;
use crate::server::{Reply, Server};
use crate::states::{CASE, app, learned, ledger, row};
use crate::test::{Test, noting, printing, wait_until};

const JOURNAL: &str = "home/.local/state/etude/journal.db";

/// Every row of every table of the journal, as text.
fn rows(test: &Test) -> BTreeMap<String, Vec<String>> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let journal = rusqlite::Connection::open_with_flags(test.path(JOURNAL), flags).expect("the journal");
    let mut names = journal.prepare("select name from sqlite_schema where type = 'table'").expect("sql");
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).expect("sql").map(|name| name.expect("a name")).collect();
    let of = |name: String| {
        let mut statement = journal.prepare(&format!("select * from \"{name}\"")).expect("sql");
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<String> {
            let values: Result<Vec<rusqlite::types::Value>, _> = (0..columns).map(|column| row.get(column)).collect();
            Ok(format!("{:?}", values?))
        };
        let found = statement.query_map([], row).expect("sql").map(|row| row.expect("a row")).collect();
        (name, found)
    };
    names.into_iter().map(of).collect()
}

/// The same without the progress of notices, because the server follows the journal on its own.
fn rows_of_requests(test: &Test) -> BTreeMap<String, Vec<String>> {
    let mut rows = rows(test);
    rows.entry("entries".to_owned()).or_default().retain(|row| !row.contains("notices "));
    rows
}

/// Sends a request and returns the status of its response. Of a stream, only the beginning is read.
fn read(serving: &Serving, method: &str, path: &str) -> u16 {
    let token = serving.token();
    let text =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    let mut stream = UnixStream::connect(serving.line["socket"].as_str().expect("a socket")).expect("a socket");
    stream.write_all(text.as_bytes()).expect("written");
    let mut reader = BufReader::new(stream);
    let (mut line, mut is_stream) = (String::new(), false);
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        is_stream |= line.contains("text/event-stream");
    }
    if is_stream && method == "GET" {
        reader.read_line(&mut line).expect("the beginning of a stream");
    } else {
        reader.read_to_end(&mut Vec::new()).expect("a body");
    }
    status
}

/// S-30: `GET` and `HEAD` of every route leave every row of the journal as it is.
#[test]
fn reading_every_route_changes_no_row() {
    let config = "schedules:\n  yearly: {pipeline: p, cron: \"0 0 29 2 *\", timezone: UTC}\n\
        webhooks:\n  push: {pipeline: p, verify: {kind: token, secrets: [secret-of-this-test]}}\n\
        notices:\n  - {name: chat, url: \"https://receiver.invalid/\", on: [run.cancelled], secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}\n";
    let test = Test::new()
        .pipeline("p", |p| p.sh("s", "echo said >&2; echo '{\"output\": 1}'"))
        .pipeline("ask", |p| p.step("name: gate\ntype: approval\nmessage: Go?"))
        .file("etude.yaml", config)
        .user_config("auth: {issuer: \"https://id.invalid\", audience: etude}\n");
    let serving = Serving::start(&test, &["--port", "0"]);
    let run = serving.post("/v1/runs", &json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    serving.until(&format!("/v1/runs/{run}"), "succeeded");
    let waiting = serving.post("/v1/runs", &json!({"pipeline": "ask"}))["run_id"].as_str().expect("an id").to_owned();
    serving.until(&format!("/v1/runs/{waiting}"), "waiting");
    let decision =
        serving.document("GET", "/v1/decisions", "")["decisions"][0]["id"].as_str().expect("an id").to_owned();
    let escaped = |text: &str| text.replace('/', "%2F");
    // The server records once when it first saw the schedule and the notice.
    wait_until("the schedule and the notice are noted", || {
        rows(&test).get("entries").is_some_and(|rows| rows.len() >= 2)
    });
    // A run has the status waiting before the server has released it.
    wait_until("the waiting run is let go", || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let journal = rusqlite::Connection::open_with_flags(test.path(JOURNAL), flags).expect("the journal");
        let held = "select count(*) from runs where holder is not null";
        journal.query_row(held, [], |row| row.get::<_, i64>(0)).expect("sql") == 0
    });
    let before = rows_of_requests(&test);
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    for route in routes().iter().filter(|route| route.method == "GET") {
        let id = if route.path.contains("decisions") { &decision } else { &run };
        let name = ["schedules", "webhooks", "notices", "assets"]
            .into_iter()
            .zip(["yearly", "push", "chat", "etude.css"])
            .find_map(|(kind, name)| route.path.contains(kind).then_some(name));
        let path = route
            .path
            .replace("{id}", &escaped(id))
            .replace("{effect}", "p%2Fs")
            .replace("{stream}", "stderr")
            .replace("{app}", "app")
            .replace("{pipeline}", "p")
            .replace("{machine}", "none")
            .replace("{code}", "not_found")
            .replace("{version}", "1")
            .replace("{name}", name.unwrap_or_default());
        assert!(!path.contains('{'), "{path}");
        for method in ["GET", "HEAD"] {
            *seen.entry(read(&serving, method, &path)).or_default() += 1;
        }
    }
    assert_eq!(rows_of_requests(&test), before);
    // Only the routes of machines and of learned pipelines find nothing, because the app has neither.
    let is_of_none = |path: &str| path.contains("{machine}") || path.contains("learned/{pipeline}");
    let none = routes().iter().filter(|route| route.method == "GET" && is_of_none(route.path)).count();
    assert_eq!(seen.get(&404), Some(&(2 * none)), "{seen:?}");
    assert_eq!(serving.end().0, Some(0));
}

/// S-164: with a full disk, starts are 503 and leave nothing behind, and reads work.
#[test]
fn a_full_disk_stops_starts_and_not_reads() {
    if shim::is_missing("a_full_disk_stops_starts_and_not_reads") {
        return;
    }
    let test = Test::new().pipeline("p", |p| p.sh("s", &format!("{}; {}", noting("s"), printing("1"))));
    let id = test.run_json("p").exit(0).id();
    let life = |fault: Fault| {
        let args = ["serve", "--port", "0", "--format", "json"];
        let mut command = with_fault(&test, test.command(&args), fault);
        Serving::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts"))
    };
    // The first server of a journal creates files that later ones find.
    let mut first = 0;
    for _ in 0..2 {
        let counting = life(Fault::None);
        assert_eq!(read(&counting, "GET", &format!("/v1/runs/{id}")), 200);
        first = shim::events(&test).len() + 1;
        assert_eq!(counting.end().0, Some(0));
    }
    let serving = life(Fault::Fail { first, last: usize::MAX >> 1, errno: ENOSPC });
    for _ in 0..3 {
        let refused = serving.post("/v1/runs", &json!({"pipeline": "p"}));
        assert_eq!((&refused["status"], &refused["code"]), (&json!(503), &json!("journal_unavailable")), "{refused}");
        assert_eq!(serving.document("GET", &format!("/v1/runs/{id}"), "")["output"], 1);
        let listed = serving.document("GET", "/v1/runs", "");
        assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1), "{listed}");
    }
    assert_eq!(serving.document("GET", "/readyz", "")["code"], "journal_unavailable");
    serving.end();
    assert_eq!(test.ledger(), ["s"], "nothing else was begun");
}

/// S-91, S-95: `serve` of the configuration limits a server; the file of the app counts while that app alone is served.
#[test]
fn the_configuration_limits_a_server() {
    let test = Test::new()
        .pipeline("p", |p| p.sh("s", "while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{\"output\": 1}'"))
        .file("etude.yaml", "serve: {max_runs: 1}\n")
        .user_config("serve: {max_runs: 7, max_queued: 1}\n");
    let serving = Serving::start(&test, &["--port", "0"]);
    let limits = serving.document("GET", "/v1/server", "")["limits"].clone();
    assert_eq!((&limits["max_runs"], &limits["max_queued"]), (&json!(1), &json!(1)));
    let first = serving.post("/v1/runs", &json!({"pipeline": "p"}))["run_id"].as_str().expect("an id").to_owned();
    serving.until(&format!("/v1/runs/{first}"), "running");
    let second = serving.post("/v1/runs", &json!({"pipeline": "p"}));
    assert_eq!(second["queue"], json!({"position": 1, "reason": "max_runs"}), "{second}");
    let third = serving.post("/v1/runs", &json!({"pipeline": "p"}));
    assert_eq!((&third["status"], &third["code"]), (&json!(429), &json!("queue_full")), "{third}");
    test.put("go", "");
    serving.until(&format!("/v1/runs/{}", second["run_id"].as_str().expect("an id")), "succeeded");
    assert_eq!(serving.end().0, Some(0));
    // With several apps, none of them affects the whole server.
    let (one, two) = (test.path("app").display().to_string(), test.path("other").display().to_string());
    test.put(
        "other/pipelines/q/pipeline.yaml",
        "name: q\ndescription: Q.\nsteps: [{name: s, type: code, command: cat, output: text}]\n",
    );
    let serving = Serving::start(&test, &["--port", "0", &one, &two]);
    assert_eq!(serving.document("GET", "/v1/server", "")["limits"]["max_runs"], 7);
    assert_eq!(serving.end().0, Some(0));
}

/// serve, section 4: the issuer is the user's, or else that of the app if it alone is served.
#[test]
fn the_configuration_names_the_issuer() {
    const METADATA: &str = "/.well-known/oauth-protected-resource";
    let auth = |issuer: &str| format!("auth: {{issuer: \"{issuer}\", audience: etude}}\n");
    let test =
        Test::new().pipeline("p", |p| p.sh("s", &printing("1"))).file("etude.yaml", &auth("https://app.invalid"));
    let issuers = |args: &[&str]| {
        let serving = Serving::start(&test, args);
        let issuers = serving.document("GET", METADATA, "")["authorization_servers"].clone();
        assert_eq!(serving.end().0, Some(0));
        issuers
    };
    assert_eq!(issuers(&["--port", "0"]), json!(["https://app.invalid"]));
    let (one, two) = (test.path("app").display().to_string(), test.path("other").display().to_string());
    test.put(
        "other/pipelines/q/pipeline.yaml",
        "name: q\ndescription: Q.\nsteps: [{name: s, type: code, command: cat, output: text}]\n",
    );
    assert_eq!(issuers(&["--port", "0", &one, &two]), Value::Null);
    let test = test.user_config(&auth("https://user.invalid/"));
    let serving = Serving::start(&test, &["--port", "0"]);
    assert_eq!(serving.document("GET", METADATA, "")["authorization_servers"], json!(["https://user.invalid/"]));
    assert_eq!(serving.end().0, Some(0));
    test.put("home/.config/etude/config.yaml", &auth("http://user.invalid/"));
    test.run(&["serve", "--port", "0"]).exit(3).stderr_has("`auth.issuer` is not `https`");
}

/// S-92, S-94: `skip` of a pipeline refuses a second run on every server of the journal.
#[test]
fn the_configuration_limits_pipelines() {
    let config = "serve:\n  pipelines:\n    p: {max_runs: 1, when_full: skip}\n";
    let test = Test::new()
        .pipeline("p", |p| p.sh("s", "while [ ! -e \"$ROOT/go\" ]; do sleep 0.02; done; echo '{\"output\": 1}'"))
        .file("etude.yaml", config);
    // The limit holds for both servers of the journal.
    let (one, other) = (Serving::start(&test, &["--port", "0"]), Serving::start(&test, &["--port", "0"]));
    let first = one.post("/v1/runs", &json!({"pipeline": "p"}))["run_id"].clone();
    for serving in [&one, &other] {
        let refused = serving.post("/v1/runs", &json!({"pipeline": "p"}));
        assert_eq!((&refused["status"], &refused["code"]), (&json!(409), &json!("run_is_busy")), "{refused}");
        assert_eq!(refused["run_id"], first);
    }
    test.put("go", "");
    one.until(&format!("/v1/runs/{}", first.as_str().expect("an id")), "succeeded");
    // The first run may have begun before the response.
    let accepted = other.post("/v1/runs", &json!({"pipeline": "p"}));
    assert!(accepted["run_id"].is_string() && accepted["run_id"] != first, "{accepted}");
    assert_eq!((one.end().0, other.end().0), (Some(0), Some(0)));
}

/// An invalid limit in a file is refused with its place before anything is bound.
#[test]
fn a_wrong_limit_is_refused_with_its_place() {
    let test = Test::new().pipeline("p", |p| p.sh("s", &printing("1"))).file("etude.yaml", "serve:\n  max_runs: 0\n");
    let ran = test.run(&["serve", "--port", "0", "--format", "json"]).exit(3);
    assert!(ran.err().contains("etude.yaml:2") && ran.err().contains("max_runs"), "{}", ran.err());
    let document: Value = serde_json::from_slice(&ran.raw).expect("JSON");
    assert_eq!(document["addresses"], json!([]));
}

/// L-58, L-61, S-30: a server shows the documents of the commands without a change of the journal, and a promotion there is the
/// same move of files under the same conditions.
#[test]
fn a_server_promotes_as_the_command_does() {
    let model = Server::agent([]);
    let test = learned(app(&model), "proposed").file("learned/back/tests/9c04d2aa31e7b650.yaml", CASE);
    let serving = Serving::start(&test, &["--port", "0"]);
    let one = "/v1/apps/app/learned/back";
    let listed = serving.document("GET", "/v1/apps/app/learned", "");
    assert_eq!(listed["pipelines"][0], row(&test));
    let shown = serving.document("GET", one, "");
    let printed = test.run(&["learn", "show", "back", "--format", "json"]).exit(0);
    assert_eq!((&shown["definition"], &shown["path"]), (&printed.at("/definition"), &json!("learned/back")));
    assert_eq!(shown["evidence"], row(&test)["evidence"]);
    let promote = |body: Value| serving.post(&format!("{one}/promote"), &body);
    let refused = promote(json!({"to": "assisted"}));
    assert_eq!((&refused["code"], &refused["missing"][0]["need"]), (&json!("not_promoted"), &json!("comparisons")));
    assert_eq!(promote(json!({}))["to"], "shadow");
    assert_eq!(test.read("app/learned/back/learn.yaml"), "learn: 1\nstate: shadow\nfamily: cancel\n");
    assert_eq!(promote(json!({"to": "shadow"}))["code"], "input_invalid");
    let done = promote(json!({"to": "active", "accept_risk": true}));
    assert_eq!((&done["to"], &done["paths"][0]), (&json!("active"), &json!("pipelines/back")));
    assert_eq!((&row(&test)["state"], &row(&test)["accepted_risk"]["by"]), (&json!("active"), &json!("owner")));
    assert_eq!(serving.post(&format!("{one}/demote"), &json!({"reason": "not now"}))["to"], "demoted");
    assert_eq!(row(&test)["demoted"]["reason"], "not now");
    assert_eq!(serving.document("GET", "/v1/apps/app/learned/nothing", "")["code"], "not_found");
    // A failing case prevents the promotion, also with the risk accepted.
    test.put("app/tests/back-9c04d2aa31e7b650.yaml", &CASE.replace("id: A-1}}], fell_back", "id: A-2}}], fell_back"));
    let failing = promote(json!({"to": "shadow", "accept_risk": true}));
    let tests = json!({"need": "tests", "have": 0, "want": 1});
    assert!(failing["missing"].as_array().is_some_and(|missing| missing.contains(&tests)), "{failing}");
    assert_eq!(serving.end().0, Some(0));
}

/// L-52, L-54: a run that a server completes is shadowed like one of the command.
#[test]
fn a_run_that_a_server_completes_is_shadowed() {
    let said =
        [Reply::call("get", json!({"id": "A-1"})), Reply::call("cancel", json!({"id": "A-1"})), Reply::says("done")];
    let server = Server::agent(said);
    let settings = "approvals: {unattended: wait}\nlearn: {shadow: 1}\nrouter: {mode: embedded}\n";
    let test = learned(app(&server), "shadow").file("etude.yaml", settings);
    let id = test.follow("Cancel the order A-1", &["-i", "id=A-1"]).exit(5).id();
    let serving = Serving::start(&test, &["--port", "0", "--adopt", "all"]);
    test.run(&["approve", &id, "--server", "local"]).exit(0);
    wait_until("the comparison is kept", || row(&test)["evidence"]["live"]["agreed"] == 1);
    assert_eq!(ledger(&test), ["get A-1", "cancel A-1"], "nothing is called twice");
    assert_eq!(serving.end().0, Some(0));
}
