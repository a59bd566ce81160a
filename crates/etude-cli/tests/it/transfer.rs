//! `etude runs export --all` and `etude runs import`: runs on their way between journals and databases.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::crash::shim::{self, Fault, with_fault};
use crate::test::{Test, noting, printing};
#[cfg(all(feature = "postgres", feature = "serve"))]
use crate::{
    database::Server,
    fleet::{apply, count, elsewhere, fleet, list},
    fleet_workers::WORKER,
    test::wait_until,
};

/// The command that writes an export.
const EXPORT: [&str; 5] = ["runs", "export", "--all", "--format", "json"];

/// An app with a pipeline that has a large value, one that fails, and one that asks.
fn app() -> Test {
    let large = format!(
        "cat >/dev/null; printf '{{\"output\":\"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"}}'; {}",
        noting("large")
    );
    Test::new()
        .pipeline("p", |p| p.sh("large", &large).note("b", "{\"n\": 1}"))
        .pipeline("bad", |p| p.note("a", "1").sh("b", "echo no >&2; exit 3"))
        .pipeline("asks", |p| {
            p.note("before", "1").step("name: gate\ntype: approval\nmessage: Go on?\n").note("after", "2")
        })
}

fn bytes(test: &Test, path: &str) -> Vec<u8> {
    fs::read(test.path(path)).expect("the file is there")
}

/// cli: the content of an export, and refusals with a remedy. A live run is left out.
#[test]
fn an_export_is_written_once_and_without_live_runs() {
    let test = app().pipeline("slow", |p| {
        p.sh("a", &format!("{}; until [ -e \"$ROOT/go\" ]; do sleep 0.05; done; {}", noting("slow"), printing("1")))
    });
    for (args, part) in [
        (&["runs", "export"][..], "<ID"),
        (&["runs", "export", "--all"], "--out"),
        (&["runs", "export", "latest", "--move"], "cannot be used with '--move'"),
        (&["runs", "export", "latest", "--all", "--out", "x"], "cannot be used with"),
        (&["runs", "import", "missing.tar"], "cannot be read"),
        (&["runs", "import", "../app"], "not a regular file"),
    ] {
        test.run(args).exit(2).stderr_has(part);
    }
    test.run_json("p").exit(0);
    test.run_json("bad").exit(1);
    let waiting = test.run_json("asks").exit(5).id();
    let slow = test.start(&["run", "-p", "slow", "--format", "json"]);
    test.wait_for("slow");
    let live = test.run(&["runs", "list", "--status", "running", "--format", "json"]).exit(0).id_of_first_run();
    let mut left_out = [waiting.clone(), live];
    left_out.sort();
    let copy = test.run(&[&EXPORT[..], &["--out", "../elsewhere/copy.tar"]].concat()).exit(0);
    let len = bytes(&test, "elsewhere/copy.tar").len();
    let document: serde_json::Value = serde_json::from_slice(&copy.raw).expect("a document");
    assert_eq!(document["skipped"], json!(left_out));
    let members: Vec<&str> = document.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    assert_eq!(members, ["runs", "moved", "skipped", "values", "bytes"]);
    let copy = copy.has("/runs", 2).has("/moved", 0).has("/bytes", len);
    assert!(copy.at("/values").as_u64().is_some_and(|values| values > 0));
    test.run(&[&EXPORT[..], &["--out", "../elsewhere/copy.tar"]].concat())
        .exit(2)
        .stderr_has("already exists and was not overwritten");
    let moved = test
        .run(&["--engine", "embedded", "runs", "export", "--all", "--move", "--out", "../elsewhere/moved.tar"])
        .exit(0);
    moved
        .stderr_has("3 runs and ")
        .stderr_has("1 of them were moved")
        .stderr_has("is being executed by a process")
        .stderr_has("etude --engine URL runs import ../elsewhere/moved.tar");
    let listed = |status: &str| test.run(&["runs", "list", "--status", status, "--format", "json"]).exit(0);
    assert_eq!(listed("moved").has("/total", 1).has("/runs/0/status", "moved").id_of_first_run(), waiting);
    test.put("go", "");
    slow.finish().exit(0);
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(test.path("elsewhere/moved.tar")).expect("the file is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let whole = bytes(&test, "elsewhere/moved.tar");
    fs::write(test.path("elsewhere/cut.tar"), &whole[..whole.len() / 2]).expect("a file");
    test.run(&["runs", "import", "../elsewhere/cut.tar", "--format", "json"])
        .exit(2)
        .has("/errors/0/kind", "input_invalid")
        .stderr_has("is refused");
    // One database accepts an id once, and moved runs can be removed.
    test.run(&["runs", "import", "../elsewhere/moved.tar", "--format", "json"])
        .exit(0)
        .stdout_json(json!({"runs": 0, "present": 3, "values": 0}));
    test.run(&["runs", "prune", "--older-than", "0s", "--format", "json"]).exit(0);
    test.run(&["runs", "import", "../elsewhere/moved.tar"]).exit(0).stderr_has("3 runs and ");
    assert_eq!(listed("waiting").has("/total", 1).id_of_first_run(), waiting);
}

/// K-64: a moved run refuses every command that would continue it.
#[test]
fn a_moved_run_refuses_a_resume() {
    let test = app();
    let id = test.run_json("asks").exit(5).id();
    let other = test.run_json("bad").exit(1).id();
    test.run(&[&EXPORT[..], &["--move", "--out", "../elsewhere/a.tar"]].concat()).exit(0).has("/moved", 1);
    let resumed = test.run(&["runs", "resume", &id, "--format", "json"]).exit(4).has("/errors/0/kind", "environment");
    resumed.stderr_has("was moved to another engine").stderr_has("import the export file");
    test.run(&["runs", "retry", &id, "--from", "before"]).exit(4).stderr_has("was moved");
    test.run(&["runs", "cancel", &id]).exit(4).stderr_has("was moved");
    test.run(&["runs", "watch", &id]).exit(4).stderr_has("was moved");
    test.run(&["approve", &id]).exit(2).stderr_has("moved");
    test.run(&["runs", "show", &id, "--format", "json"]).exit(0).has("/status", "moved");
    assert!(test.run(&["runs", "show", &id]).exit(0).out().contains("moved"));
    assert!(test.run(&["runs", "list"]).exit(0).out().contains("moved"));
    test.run(&["runs", "stats", "--format", "json"]).exit(0);
    assert_eq!(test.ledger(), ["before", "a"]);
    // A copied run is not moved: the source continues.
    test.run(&["runs", "resume", &other]).exit(1);
}

/// K-65: an import that is killed at any write leaves each run complete or absent, and can be repeated.
#[test]
fn an_import_killed_anywhere_is_whole_and_can_be_repeated() {
    if shim::is_missing("an_import_killed_anywhere_is_whole_and_can_be_repeated") {
        return;
    }
    let test = app();
    test.run_json("p").exit(0);
    test.run_json("bad").exit(1);
    test.run_json("asks").exit(5);
    test.run(&[&EXPORT[..], &["--move", "--out", "../elsewhere/a.tar"]].concat()).exit(0).has("/runs", 3);
    // Removes the journal with the moved run.
    let begin = || fs::remove_dir_all(test.path("home/.local/state/etude")).expect("the journal can be removed");
    let import = ["runs", "import", "../elsewhere/a.tar", "--format", "json"];
    let with = |fault: Fault| test.start_with(with_fault(&test, test.command(&import), fault), &import).finish();
    begin();
    with(Fault::None).exit(0).has("/runs", 3);
    let events = shim::events(&test).len();
    assert!(events > 10, "{events}");
    let faults: [fn(usize) -> Fault; 3] = [Fault::Before, Fault::After, Fault::Torn];
    let mut kinds = [0, 0];
    // The last moment does not occur.
    let moments = (1..events).step_by((events / 15).max(1)).chain([events, events + 1_000]);
    for (at, fault) in moments.zip(faults.iter().cycle()) {
        begin();
        let killed = with(fault(at));
        let again = test.run(&import).exit(0);
        let (added, present) = (again.at("/runs"), again.at("/present"));
        let (added, present) = (added.as_u64().unwrap_or(0), present.as_u64().unwrap_or(0));
        assert_eq!(added + present, 3, "killed at {at} of {events}: {}", killed.err());
        kinds[usize::from(present > 0)] += 1;
        let out = format!("../elsewhere/{at}.tar");
        test.run(&[&EXPORT[..], &["--move", "--out", &out]].concat()).exit(0).has("/skipped", json!([]));
        assert!(
            bytes(&test, "elsewhere/a.tar") == bytes(&test, &format!("elsewhere/{at}.tar")),
            "killed at {at} of {events}"
        );
    }
    assert!(kinds[0] > 0 && kinds[1] > 0, "nothing was killed before and after the first run: {kinds:?}");
}

/// K-64: an export that is killed at any write moves no run before its file is complete and has its name.
#[test]
fn an_export_killed_anywhere_loses_no_run() {
    if shim::is_missing("an_export_killed_anywhere_loses_no_run") {
        return;
    }
    let test = app();
    test.run_json("asks").exit(5);
    let (journal, copy) = (test.path("home/.local/state/etude"), test.path("elsewhere/journal"));
    let copied = |from: &Path, to: &Path| {
        let status = Command::new("cp").arg("-a").args([from, to]).status().expect("cp is there");
        assert!(status.success());
    };
    copied(&journal, &copy);
    let file = test.path("elsewhere/a.tar");
    let begin = || {
        fs::remove_dir_all(&journal).expect("the journal can be removed");
        copied(&copy, &journal);
        let _ = fs::remove_file(&file);
    };
    let export = [&EXPORT[..], &["--move", "--out", "../elsewhere/a.tar"]].concat();
    let with = |fault: Fault| test.start_with(with_fault(&test, test.command(&export), fault), &export).finish();
    begin();
    with(Fault::None).exit(0).has("/moved", 1);
    let events = shim::events(&test).len();
    let is_listed = |status: &str| {
        let listed = test.run(&["runs", "list", "--status", status, "--format", "json"]).exit(0);
        listed.at("/total") == 1
    };
    let faults: [fn(usize) -> Fault; 3] = [Fault::Before, Fault::After, Fault::Torn];
    let moments = (1..events).step_by((events / 10).max(1)).chain([events, events + 1_000]);
    let mut kinds = [0, 0];
    for (at, fault) in moments.zip(faults.iter().cycle()) {
        begin();
        with(fault(at));
        let is_moved = is_listed("moved");
        kinds[usize::from(is_moved)] += 1;
        assert!(is_moved || is_listed("waiting"), "killed at {at} of {events}: the run is lost");
        assert!(!is_moved || file.exists(), "killed at {at} of {events}: the run is moved without a file");
        if file.exists() {
            fs::remove_dir_all(&journal).expect("the journal can be removed");
            test.run(&["runs", "import", "../elsewhere/a.tar", "--format", "json"]).exit(0).has("/runs", 1);
            assert!(is_listed("waiting"), "killed at {at} of {events}: the file is not whole");
        }
    }
    assert!(kinds[0] > 0 && kinds[1] > 0, "nothing was killed before and after the move: {kinds:?}");
}

/// K-64: from a journal to a database and to another journal: equal runs give equal bytes.
#[cfg(all(feature = "postgres", feature = "serve"))]
#[test]
fn a_round_trip_through_a_database_gives_equal_bytes() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, app());
    let embedded = ["--engine", "embedded"];
    let id = test.run(&[&["run", "-p", "p", "--format", "json"][..], &embedded].concat()).exit(0).id();
    test.run(&[&["run", "-p", "bad", "--format", "json"][..], &embedded].concat()).exit(1);
    test.run(&[&["run", "-p", "asks", "--format", "json"][..], &embedded].concat()).exit(5);
    let export = |test: &Test, name: &str, more: &[&str]| {
        let out = format!("../elsewhere/{name}");
        test.run(&[&EXPORT[..], &["--move", "--out", &out], more].concat()).exit(0).has("/runs", 3).has("/moved", 1);
        bytes(test, &format!("elsewhere/{name}"))
    };
    let first = export(&test, "a.tar", &embedded);
    let import = |test: &Test, name: &str, more: &[&str]| {
        test.run(&[&["runs", "import", name, "--format", "json"], more].concat()).exit(0)
    };
    import(&test, "../elsewhere/a.tar", &[]).has("/runs", 3).has("/present", 0);
    import(&test, "../elsewhere/a.tar", &[]).stdout_json(json!({"runs": 0, "present": 3, "values": 0}));
    assert_eq!(count(&test), 3);
    let shown = |test: &Test, more: &[&str]| {
        let mut document = test.run(&[&["runs", "show", &id, "--format", "json"], more].concat()).exit(0).value();
        document.as_object_mut().expect("an object").retain(|name, _| name != "tenant" && name != "queue");
        (document["output"].clone(), document["steps"].clone(), document["usage"].clone())
    };
    assert!(shown(&test, &[]) == shown(&test, &embedded), "the run is another one");
    let second = export(&test, "b.tar", &[]);
    assert!(first == second, "the database gives other bytes");
    test.run(&["runs", "list", "--status", "moved", "--format", "json"]).exit(0).has("/runs/0/status", "moved");
    let test = elsewhere(test, "third");
    import(&test, "../elsewhere/b.tar", &embedded).has("/runs", 3);
    let third = export(&test, "c.tar", &embedded);
    assert!(first == third, "the second journal gives other bytes");
}

/// K-64: a waiting run is moved with its app, and a worker continues it; without a decision it keeps waiting. K-50: the app is
/// the bundle.
#[cfg(all(feature = "postgres", feature = "serve"))]
#[test]
fn a_moved_run_continues_on_a_fleet() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, app());
    let asks = ["run", "-p", "asks", "--format", "json", "--engine", "embedded"];
    let (first, second) = (test.run(&asks).exit(5).id(), test.run(&asks).exit(5).id());
    // The decision moves with the run.
    test.run(&["approve", &first, "--engine", "embedded"]).exit(0);
    let out = ["--move", "--out", "../elsewhere/a.tar", "--engine", "embedded"];
    test.run(&[&EXPORT[..], &out].concat()).exit(0).has("/moved", 2).has("/skipped", json!([]));
    test.run(&["runs", "import", "../elsewhere/a.tar", "--format", "json"]).exit(0).has("/runs", 2);
    fs::remove_dir_all(test.path("app/pipelines/asks")).expect("the app can be changed");
    let status = |id: &str| {
        let document = test.run(&["runs", "show", id, "--format", "json"]).exit(0);
        document.at("/status").as_str().map(str::to_owned).unwrap_or_default()
    };
    let worker = test.start(&WORKER);
    wait_until("the end of the first run", || status(&first) == "succeeded");
    wait_until("a look at the second run", || {
        status(&second) == "waiting" && server.sql("select count(*) from etude.queue") == "0"
    });
    test.run(&["approve", &second, "--format", "json"]).exit(0);
    wait_until("the end of the second run", || status(&second) == "succeeded");
    worker.terminate();
    worker.finish().exit(0);
    let mut ledger = test.ledger();
    ledger.sort();
    assert_eq!(ledger, ["after", "after", "before", "before"]);
    test.run(&["runs", "resume", &first, "--engine", "embedded"]).exit(4).stderr_has("was moved");
}

/// cluster §6: an unfinished run for a queue that the fleet lacks is refused like a submission, with the remedy. Nothing is
/// written, and finished runs need no queue.
#[cfg(all(feature = "postgres", feature = "serve"))]
#[test]
fn an_unfinished_run_is_imported_into_a_queue_that_is_there() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, app());
    apply(&test, "queues: {batch: {}}\n");
    let submitted =
        |queue: &str| test.run(&["run", "-p", "asks", "--detach", "--queue", queue, "--format", "json"]).exit(0).id();
    let (queued, cancelled) = (submitted("batch"), submitted("batch"));
    test.run(&["runs", "cancel", &cancelled]).exit(0);
    test.run(&[&EXPORT[..], &["--move", "--out", "../elsewhere/a.tar"]].concat()).exit(0).has("/moved", 1);
    let other = test.env("ETUDE_ENGINE", &server.url("other"));
    other.run(&["engine", "migrate"]).exit(0);
    let import = || other.run(&["runs", "import", "../elsewhere/a.tar", "--format", "json"]);
    let refused = import().exit(2).has("/errors/0/kind", "input_invalid").stderr_has("the fleet has no queue `batch`");
    refused.stderr_has("etude engine apply");
    assert_eq!(count(&other), 0);
    apply(&other, "queues: {batch: {}}\n");
    import().exit(0).has("/runs", 2);
    other.run(&["runs", "show", &queued, "--format", "json"]).exit(0).has("/status", "queued");
    other.run(&["runs", "show", &cancelled, "--format", "json"]).exit(0).has("/status", "cancelled");
}

/// K-64: the way back is the same. A run that no worker has begun continues on one machine, from its bundle.
#[cfg(all(feature = "postgres", feature = "serve"))]
#[test]
fn a_moved_run_continues_on_one_machine() {
    let Some(server) = Server::start() else { return };
    let test = fleet(&server, app());
    let submitted = |name: &str| test.run(&["run", "-p", name, "--detach", "--format", "json"]).exit(0).id();
    let (note, asks) = (submitted("bad"), submitted("asks"));
    test.run(&[&EXPORT[..], &["--move", "--out", "../elsewhere/a.tar"]].concat()).exit(0).has("/moved", 2);
    assert_eq!(server.sql("select count(*) from etude.queue"), "0");
    let worker = test.start(&["worker", "--format", "jsonl", "--idle", "1s"]);
    worker.finish().exit(0);
    assert_eq!(test.ledger(), [""; 0], "nothing of it is run here");
    test.run(&["runs", "resume", &note, "--format", "json"]).exit(4).stderr_has("was moved");
    list(&test).has("/runs/0/status", "moved");
    fs::remove_dir_all(test.path("app/pipelines")).expect("the app can be removed");
    let embedded = ["--engine", "embedded", "--format", "json"];
    let run = |args: &[&str]| test.run(&[args, &embedded].concat());
    run(&["runs", "import", "../elsewhere/a.tar"]).exit(0).has("/runs", 2);
    run(&["runs", "list", "--all", "--status", "queued"]).exit(0).has("/total", 2);
    run(&["runs", "resume", &note]).exit(1).has("/status", "failed");
    run(&["runs", "resume", &note, "--accept-changes"]).exit(2).stderr_has("run --again");
    run(&["runs", "resume", &asks]).exit(5).has("/status", "waiting");
    run(&["approve", &asks, "--resume"]).output(2);
    assert_eq!(test.ledger(), ["a", "before", "after"]);
}
