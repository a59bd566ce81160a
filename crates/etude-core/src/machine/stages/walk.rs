//! A chain of stages, each of which chooses the next ones (`b-stages` §10).
//!
//! A list of several stages runs one after the other. The stages that follow from one of the list run before the next
//! of the list (B-N6).

use std::task::Poll;

use serde_json::{Map, Value, json};

use super::execution::Execution;
use super::fault::{HOST, Phase, fault, lifecycle};
use super::shared::{Shared, View};
use super::siblings::Siblings;
use crate::failure::Failure;
use crate::machine::Cx;
use crate::plan::stages::Next;

/// A chain of stages.
#[derive(Debug)]
pub(super) struct Walk {
    /// The stages that are still to run, the next one last.
    pending: Vec<String>,
    /// The value of `ctx.upstream` for the next stage.
    upstream: Vec<Value>,
    current: Option<Current>,
    /// The result of the first stage.
    first: Option<Value>,
    /// The stage that finished last, with its result.
    last: Option<(String, Value)>,
    /// Prefix of the effect ids of the execution that finished last, while no stage has followed it: this execution
    /// restarts if the chain fails with its verdict.
    unsettled: Option<String>,
    /// Id of the compound turn that the chain is a branch of.
    branch_of: Option<String>,
    stopped: Option<Failure>,
}

#[derive(Debug)]
enum Current {
    Stage(Box<Execution>),
    Siblings(Box<Siblings>),
}

impl Walk {
    /// The chain that begins with `stage`. In a branch of a compound turn every stage must succeed.
    pub(super) fn new(stage: &str, branch_of: Option<String>) -> Self {
        Self {
            pending: vec![stage.to_owned()],
            upstream: Vec::new(),
            current: None,
            first: None,
            last: None,
            unsettled: None,
            branch_of,
            stopped: None,
        }
    }

    /// The result of the first stage.
    pub(super) fn first(&self) -> Option<&Value> {
        self.first.as_ref()
    }

    /// The stage that finished last, with its result.
    pub(super) fn last(&self) -> Option<&(String, Value)> {
        self.last.as_ref()
    }

    /// True if the last stage did not succeed.
    pub(super) fn has_failed(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, result)| result["verdict"] != "ok")
    }

    /// Advances until the chain waits.
    pub(super) fn poll(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Poll<Result<(), Failure>> {
        loop {
            match &mut self.current {
                None => {
                    let Some(stage) = self.pending.pop() else {
                        if !self.has_failed() {
                            self.settle(cx);
                        }
                        return Poll::Ready(Ok(()));
                    };
                    if let Some(why) = &self.stopped {
                        return Poll::Ready(Err(why.clone()));
                    }
                    self.settle(cx);
                    let upstream = std::mem::take(&mut self.upstream);
                    let begun = begin(&stage, upstream, self.branch_of.clone(), self.branch_of.is_some(), shared, cx)?;
                    self.current = Some(Current::Stage(Box::new(begun)));
                }
                Some(Current::Stage(execution)) => {
                    let Poll::Ready(next) = execution.poll(cx, shared, view) else { return Poll::Pending };
                    let next = next?;
                    let stage = execution.stage().id.clone();
                    let result = execution.result().cloned().unwrap_or_default();
                    self.unsettled = Some(execution.part().to_owned());
                    self.current = None;
                    self.note(&stage, &result);
                    if self.branch_of.is_some() && self.has_failed() {
                        return Poll::Ready(Ok(()));
                    }
                    self.follow(cx, shared, view, &stage, next)?;
                }
                Some(Current::Siblings(siblings)) => {
                    let Poll::Ready(end) = siblings.poll(cx, shared, view) else { return Poll::Pending };
                    let end = end?;
                    self.current = None;
                    for (stage, result) in &end.finished {
                        self.note(stage, result);
                    }
                    self.upstream = end.upstream;
                    self.unsettled = end.join;
                    if let Some((stage, next)) = end.next {
                        self.follow(cx, shared, view, &stage, next)?;
                    }
                }
            }
        }
    }

    /// Marks the execution that finished last as settled, because a stage follows it or the chain has succeeded.
    fn settle(&mut self, cx: &mut Cx) {
        if let Some(part) = self.unsettled.take() {
            cx.open_work.succeed(&part);
        }
    }

    fn note(&mut self, stage: &str, result: &Value) {
        self.first.get_or_insert_with(|| result.clone());
        self.upstream = vec![result.clone()];
        self.last = Some((stage.to_owned(), result.clone()));
    }

    fn follow(
        &mut self,
        cx: &mut Cx,
        shared: &mut Shared,
        view: &View,
        stage: &str,
        next: Next,
    ) -> Result<(), Failure> {
        match next {
            Next::Terminal => Ok(()),
            Next::Sequential(list) => {
                self.pending.extend(list.into_iter().rev());
                Ok(())
            }
            Next::Parallel { .. } if self.branch_of.is_some() => {
                let message = format!("stage `{stage}` opens a fan-out inside a fan-out; fan-outs cannot be nested");
                let context = json!({"stageId": stage, "nested": true});
                Err(fault(HOST, "InvalidParallelPlan", stage, &message, context))
            }
            Next::Parallel { siblings, join } => {
                if let Some(why) = &self.stopped {
                    return Err(why.clone());
                }
                self.settle(cx);
                let begun = Siblings::new(stage, siblings, join, view, shared, cx);
                self.current = Some(Current::Siblings(Box::new(begun)));
                Ok(())
            }
        }
    }

    /// Asks the chain to end soon; it is polled until everything that it has started is gone.
    pub(super) fn stop(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View, why: &Failure) {
        self.stopped = Some(why.clone());
        match &mut self.current {
            Some(Current::Stage(execution)) => execution.stop(cx, shared, view, why),
            Some(Current::Siblings(siblings)) => siblings.stop(cx, shared, view, why),
            None => {}
        }
    }

    /// The data of every slot in the chain's branches.
    pub(super) fn slots(&mut self) -> Vec<&mut Value> {
        match &mut self.current {
            Some(Current::Siblings(siblings)) => siblings.slots(),
            _ => Vec::new(),
        }
    }

    /// Handles the loss of the run's process.
    pub(super) fn resumed(&mut self, cx: &mut Cx, shared: &mut Shared) {
        match &mut self.current {
            Some(Current::Stage(execution)) => execution.resumed(cx, shared),
            Some(Current::Siblings(siblings)) => siblings.resumed(cx, shared),
            None => {}
        }
    }
}

/// Begins an execution of `stage`, unless the maximum number of executions is reached.
pub(super) fn begin(
    stage: &str,
    upstream: Vec<Value>,
    compound: Option<String>,
    must_succeed: bool,
    shared: &mut Shared,
    cx: &mut Cx,
) -> Result<Execution, Failure> {
    let most = shared.machine.max_executions;
    if !shared.count() {
        let message = format!("the machine was stopped after {most} stage executions (`maxStageExecutions`)");
        let mut facts = Map::new();
        facts.insert("maxStageExecutions".to_owned(), json!(most));
        return Err(lifecycle(Phase::Next, stage, &message, facts));
    }
    let Some(stage) = shared.machine.stage(stage).cloned() else {
        let mut facts = Map::new();
        facts.insert("unknownStage".to_owned(), json!(stage));
        return Err(lifecycle(Phase::Next, stage, &format!("there is no stage `{stage}`"), facts));
    };
    Ok(Execution::new(&stage, upstream, compound, must_succeed, shared, cx))
}
