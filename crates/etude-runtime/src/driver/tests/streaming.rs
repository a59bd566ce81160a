//! Streamed responses of models.

use etude_core::model::{Piece, Stop as End, Tier, TransportWait, Usage};
use etude_core::plan::Llm;
use etude_core::template::Template;

use super::*;
use crate::host::OnDelta;

/// A model that streams `one two`, breaks off, and streams `three`; its response is `whole`.
#[derive(Debug)]
struct Speaker;

impl ModelPort for Speaker {
    fn call(&self, _: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        let response = ModelResponse {
            text: "whole".to_owned(),
            tool_calls: Vec::new(),
            stop: End::End,
            usage: Usage::default(),
            model: "p/m".to_owned(),
            reasoning: None,
            transport_failures: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(response)))
    }

    fn call_streaming(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        let response = self.call(request);
        Box::pin(async move {
            for piece in [Piece::Text("one "), Piece::Text("two"), Piece::Restarted, Piece::Text("three")] {
                on_delta(piece);
                tokio::task::yield_now().await;
            }
            response.await
        })
    }
}

fn asking() -> Plan {
    let llm = Llm {
        choose: None,
        tier: Tier::Standard,
        system: None,
        prompt: Template::literal("say something"),
        schema: None,
        validate: None,
        retry: 0,
        temperature: None,
        max_tokens: None,
        cache_prompt: false,
        images: Vec::new(),
    };
    let step = Step { kind: StepKind::Llm(Box::new(llm)), name: "ask".to_owned(), ..(*step("ask", "0")).clone() };
    Plan {
        before: None,
        body: sequence("p", vec![Arc::new(step)]),
        after: None,
        phase: etude_core::failure::Phase::Business,
        fallback: None,
    }
}

/// Appends the reported deltas, with a mark for the end of a step and `!` for a restart.
fn note(reported: &mut String, progress: &Progress<'_>) {
    match progress {
        Progress::ModelResponse { effect, text, is_again } => {
            assert_eq!(effect.as_str(), "p/ask");
            if *is_again {
                reported.push('!');
            }
            reported.push_str(text);
        }
        Progress::Waiting { wait, .. } => reported.push_str(&format!("[{} of {}]", wait.attempt, wait.max_attempts)),
        Progress::Machine { event: Event::StepEnded { .. }, .. } => reported.push('.'),
        _ => {}
    }
}

/// pieces of a response are reported in order and before its end, are not in the journal, and are not reported
/// by a replay.
#[tokio::test]
async fn responses_are_reported_as_they_come_and_leave_no_record() {
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let mut reported = String::new();
    let mut emit = |progress: Progress<'_>| note(&mut reported, &progress);
    world.drive_with(&asking(), &*session, Stop::No, Arc::new(Speaker), Some(&mut emit)).await.unwrap();
    assert!(reported.ends_with("three.") && reported.contains('!'), "{reported}");
    let journal = format!("{:?}", session.records().unwrap());
    assert!(journal.contains("whole") && !journal.contains("three"), "{journal}");

    let mut again = String::new();
    let mut emit = |progress: Progress<'_>| note(&mut again, &progress);
    world.drive_with(&asking(), &*session, Stop::No, Arc::new(Speaker), Some(&mut emit)).await.unwrap();
    assert_eq!(again, ".");
}

/// without an observer, a model is asked for the whole response.
#[tokio::test]
async fn models_are_asked_quietly_where_there_is_no_observer() {
    #[derive(Debug)]
    struct Quiet;
    impl ModelPort for Quiet {
        fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
            Speaker.call(request)
        }
        fn call_streaming(&self, _: Request, _: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
            unreachable!("no one listens")
        }
    }
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let driven = world.drive_with(&asking(), &*session, Stop::No, Arc::new(Quiet), None).await.unwrap();
    assert!(matches!(driven, Driven::Finished(result) if result.status == Status::Succeeded));
}

/// waits of the transport are reported in order and before the step ends, are not in the journal, and are not repeated
/// by a replay.
#[tokio::test]
async fn waits_of_the_transport_are_reported_and_leave_no_record() {
    #[derive(Debug)]
    struct Busy;
    impl ModelPort for Busy {
        fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
            Speaker.call(request)
        }
        fn call_streaming(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
            for attempt in [2, 3] {
                let reason = "a busy provider".to_owned();
                let wait = TransportWait { status: Some(429), reason, wait_ms: 1, attempt, max_attempts: 5 };
                on_delta(Piece::Waiting(&wait));
                on_delta(Piece::Restarted);
            }
            self.call(request)
        }
    }
    let world = World::new();
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    for expected in ["[2 of 5][3 of 5]!.", "."] {
        let mut reported = String::new();
        let mut emit = |progress: Progress<'_>| note(&mut reported, &progress);
        world.drive_with(&asking(), &*session, Stop::No, Arc::new(Busy), Some(&mut emit)).await.unwrap();
        assert_eq!(reported, expected);
    }
    let journal = format!("{:?}", session.records().unwrap());
    assert!(!journal.contains("a busy provider"), "{journal}");
}
