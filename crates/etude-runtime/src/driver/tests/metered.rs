//! Model calls of middleware: counted once, journaled before anything that follows from them, and refused
//! beyond the budget.

use std::sync::atomic::{AtomicU64, Ordering};

use etude_core::effect::ProcessCall;
use etude_core::failure::FailureKind;
use etude_core::model::{Message, Stop as End, Usage};
use etude_core::outcome::ProcessEnd;
use etude_process::Cancelled;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::host::{EffectMiddleware, RunProcess, SendRequest};
use crate::meter::{Meter, Metered};
use crate::record::SPENT;

/// A model whose every response takes ten tokens.
#[derive(Debug, Default)]
struct Ten(AtomicU64);

impl ModelPort for Ten {
    fn call(&self, _: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let response = ModelResponse {
            text: "yes".to_owned(),
            tool_calls: Vec::new(),
            stop: End::End,
            usage: Usage { calls: 1, input_tokens: 10, ..Usage::default() },
            model: "m".to_owned(),
            reasoning: None,
            transport_failures: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// Middleware that asks a model before every process.
#[derive(Debug)]
pub(super) struct Judge(Metered);

impl EffectMiddleware for Judge {
    fn process(
        &self,
        _: &ProcessCall,
        _: CancellationToken,
        run_effect: RunProcess,
    ) -> Boxed<Result<ProcessEnd, Cancelled>> {
        let answer = self.0.call(Request { messages: vec![Message::user("Go?".to_owned())], ..Request::default() });
        Box::pin(async move {
            if answer.await.is_err() {
                return Err(Cancelled::default());
            }
            tokio::task::spawn_blocking(run_effect).await.expect("the process")
        })
    }

    fn model(&self, _: &EffectId, request: Request, ask: SendRequest) -> Boxed<Result<ModelResponse, CallFailure>> {
        ask(request)
    }
}

/// A world with that middleware, and the model that counts its calls.
fn judged(run_id: Option<&str>, max_tokens: Option<u64>) -> (World, Arc<Ten>) {
    let (models, meter) = (Arc::new(Ten::default()), Arc::new(Meter::default()));
    let mut world = run_id.map_or_else(World::new, World::of);
    world.judge = Some(Arc::new(Judge(Metered::new(Arc::clone(&models) as _, Arc::clone(&meter)))));
    world.meter = Some(meter);
    world.limits.max_tokens = max_tokens;
    (world, models)
}

async fn run(world: &World, records: &[Record]) -> (RunResult, Vec<Record>) {
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    records.iter().for_each(|record| block_on(session.append(record.clone())).unwrap());
    let result = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
    (result, session.records().unwrap())
}

fn is_spent(record: &&Record) -> bool {
    record.key == SPENT
}

/// model calls of middleware are in the usage of the run, and each recorded call counts once after a crash.
#[tokio::test]
async fn calls_of_middleware_count_once() {
    let (world, models) = judged(None, None);
    let (whole, records) = run(&world, &[]).await;
    assert_eq!((whole.status, whole.usage.calls, whole.usage.input_tokens), (Status::Succeeded, 7, 70));
    assert_eq!((models.0.load(Ordering::Relaxed), records.iter().filter(is_spent).count()), (7, 7));
    for cut in 0..=records.len() {
        let (again, models) = judged(Some(&world.run_id), None);
        let (result, _) = run(&again, &records[..cut]).await;
        let asked = models.0.load(Ordering::Relaxed);
        let recorded = records[..cut].iter().filter(is_spent).count() as u64;
        assert_eq!(asked, 7 - (cut as u64 - recorded), "cut after {cut}");
        assert_eq!((result.status, result.usage.calls), (Status::Succeeded, recorded + asked), "cut after {cut}");
    }
}

/// a call of middleware that exceeds the budget ends the run with its own code; the budget does not limit the
/// destructor.
#[tokio::test]
async fn a_call_of_middleware_that_exceeds_the_budget_ends_the_run() {
    let (world, _) = judged(None, Some(15));
    let (result, records) = run(&world, &[]).await;
    assert_eq!((result.status, result.errors[0].kind), (Status::Failed, FailureKind::BudgetExceeded));
    assert_eq!(result.errors[0].message, "the run has used 20 tokens; its budget is 15");
    assert_eq!((world.ledger().first().map(String::as_str), result.usage.calls), (Some("before"), 3));
    assert_eq!(world.ledger().last().map(String::as_str), Some("after"));
    for cut in 4..=records.len() {
        let (again, _) = judged(Some(&world.run_id), Some(15));
        let (replayed, _) = run(&again, &records[..cut]).await;
        assert_eq!((replayed.status, &replayed.errors), (result.status, &result.errors), "cut after {cut}");
    }
}

/// middleware makes no model call when the budget is used up, and the run ends because of it.
#[tokio::test]
async fn middleware_asks_nothing_when_the_budget_is_used_up() {
    let (world, models) = judged(None, Some(10));
    let (result, records) = run(&world, &[]).await;
    assert_eq!(result.errors[0].kind, FailureKind::BudgetExceeded, "{:?}", result.errors);
    assert_eq!((world.ledger(), result.usage.calls), (vec!["before".to_owned(), "after".to_owned()], 2));
    assert_eq!(models.0.load(Ordering::Relaxed), 2, "the one of the destructor is the second");
    let (again, models) = judged(Some(&world.run_id), Some(10));
    let (replayed, _) = run(&again, &records).await;
    assert_eq!((models.0.load(Ordering::Relaxed), replayed.usage), (0, result.usage));
}
