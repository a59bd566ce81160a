//! Access tokens of an issuer, which is a small authorization server in the test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use etude_server::token::Scope;
use etude_spec::config::auth::Auth;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::support::{Reply, Running, read_to_the_end};

const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The audience in tokens for the server of a test.
const AUDIENCE: &str = "https://runs.example/mcp";

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The documents of an authorization server, and the requests that it has received.
#[derive(Default)]
struct State {
    documents: BTreeMap<String, String>,
    asked: Vec<String>,
    is_away: bool,
}

/// An authorization server on this machine.
struct Issuer {
    url: String,
    state: Arc<Mutex<State>>,
    key: EcdsaKeyPair,
}

fn new_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random).expect("the key")
}

/// The set of public keys, named by index: `0`, `1`.
fn set(keys: &[&EcdsaKeyPair]) -> Value {
    let public = |(nth, key): (usize, &&EcdsaKeyPair)| {
        let point = key.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": nth.to_string(), "x": base64(&point[1..33]), "y": base64(&point[33..])})
    };
    json!({"keys": keys.iter().enumerate().map(public).collect::<Vec<_>>()})
}

impl Issuer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (state, key) = (Arc::<Mutex<State>>::default(), new_key());
        let of = Arc::clone(&state);
        // The thread ends with the process.
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| respond(&of, stream)));
        let issuer = Self { url, state, key };
        let metadata = json!({"issuer": issuer.url, "jwks_uri": format!("{}/keys", issuer.url)});
        issuer.have("/.well-known/oauth-authorization-server", &metadata);
        issuer.have("/keys", &set(&[&issuer.key]));
        issuer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn have(&self, path: &str, document: &Value) {
        self.state().documents.insert(path.to_owned(), document.to_string());
    }

    /// The number of requests for the keys.
    fn asked(&self) -> usize {
        self.state().asked.iter().filter(|path| *path == "/keys").count()
    }

    /// A server that accepts tokens of this issuer.
    fn server(&self) -> Running {
        let auth = Auth { issuer: self.url.clone(), audience: AUDIENCE.to_owned() };
        Running::with(|settings| settings.auth = Some(auth))
    }

    /// Claims of a token that is valid for five minutes.
    fn claims(&self, server: &Running, scope: &str) -> Value {
        let now = server.clock.now_ms() / 1_000;
        json!({"iss": self.url, "sub": "alice", "aud": [AUDIENCE], "exp": now + 300, "iat": now, "scope": scope})
    }

    fn token(&self, server: &Running, scope: &str) -> String {
        signed(&self.key, "0", &self.claims(server, scope))
    }
}

fn respond(state: &Mutex<State>, mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let mut line = String::new();
    let _ = reader.read_line(&mut line);
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while line.trim() != "" {
        line.clear();
        if reader.read_line(&mut line).is_err() {
            return;
        }
    }
    let mut state = state.lock().expect("no panic");
    state.asked.push(path.clone());
    let (status, body) = match state.documents.get(&path) {
        _ if state.is_away => ("503 Service Unavailable", ""),
        Some(moved) if moved.starts_with("\"http") => {
            let to = moved.trim_matches('"');
            let _ = stream
                .write_all(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nConnection: close\r\n\r\n").as_bytes());
            return;
        }
        Some(document) => ("200 OK", document.as_str()),
        None => ("404 Not Found", ""),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string()), base64(claims.to_string()))
}

/// A token signed by `key`; its header has the key name `id`.
fn signed(key: &EcdsaKeyPair, id: &str, claims: &Value) -> String {
    let message = message(&json!({"alg": "ES256", "kid": id, "typ": "at+jwt"}), claims);
    let signature = key.sign(&SystemRandom::new(), message.as_bytes()).expect("signed");
    format!("{message}.{}", base64(signature))
}

fn get(server: &Running, path: &str, token: &str) -> Reply {
    server.raw("GET", path, &[("Authorization", &format!("Bearer {token}"))], None)
}

fn me(server: &Running, token: &str) -> u16 {
    get(server, "/v1/me", token).status
}

/// serve, section 4: a token of the issuer has its scopes, and acts under its own name.
#[test]
fn a_token_of_the_issuer_has_its_scopes() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let token = issuer.token(&server, "openid read run");
    let me = get(&server, "/v1/me", &token).json();
    assert_eq!((&me["name"], &me["scopes"], &me["only"]), (&json!("oauth:alice"), &json!(["read", "run"]), &json!([])));
    assert!(me["expires_at"].is_string());
    for (method, path) in [("POST", "/v1/server/drain"), ("POST", "/v1/decisions/x")] {
        let reply = server.raw(method, path, &[("Authorization", &format!("Bearer {token}"))], Some("{}".to_owned()));
        assert_eq!(reply.problem(), (403, "forbidden_scope".to_owned()), "{path}");
    }
    server.pipeline("hello", "", &["echo hi"]);
    let body = json!({"pipeline": "hello"}).to_string();
    let bearer = format!("Bearer {token}");
    let started = server.raw("POST", "/v1/runs", &[("Authorization", &bearer), ("Prefer", "wait=60")], Some(body));
    assert_eq!((started.status, &started.json()["by"]), (201, &json!("oauth:alice")));
    let names: Vec<Value> = server.log().iter().map(|line| line["token"].clone()).collect();
    assert!(names.contains(&json!("oauth:alice")) && !json!(server.log()).to_string().contains(&token), "{names:?}");
    // Tokens of the server itself still work, and two requests to the issuer were enough for all.
    let own = server.token("ci", &[Scope::Read], &[], None);
    assert_eq!(get(&server, "/v1/me", &own).json()["name"], "ci");
    assert_eq!(issuer.state().asked, ["/.well-known/oauth-authorization-server", "/keys"]);
}

/// serve, section 4: a token that the issuer did not sign for this server is 401. It counts as a wrong token only if the issuer
/// did not sign it at all.
#[test]
fn tokens_for_others_and_of_others_are_refused() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let claims = issuer.claims(&server, "admin");
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        claims
    };
    assert_eq!(me(&server, &signed(&issuer.key, "0", &claims)), 200);
    // The public key is not a secret, so an HMAC with it proves nothing.
    let confused = message(&json!({"alg": "HS256", "kid": "0"}), &claims);
    let public = hmac::Key::new(hmac::HMAC_SHA256, issuer.key.public_key().as_ref());
    let confused = format!("{confused}.{}", base64(hmac::sign(&public, confused.as_bytes())));
    let unsigned = format!("{}.", message(&json!({"alg": "none"}), &claims));
    let now = server.clock.now_ms() / 1_000;
    let tokens = [
        (confused, "`alg`"),
        (unsigned, "`alg`"),
        (signed(&new_key(), "0", &claims), "signature"),
        (signed(&issuer.key, "0", &with("aud", json!("https://other.example"))), "`aud`"),
        (signed(&issuer.key, "0", &with("iss", json!("https://other.example"))), "`iss`"),
        (signed(&issuer.key, "0", &with("exp", json!(now - 61))), "expired"),
    ];
    for (token, words) in tokens {
        let reply = get(&server, "/v1/me", &token);
        assert_eq!(reply.problem(), (401, "unauthenticated".to_owned()), "{words}");
        assert!(reply.json()["hint"].as_str().is_some_and(|hint| hint.contains(words)), "{}", reply.text());
        let challenge = reply.header("www-authenticate").expect("a challenge");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert!(!reply.text().contains(token.split('.').nth(1).expect("claims")));
    }
    // Three of them were guesses. Tokens that the issuer has signed are not.
    for _ in 0..12 {
        assert_eq!(me(&server, &signed(&issuer.key, "0", &with("exp", json!(now - 61)))), 401);
    }
    for _ in 3..10 {
        assert_eq!(me(&server, "a.b.c"), 401);
    }
    assert_eq!(me(&server, "a.b.c"), 429);
    assert_eq!(me(&server, &issuer.token(&server, "read")), 200, "a correct token passes");
}

/// serve, section 4: a new key counts as soon as a token names it; unknown key names cause two requests a minute at most.
#[test]
fn keys_are_rotated() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let old = issuer.token(&server, "read");
    assert_eq!((me(&server, &old), issuer.asked()), (200, 1));
    let new = new_key();
    issuer.have("/keys", &set(&[&issuer.key, &new]));
    let newer = || signed(&new, "1", &issuer.claims(&server, "read"));
    // The token's key may be new, so its client keeps the token and retries. A token that is older than the keys is wrong.
    for _ in 0..11 {
        let reply = get(&server, "/v1/me", &newer());
        assert_eq!(reply.problem(), (503, "journal_unavailable".to_owned()));
        let after: u64 = reply.header("retry-after").and_then(|after| after.parse().ok()).expect("seconds");
        assert!((1..=30).contains(&after), "{after}");
    }
    let mut claims = issuer.claims(&server, "read");
    claims["iat"] = json!(server.clock.now_ms() / 1_000 - 100);
    assert_eq!((me(&server, &signed(&new, "1", &claims)), issuer.asked()), (401, 1));
    server.clock.set_offset(31_000);
    assert_eq!((me(&server, &newer()), me(&server, &old), issuer.asked()), (200, 200, 2));
    // The old key is withdrawn: it is valid until the keys are read again.
    issuer.have("/keys", &set(&[&new]));
    server.clock.set_offset(62_000);
    assert_eq!((me(&server, &signed(&new, "7", &issuer.claims(&server, "read"))), issuer.asked()), (401, 3));
    assert_eq!(me(&server, &old), 401);
    assert_eq!(me(&server, &signed(&new, "0", &issuer.claims(&server, "read"))), 200);
}

/// serve, section 4: without keys no token of the issuer is accepted, and those of the server are.
#[test]
fn an_issuer_that_is_away_is_no_issuer() {
    let issuer = Issuer::start();
    let server = issuer.server();
    issuer.state().is_away = true;
    let token = issuer.token(&server, "read");
    let reply = get(&server, "/v1/me", &token);
    assert_eq!(reply.problem(), (503, "journal_unavailable".to_owned()));
    assert!(reply.header("retry-after").is_some());
    assert_eq!(server.send("GET", "/v1/me", None).status, 200);
    issuer.state().is_away = false;
    assert_eq!(me(&server, &token), 503, "it was asked just now");
    server.clock.set_offset(31_000);
    assert_eq!(me(&server, &token), 200);
    // Known keys stay valid for a while without the issuer, but not forever.
    issuer.state().is_away = true;
    let later = |offset_ms: i64| {
        server.clock.set_offset(offset_ms);
        me(&server, &issuer.token(&server, "read"))
    };
    assert_eq!((later(3_700_000), later(7_300_000)), (200, 503));
}

/// RFC 8414, 3.3: metadata that name another issuer are refused. Keys need TLS unless both they and the issuer are on this
/// machine; no redirect is followed.
#[test]
fn metadata_that_lead_elsewhere_are_not_followed() {
    let metadata = "/.well-known/oauth-authorization-server";
    let other = Issuer::start();
    for (issuer, keys, is_moved) in [
        (Some("https://other.example"), None, false),
        (None, Some("http://keys.example/keys"), false),
        (None, None, true),
    ] {
        let own = Issuer::start();
        let server = own.server();
        let keys = keys.map_or_else(|| format!("{}/keys", own.url), str::to_owned);
        own.have(metadata, &json!({"issuer": issuer.unwrap_or(&own.url), "jwks_uri": keys}));
        if is_moved {
            own.have("/keys", &json!(format!("{}/keys", other.url)));
        }
        assert_eq!(me(&server, &own.token(&server, "read")), 503, "{issuer:?} {keys} {is_moved}");
    }
    assert_eq!(other.asked(), 0);
}

/// OpenID Connect Discovery: an issuer may have its metadata only there.
#[test]
fn metadata_of_openid_connect_are_found() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let document = issuer.state().documents.remove("/.well-known/oauth-authorization-server").expect("metadata");
    issuer.state().documents.insert("/.well-known/openid-configuration".to_owned(), document);
    assert_eq!(me(&server, &issuer.token(&server, "read")), 200);
}

/// RFC 9728: a client without a token learns where to get one. Without an issuer there is no such document.
#[test]
fn clients_find_the_issuer() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let own = format!("http://{}", server.address);
    for (path, of, scopes) in
        [("", "", json!(["read", "run", "approve", "admin"])), ("/mcp", "/mcp", json!(["read", "run"]))]
    {
        let reply = server.raw("GET", &format!("{METADATA}{path}"), &[], None);
        let expected = json!({
            "resource": format!("{own}{of}"), "authorization_servers": [issuer.url], "scopes_supported": scopes,
            "bearer_methods_supported": ["header"], "resource_name": "etude",
        });
        assert_eq!((reply.status, reply.json()), (200, expected));
    }
    let challenge = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let reply = server.raw(method, path, headers, None);
        (reply.status, reply.header("www-authenticate").map(str::to_owned))
    };
    let bearer = format!("Bearer resource_metadata=\"{own}{METADATA}");
    assert_eq!(challenge("GET", "/v1/me", &[]), (401, Some(format!("{bearer}\""))));
    assert_eq!(challenge("POST", "/mcp", &[]), (401, Some(format!("{bearer}/mcp\", scope=\"read run\""))));
    assert_eq!(
        challenge("GET", "/v1/me", &[("Authorization", "Bearer etd_x")]),
        (401, Some(format!("{bearer}\", error=\"invalid_token\"")))
    );
    assert_eq!(challenge("GET", "/", &[("Accept", "text/html")]), (401, Some(format!("{bearer}\""))));

    let without = Running::start();
    assert_eq!(without.raw("GET", METADATA, &[], None).status, 401);
    assert_eq!(without.send("GET", METADATA, None).status, 404);
    assert_eq!(me(&without, &issuer.token(&without, "read")), 401);
}

/// RFC 6750, 3.1: a client without the needed scope learns which scopes to request: those of its token, and the missing one. A
/// token of the server can get no other.
#[test]
fn clients_learn_which_scope_they_lack() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let token = issuer.token(&server, "read");
    let challenge = |token: &str| {
        let reply = server.raw("POST", "/v1/runs", &[("Authorization", &format!("Bearer {token}"))], Some("{}".into()));
        assert_eq!(reply.problem(), (403, "forbidden_scope".to_owned()));
        reply.header("www-authenticate").map(str::to_owned)
    };
    let metadata = format!("http://{}{METADATA}", server.address);
    let expected = format!("Bearer error=\"insufficient_scope\", scope=\"read run\", resource_metadata=\"{metadata}\"");
    assert_eq!(challenge(&token), Some(expected));
    assert_eq!(challenge(&server.token("ci", &[Scope::Read], &[], None)), None);
}

/// RFC 9728, behind a proxy: the metadata have the name that the client requested.
#[test]
fn behind_a_proxy_the_resource_has_its_name() {
    let issuer = Issuer::start();
    let auth = Auth { issuer: issuer.url.clone(), audience: AUDIENCE.to_owned() };
    let server = Running::with(|settings| {
        settings.auth = Some(auth);
        settings.is_behind_proxy = true;
        settings.names = vec!["runs.example".to_owned()];
        settings.base_path = "/etude".to_owned();
    });
    let headers = [("Host", "runs.example"), ("X-Forwarded-Proto", "https")];
    let reply = server.raw("POST", "/etude/mcp", &headers, None);
    let at = format!("https://runs.example/etude{METADATA}/mcp");
    assert!(reply.header("www-authenticate").expect("a challenge").contains(&format!("\"{at}\"")));
    let reply = server.raw("GET", &format!("/etude{METADATA}/mcp"), &headers, None);
    assert_eq!(reply.json()["resource"], "https://runs.example/etude/mcp");
}

/// S-17: a stream ends with its token. No session begins with such a token, because it would outlive it.
#[test]
fn nothing_outlives_a_token_of_the_issuer() {
    let issuer = Issuer::start();
    let server = issuer.server();
    let token = issuer.token(&server, "admin");
    let bearer = format!("Bearer {token}");
    let reply = server.raw("POST", "/v1/server/links", &[("Authorization", &bearer)], Some("{}".to_owned()));
    assert_eq!(reply.problem(), (403, "forbidden_scope".to_owned()));
    let origin = format!("http://{}", server.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", &*origin)];
    assert_eq!(server.raw("POST", "/login", &form, Some(format!("token={token}"))).status, 401);

    let mut stream = TcpStream::connect(server.address).expect("a connection");
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\n", server.address);
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).expect("written");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("a response");
    assert_eq!(&status, b"HTTP/1.1 200");
    server.clock.set_offset(400_000);
    // Streams check their tokens after each change of tokens, and before each comment.
    server.token("ci", &[Scope::Read], &[], None);
    read_to_the_end(stream);
}
