//! Tests of the driver with real processes and an engine in memory: every outcome is journaled before anything that
//! follows from it begins, so a journal that is cut anywhere leads to the same result without repeating its effects.

use std::path::Path;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::effect::{Command as Run, Protocol};
use etude_core::machine::{Attempt, Limits};
use etude_core::model::{CallFailure, ModelResponse, Request};
use etude_core::plan::{Code, ForEach, Origin, OutputOf, Sequence, Step, StepKind};
use etude_core::report::Status;

mod attempts;
mod deadlines;
mod metered;
mod stops;
mod streaming;
mod time_budget;

use super::*;
use crate::blob::FileBlobs;
use crate::conformance::block_on;
use crate::engine::{Engine, NewRun};
use crate::host::{Boxed, ModelPort};
use crate::memory::MemoryEngine;
use etude_process::sandbox::SandboxPolicy;
use etude_process::{ChildEnvironment, HostSettings, ProcessHost, Redaction};

#[derive(Debug)]
struct NoModels;

impl ModelPort for NoModels {
    fn call(&self, _: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        unreachable!("these plans ask no model")
    }
}

/// A step that appends its name to the ledger and prints `output`.
fn step(name: &str, output: &str) -> Arc<Step> {
    shell(name, &format!("echo {name} >> \"$ETUDE_APP_DIR/ledger\"; echo '{{\"output\":{output}}}'"))
}

fn shell(name: &str, line: &str) -> Arc<Step> {
    let code = Code {
        env_from: Vec::new(),
        command: Run::Shell(line.to_owned()),
        protocol: Protocol::Step,
        env: Vec::new(),
        allow_exit: vec![0],
        schema: None,
        retry: None,
        worker: None,
        sandbox: None,
    };
    Arc::new(Step {
        name: name.to_owned(),
        kind: StepKind::Code(code),
        when: None,
        require: None,
        for_each: None,
        timeout_ms: None,
        cache: None,
        effects: false,
        origin: Origin::default(),
    })
}

fn sequence(name: &str, steps: Vec<Arc<Step>>) -> Arc<Sequence> {
    Arc::new(Sequence { name: name.to_owned(), dir: ".".to_owned(), steps, output: OutputOf::Last, description: None })
}

/// A constructor, three steps, of which the second runs per element, and a destructor.
fn plan() -> Plan {
    let mut each = (*step("each", "5")).clone();
    each.for_each = Some(ForEach {
        stands_for: Vec::new(),
        items: etude_core::plan::Binding::Reference("list.output".parse().unwrap()),
        max_parallel: 2,
        max_items: 10,
        collect: false,
    });
    Plan {
        before: Some(sequence("_constructor", vec![step("before", "0")])),
        body: sequence(
            "p",
            vec![
                step("list", "[1,2,3]"),
                Arc::new(each),
                shell(
                    "last",
                    "echo last >> \"$ETUDE_APP_DIR/ledger\"; cat > \"$ETUDE_APP_DIR/seen\"; echo '{\"output\":{\"n\":1}}'",
                ),
            ],
        ),
        after: Some(sequence("_destructor", vec![step("after", "null")])),
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    }
}

struct World {
    dir: tempfile::TempDir,
    /// Unique: a host ends every process with its run id in the environment, also those of a test beside this one.
    run_id: String,
    engine: Arc<MemoryEngine>,
    limits: Limits,
    /// Middleware, and the meter of its model calls.
    judge: Option<Arc<dyn crate::host::EffectMiddleware>>,
    meter: Option<Arc<Meter>>,
    is_resumed: bool,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().join("blobs"), false))));
        let run_id = format!("driver-{}", dir.path().file_name().unwrap().display());
        Self { dir, run_id, engine, limits: Limits::default(), judge: None, meter: None, is_resumed: false }
    }

    /// Another world for the same run.
    fn of(run_id: &str) -> Self {
        Self { run_id: run_id.to_owned(), ..Self::new() }
    }

    fn new_run(&self) -> NewRun {
        NewRun {
            id: self.run_id.clone(),
            app: self.dir.path().display().to_string(),
            target: "p".to_owned(),
            abi: 1,
            created_at_ms: 0,
            header: "{}".to_owned(),
            placement: engine::Placement::default(),
        }
    }

    fn ledger(&self) -> Vec<String> {
        lines(&self.dir.path().join("ledger"))
    }

    async fn drive(&self, plan: &Plan, session: &dyn Session, stop: Stop) -> Result<Driven, Error> {
        self.drive_with(plan, session, stop, Arc::new(NoModels), None).await
    }

    /// Drives with models and an observer.
    async fn drive_with(
        &self,
        plan: &Plan,
        session: &dyn Session,
        stop: Stop,
        models: Arc<dyn ModelPort>,
        emit: Option<&mut (dyn FnMut(Progress<'_>) + Send)>,
    ) -> Result<Driven, Error> {
        self.drive_with_events(plan, session, stop, models, None, emit).await
    }

    /// Drives with events of middleware as well.
    async fn drive_with_events(
        &self,
        plan: &Plan,
        session: &dyn Session,
        stop: Stop,
        models: Arc<dyn ModelPort>,
        middleware_events: Option<mpsc::UnboundedReceiver<MiddlewareEvent>>,
        emit: Option<&mut (dyn FnMut(Progress<'_>) + Send)>,
    ) -> Result<Driven, Error> {
        let host = Host {
            cache: crate::host::CacheUse::default(),
            tools: Arc::new(crate::host::NoTools),
            processes: Arc::new(
                ProcessHost::builder(
                    HostSettings {
                        run_id: self.run_id.clone(),
                        app_dir: self.dir.path().to_owned(),
                        blobs: self.engine.blobs(),
                    },
                    ChildEnvironment::without_keys(&[]),
                    Redaction::NoSecrets,
                    SandboxPolicy::Refused,
                )
                .build(),
            ),
            models,
            engine: Arc::clone(&self.engine) as Arc<dyn Engine>,
            effect_middleware: self.judge.clone(),
        };
        let (_sender, receiver) = watch::channel(stop);
        let start = Start {
            run_id: self.run_id.clone(),
            abi: etude_core::machine::ABI,
            input: Json::trusted("{}"),
            request: None,
            limits: self.limits,
            spent: record::spent_before(&session.records().unwrap_or_default(), &*self.engine.blobs()),
            attempt: attempt_of(session),
            app_dir: String::new(),
            yolo: false,
            slots: Default::default(),
            restarts: Default::default(),
        };
        let (on_mismatch, streams_completions) = (OnMismatch::Refuse, emit.is_some());
        let (host, stop, is_resumed) = (&host, receiver, self.is_resumed);
        let records = session.records().unwrap();
        let drive = Drive {
            plan,
            start,
            session,
            records,
            host,
            stop,
            on_mismatch,
            streams_completions,
            is_resumed,
            middleware_events,
            meter: self.meter.clone(),
        };
        match emit {
            Some(emit) => drive.run(emit).await,
            None => drive.run(&mut |_| {}).await,
        }
    }
}

fn attempt_of(session: &dyn Session) -> Attempt {
    let last = record::Continuation::last(&session.records().unwrap_or_default());
    last.map_or_else(Attempt::default, |(_, last)| last.attempt())
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn finished(driven: Driven) -> RunResult {
    match driven {
        Driven::Finished(result) => result,
        Driven::Waiting { .. } => panic!("the run waits"),
    }
}

async fn uninterrupted() -> (RunResult, Vec<Record>, World) {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
    (result, session.records().unwrap(), world)
}

/// A-5.3: a run whose process died continues at the first unfinished effect and still ends in its destructor; a
/// finished effect is not repeated.
#[tokio::test]
async fn a_journal_cut_after_any_record_leads_to_the_same_result() {
    let (whole, records, first) = uninterrupted().await;
    assert_eq!(whole.status, Status::Succeeded);
    assert_eq!(records.len(), 7);
    for cut in 0..=records.len() {
        let world = World::of(&first.run_id);
        let session = block_on(world.engine.create(&world.new_run())).unwrap();
        for record in &records[..cut] {
            block_on(session.append(record.clone())).unwrap();
        }
        let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
        assert_eq!(result.output, whole.output, "cut after {cut}");
        let states = |r: &RunResult| r.steps.iter().map(|s| (s.name.clone(), s.status, s.attempts)).collect::<Vec<_>>();
        assert_eq!(states(&result), states(&whole), "cut after {cut}");
        assert_eq!(world.ledger().len(), first.ledger().len() - cut, "cut after {cut}: {:?}", world.ledger());
    }
}

/// A-3.3: a resumed step sees the same stdin as it would have without the interruption.
#[tokio::test]
async fn replayed_outputs_reach_later_steps_unchanged() {
    let (_, records, first) = uninterrupted().await;
    let world = World::of(&first.run_id);
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    records[..5].iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    world.drive(&plan(), &*session, Stop::No).await.unwrap();
    assert_eq!(
        lines(&world.dir.path().join("seen")),
        [r#"{"input":{},"steps":{"list":{"output":[1,2,3]},"each":{"output":[5,5,5]}}}"#]
    );
}

/// A-3.6: middleware that emits without end does not delay the end of a run.
#[tokio::test]
async fn middleware_that_never_falls_silent_does_not_hold_up_a_run() {
    const ENOUGH: u64 = 1_000_000;
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let (sender, middleware_events) = mpsc::unbounded_channel();
    let say = move |id| {
        sender.send(MiddlewareEvent { id, tool: "t".to_owned(), serves: None, what: MiddlewareEventKind::Started })
    };
    say(0).unwrap();
    let (mut last, mut is_over) = (0, false);
    let mut emit = |progress: Progress<'_>| match progress {
        Progress::Middleware(middleware_events) => {
            last = middleware_events.id;
            if last < ENOUGH {
                say(last + 1).unwrap();
            }
        }
        Progress::Machine { event: Event::StepEnded { .. }, .. } => is_over = true,
        _ => {}
    };
    let plan = Plan {
        before: None,
        body: sequence("p", vec![step("only", "1")]),
        after: None,
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    };
    let models = Arc::new(NoModels);
    let driven = world
        .drive_with_events(&plan, &*session, Stop::No, models, Some(middleware_events), Some(&mut emit))
        .await
        .unwrap();
    assert_eq!(finished(driven).status, Status::Succeeded);
    assert!(is_over && last < ENOUGH, "the run has waited for silence");
}

/// A-5.3: a cancellation that was journaled before the death still holds after it.
#[tokio::test]
async fn a_cancelled_run_stays_cancelled_after_a_crash() {
    let (_, records, first) = uninterrupted().await;
    let world = World::of(&first.run_id);
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    records[..2].iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    block_on(session.append(record::of_cancel("cancelled by a test", 0))).unwrap();
    let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
    assert_eq!(result.status, Status::Cancelled);
    assert_eq!(result.errors[0].message, "cancelled by a test");
    assert_eq!(world.ledger(), ["after"]);
}

/// S-79: another process kills a run: running processes are ended, and the destructor does not run.
#[tokio::test]
async fn a_run_is_killed_by_another_process() {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let mut plan = plan();
    plan.body = sequence("p", vec![shell("hold", "exec sleep 60"), step("last", "1")]);
    // A process that kills a run also cancels it, for processes that do not know the kill signal.
    for signal in [record::kill_signal("enough", 1), record::cancel_signal("enough", 1)] {
        world.engine.signal(&world.run_id, &signal).unwrap();
    }
    let result = finished(world.drive(&plan, &*session, Stop::No).await.unwrap());
    assert_eq!((result.status, result.errors[0].message.as_str()), (Status::Cancelled, "enough"));
    assert!(!world.ledger().iter().any(|name| name == "after" || name == "last"), "{:?}", world.ledger());
}

/// S-79: a run whose process died during a kill runs no destructor in the next process.
#[tokio::test]
async fn a_killed_run_stays_killed_after_a_crash() {
    let (_, records, first) = uninterrupted().await;
    let world = World { is_resumed: true, ..World::of(&first.run_id) };
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    records[..2].iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    world.engine.signal(&world.run_id, &record::kill_signal("enough", 1)).unwrap();
    block_on(session.append(record::of_cancel("enough", 0))).unwrap();
    let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
    assert_eq!((result.status, world.ledger()), (Status::Cancelled, Vec::<String>::new()));
}

/// A-5.3: a destructor that a second signal ended, in a process that died before the run was over, runs again.
#[tokio::test]
async fn a_destructor_that_was_ended_is_done_again() {
    let (_, records, first) = uninterrupted().await;
    let world = World::of(&first.run_id);
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let [before @ .., last] = &records[..] else { panic!("records") };
    before.iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    let ended = Completed { outcome: Outcome::Abandoned, elapsed_ms: 0 };
    let id = EffectId::new(last.key.as_str());
    block_on(session.append(record::of_outcome(&id, last.request, &ended, None, 0))).unwrap();
    let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
    assert_eq!((result.status, world.ledger()), (Status::Succeeded, vec!["after".to_owned()]));
}

#[tokio::test]
async fn a_stop_before_the_first_step_runs_nothing_of_the_pipeline() {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let mut plan = plan();
    plan.before = None;
    let driven = world.drive(&plan, &*session, Stop::Cancel("no".to_owned())).await.unwrap();
    assert_eq!(finished(driven).status, Status::Cancelled);
    assert!(!world.ledger().contains(&"last".to_owned()));
    assert_eq!(world.ledger().last().map(String::as_str), Some("after"));
}

/// A-5.3: a step that runs again after the destructor is followed by the destructor again, although its request is the
/// same as before; other fitting outcomes are reused.
#[tokio::test]
async fn what_is_done_again_is_cleaned_up_again() {
    let (_, records, first) = uninterrupted().await;
    for missing in ["_constructor/before", "p/last"] {
        let world = World::of(&first.run_id);
        let session = block_on(world.engine.create(&world.new_run())).unwrap();
        records
            .iter()
            .filter(|record| record.key != missing)
            .for_each(|record| block_on(session.append(record.clone())).unwrap());
        finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
        assert_eq!(world.ledger(), [missing.split('/').next_back().unwrap(), "after"]);
    }
}

/// The journal has a record of another effect with the same name: the definition has changed without the user's consent.
#[tokio::test]
async fn a_record_for_another_request_is_refused() {
    let (_, records, first) = uninterrupted().await;
    let world = World::of(&first.run_id);
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    block_on(session.append(records[0].clone())).unwrap();
    let mut changed = plan();
    changed.before = Some(sequence("_constructor", vec![step("before", "1")]));
    let error = world.drive(&changed, &*session, Stop::No).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { effect } if effect.as_str() == "_constructor/before"));
    assert_eq!(world.ledger(), Vec::<String>::new());
}

/// A failing journal stops the run: its next records would be missing.
#[tokio::test]
async fn a_failing_journal_stops_the_run() {
    #[derive(Debug)]
    struct Full(Box<dyn Session>);
    impl Session for Full {
        fn run_id(&self) -> &str {
            self.0.run_id()
        }
        fn run(&self) -> &NewRun {
            self.0.run()
        }
        fn records(&self) -> Result<Vec<Record>, engine::Error> {
            self.0.records()
        }
        fn append(&self, record: Record) -> engine::Boxed<'_, Result<(), engine::Error>> {
            if record.key == "p/list" {
                let full = engine::Error::Store { path: "j".to_owned(), why: "no room".to_owned() };
                return Box::pin(std::future::ready(Err(full)));
            }
            self.0.append(record)
        }
        fn signals(&self) -> Result<Vec<engine::Signal>, engine::Error> {
            self.0.signals()
        }
        fn set_state<'s>(
            &'s self,
            state: engine::RunState,
            result: Option<&'s str>,
        ) -> engine::Boxed<'s, Result<(), engine::Error>> {
            self.0.set_state(state, result)
        }
    }
    let world = World::new();
    let session = Full(block_on(world.engine.create(&world.new_run())).unwrap());
    let error = world.drive(&plan(), &session, Stop::No).await.unwrap_err();
    assert_eq!(error.to_string(), "the journal j cannot be used: no room");
    assert_eq!(world.ledger(), ["before", "list"]);
}
