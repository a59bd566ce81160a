//! Host, Origin, fetch metadata.

use std::io::{Read, Write};

use crate::support::Running;
use etude_server::token::{Scope, Tokens};
use etude_server::{Settings, routes};
use serde_json::json;

const CROSS: &[(&str, &str)] = &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")];

fn login(server: &Running) -> String {
    login_by(server, &format!("token={}", server.owner))
}

/// Logs in with a form. Returns the cookie.
fn login_by(server: &Running, form_text: &str) -> String {
    let origin = format!("http://{}", server.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", &*origin)];
    let reply = server.raw("POST", "/login", &form, Some(form_text.to_owned()));
    assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
    let cookie = reply.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    assert!(cookie.starts_with(&format!("etude_{}=", server.address.port())));
    cookie
}

/// S-5: a foreign `Host` is 403 on every route.
#[test]
fn a_foreign_host_is_refused_on_every_route() {
    let server = Running::start();
    let bearer = format!("Bearer {}", server.owner);
    for route in routes() {
        let path = route.path.replace(['{', '}'], "");
        let reply = server.raw(route.method, &path, &[("Host", "evil.example"), ("Authorization", &bearer)], None);
        assert_eq!(reply.problem(), (403, "forbidden_host".to_owned()), "{route:?}");
    }
    let none = server.exchange(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(none.status, 403);
    let target = server.exchange(
        format!("GET http://evil.example/healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address)
            .as_bytes(),
    );
    assert_eq!(target.status, 403);
}

/// S-6: a foreign `Origin` and `Origin: null` are 403, even with a valid token.
#[test]
fn a_foreign_origin_is_refused_with_a_valid_token() {
    let server = Running::start();
    let bearer = format!("Bearer {}", server.owner);
    for origin in ["null", "http://evil.example", "http://127.0.0.1:1"] {
        for (method, path) in [("GET", "/v1/me"), ("GET", "/healthz"), ("POST", "/v1/server/links")] {
            let reply = server.raw(method, path, &[("Origin", origin), ("Authorization", &bearer)], None);
            assert_eq!(reply.problem(), (403, "forbidden_origin".to_owned()), "{origin} {path}");
        }
    }
    let own = format!("http://localhost:{}", server.address.port());
    let reply = server.raw("GET", "/v1/me", &[("Origin", &own), ("Authorization", &bearer)], None);
    assert_eq!(reply.status, 200);
}

/// S-7: with a cookie, requests of other sites are 403, and a page opens as a top-level navigation.
#[test]
fn a_cookie_of_another_sites_request_is_refused() {
    let server = Running::start();
    let cookie = login(&server);
    let own = [("Cookie", &*cookie), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(server.raw("GET", "/v1/me", &own, None).status, 200);
    assert_eq!(server.raw("GET", "/v1/me", &[("Cookie", &cookie), ("Sec-Fetch-Site", "none")], None).status, 200);
    for site in ["same-site", "cross-site"] {
        for (mode, dest) in [("cors", "empty"), ("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe")] {
            for (method, path) in [("GET", "/v1/me"), ("POST", "/v1/server/links"), ("GET", "/")] {
                let headers = [
                    ("Cookie", &*cookie),
                    ("Sec-Fetch-Site", site),
                    ("Sec-Fetch-Mode", mode),
                    ("Sec-Fetch-Dest", dest),
                ];
                let reply = server.raw(method, path, &headers, None);
                assert_eq!(reply.problem(), (403, "forbidden_origin".to_owned()), "{site} {mode} {dest} {path}");
            }
        }
        let navigation = [
            ("Cookie", &*cookie),
            ("Sec-Fetch-Site", site),
            ("Sec-Fetch-Mode", "navigate"),
            ("Sec-Fetch-Dest", "document"),
        ];
        assert_eq!(server.raw("GET", "/", &navigation, None).status, 200);
        assert_eq!(server.raw("GET", "/v1/me", &navigation, None).status, 403);
        assert_eq!(server.raw("POST", "/logout", &navigation, None).status, 403);
    }
}

/// S-8: there is no CORS header unless an origin is allowed.
#[test]
fn cors_headers_are_for_allowed_origins_only() {
    let server = Running::start();
    let bearer = format!("Bearer {}", server.owner);
    let own = format!("http://{}", server.address);
    for reply in [
        server.send("GET", "/v1/me", None),
        server.raw("GET", "/v1/me", &[("Origin", &own), ("Authorization", &bearer)], None),
        server.raw("OPTIONS", "/v1/me", &[("Origin", &own), ("Authorization", &bearer)], None),
        server.raw("OPTIONS", "/v1/me", &[("Origin", "http://evil.example")], None),
    ] {
        assert!(!reply.headers.iter().any(|(name, _)| name.starts_with("access-control-")), "{reply:?}");
    }
    let server = Running::with(|settings| settings.allowed_origins.push("https://tool.example".to_owned()));
    let bearer = format!("Bearer {}", server.owner);
    let reply = server.raw("GET", "/v1/me", &[("Origin", "https://tool.example"), ("Authorization", &bearer)], None);
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://tool.example")));
    assert_eq!(reply.header("access-control-allow-credentials"), None);
    let exposed = reply.header("access-control-expose-headers").expect("exposed headers");
    for name in ["Location", "ETag", "Idempotency-Replayed"] {
        assert!(exposed.split(", ").any(|exposed| exposed == name), "{exposed}");
    }
    // A browser sends only the headers that the response to this request names.
    let asked = [("Origin", "https://tool.example"), ("Access-Control-Request-Method", "POST")];
    let reply = server.raw("OPTIONS", "/mcp", &asked, None);
    let allowed = reply.header("access-control-allow-headers").expect("allowed headers");
    for name in ["Authorization", "Idempotency-Key", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"] {
        assert!(allowed.split(", ").any(|allowed| allowed == name), "{allowed}");
    }
}

/// S-9: a form post with a cookie and no `Origin` or fetch metadata is 403.
#[test]
fn a_form_post_without_origin_is_refused() {
    let server = Running::start();
    let cookie = login(&server);
    let form = [("Cookie", &*cookie), ("Content-Type", "application/x-www-form-urlencoded")];
    for path in ["/logout", "/login", "/v1/server/links"] {
        let reply = server.raw("POST", path, &form, Some(String::new()));
        assert_eq!(reply.problem(), (403, "forbidden_origin".to_owned()), "{path}");
    }
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(server.raw("POST", "/logout", &form, None).status, 401, "a logout without a cookie");
    let reply = server.raw("POST", "/login", &form, Some(format!("token={}", server.owner)));
    assert_eq!(reply.problem(), (403, "forbidden_origin".to_owned()), "a login without a cookie");
}

/// S-9: a login and a logout must come from the server's own pages: a typed address and an allowed origin are refused.
#[test]
fn a_login_comes_from_the_servers_own_pages() {
    let server = Running::with(|settings| settings.allowed_origins.push("https://tool.example".to_owned()));
    let cookie = login(&server);
    let own = format!("http://{}", server.address);
    let post = |path: &str, name: &str, value: &str| {
        let form = [("Cookie", &*cookie), ("Content-Type", "application/x-www-form-urlencoded"), (name, value)];
        server.raw("POST", path, &form, Some(format!("token={}", server.owner)))
    };
    for path in ["/login", "/logout"] {
        for (name, value) in [("Sec-Fetch-Site", "none"), ("Origin", "https://tool.example")] {
            let reply = post(path, name, value);
            assert_eq!(reply.problem(), (403, "forbidden_origin".to_owned()), "{path} {name}: {value}");
        }
    }
    for (name, value) in [("Sec-Fetch-Site", "same-origin"), ("Origin", &*own)] {
        assert_eq!(post("/login", name, value).status, 303, "{name}: {value}");
    }
    assert_eq!(post("/logout", "Sec-Fetch-Site", "same-origin").status, 303);
}

/// S-22: a form that is not a login is 401, and only a wrong token counts as one.
#[test]
fn a_form_that_is_no_login_is_401() {
    let server = Running::start();
    let origin = format!("http://{}", server.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", &*origin)];
    for text in ["", "code=", "token=a&code=b", "password=x", "next=/"] {
        for _ in 0..3 {
            let reply = server.raw("POST", "/login", &form, Some(text.to_owned()));
            assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()), "{text}");
        }
    }
}

/// S-10: `X-Forwarded-Host` counts only behind a proxy.
#[test]
fn a_forwarded_host_counts_only_behind_a_proxy() {
    let server = Running::start();
    let reply = server.raw("GET", "/healthz", &[("Host", "evil.example"), ("X-Forwarded-Host", "localhost")], None);
    assert_eq!(reply.status, 403);
    let own = server.raw("GET", "/healthz", &[("X-Forwarded-Host", "evil.example")], None);
    assert_eq!(own.status, 200);
    let server = Running::with(|settings| {
        settings.names.push("etude.example".to_owned());
        settings.is_behind_proxy = true;
    });
    let forwarded = |host| server.raw("GET", "/healthz", &[("X-Forwarded-Host", host)], None).status;
    assert_eq!(forwarded("etude.example"), 200);
    assert_eq!(forwarded("evil.example"), 403);
}

/// S-6, S-21: behind a proxy with TLS the cookie is a secure one, and an origin without TLS is another site.
#[test]
fn the_cookie_is_secure_behind_a_proxy_with_tls() {
    let change = |settings: &mut Settings| {
        settings.names.push("etude.example".to_owned());
        settings.is_behind_proxy = true;
    };
    let (behind, plain) = (Running::with(change), Running::start());
    let log_in = |server: &Running, scheme: &str, origin: &str| {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        let form = [kind, ("Origin", origin), ("X-Forwarded-Proto", scheme)];
        server.raw("POST", "/login", &form, Some(format!("token={}", server.owner)))
    };
    let own = format!("http://{}", plain.address);
    for (server, scheme, origin, is_secure) in [
        (&behind, "https", "https://etude.example", true),
        (&behind, "http", "http://etude.example", false),
        (&behind, "http", "https://etude.example", false),
        (&plain, "https", &own, false),
    ] {
        let reply = log_in(server, scheme, origin);
        let cookie = reply.header("set-cookie").expect("a cookie").to_owned();
        let name = format!("{}etude_{}=", if is_secure { "__Host-" } else { "" }, server.address.port());
        assert!(cookie.starts_with(&name) && cookie.ends_with("; Secure") == is_secure, "{scheme} {origin}: {cookie}");
        let cookie = cookie.split(';').next().expect("a pair");
        let headers = [("Cookie", cookie), ("X-Forwarded-Proto", scheme), ("Sec-Fetch-Site", "same-origin")];
        assert_eq!(server.raw("GET", "/v1/me", &headers, None).status, 200, "{scheme} {origin}");
    }
    assert_eq!(log_in(&behind, "https", "http://etude.example").problem(), (403, "forbidden_origin".to_owned()));
}

/// S-11: IPv6 literals and `localhost` with the server's port pass.
#[test]
fn loopback_names_with_the_port_pass() {
    let server = Running::start();
    let port = server.address.port();
    for host in [format!("localhost:{port}"), format!("[::1]:{port}"), format!("127.0.0.1:{port}")] {
        assert_eq!(server.raw("GET", "/healthz", &[("Host", &host)], None).status, 200, "{host}");
    }
}

/// S-16, S-17: a login link of a token leads to a session with the rights of that token, which ends with it.
#[test]
fn a_session_has_the_rights_of_the_token_that_made_its_link() {
    let server = Running::start();
    let token = server.token("ops", &[Scope::Admin], &["deploy"], None);
    let bearer = format!("Bearer {token}");
    let made = server.raw("POST", "/v1/server/links", &[("Authorization", &bearer)], Some("{}".to_owned()));
    assert_eq!(made.status, 201, "{}", made.text());
    let url = made.json()["url"].as_str().expect("a link").to_owned();
    let cookie = login_by(&server, &format!("code={}", url.split_once("login=").expect("a code").1));
    let me = || server.raw("GET", "/v1/me", &[("Cookie", &*cookie), ("Sec-Fetch-Site", "same-origin")], None);
    assert_eq!((&me().json()["name"], &me().json()["only"]), (&json!("ops"), &json!(["deploy"])));
    Tokens::new(&server.dir().join("serve")).revoke("ops").expect("revoked");
    assert_eq!(me().status, 401);
}

/// S-20, S-21: the cookie is confined, and logout ends the session on the server.
#[test]
fn logout_ends_the_session() {
    let server = Running::start();
    let cookie = login(&server);
    let (_, attributes) = ("", "; Path=/; HttpOnly; SameSite=Lax");
    let origin = format!("http://{}", server.address);
    let own = [("Cookie", &*cookie), ("Origin", &*origin)];
    let reply = server.raw("POST", "/logout", &own, None);
    assert_eq!((reply.status, reply.header("location")), (303, Some("/login")));
    let cleared = reply.header("set-cookie").expect("a cookie");
    assert!(cleared.ends_with(&format!("{attributes}; Max-Age=0")), "{cleared}");
    assert_eq!(server.raw("GET", "/v1/me", &[("Cookie", &cookie)], None).problem().1, "unauthenticated");
}

/// S-20: a stream ends soon after the session that opened it.
#[test]
fn a_stream_ends_with_its_session() {
    let server = Running::start();
    let cookie = login(&server);
    let origin = format!("http://{}", server.address);
    let mut stream = std::net::TcpStream::connect(server.address).expect("a connection");
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\nOrigin: {origin}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).expect("written");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a response");
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(server.raw("POST", "/logout", &[("Cookie", &*cookie), ("Origin", &*origin)], None).status, 303);
    crate::support::read_to_the_end(stream);
}

/// S-13, S-35: without a session, a browser sees the login page, with its policy.
#[test]
fn a_browser_without_a_session_sees_the_login_page() {
    let server = Running::start();
    let reply = server.raw("GET", "/", &[("Accept", "text/html")], None);
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
    assert!(reply.text().contains("action=\"/login\""));
    let policy = reply.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';") && policy.contains("frame-ancestors 'none'"));
    let page = reply.text();
    let script = page.split('"').find(|path| path.ends_with("/login.js")).expect("a script");
    let (own, other) = (server.raw("GET", script, CROSS, None), server.raw("GET", "/assets/0/login.js", CROSS, None));
    assert_eq!((own.status, own.header("cache-control")), (200, Some("public, max-age=31536000, immutable")));
    assert_eq!((other.status, other.header("cache-control"), other.text()), (200, Some("no-cache"), own.text()));
}

/// S-19, S-21: a login link of a page leads to that page, and a login never leads to another server.
#[test]
fn a_login_link_leads_to_its_page() {
    let server = Running::start();
    let to = |next: &str| {
        let (link, _) = server.server.login_link_to("/runs/x?at=y");
        let (page, code) = link.split_once("#login=").expect("a code");
        assert!(page.ends_with("/runs/x?at=y"), "{page}");
        let own = format!("http://{}", server.address);
        let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
        let reply = server.raw("POST", "/login", &headers, Some(format!("code={code}&next={next}")));
        assert_eq!(reply.status, 303, "{}", reply.text());
        reply.header("location").expect("a place").to_owned()
    };
    assert_eq!(to("%2Fruns%2Fx%3Fat%3Dy"), "/runs/x?at=y");
    for elsewhere in ["%2F%2Fevil.example%2F", "%2F%5Cevil.example", "https%3A%2F%2Fevil.example", "x", "%2Fa%0D%0Ab"] {
        assert_eq!(to(elsewhere), "/", "{elsewhere}");
    }
}

/// S-19: a login link works once, and not after two minutes.
#[test]
fn a_login_link_works_once() {
    let server = Running::start();
    let link = || server.server.login_link().0;
    let origin = format!("http://{}", server.address);
    let post = |code: &str| {
        let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", &*origin)];
        server.raw("POST", "/login", &form, Some(format!("code={code}")))
    };
    let (_, code) = (0, link().split_once("/#login=").expect("a code").1.to_owned());
    assert_eq!(post(&code).status, 303);
    let is_used_up = |code: &str| {
        let reply = post(code);
        let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
        reply.status == 401 && detail.starts_with("the login link was used before")
    };
    assert!(is_used_up(&code));
    let code = link().split_once("/#login=").expect("a code").1.to_owned();
    server.clock.set_offset(120_000);
    assert!(is_used_up(&code));
}

/// SECURITY.md: connections that others hold on the network leave the owner's socket alone.
#[test]
fn no_one_on_the_network_takes_the_places_of_the_socket() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    let server = Running::with(|settings| settings.max_connections = 4);
    let head = format!("POST /in/demo/x HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\n\r\nx", server.address);
    let held: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).expect("a connection");
            stream.write_all(head.as_bytes()).expect("written");
            stream
        })
        .collect();
    let mut socket = UnixStream::connect(&server.server.addresses().socket).expect("a connection");
    let request = format!(
        "GET /v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        server.owner
    );
    socket.write_all(request.as_bytes()).expect("written");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    drop(held);
}
