use std::collections::BTreeSet;

use etude_core::data::Json;
use etude_core::failure::{Failure, FailureKind};
use etude_core::machine::{Aside, Limits};
use etude_core::model::{self, CallFailure, ModelResponse, Tier, Usage};
use etude_process::blob::FileBlobs;
use etude_runtime::engine::{self, Cause, Engine, Enqueued, Placement, Query, RunState, UniqueKey};
use etude_runtime::host::{Boxed, ModelPort};
use etude_runtime::memory::MemoryEngine;
use etude_runtime::record;
use serde_json::Value;
use tokio::sync::mpsc;

use super::*;
use crate::attempts::{self, Next};
use crate::crash;
use crate::definition;
use crate::queue::{self, Refused, Terms};
use crate::runner::{NoModels, Request};
use etude_runs::document::Document;
use etude_runs::header::Granted;

const NOW: i64 = 1_000_000;

const PIPELINE: &str = "
name: two
description: Two steps.
input: {name: string, times: {type: integer, default: 1}}
steps:
  - {name: first, type: code, command: sh steps/first.sh}
  - {name: second, type: code, command: sh steps/second.sh}
";

/// Writes that it began, and waits until the test lets it end.
const FIRST: &str = r#"
cd "$ETUDE_APP_DIR"
echo first >> ledger
echo began >&2
until [ -e go ]; do sleep 0.01; done
echo '{"output": 1}'
"#;

const SECOND: &str = r#"echo second >> "$ETUDE_APP_DIR/ledger"; echo '{"output": 2}'"#;

/// An app with a journal.
struct World {
    dir: tempfile::TempDir,
    engine: Arc<dyn Engine>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in [
            ("pipelines/two/pipeline.yaml", PIPELINE),
            ("pipelines/two/steps/first.sh", FIRST),
            ("pipelines/two/steps/second.sh", SECOND),
        ] {
            let path = dir.path().join("app").join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let blobs = Arc::new(FileBlobs::new(dir.path().join("blobs"), false));
        Self { engine: Arc::new(MemoryEngine::new(blobs)), dir }
    }

    fn app(&self) -> std::path::PathBuf {
        self.dir.path().join("app")
    }

    fn parts(&self) -> Arc<Parts> {
        let disk = Disk::open(&self.app()).expect("an app");
        let definition = definition::load(&disk, "two", &definition::Configuration::default());
        let runner = Runner::new(Arc::clone(&self.engine), Arc::new(NoModels), self.dir.path().to_owned());
        Arc::new(Parts { runner, definition: definition.expect("it holds"), disk })
    }

    async fn enqueue(&self, input: &str, terms: Terms) -> Result<(String, Enqueued), Refused> {
        let request = Request::new(Json::trusted(input), String::new());
        queue::enqueue(&*self.engine, &self.parts().definition, request, terms, NOW).await
    }

    /// Enqueues a run and returns its id.
    async fn accepted(&self, placement: Placement) -> String {
        let terms = Terms { placement, ..Terms::default() };
        let (id, enqueued) = self.enqueue(r#"{"name": "a"}"#, terms).await.expect("accepted");
        assert_eq!(enqueued, Enqueued::Accepted);
        id
    }

    /// The parts for a pipeline with one question, and a model without a price.
    fn unpriced(&self) -> Arc<Parts> {
        let path = self.app().join("pipelines/ask/pipeline.yaml");
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        let text = "name: ask\ndescription: A question.\nsteps: [{name: q, type: llm, prompt: hi}]\n";
        std::fs::write(path, text).expect("written");
        let disk = Disk::open(&self.app()).expect("an app");
        let definition = definition::load(&disk, "ask", &definition::Configuration::default());
        let runner = Runner::new(Arc::clone(&self.engine), Arc::new(Unpriced), self.dir.path().to_owned());
        Arc::new(Parts { runner, definition: definition.expect("it holds"), disk })
    }

    fn next(&self) -> Option<Box<dyn Session>> {
        self.engine.next(&engine::Limits::of_default_queue(4), NOW + 5).expect("the queue can be read")
    }

    fn let_go(&self) {
        std::fs::write(self.app().join("go"), "").expect("written");
    }

    fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.app().join("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn state(&self, id: &str) -> (RunState, bool) {
        let row = self.engine.row(id).expect("a row");
        (row.state, row.is_live)
    }

    fn document(&self, id: &str) -> Document {
        let text = self.engine.result(id).expect("the journal").expect("a result");
        Document::from_journal(&text, &*self.engine.blobs()).expect("a document")
    }
}

/// A model with an unknown price.
#[derive(Debug)]
struct Unpriced;

impl ModelPort for Unpriced {
    fn call(&self, request: model::Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        NoModels.call(request)
    }

    fn unpriced(&self, tier: Tier) -> Boxed<Vec<String>> {
        Box::pin(std::future::ready(vec![format!("m/{tier}")]))
    }
}

/// A run under way, with the lines that its processes write to stderr.
fn watched(parts: Arc<Parts>, session: Box<dyn Session>) -> (RunHandle, mpsc::UnboundedReceiver<String>) {
    let (said, reported) = mpsc::unbounded_channel();
    let observer: Observer = Box::new(move |progress| {
        if let Progress::Stderr { bytes, .. } = progress {
            let _ = said.send(String::from_utf8_lossy(bytes).into_owned());
        }
    });
    (drive(parts, session, Resume::default(), false, observer), reported)
}

async fn ended(handle: &mut RunHandle) -> Result<RunResult, Error> {
    handle.wait().await.expect("no panic")
}

fn status_of_steps(document: &Document) -> Vec<String> {
    let steps = document.members.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
    steps.iter().map(|step| step["status"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A-4.9: a cost limit that prices cannot enforce ends a run before it starts: directly, from a queue, and in another attempt.
#[tokio::test]
async fn a_limit_of_money_needs_prices() {
    let world = World::new();
    let parts = world.unpriced();
    let limits = Limits { max_cost_usd: Some(1.0), ..Limits::default() };
    let request = |limits| Request { limits, ..Request::new(Json::trusted("{}"), String::new()) };
    let started = parts.runner.start(&parts.definition, &parts.disk, request(limits), Watch::new(&mut |_| ())).await;
    let refused = started.expect_err("it is refused").to_string();
    assert!(refused.contains("the price of `m/standard` is unknown"), "{refused}");
    assert_eq!(world.engine.list(&Query::default()).expect("the journal").len(), 0);

    let submitted = queue::enqueue(&*world.engine, &parts.definition, request(limits), Terms::default(), NOW).await;
    let (id, _) = submitted.expect("accepted");
    let session = world.next().expect("it is next");
    let mut handle = drive(Arc::clone(&parts), session, Resume::default(), false, Box::new(|_| ()));
    let failed = ended(&mut handle).await.expect("a result");
    assert_eq!(failed.errors[0].kind, FailureKind::Environment);
    assert_eq!(
        (world.state(&id).0, status_of_steps(&world.document(&id))),
        (RunState::Failed, vec!["not_started".into()])
    );

    let request = request(Limits::default());
    let started = parts.runner.start(&parts.definition, &parts.disk, request, Watch::new(&mut |_| ())).await;
    let id = started.expect("it fails for want of a model").run_id;
    let session = world.engine.claim(&id).expect("no one has it");
    let view = world.engine.view(&id).expect("a run");
    let next =
        attempts::Ended { view: &view, definition: &parts.definition, blobs: &world.engine.blobs(), limits }.resume();
    let Ok(Next::Attempt(attempt)) = next else { panic!("{next:?}") };
    let resume = Resume { attempt: Some(attempt), ..Resume::default() };
    let resumed = parts.runner.resume(session, &parts.definition, &parts.disk, resume, Watch::new(&mut |_| ())).await;
    assert!(matches!(resumed, Err(Error::Refused { .. })), "{resumed:?}");
    assert_eq!(world.state(&id).0, RunState::Failed);
}

/// S-36: accepting a run starts nothing, and the process that takes it begins it with the accepted request.
#[tokio::test]
async fn an_accepted_run_begins_when_it_is_taken() {
    let world = World::new();
    let id = world.accepted(Placement { cause: Cause::Api, ..Placement::default() }).await;
    assert_eq!(world.state(&id), (RunState::Queued, false));
    assert_eq!(world.ledger(), [""; 0]);
    let session = world.next().expect("it is next");
    world.let_go();
    let (mut handle, _) = watched(world.parts(), session);
    assert_eq!(handle.run_id(), id);
    let end = ended(&mut handle).await.expect("it ran");
    assert_eq!((end.document.status(), handle.is_over()), ("succeeded", true));
    assert_eq!(world.ledger(), ["first", "second"]);
    assert_eq!(world.state(&id), (RunState::Succeeded, false));
    let view = world.engine.view(&id).expect("view");
    let input = etude_runs::inspect::input(&view, &*world.engine.blobs()).expect("an input");
    assert_eq!(input.value().expect("json"), serde_json::json!({"name": "a", "times": 1}), "with its defaults");
    assert!(etude_runtime::record::at_ms(&view.records[1]).is_some());
}

/// S-38, S-46: each fault of the input is reported; a refused run leaves nothing behind, not even a key.
#[tokio::test]
async fn input_that_does_not_fit_is_not_accepted() {
    let world = World::new();
    let key = UniqueKey { key: "k".to_owned(), digest: None };
    let terms = || Terms { keys: vec![key.clone()], ..Terms::default() };
    let refused = world.enqueue(r#"{"times": "often", "colour": 1}"#, terms()).await;
    let Err(Refused::Input(problems)) = refused else { panic!("{refused:?}") };
    let about: BTreeSet<_> = problems.iter().filter_map(|problem| problem.parameter.as_deref()).collect();
    assert_eq!(about, ["colour", "name", "times"].into());
    assert_eq!(world.engine.list(&Query::default()).expect("list"), []);
    let (id, first) = world.enqueue(r#"{"name": "a"}"#, terms()).await.expect("accepted");
    assert_eq!(first, Enqueued::Accepted);
    let (_, again) = world.enqueue(r#"{"name": "b"}"#, terms()).await.expect("answered");
    assert!(matches!(again, Enqueued::Repeated { run_id, .. } if run_id == id));
}

/// S-80: a queued run that is cancelled never starts; it can be attempted again later.
#[tokio::test]
async fn a_cancelled_queued_run_never_starts() {
    let world = World::new();
    let (id, parts) = (world.accepted(Placement::default()).await, world.parts());
    let definition = Some(&parts.definition);
    assert!(queue::cancel(&*world.engine, definition, &id, "no longer needed").await.expect("cancelled"));
    assert_eq!(world.state(&id), (RunState::Cancelled, false));
    assert!(world.next().is_none());
    assert!(!queue::cancel(&*world.engine, definition, &id, "again").await.expect("it is over"));
    let document = world.document(&id);
    assert_eq!((document.status(), document.duration_ms), ("cancelled", 0));
    assert_eq!(status_of_steps(&document), ["not_started", "not_started"]);
    assert_eq!(document.members["errors"][0]["message"], "no longer needed");
    assert_eq!(world.ledger(), [""; 0]);

    let view = world.engine.view(&id).expect("view");
    let blobs = world.engine.blobs();
    let run = attempts::Ended { view: &view, definition: &parts.definition, blobs: &blobs, limits: Limits::default() };
    let Ok(Next::Attempt(attempt)) = run.resume() else { panic!("another attempt") };
    world.let_go();
    let resume = Resume { accept_changes: false, attempt: Some(attempt) };
    let session = world.engine.claim(&id).expect("claim");
    let mut handle = drive(parts, session, resume, false, Box::new(|_| ()));
    let end = ended(&mut handle).await.expect("it ran");
    assert_eq!((end.document.status(), world.ledger()), ("succeeded", vec!["first".into(), "second".into()]));
}

/// S-96: a run that stays queued beyond its timeout fails without starting.
#[tokio::test]
async fn a_run_that_waited_too_long_fails_without_starting() {
    let world = World::new();
    let within = |ms| Placement { queue_timeout_ms: Some(ms), ..Placement::default() };
    let (with, without) = (world.accepted(within(60_000)).await, world.accepted(within(60_000)).await);
    let patient = world.accepted(within(60_001)).await;
    let definition = |run: &engine::NewRun| (run.id == with).then(|| world.parts().definition.clone());
    let mut over = queue::expire(&world.engine, definition, NOW + 60_000).await.expect("expired");
    over.sort_unstable();
    let mut expected = [with.clone(), without.clone()];
    expected.sort_unstable();
    assert_eq!(over, expected);
    for (id, steps) in [(&with, vec!["not_started"; 2]), (&without, vec![])] {
        assert_eq!(world.state(id), (RunState::Failed, false));
        let document = world.document(id);
        assert_eq!((document.status(), document.run_id.as_ref()), ("failed", Some(id)));
        assert_eq!(status_of_steps(&document), steps);
        let error = &document.members["errors"][0];
        assert_eq!((&error["kind"], &error["code"]), (&"queue_expired".into(), &"R0403".into()));
    }
    assert_eq!(world.next().expect("it still may").run_id(), patient);
}

/// S-96, A-5.6: a failed run that is queued again continues with its completed steps. If it stays queued beyond its timeout, it
/// fails again and keeps them.
#[tokio::test]
async fn a_run_that_is_queued_again_keeps_its_completed_steps() {
    let world = World::new();
    let id = world.accepted(Placement { queue_timeout_ms: Some(60_000), ..Placement::default() }).await;
    drained_in_its_first_step(&world).await;
    let parts = world.parts();
    let queue_again = async |failure: Option<FailureKind>| {
        let session = world.engine.claim(&id).expect("claim");
        let view = world.engine.view(&id).expect("view");
        if let Some(kind) = failure {
            let failure = Failure::new(kind, "stopped".to_owned());
            crash::end(&world.engine, &*session, &view, Some(&parts.definition), failure).await.expect("ended");
        }
        let view = world.engine.view(&id).expect("view");
        let blobs = world.engine.blobs();
        let (view, definition) = (&view, &parts.definition);
        let run = attempts::Ended { view, definition, blobs: &blobs, limits: Limits::default() };
        let Ok(Next::Attempt(attempt)) = run.resume() else { panic!("another attempt") };
        let (resume, now_ms) = (Resume { accept_changes: false, attempt: Some(attempt) }, NOW + 100_000);
        queue::requeue(&*world.engine, session, definition, &parts.disk, resume, now_ms).await.expect("queued");
        assert_eq!(world.state(&id), (RunState::Queued, false));
    };
    queue_again(Some(FailureKind::Environment)).await;
    let definition = |_: &engine::NewRun| Some(world.parts().definition.clone());
    assert!(queue::expire(&world.engine, definition, NOW + 159_999).await.expect("none").is_empty());
    let expired = queue::expire(&world.engine, definition, NOW + 160_000).await.expect("expired");
    assert_eq!(expired, std::slice::from_ref(&id));
    let document = world.document(&id);
    assert_eq!((document.status(), document.attempt), ("failed", Some(2)));
    assert_eq!(status_of_steps(&document), ["succeeded", "not_started"]);
    assert_eq!(document.members["errors"][0]["kind"], "queue_expired");

    queue_again(None).await;
    let session = world.next().expect("it is next");
    let (mut handle, _) = watched(world.parts(), session);
    let end = ended(&mut handle).await.expect("it ran");
    assert_eq!((end.document.status(), end.document.attempt), ("succeeded", Some(2)), "nothing of it had run");
    assert_eq!(world.ledger(), ["first", "second"], "the first step has run once");
}

/// Drives the next run, and drains it during its first step.
async fn drained_in_its_first_step(world: &World) {
    let (mut handle, mut said) = watched(world.parts(), world.next().expect("it is next"));
    assert_eq!(said.recv().await.as_deref(), Some("began\n"));
    handle.drain();
    world.let_go();
    let end = ended(&mut handle).await;
    assert!(is_left(&end), "{end:?}");
}

/// S-159: a draining process lets work under way finish and begins nothing new; another process continues the run.
#[tokio::test]
async fn a_drained_run_is_continued_by_another_process() {
    let world = World::new();
    let id = world.accepted(Placement::default()).await;
    drained_in_its_first_step(&world).await;
    assert_eq!(world.state(&id), (RunState::Running, false));
    assert_eq!(world.ledger(), ["first"], "the second step did not begin");
    let (mut handle, _) = watched(world.parts(), world.engine.claim(&id).expect("claim"));
    assert_eq!(ended(&mut handle).await.expect("it ran").document.status(), "succeeded");
    assert_eq!(world.ledger(), ["first", "second"], "no step ran twice");
}

/// S-159: a run that waits for a decision and has other work is left, so that the next process does that work.
#[tokio::test]
async fn a_drained_run_with_a_question_and_work_is_left() {
    let world = World::new();
    let pipelines = world.app().join("pipelines");
    std::fs::rename(pipelines.join("two"), pipelines.join("inner")).expect("moved");
    std::fs::create_dir(pipelines.join("two")).expect("made");
    let inner = PIPELINE.replace("name: two", "name: inner").replace("input: {name: string,", "input: {");
    std::fs::write(pipelines.join("inner/pipeline.yaml"), inner).expect("written");
    let (head, _) = PIPELINE.split_once("steps:").expect("steps");
    let both = "steps:\n  - name: both\n    type: parallel\n    steps:\n      - {name: ask, type: approval, message: Go on?}\n      \
                - {name: inner, type: pipeline, pipeline: inner}\n";
    std::fs::write(pipelines.join("two/pipeline.yaml"), format!("{head}{both}")).expect("written");
    let id = world.accepted(Placement::default()).await;
    drained_in_its_first_step(&world).await;
    let (mut handle, _) = watched(world.parts(), world.engine.claim(&id).expect("claim"));
    assert_eq!(ended(&mut handle).await.expect("it ran").document.status(), "waiting");
    assert_eq!(world.ledger(), ["first", "second"], "the work is done before the answer");
}

/// X-3: the timeout of a question continues if the asking process dies; that of a repeated step restarts.
#[tokio::test]
async fn a_question_keeps_its_deadline_when_its_process_dies() {
    let world = World::new();
    let (head, _) = PIPELINE.split_once("steps:").expect("steps");
    let both = "steps:\n  - name: both\n    type: parallel\n    steps:\n      - {name: ask, type: approval, message: Go on?, timeout: 1h}\n      \
                - {name: first, type: code, command: sh steps/first.sh, timeout: 1h}\n";
    std::fs::write(world.app().join("pipelines/two/pipeline.yaml"), format!("{head}{both}")).expect("written");
    let id = world.accepted(Placement::default()).await;
    let (mut handle, mut said) = watched(world.parts(), world.next().expect("it is next"));
    assert_eq!(said.recv().await.as_deref(), Some("began\n"));
    handle.leave();
    assert!(is_left(&ended(&mut handle).await));
    let deadlines = || {
        let view = world.engine.view(&id).expect("view");
        view.records.iter().filter_map(record::to_deadline).collect::<Vec<_>>()
    };
    let [(timer, ends_ms)] = &deadlines()[..] else { panic!("one question has one deadline: {:?}", deadlines()) };
    assert_eq!(timer.as_str(), "two/both/ask!timeout");
    world.let_go();
    let (mut handle, _) = watched(world.parts(), world.engine.claim(&id).expect("claim"));
    assert_eq!(ended(&mut handle).await.expect("it ran").document.status(), "waiting");
    assert_eq!(deadlines(), [(timer.clone(), *ends_ms)], "it is as it was, and no step has one");
    // The hour passes while no process has the run.
    let session = world.engine.claim(&id).expect("claim");
    session.append(record::of_deadline(timer, *ends_ms - 3_600_000)).await.expect("appended");
    drop(session);
    let (mut handle, _) = watched(world.parts(), world.engine.claim(&id).expect("claim"));
    let document = ended(&mut handle).await.expect("it ran").document;
    assert_eq!((document.status(), &document.members["errors"][0]["kind"]), ("failed", &"step_timeout".into()));
}

/// S-159: a step that does not end in time is killed, and runs again in the next process.
#[tokio::test]
async fn a_run_that_is_left_begins_its_step_again_elsewhere() {
    let world = World::new();
    let id = world.accepted(Placement::default()).await;
    let (mut handle, mut said) = watched(world.parts(), world.next().expect("it is next"));
    assert_eq!(said.recv().await.as_deref(), Some("began\n"));
    handle.drain();
    handle.leave();
    let end = ended(&mut handle).await;
    assert!(is_left(&end), "{end:?}");
    assert_eq!((world.state(&id), world.ledger()), ((RunState::Running, false), vec!["first".to_owned()]));
    world.let_go();
    let (mut handle, _) = watched(world.parts(), world.engine.claim(&id).expect("claim"));
    assert_eq!(ended(&mut handle).await.expect("it ran").document.status(), "succeeded");
    assert_eq!(world.ledger(), ["first", "first", "second"]);
}

/// S-159: when a drive is over, no step is under way, however long the steps take to end.
#[tokio::test]
async fn a_run_is_left_when_its_steps_have_ended() {
    let world = World::new();
    let slow = "cd \"$ETUDE_APP_DIR\"\n\
        trap 'echo > ending; until [ -e go ]; do sleep 0.01; done; exit 1' TERM\n\
        echo $$ >&2\n\
        while :; do sleep 0.01; done\n";
    std::fs::write(world.app().join("pipelines/two/steps/first.sh"), slow).expect("written");
    world.accepted(Placement::default()).await;
    let (mut handle, mut said) = watched(world.parts(), world.next().expect("it is next"));
    let pid = said.recv().await.expect("it says its id");
    handle.leave();
    while !world.app().join("ending").exists() {
        tokio::task::yield_now().await;
    }
    assert!(!handle.is_over(), "its step has not ended");
    world.let_go();
    let end = ended(&mut handle).await;
    assert!(is_left(&end), "{end:?}");
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists(), "its step is still there");
}

/// K-54: if a run brings its app along, its header grants nothing.
#[tokio::test]
async fn a_submitter_grants_nothing_to_a_run_elsewhere() {
    let world = World::new();
    let (id, blobs) = (world.accepted(Placement::default()).await, world.engine.blobs());
    let mut run = world.engine.view(&id).expect("view").run;
    let mut header = etude_runs::header::Header::parse(&run.header, &*blobs).expect("a header");
    header.request.granted = Granted { yolo: true, read: vec!["/".into()], write: vec!["/".into()] };
    header.request.caller_dir = "/home".to_owned();
    run.header = header.to_text(&*blobs).expect("a text");
    let of = |run: &engine::NewRun| crate::resume_plan::header_of(run, &*world.engine).expect("a header");
    assert_eq!(of(&run), header, "here, it is the user's own");
    run.placement.bundle = Some(etude_core::digest::Digest::of(b"bundle"));
    let request = of(&run).request;
    assert_eq!((request.granted, request.caller_dir), (Granted::default(), String::new()));
}

/// A cancellation is effective while the process is draining.
#[tokio::test]
async fn a_drained_run_can_still_be_cancelled() {
    let world = World::new();
    let id = world.accepted(Placement::default()).await;
    let (mut handle, mut said) = watched(world.parts(), world.next().expect("it is next"));
    assert_eq!(said.recv().await.as_deref(), Some("began\n"));
    handle.drain();
    handle.cancel("enough");
    assert_eq!(ended(&mut handle).await.expect("it ended").document.status(), "cancelled");
    assert_eq!(world.state(&id), (RunState::Cancelled, false));
}

/// A-4.9: the usage of a replayed run includes the model calls of its middleware.
#[tokio::test]
async fn a_replay_counts_what_middleware_asked() {
    let world = World::new();
    let id = world.accepted(Placement::default()).await;
    let mut view = world.engine.view(&id).expect("a run");
    let usage = Usage { calls: 1, input_tokens: 3, ..Usage::default() };
    view.records.push(record::of_aside(&Aside { usage, is_refused: false }, 1));
    let replayed = etude_runs::inspect::replay(
        &view,
        &world.parts().definition.plan,
        &world.parts().definition.app,
        &world.engine.blobs(),
    );
    assert_eq!(replayed.expect("it can be read").expect("it fits").result.usage, usage);
}
