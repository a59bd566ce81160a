//! Commands on the journal: `runs`, `approve`, `deny`, `engine`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
    /// Print everything about a run as JSON lines, or write all runs to a file
    Export(RunsExport),
    /// Add the runs of an exported file
    Import(RunsImport),
    /// Follow a run of another process until it ends or waits
    Watch(RunsId),
    /// Record your verdict on a run, which decides what is learned from it
    Judge(RunsJudge),
    /// Compare two runs: definition, input, steps, outputs
    Diff(RunsDiff),
    /// Count runs: success rate, duration, tokens, cost, failures
    Stats(RunsStats),
    /// Delete runs that have ended, and the values that only they use
    Delete(RunsDelete),
    /// Remove old runs that have ended, and the values that only they use
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
    #[arg(
        long, short = 'n', value_name = "N", default_value_t = 50, allow_negative_numbers = true,
        value_parser = crate::value::whole(1..=u32::MAX),
    )]
    pub(crate) limit: u32,
    /// List only runs of this pipeline; `machine:NAME` and `skill:NAME` name other runs
    #[arg(long, short, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// List only runs that started within this time: `30m`, `12h`, `7d`
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::long_duration_ms)]
    pub(crate) since: Option<u64>,
    /// List only runs with this status, such as `failed`, `waiting` or `interrupted`
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,
    /// List only runs with this label. Repeatable
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// List only runs of this tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// List only runs that were created at or after this time, such as `2026-01-31T08:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = crate::value::time_ms)]
    pub(crate) created_after: Option<i64>,
    /// List the runs after this cursor: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
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

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Learn {
    #[command(subcommand)]
    pub(crate) action: Option<LearnAction>,
    #[command(flatten)]
    pub(crate) options: LearnOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LearnAction {
    /// List learned pipelines with state, evidence and missing conditions
    Status,
    /// Show where each value of a learned pipeline comes from
    Show(LearnShow),
    /// Run the recorded cases of learned pipelines, without models, network and tools
    Test(LearnTest),
    /// Move a learned pipeline to a higher state
    Promote(LearnPromote),
    /// Remove a learned pipeline from the routing table
    Demote(LearnDemote),
    /// Delete a candidate, or all data kept from a run
    Forget(LearnForget),
    /// Print the traces of runs in skill mode as JSON lines, oldest first
    Export(LearnExport),
    /// Compare candidates with a finished run
    #[command(hide = true)]
    Shadow(LearnShadow),
}

#[derive(Debug, Args)]
pub(crate) struct LearnTest {
    /// The learned pipeline; without it, all of them
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LearnPromote {
    /// The learned pipeline
    pub(crate) name: String,
    /// The state [default: one state up]
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) to: Option<PromotedState>,
    /// Promote without enough comparisons, and with writes beyond `learn.writes`; your name and the time are kept
    #[arg(long)]
    pub(crate) accept_risk: bool,
}

/// The states that a person may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PromotedState {
    /// It waits
    Proposed,
    /// It runs beside the agent, without effect
    Shadow,
    /// Requests are routed to it, and every write is confirmed
    Assisted,
    /// Requests are routed to it
    Active,
}

#[derive(Debug, Args)]
pub(crate) struct LearnDemote {
    /// The learned pipeline
    pub(crate) name: String,
    /// The reason, which `etude learn status` shows
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct LearnForget {
    /// The candidate
    pub(crate) name: Option<String>,
    /// The run: cases made from it, its comparisons, its verdict
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LearnShadow {
    /// The run's id
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct LearnOptions {
    /// Learn only from runs that started within this time: `12h`, `7d`, `4w`
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::long_duration_ms)]
    pub(crate) since: Option<u64>,
    /// Learn only from these runs
    #[arg(long, value_name = "RUN", num_args = 1..)]
    pub(crate) runs: Vec<String>,
    /// Read these files instead of the journal: traces as JSON lines, or ATIF trajectories
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) traces: Vec<PathBuf>,
    /// Learn only this family
    #[arg(long, value_name = "NAME")]
    pub(crate) family: Option<String>,
    /// The model that words descriptions
    #[arg(long, value_enum, value_name = "MODEL", default_value = "none")]
    pub(crate) model: Wording,
    /// Print the result and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Source of the wording of learned pipelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wording {
    /// The requests themselves; no model is called
    None,
    /// A model of the tier `lite` words description and triggers
    Lite,
    /// A model of the tier `standard`
    Standard,
    /// A model of the tier `reasoning`
    Reasoning,
}

impl Wording {
    /// The tier of the model; `None`: no model.
    pub(crate) const fn tier(self) -> Option<etude_core::model::Tier> {
        use etude_core::model::Tier;
        match self {
            Self::None => None,
            Self::Lite => Some(Tier::Lite),
            Self::Standard => Some(Tier::Standard),
            Self::Reasoning => Some(Tier::Reasoning),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LearnShow {
    /// The pipeline
    pub(crate) name: String,
    /// Print the difference between its files and the last learning result
    #[arg(long)]
    pub(crate) diff: bool,
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
pub(crate) struct RunsExport {
    /// The run's id, a unique prefix of it, or `latest`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) id: Option<String>,
    /// Write the finished runs of every app to a file that `etude runs import` reads
    #[arg(long, requires = "out")]
    pub(crate) all: bool,
    /// Also move unfinished runs, which continue only where the file is imported
    #[arg(long = "move", requires = "all", conflicts_with = "id")]
    pub(crate) moves: bool,
    /// The file, which must not exist
    #[arg(long, value_name = "FILE", requires = "all", conflicts_with = "id")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsImport {
    /// A file that `etude runs export --all` has written
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShow {
    /// The run's id, a unique prefix of it, or `latest`
    pub(crate) id: String,
    /// A step: its attempts, what each received and returned
    pub(crate) step: Option<String>,
    /// The index of a fan-out element; of other steps an attempt, of agents a turn, from 1
    #[arg(value_name = "N", value_parser = crate::value::whole(0..=usize::MAX))]
    pub(crate) number: Option<usize>,
    /// An attempt of the element, from 1 [default: the last attempt]
    #[arg(value_parser = crate::value::whole(1..=u32::MAX))]
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
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = crate::value::dollars)]
    pub(crate) max_cost: Option<f64>,
    /// Stop the run when the model calls of all attempts use more tokens than this
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::value::whole(0..=u64::MAX))]
    pub(crate) max_tokens: Option<u64>,
    /// Stop the run when all attempts have taken this time: `500ms`, `30s`, `5m`, `1h`; a bare number is seconds
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Sync the journal to disk after every step, so that a power failure loses nothing
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsDelete {
    /// The runs: ids, unique prefixes of them, or `latest`
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsPrune {
    /// Remove only runs that started longer ago than this: `12h`, `30d`; a bare number is seconds
    #[arg(
        long, value_name = "DURATION", default_value = "30d", allow_negative_numbers = true,
        value_parser = crate::value::long_duration_ms
    )]
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
    #[arg(
        long, value_name = "DURATION", default_value = "7d", allow_negative_numbers = true,
        value_parser = crate::value::long_duration_ms
    )]
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
    #[arg(long, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// List outputs of every app
    #[arg(long)]
    pub(crate) all: bool,
    /// List at most N outputs
    #[arg(
        long, short = 'n', value_name = "N", default_value_t = 50, allow_negative_numbers = true,
        value_parser = crate::value::whole(1..=usize::MAX),
    )]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct CacheClear {
    /// Remove only outputs of this pipeline
    #[arg(long, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// Remove only outputs that were stored longer ago than this: `12h`, `30d`; a bare number is seconds
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::long_duration_ms)]
    pub(crate) older_than: Option<u64>,
    /// Remove outputs of every app
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The approval's id from `etude runs show`, or a run that waits for one approval
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
    /// Write `queues` and `tenants` of the configuration into the database
    Apply,
    /// Make a role of the database a worker or a tenant
    Grant(Grant),
}

#[cfg(feature = "postgres")]
#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// `worker` drives the runs of all tenants; `tenant` submits runs, and sees its own
    #[arg(value_name = "KIND", value_parser = ["worker", "tenant"])]
    pub(crate) kind: String,
    /// A role of the database, which must exist
    #[arg(value_name = "ROLE")]
    pub(crate) role: String,
    /// The name of the tenant [default: that of the role]
    #[arg(long, value_name = "NAME", value_parser = crate::value::tenant)]
    pub(crate) tenant: Option<String>,
}

/// Commands on the apps in the database.
#[cfg(feature = "postgres")]
#[derive(Debug, Subcommand)]
pub(crate) enum Bundles {
    /// List bundles, the one that was pushed last first
    List(BundlesList),
    /// Show a bundle and its files
    Show(BundlesShow),
}

#[cfg(feature = "postgres")]
#[derive(Debug, Args)]
pub(crate) struct BundlesList {
    /// List at most N bundles
    #[arg(
        long, short = 'n', value_name = "N", default_value_t = 50, allow_negative_numbers = true,
        value_parser = crate::value::whole(1..=u32::MAX),
    )]
    pub(crate) limit: u32,
    /// List the bundles after this cursor: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[cfg(feature = "postgres")]
#[derive(Debug, Args)]
pub(crate) struct BundlesShow {
    /// The name of a bundle, its hash, or at least 8 digits of the hash
    #[arg(value_name = "BUNDLE")]
    pub(crate) bundle: String,
}

#[cfg(feature = "postgres")]
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// The app's directory, `GIT@COMMIT`, or a bundle that was made before [default: the app]
    #[arg(value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) source: Option<PathBuf>,
    /// The name of the bundle [default: the name of the directory]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
}
