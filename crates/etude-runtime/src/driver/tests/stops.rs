//! Runs that are stopped before any effect begins.

use std::sync::atomic::{AtomicUsize, Ordering};

use etude_core::effect::ProcessCall;
use etude_core::outcome::ProcessEnd;
use etude_process::Cancelled;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::host::{EffectMiddleware, RunProcess, SendRequest};

/// Counts the processes that begin.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl EffectMiddleware for Count {
    fn process(&self, _: &ProcessCall, _: CancellationToken, _: RunProcess) -> Boxed<Result<ProcessEnd, Cancelled>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Err(Cancelled::default())))
    }

    fn model(&self, _: &EffectId, request: Request, ask: SendRequest) -> Boxed<Result<ModelResponse, CallFailure>> {
        ask(request)
    }
}

/// A second Ctrl-C before the first step: neither the step nor the destructor begins.
#[tokio::test]
async fn a_kill_before_the_first_step_begins_nothing() {
    let begun = Arc::new(Count::default());
    let world = World { judge: Some(Arc::clone(&begun) as Arc<dyn EffectMiddleware>), ..World::new() };
    let session = block_on(world.engine.create(&world.new_run())).unwrap();
    let killed = finished(world.drive(&plan(), &*session, Stop::Kill("enough".to_owned())).await.unwrap());
    assert_eq!((killed.status, killed.errors[0].message.as_str()), (Status::Cancelled, "enough"));
    assert_eq!(begun.0.load(Ordering::Relaxed), 0);
}

/// A process that ends before the first step leaves the run unchanged to another one.
#[tokio::test]
async fn a_run_that_is_left_before_the_first_step_begins_elsewhere() {
    for stop in [Stop::Leave, Stop::Drain] {
        let world = World::new();
        let session = block_on(world.engine.create(&world.new_run())).unwrap();
        let left = world.drive(&plan(), &*session, stop).await;
        assert!(matches!(left, Err(Error::Left)), "{left:?}");
        assert_eq!((world.ledger(), session.records().unwrap()), (Vec::new(), Vec::new()));
        assert_eq!(finished(world.drive(&plan(), &*session, Stop::No).await.unwrap()).status, Status::Succeeded);
    }
}
