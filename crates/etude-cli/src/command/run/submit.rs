//! `etude run` on a shared database: submits the run with its app to the workers, and follows it.

use std::collections::BTreeMap;

use etude::Disk;
use etude::allowance::{self, Denied};
use etude::definition::Definition;
use etude::queue::{Refused, Terms};
use etude::runner::Request;
use etude_core::digest::{Digest, Hasher};
use etude_core::failure::FailureKind;
use etude_runs::header::Granted;
use etude_runtime::engine::{DEFAULT_QUEUE, Engine, Enqueued, Error, Placement, QueueRules, Refusal, Rules, UniqueKey};

use super::unfit;
use crate::args;
use crate::command::runs::follow::{Followed, follow};
use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::runtime::block_on;
use crate::{bundles, command, signals};

/// A run to submit.
pub(crate) struct Submitted<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) definition: &'a Definition,
    /// The bundle of `--bundle`, whose app is in `disk`; without it, the app is packed.
    pub(crate) bundle: Option<Digest>,
    /// Input and limits. Folders and rights are those of the worker.
    pub(crate) request: Request,
    pub(crate) terms: &'a args::Submission,
}

/// Refuses options that need a shared database.
pub(super) fn refuse_without_database(given: &args::Submission) -> Result<(), Problem> {
    let Some(name) = given.first_given() else { return Ok(()) };
    let problem = Problem::usage(format!("`{name}` is for runs in a shared database, and none is named"));
    Err(problem.hint("name the database: --engine postgres://USER@HOST/DATABASE"))
}

/// Grants of the submitter, with folders as they are on the workers.
pub(crate) fn granted(given: &args::Granted) -> Granted {
    Granted { read: given.read.clone(), write: given.write.clone(), yolo: given.yolo }
}

/// Refuses grants of the submitter and steps of the app that the queue does not allow (K-54).
pub(crate) fn check(
    context: &Context,
    (disk, definition): (&Disk, &Definition),
    granted: &Granted,
    rules: &QueueRules,
) -> Result<(), Problem> {
    let settings = context.settings(disk.root())?;
    let denied = allowance::denied_grant(granted, &rules.allow)
        .or_else(|| allowance::denied_step(definition, settings.grants.sandbox.as_ref(), rules));
    let Some(Denied { member, what, remedy }) = denied else { return Ok(()) };
    let problem = Problem::usage(format!("{what} is refused: `{member}` of the queue does not allow it"));
    Err(problem.hint(match remedy {
        Some(remedy) => format!("{remedy}, or use another queue: --queue NAME"),
        None => "no sandbox can restrict it; use another queue: --queue NAME".to_owned(),
    }))
}

/// Checks the tenant of a run: a tenant submits only its own runs; a role that sees all tenants may submit for any (K-56).
fn check_tenant(engine: &dyn Engine, asked: Option<&str>) -> Result<(), Problem> {
    let (Some(asked), Some(own)) = (asked, engine.tenant()) else { return Ok(()) };
    if asked == own {
        return Ok(());
    }
    Err(Problem::usage(format!("the tenant `{own}` cannot submit runs for another tenant")).hint("remove `--tenant`"))
}

/// Rules of the queue that a run is submitted to.
fn rules(engine: &dyn Engine, queue: Option<&str>) -> Result<QueueRules, Problem> {
    let name = queue.unwrap_or(DEFAULT_QUEUE);
    let rules = engine.rules().map_err(|error| of_engine(&error))?;
    rules.queue(name).ok_or_else(|| unknown_queue(name, &rules))
}

fn unknown_queue(name: &str, rules: &Rules) -> Problem {
    let known: Vec<&str> = rules.queues.keys().map(String::as_str).collect();
    let problem = Problem::usage(format!("there is no queue `{name}`; the fleet has `{}`", known.join("`, `")));
    problem.hint("add it to `queues` of your configuration, then run `etude engine apply`")
}

/// Problem of a run that the fleet does not accept. Nothing was written.
fn refused(engine: &dyn Engine, refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::UnknownQueue(name) => unknown_queue(name, &engine.rules().unwrap_or_default()),
        Refusal::Quota { quota, .. } => {
            let problem = Problem::new(Exit::Failed, FailureKind::BudgetExceeded, refusal.to_string());
            problem.hint(format!("submit it later, or raise `{quota}` of the tenant and run `etude engine apply`"))
        }
    }
}

/// Submits the run, and follows it unless it is detached.
pub(crate) fn submit(context: &Context, engine: &dyn Engine, submitted: Submitted<'_>) -> Result<Exit, Problem> {
    // This check precedes the packing and the upload of the app.
    check_tenant(engine, submitted.terms.tenant.as_deref())?;
    let rules = rules(engine, submitted.terms.queue.as_deref())?;
    let Submitted { disk, definition, bundle, request, terms: given } = submitted;
    check(context, (disk, definition), &request.granted, &rules)?;
    context.show(&definition.warnings);
    let text = request.input.text().map_err(|error| Problem::environment(error.to_string()))?;
    let mut digest = Hasher::new("submission");
    digest.field(definition.target.to_string().as_bytes()).field(text.as_bytes());
    let digest = Some(digest.finish());
    let placement = Placement {
        by: Some(command::user_name()),
        labels: labels(&given.labels)?,
        priority: given.priority.unwrap_or(0),
        queue: given.queue.clone(),
        not_before_ms: given.not_before,
        bundle: Some(bundle.map_or_else(|| bundles::push_app(context, engine, disk, Some(&definition.target)), Ok)?),
        tenant: given.tenant.clone(),
        ..Placement::default()
    };
    let keys = given.key.iter().map(|key| UniqueKey { key: format!("run {key}"), digest }).collect();
    let terms = Terms { placement, keys, ..Terms::default() };
    let now_ms = etude_runtime::clock::now_ms();
    // From now on, signals are for the run, even before its id is known.
    let stop = if given.detach { None } else { Some(signals::listen_to_follow()?) };
    let enqueued = block_on(etude::queue::enqueue(engine, definition, request, terms, now_ms))?;
    let (id, enqueued) = enqueued.map_err(|refused| match refused {
        Refused::Input(problems) => unfit(problems),
        Refused::Engine(error) => of_engine(&error),
    })?;
    let (run_id, replayed) = match enqueued {
        Enqueued::Accepted => (id, false),
        Enqueued::Repeated { run_id, is_same: true, .. } => {
            // The key outlives its run, for at least a day.
            if matches!(engine.row(&run_id), Err(Error::Unknown(_))) {
                let message =
                    format!("`--key` belongs to run `{run_id}`, which was removed less than a day after it began");
                return Err(Problem::usage(message).hint("give another key"));
            }
            (run_id, true)
        }
        Enqueued::Repeated { run_id, .. } => {
            let message = format!("`--key` belongs to run `{run_id}`, which has another target or input");
            return Err(Problem::usage(message).hint("give another key"));
        }
        Enqueued::Refused(refusal) => return Err(refused(engine, &refusal)),
        Enqueued::Full => return Err(Problem::environment("the queue is full")),
        Enqueued::Held { run_id } => {
            return Err(Problem::environment(format!(
                "the limit of the pipeline is reached: run `{run_id}` is in progress"
            )));
        }
    };
    if let Some(stop) = stop {
        let followed = Followed { run_id: &run_id, definition: Some(definition), before: None, stop };
        return follow(context, engine, followed);
    }
    super::remote::detached(context, &run_id, replayed);
    Ok(Exit::Done)
}

fn labels(given: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    given.iter().map(|text| crate::command::label(text)).collect()
}
