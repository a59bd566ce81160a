//! Runs that are stopped before any effect begins.

use std::sync::atomic::{AtomicUsize, Ordering};

use etude_core::effect::ProcessCall;
use etude_core::outcome::ProcessEnd;
use etude_process::Cancelled;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::host::{EffectMiddleware, RunProcess, SendRequest};

/// Counts the processes that begin, and begins none.
#[derive(Debug, Default)]
struct Count {
    count: AtomicUsize,
    ignores_processes: bool,
}

impl EffectMiddleware for Count {
    fn ignores_processes(&self) -> bool {
        self.ignores_processes
    }

    fn process(&self, _: &ProcessCall, _: CancellationToken, _: RunProcess) -> Boxed<Result<ProcessEnd, Cancelled>> {
        self.count.fetch_add(1, Ordering::Relaxed);
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
    assert_eq!(begun.count.load(Ordering::Relaxed), 0);
}

/// Middleware that ignores processes is not in their way: a task of the runtime for each would delay it twice.
#[tokio::test]
async fn middleware_that_ignores_processes_is_not_called() {
    for ignores_processes in [false, true] {
        let count = Arc::new(Count { ignores_processes, ..Count::default() });
        let world = World { judge: Some(Arc::clone(&count) as Arc<dyn EffectMiddleware>), ..World::new() };
        let session = block_on(world.engine.create(&world.new_run())).unwrap();
        let ended = finished(world.drive(&plan(), &*session, Stop::No).await.unwrap());
        let is_called = count.count.load(Ordering::Relaxed) > 0;
        assert_eq!((is_called, ended.status == Status::Succeeded), (!ignores_processes, ignores_processes));
    }
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
