//! Runs in a database that machines share. Another machine is another home: nothing of a run is in it.

use serde_json::json;

use crate::database::Server;
use crate::ran::Ran;
#[cfg(feature = "serve")]
use crate::serve::Serving;
#[cfg(feature = "serve")]
use crate::test::Running;
#[cfg(feature = "serve")]
use crate::test::wait_until;
use crate::test::{Test, noting, printing};

/// Nothing of it may ever be seen.
const PASSWORD: &str = "canary-0815-never-shown";

/// The URL of the server, with a password, for `ETUDE_ENGINE`.
fn url(server: &Server) -> String {
    server.url("etude").replace("postgres://etude@", &format!("postgres://etude:{PASSWORD}@"))
}

/// A schema, and a test whose commands use it.
fn fleet(server: &Server, test: Test) -> Test {
    let test = test.env("ETUDE_ENGINE", &url(server));
    test.run(&["engine", "migrate", "--format", "json"]).exit(0).has("/to", 1);
    test
}

/// The same app on another machine.
fn elsewhere(test: Test, machine: &str) -> Test {
    let home = test.path(machine);
    test.env("XDG_STATE_HOME", &home.join("state").display().to_string())
        .env("XDG_CACHE_HOME", &home.join("cache").display().to_string())
}

fn list(test: &Test) -> Ran {
    test.run(&["runs", "list", "--format", "json"]).exit(0)
}

/// Which engine is used, and which URLs are refused before anything connects.
#[test]
fn an_engine_is_chosen_and_its_url_checked() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let refused = |url: &str, code: i32| test.run(&["runs", "list", "--engine", url]).exit(code);
    refused("mysql://localhost/x", 2).stderr_has("postgres://");
    refused("postgres://localhost/x?schema=a;b", 2).stderr_has("schema");
    let ran = refused(&format!("postgres://ada:{PASSWORD}@localhost/x"), 2).stderr_has("ETUDE_ENGINE");
    assert!(!ran.err().contains(PASSWORD), "{}", ran.err());
    refused("postgres://db.example.com/x", 4).stderr_has("sslmode=disable");
    refused("postgres://localhost/x?sslmode=verify-full", 4).stderr_has("TLS");
    test.run(&["runs", "list", "--engine", "postgres:///x", "--server", "local"]).exit(2);
    test.run(&["engine", "check"]).exit(2).stderr_has("--engine");
    // What is set is not used if the journal of this machine is asked for.
    let test = test.env("ETUDE_ENGINE", "mysql://localhost/x");
    test.run_json("p").exit(2);
    test.run(&["run", "-p", "p", "--engine", "embedded", "--format", "json"]).output(1);
    test.run(&["runs", "list", "--engine", "embedded", "--format", "json"]).has("/total", 1);
}

/// A run, its record and its decision from two machines that share nothing but the database.
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
        .has("/engine/format", 1)
        // The server of the tests does not sync.
        .has("/checks/1/id", "fsync")
        .has("/checks/1/status", "error")
        .has("/checks/3/status", "ok")
        .has("/checks/4/status", "ok");
    let id = test.run_json("p").exit(5).has("/status", "waiting").id();
    assert!(test.files_below("home/.local").iter().all(|file| !file.ends_with("journal.db")), "no journal here");
    let test = elsewhere(test, "second");
    list(&test).has("/total", 1).has("/runs/0/status", "waiting");
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/status", "waiting");
    test.run(&["approve", &id, "--format", "json"]).exit(0).has("/decision", "approved");
    test.run(&["deny", &id]).exit(2);
    test.run(&["runs", "resume", &id, "--format", "json"]).output(true);
    assert_eq!(test.ledger(), ["large"]);
    list(&test).has("/runs/0/status", "succeeded");
    test.run(&["runs", "backup", "copy.tar"]).exit(2).stderr_has("pg_dump");
    assert!(test.run(&["doctor"]).out().contains("in a database"));
    test.run(&["runs", "prune", "--older-than", "0s"]).exit(0);
    list(&test).has("/total", 0);
}

/// K-14: a run whose process is killed is continued on another machine, no recorded step is started again, and the destructor runs
/// there.
#[test]
fn a_killed_run_continues_on_another_machine() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            p.note("first", "1")
                .sh("second", &format!("{}; [ -e \"$ROOT/go\" ] || sleep 600; {}", noting("second"), printing("2")))
        })
        .pipeline("_constructor", |p| p.note("begin", "0"))
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let running = test.start(&["run", "-p", "p", "--format", "json"]);
    test.wait_for("second");
    let busy = test.run(&["runs", "resume", "latest", "--format", "json"]).exit(4);
    let name = format!("-{}-", running.id());
    assert!(busy.out().contains(&name), "it names the worker: {}", busy.out());
    running.kill();
    test.put("go", "");
    let test = elsewhere(test, "second");
    test.run(&["runs", "resume", "latest", "--format", "json"]).output(2);
    assert_eq!(test.ledger(), ["begin", "first", "second", "second", "end"]);
    list(&test).has("/total", 1).has("/runs/0/status", "succeeded");
}

/// Steps get neither the URL nor a variable of libpq, and the password is in no document, journal or file.
#[test]
fn no_step_and_no_record_has_the_password() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.sh("show", &format!("env | sort > \"$ROOT/env\"; {}", printing("1"))))
        .env("PGPASSWORD", PASSWORD)
        .env("PGAPPNAME", PASSWORD);
    let test = fleet(&server, test);
    let ran = test.run_json("p").output(1);
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
    // Without an engine in a database, they are the user's own.
    let test = test.without_env("ETUDE_ENGINE");
    test.run_json("p").output(1);
    assert!(test.read("env").contains("PGAPPNAME"));
}

/// A server's runs are in the database: another server lists them, and its queue is the same.
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
    list(&other).has("/total", 2);
    assert_eq!(second.end().0, Some(0));
}

/// A run of a server that is killed is taken over by a server on another machine, without a command: its recorded step is not started
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
    assert_eq!(accepted["status"], "queued", "{accepted}");
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

/// The events that a worker has printed so far.
#[cfg(feature = "serve")]
fn events(running: &Running) -> Vec<serde_json::Value> {
    running.stdout_so_far().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(feature = "serve")]
const WORKER: [&str; 3] = ["worker", "--format", "jsonl"];

/// K-28, K-29, K-50: a run is submitted with its app, and a worker that has never seen the app drives it, whatever the files of
/// the submitter are by then. With the same key it is the same run.
#[cfg(feature = "serve")]
#[test]
fn a_worker_drives_what_another_machine_has_submitted() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        p.with("input: {n: {type: integer}}").sh("a", &format!(
            "cat \"$ETUDE_APP_DIR/helper.txt\" >> \"$LEDGER\"; [ \"$ETUDE_CALLER_DIR\" = \"$ETUDE_APP_DIR\" ] && echo x > \"$ETUDE_APP_DIR/left\"; {}",
            printing("\"done\"")
        ))
    });
    let test = test.file("helper.txt", "packed\n").file(".env", "KEY=canary\n");
    let test = fleet(&server, test);
    let submit = |n: &str, key: &str| {
        test.run(&["run", "-p", "p", "-i", n, "--detach", "--key", key, "--label", "of=test", "--format", "json"])
    };
    test.run(&["run", "-p", "p", "-i", "n=1", "--detach", "--engine", "embedded"]).exit(2).stderr_has("--engine");
    test.run(&["run", "-p", "p", "-i", "n=1", "--detach", "--yolo"]).exit(2).stderr_has("--yolo");
    let first = submit("n=1", "k").exit(0).has("/status", "queued").has("/replayed", false);
    let id = first.id();
    assert_eq!(submit("n=1", "k").exit(0).has("/replayed", true).id(), id);
    submit("n=2", "k").exit(2).has("/errors/0/kind", "input_invalid");
    list(&test).has("/total", 1).has("/runs/0/status", "queued");
    let pushed = test.run(&["push", "--format", "json"]).exit(0).has("/uploaded", false).has("/name", "app");
    assert!(pushed.at("/files").as_u64().is_some_and(|files| files >= 3), "{}", pushed.out());
    // What is submitted stays what it is.
    test.put("app/helper.txt", "edited later\n");
    std::fs::remove_dir_all(test.path("app/pipelines")).expect("it is there");
    let elsewhere = elsewhere(test, "second");
    let worker = elsewhere.start(&[&WORKER[..], &["--idle", "1s"]].concat());
    let ran = worker.finish().exit(0);
    let said: Vec<serde_json::Value> =
        ran.out().lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let words: Vec<&str> = said.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(words, ["ready", "claimed", "released", "stopped"], "{}", ran.err());
    assert_eq!(
        (&said[1]["run_id"], &said[2]["reason"], &said[3]["reason"]),
        (&json!("[RUN]"), &json!("finished"), &json!("idle"))
    );
    elsewhere
        .run(&["runs", "show", &id, "--format", "json"])
        .exit(0)
        .has("/status", "succeeded")
        .has("/output", "done");
    assert_eq!(elsewhere.ledger(), ["packed"]);
    assert!(!elsewhere.path("app/left").exists(), "the submitter's files are its own");
    assert!(!elsewhere.path("second/cache/etude/fleet/runs").join(&id).exists(), "the copy is gone");
    let kept = server.sql("select string_agg(encode(body, 'escape'), '') from etude.chunks");
    assert!(!kept.contains("canary"), "no key leaves the machine");
}

/// K-12, K-14: a run of a worker that is killed is continued by another one, no recorded step is started again, and the destructor
/// runs there. A decision from any machine continues a run that waits (K-41), and a worker that drains hands its run over (K-27).
#[cfg(feature = "serve")]
#[test]
fn workers_take_over_wait_and_drain() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| {
            p.note("first", "1")
                .sh("second", &format!("{}; [ -e \"$ROOT/go\" ] || sleep 600; {}", noting("second"), printing("2")))
                .step("name: gate\ntype: approval\nmessage: Go on?\n")
                .sh(
                    "third",
                    &format!("{}; until [ -e \"$ROOT/on\" ]; do sleep 0.05; done; {}", noting("third"), printing("3")),
                )
                .note("fourth", "4")
        })
        .pipeline("_constructor", |p| p.note("begin", "0"))
        .pipeline("_destructor", |p| p.note("end", "3"));
    let test = fleet(&server, test);
    let id = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let first = test.start(&WORKER);
    test.wait_for("second");
    first.kill();
    test.put("go", "");
    let test = elsewhere(test, "second");
    let second = test.start(&WORKER);
    wait_until("the question", || list(&test).doc()["runs"][0]["status"] == "waiting");
    test.run(&["approve", &id]).exit(0);
    test.wait_for("third");
    second.terminate();
    wait_until("the beginning of the end", || events(&second).iter().any(|event| event["event"] == "draining"));
    test.put("on", "");
    let ran = second.finish().exit(0);
    assert!(ran.out().contains("\"drained\""), "{}", ran.out());
    let test = elsewhere(test, "third");
    let third = test.start(&[&WORKER[..], &["--idle", "60s"]].concat());
    wait_until("the end of the run", || list(&test).doc()["runs"][0]["status"] == "succeeded");
    third.terminate();
    third.finish().exit(0);
    assert_eq!(test.ledger(), ["begin", "first", "second", "second", "third", "fourth", "end"]);
}

/// A worker without a database is a usage error, and it takes runs of its queues alone.
#[cfg(feature = "serve")]
#[test]
fn workers_need_a_database_and_have_queues() {
    Test::new().run(&["worker", "--format", "json"]).exit(2).stderr_has("--engine");
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    test.run(&["run", "-p", "p", "--detach", "--queue", "other", "--format", "json"]).exit(0);
    let ran = test.run(&[&WORKER[..], &["--idle", "1s"]].concat()).exit(0);
    assert!(!ran.out().contains("claimed"), "another queue: {}", ran.out());
    let ran = test.run(&[&WORKER[..], &["--idle", "1s", "--queue", "other"]].concat()).exit(0);
    assert!(ran.out().contains("claimed"), "{}", ran.out());
}

/// A database that does not answer is waited for, and then a matter of the environment.
#[test]
fn a_database_that_does_not_answer_is_reported() {
    let test = Test::new().pipeline("p", |p| p.note("a", "1"));
    let ran =
        test.run(&["runs", "list", "--engine", "postgres://ada@/x?host=/nonexistent", "--format", "json"]).exit(4);
    ran.has("/errors/0/kind", json!("environment"));
}
