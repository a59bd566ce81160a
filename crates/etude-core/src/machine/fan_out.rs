//! Several tasks at once: the children of a `parallel` group, or the elements of a `for_each` (X-1, X-3).
//!
//! The order in which children end may differ from run to run, but outputs have the order of the plan or of the input.
//! The failure that stops the others is the one that was journaled first. With `on_failure: wait`, the first failure in
//! the order of the plan is the group's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use super::binding::unresolved;
use super::cached::single;
use super::step::StepTask;
use super::step_context::StepContext;
use super::values::Values;
use super::{Cx, KEEPS_DETAILS, Task};
use crate::data::Json;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind, Reason};
use crate::plan::{ForEach, OnFailure, OnTimeout, Parallel, Step, StepKind};
use crate::report::{Event, Item, Items, StepStatus, error_json};

pub(super) struct FanOut {
    shape: Shape,
    row: Option<usize>,
    total: usize,
    max_parallel: usize,
    next: usize,
    active: BTreeMap<usize, Box<dyn Task>>,
    /// Labels of the elements at work.
    named: BTreeMap<usize, Item>,
    ended: BTreeMap<usize, Result<Json, Failure>>,
    /// Index of the child whose failure is the step's failure: the first in the order of the plan. In runs that a
    /// version before the sixth began, the failure that came first.
    first_failure: Option<usize>,
    /// Number of children that used the output of an earlier run.
    cached: usize,
    /// True if the output of any child must not be cached for later runs.
    is_partial: bool,
    /// The failure that ends all other children.
    fatal: Option<Failure>,
    stop_on_failure: bool,
    stopped: Option<Failure>,
    /// The timeout of approvals that no one answered in time: each resolves as its `on_timeout` says.
    unanswered: Option<Failure>,
}

enum Shape {
    Group {
        children: Vec<(Arc<Step>, StepContext)>,
        values: Arc<Values>,
    },
    Items {
        step: Arc<Step>,
        step_context: StepContext,
        values: Arc<Values>,
        items: Vec<Json>,
        collect: bool,
        rest: Option<Digest>,
    },
}

impl FanOut {
    pub(super) fn over_group(group: &Parallel, step_context: &StepContext, values: &Arc<Values>) -> Self {
        let mut row = step_context.row.map(|row| row + 1);
        let mut children = Vec::with_capacity(group.steps.len());
        for step in &group.steps {
            let path = step_context.path.child(&step.name);
            children.push((
                Arc::clone(step),
                StepContext { row, ledger: row.or(step_context.ledger), path, ..step_context.clone() },
            ));
            row = row.map(|row| row + step.rows());
        }
        let total = children.len();
        Self::new(
            Shape::Group { children, values: Arc::clone(values) },
            step_context.row,
            total,
            group.max_parallel.unwrap_or(total),
            group.on_failure == OnFailure::Stop,
        )
    }

    pub(super) fn over_items(
        step: &Arc<Step>,
        for_each: &ForEach,
        step_context: &StepContext,
        values: &Arc<Values>,
    ) -> Result<Self, Failure> {
        let list = for_each.items.resolve(&**values).map_err(|e| unresolved(&e))?;
        let text = list.text().map_err(|e| Failure::new(FailureKind::Environment, e.to_string()))?;
        let raw: Vec<&serde_json::value::RawValue> = serde_json::from_str(&text).map_err(|_| {
            let start: String = text.chars().take(80).collect();
            let message = format!("`for_each` of step `{}` needs an array, found: {start}", step.name);
            Failure::new(FailureKind::TemplateUnresolved, message).because(Reason::FieldType)
        })?;
        if raw.len() > for_each.max_items {
            let message = format!(
                "`for_each` of step `{}` got {} elements; `max_items` is {}",
                step.name,
                raw.len(),
                for_each.max_items
            );
            return Err(Failure::new(FailureKind::StepFailed, message));
        }
        let items: Vec<Json> = raw.iter().map(|raw| Json::trusted(raw.get())).collect();
        let total = items.len();
        let collect = for_each.collect;
        let rest = is_cached(step).then(|| values.digest_without(&for_each.stands_for));
        let (row, step, step_context, values) =
            (step_context.row, Arc::clone(step), step_context.clone(), Arc::clone(values));
        let shape = Shape::Items { step, step_context, values, items, collect, rest };
        Ok(Self::new(shape, row, total, for_each.max_parallel, !collect))
    }

    fn new(shape: Shape, row: Option<usize>, total: usize, max_parallel: usize, stop_on_failure: bool) -> Self {
        Self {
            shape,
            row,
            total,
            max_parallel: max_parallel.max(1),
            next: 0,
            active: BTreeMap::new(),
            named: BTreeMap::new(),
            ended: BTreeMap::new(),
            first_failure: None,
            cached: 0,
            is_partial: false,
            fatal: None,
            stop_on_failure,
            stopped: None,
            unanswered: None,
        }
    }

    fn begin(&mut self, cx: &mut Cx, index: usize) -> Result<Box<dyn Task>, Failure> {
        match &mut self.shape {
            Shape::Group { children, values } => {
                let (step, step_context) = &children[index];
                Ok(Box::new(StepTask::new(Arc::clone(step), step_context.clone(), Arc::clone(values))))
            }
            Shape::Items { step, step_context, values, items, rest, .. } => {
                // Moved out, because an element is needed once: a long array is not kept twice.
                let element = std::mem::replace(&mut items[index], Json::null());
                let item = Item::of(index, &element);
                self.named.insert(index, item.clone());
                if let Some(row) = self.row {
                    cx.emit(Event::ItemStarted { row, item: item.clone() });
                }
                let values = Arc::new(values.with_item(element, index, *rest));
                let step_context =
                    StepContext { path: step_context.path.item(index), item: Some(item), ..step_context.clone() };
                single(step, &step_context, &values)
            }
        }
    }

    fn end(&mut self, cx: &mut Cx, index: usize, result: Result<Json, Failure>, is_cached: bool) {
        let is_stopped = self.stopped.is_some() || self.fatal.is_some();
        let result = result.map_err(|failure| self.place(index, failure, cx.facts.abi));
        if let Err(failure) = &result
            && self.stopped.is_none()
        {
            self.first_failure = match self.first_failure {
                Some(first) if cx.facts.abi < 6 || first < index => Some(first),
                _ => Some(index),
            };
            if self.fatal.is_none() && (self.stop_on_failure || ends_the_run(failure)) {
                self.fatal = Some(failure.clone());
                let why = Failure::new(FailureKind::Cancelled, "stopped because a sibling failed");
                self.active.values_mut().for_each(|task| task.stop(cx, &why));
            }
        }
        if matches!(self.shape, Shape::Items { .. }) {
            self.emit_item(cx, index, &result, is_stopped, is_cached);
        }
        self.ended.insert(index, result);
    }

    /// Counts an element that is over in the step's row, and emits its event.
    fn emit_item(&mut self, cx: &mut Cx, index: usize, result: &Result<Json, Failure>, is_stopped: bool, cached: bool) {
        let (Some(row), Some(item)) = (self.row, self.named.remove(&index)) else { return };
        let (status, error) = match result {
            Ok(_) => (StepStatus::Succeeded, None),
            Err(_) if is_stopped => (StepStatus::Cancelled, None),
            Err(failure) => (StepStatus::Failed, Some(failure.message.clone())),
        };
        if let Some(items) = cx.rows[row].items.as_mut().filter(|_| self.is_outermost()) {
            items.count(index, status, cached);
        }
        cx.emit(Event::ItemEnded { row, item, status, cached, error, done: self.ended.len() + 1, total: self.total });
    }

    /// False for a `for_each` inside another one: its elements have no entries of their own in the report.
    fn is_outermost(&self) -> bool {
        matches!(&self.shape, Shape::Items { step_context, .. } if step_context.item.is_none())
    }

    /// Adds the index of the failed element to a failure, and to those of its siblings. In runs that an earlier version
    /// began, it replaces the details of the failure, and siblings have none.
    fn place(&self, index: usize, mut failure: Failure, abi: u32) -> Failure {
        if let Shape::Items { step, step_context, .. } = &self.shape
            && failure.kind != FailureKind::Cancelled
        {
            if step_context.row.is_some() && failure.step.is_none() {
                failure.step = Some(step.name.clone());
            }
            failure.message = format!("element {index} of {}: {}", self.total, failure.message);
            match abi >= KEEPS_DETAILS {
                true => {
                    failure.item = Some(index);
                    let siblings = std::mem::take(&mut failure.siblings);
                    failure.siblings = siblings.into_iter().map(|sibling| self.place(index, sibling, abi)).collect();
                }
                // The details of a deviation are its reason and its condition.
                false if failure.kind == FailureKind::Deviated => {}
                false => failure.details = Some(Json::trusted(format!(r#"{{"item":{index}}}"#))),
            }
        }
        failure
    }

    fn may_begin(&self) -> bool {
        self.next < self.total
            && self.active.len() < self.max_parallel
            && self.stopped.is_none()
            && self.fatal.is_none()
    }

    fn result(&mut self) -> Result<Json, Failure> {
        if let Some(why) = &self.stopped {
            return Err(why.clone());
        }
        if let Some(failure) = self.fatal.take() {
            return Err(failure);
        }
        let collect = matches!(&self.shape, Shape::Items { collect: true, .. });
        if let Some(first) = self.first_failure.filter(|_| !collect)
            && let Some(Err(failure)) = self.ended.get(&first)
        {
            let mut failure = failure.clone();
            let others = self.ended.iter().filter(|(index, _)| **index != first);
            failure.siblings.extend(others.filter_map(|(_, result)| result.as_ref().err().cloned()));
            return Err(failure);
        }
        let mut text = String::new();
        for (index, result) in &self.ended {
            text.push(if index == &0 { self.bracket().0 } else { ',' });
            if let Shape::Group { children, .. } = &self.shape {
                text.push_str(&serde_json::Value::from(children[*index].0.name.as_str()).to_string());
                text.push(':');
            }
            match result {
                Ok(output) => {
                    let output = output.text().map_err(|e| Failure::new(FailureKind::Environment, e.to_string()))?;
                    if collect {
                        text.push_str(&format!(r#"{{"output":{output}}}"#));
                    } else {
                        text.push_str(&output);
                    }
                }
                Err(failure) => text.push_str(&serde_json::json!({"error": error_json(failure)}).to_string()),
            }
        }
        if self.ended.is_empty() {
            text.push(self.bracket().0);
        }
        text.push(self.bracket().1);
        Ok(Json::trusted(text))
    }

    fn bracket(&self) -> (char, char) {
        match self.shape {
            Shape::Group { .. } => ('{', '}'),
            Shape::Items { .. } => ('[', ']'),
        }
    }
}

impl Task for FanOut {
    fn resumed(&mut self, cx: &mut Cx) {
        self.active.values_mut().for_each(|task| task.resumed(cx));
    }

    fn poll(&mut self, cx: &mut Cx) -> Poll<Result<Json, Failure>> {
        if self.next == 0
            && self.is_outermost()
            && let Some(row) = self.row
        {
            cx.rows[row].items = Some(Items { total: self.total, ..Items::default() });
        }
        loop {
            while self.may_begin() {
                let index = self.next;
                self.next += 1;
                match self.begin(cx, index) {
                    Ok(mut task) => {
                        if let Some(why) = &self.unanswered {
                            task.stop(cx, why);
                        }
                        self.active.insert(index, task);
                    }
                    Err(failure) => self.end(cx, index, Err(failure), false),
                }
            }
            // A failure must stop the others before they are polled, so that none of them starts another effect.
            let mut has_ended = false;
            let mut from = 0;
            while let Some((&index, task)) = self.active.range_mut(from..).next() {
                from = index + 1;
                let Poll::Ready(result) = task.poll(cx) else { continue };
                let is_cached = task.is_cached();
                self.cached += usize::from(is_cached);
                self.is_partial |= !task.may_be_remembered();
                self.active.remove(&index);
                self.end(cx, index, result, is_cached);
                has_ended = true;
            }
            if !has_ended {
                break;
            }
        }
        if self.active.is_empty() { Poll::Ready(self.result()) } else { Poll::Pending }
    }

    fn stop(&mut self, cx: &mut Cx, why: &Failure) {
        match &self.shape {
            Shape::Items { step, .. } if why.kind == FailureKind::StepTimeout && decides_by_itself(step) => {
                self.unanswered = Some(why.clone());
                self.active.values_mut().for_each(|task| task.stop(cx, why));
            }
            Shape::Items { .. } => {
                self.stopped = Some(why.clone());
                self.active.values_mut().for_each(|task| task.stop(cx, why));
            }
            Shape::Group { .. } => {
                self.stopped = Some(why.clone());
                // The group's timeout is not a timeout of its children.
                let why = Failure::new(FailureKind::Cancelled, why.message.clone());
                self.active.values_mut().for_each(|task| task.stop(cx, &why));
            }
        }
    }

    /// False if a child failed, because a later run must repeat its work.
    fn may_be_remembered(&self) -> bool {
        self.first_failure.is_none() && !self.is_partial
    }

    fn is_cached(&self) -> bool {
        self.total > 0 && self.cached == self.total
    }
}

/// True for a failure that concerns more than one element or child. A used-up budget belongs to the run, and nothing
/// may continue (A-4.9). A missing key would fail every element alike. An internal error or a damaged journal is not a
/// result to collect.
fn ends_the_run(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::BudgetExceeded | FailureKind::Environment | FailureKind::Internal)
}

/// True if an output of the step, or of a child if the step is a group, may be cached.
fn is_cached(step: &Step) -> bool {
    step.cache.is_some() || matches!(&step.kind, StepKind::Parallel(group) if group.steps.iter().any(|s| is_cached(s)))
}

/// True for an approval with a default decision if no one answers in time.
fn decides_by_itself(step: &Step) -> bool {
    matches!(&step.kind, StepKind::Approval(approval) if approval.on_timeout != OnTimeout::Fail)
}

impl std::fmt::Debug for FanOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FanOut({} of {} ended, {:?})", self.ended.len(), self.total, self.active)
    }
}
