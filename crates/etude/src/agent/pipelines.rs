//! Learned pipelines as tools of an agent (L-77).

use std::sync::Arc;

use etude_core::model::Tool;
use etude_core::plan::{PipelineTool, Step, StepKind};
use etude_core::tool::AvailableTool;
use etude_process::sandbox;

use super::Inner;
use etude_tools::disk::Disk;

/// Maximum length of a tool name, in bytes.
const MAX_NAME: usize = 64;

/// True if one of the steps runs its process in a sandbox.
fn needs_sandbox(steps: &[Arc<Step>]) -> bool {
    steps.iter().any(|step| match &step.kind {
        StepKind::Code(code) => code.sandbox.is_some(),
        kind => needs_sandbox(kind.inner()),
    })
}

impl Inner {
    /// Adds the learned pipelines that are `active` now, unless another tool has the name. The journal keeps the list.
    pub(super) async fn add_pipelines(self: &Arc<Self>, tools: &mut Vec<AvailableTool>) {
        if self.pipelines.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        let active = tokio::task::spawn_blocking(move || {
            let Ok(disk) = Disk::open(&inner.app) else { return Vec::new() };
            let (engine, app) = (&*inner.engine, &inner.app_of_run);
            let is_active = |name: &str| etude_evidence::is_active(engine, app, &disk, name).unwrap_or(false);
            let has_place = |one: &PipelineTool| sandbox::support().is_ok() || !needs_sandbox(&one.sequence.steps);
            let available = inner.pipelines.iter().filter(|one| has_place(one) && is_active(&one.tool.name));
            available.cloned().collect()
        });
        for pipeline in active.await.unwrap_or_default() {
            let tool = &pipeline.tool;
            let is_free = tools.iter().all(|own| own.tool.name != tool.name) && tool.name.len() <= MAX_NAME;
            if is_free && !self.redactor.finds_in(&tool.name) {
                let description = self.redactor.redact(&tool.description);
                let tool = Tool { description, ..tool.clone() };
                tools.push(AvailableTool {
                    tool,
                    is_pipeline: true,
                    is_exclusive: true,
                    is_kept: false,
                    approval_key: None,
                });
            }
        }
    }
}
