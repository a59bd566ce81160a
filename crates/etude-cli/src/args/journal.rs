//! Commands on the journal: `runs`, `approve`, `deny`.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use crate::complete;

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    List(RunsList),
    /// Show one run: its result, its input, and the streams of each step
    Show(RunsShow),
    /// Continue a run that was interrupted, waits, failed, was cancelled or exceeded a budget
    Resume(RunsResume),
    /// Discard the outcome of a step and of everything after it, then continue the run
    Retry(RunsRetry),
    /// Cancel a run; its destructor still runs
    Cancel(RunsId),
    /// Print everything about a run as JSON lines
    Export(RunsId),
    /// Remove finished runs and the values that only they use
    Prune(RunsPrune),
}

#[derive(Debug, Args)]
pub(crate) struct RunsList {
    /// List the runs of every app
    #[arg(long)]
    pub(crate) all: bool,
    /// List at most N runs
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    /// List only runs with this status
    #[arg(long, value_name = "STATUS", add = ArgValueCandidates::new(complete::statuses))]
    pub(crate) status: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsId {
    /// The run's id or a unique prefix of it
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShow {
    /// The run's id or a unique prefix of it
    pub(crate) id: String,
    /// Print one stream unchanged: EFFECT/stdin, EFFECT/stdout, EFFECT/stderr, EFFECT/prompt, EFFECT/answer
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct RunsResume {
    /// The run's id or a unique prefix of it
    pub(crate) id: String,
    /// Continue after an edit of the definition; steps that the edit affects run again
    #[arg(long)]
    pub(crate) accept_changes: bool,
    /// Print a string output as text without quotes, also to a file or pipe
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) limits: NewLimits,
}

#[derive(Debug, Args)]
pub(crate) struct RunsRetry {
    /// The run's id or a unique prefix of it
    pub(crate) id: String,
    /// The step to start again from: a step, a child of a group, or a stage of a machine (`review`, `review#2`)
    #[arg(long, value_name = "STEP")]
    pub(crate) from: String,
    /// Continue after an edit of the definition; steps that the edit affects run again
    #[arg(long)]
    pub(crate) accept_changes: bool,
    /// Print a string output as text without quotes, also to a file or pipe
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) limits: NewLimits,
}

/// New limits for a whole run, all attempts together.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NewLimits {
    /// Stop the run when the model calls of all attempts cost more than this (USD)
    #[arg(long, value_name = "USD")]
    pub(crate) max_cost: Option<f64>,
    /// Stop the run when the model calls of all attempts use more tokens than this
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop the run when all attempts have taken this time: `500ms`, `30s`, `5m`, `1h`; a bare number is seconds
    #[arg(long, value_name = "DURATION", value_parser = crate::value::duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Sync the journal to disk after every step, so that a power failure loses nothing
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsPrune {
    /// Remove only runs that started longer ago than this: `12h`, `30d`
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = crate::value::long_duration_ms)]
    pub(crate) older_than: u64,
    /// Remove runs of every app
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cache {
    /// List cached outputs, newest first
    List(CacheList),
    /// Remove cached outputs
    Clear(CacheClear),
}

#[derive(Debug, Args)]
pub(crate) struct CacheList {
    /// List only outputs of this pipeline
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::pipelines))]
    pub(crate) pipeline: Option<String>,
    /// List outputs of every app
    #[arg(long)]
    pub(crate) all: bool,
    /// List at most N outputs
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct CacheClear {
    /// Remove only outputs of this pipeline
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::pipelines))]
    pub(crate) pipeline: Option<String>,
    /// Remove only outputs that were stored longer ago than this: `12h`, `30d`
    #[arg(long, value_name = "DURATION", value_parser = crate::value::long_duration_ms)]
    pub(crate) older_than: Option<u64>,
    /// Remove outputs of every app
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The approval's id from `etude runs show`, or the id of a run that waits for one approval
    #[arg(add = ArgValueCandidates::new(complete::waiting_runs))]
    pub(crate) id: String,
    /// Answer with a JSON value, which becomes the step's output
    #[arg(long, value_name = "JSON")]
    pub(crate) answer: Option<String>,
    /// The name of the approver [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Resume the run after the decision and print its result
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print a string output as text without quotes, also to a file or pipe
    #[arg(long, requires = "resume")]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// The approval's id from `etude runs show`, or the id of a run that waits for one approval
    #[arg(add = ArgValueCandidates::new(complete::waiting_runs))]
    pub(crate) id: String,
    /// The reason, which the journal and the agent receive
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The name of the approver [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Resume the run after the decision and print its result
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print a string output as text without quotes, also to a file or pipe
    #[arg(long, requires = "resume")]
    pub(crate) raw: bool,
}
