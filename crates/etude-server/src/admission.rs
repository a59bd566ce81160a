//! Accepting runs: the limits of a pipeline (`serve.pipelines`) and of a day (`serve.per_day`).

use std::sync::Arc;

use etude::definition::Definition;
use etude::queue::{self, Refused, Terms};
use etude::runner::Request;
use etude_core::data::Json;
use etude_runtime::engine::{LimitGroup, Placement, Query, RunRow, RunState, Submission, UniqueKey, name_of};
use etude_spec::automation::template;
use etude_spec::serve::{PipelineLimits, WhenFull};
use serde_json::Value;

use crate::problem::{Code, Problem, engine_failed};
use crate::server::Server;
use crate::settings::ServedApp;
use crate::start::invalid_input;
use crate::work;

/// A run that is about to be accepted.
pub(crate) struct Candidate {
    pub(crate) request: Request,
    pub(crate) placement: Placement,
    /// The placement has a priority of its own; else that of the pipeline counts.
    pub(crate) has_priority: bool,
    pub(crate) keys: Vec<UniqueKey>,
    /// The nominal time of the tick that begins it.
    pub(crate) tick: Option<String>,
}

/// A run that an engine can accept.
pub(crate) struct Admission {
    pub(crate) submission: Submission,
    /// Why the engine finds its queue full.
    pub(crate) full: Full,
    when_full: WhenFull,
}

/// Why no more runs are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue has as many as it may have.
    Queue,
    /// The runs of the day have cost what they may cost.
    Budget,
    /// As many runs of the pipeline and key are in progress as may be; this is one of them.
    Pipeline(String),
}

impl Full {
    /// The reason of a tick that made no run.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Queue => "queue_full",
            Self::Budget => "budget_spent",
            Self::Pipeline(_) => "overlap",
        }
    }

    pub(crate) fn problem(&self, server: &Server) -> Problem {
        match self {
            Self::Queue => Problem::new(Code::QueueFull, "the queue has as many runs as it may have").retry_after(30),
            Self::Budget => {
                let limit = server.settings().max_cost_per_day_usd.unwrap_or_default();
                let detail = format!("the runs of this day have cost their limit of {limit} US dollars");
                let seconds = server.spending().seconds_left(server.clock().now_ms());
                Problem::new(Code::BudgetSpent, detail).retry_after(seconds)
            }
            Self::Pipeline(run_id) => {
                let detail = format!("run `{run_id}` is in progress, and the pipeline's `when_full` is `skip`");
                Problem::new(Code::RunIsBusy, detail).with("run_id", run_id.as_str())
            }
        }
    }
}

/// Makes a submission of a run within its limits. A run that is refused has no room in the queue: a request that is repeated still
/// finds the run of its key. Blocks.
pub(crate) fn admit(
    server: &Server,
    app: &ServedApp,
    definition: &Definition,
    candidate: Candidate,
) -> Result<Admission, Problem> {
    let Candidate { request, mut placement, has_priority, keys, tick } = candidate;
    let automation = server.context().automation(app)?;
    let name = name_of_target(definition);
    let limits = automation.limits.iter().find(|limits| limits.name == name).cloned().unwrap_or_default();
    if !has_priority {
        placement.priority = limits.priority.unwrap_or(0);
    }
    placement.queue_timeout_ms = limits.queue_timeout_ms;
    placement.limit_group = group(definition, &limits, &request.input)?;
    let spent = queue::spent(&**server.engine(), &placement, server.clock().now_ms()).map_err(|e| engine_failed(&e))?;
    let full = if server.is_budget_spent()? || spent.is_some() { Full::Budget } else { Full::Queue };
    let max_queued = if full == Full::Queue { u64::from(server.settings().max_queued) } else { 0 };
    // The engine looks for room in the transaction that accepts the run, so that the limit holds for all servers of a journal.
    let needs_room = limits.when_full == WhenFull::Skip;
    let terms = Terms { placement, keys, max_queued: Some(max_queued), needs_room, tick };
    let submission = queue::submission(&**server.engine(), definition, request, terms, server.clock().now_ms());
    let submission = submission.map_err(|refused| match refused {
        Refused::Input(problems) => invalid_input(problems),
        Refused::Engine(error) => engine_failed(&error),
    })?;
    Ok(Admission { submission, full, when_full: limits.when_full })
}

impl Admission {
    /// Makes room for the run, which is accepted by now, and has it begun. Blocks.
    pub(crate) fn accepted(self, server: &Arc<Server>) -> Result<(), Problem> {
        let run = &self.submission.run;
        if let Some(group) = run.placement.limit_group.as_ref().filter(|_| self.when_full == WhenFull::Cancel) {
            // Later runs make room for themselves: of two that are accepted together, the second one is left. Which one that is, their
            // numbers say: a run with an earlier time may have been written later.
            let mut holders = holders(server, &group.name)?;
            holders.sort_by_key(|row| std::cmp::Reverse(row.number));
            let own_and_earlier = holders.into_iter().skip_while(|row| row.id != run.id);
            let reason = format!("run `{}` takes its place", run.id);
            for row in own_and_earlier.skip(group.max_runs as usize) {
                work::cancel_run(server.works(), &row, &reason, false)?;
            }
        }
        server.works().wake.notify_one();
        Ok(())
    }
}

fn name_of_target(definition: &Definition) -> String {
    name_of(&definition.target.to_string()).to_owned()
}

/// The limit that a run shares with those of its app, pipeline and key.
fn group(definition: &Definition, limits: &PipelineLimits, input: &Json) -> Result<Option<LimitGroup>, Problem> {
    let Some(max_runs) = limits.max_runs else { return Ok(None) };
    let key = match &limits.key {
        Some(key) => key_of(definition, key, input)?,
        None => String::new(),
    };
    let name = format!("{}\u{1f}{}\u{1f}{key}", definition.app.display(), definition.target);
    Ok(Some(LimitGroup { name, max_runs }))
}

/// The key with the values of the input, defaults included. A parameter without a value is an empty text.
fn key_of(definition: &Definition, key: &str, input: &Json) -> Result<String, Problem> {
    let unreadable = |why: String| Problem::new(Code::JournalUnavailable, why);
    let text = input.text().map_err(|error| unreadable(error.to_string()))?;
    let input = definition.input.coerce(&[], Some(&text)).map_err(invalid_input)?;
    let input = input.value().map_err(|error| unreadable(error.to_string()))?;
    let lookup = |reference: &str| {
        let value = reference.strip_prefix("input.").and_then(|path| template::at_path(&input, path));
        Some(value.cloned().unwrap_or_else(|| "".into()))
    };
    let members = [("key".to_owned(), Value::from(key))].into_iter().collect();
    let filled = template::fill(&members, &lookup).unwrap_or_default();
    Ok(match filled.get("key") {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    })
}

/// The runs that take the room of a group, newest first: those in progress, and those that wait for their start.
fn holders(server: &Server, group: &str) -> Result<Vec<RunRow>, Problem> {
    let states = vec![RunState::Queued, RunState::Running];
    let query = Query { states, limit_group: Some(group.to_owned()), ..Query::default() };
    server.engine().list(&query).map_err(|e| engine_failed(&e))
}
