//! Runs with bundles: a server leaves them to workers, and a worker gives up one that it cannot continue.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etude::Disk;
use etude::definition::Definition;
use etude::runner::Runner;
use etude_core::data::Json;
use etude_core::digest::Digest;
use etude_core::failure::FailureKind;
use etude_core::machine::ABI;
use etude_core::model::Usage;
use etude_core::outcome::Decision;
use etude_runs::document::Document;
use etude_runs::target::Target;
use etude_runtime::conformance::{new_run, record};
use etude_runtime::engine::{Cause, Engine, Enqueued, NewRun, Placement, RunRow, RunState, Submission};
use etude_runtime::record::decision_signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::event::Event;
use super::{Active, Control, cancel_run, continue_run, drain_beside, expire, look};
use crate::app::{Apps, NotLoaded};
use crate::blocking::blocking;
use crate::clock::Clock;
use crate::listen::Addresses;
use crate::log::LogLine;
use crate::server::Server;
use crate::settings::{ServedApp, Settings, Worker};
use crate::stopped::{MAX_ATTEMPTS, Next, Reason};

/// Apps without any bundle.
struct NoBundles;

impl Apps for NoBundles {
    fn place(&self, _: &NewRun) -> Result<PathBuf, NotLoaded> {
        Err(NotLoaded::Unreadable("the bundle b0 is not kept".to_owned()))
    }

    fn load(&self, _: &Path, _: &Target) -> Result<(Disk, Definition), NotLoaded> {
        Err(NotLoaded::Unknown { known: Vec::new() })
    }

    fn runner(&self, _: &NewRun, _: &Disk, _: &Definition) -> Result<Runner, String> {
        Err("no app is served".to_owned())
    }

    fn list(&self, _: &Path) -> Result<serde_json::Value, String> {
        Err("no app is served".to_owned())
    }
}

/// A server, or a worker with one place, on a separate journal.
pub(crate) fn process(is_worker: bool) -> (TempDir, Arc<Server>) {
    serving(is_worker, Vec::new())
}

/// The same, with served apps.
pub(crate) fn serving(is_worker: bool, apps: Vec<ServedApp>) -> (TempDir, Arc<Server>) {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = etude_sqlite::Settings { dir: dir.path().to_owned(), sync: etude_sqlite::Sync::Normal };
    let engine = Arc::new(etude_sqlite::Sqlite::open(settings).expect("a journal"));
    let queues = vec!["default".to_owned()];
    let worker = Worker { queues, places: 1, idle: None, poll: Duration::ZERO, max_crashes: 3 };
    let settings = Settings { worker: is_worker.then_some(worker), ..Settings::new(dir.path(), apps) };
    let log = Box::new(|_: &LogLine| ());
    let server = Server::new(settings, engine, Box::new(NoBundles), Addresses::default(), Clock::default(), log);
    (dir, server)
}

/// A run with a bundle that has begun and that no process has.
async fn begun(engine: &Arc<dyn Engine>, abi: u32, state: RunState) {
    let placement = Placement { bundle: Some(Digest::of(b"app")), ..Placement::default() };
    let run = NewRun { abi, placement, ..new_run("r-1", 1) };
    let session = engine.create(&run).await.expect("create");
    session.append(record("main/a", "1")).await.expect("append");
    session.set_state(state, None).await.expect("set_state");
}

/// K-46: a run whose bundle is gone ends as failed after three attempts, with the cause.
#[tokio::test]
async fn a_run_that_no_worker_can_continue_ends_as_failed() {
    let (_dir, server) = process(true);
    let engine = Arc::clone(server.engine());
    begun(&engine, ABI, RunState::Running).await;
    for _ in 0..3 {
        look(server.works(), true).await;
        assert_eq!(engine.row("r-1").expect("row").state, RunState::Running);
    }
    look(server.works(), true).await;
    assert_eq!(engine.row("r-1").expect("row").state, RunState::Failed);
    let result = engine.result("r-1").expect("result").expect("a document");
    assert!(result.contains("environment") && result.contains("the bundle b0 is not kept"), "{result}");
}

/// K-62: a run of another version of the interpreter is left as it is.
#[tokio::test]
async fn a_run_of_another_version_is_left_alone() {
    let (_dir, server) = process(true);
    let engine = Arc::clone(server.engine());
    begun(&engine, ABI + 1, RunState::Running).await;
    // The first look of a process creates what lists need.
    look(server.works(), true).await;
    let moment = || tokio::time::sleep(Duration::from_millis(10));
    moment().await;
    let before = engine.version().expect("version");
    for _ in 0..5 {
        look(server.works(), true).await;
    }
    moment().await;
    assert_eq!(
        (engine.row("r-1").expect("row").state, engine.version().expect("version")),
        (RunState::Running, before)
    );
}

/// K-40, K-50: a server neither continues a run with a bundle nor drives its cancellation: both are for workers.
#[tokio::test]
async fn a_server_leaves_runs_with_bundles_to_workers() {
    let (_dir, server) = process(false);
    let engine = Arc::clone(server.engine());
    begun(&engine, ABI, RunState::Waiting).await;
    let (of, row) = (Arc::clone(&server), engine.row("r-1").expect("row"));
    let left = blocking(move || {
        continue_run(of.works(), "r-1")?;
        cancel_run(of.works(), &row, "no more", false)
    });
    assert!(left.await.is_ok());
    let view = engine.view("r-1").expect("view");
    assert_eq!((view.row.state, view.signals.len()), (RunState::Waiting, 1));
    // The run was not taken, so nothing stopped here.
    let stops = &server.works().stops;
    assert_eq!(stops.next("r-1", Duration::from_secs(3600), || Ok::<_, ()>(0)), Ok(Next::Continue));
}

/// S-84: a waiting run whose result is lost keeps no other run from going on.
#[tokio::test]
async fn a_run_that_cannot_be_read_stops_no_other() {
    let app = tempfile::tempdir().expect("a directory");
    let (dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: app.path().to_owned() }]);
    let engine = Arc::clone(server.engine());
    let waits = async |id: &str, created_at_ms: i64, result: &str| {
        let placement = Placement { cause: Cause::Api, ..Placement::default() };
        let run = NewRun { app: app.path().display().to_string(), placement, ..new_run(id, created_at_ms) };
        let session = engine.create(&run).await.expect("create");
        session.set_state(RunState::Waiting, Some(result)).await.expect("set_state");
    };
    let asks = json!({"id": "r-1:a", "kind": "approval", "payload": {"question": "q"}});
    waits(
        "r-1",
        1,
        &Document { waiting: vec![asks], ..Document::not_started(None, &[], &Usage::default()) }.to_journal(),
    )
    .await;
    waits("r-2", 2, &"x".repeat(300_000)).await;
    std::fs::remove_dir_all(dir.path().join("blobs")).expect("the result is lost");
    let decision =
        Decision { approved: true, answer: Json::null(), by: String::new(), at: String::new(), reason: None };
    engine.signal("r-1", &decision_signal("a", "q", &decision)).expect("signal");
    look(server.works(), true).await;
    let row = |id: &str| engine.row(id).expect("a row").state;
    assert_eq!((row("r-1"), row("r-2")), (RunState::Failed, RunState::Waiting), "the app has no such pipeline");
}

/// A run of a served app, without a bundle.
fn served(app: &TempDir, id: &str, created_at_ms: i64) -> NewRun {
    let placement = Placement { cause: Cause::Api, queue_timeout_ms: Some(1), ..Placement::default() };
    NewRun { app: app.path().display().to_string(), placement, ..new_run(id, created_at_ms) }
}

/// S-84: an interrupted run that cannot be read keeps no other run from going on, and is reported.
#[tokio::test]
async fn an_interrupted_run_that_cannot_be_read_stops_no_other() {
    let app = tempfile::tempdir().expect("a directory");
    let (dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: app.path().to_owned() }]);
    let engine = Arc::clone(server.engine());
    let failed: Arc<Mutex<Vec<Event>>> = Arc::default();
    let events = Arc::clone(&failed);
    server.works().observer.set(Box::new(move |event| {
        if matches!(event, Event::JournalFailed { .. }) {
            events.lock().expect("no panic").push(event.clone());
        }
    }));
    // The lost ones have stopped too often, so that their records are read. A list begins with one of them, in either order.
    for (id, at, is_lost) in [("r-1", 1, true), ("r-2", 2, false), ("r-3", 3, true)] {
        let session = engine.create(&served(&app, id, at)).await.expect("create");
        let result = is_lost.then(|| "x".repeat(300_000));
        session.set_state(RunState::Running, result.as_deref()).await.expect("set_state");
        for _ in 0..if is_lost { MAX_ATTEMPTS } else { 0 } {
            server.works().stops.note(id, 0, Reason::lasting(FailureKind::Environment, "it stopped"));
        }
    }
    std::fs::remove_dir_all(dir.path().join("blobs")).expect("the results are lost");
    look(server.works(), true).await;
    let state = |id: &str| engine.row(id).expect("a row").state;
    assert_eq!(["r-1", "r-2", "r-3"].map(state), [RunState::Running, RunState::Failed, RunState::Running]);
    assert_eq!(failed.lock().expect("no panic").len(), 1);
}

/// S-96: a run whose end cannot be written keeps no other run from expiring, and is reported.
#[tokio::test]
async fn a_run_that_cannot_be_ended_keeps_no_other_from_expiring() {
    let app = tempfile::tempdir().expect("a directory");
    let (dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: app.path().to_owned() }]);
    let engine = Arc::clone(server.engine());
    for (id, at, is_large) in [("r-1", 1, true), ("r-2", 2, false), ("r-3", 3, true)] {
        let run = served(&app, id, at);
        let target = if is_large { "x".repeat(300_000) } else { run.target.clone() };
        let run = NewRun { target, ..run };
        let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
        assert_eq!(engine.enqueue(&submission).await.expect("enqueue"), Enqueued::Accepted);
    }
    std::fs::write(dir.path().join("blobs"), "").expect("no large result can be written");
    let of = Arc::clone(server.works());
    assert!(blocking(move || expire(&of)).await.is_err());
    let state = |id: &str| engine.row(id).expect("a row").state;
    assert_eq!(["r-1", "r-2", "r-3"].map(state), [RunState::Queued, RunState::Failed, RunState::Queued]);
}

/// S-84: a queued run that can neither begin nor end counts as interrupted, and keeps no other run waiting.
#[tokio::test]
async fn a_queued_run_that_cannot_be_ended_keeps_no_other_waiting() {
    let app = tempfile::tempdir().expect("a directory");
    let (dir, server) = serving(false, vec![ServedApp { slug: "demo".to_owned(), dir: app.path().to_owned() }]);
    let engine = Arc::clone(server.engine());
    for (id, at, target) in [("r-1", 1, "x".repeat(300_000)), ("r-2", 2, "x".to_owned())] {
        let run = NewRun { target, placement: Placement::default(), ..served(&app, id, at) };
        let submission = Submission { run, keys: Vec::new(), max_queued: None, needs_room: false };
        assert_eq!(engine.enqueue(&submission).await.expect("enqueue"), Enqueued::Accepted);
    }
    std::fs::write(dir.path().join("blobs"), "").expect("no large result can be written");
    look(server.works(), false).await;
    let state = |id: &str| engine.row(id).expect("a row").state;
    assert_eq!(["r-1", "r-2"].map(state), [RunState::Running, RunState::Failed], "the app has no such pipelines");
}

/// A run whose pipeline is gone, so that it cannot be driven to its end, ends as cancelled.
#[tokio::test]
async fn a_run_without_a_definition_is_cancelled_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = crate::server::tests::server(dir.path());
    let engine = Arc::clone(server.engine());
    let session = engine.create(&new_run("r-1", 1)).await.expect("create");
    session.append(record("main/a", "1")).await.expect("append");
    session.set_state(RunState::Waiting, None).await.expect("set_state");
    drop(session);
    let (of, row) = (Arc::clone(&server), engine.row("r-1").expect("row"));
    assert!(blocking(move || cancel_run(of.works(), &row, "no more", false)).await.is_ok());
    assert_eq!(engine.row("r-1").expect("row").state, RunState::Cancelled);
    let result = engine.result("r-1").expect("result").expect("a document");
    assert!(result.contains("no more") && result.contains("cancelled"), "{result}");
}

/// S-79, S-81: a cancellation is not lost if another process leaves the run to wait without reading it, and is refused if the run
/// has ended since it was read.
#[tokio::test]
async fn a_cancellation_reaches_a_run_that_another_process_leaves() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = crate::server::tests::server(dir.path());
    let engine = Arc::clone(server.engine());
    let journal = etude_sqlite::Settings { dir: dir.path().to_owned(), sync: etude_sqlite::Sync::Normal };
    let other = etude_sqlite::Sqlite::open(journal).expect("the journal");
    let cancelled = async |row: RunRow| {
        let of = Arc::clone(&server);
        blocking(move || cancel_run(of.works(), &row, "no more", false)).await.ok()
    };
    let [left, over] = ["r-1", "r-2"].map(|id| new_run(id, 1));
    let left = other.create(&left).await.expect("create");
    let over = other.create(&over).await.expect("create");
    let read = engine.row("r-2").expect("row");
    assert_eq!(cancelled(engine.row("r-1").expect("row")).await, Some(true));
    look(server.works(), true).await;
    assert_eq!(engine.row("r-1").expect("row").state, RunState::Running, "the other process has it");
    left.set_state(RunState::Waiting, None).await.expect("set_state");
    drop(left);
    look(server.works(), true).await;
    assert_eq!(engine.row("r-1").expect("row").state, RunState::Cancelled);
    over.set_state(RunState::Succeeded, None).await.expect("set_state");
    assert_eq!(cancelled(read).await, Some(false));
    assert!(engine.view("r-2").expect("view").signals.is_empty());
}

/// K-18, K-23: the new lease covers runs that were taken after a lapse: they are neither left nor ended.
#[test]
fn a_lapse_loses_the_runs_that_were_taken_before_it() {
    let (_dir, server) = process(false);
    let works = server.works();
    let take = |id: &str, lapses: u64| {
        let (control, controls) = mpsc::unbounded_channel();
        works.active().insert(id.to_owned(), Active { control, lapses });
        controls
    };
    let (mut before, mut after) = (take("before", 0), take("after", 1));
    assert_eq!(works.lose(1), ["before"]);
    assert!(matches!(before.try_recv(), Ok(Control::Lapse)));
    assert!(after.try_recv().is_err());
    assert_eq!(works.lose(2), ["after", "before"]);
}

/// K-27: a look at an unreachable database delays no worker that stops, and neither does a run that waits for the database. Work
/// that ends in time is waited for.
#[tokio::test]
async fn a_drain_waits_for_no_database() {
    let (_dir, server) = process(true);
    let works = server.works();
    let (now, never) = (std::future::ready::<()>, std::future::pending::<()>);
    assert!(drain_beside(works, now(()), never(), Duration::ZERO).await);
    assert!(!drain_beside(works, never(), now(()), Duration::ZERO).await);
    let (control, mut controls) = mpsc::unbounded_channel();
    works.active().insert("stuck".to_owned(), Active { control, lapses: 0 });
    assert!(!drain_beside(works, now(()), now(()), Duration::ZERO).await);
    assert!(matches!(controls.try_recv(), Ok(Control::Drain)));
    let last = std::iter::from_fn(|| controls.try_recv().ok()).last();
    assert!(matches!(last, Some(Control::Leave)), "{last:?}");
}
