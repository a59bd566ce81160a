use std::process::{Child, Command};

use etude_process::blob::FileBlobs;
use etude_runtime::engine::{Boxed, Placement, Signal};
use etude_runtime::memory::MemoryEngine;

use super::*;
use crate::runner::Request;

/// A session whose run another process has taken, if `is_overtaken`.
#[derive(Debug)]
struct Late {
    inner: Box<dyn Session>,
    is_overtaken: bool,
}

impl Session for Late {
    fn run_id(&self) -> &str {
        self.inner.run_id()
    }

    fn run(&self) -> &NewRun {
        self.inner.run()
    }

    fn records(&self) -> Result<Vec<Record>, engine::Error> {
        self.inner.records()
    }

    fn append(&self, record: Record) -> Boxed<'_, Result<(), engine::Error>> {
        self.inner.append(record)
    }

    fn signals(&self) -> Result<Vec<Signal>, engine::Error> {
        self.inner.signals()
    }

    fn set_state<'s>(&'s self, state: RunState, result: Option<&'s str>) -> Boxed<'s, Result<(), engine::Error>> {
        if self.is_overtaken {
            let run = self.run_id().to_owned();
            return Box::pin(async move { Err(engine::Error::Overtaken { run }) });
        }
        self.inner.set_state(state, result)
    }
}

#[expect(clippy::disallowed_methods, reason = "a step of another process, which no host here attends")]
fn step_of(run_id: &str) -> Child {
    Command::new("sleep").arg("600").env("ETUDE_RUN_ID", run_id).spawn().expect("started")
}

/// K-5: an overtaken process leaves running steps alone, because they belong to a later owner.
#[tokio::test]
async fn takeover_ends_the_steps_of_earlier_holders_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = MemoryEngine::new(Arc::new(FileBlobs::new(dir.path().join("blobs"), false)));
    let id = format!("late-{}", std::process::id());
    let run = NewRun {
        id: id.clone(),
        app: String::new(),
        target: "p".to_owned(),
        abi: machine::ABI,
        created_at_ms: 0,
        header: String::new(),
        placement: Placement::default(),
    };
    let request = Request::new(Json::trusted("{}"), String::new());
    let header = Header { request, tick: None, learned: None };
    let first = ResumePlan::first(header, None, Vec::new());
    let plan = ResumePlan { is_resumed: true, has_survivors: true, ..first };
    let mut late = Late { inner: engine.create(&run).await.expect("created"), is_overtaken: true };
    let mut step = step_of(&id);
    let so_far = Document::continued(&id, &Target::Pipeline("p".to_owned()), 0);
    let refused = plan.begin_again(&late, &so_far).await;
    assert!(matches!(refused, Err(engine::Error::Overtaken { .. })), "{refused:?}");
    assert!(step.try_wait().expect("a status").is_none(), "it goes on");
    late.is_overtaken = false;
    plan.begin_again(&late, &so_far).await.expect("noted");
    // The killing process may have waited for its end as well.
    assert!(step.try_wait().map_or(true, |status| status.is_some()), "it was left by an earlier holder");
}
