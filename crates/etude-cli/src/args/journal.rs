//! Commands on the journal: `runs`, `approve`, `deny`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    List(RunsList),
    /// Show one run: its result, its input, and the streams of each step
    Show(RunsShow),
    /// Continue a run that was interrupted, is waiting, or failed because something was missing
    Resume(RunsResume),
    /// Cancel a run; its destructor still runs
    Cancel(RunsId),
    /// Print everything about a run as JSON lines, or with `--format json` as one document
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
    #[arg(long, value_name = "STATUS")]
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

#[derive(Debug, Args)]
pub(crate) struct RunsResume {
    /// The run's id or a unique prefix of it
    pub(crate) id: String,
    /// Continue after an edit of the definition; steps that the edit affects run again
    #[arg(long)]
    pub(crate) accept_changes: bool,
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

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The approval's id from `etude runs show`, or the id of a run that waits for one approval
    pub(crate) id: String,
    /// Answer with a JSON value, which becomes the step's output
    #[arg(long, value_name = "JSON")]
    pub(crate) answer: Option<String>,
    /// The name of the approver [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// The approval's id from `etude runs show`, or the id of a run that waits for one approval
    pub(crate) id: String,
    /// The reason, which the journal and the agent receive
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The name of the approver [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}
