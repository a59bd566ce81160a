//! `etude serve` and `etude token` as commands: addresses, files, exit statuses, signals.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::ran::Ran;
use crate::test::Test;

/// A server of the binary, with the line that it printed.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) line: Value,
    /// Reads stderr, because a full pipe would block the server.
    said: Option<JoinHandle<String>>,
}

/// Ends the server with its test.
impl Drop for Serving {
    fn drop(&mut self) {
        // The server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    pub(crate) fn start(test: &Test, args: &[&str]) -> Self {
        let args = [&["serve", "--format", "json"], args].concat();
        let mut command = test.command(&args);
        Self::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts"))
    }

    /// The same for a process whose output is piped.
    pub(crate) fn of(mut child: Child) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let line = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let mut stderr = child.stderr.take().expect("a pipe");
        let said = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).expect("text");
            text
        });
        Self { child, line, said: Some(said) }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill is there").success());
    }

    /// Ends the server and returns its exit status and stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.signal("TERM");
        let code = self.child.wait().expect("it ends").code();
        (code, self.said.take().expect("read once").join().expect("stderr is text"))
    }

    pub(crate) fn token(&self) -> String {
        let socket = std::path::PathBuf::from(self.line["socket"].as_str().expect("a socket"));
        fs::read_to_string(socket.with_file_name("owner.token")).expect("a token").trim().to_owned()
    }

    /// The document of a response over the socket.
    pub(crate) fn document(&self, method: &str, path: &str, body: &str) -> Value {
        self.document_with(method, path, "", body)
    }

    /// The same for a request with more headers, each with its end of line.
    pub(crate) fn document_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Value {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
            self.token(),
            body.len()
        );
        let mut stream = UnixStream::connect(self.line["socket"].as_str().expect("a socket")).expect("a socket");
        stream.write_all(text.as_bytes()).expect("written");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a response");
        let (_, body) = reply.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {reply}"))
    }

    /// The events of a stream up to its end; `begun` is called at the first one.
    fn follow(&self, path: &str, begun: impl FnOnce()) -> Vec<Value> {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
            self.token()
        );
        let mut stream = UnixStream::connect(self.line["socket"].as_str().expect("a socket")).expect("a socket");
        stream.write_all(text.as_bytes()).expect("written");
        let mut begun = Some(begun);
        let lines = BufReader::new(stream).lines().map(|line| line.expect("text"));
        let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let read = |data: String| {
            if let Some(begun) = begun.take() {
                begun();
            }
            serde_json::from_str(&data).expect("JSON")
        };
        data.map(read).collect()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.document("POST", path, &body.to_string())
    }

    /// Reads a run until it has this status.
    pub(crate) fn until(&self, path: &str, status: &str) -> Value {
        let mut run = Value::Null;
        crate::test::wait_until(&format!("{path} {status}"), || {
            run = self.document("GET", path, "");
            run["status"] == status
        });
        run
    }

    /// Sends a request without a body over the socket or an address.
    fn get(&self, at: &str, path: &str, token: &str) -> String {
        let text =
            format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
        let mut reply = String::new();
        if at.starts_with('/') {
            let mut stream = UnixStream::connect(at).expect("a socket");
            stream.write_all(text.replace(at, "anything").as_bytes()).expect("written");
            stream.read_to_string(&mut reply).expect("a response");
        } else {
            let mut stream = TcpStream::connect(at).expect("a connection");
            stream.write_all(text.as_bytes()).expect("written");
            stream.read_to_string(&mut reply).expect("a response");
        }
        reply
    }
}

/// The document on stdout, without replacements.
fn value(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.raw).expect("stdout is JSON")
}

fn test() -> Test {
    Test::new().pipeline("p", |p| p.sh("a", "echo '{\"output\": 1}'"))
}

fn serve_dir(test: &Test) -> std::path::PathBuf {
    test.path("home/.local/state/etude/serve")
}

/// S-1, S-3, S-4: without flags the server listens on loopback and a socket, and stdout is one line; S-18: files are private,
/// and no secret is printed.
#[test]
fn a_server_listens_on_loopback_and_a_socket() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let pid = serving.child.id();
    let addresses: Vec<&str> =
        serving.line["addresses"].as_array().expect("addresses").iter().filter_map(Value::as_str).collect();
    let port = addresses[0].strip_prefix("http://127.0.0.1:").expect("loopback");
    assert!(addresses[1..].iter().all(|address| *address == format!("http://[::1]:{port}")), "{addresses:?}");
    let socket = serve_dir(&test).join(format!("{pid}.sock"));
    assert_eq!(serving.line["socket"], socket.to_str().expect("UTF-8"));
    assert_eq!(serving.line["pid"], pid);
    let mode = |path: &std::path::Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(
        (mode(&serve_dir(&test)), mode(&socket), mode(&serve_dir(&test).join("owner.token"))),
        (0o700, 0o600, 0o600)
    );
    let token = fs::read_to_string(serve_dir(&test).join("owner.token")).expect("a token");
    let token = token.strip_suffix('\n').expect("a newline");
    for at in [format!("127.0.0.1:{port}"), socket.display().to_string()] {
        let reply = serving.get(&at, "/v1/server", token);
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains(r#""apps":["app"]"#), "{reply}");
        assert!(serving.get(&at, "/v1/server", "wrong").starts_with("HTTP/1.1 401 "));
    }
    let (code, stderr) = serving.end();
    assert_eq!(code, Some(0));
    assert!(!stderr.contains(&token[4..]) && !stderr.contains("#login="), "{stderr}");
    let logged: Vec<Value> = stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(logged.len(), 4, "{stderr}");
    assert_eq!((&logged[0]["route"], &logged[0]["token"]), (&json!("/v1/server"), &json!("owner")));
    assert_eq!((&logged[1]["status"], &logged[1]["token"]), (&json!(401), &Value::Null));
    assert!(!socket.exists());
}

/// S-2: another address without encryption is exit status 2, and nothing is bound.
#[test]
fn other_addresses_need_encryption_and_a_name() {
    let test = test();
    for args in [&["--listen", "0.0.0.0:0"] as &[&str], &["--listen", "0.0.0.0:0", "--behind-proxy"]] {
        let ran = test.run(&[&["serve", "--format", "json"], args].concat()).exit(2);
        assert_eq!(value(&ran)["addresses"], json!([]));
        assert_eq!(value(&ran)["errors"][0]["kind"], "input_invalid");
    }
    assert!(!serve_dir(&test).exists());
    let serving = Serving::start(&test, &["--listen", "0.0.0.0:0", "--behind-proxy", "--host", "etude.example"]);
    assert!(serving.line["addresses"][0].as_str().is_some_and(|address| address.starts_with("http://0.0.0.0:")));
    assert_eq!(serving.end().0, Some(0));
}

/// Section 10: a socket that a service manager has bound is served, and keeps connections while no server runs. A socket on
/// another address needs encryption (S-2), and a descriptor that was not passed on is exit status 4.
#[test]
fn a_socket_of_a_service_manager_is_served() {
    let test = test();
    let handed = |listener: &TcpListener, args: &[&str]| {
        let line = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
        let args = [&["serve", "--format", "json", "--listen", "fd:3"], args].concat();
        let mut command = Command::new("sh");
        let ours = test.command(&args);
        command.args(["-c", line, "sh"]).arg(ours.get_program()).args(ours.get_args()).env_clear();
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(ours.get_current_dir().expect("a directory"));
        command.stdin(std::os::fd::OwnedFd::from(listener.try_clone().expect("a descriptor")));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh is there")
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = Serving::of(handed(&listener, &[]));
    assert_eq!(serving.line["addresses"], json!([format!("http://{address}")]));
    let token = serving.token();
    assert!(serving.get(&address, "/v1/server", &token).starts_with("HTTP/1.1 200 "));
    assert_eq!(serving.end().0, Some(0));
    // This client connects between two servers, and the second one responds.
    let mut early = TcpStream::connect(&address).expect("the socket is open");
    let serving = Serving::of(handed(&listener, &[]));
    write!(early, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("written");
    let mut reply = String::new();
    early.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert_eq!(serving.end().0, Some(0));

    let elsewhere = TcpListener::bind("0.0.0.0:0").expect("a port");
    let refused = handed(&elsewhere, &[]).wait_with_output().expect("it ends");
    assert_eq!(refused.status.code(), Some(2));
    let refused = handed(&listener, &["--listen", "fd:4"]).wait_with_output().expect("it ends");
    assert_eq!(refused.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`--listen fd:4` is not a TCP socket"));
    test.run(&["serve", "--listen", "fd:3", "--format", "json"]).exit(4);
    test.run(&["serve", "--listen", "fd:1"]).exit(2).stderr_has("such as `fd:3`");
}

/// S-3: a port in use is exit status 4 and is named.
#[test]
fn a_port_in_use_is_named() {
    let test = test();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let ran = test.run(&["serve", "--port", &port.to_string(), "--format", "json"]).exit(4);
    let document = value(&ran);
    assert_eq!(document["errors"][0]["address"], format!("127.0.0.1:{port}"));
    assert!(document["errors"][0]["message"].as_str().is_some_and(|message| message.contains(&port.to_string())));
    assert!(document["errors"][0]["code"].is_string());
}

/// S-19: `serve --link` asks the running server for a link; without one, the exit status is 4.
#[test]
fn a_login_link_comes_from_the_running_server() {
    let test = test();
    test.run(&["serve", "--link", "--format", "json"]).exit(4);
    let serving = Serving::start(&test, &["--port", "0", "--base-path", "/etude"]);
    let ran = test.run(&["serve", "--link", "--format", "json"]).exit(0);
    let (url, address) = (value(&ran)["url"].clone(), serving.line["addresses"][0].clone());
    let start = format!("{}/etude/#login=", address.as_str().expect("an address"));
    assert!(url.as_str().is_some_and(|url| url.starts_with(&start)), "{url} {start}");
    assert!(value(&ran)["expires_at"].is_string());
    // A newer server that hangs is passed over.
    let hung = Serving::start(&test, &["--port", "0"]);
    hung.signal("STOP");
    let ran = test.run(&["serve", "--link", "--format", "json"]).exit(0);
    assert!(value(&ran)["url"].as_str().is_some_and(|url| url.starts_with(&start)), "{}", ran.out());
    hung.signal("CONT");
    assert_eq!((hung.end().0, serving.end().0), (Some(0), Some(0)));
}

/// S-12: the connection of a request whose headers do not arrive is closed.
#[test]
fn slow_headers_end_the_connection() {
    let test = test();
    let serving = Serving::start(&test, &["--port", "0"]);
    let address = serving.line["addresses"][0].as_str().expect("an address").replace("http://", "");
    let mut stream = TcpStream::connect(&address).expect("a connection");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost:").expect("written");
    let mut rest = Vec::new();
    // The read ends with the connection, or never.
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(serving.end().0, Some(0));
}

/// Each app has a slug from the name of its directory; equal slugs are exit status 2.
#[test]
fn apps_have_slugs() {
    let test = test();
    test.put("other/Shop App/pipelines/q/pipeline.yaml", "name: q\ndescription: The pipeline q.\nsteps: []\n");
    let other = test.path("other/Shop App").display().to_string();
    let serving = Serving::start(&test, &[".", &other, "--port", "0"]);
    let token = fs::read_to_string(serve_dir(&test).join("owner.token")).expect("a token");
    let at = serving.line["addresses"][0].as_str().expect("an address").replace("http://", "");
    assert!(serving.get(&at, "/v1/server", token.trim()).contains(r#""apps":["app","shop-app"]"#));
    assert_eq!(serving.end().0, Some(0));
    let twice = format!("app={other}");
    test.run(&["serve", ".", &twice, "--port", "0"]).exit(2).stderr_has("have the slug `app`");
    test.run(&["serve", "tmp", "--port", "0"]).exit(2);
}

/// S-111: an app whose directory is missing affects no other app, and returns together with its directory.
#[test]
fn an_app_that_is_away_stops_alone() {
    let test = test();
    test.put("other/shop/pipelines/q/pipeline.yaml", "name: q\ndescription: The pipeline q.\nsteps: []\n");
    let (shop, gone) = (test.path("other/shop"), test.path("other/gone"));
    let serving = Serving::start(&test, &[".", &shop.display().to_string(), "--port", "0"]);
    fs::rename(&shop, &gone).expect("moved");
    let apps = serving.document("GET", "/v1/apps", "");
    assert_eq!((&apps["apps"][0]["app"], &apps["apps"][0]["diagnostics"]), (&json!("app"), &json!([])), "{apps}");
    assert_eq!(
        (&apps["apps"][1]["app"], &apps["apps"][1]["diagnostics"][0]["code"]),
        (&json!("shop"), &json!("P0101"))
    );
    assert_eq!(serving.document("GET", "/v1/apps/shop", "")["code"], "journal_unavailable");
    assert_eq!(serving.post("/v1/apps/shop/route", &json!({"request": "q"}))["code"], "journal_unavailable");
    fs::rename(&gone, &shop).expect("moved");
    assert_eq!(serving.document("GET", "/v1/apps/shop", "")["pipelines"][0]["name"], "q");
    assert_eq!(serving.end().0, Some(0));
}

/// cli: tokens are created, listed and revoked without a server, and only their hashes are kept.
#[test]
fn tokens_are_created_listed_and_revoked() {
    let test = test();
    let new =
        ["token", "new", "ci", "--scope", "read,run", "--only", "deploy-*", "--expires", "90d", "--format", "json"];
    let ran = test.run(&new).exit(0);
    let document = value(&ran);
    let token = document["token"].as_str().expect("a token").to_owned();
    assert!(token.starts_with("etd_"));
    assert_eq!(
        (&document["name"], &document["scopes"], &document["only"]),
        (&json!("ci"), &json!(["read", "run"]), &json!(["deploy-*"]))
    );
    test.run(&new).exit(2).stderr_has("there is already a token `ci`");
    test.run(&["token", "new", "no spaces", "--scope", "read"]).exit(2);
    test.run(&["token", "new", "x"]).exit(2);
    test.run(&["token", "new", "x", "--scope", "write"]).exit(2);
    let listed = value(&test.run(&["token", "list", "--format", "json"]).exit(0));
    assert_eq!((&listed["tokens"][0]["name"], listed["tokens"].as_array().map(Vec::len)), (&json!("ci"), Some(1)));
    assert!(!listed.to_string().contains(&token[4..]));
    assert!(!test.read("home/.local/state/etude/serve/tokens.json").contains(&token[4..]));
    let revoked = value(&test.run(&["token", "revoke", "ci", "--format", "json"]).exit(0));
    assert_eq!(revoked, json!({"name": "ci", "revoked": true}));
    test.run(&["token", "revoke", "ci"]).exit(2);
    test.run(&["token", "revoke", "owner"]).exit(2);
}

/// S-37, S-56, S-57, S-90, S-159: a killed server loses no run, and the next server completes it. A run of the command line is
/// listed, and `etude approve` continues a run of the server.
#[test]
fn the_next_server_completes_what_a_killed_one_has_left() {
    let wait = format!(
        "echo begun >> \"$LEDGER\"; while [ ! -e {} ]; do sleep 0.02; done; echo '{{\"output\": 1}}'",
        "\"$ROOT/go\""
    );
    let test = Test::new().pipeline("slow", |p| p.sh("a", &wait)).yaml(
        "ask",
        "name: ask\ndescription: The pipeline ask.\nsteps:\n  - {name: ok, type: approval, message: Deploy?}\n",
    );
    let mut serving = Serving::start(&test, &["--port", "0"]);
    let id = serving.post("/v1/runs", &json!({"pipeline": "slow"}))["run_id"].as_str().expect("an id").to_owned();
    test.wait_for("begun");
    serving.child.kill().expect("it is ours");
    serving.child.wait().expect("it ends");
    let listed = value(&test.run(&["runs", "list", "--format", "json"]).exit(0));
    assert_eq!((&listed["runs"][0]["run_id"], &listed["runs"][0]["status"]), (&json!(id), &json!("interrupted")));
    test.put("go", "");
    let serving = Serving::start(&test, &["--port", "0"]);
    serving.until(&format!("/v1/runs/{id}"), "succeeded");
    let waiting = serving.post("/v1/runs", &json!({"pipeline": "ask"}))["run_id"].as_str().expect("an id").to_owned();
    serving.until(&format!("/v1/runs/{waiting}"), "waiting");
    test.run(&["approve", &waiting]).exit(0);
    serving.until(&format!("/v1/runs/{waiting}"), "succeeded");
    let typed = value(&test.run(&["run", "-p", "slow", "--format", "json"]).exit(0));
    let path = format!("/v1/runs/{}", typed["run_id"].as_str().expect("an id"));
    let run = serving.until(&path, "succeeded");
    // S-58: the document matches that of the command line.
    assert_eq!((&run["cause"], &run["by"]), (&json!("cli"), &Value::Null));
    for member in ["run_id", "status", "mode", "pipeline", "output", "errors", "steps", "usage", "duration_ms"] {
        assert_eq!(run[member], typed[member], "{member}");
    }
    assert_eq!(serving.end().0, Some(0));
}

/// S-104, S-161: a run that kills its server three times stays interrupted, and the next server survives. That server ends the
/// remaining processes of the run, and the run blocks no tick of its schedule.
#[test]
fn a_run_that_kills_its_servers_is_left_alone() {
    // The kill must come after the response.
    let waits = "until [ -e \"$LEDGER.go\" ]; do sleep 0.02; done";
    let stops = "[ -e \"$LEDGER.stop\" ] && { echo '{\"output\": 1}'; exit; }";
    let left = "trap 'echo ended >> \"$LEDGER.left\"; exit' TERM; sleep 300 & wait";
    let kills = format!("{stops}; {waits}; echo killed >> \"$LEDGER\"; kill -9 $PPID; {left}");
    let test = Test::new().pipeline("killer", |p| p.sh("a", &kills));
    let schedule =
        |when: &str| test.put("app/etude.yaml", &format!("schedules: {{k: {{pipeline: killer, {when}}}}}\n"));
    schedule("cron: 0 0 29 2 *, timezone: UTC");
    let mut serving = Serving::start(&test, &["--port", "0"]);
    let fired = serving.post("/v1/schedules/app/k/fire", &json!({}));
    let id = fired["run_id"].as_str().expect("an id").to_owned();
    test.put("ledger.go", "");
    for _ in 0..2 {
        serving.child.wait().expect("it is killed");
        serving = Serving::start(&test, &["--port", "0"]);
    }
    serving.child.wait().expect("it is killed");
    let serving = Serving::start(&test, &["--port", "0"]);
    // The server has the run until then.
    crate::test::wait_until("the processes of each server end", || test.read("ledger.left").lines().count() == 3);
    let reason =
        "3 processes in a row died while they executed it, without a new record: servers no longer continue it";
    crate::test::wait_until("the list has the reason", || {
        serving.document("GET", "/v1/runs", "")["runs"][0]["reason"] == reason
    });
    let run = serving.until(&format!("/v1/runs/{id}"), "interrupted");
    assert_eq!(run["reason"], reason);
    let shown = value(&test.run(&["runs", "show", &id, "--format", "json"]).exit(0));
    assert_eq!((&shown["reason"], &shown["usage"]), (&json!(reason), &run["usage"]));
    let text = test.run(&["runs", "show", &id]).exit(0);
    assert!(text.out().contains(&format!("reason    {reason}")), "{}", text.out());
    let at = serving.line["addresses"][0].as_str().expect("an address").replace("http://", "");
    let page = serving.get(&at, &format!("/runs/{id}"), &serving.token());
    assert!(page.contains(&format!("{reason}; resume it to continue")), "{page}");
    let other = serving.post("/v1/runs?dry_run=true", &json!({"pipeline": "killer"}));
    assert_eq!(other["pipeline"], "killer");
    assert_eq!(test.ledger(), ["killed", "killed", "killed"]);
    test.put("ledger.stop", "");
    schedule("every: 1s");
    crate::test::wait_until("the schedule makes runs again", || {
        let ticks = serving.document("GET", "/v1/schedules/app/k/ticks", "")["ticks"].clone();
        ticks
            .as_array()
            .is_some_and(|ticks| ticks.iter().any(|tick| tick["kind"] == "tick" && tick["outcome"] == "ran"))
    });
    assert_eq!(serving.end().0, Some(0));
}

/// S-3, S-4: a server that does not start, for example because of an unknown flag, reports that in its own document.
#[test]
fn a_server_that_does_not_start_has_its_own_document() {
    let test = test();
    for args in [&["serve", "--bogus"] as &[&str], &["serve", "--port", "x"], &["--quiet", "serve", "--adopt", "none"]]
    {
        let ran = test.run(&[args, &["--format", "json"]].concat()).exit(2);
        let document = value(&ran);
        assert_eq!(document["addresses"], json!([]), "{args:?}");
        let error = document["errors"][0].as_object().expect("an error");
        assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "kind", "message"], "{args:?}");
    }
    let other = value(&test.run(&["run", "--bogus", "--format", "json"]).exit(2));
    assert_eq!((&other["status"], &other["addresses"]), (&json!("failed"), &Value::Null));
}

/// S-39: the diagnostics of an app are those of `etude check`, and like that command they start no program of the app.
#[test]
fn the_diagnostics_of_an_app_are_those_of_the_check() {
    let broken = "name: broken\ndescription: A pipeline.\nsteps:\n  - {name: a, type: code}\n";
    let test = test().yaml("broken", broken);
    test.put("app/app.skill.md", "---\nname: app\nmetadata: {role: main, paths: [./skills]}\n---\n");
    test.put(
        "app/skills/computed.skill.mjs",
        "import fs from 'node:fs';\nfs.appendFileSync(process.env.LEDGER, 'module\\n');\n\
         export const frontmatter = {name: ['comp', 'uted'].join('')};\nexport default () => 1;\n",
    );
    let serving = Serving::start(&test, &["--port", "0"]);
    let checked = value(&test.run(&["check", "--format", "json"]).exit(3))["diagnostics"].clone();
    assert_eq!(checked[0]["severity"], "error", "{checked}");
    let apps = serving.document("GET", "/v1/apps", "")["apps"].clone();
    let app = serving.document("GET", &format!("/v1/apps/{}", apps[0]["app"].as_str().expect("a slug")), "");
    assert_eq!((&apps[0]["diagnostics"], &app["diagnostics"]), (&checked, &checked));
    assert!(test.ledger().is_empty(), "{:?}", test.ledger());
    assert_eq!(serving.end().0, Some(0));
}

/// A program in place of the browser: `noted` is the file that it received.
struct FakeBrowser {
    bin: tempfile::TempDir,
}

impl FakeBrowser {
    fn new() -> Self {
        let bin = tempfile::tempdir().expect("a directory");
        let noted = bin.path().join("noted");
        for name in ["xdg-open", "open"] {
            let program = bin.path().join(name);
            fs::write(&program, format!("#!/bin/sh\necho \"$@\" > {0}.new; mv {0}.new {0}\n", noted.display()))
                .expect("written");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        }
        Self { bin }
    }

    fn start(&self, test: &Test, args: &[&str]) -> std::process::Child {
        let path = format!("{}:{}", self.bin.path().display(), std::env::var("PATH").expect("a path"));
        let mut command = test.command(args);
        command.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    }

    /// The page that the browser received, which only this user can read and which appears in no argument.
    fn page(&self) -> String {
        let noted = self.bin.path().join("noted");
        crate::test::wait_until("the browser", || noted.exists());
        let argument = fs::read_to_string(&noted).expect("an argument");
        assert!(!argument.contains("login="), "{argument}");
        let file = std::path::Path::new(argument.trim());
        assert_eq!(fs::metadata(file).expect("a file").permissions().mode() & 0o777, 0o600);
        fs::read_to_string(file).expect("a page")
    }
}

/// `--open` gives the browser a file that only this user can read, and no secret in its arguments.
#[test]
fn open_leads_a_browser_to_the_pages() {
    let test = test();
    let browser = FakeBrowser::new();
    let serving = Serving::of(browser.start(&test, &["serve", "--format", "json", "--port", "0", "--open"]));
    let link = format!("{}/#login=", serving.line["addresses"][0].as_str().expect("an address"));
    let page = browser.page();
    assert!(page.contains(&link), "{page}");
    assert_eq!(serving.end().0, Some(0));
}

/// `run --web` opens the page of the run, continues when its question is answered, and stays until Ctrl-C.
#[test]
fn web_shows_the_run_and_goes_on_after_an_answer() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1").step("name: ask\ntype: approval\nmessage: Go on?").note("b", "2"));
    let browser = FakeBrowser::new();
    let mut child = browser.start(&test, &["run", "--pipeline", "p", "--web", "--format", "json"]);
    let page = browser.page();
    let (_, rest) = page.split_once("/runs/").expect("the page of a run");
    let (id, _) = rest.split_once("#login=").expect("a login link");
    let mut err = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut until = |words: &str| err.by_ref().map(|line| line.expect("text")).find(|line| line.contains(words));
    let announced = until("waiting for an answer: http://").expect("the question");
    assert!(announced.ends_with(&format!("/runs/{id}")), "{announced}");
    test.run(&["approve", id, "--server", "local"]).exit(0);
    let mut document = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut document).expect("a line");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!((&document["status"], &document["run_id"]), (&json!("succeeded"), &json!(id)));
    assert_eq!(test.ledger(), ["a", "b"]);
    until("the page stays until Ctrl-C: http://").expect("the address");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    test.run(&["run", "--pipeline", "p", "--web", "--server", "local"]).exit(2);
}

/// S-40: a request in words finds its pipeline and parameters as with `etude route` and `etude run`.
#[test]
fn a_request_in_words_is_routed_and_run() {
    let test = Test::new()
        .pipeline("tally", |p| {
            p.with("input: {count: integer, name: {type: string, default: all}}")
                .sh("a", "cat >/dev/null; echo '{\"output\": 1}'")
        })
        .pipeline("greet", |p| p.note("b", "2"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let here = value(&test.run(&["route", "tally count=7", "--format", "json"]).exit(0));
    assert_eq!(serving.post("/v1/apps/app/route", &json!({"request": "tally count=7"})), here);
    let body = json!({"request": "tally count=7", "input": {"name": "mine"}});
    let run = serving.post("/v1/runs", &body);
    assert_eq!((&run["pipeline"], &run["input"]), (&json!("tally"), &json!({"count": 7, "name": "mine"})), "{run}");
    let path = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    serving.until(&path, "succeeded");
    assert_eq!(serving.document("GET", &format!("{path}/output"), ""), json!(1));
    assert_eq!(serving.document("GET", &format!("{path}/input"), ""), json!({"count": 7, "name": "mine"}));
    for (body, code, pointer) in [
        (json!({"request": "paint the house"}), "no_pipeline_matched", Value::Null),
        (json!({"request": "tally count=abc"}), "input_invalid", Value::Null),
        (json!({"request": "tally count=7", "pipeline": "tally"}), "input_invalid", json!("/request")),
        (json!({"request": " "}), "input_invalid", json!("/request")),
    ] {
        let refused = serving.post("/v1/runs", &body);
        assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&json!(code), &pointer), "{body}: {refused}");
    }
    assert!(serving.post("/v1/runs", &json!({"request": "paint the house"}))["candidates"].is_array());
    assert_eq!(serving.document("POST", "/v1/runs", "")["code"], "malformed");
    let there = test.run(&["run", "tally count=7", "--server", "local", "--format", "json"]).exit(0);
    assert_eq!(value(&there)["output"], 1);
    assert_eq!(serving.end().0, Some(0));
}

/// Section 3: a command of an application runs, and one that needs confirmation by a person is refused with its envelope.
#[test]
fn commands_of_applications_run_over_http() {
    let test = crate::echo_box::with(&[]).pipeline("p", |p| p.note("a", "1"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let run = |body: Value| serving.post("/v1/apps/app/commands/echo-box", &body);
    let ran = run(json!({"argv": ["args", "word", "--", "-x"]}));
    assert_eq!((&ran["status"], &ran["output"]["args"]), (&json!("succeeded"), &json!(["word", "--", "-x"])), "{ran}");
    let started = crate::echo_box::started(&test).len();
    for (body, code) in [
        (json!({"argv": ["wipe", "--confirm"]}), "confirmation_required"),
        (json!({"argv": ["nothing"]}), "not_found"),
        (json!({"argv": []}), "input_invalid"),
        (json!({"argv": "args"}), "input_invalid"),
    ] {
        let refused = run(body.clone());
        assert_eq!(refused["code"], code, "{body}: {refused}");
    }
    assert_eq!(run(json!({"argv": ["wipe", "--confirm"]}))["envelope"]["status"], "confirmation_required");
    assert_eq!(serving.post("/v1/apps/app/commands/none", &json!({"argv": ["a"]}))["code"], "not_found");
    assert_eq!(crate::echo_box::started(&test).len(), started, "nothing else is started");
    let untrusted = Test::new();
    crate::echo_box::put(&untrusted, crate::echo_box::PROJECT, &[]);
    let untrusted = untrusted.pipeline("p", |p| p.note("a", "1"));
    let other = Serving::start(&untrusted, &["--port", "0"]);
    let refused = other.post("/v1/apps/app/commands/echo-box", &json!({"argv": ["args"]}));
    assert_eq!(refused["code"], "not_trusted", "{refused}");
    assert_eq!((serving.end().0, other.end().0), (Some(0), Some(0)));
}

/// S-75, S-83: a run that a command line drives streams through the server, which cannot resume it meanwhile.
#[test]
fn a_run_of_the_command_line_streams_and_is_busy() {
    let test = Test::new().pipeline("gate", |p| {
        p.sh("a", "while [ ! -e \"$ROOT/go\" ]; do sleep 0.01; done; echo '{\"output\": 1}'").note("b", "2")
    });
    let serving = Serving::start(&test, &["--port", "0"]);
    let mut command = test.command(&["run", "--pipeline", "gate", "--format", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut run = Value::Null;
    crate::test::wait_until("the run", || {
        run = serving.document("GET", "/v1/runs?status=running", "")["runs"][0].clone();
        run["run_id"].is_string()
    });
    let path = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    let busy = serving.post(&format!("{path}/resume"), &json!({}));
    assert_eq!((&busy["code"], &busy["pid"]), (&json!("run_is_busy"), &json!(child.id())), "{busy}");
    let events = serving.follow(&format!("{path}/events"), || test.put("go", ""));
    let steps: Vec<&str> = events
        .iter()
        .filter(|event| event["event"] == "step_ended")
        .filter_map(|event| event["step"].as_str())
        .collect();
    assert_eq!((steps, &events.last().expect("an end")["event"]), (vec!["a", "b"], &json!("ended")));
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(serving.end().0, Some(0));
}

/// S-162: two servers of one journal share queue and decisions: each run is driven once, and either server accepts a decision.
#[test]
fn two_servers_share_queue_and_decisions() {
    let test = Test::new()
        .pipeline("p", |p| p.note("a", "1"))
        .pipeline("ask", |p| p.step("name: ask\ntype: approval\nmessage: Go on?").note("b", "2"));
    let servers = [Serving::start(&test, &["--port", "0"]), Serving::start(&test, &["--port", "0"])];
    let started: Vec<String> = (0..12)
        .map(|nth| {
            let run = servers[nth % 2].post("/v1/runs", &json!({"pipeline": "p"}));
            run["run_id"].as_str().expect("an id").to_owned()
        })
        .collect();
    for (nth, id) in started.iter().enumerate() {
        servers[(nth + 1) % 2].until(&format!("/v1/runs/{id}"), "succeeded");
    }
    assert_eq!(test.ledger().len(), 12);
    let run = servers[0].post("/v1/runs", &json!({"pipeline": "ask"}));
    let path = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    servers[1].until(&path, "waiting");
    let decision = servers[1].document("GET", "/v1/decisions", "")["decisions"][0].clone();
    let id = decision["id"].as_str().expect("an id").replace('/', "%2F");
    servers[1].post(&format!("/v1/decisions/{id}"), &json!({"approved": true, "question": decision["question"]}));
    servers[0].until(&path, "succeeded");
    assert_eq!(servers[0].document("GET", "/v1/decisions", "")["decisions"], json!([]));
    assert_eq!(test.ledger().len(), 13);
    for server in servers {
        assert_eq!(server.end().0, Some(0));
    }
}

/// S-161: if a server stops completing a run, its log has the reason and does not blame another process.
#[test]
fn a_run_that_stops_is_not_logged_as_taken() {
    let ask = |message: &str| {
        format!(
            "name: ask\ndescription: The pipeline ask.\nsteps:\n  - {{name: ok, type: approval, message: {message}}}\n"
        )
    };
    let test = Test::new().yaml("ask", &ask("Deploy?"));
    let serving = Serving::start(&test, &["--port", "0"]);
    let path = format!(
        "/v1/runs/{}",
        serving.post("/v1/runs", &json!({"pipeline": "ask"}))["run_id"].as_str().expect("an id")
    );
    serving.until(&path, "waiting");
    test.put("app/pipelines/ask/pipeline.yaml", &ask("Really?"));
    let decision = serving.document("GET", "/v1/decisions", "")["decisions"][0].clone();
    let id = decision["id"].as_str().expect("an id").replace('/', "%2F");
    serving.post(&format!("/v1/decisions/{id}"), &json!({"approved": true, "question": decision["question"]}));
    serving.until(&path, "failed");
    let (_, stderr) = serving.end();
    let logged = stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events: Vec<String> = logged.filter_map(|line| Some(line["event"].as_str()?.to_owned())).collect();
    assert!(events.contains(&"stopped".to_owned()) && !events.contains(&"lost".to_owned()), "{stderr}");
}
