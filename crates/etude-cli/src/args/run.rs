//! Commands that start runs: `run`, `route`, `machine`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The request in your own words; a router finds the pipeline and its input
    pub(crate) request: Option<String>,
    /// The router [default: the configured one, otherwise `auto`]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) router: Option<RouterMode>,
    /// Run this pipeline and skip routing
    #[arg(long, short, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// Set an input parameter; etude converts the value to the declared type. Repeatable
    #[arg(short = 'i', value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// Set the input: a JSON object, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Skip routing and let an agent with tools follow the app's SKILL.md
    #[arg(long, conflicts_with = "pipeline", requires = "request")]
    pub(crate) skill: bool,
    #[command(flatten)]
    pub(crate) granted: Granted,
    /// Start a new run with the target and input of an earlier one; `-i` replaces single values
    #[arg(long, value_name = "RUN", conflicts_with_all = ["request", "pipeline", "router", "skill", "dry_run"])]
    pub(crate) again: Option<String>,
    /// Print the plan with its prompts and worst-case cost, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show the run in a browser while it runs, and answer its questions there
    #[cfg(feature = "serve")]
    #[arg(long, conflicts_with_all = ["dry_run", "skill", "again"])]
    pub(crate) web: bool,
    /// Ignore cached outputs: run every step again and store its output
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Download the local model (1.1 GB) if the run needs it
    #[arg(long)]
    pub(crate) pull: bool,
    /// Print a string output as text without quotes, also to a file or pipe
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) limits: Limits,
    #[cfg(feature = "postgres")]
    #[command(flatten)]
    pub(crate) submission: Submission,
}

/// Options for submitting a run to the workers of a fleet, or to a server.
#[cfg(feature = "postgres")]
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options for runs in a shared database or on a server")]
pub(crate) struct Submission {
    /// Submit the run and do not wait for it
    #[arg(long, conflicts_with_all = ["dry_run", "pull", "raw"])]
    pub(crate) detach: bool,
    /// The queue of the run [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// The priority of the run in its queue, from -100 to 100 [default: 0]
    #[arg(
        long, value_name = "N", allow_negative_numbers = true, value_parser = crate::value::whole(-100..=100),
    )]
    pub(crate) priority: Option<i32>,
    /// Submit the run once: with the same key, target and input, it is the same run
    #[arg(long, value_name = "KEY", value_parser = crate::value::key)]
    pub(crate) key: Option<String>,
    /// Label the run. Repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::value::label)]
    pub(crate) labels: Vec<String>,
    /// Begin the run no earlier than at this time, such as `2026-01-31T08:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = crate::value::time_ms)]
    pub(crate) not_before: Option<i64>,
    /// Run the app of this bundle, by its name or hash, instead of the one here
    #[arg(long, value_name = "BUNDLE")]
    pub(crate) bundle: Option<String>,
    /// Submit the run for this tenant; for the owner of the database [default: your own]
    #[arg(long, value_name = "NAME", value_parser = crate::value::tenant)]
    pub(crate) tenant: Option<String>,
}

#[cfg(feature = "postgres")]
impl Submission {
    /// The first option that is for a shared database alone.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.detach, "--detach"),
            (self.queue.is_some(), "--queue"),
            (self.priority.is_some(), "--priority"),
            (self.key.is_some(), "--key"),
            (!self.labels.is_empty(), "--label"),
            (self.not_before.is_some(), "--not-before"),
            (self.bundle.is_some(), "--bundle"),
            (self.tenant.is_some(), "--tenant"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

/// Rights of the run's agents beyond the configuration.
#[derive(Debug, Args)]
pub(crate) struct Granted {
    /// Let agents' tools read this folder too. Repeatable
    #[arg(long = "read", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) read: Vec<PathBuf>,
    /// Let agents' tools read and write this folder too. Repeatable
    #[arg(long = "write", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) write: Vec<PathBuf>,
    /// Allow every tool call without approval
    #[arg(long)]
    pub(crate) yolo: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Limits {
    /// Stop the run when its model calls cost more than this (USD)
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = crate::value::dollars)]
    pub(crate) max_cost: Option<f64>,
    /// Stop the run when its model calls use more tokens than this
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::value::whole(0..=u64::MAX))]
    pub(crate) max_tokens: Option<u64>,
    /// Stop the run after this time: `500ms`, `30s`, `5m`, `1h`; a bare number is seconds
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Sync the journal to disk after every step, so that a power failure loses nothing
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Route {
    /// The request in your own words
    #[arg(required_unless_present = "test")]
    pub(crate) request: Option<String>,
    /// The router [default: the configured one, otherwise `auto`]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<RouterMode>,
    /// Measure the router on labelled requests: JSON lines {"request", "expected": name or null}
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    pub(crate) test: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouterMode {
    /// The embedded router where it is certain, otherwise a model
    Auto,
    /// A model of the tier `lite`
    Llm,
    /// The embedded router alone, without a model
    Embedded,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Machine {
    /// Run a stage machine from its entry stage
    Run(MachineRun),
    /// Show a machine's stages, tools, limits and transitions
    Show(MachineShow),
}

#[derive(Debug, Args)]
pub(crate) struct MachineRun {
    /// The machine
    pub(crate) name: String,
    /// Set an input parameter; etude converts the value to the declared type. Repeatable
    #[arg(short = 'i', value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// Set the input: a JSON object, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Print a string output as text without quotes, also to a file or pipe
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) granted: Granted,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

#[derive(Debug, Args)]
pub(crate) struct MachineShow {
    /// The machine
    pub(crate) name: String,
}
