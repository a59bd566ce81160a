//! Runs that another program has queued, as the command line shows and ends them.

use etude::Disk;
use etude::queue::{self, Terms};
use etude::runner::Request;
use etude_core::data::Json;
use etude_runtime::engine::Enqueued;
use etude_runtime::sync::block_on;
use etude_sqlite::{Settings, Sqlite, Sync};
use serde_json::json;

use crate::test::Test;

/// Queues a run as a server does for a request. Returns its id.
fn enqueue(test: &Test, pipeline: &str) -> String {
    let engine =
        Sqlite::open(Settings { dir: test.path("home/.local/state/etude"), sync: Sync::Normal }).expect("a journal");
    let disk = Disk::open(&test.path("app")).expect("an app");
    let definition = etude::definition::load(&disk, pipeline, &Default::default()).expect("it holds");
    let request = Request::new(Json::trusted("{}"), String::new());
    let now = etude_runtime::clock::now_ms();
    let (id, enqueued) =
        block_on(queue::enqueue(&engine, &definition, request, Terms::default(), now)).expect("accepted");
    assert_eq!(enqueued, Enqueued::Accepted);
    id
}

/// S-51, cli: `queued` is a status like the others, in lists, documents and counts.
#[test]
fn a_queued_run_is_shown_as_such() {
    let test = Test::new().pipeline("good", |p| p.note("a", "1"));
    test.run_json("good").exit(0);
    let id = enqueue(&test, "good");
    let listed = test.run(&["runs", "list", "--status", "queued", "--format", "json"]).exit(0);
    listed.has("/total", 1).has("/runs/0/status", "queued");
    let listed = test.run(&["runs", "list", "--format", "json"]).exit(0);
    listed.has("/total", 2).has("/runs/0/started_at", json!(null)).has("/runs/0/duration_ms", 0);
    let text = test.run(&["runs", "list"]).exit(0);
    assert!(text.out().lines().any(|line| line.contains("queued")), "{}", text.out());
    let shown = test.run(&["runs", "show", &id, "--format", "json"]).exit(0);
    shown.has("/status", "queued").has("/started_at", json!(null)).has("/steps/0/status", "not_started");
    test.run(&["runs", "show", &id]).exit(0);
    test.run(&["runs", "stats", "--format", "json"]).exit(0);
    test.run(&["runs", "list", "--status", "lost"])
        .exit(2)
        .stderr_has("queued, running, waiting, sleeping, succeeded, failed, cancelled, moved, interrupted");
}

/// S-80: a cancelled queued run never starts, nor does its destructor.
#[test]
fn a_queued_run_that_is_cancelled_runs_nothing() {
    let test = Test::new().pipeline("good", |p| p.note("a", "1")).pipeline("_destructor", |p| p.note("d", "1"));
    let id = enqueue(&test, "good");
    test.run(&["runs", "cancel", &id, "--format", "json"]).exit(0).has("/status", "cancelled");
    assert_eq!(test.ledger(), [""; 0]);
    test.run(&["runs", "list", "--format", "json"]).has("/runs/0/status", "cancelled").has("/runs/0/kind", "cancelled");
    test.run(&["runs", "cancel", &id]).exit(2);
    // It can still be attempted.
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(0).has("/status", "succeeded");
    assert_eq!(test.ledger(), ["a", "d"]);
}

/// A queued run that is resumed begins at once, and leaves the queue.
#[test]
fn a_queued_run_can_be_resumed_out_of_its_turn() {
    let test = Test::new().pipeline("good", |p| p.note("a", "1"));
    let id = enqueue(&test, "good");
    test.run(&["runs", "resume", &id, "--format", "json"]).exit(0).has("/status", "succeeded");
    let listed = test.run(&["runs", "list", "--status", "queued", "--format", "json"]).exit(0);
    listed.has("/total", 0);
    assert_eq!(test.ledger(), ["a"]);
}
