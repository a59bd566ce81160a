//! Large values of a fleet in object storage, as workers and commands use it.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::crash::shim::{self, Fault, with_fault};
use crate::database::Server;
use crate::fleet::{elsewhere, fleet, list};
use crate::fleet_workers::{WORKER, events, free_address, get, is_ready};
use crate::moto::Moto;
use crate::test::{Test, noting, printing, wait_until};

/// Script that prints a value of 300,000 bytes.
fn large(name: &str) -> String {
    let print = "cat >/dev/null; printf '{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"}'";
    format!("{print}; {}", noting(name))
}

/// A fleet whose values are in a directory.
fn with_directory(server: &Server, test: Test) -> Test {
    with_directory_and(server, test, "poll: 100ms")
}

/// The same with more members of `engine`.
fn with_directory_and(server: &Server, test: Test, more: &str) -> Test {
    fs::create_dir(test.path("store")).expect("a directory");
    let url = format!("file://{}", test.path("store").display());
    let test = test.user_config(&format!("engine: {{{more}, blobs: \"{url}\"}}\n"));
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

/// K-45, K-49, K-50: values and bundles are in the directory and not in the database; another machine reads them, whatever
/// happens to its copies. Another location is refused while they exist.
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

/// K-49: the whole cache of a worker is removed while a step has printed half of a large value. The run continues: its app is
/// elsewhere, and earlier values are fetched again.
#[test]
fn a_cache_that_is_removed_fails_no_run() {
    let Some(server) = Server::start() else { return };
    let half = "head -c 300000 /dev/zero | tr '\\0' x";
    let slow = format!(
        "cat >/dev/null; printf '{{\"output\":\"'; {half}; : > \"$ROOT/half\"; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {half}; printf '\"}}'; {}",
        noting("slow")
    );
    let size = format!(
        "grep -c {} >/dev/null && cat \"$ETUDE_APP_DIR/helper.txt\" >> \"$LEDGER\"; {}",
        "x".repeat(100),
        printing("true")
    );
    let test = Test::new()
        .file("helper.txt", "packed\n")
        .pipeline("p", |p| p.sh("large", &large("large")).sh("slow", &slow).sh("size", &size))
        .pipeline("_destructor", |p| p.note("end", "1"));
    let test = fleet(&server, test);
    let id = test.run(&["run", "-p", "p", "--detach", "--format", "json"]).exit(0).id();
    let test = elsewhere(test, "second");
    let worker = test.start(&WORKER);
    // The cache also has files there while the bundle is fetched.
    wait_until("half of a value", || {
        test.path("half").exists() && !test.files_below("second/cache/etude/fleet/tmp").is_empty()
    });
    fs::remove_dir_all(test.path("second/cache")).expect("it is there");
    test.put("go", "");
    wait_until("the end of the run", || {
        let status = status(&test);
        status != "queued" && status != "running"
    });
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/status", "succeeded").has("/output", true);
    assert_eq!(test.ledger(), ["large", "slow", "packed", "end"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// K-45: a worker that is killed in an upload to object storage, or between the upload and the record, leaves no record without
/// its value. Another worker ends the run, whose output is complete.
#[test]
fn a_worker_killed_in_an_upload_leaves_no_record_without_its_value() {
    if shim::is_missing("a_worker_killed_in_an_upload_leaves_no_record_without_its_value") {
        return;
    }
    let Some(server) = Server::start() else { return };
    let print =
        "cat >/dev/null; printf '{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' \"$LETTER\"; printf '\"}'";
    let test = Test::new().pipeline("p", |p| {
        p.with("input: {letter: {type: string}}").sh_with("large", print, "env: {LETTER: \"{{input.letter}}\"}\n")
    });
    let test = with_directory_and(&server, test, "beat: 1s, grace: 1s, lease: 4s");
    let submit = |letter: &str| {
        let input = format!("letter={letter}");
        test.run(&["run", "-p", "p", "--detach", "--format", "json", "-i", &input]).exit(0).id()
    };
    let work = |fault: Fault| {
        let mut command = with_fault(&test, test.command(&WORKER), fault);
        command.env("ETUDE_SHIM_DIR", test.path("store"));
        test.start_with(command, &WORKER)
    };
    let is_over = |id: &str| test.run(&["runs", "show", id, "--format", "json"]).doc()["status"] == "succeeded";
    for letter in ["a", "b"] {
        // The first run creates directories and a copy of the bundle.
        let id = submit(letter);
        let worker = work(Fault::None);
        wait_until("the end of the run", || is_over(&id));
        worker.terminate();
        worker.finish().exit(0);
    }
    let events = shim::events(&test).len();
    assert!(events >= 3, "{events}");
    let mut kept = Vec::new();
    for (letter, fault) in [("c", Fault::Before(1)), ("d", Fault::Torn(events / 2 + 1)), ("e", Fault::After(events))] {
        let id = submit(letter);
        let killed = work(fault).finish();
        assert_ne!(killed.code, 0, "{fault:?}: {}", killed.err());
        let is_whole = |path: &&PathBuf| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
        kept.push(objects(&test, "values").iter().filter(is_whole).count());
        let referred = server.sql(
            "select encode(hash, 'hex') || ' ' || length from etude.blob_refs join etude.blobs on hash = blob where place is not null",
        );
        for line in referred.lines().filter(|line| !line.is_empty()) {
            let (hash, length) = line.split_once(' ').expect("two words");
            let object = objects(&test, "").into_iter().find(|path| path.ends_with(hash)).expect("it is there");
            assert_eq!(fs::metadata(object).expect("a file").len().to_string(), length, "{fault:?}");
        }
        let other = test.start(&WORKER);
        wait_until("the end of the run", || is_over(&id));
        let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
        assert!(shown.out().contains(&letter.repeat(300_000)), "{fault:?}");
        other.terminate();
        other.finish().exit(0);
    }
    // The first one was killed before its upload, the last one after it.
    assert_eq!((kept[0], kept[2]), (2, 5));
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

/// K-46: a run that is continued with a wrong value ends as failed, and its follower reports that: that the follower cannot
/// read the value either does not end the following. The worker names the value.
#[test]
fn a_wrong_value_ends_a_run_that_is_continued() {
    let Some(server) = Server::start() else { return };
    let test = Test::new().pipeline("p", |p| p.sh("large", &large("large")).note("after", "1"));
    let test = with_directory(&server, test);
    let worker = test.start(&WORKER);
    let id = test.run_json("p").exit(0).id();
    worker.terminate();
    worker.finish().exit(0);
    let [value] = &objects(&test, "values")[..] else { panic!("one value") };
    let hash = value.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    fs::write(value, "something else").expect("it is a file");
    let test = elsewhere(test, "second");
    let worker = test.start(&WORKER);
    let ran = test.run(&["runs", "retry", &id, "--from", "after", "--format", "json"]).exit(4);
    let ran = ran.has("/status", "failed").has("/errors/0/kind", "environment").stderr_has("cannot be read here");
    assert!(ran.at("/errors/0/message").as_str().is_some_and(|message| message.contains(&hash)), "{}", ran.out());
    let lost: Vec<Value> = events(&worker).into_iter().filter(|event| event["event"] == "lost").collect();
    let says_why = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(&hash));
    assert!(!lost.is_empty() && lost.iter().all(|event| event["reason"] == "gap" && says_why(event)), "{lost:?}");
    assert_eq!(test.ledger(), ["large", "after"]);
    worker.terminate();
    worker.finish().exit(0);
}

/// cluster §4, K-13: during an outage of object storage, a run that needs it stops, reports the reason, and is claimed again
/// after a delay: its effect does not start repeatedly. Others continue, and no run fails.
#[test]
fn a_run_waits_for_object_storage() {
    let Some(server) = Server::start() else { return };
    let test = Test::new()
        .pipeline("p", |p| p.sh("large", &large("large")).note("after", "1"))
        .pipeline("small", |p| p.note("small", "2"));
    let test = with_directory(&server, test);
    let submit = |name: &str| test.run(&["run", "-p", name, "--detach", "--format", "json"]).exit(0).id();
    let (id, small) = (submit("p"), submit("small"));
    server.sql("update etude.queue set not_before_ms = 9000000000000000, is_asleep = true");
    let worker = test.start(&WORKER);
    wait_until("the worker", || is_ready(&worker));
    fs::rename(test.path("store"), test.path("away")).expect("it can be moved");
    let is_over = |id: &str| test.run(&["runs", "show", id, "--format", "json"]).doc()["status"] == "succeeded";
    let due = || server.sql("update etude.queue set not_before_ms = 0, is_asleep = false");
    due();
    wait_until("the other run", || is_over(&small));
    let lost = || events(&worker).into_iter().filter(|event| event["event"] == "lost").collect::<Vec<_>>();
    // More often than a run may stop for a reason of its own.
    for count in 1..=4 {
        wait_until("the run that stops", || lost().len() == count);
        wait_until("the delay", || server.sql("select is_asleep from etude.queue").trim() == "t");
        assert!(lost().iter().all(|event| event["reason"] == "blobs" && event["message"].is_string()), "{:?}", lost());
        due();
    }
    wait_until("the run that stops", || lost().len() == 5);
    wait_until("the delay", || server.sql("select is_asleep from etude.queue").trim() == "t");
    fs::rename(test.path("away"), test.path("store")).expect("it can be moved");
    due();
    wait_until("the run", || is_over(&id));
    let ledger = test.ledger();
    assert_eq!(ledger.iter().filter(|word| *word == "after").count(), 1, "{ledger:?}");
    worker.terminate();
    worker.finish().exit(0);
}

/// cluster §4: values in unavailable object storage are unknown. `runs show` reports that like other commands, and calls
/// nothing damaged.
#[test]
fn a_run_in_object_storage_that_is_away_is_not_damaged() {
    let Some(server) = Server::start() else { return };
    let test = with_directory(&server, Test::new().pipeline("p", |p| p.sh("large", &large("large"))));
    let worker = test.start(&WORKER);
    let id = test.run_json("p").exit(0).id();
    worker.terminate();
    worker.finish().exit(0);
    let test = elsewhere(test, "second");
    fs::rename(test.path("store"), test.path("away")).expect("it can be moved");
    let says = "the store of large values cannot be used: `[ROOT]/store`";
    for words in [
        &["show", &id][..],
        &["show", &id, "--format", "json"],
        &["show", &id, "--stream", "output"],
        &["show", &id, "--stream", "p/large/stdout"],
        &["diff", &id, &id],
    ] {
        let ran = test.run(&[&["runs"], words].concat()).exit(4).stderr_has(says);
        assert!(!ran.err().contains("damaged"), "{words:?}: {}", ran.err());
    }
    fs::rename(test.path("away"), test.path("store")).expect("it can be moved");
    test.run(&["runs", "show", &id]).exit(0);
}

/// K-22, K-26: a worker that starts before its object storage waits for it and reports that, also during a later outage. A
/// worker that is refused there, as without keys, ends.
#[test]
fn a_worker_needs_its_object_storage() {
    let Some(server) = Server::start() else { return };
    let test = with_directory(&server, Test::new().pipeline("p", |p| p.note("a", "1")));
    fs::rename(test.path("store"), test.path("away")).expect("it can be moved");
    let address = free_address();
    let worker = test.start(&[&WORKER[..], &["--health", &address]].concat());
    wait_until("the word of the worker", || {
        TcpStream::connect(&address).is_ok()
            && get(&address, "/readyz") == (503, "{\"ready\":false,\"reason\":\"blobs\"}\n".to_owned())
    });
    assert!(!is_ready(&worker));
    fs::rename(test.path("away"), test.path("store")).expect("it can be moved");
    wait_until("the worker", || is_ready(&worker));
    test.run(&["run", "-p", "p", "--format", "json"]).output(1);
    let ready = || get(&address, "/readyz");
    wait_until("a claim", || ready().0 == 200);
    // The same while it works.
    fs::rename(test.path("store"), test.path("away")).expect("it can be moved");
    wait_until("the loss", || ready() == (503, "{\"ready\":false,\"reason\":\"blobs\"}\n".to_owned()));
    assert_eq!(get(&address, "/healthz").0, 200);
    fs::rename(test.path("away"), test.path("store")).expect("it can be moved");
    wait_until("the store", || ready().0 == 200);
    worker.terminate();
    worker.finish().exit(0).stderr_has("waits for object storage");
    // Nothing listens at this address, which is not even tried without keys.
    server.sql("update etude.storage set url = 's3://values?endpoint=http://127.0.0.1:1'");
    let test = test.without_env("AWS_ACCESS_KEY_ID");
    let ran = test.run(&WORKER).exit(4).stderr_has("AWS_ACCESS_KEY_ID");
    assert!(!ran.out().contains("ready"), "{}", ran.out());
}

/// K-53: if values are in a bucket, no step gets the keys to it, and they are in no record.
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
    // Without a bucket, these variables belong to the user.
    let embedded = test.run(&["run", "-p", "p", "--engine", "embedded", "--format", "json"]).exit(0);
    assert!(test.read("env").contains("AWS_ACCESS_KEY_ID"), "{}", embedded.out());
}
