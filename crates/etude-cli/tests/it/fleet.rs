//! Runs in a shared database. Another machine is simulated by another home, which has no data of a run.

use serde_json::json;

use crate::database::Server;
#[cfg(feature = "serve")]
use crate::fleet_workers::WORKER;
use crate::ran::Ran;
#[cfg(feature = "serve")]
use crate::serve::Serving;
#[cfg(feature = "serve")]
use crate::test::wait_until;
use crate::test::{Test, noting, printing};

/// Password that must never be shown.
pub(crate) const PASSWORD: &str = "canary-0815-never-shown";

/// URL of the server, with a password, for `ETUDE_ENGINE`.
pub(crate) fn url(server: &Server) -> String {
    server.url("etude").replace("postgres://etude@", &format!("postgres://etude:{PASSWORD}@"))
}

/// Format of the schema.
const FORMAT: u32 = 10;

/// A migrated schema, and a test whose commands use it.
pub(crate) fn fleet(server: &Server, test: Test) -> Test {
    fleet_of(&url(server), test)
}

/// The same by a URL.
pub(crate) fn fleet_of(url: &str, test: Test) -> Test {
    let test = test.env("ETUDE_ENGINE", url);
    test.run(&["engine", "migrate", "--format", "json"]).exit(0).has("/to", FORMAT);
    test
}

/// Applies rules of a fleet.
pub(crate) fn apply(test: &Test, rules: &str) -> Ran {
    test.put("rules.yaml", rules);
    let rules = test.path("rules.yaml").display().to_string();
    test.run(&["engine", "apply", "--config", &rules, "--format", "json"]).exit(0)
}

/// The same app on another machine.
pub(crate) fn elsewhere(test: Test, machine: &str) -> Test {
    let home = test.path(machine);
    test.env("XDG_STATE_HOME", &home.join("state").display().to_string())
        .env("XDG_CACHE_HOME", &home.join("cache").display().to_string())
}

pub(crate) fn list(test: &Test) -> Ran {
    test.run(&["runs", "list", "--format", "json"]).exit(0)
}

/// The engine is chosen by precedence, and invalid URLs are refused before anything connects.
#[test]
fn an_engine_is_chosen_and_its_url_checked() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let refused = |url: &str, code: i32| test.run(&["runs", "list", "--engine", url]).exit(code);
    refused("mysql://localhost/x", 2).stderr_has("postgres://");
    refused("postgres://localhost/x?schema=a;b", 2).stderr_has("schema");
    let ran = refused(&format!("postgres://ada:{PASSWORD}@localhost/x"), 2).stderr_has("ETUDE_ENGINE");
    assert!(!ran.err().contains(PASSWORD), "{}", ran.err());
    refused("postgres://db.example.com/x?sslmode=full", 2).stderr_has("verify-full");
    refused("postgres://localhost/x?sslrootcert=/missing.crt&sslmode=verify-full", 4)
        .stderr_has("`/missing.crt` cannot be read");
    test.run(&["runs", "list", "--engine", "postgres:///x", "--server", "local"]).exit(2);
    test.run(&["engine", "check"]).exit(2).stderr_has("--engine");
    // The variable is ignored if the journal of this machine is requested.
    let test = test.env("ETUDE_ENGINE", "mysql://localhost/x");
    test.run_json("p").exit(2);
    test.run(&["run", "-p", "p", "--engine", "embedded", "--format", "json"]).output(1);
    test.run(&["runs", "list", "--engine", "embedded", "--format", "json"]).has("/total", 1);
}

/// Number of listed runs.
pub(crate) fn count(test: &Test) -> usize {
    list(test).at("/runs").as_array().map_or(0, Vec::len)
}

/// A run, its record and its decision are visible from two machines that share only the database. `etude run` follows a run of
/// a worker. K-38: a later decision gets the first one.
#[cfg(feature = "serve")]
#[test]
fn machines_share_runs() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        let large = "x".repeat(300_000);
        p.sh(
            "large",
            &format!(
                "cat >/dev/null; printf '{{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"}}'; {}",
                noting("large")
            ),
        )
        .step("name: gate\ntype: approval\nmessage: Go on?\n")
        .sh("size", &format!("grep -c {} >/dev/null && echo '{{\"output\":true}}'", &large[..100]))
    });
    let without = test.env("ETUDE_ENGINE", &url(&server));
    without.run_json("p").exit(4).stderr_has("etude engine migrate");
    let test = fleet(&server, without);
    test.run(&["engine", "check", "--format", "json"])
        .exit(4)
        .has("/engine/kind", "postgresql")
        .has("/engine/schema", "etude")
        .has("/engine/format", FORMAT)
        // The server of the tests does not sync.
        .has("/checks/1/id", "fsync")
        .has("/checks/1/status", "error")
        .has("/checks/3/status", "ok")
        .has("/checks/4/status", "ok");
    let worker = test.start(&WORKER);
    let id = test.run_json("p").exit(5).has("/status", "waiting").id();
    assert!(test.files_below("home/.local").iter().all(|file| !file.ends_with("journal.db")), "no journal here");
    let test = elsewhere(test, "second");
    assert_eq!(count(&test), 1);
    list(&test).has("/runs/0/status", "waiting").has("/next", json!(null)).has("/runs/0/queue", "default");
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/status", "waiting").has("/tenant", "default");
    test.run(&["approve", &id, "--format", "json", "--by", "ada"]).exit(0).has("/decision", "approved");
    test.run(&["deny", &id, "--format", "json"])
        .exit(2)
        .has("/errors/0/decision/approved", true)
        .has("/errors/0/decision/by", "ada");
    wait_until("the end of the run", || list(&test).doc()["runs"][0]["status"] == "succeeded");
    test.run(&["deny", &id, "--format", "json"]).exit(2).has("/errors/0/decision/by", "ada");
    test.run(&["runs", "resume", &id, "--format", "json"]).output(true);
    assert_eq!(test.ledger(), ["large"]);
    worker.terminate();
    worker.finish().exit(0);
    test.run(&["runs", "backup", "copy.tar"]).exit(2).stderr_has("pg_dump");
    assert!(test.run(&["doctor"]).out().contains("in a database"));
    test.run(&["runs", "prune", "--older-than", "0s"]).exit(0);
    assert_eq!(count(&test), 0);
}

/// K-53: steps get neither the URL nor a variable of libpq, and the password is in no document, journal or file.
#[cfg(feature = "serve")]
#[test]
fn no_step_and_no_record_has_the_password() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.sh("show", &format!("env | sort > \"$ROOT/env\"; {}", printing("1"))))
        .env("PGPASSWORD", PASSWORD)
        .env("PGAPPNAME", PASSWORD);
    let test = fleet(&server, test);
    let worker = test.start(&WORKER);
    let ran = test.run_json("p").output(1);
    worker.terminate();
    worker.finish().exit(0);
    let names: Vec<String> = test
        .read("env")
        .lines()
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.to_owned()))
        .filter(|name| name.starts_with("PG") || name == "ETUDE_ENGINE")
        .collect();
    assert_eq!(names, [""; 0]);
    assert!(!test.read("env").contains(PASSWORD));
    let export = test.run(&["runs", "export", &ran.id()]).exit(0);
    for text in [ran.out(), ran.err(), export.out()] {
        assert!(!text.contains(PASSWORD));
    }
    for file in test.files_below("home") {
        let bytes = std::fs::read(&file).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(PASSWORD), "{}", file.display());
    }
    let dump = server.sql("select string_agg(t::text, '') from (select convert_from(body, 'UTF8') from etude.headers union all select convert_from(body, 'UTF8') from etude.records) t");
    assert!(!dump.contains(PASSWORD));
    // Without an engine in a database, these variables belong to the user.
    let test = test.without_env("ETUDE_ENGINE");
    test.run_json("p").output(1);
    assert!(test.read("env").contains("PGAPPNAME"));
}

/// K-53: variables in the configured address reach no step, not even by name, also if the address is not used.
#[test]
fn no_step_gets_what_the_configured_address_is_made_of() {
    let test = Test::new()
        .pipeline("p", |p| p.sh("show", &format!("env > \"$ROOT/env\"; {}", printing("1"))))
        .pipeline("named", |p| p.sh_with("a", &noting("a"), "env: {X: {from_env: FLEET_WORD}}"))
        .user_config("engine: {url: \"postgres://ada:${env:FLEET_WORD}@localhost/x\"}\n")
        .env("FLEET_WORD", PASSWORD);
    test.run(&["run", "-p", "p", "--engine", "embedded", "--format", "json"]).output(1);
    assert!(!test.read("env").contains("FLEET_WORD") && !test.read("env").contains(PASSWORD));
    let ran = test.run(&["run", "-p", "named", "--engine", "embedded", "--format", "json"]).exit(3);
    assert!(ran.out().contains("is never passed to a step"), "{}", ran.out());
}

/// K-53: a file with a key of the user is never packed, however the key is written in it.
#[test]
fn no_key_is_packed() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| p.note("a", "1")).env("OPENAI_API_KEY", PASSWORD);
    let test = fleet(&server, test);
    for text in [PASSWORD.to_owned(), "eyJrIjoiY2FuYXJ5LTA4MTUtbmV2ZXItc2hvd24ifQ==".to_owned()] {
        test.put("app/notes/keys.txt", &format!("k = {text}\n"));
        let ran = test.run(&["push"]).exit(2).stderr_has("`notes/keys.txt` contains one of your keys");
        assert!(!ran.err().contains(&text), "{}", ran.err());
    }
    assert_eq!(server.sql("select count(*) from etude.entries").trim(), "0");
    test.put("app/notes/keys.txt", "k = ${OPENAI_API_KEY}\n");
    test.run(&["push"]).exit(0);
}

/// K-53: the password of the database counts as a key of the user, from any source.
#[test]
fn no_password_of_the_database_is_packed() {
    let Some(server) = Server::start() else { return };
    let named = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    let without = server.url("etude");
    let apart = |test: Test| test.env("ETUDE_ENGINE", &without);
    let of_libpq = || apart(Test::new().pipeline("p", |p| p.note("a", "1")).env("PGPASSWORD", PASSWORD));
    let of_file = || {
        let test = apart(Test::new().pipeline("p", |p| p.note("a", "1")));
        test.put("home/.pgpass", &format!("*:*:*:*:{PASSWORD}\n"));
        test
    };
    for test in [named, of_libpq(), of_file()] {
        test.put("app/notes.txt", &format!("k = {PASSWORD}\n"));
        test.run(&["push"]).exit(2).stderr_has("`notes.txt` contains one of your keys");
    }
}

/// K-54: a server ignores `--yolo` in the header of a run that was written into the database.
#[cfg(feature = "serve")]
#[test]
fn the_database_grants_a_run_nothing() {
    let Some(server) = Server::start() else { return };
    let tool = "name: cancel\ndescription: Cancels it.\ncommand: sh tools/cancel.sh\ngated: true\ninputSchema: {type: object}\n";
    let test = Test::new()
        .file("tools/cancel.yaml", tool)
        .file(
            "tools/cancel.sh",
            &format!("cat >/dev/null; {}; printf '{{\"ok\": true, \"value\": 1}}'\n", noting("cancel")),
        )
        .pipeline("p", |p| p.step("name: gone\ntype: tool\ntool: cancel\nargs: {}"));
    let test = fleet(&server, test);
    let serving = Serving::start(&test, &["--port", "0"]);
    let later = json!({"pipeline": "p", "not_before": "2199-01-01T00:00:00Z"});
    let id = serving.post("/v1/runs", &later)["run_id"].as_str().expect("an id").to_owned();
    let text = "convert_from(body, 'UTF8')";
    let granted = r#"{"granted":{"yolo":true,"read":["/"],"write":["/"]},"#;
    server.sql(&format!("update etude.headers set body = convert_to('{granted}' || substr({text}, 2), 'UTF8')"));
    assert_eq!(server.sql(&format!("select count(*) from etude.headers where {text} like '%yolo%'")).trim(), "1");
    server.sql("update etude.queue set not_before_ms = 0, is_asleep = false");
    let path = format!("/v1/runs/{id}");
    wait_until("the end of the run", || serving.document("GET", &path, "")["ended_at"].is_string());
    assert_eq!((serving.document("GET", &path, "")["status"].clone(), test.ledger()), (json!("failed"), Vec::new()));
    assert_eq!(serving.end().0, Some(0));
}

/// K-53: no step gets etude's own variables by naming them, and nothing is started.
#[test]
fn no_step_takes_the_address_of_the_database() {
    let test = Test::new()
        .env("ETUDE_ENGINE", "embedded")
        .env("ETUDE_TOKEN", PASSWORD)
        .pipeline("engine", |p| p.sh_with("a", &noting("a"), "env: {X: {from_env: ETUDE_ENGINE}}"))
        .pipeline("token", |p| p.sh_with("a", &noting("a"), "env: {X: {from_env: ETUDE_TOKEN}}"));
    for name in ["engine", "token"] {
        let ran = test.run_json(name).exit(3).has("/errors/0/kind", "definition_invalid");
        assert!(ran.out().contains("is never passed to a step"), "{}", ran.out());
    }
    assert_eq!(test.ledger(), [""; 0]);
}

/// A server's runs are in the database: another server lists them, and their queue is shared.
#[cfg(feature = "serve")]
#[test]
fn servers_share_runs() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let test = fleet(&server, test);
    let first = Serving::start(&test, &["--port", "0"]);
    test.run(&["run", "-p", "p", "--server", "local", "--format", "json"]).output(1);
    let other = elsewhere(test, "second");
    let second = Serving::start(&other, &["--port", "0"]);
    let runs = second.document("GET", "/v1/runs", "");
    assert_eq!((&runs["runs"][0]["status"], runs["runs"].as_array().map(Vec::len)), (&json!("succeeded"), Some(1)));
    assert_eq!(first.end().0, Some(0));
    other.run(&["run", "-p", "p", "--server", "local", "--format", "json"]).output(1);
    assert_eq!(count(&other), 2);
    assert_eq!(second.end().0, Some(0));
}

/// A run of a killed server is taken over by a server on another machine, without a command: its recorded step does not start
/// again, and its destructor runs there (K-14).
#[cfg(feature = "serve")]
#[test]
fn a_server_takes_over_the_runs_of_a_killed_one() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            p.note("first", "1")
                .sh("second", &format!("{}; [ -e \"$ROOT/go\" ] || sleep 600; {}", noting("second"), printing("2")))
        })
        .pipeline("_constructor", |p| p.note("begin", "0"))
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let mut first = Serving::start(&test, &["--port", "0"]);
    let accepted = first.document("POST", "/v1/runs", r#"{"pipeline": "p"}"#);
    assert!(accepted["run_id"].is_string(), "{accepted}");
    test.wait_for("second");
    let test = elsewhere(test, "second");
    let second = Serving::start(&test, &["--port", "0"]);
    first.child.kill().expect("SIGKILL");
    first.child.wait().expect("it is dead");
    test.put("go", "");
    test.wait_for("end");
    wait_until("the end of the run", || list(&test).doc()["runs"][0]["status"] == "succeeded");
    assert_eq!(test.ledger(), ["begin", "first", "second", "second", "end"]);
    assert_eq!(second.end().0, Some(0));
}

/// A command waits for a database that does not respond, and then reports an environment error.
#[test]
fn a_database_that_does_not_answer_is_reported() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let ran =
        test.run(&["runs", "list", "--engine", "postgres://ada@/x?host=/nonexistent", "--format", "json"]).exit(4);
    ran.has("/errors/0/kind", json!("environment"));
}
