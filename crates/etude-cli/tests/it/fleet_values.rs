//! Large values of a fleet in object storage: as workers and commands use it.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::database::Server;
use crate::fleet::{elsewhere, fleet, list};
use crate::fleet_workers::{WORKER, events};
use crate::moto::Moto;
use crate::test::{Test, noting, printing, wait_until};

/// Prints a value of 300,000 bytes.
fn large(name: &str) -> String {
    let print = "cat >/dev/null; printf '{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"}'";
    format!("{print}; {}", noting(name))
}

/// A fleet whose values are in a directory.
fn with_directory(server: &Server, test: Test) -> Test {
    fs::create_dir(test.path("store")).expect("a directory");
    let url = format!("file://{}", test.path("store").display());
    let test = test.user_config(&format!("engine: {{poll: 100ms, blobs: \"{url}\"}}\n"));
    let test = fleet(server, test);
    test.run(&["engine", "apply", "--format", "json"]).exit(0).has("/blobs", "file://[ROOT]/store");
    test
}

fn objects(test: &Test, shelf: &str) -> Vec<PathBuf> {
    test.files_below(&format!("store/{shelf}"))
}

fn status(test: &Test) -> Value {
    list(test).doc()["runs"][0]["status"].clone()
}

/// K-45, K-49, K-50: values and bundles are in the directory and not in the database; another machine reads them, whatever becomes of
/// its copies. Another place is refused while they are there.
#[test]
fn values_and_bundles_are_in_object_storage() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        p.sh("large", &large("large"))
            .step("name: gate\ntype: approval\nmessage: Go on?\n")
            .sh("size", &format!("grep -c {} >/dev/null && echo '{{\"output\":true}}'", "x".repeat(100)))
    });
    let test = with_directory(&server, test);
    let worker = test.start(&WORKER);
    let id = test.run_json("p").exit(5).has("/status", "waiting").id();
    assert_eq!((objects(&test, "bundles").len(), objects(&test, "values").len()), (1, 1));
    assert_eq!(server.sql("select count(*) from etude.blobs where place is null and length > 256 * 1024").trim(), "0");
    test.put("other.yaml", "engine: {blobs: \"file:///elsewhere\"}\n");
    let other = test.path("other.yaml").display().to_string();
    test.run(&["engine", "apply", "--config", &other]).exit(4).stderr_has("engine.blobs");
    test.put("wrong.yaml", "engine: {blobs: \"https://bucket\"}\n");
    let wrong = test.path("wrong.yaml").display().to_string();
    test.run(&["engine", "apply", "--config", &wrong]).exit(3).stderr_has("engine.blobs");
    worker.terminate();
    worker.finish().exit(0);
    let test = elsewhere(test, "second");
    let worker = test.start(&WORKER);
    test.run(&["approve", &id]).exit(0);
    wait_until("the end of the run", || status(&test) == "succeeded");
    let checks = test.run(&["engine", "check", "--format", "json"]).doc();
    let blobs =
        checks["checks"].as_array().into_iter().flatten().find(|check| check["id"] == "blobs").expect("a check");
    assert_eq!(blobs["status"], "ok", "{blobs:#}");
    assert_eq!(test.ledger(), ["large"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// K-46: a wrong value ends the run as failed, with its hash.
#[test]
fn a_wrong_value_ends_its_run() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        p.sh("large", &large("large")).step("name: gate\ntype: approval\nmessage: Go on?\n").note("after", "1")
    });
    let test = with_directory(&server, test);
    let worker = test.start(&WORKER);
    let id = test.run_json("p").exit(5).id();
    worker.terminate();
    worker.finish().exit(0);
    let [value] = &objects(&test, "values")[..] else { panic!("one value") };
    let hash = value.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    fs::write(value, "something else").expect("it is a file");
    let test = elsewhere(test, "second");
    test.run(&["approve", &id]).exit(0);
    let worker = test.start(&WORKER);
    wait_until("the end of the run", || status(&test) == "failed");
    let ran = test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/errors/0/kind", "environment");
    assert!(ran.at("/errors/0/message").as_str().is_some_and(|message| message.contains(&hash)), "{}", ran.out());
    assert_eq!(test.ledger(), ["large"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// cluster §4: while object storage is away, a run that needs it stops and is claimed again later; others continue, and no run fails.
#[test]
fn a_run_waits_for_object_storage() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.sh("large", &large("large")).note("after", "1"))
        .pipeline("small", |p| p.note("small", "2"));
    let test = with_directory(&server, test);
    let submit = |name: &str| test.run(&["run", "-p", name, "--detach", "--format", "json"]).exit(0).id();
    let (id, small) = (submit("p"), submit("small"));
    fs::rename(test.path("store"), test.path("away")).expect("it can be moved");
    let worker = test.start(&WORKER);
    let is_over = |id: &str| test.run(&["runs", "show", id, "--format", "json"]).doc()["status"] == "succeeded";
    wait_until("the other run", || is_over(&small));
    let lost = || events(&worker).iter().filter(|event| event["event"] == "lost").count();
    // More often than a run may stop for a reason of its own.
    wait_until("the run that stops", || lost() >= 4);
    fs::rename(test.path("away"), test.path("store")).expect("it can be moved");
    wait_until("the run", || is_over(&id));
    let ledger = test.ledger();
    assert_eq!(ledger.iter().filter(|word| *word == "after").count(), 1, "{ledger:?}");
    worker.terminate();
    worker.finish().exit(0);
}

/// K-53: where values are in a bucket, no step gets the keys to it, and they are in no record.
#[test]
fn no_step_gets_the_keys_to_a_bucket() {
    const SECRET: &str = "canary-of-the-bucket";
    let Some(moto) = Moto::start() else { return };
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| {
        p.sh("env", &format!("env > \"$ROOT/env\"; {}", printing("1"))).sh("large", &large("large"))
    });
    let test = test
        .user_config(&format!("engine: {{blobs: \"{}\"}}\n", moto.url("fleet")))
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    let test = fleet(&server, test);
    test.run(&["engine", "apply", "--format", "json"]).exit(0);
    let worker = test.start(&WORKER);
    let ran = test.run_json("p").exit(0);
    worker.terminate();
    worker.finish().exit(0);
    let env = test.read("env");
    assert!(!env.contains("AWS_") && !env.contains(SECRET), "{env}");
    assert!(!ran.out().contains(SECRET) && !ran.err().contains(SECRET));
    let checks = test.run(&["engine", "check", "--format", "json"]).doc();
    assert!(!checks.to_string().contains(SECRET), "{checks:#}");
    // They are the user's own where nothing is in a bucket.
    let embedded = test.run(&["run", "-p", "p", "--engine", "embedded", "--format", "json"]).exit(0);
    assert!(test.read("env").contains("AWS_ACCESS_KEY_ID"), "{}", embedded.out());
}
