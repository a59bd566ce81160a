//! Commands on the journal: `runs`, `approve`, `deny`, `engine`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCandidates;

use crate::complete;

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    List(RunsList),
    /// Show one run or one of its steps: what happened, why, and at what cost
    Show(RunsShow),
    /// Continue a run that waits, was interrupted or did not succeed
    Resume(RunsResume),
    /// Discard the outcome of a step and of everything after it, then continue the run
    Retry(RunsRetry),
    /// Cancel a run; its destructor still runs
    Cancel(RunsId),
    /// Print everything about a run as JSON lines
    Export(RunsId),
    /// Follow a run of another process until it ends or waits
    Watch(RunsId),
    /// Record your verdict on a run, which decides what is learned from it
    Judge(RunsJudge),
    /// Compare two runs: definition, input, steps, outputs
    Diff(RunsDiff),
    /// Count runs: success rate, duration, tokens, cost, failures
    Stats(RunsStats),
    /// Remove finished runs and the values that only they use
    Prune(RunsPrune),
    /// Write a copy of the whole journal to one file
    Backup(RunsBackup),
}

#[derive(Debug, Args)]
pub(crate) struct RunsList {
    /// List the runs of every app
    #[arg(long)]
    pub(crate) all: bool,
    /// List at most N runs
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    /// List only runs of this pipeline; `machine:NAME` and `skill:NAME` name other runs
    #[arg(long, short, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// List only runs that started within this time: `30m`, `12h`, `7d`
    #[arg(long, value_name = "DURATION", value_parser = crate::value::long_duration_ms)]
    pub(crate) since: Option<u64>,
    /// List only runs with this status
    #[arg(long, value_name = "STATUS", add = ArgValueCandidates::new(complete::statuses))]
    pub(crate) status: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsJudge {
    /// The run's id, a unique prefix of it, or `latest`
    pub(crate) id: String,
    /// The verdict: `bad` also reports that a write was undone
    #[arg(value_enum)]
    pub(crate) verdict: Verdict,
}

/// The verdict on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verdict {
    /// It did what was asked
    Good,
    /// It did something that should not have been done
    Bad,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Learn {
    /// Print the traces of runs in skill mode as JSON lines, oldest first
    Export(LearnExport),
}

#[derive(Debug, Args)]
pub(crate) struct LearnExport {
    /// Print only these runs
    #[arg(long, value_name = "RUN", num_args = 1..)]
    pub(crate) runs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsId {
    /// The run's id, a unique prefix of it, or `latest`
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShow {
    /// The run's id, a unique prefix of it, or `latest`
    pub(crate) id: String,
    /// A step: its attempts, what each received and returned
    pub(crate) step: Option<String>,
    /// The index of a fan-out element; of other steps an attempt, of agents a turn, from 1
    #[arg(value_name = "N")]
    pub(crate) number: Option<usize>,
    /// An attempt of the element, from 1 [default: the last attempt]
    pub(crate) attempt: Option<u32>,
    /// Print one value unchanged: `input`, `output`, EFFECT/stdout, EFFECT/prompt
    #[arg(long, value_name = "STREAM", conflicts_with = "step")]
    pub(crate) stream: Option<String>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct RunsResume {
    /// The run's id, a unique prefix of it, or `latest`
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
    /// List the runs that would be removed and their size, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsDiff {
    /// The first run: its id, a unique prefix of it, or `latest`
    pub(crate) a: String,
    /// The run to compare with it
    pub(crate) b: String,
}

#[derive(Debug, Args)]
pub(crate) struct RunsStats {
    /// Count the runs of every app
    #[arg(long)]
    pub(crate) all: bool,
    /// Count only runs of this pipeline; `machine:NAME` and `skill:NAME` name other runs
    #[arg(long, short, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// Count only runs that started within this time: `12h`, `7d`, `4w`
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = crate::value::long_duration_ms)]
    pub(crate) since: u64,
    /// Print a line for each pipeline, for each model, or for each pair of them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUPS", default_value = "pipeline")]
    pub(crate) by: Vec<GroupBy>,
}

/// The groups of `runs stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// The pipeline, machine or skill
    Pipeline,
    /// The model that answered
    Model,
}

#[derive(Debug, Args)]
pub(crate) struct RunsBackup {
    /// The file, which must not exist: a tar archive of the journal's directory
    pub(crate) file: PathBuf,
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
    /// The approval's id from `etude runs show`, or a run that waits for one approval
    #[arg(add = ArgValueCandidates::new(complete::waiting_runs))]
    pub(crate) id: String,
    /// Answer only this question, as `etude runs show` prints its ID; fail if another one waits
    #[arg(long, value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// Answer with a JSON value, which becomes `answer` in the step's output
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
    /// The approval's id from `etude runs show`, or a run that waits for one approval
    #[arg(add = ArgValueCandidates::new(complete::waiting_runs))]
    pub(crate) id: String,
    /// Answer only this question, as `etude runs show` prints its ID; fail if another one waits
    #[arg(long, value_name = "QUESTION")]
    pub(crate) question: Option<String>,
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

/// Commands on the database that machines share.
#[cfg(feature = "postgres")]
#[derive(Debug, Subcommand)]
pub(crate) enum Engine {
    /// Check the database: version, durability, schema, rights
    Check,
    /// Create the schema, or bring it to the format of this version
    Migrate,
}
