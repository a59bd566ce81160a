//! The format of requests and responses.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{Reply, Running};
use etude_server::token::Scope;
use etude_server::{Code, OPENAPI, Takes, routes};
use serde_json::{Value, json};

/// S-24: every error is a problem document.
#[test]
fn errors_are_problem_documents() {
    let server = Running::start();
    for (method, path, status, code) in [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("PUT", "/v1/me", 405, "method_not_allowed"),
        ("GET", "/v1/me?x=1", 422, "unknown_member"),
        ("GET", "/problems/nothing", 404, "not_found"),
        ("GET", "/assets/1/nothing", 404, "not_found"),
    ] {
        let reply = server.send(method, path, None);
        assert_eq!(reply.problem(), (status, code.to_owned()), "{method} {path}");
        let kind = reply.json()["type"].as_str().expect("a type").to_owned();
        assert_eq!(server.send("GET", &kind, None).status, 200, "{kind}");
    }
}

/// S-24: an unknown path of the interface has a hint: the path that is similar, or the document with all of them.
#[test]
fn an_unknown_path_has_a_hint() {
    let server = Running::start();
    for (path, hint) in [
        ("/v1/run", json!("did you mean `/v1/runs`?")),
        ("/v1/nothing/at/all", json!("`GET /v1/openapi.json` lists all routes")),
        ("/nothing", Value::Null),
    ] {
        assert_eq!(server.send("GET", path, None).json()["hint"], hint, "{path}");
    }
}

/// S-25: unknown routes, methods and media types have their statuses.
#[test]
fn unknown_routes_methods_and_media_types() {
    let server = Running::start();
    assert_eq!(server.send("GET", "/v1/runs/a/b/c/d/e", None).status, 404);
    let reply = server.send("DELETE", "/v1/me", None);
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    let bearer = format!("Bearer {}", server.owner);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        let headers = [("Authorization", &*bearer), ("Content-Type", kind)];
        let reply = server.raw("POST", "/v1/server/links", &headers, Some("{}".to_owned()));
        assert_eq!(reply.problem(), (415, "unsupported_media_type".to_owned()), "{kind}");
    }
    let headers = [("Authorization", &*bearer), ("Content-Type", "Application/JSON; charset=utf-8")];
    assert_eq!(server.raw("POST", "/v1/server/links", &headers, Some("{}".to_owned())).status, 201);
    for (coding, status) in [("gzip", 415), ("identity", 201)] {
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json"), ("Content-Encoding", coding)];
        assert_eq!(server.raw("POST", "/v1/server/links", &headers, Some("{}".to_owned())).status, status, "{coding}");
    }
}

/// S-25: the path `*` is unknown, and no hint names an empty base path.
#[test]
fn the_path_of_all_resources_is_unknown() {
    let server = Running::start();
    let (address, owner) = (server.address, &server.owner);
    let head = format!("Host: {address}\r\nAuthorization: Bearer {owner}\r\nConnection: close\r\n");
    let reply = server.exchange(format!("OPTIONS * HTTP/1.1\r\n{head}\r\n").as_bytes());
    assert_eq!(reply.problem(), (404, "not_found".to_owned()));
    assert_eq!(reply.json().get("hint"), None);
}

/// S-26: a body over its limit is 413 and is not read to its end.
#[test]
fn a_large_body_is_refused_unread() {
    let server = Running::start();
    let head = format!(
        "POST /v1/server/links HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
        server.address, server.owner
    );
    // The body never arrives, and the response does.
    let reply = server.exchange(format!("{head}Content-Length: 1048577\r\nConnection: close\r\n\r\n").as_bytes());
    assert_eq!(reply.problem(), (413, "too_large".to_owned()));
    let piece = format!("10000\r\n{}\r\n", "x".repeat(65_536)).repeat(17);
    let reply =
        server.exchange(format!("{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{piece}").as_bytes());
    assert_eq!(reply.problem(), (413, "too_large".to_owned()));
}

/// S-26: a client that sends all of a body before it reads gets the response that refuses it.
#[test]
fn the_sender_of_a_large_body_can_read_why_it_is_refused() {
    let server = Running::start();
    let body = vec![b' '; 24 * 1024 * 1024];
    for (kind, length, status) in
        [("application/json", body.len(), 413), ("text/plain", body.len(), 415), ("application/json", 0, 413)]
    {
        let framing = match length {
            0 => "Transfer-Encoding: chunked".to_owned(),
            length => format!("Content-Length: {length}"),
        };
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n",
            server.address, server.owner
        );
        let start = if length == 0 { format!("{head}{:x}\r\n", body.len()) } else { head };
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.write_all(start.as_bytes()).expect("written");
        stream.write_all(&body).expect("the whole body is written");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("a response and the end");
        let reply = Reply::parse(&all);
        assert_eq!((reply.status, reply.header("connection")), (status, Some("close")), "{kind} {length}");
    }
}

/// S-27, S-28: malformed JSON is located, and unknown members have a pointer and a near name.
#[test]
fn bodies_are_checked() {
    let server = Running::start();
    let bearer = format!("Bearer {}", server.owner);
    let post =
        |body: &str| server.raw("POST", "/v1/server/links", &[("Authorization", &bearer)], Some(body.to_owned()));
    let reply = post("{\n  x");
    assert_eq!(reply.problem(), (400, "malformed".to_owned()));
    assert_eq!((&reply.json()["line"], &reply.json()["column"]), (&json!(2), &json!(3)));
    let reply = post(r#"{"a/b": 1}"#);
    assert_eq!(reply.problem(), (422, "unknown_member".to_owned()));
    assert_eq!(reply.json()["errors"][0]["pointer"], "/a~1b");
    assert_eq!(post(r#"{"a": 1, "a": 2}"#).problem(), (400, "malformed".to_owned()));
    assert_eq!(post("[]").problem(), (422, "input_invalid".to_owned()));
}

/// S-29: the description has every route with its parameters, its body and its scope, and nothing else.
#[test]
fn the_description_has_every_route() {
    let description: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let mut described = BTreeSet::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let names = operation["parameters"].as_array().into_iter().flatten();
            let query: BTreeSet<&str> = names
                .filter(|parameter| parameter["in"] == "query")
                .filter_map(|parameter| parameter["name"].as_str())
                .collect();
            described.insert(format!(
                "{} {path} {:?} {}",
                method.to_uppercase(),
                query,
                operation["requestBody"].is_object()
            ));
            assert!(operation["responses"].is_object(), "{method} {path} has no responses");
        }
    }
    let served: BTreeSet<String> = routes()
        .iter()
        .map(|route| {
            let query: BTreeSet<&str> = route.parameters.iter().copied().collect();
            format!("{} {} {:?} {}", route.method, route.path, query, route.takes != Takes::Nothing)
        })
        .collect();
    assert_eq!(described, served);
    let codes: Vec<Value> = Code::ALL.iter().map(|code| code.word().into()).collect();
    assert_eq!(description["components"]["schemas"]["Problem"]["properties"]["code"]["enum"], Value::from(codes));
    let server = Running::start();
    assert_eq!(server.send("GET", "/v1/openapi.json", None).json(), description);
}

/// S-35: every response forbids sniffing and caching.
#[test]
fn responses_are_not_sniffed_or_stored() {
    let server = Running::start();
    for path in ["/healthz", "/v1/me", "/v1/nothing", "/login", "/"] {
        let reply = server.send("GET", path, None);
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    }
}

/// S-32: times are UTC with milliseconds; the documents about caller and server are complete.
#[test]
fn who_am_i_and_health() {
    let server = Running::start();
    assert_eq!(
        server.send("GET", "/v1/me", None).json(),
        json!({"name": "owner", "scopes": ["admin"], "only": [], "expires_at": null})
    );
    let token = server.token("ci", &[Scope::Read, Scope::Run], &["deploy-*"], Some(1_900_000_000_000));
    let reply = server.raw("GET", "/v1/me", &[("Authorization", &format!("Bearer {token}"))], None);
    let expected = json!({"name": "ci", "scopes": ["read", "run"], "only": ["deploy-*"], "expires_at": "2030-03-17T17:46:40.000Z"});
    assert_eq!(reply.json(), expected);
    let server_document = server.send("GET", "/v1/server", None).json();
    assert_eq!((&server_document["apps"], &server_document["draining"]), (&json!(["demo"]), &json!(false)));
    // Only callers who manage tokens see their names; no caller sees their secrets.
    assert_eq!(server_document["tokens"][0]["name"], "ci");
    assert!(!server_document.to_string().contains(&token));
    let of_ci = server.raw("GET", "/v1/server", &[("Authorization", &format!("Bearer {token}"))], None).json();
    assert!(of_ci["draining"].is_boolean() && of_ci["tokens"].is_null(), "{of_ci}");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.raw("GET", path, &[], None).json(), json!({"status": "ok"}));
    }
    let head = server.send("HEAD", "/v1/me", None);
    assert_eq!((head.status, head.body.len()), (200, 0));
}
