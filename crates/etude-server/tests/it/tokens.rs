//! Tokens and scopes.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{Reply, Running};
use etude_runtime::engine::{EntryQuery, Ledger as _};
use etude_server::token::{Scope, Tokens};
use etude_server::{Needs, routes};
use serde_json::{Value, json};

/// S-13: without a token every route is 401, except for the public ones. An unknown route is 401 too.
#[test]
fn routes_need_a_token() {
    let server = Running::start();
    let origin = format!("http://{}", server.address);
    for route in routes().iter().filter(|route| route.needs != Needs::Nothing) {
        let path = route.path.replace(['{', '}'], "");
        let reply = server.raw(route.method, &path, &[("Origin", &origin)], None);
        assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()), "{route:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        let line = server.log().pop().expect("a line");
        assert_eq!((&line["status"], &line["route"]), (&json!(401), &json!(route.path)), "section 10");
    }
    assert_eq!(server.raw("GET", "/v1/nothing", &[], None).status, 401);
    assert_eq!(server.log().pop().expect("a line")["route"], Value::Null);
    let public: Vec<String> =
        routes().iter().filter(|route| route.needs == Needs::Nothing).map(|route| format!("{route:?}")).collect();
    assert_eq!(
        public,
        [
            "GET /healthz",
            "GET /readyz",
            "GET /login",
            "POST /login",
            "GET /assets/{version}/{name}",
            "POST /in/{app}/{name}",
            "GET /.well-known/oauth-protected-resource",
            "GET /.well-known/oauth-protected-resource/mcp"
        ]
    );
}

/// S-14: a token in the query is ignored.
#[test]
fn a_token_in_the_query_is_no_token() {
    let server = Running::start();
    for name in ["token", "access_token"] {
        let reply = server.raw("GET", &format!("/v1/me?{name}={}", server.owner), &[], None);
        assert_eq!(reply.status, 401);
    }
}

/// S-15: each route refuses each scope that it does not list.
#[test]
fn routes_refuse_other_scopes() {
    let server = Running::start();
    for scope in [Scope::Read, Scope::Run, Scope::Approve] {
        let bearer = format!("Bearer {}", server.token(scope.word(), &[scope], &[], None));
        for route in routes() {
            let Needs::Scope(wanted) = route.needs else { continue };
            if wanted == scope {
                continue;
            }
            let path = route.path.replace(['{', '}'], "");
            let reply = server.raw(route.method, &path, &[("Authorization", &bearer)], None);
            assert_eq!(reply.problem(), (403, "forbidden_scope".to_owned()), "{route:?} with {}", scope.word());
        }
    }
}

/// S-16: the refusal of a wrong name, and a route, show a token for some pipelines nothing of the others.
#[test]
fn refusals_and_routes_show_nothing_of_other_pipelines() {
    let server = Running::start();
    ["open-a", "secret"].iter().for_each(|name| server.pipeline(name, "", &["true"]));
    let bearer = format!("Bearer {}", server.token("ci", &[Scope::Read, Scope::Run], &["open-*"], None));
    let post = |path: &str, body: Value| {
        server.raw("POST", path, &[("Authorization", &bearer)], Some(body.to_string())).json()
    };
    let unknown = post("/v1/runs", json!({"pipeline": "open-to-all-readers"}));
    assert_eq!(unknown["hint"], "known names: open-a", "{unknown}");
    let none = post("/v1/runs", json!({"machine": "open-to-all-readers"}));
    assert_eq!((&none["code"], &none["hint"]), (&json!("input_invalid"), &Value::Null));
    let owner = server.send("POST", "/v1/apps/demo/route", Some(&json!({"request": "secret"}))).json();
    assert_eq!((&owner["pipeline"], &owner["score"]), (&json!("secret"), &json!(1)));
    let hidden = post("/v1/apps/demo/route", json!({"request": "secret"}));
    assert_eq!((&hidden["pipeline"], &hidden["why"]), (&Value::Null, &json!([])), "{hidden}");
    assert_eq!((hidden["score"].as_f64(), hidden["margin"].as_f64()), (Some(0.0), Some(0.0)), "{hidden}");
}

/// S-17: expired and revoked tokens are 401 at once.
#[test]
fn expired_and_revoked_tokens_are_refused_at_once() {
    let server = Running::start();
    let status =
        |token: &str| server.raw("GET", "/v1/me", &[("Authorization", &format!("Bearer {token}"))], None).status;
    let short = server.token("short", &[Scope::Read], &[], Some(server.clock.now_ms() + 3_600_000));
    let ci = server.token("ci", &[Scope::Read], &[], None);
    assert_eq!((status(&short), status(&ci)), (200, 200));
    server.clock.set_offset(3_600_001);
    assert_eq!((status(&short), status(&ci)), (401, 200));
    Tokens::new(&server.dir().join("serve")).revoke("ci").expect("revoked");
    assert_eq!(status(&ci), 401);
}

/// S-17: a stream ends with its token, before the comment that would come after 15 s.
#[test]
fn the_stream_of_a_revoked_token_ends() {
    // A busy machine may notice the end late.
    let is_before = (0..4).any(|_| end_of_a_revoked_stream() < Duration::from_secs(12));
    assert!(is_before, "only the comment ends it");
}

/// The time from the end of a token to that of its stream.
fn end_of_a_revoked_stream() -> Duration {
    let server = Running::start();
    let token = server.token("ci", &[Scope::Read], &[], None);
    let mut stream = std::net::TcpStream::connect(server.address).expect("a connection");
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).expect("written");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a response");
    assert_eq!(&head, b"HTTP/1.1 200");
    Tokens::new(&server.dir().join("serve")).revoke("ci").expect("revoked");
    let since = std::time::Instant::now();
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    std::io::copy(&mut stream, &mut std::io::sink()).expect("the end");
    since.elapsed()
}

/// S-18: no secret is in the log, and all files are readable only by the owner.
#[test]
fn secrets_are_in_no_log_and_files_are_private() {
    let server = Running::start();
    let token = server.token("ci", &[Scope::Read], &[], None);
    let code = server.server.login_link().0;
    let bearer = format!("Bearer {token}");
    for path in ["/v1/me", "/v1/me?x=1", "/v1/server", "/nothing"] {
        let reply = server.raw("GET", path, &[("Authorization", &bearer)], None);
        assert!(!reply.text().contains(&token[4..]));
    }
    server.raw("GET", &format!("/v1/me?token={token}"), &[], None);
    let log = serde_json::Value::from(server.log()).to_string();
    assert!(log.contains(r#""token":"ci""#) && log.contains(r#""route":"/v1/me""#), "{log}");
    for secret in [&token[4..], &server.owner[4..], code.split_once("login=").expect("a code").1] {
        assert!(!log.contains(secret));
    }
    let dir = server.dir().join("serve");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in std::fs::read_dir(&dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        if path.file_name() != Some("owner.token".as_ref()) && path.is_file() {
            let text = std::fs::read_to_string(&path).expect("text");
            assert!(!text.contains(&token[4..]), "{}", path.display());
        }
    }
}

/// S-22: the eleventh wrong token in a minute is 429, and a correct one passes.
#[test]
fn too_many_wrong_tokens_are_429() {
    let server = Running::start();
    let wrong = || server.raw("GET", "/v1/me", &[("Authorization", "Bearer wrong")], None);
    for _ in 0..10 {
        assert_eq!(wrong().status, 401);
    }
    let reply = wrong();
    assert_eq!(reply.problem(), (429, "too_many_requests".to_owned()));
    assert_eq!(reply.header("retry-after"), Some("60"));
    assert_eq!(server.send("GET", "/v1/me", None).status, 200);
    assert_eq!(server.raw("GET", "/v1/me", &[], None).status, 401, "a request without a token does not count");
}

/// S-22: behind a proxy, the address is the one that the proxy reports, and not the claim of a client.
#[test]
fn wrong_tokens_count_against_the_client_of_a_proxy() {
    let status = |server: &Running, address: &str| {
        let headers = [("Authorization", "Bearer wrong"), ("X-Forwarded-For", address)];
        server.raw("GET", "/v1/me", &headers, None).status
    };
    let behind = Running::with(|settings| settings.is_behind_proxy = true);
    for nth in 0..10 {
        assert_eq!(status(&behind, &format!("10.0.0.{nth}, 9.9.9.9")), 401);
    }
    assert_eq!((status(&behind, "9.9.9.9"), status(&behind, "9.9.9.9, 8.8.8.8")), (429, 401));
    let plain = Running::start();
    for nth in 0..10 {
        assert_eq!(status(&plain, &format!("10.0.0.{nth}")), 401);
    }
    assert_eq!(status(&plain, "10.0.0.10"), 429);
}

/// Section 4: the journal has each action with the name of its token, not with its secret; refused requests, repetitions and
/// reads are not actions.
#[test]
fn actions_are_in_the_journal_under_the_name_of_their_token() {
    let server = Running::start();
    server.pipeline("ask", "", &["approval: message: Go on?"]);
    server.configure("schedules:\n  daily: {pipeline: ask, cron: '0 0 * * *', timezone: UTC}\n");
    // The server may have read the file just before the change.
    server.poll("/v1/schedules", |document| document["schedules"][0].is_object());
    let token = server.token("alice", &[Scope::Run, Scope::Read], &[], None);
    let bearer = format!("Bearer {token}");
    let run = server.run(&json!({"pipeline": "ask"}));
    let id = run["run_id"].as_str().expect("an id");
    let act = |path: &str, body: &Value| {
        let headers = [("Authorization", &*bearer), ("Idempotency-Key", path)];
        server.raw("POST", path, &headers, Some(body.to_string())).status
    };
    let cancel = format!("/v1/runs/{id}/cancel");
    assert_eq!(act("/v1/runs/unknown/cancel", &json!({})), 404);
    assert_eq!((act(&cancel, &json!({"reason": "late"})), act(&cancel, &json!({"reason": "late"}))), (202, 202));
    assert_eq!(act("/v1/schedules/demo/daily/pause", &json!({})), 200);
    assert_eq!(server.raw("GET", "/v1/runs", &[("Authorization", &bearer)], None).status, 200);
    server.until(id, &["cancelled"]);
    let read = |path: &str| server.raw("GET", path, &[("Authorization", &bearer), ("Accept", "text/html")], None);
    let listed = |reply: Reply| {
        let actions = reply.json()["actions"].as_array().cloned().unwrap_or_default();
        actions.iter().map(|one| json!([one["by"], one["action"], one["run_id"]])).collect::<Vec<_>>()
    };
    let on_run = format!("/v1/actions?run={id}");
    assert_eq!(listed(read(&on_run)), [json!(["alice", "cancel", id])]);
    assert_eq!(listed(read("/v1/actions?app=demo&schedule=daily")), [json!(["alice", "pause", null])]);
    assert_eq!(read("/v1/actions").problem(), (403, "forbidden_scope".to_owned()));
    for wrong in ["/v1/actions?app=demo", "/v1/actions?schedule=daily", "/v1/actions?run=x&app=demo"] {
        assert_eq!(read(wrong).problem(), (422, "input_invalid".to_owned()), "{wrong}");
    }
    assert!(read(&format!("/runs/{id}")).text().contains("cancel by alice"));
    assert!(read("/schedules/demo/daily").text().contains("pause by alice"));
    assert_eq!(server.send("DELETE", &format!("/v1/runs/{id}"), None).status, 204);
    assert_eq!(read(&on_run).problem(), (404, "not_found".to_owned()), "S-63");
    let all = |query: &str| server.send("GET", &format!("/v1/actions{query}"), None).json();
    assert_eq!(all("")["actions"].as_array().map(Vec::len), Some(3));
    let first = all("?limit=1");
    let rest = all(&format!("?limit=2&cursor={}", first["next"].as_str().expect("a cursor")));
    assert_eq!((rest["actions"].as_array().map(Vec::len), &rest["next"]), (Some(2), &Value::Null));
    let settings = etude_sqlite::Settings { dir: server.dir().to_owned(), sync: etude_sqlite::Sync::Normal };
    let journal = etude_sqlite::Sqlite::open(settings).expect("a journal");
    let query = EntryQuery { book: "actions".to_owned(), ..EntryQuery::default() };
    let entries = journal.entries(&query).expect("entries");
    let actions: Vec<Value> = entries.iter().map(|entry| serde_json::from_str(&entry.body).expect("JSON")).collect();
    let of_schedule = json!({"app": "demo", "name": "daily"});
    let expected = [
        json!({"by": "alice", "action": "cancel", "about": {"id": id}}),
        json!({"by": "alice", "action": "pause", "about": of_schedule}),
        json!({"by": "owner", "action": "delete", "about": {"id": id}}),
    ];
    // Several actions may have the same time.
    assert!(actions.len() == expected.len() && expected.iter().all(|one| actions.contains(one)), "{actions:?}");
}

/// S-17: the server ends on request, and the next one on the same journal accepts the same tokens.
#[test]
fn tokens_survive_a_restart() {
    let server = Running::start();
    let (token, owner) = (server.token("ci", &[Scope::Read], &[], None), server.owner.clone());
    let server = Running::at(server.stop(), |_| ());
    assert_eq!(server.owner, owner);
    let reply = server.raw("GET", "/v1/me", &[("Authorization", &format!("Bearer {token}"))], None);
    assert_eq!(reply.json()["name"], "ci");
}

/// S-15: a form of a page needs the scope of its route of the API.
#[test]
fn a_form_needs_the_scope_of_its_api() {
    let needs = |path: &str| {
        let route = routes().iter().find(|route| route.method == "POST" && route.path == path);
        route.unwrap_or_else(|| panic!("there is no {path}")).needs
    };
    for (page, api) in [
        ("/decisions/{id}", "/v1/decisions/{id}"),
        ("/apps/{app}/learned/{pipeline}", "/v1/apps/{app}/learned/{pipeline}/promote"),
        ("/notices/{app}/{name}/{delivery}", "/v1/notices/{app}/{name}/deliveries/{delivery}/again"),
        ("/runs/{id}/{action}", "/v1/runs/{id}/cancel"),
        ("/schedules/{app}/{name}/{action}", "/v1/schedules/{app}/{name}/fire"),
    ] {
        assert_eq!(needs(page), needs(api), "{page}");
    }
}
