//! A compound turn: stages that run at once, then possibly a join (`b-stages` §10.1).
//!
//! | state    | event                                    | next                                               |
//! |----------|------------------------------------------|----------------------------------------------------|
//! | siblings | one does not succeed                     | the others are stopped; when all are gone, reporting |
//! | siblings | one had failed when it was stopped       | the first failed one of the list counts            |
//! | siblings | one is stopped during its secret scan    | it continues until its gate has decided            |
//! | siblings | all succeeded                            | joining, or over                                   |
//! | reporting | the machine's `onFailure` has ended     | over, with the failure                             |
//! | joining  | the join has gone through all its phases | over, with the next stages                         |

use std::task::Poll;

use serde_json::{Value, json};

use super::audit::emit;
use super::execution::Execution;
use super::fault::{HOST, cause, fault};
use super::hook::Hook;
use super::shared::{Shared, View};
use super::walk::{Walk, begin};
use crate::data::{Json, overlaid};
use crate::failure::{Failure, FailureKind};
use crate::machine::{Cx, NAMES_FIRST_SIBLING, PLACES_STAGES};
use crate::plan::stages::Next;

/// Message with which the other siblings are stopped.
pub(super) const SIBLING_FAILED: &str = "stopped because a sibling failed";

/// A compound turn in progress.
#[derive(Debug)]
pub(super) struct Siblings {
    id: String,
    /// Id of the stage that opened the turn.
    fork: String,
    branches: Vec<Branch>,
    join: Option<String>,
    /// Slot and outputs when the turn began.
    before: View,
    state: State,
    stopped: Option<Failure>,
}

#[derive(Debug)]
struct Branch {
    stage: String,
    walk: Walk,
    view: View,
    end: Option<Result<(), Failure>>,
}

#[derive(Debug)]
enum State {
    Running { failed: Option<usize> },
    Reporting(Box<(Hook, Failure)>),
    Joining(Box<Execution>),
}

/// Result of a compound turn.
#[derive(Debug)]
pub(super) struct End {
    /// The finished stages, with their results.
    pub(super) finished: Vec<(String, Value)>,
    /// The value of `ctx.upstream` for the next stage of the chain.
    pub(super) upstream: Vec<Value>,
    /// Id of the join, with the stages after it.
    pub(super) next: Option<(String, Next)>,
    /// Prefix of the effect ids of the join.
    pub(super) join: Option<String>,
}

impl Siblings {
    pub(super) fn new(
        fork: &str,
        siblings: Vec<String>,
        join: Option<String>,
        view: &View,
        shared: &mut Shared,
        cx: &mut Cx,
    ) -> Self {
        let id = shared.compound(fork);
        let branches = siblings
            .into_iter()
            .map(|stage| Branch { walk: Walk::new(&stage, Some(id.clone())), stage, view: view.clone(), end: None })
            .collect();
        let begun = Self {
            id,
            fork: fork.to_owned(),
            branches,
            join,
            before: view.clone(),
            state: State::Running { failed: None },
            stopped: None,
        };
        emit(cx, "SessionTurnStart", begun.event(shared));
        begun
    }

    fn event(&self, shared: &Shared) -> Value {
        json!({
            "sessionId": shared.run_id, "workflowRunId": shared.run_id, "stageId": self.fork, "execution": "parallel",
            "compoundTurnId": self.id, "parentCompoundTurnId": self.id,
        })
    }

    pub(super) fn poll(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Poll<Result<End, Failure>> {
        loop {
            match &mut self.state {
                State::Running { .. } => {
                    let Poll::Ready(end) = self.run(cx, shared, view) else { return Poll::Pending };
                    if let Some(end) = end? {
                        return Poll::Ready(Ok(end));
                    }
                }
                State::Reporting(forwarding) => {
                    let (hook, failure) = &mut **forwarding;
                    let Poll::Ready(_) = hook.poll(cx, shared.ledger) else { return Poll::Pending };
                    // The output of the script is ignored (B-P10).
                    let failure = self.stopped.clone().unwrap_or_else(|| failure.clone());
                    return Poll::Ready(Err(failure));
                }
                State::Joining(execution) => {
                    let Poll::Ready(next) = execution.poll(cx, shared, view) else { return Poll::Pending };
                    let next = next?;
                    let stage = execution.stage().id.clone();
                    let result = execution.result().cloned().unwrap_or_default();
                    let end = End {
                        finished: vec![(stage.clone(), result.clone())],
                        upstream: vec![result],
                        next: Some((stage, next)),
                        join: Some(execution.part().to_owned()),
                    };
                    return Poll::Ready(Ok(end));
                }
            }
        }
    }

    /// Advances the siblings, in the order of the list (B-P12).
    fn run(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Poll<Result<Option<End>, Failure>> {
        for at in 0..self.branches.len() {
            let branch = &mut self.branches[at];
            if branch.end.is_some() {
                continue;
            }
            let Poll::Ready(end) = branch.walk.poll(cx, shared, &mut branch.view) else { continue };
            self.note(cx, shared, at, end);
        }
        // Siblings that were stopped earlier in this pass must be polled again.
        for at in 0..self.branches.len() {
            let branch = &mut self.branches[at];
            if branch.end.is_none()
                && let Poll::Ready(end) = branch.walk.poll(cx, shared, &mut branch.view)
            {
                self.note(cx, shared, at, end);
            }
        }
        if self.branches.iter().any(|branch| branch.end.is_none()) {
            return Poll::Pending;
        }
        if let Some(why) = &self.stopped {
            // A cancellation from outside outranks the failure of a sibling (B-P11).
            return Poll::Ready(Err(super::fault::turn_cancelled(why.clone(), &self.fork)));
        }
        match self.state {
            State::Running { failed: Some(at) } => {
                self.abort(cx, shared, view, at).map_or(Poll::Ready(Ok(None)), |e| Poll::Ready(Err(e)))
            }
            _ => Poll::Ready(self.join(cx, shared, view)),
        }
    }

    /// Records the end of a branch. The first branch that does not succeed stops the others. When all are gone, the
    /// first of the list among those that failed by themselves counts (B-P12). A secret scan takes no time of its own,
    /// so failures after one that was in progress belong to the same instant.
    fn note(&mut self, cx: &mut Cx, shared: &mut Shared, at: usize, end: Result<(), Failure>) {
        let branch = &mut self.branches[at];
        let has_failed = end.is_err() || branch.walk.has_failed();
        let by_itself = match &end {
            Ok(()) => has_failed,
            Err(failure) => failure.kind != FailureKind::Cancelled,
        };
        branch.end = Some(end);
        let State::Running { failed } = &mut self.state else { return };
        if !has_failed || self.stopped.is_some() {
            return;
        }
        if let Some(first) = *failed {
            let is_named = self.branches[first].end.as_ref().is_some_and(ends_the_run);
            if cx.facts.abi >= NAMES_FIRST_SIBLING && by_itself && at < first && !is_named {
                *failed = Some(at);
            }
            return;
        }
        *failed = Some(at);
        let why = Failure::new(FailureKind::Cancelled, SIBLING_FAILED);
        for branch in self.branches.iter_mut().filter(|branch| branch.end.is_none()) {
            branch.walk.stop(cx, shared, &branch.view, &why);
        }
    }

    /// Handles a failed sibling when all are gone (B-P8, B-P9). Returns the failure, unless it must be reported to a
    /// script first.
    fn abort(&mut self, cx: &mut Cx, shared: &Shared, view: &View, at: usize) -> Option<Failure> {
        let branch = &self.branches[at];
        let (why, because) = match &branch.end {
            // A failure that ends the whole run is not a failure of the fan-out.
            Some(end @ Err(failure)) if ends_the_run(end) => return Some(failure.clone()),
            Some(Err(failure)) => {
                let mut because = cause(failure);
                because["message"] = json!(failure.message);
                (failure.message.clone(), because)
            }
            _ => {
                let result = branch.walk.last().map(|(_, result)| result.clone()).unwrap_or_default();
                if cx.facts.abi >= NAMES_FIRST_SIBLING {
                    // Another sibling may have ended since.
                    cx.stages.last = Some(Json::of(&result));
                }
                let reason = result["reason"].as_str().unwrap_or("no reason given");
                let why = format!("its verdict is {}: {reason}", result["verdict"].as_str().unwrap_or("?"));
                (why, json!({"verdict": result["verdict"], "reason": result.get("reason")}))
            }
        };
        let context = json!({
            "compoundTurnId": self.id, "failedSiblingId": branch.stage, "failedSibling": branch.stage,
            "joinReady": false, "join": self.join, "cause": because,
        });
        let event = overlaid(self.event(shared), context.clone());
        emit(cx, "ParallelSiblingFailure", event.clone());
        let message = format!("stage `{}` failed in the fan-out of stage `{}`: {why}", branch.stage, self.fork);
        let mut failure = fault(HOST, "ParallelSiblingFailure", &branch.stage, &message, context);
        if shared.abi >= PLACES_STAGES {
            failure.origin = match &branch.end {
                Some(Err(failure)) => failure.origin.clone(),
                _ => shared.machine.stage(&branch.stage).map(|stage| stage.origin.clone()),
            };
        }
        let Some(script) = &shared.machine.on_failure else { return Some(failure) };
        let machine = &shared.machine;
        let more = json!({
            "run": {"workflowRunId": shared.run_id, "compoundTurnId": self.id, "cwd": shared.app_dir}, "event": event,
        });
        let stdin = shared.document("onFailure", &view.slot, more);
        let path = shared.path.child(&format!("{}!failed", self.branches[at].stage)).child("onFailure");
        cx.open_work.begin(path.as_str());
        let hook = Hook::new(&path, path.as_str(), 1, script, &machine.dir, stdin.into());
        self.state = State::Reporting(Box::new((hook, failure)));
        None
    }

    /// Merges the changes of all siblings, which succeeded, in the order of the list, and begins the join (B-P7, B-P13).
    fn join(&mut self, cx: &mut Cx, shared: &mut Shared, view: &mut View) -> Result<Option<End>, Failure> {
        for branch in &self.branches {
            view.merge(&self.before, &branch.view);
        }
        let results: Vec<Value> =
            self.branches.iter().map(|branch| branch.walk.first().cloned().unwrap_or_default()).collect();
        let Some(join) = &self.join else {
            emit(cx, "SessionTurnEnd", self.event(shared));
            shared.emit_persisted(cx);
            let finished = self.branches.iter().filter_map(|branch| branch.walk.last().cloned()).collect();
            return Ok(Some(End { finished, upstream: results, next: None, join: None }));
        };
        let mut execution = begin(join, results, Some(self.id.clone()), false, shared, cx)?;
        execution.closes_turn();
        self.state = State::Joining(Box::new(execution));
        Ok(None)
    }

    pub(super) fn stop(&mut self, cx: &mut Cx, shared: &mut Shared, view: &View, why: &Failure) {
        self.stopped = Some(why.clone());
        match &mut self.state {
            State::Running { .. } => {
                for branch in self.branches.iter_mut().filter(|branch| branch.end.is_none()) {
                    branch.walk.stop(cx, shared, &branch.view, why);
                }
            }
            State::Reporting(forwarding) => forwarding.0.stop(cx),
            State::Joining(execution) => execution.stop(cx, shared, view, why),
        }
    }

    /// The data of every slot in the turn.
    pub(super) fn slots(&mut self) -> Vec<&mut Value> {
        let mut found = vec![&mut self.before.slot];
        for branch in &mut self.branches {
            found.push(&mut branch.view.slot);
            found.extend(branch.walk.slots());
        }
        found
    }

    /// Handles the loss of the run's process. Finished siblings are not repeated.
    pub(super) fn resumed(&mut self, cx: &mut Cx, shared: &mut Shared) {
        match &mut self.state {
            State::Running { .. } => {
                let open = self.branches.iter_mut().filter(|branch| branch.end.is_none());
                open.for_each(|branch| branch.walk.resumed(cx, shared));
            }
            State::Reporting(_) => {}
            State::Joining(execution) => execution.resumed(cx, shared),
        }
    }
}

/// True for a failure that ends the whole run.
fn ends_the_run(end: &Result<(), Failure>) -> bool {
    let kinds = [FailureKind::BudgetExceeded, FailureKind::Environment, FailureKind::Internal];
    end.as_ref().is_err_and(|failure| kinds.contains(&failure.kind))
}
