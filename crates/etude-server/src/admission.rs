//! Admission of runs: the limits of a pipeline (`serve.pipelines`) and of a day (`serve.per_day`).

use std::sync::Arc;

use etude::definition::Definition;
use etude::queue::{self, Refused, Terms};
use etude::runner::Request;
use etude_core::data::Json;
use etude_runtime::engine::{LimitGroup, Placement, Query, RunRow, RunState, Submission, UniqueKey, name_of};
use etude_spec::automation::template;
use etude_spec::serve::{PipelineLimits, WhenFull};
use serde_json::{Value, json};

use crate::context::Context;
use crate::problem::{Code, Problem, engine_failed};
use crate::settings::ServedApp;
use crate::spending::Spending;
use crate::work::{self, Works};

/// Admission control for new runs.
pub(crate) struct Admissions {
    context: Arc<Context>,
    works: Arc<Works>,
    spending: Spending,
}

impl Admissions {
    /// Admission of runs that `works` executes.
    pub(crate) fn new(context: &Arc<Context>, works: &Arc<Works>) -> Self {
        Self { context: Arc::clone(context), works: Arc::clone(works), spending: Spending::default() }
    }
}

/// A run before its admission.
pub(crate) struct Candidate {
    pub(crate) request: Request,
    pub(crate) placement: Placement,
    /// True if the placement has a priority of its own; otherwise that of the pipeline counts.
    pub(crate) has_priority: bool,
    pub(crate) keys: Vec<UniqueKey>,
    /// The nominal time of the tick that starts the run.
    pub(crate) tick: Option<String>,
}

/// An admitted run, ready for the engine.
pub(crate) struct Admission {
    pub(crate) submission: Submission,
    /// The limit that is reached if the engine finds its queue full.
    pub(crate) full: Full,
    when_full: WhenFull,
}

/// The limit that refuses another run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue has its maximum number of runs.
    Queue,
    /// The runs of the day have used up the daily budget.
    Budget,
    /// The pipeline (with this key) has its maximum number of runs in progress; the id is that of one of them.
    Pipeline(String),
}

impl Full {
    /// The reason of a tick that started no run.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Queue => "queue_full",
            Self::Budget => "budget_spent",
            Self::Pipeline(_) => "overlap",
        }
    }

    pub(crate) fn problem(&self, admissions: &Admissions) -> Problem {
        match self {
            Self::Queue => Problem::new(Code::QueueFull, "the queue has reached its limit of runs").retry_after(30),
            Self::Budget => {
                let limit = admissions.context.settings().max_cost_per_day_usd.unwrap_or_default();
                let detail = format!("the runs of today have reached the limit of {limit} US dollars");
                let seconds = admissions.spending.seconds_left(admissions.context.clock().now_ms());
                Problem::new(Code::BudgetSpent, detail).retry_after(seconds)
            }
            Self::Pipeline(run_id) => {
                let detail = format!("run `{run_id}` is in progress, and the pipeline's `when_full` is `skip`");
                Problem::new(Code::RunIsBusy, detail).with("run_id", run_id.as_str())
            }
        }
    }
}

/// Makes a submission of a run within its limits. A refused run takes no room in the queue: a repeated request still finds the
/// run of its key. Blocks.
pub(crate) fn admit(
    admissions: &Admissions,
    app: &ServedApp,
    definition: &Definition,
    candidate: Candidate,
) -> Result<Admission, Problem> {
    let Candidate { request, mut placement, has_priority, keys, tick } = candidate;
    let automation = admissions.context.automation(app)?;
    let name = name_of_target(definition);
    let limits = automation.limits.iter().find(|limits| limits.name == name).cloned().unwrap_or_default();
    if !has_priority {
        placement.priority = limits.priority.unwrap_or(0);
    }
    placement.queue_timeout_ms = limits.queue_timeout_ms;
    placement.limit_group = group(definition, &limits, &request.input)?;
    let spent = queue::spent(&**admissions.context.engine(), &placement, admissions.context.clock().now_ms())
        .map_err(|e| engine_failed(&e))?;
    let full =
        if admissions.spending.is_spent(&admissions.context)? || spent.is_some() { Full::Budget } else { Full::Queue };
    let max_queued = if full == Full::Queue { u64::from(admissions.context.settings().max_queued) } else { 0 };
    // The engine checks for room in the transaction that accepts the run, so that the limit holds for all servers of a journal.
    let needs_room = limits.when_full == WhenFull::Skip;
    let terms = Terms { placement, keys, max_queued: Some(max_queued), needs_room, tick };
    let submission = queue::submission(
        &**admissions.context.engine(),
        definition,
        request,
        terms,
        admissions.context.clock().now_ms(),
    );
    let submission = submission.map_err(|refused| match refused {
        Refused::Input(problems) => invalid_input(problems),
        Refused::Engine(error) => engine_failed(&error),
    })?;
    Ok(Admission { submission, full, when_full: limits.when_full })
}

/// Checks that a run that is resumed may wait for room: with `when_full: skip`, no run of its pipeline does. Blocks.
pub(crate) fn check_room(admissions: &Admissions, row: &RunRow, definition: &Definition) -> Result<(), Problem> {
    let (Some(group), Some(app)) = (&row.placement.limit_group, admissions.context.app_of(row)) else { return Ok(()) };
    let automation = admissions.context.automation(app)?;
    let name = name_of_target(definition);
    let skips = automation.limits.iter().any(|limits| limits.name == name && limits.when_full == WhenFull::Skip);
    if !skips {
        return Ok(());
    }
    let holders = holders(admissions, &group.name)?;
    match holders.last().filter(|_| holders.len() >= group.max_runs as usize) {
        Some(oldest) => Err(Full::Pipeline(oldest.id.clone()).problem(admissions)),
        None => Ok(()),
    }
}

impl Admission {
    /// Makes room for the accepted run and wakes the queue. Blocks.
    pub(crate) fn accepted(self, admissions: &Admissions) -> Result<(), Problem> {
        let run = &self.submission.run;
        if let Some(group) = run.placement.limit_group.as_ref().filter(|_| self.when_full == WhenFull::Cancel) {
            // Later runs make room for themselves: of two that are accepted together, the second one stays. The numbers decide
            // which one is later, because a run with an earlier time may have been written later.
            let mut holders = holders(admissions, &group.name)?;
            holders.sort_by_key(|row| std::cmp::Reverse(row.number));
            let own_and_earlier = holders.into_iter().skip_while(|row| row.id != run.id);
            let reason = format!("replaced by run `{}`", run.id);
            for row in own_and_earlier.skip(group.max_runs as usize) {
                work::cancel_run(&admissions.works, &row, &reason, false)?;
            }
        }
        admissions.works.wake.notify_one();
        Ok(())
    }
}

/// Maximum length of a member's name in the pointer of a fault, in bytes: names of parameters are never longer.
const MAX_NAME: usize = 256;

/// The problem of an invalid input, with one entry per listed fault (S-38).
pub(crate) fn invalid_input(problems: Vec<etude_spec::input::InputProblem>) -> Problem {
    let detail = problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ");
    problems.into_iter().fold(Problem::new(Code::InputInvalid, detail), |whole, problem| {
        let name = problem.parameter.filter(|name| name.len() <= MAX_NAME);
        let name = name.map(|name| format!("/{}", etude_core::pointer::escaped(&name)));
        let pointer = format!("/input{}", name.unwrap_or_default());
        whole.error(json!({"pointer": pointer, "detail": problem.message}))
    })
}

fn name_of_target(definition: &Definition) -> String {
    name_of(&definition.target.to_string()).to_owned()
}

/// The limit that a run shares with other runs of the same app, pipeline and key.
fn group(definition: &Definition, limits: &PipelineLimits, input: &Json) -> Result<Option<LimitGroup>, Problem> {
    let Some(max_runs) = limits.max_runs else { return Ok(None) };
    let key = match &limits.key {
        Some(key) => key_of(definition, key, input)?,
        None => String::new(),
    };
    let name = format!("{}\u{1f}{}\u{1f}{key}", definition.app.display(), definition.target);
    Ok(Some(LimitGroup { name, max_runs }))
}

/// The key with references replaced by values of the input, defaults included. A parameter without a value is an empty text.
fn key_of(definition: &Definition, key: &str, input: &Json) -> Result<String, Problem> {
    let unreadable = |why: String| Problem::new(Code::JournalUnavailable, why);
    let text = input.text().map_err(|error| unreadable(error.to_string()))?;
    let input = definition.input.coerce(&[], Some(&text)).map_err(invalid_input)?;
    let input = input.value().map_err(|error| unreadable(error.to_string()))?;
    let lookup = |reference: &str| {
        let value = reference.strip_prefix("input.").and_then(|path| template::at_path(&input, path));
        Some(value.unwrap_or(&Value::from("")).to_string())
    };
    let members = [("key".to_owned(), Value::from(key))].into_iter().collect();
    let filled = template::fill(&members, &lookup).unwrap_or_default();
    let filled: Value = serde_json::from_str(&filled).unwrap_or_default();
    Ok(match filled.get("key") {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    })
}

/// The runs that count against the limit of a group, newest first: queued and running ones.
fn holders(admissions: &Admissions, group: &str) -> Result<Vec<RunRow>, Problem> {
    let states = vec![RunState::Queued, RunState::Running];
    let query = Query { states, limit_group: Some(group.to_owned()), ..Query::default() };
    admissions.context.engine().list(&query).map_err(|e| engine_failed(&e))
}

#[cfg(test)]
mod tests {
    use etude_spec::input::InputProblem;

    use super::*;

    /// S-38: a fault points at its member, and repeats no name that is longer than a name of a parameter.
    #[test]
    fn a_fault_repeats_no_long_name() {
        let fault = |name: &str| InputProblem {
            parameter: Some(name.to_owned()),
            message: "is not declared".to_owned(),
            hint: None,
        };
        let problem = invalid_input(vec![fault("a/b"), fault(&"x".repeat(MAX_NAME + 1))]);
        let document = problem.to_json("", "");
        assert_eq!(document["errors"][0]["pointer"], json!("/input/a~1b"));
        assert_eq!(document["errors"][1]["pointer"], json!("/input"));
    }
}
