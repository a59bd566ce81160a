//! The command line: every command, argument and option, and the texts of `--help`.
//!
//! One file per group of commands. Examples stand in [`examples`], and [`command`] puts them into the help.

mod agents;
mod author;
mod convert;
mod examples;
mod help;
mod import;
mod journal;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod skill;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub(crate) use agents::*;
pub(crate) use author::*;
pub(crate) use convert::*;
pub(crate) use examples::lines as examples_of;
pub(crate) use help::{EXIT_STATUSES, VERSION, command};
pub(crate) use import::*;
pub(crate) use journal::*;
pub(crate) use run::*;
#[cfg(feature = "serve")]
pub(crate) use serve::*;
pub(crate) use skill::*;

/// Durable pipelines for agents: script the steps you know, delegate the rest to a model.
#[derive(Debug, Parser)]
#[command(name = "etude", version = VERSION, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The app's directory [default: the nearest app at or above the current directory]
    #[arg(long, short = 'C', global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) app: Option<PathBuf>,
    /// Deal with the runs of a server: a URL, or `local` for your own [default: `ETUDE_SERVER`]
    #[arg(long, global = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: Option<String>,
    /// Where runs are kept: `embedded`, or the URL of a PostgreSQL database [default: `ETUDE_ENGINE`]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "server")]
    pub(crate) engine: Option<String>,
    /// Read this configuration instead of `etude.yaml` and the user's file
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// The output format of stdout: `human`, `json` or `jsonl`
    #[arg(long, global = true, value_enum, default_value_t = Format::Human, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Print nothing on stderr but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more on stderr: configuration files, models, every step, tool call and invocation
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Disable colors; `NO_COLOR` in the environment does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

impl Global {
    /// True if stdout is for programs.
    pub(crate) const fn is_json(&self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl)
    }

    /// True if more is printed on stderr.
    pub(crate) const fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// True if a person at a terminal can read a question and answer it.
    pub(crate) fn can_ask(&self) -> bool {
        !self.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}

/// The output format of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people
    Human,
    /// One JSON document, also on failure
    Json,
    /// Events as JSON lines, the result document last
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline, or route a request to one and run it
    Run(Run),
    /// Print which pipeline a request matches, and run nothing
    Route(Route),
    /// Run and show stage machines
    #[command(subcommand)]
    Machine(Machine),
    /// List, inspect, resume, cancel and prune runs
    #[command(subcommand)]
    Runs(Runs),
    /// Learn from runs in skill mode
    Learn(Learn),
    /// List and remove cached outputs
    #[command(subcommand)]
    Cache(Cache),
    /// Approve a waiting approval
    Approve(Approve),
    /// Deny a waiting approval
    Deny(Deny),
    /// Serve runs over HTTP
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Offer pipelines and machines as tools over MCP, on stdin and stdout
    #[cfg(feature = "serve")]
    Mcp(Mcp),
    /// Create, list and revoke access tokens of the server
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Token(Token),
    /// Check and prepare the database that machines share
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Engine(Engine),
    /// Keep the app in the database that machines share
    #[cfg(feature = "postgres")]
    Push(Push),
    /// List and show the apps in the database that machines share
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Bundles(Bundles),
    /// List the workers and queues of the database that machines share
    #[cfg(feature = "postgres")]
    Workers,
    /// Drive runs that other machines have submitted to the database
    #[cfg(all(feature = "postgres", feature = "serve"))]
    Worker(Worker),
    /// Create an app or add to it
    New(New),
    /// Convert a skill to an app with pipelines and tests
    Convert(Convert),
    /// Import commands, skills and workflows of other programs
    Import(Import),
    /// The steps of a conversion
    #[command(subcommand, hide = true)]
    Conversion(Conversion),
    /// Report every error in the app's definitions
    Check(Check),
    /// List pipelines, machines, skills and applications
    List,
    /// Draw a pipeline or machine as Mermaid, DOT or SVG
    Graph(Graph),
    /// Run the app's tests with recorded model responses
    Test(Test),
    /// Print a JSON Schema for editors
    Schema(Schema),
    /// List, show, check and run Agent Applications
    #[command(subcommand)]
    Apps(Apps),
    /// List, show, check and run skills
    #[command(subcommand)]
    Skill(Skill),
    /// Allow agents to read or run a package, a skill or a folder
    Trust(Trust),
    /// Revoke what `etude trust` allowed
    Untrust(Untrust),
    /// Call the host of a running code tool, from a skill's script
    #[command(subcommand)]
    Host(Host),
    /// List, download and test models
    #[command(subcommand)]
    Model(Model),
    /// Check the environment and print a fix for each problem
    Doctor(Doctor),
    /// Explain an error code
    Explain(Explain),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Print the manual page
    Man,
    /// Print help for a command
    Help(Help),
}

impl Command {
    /// True if a string output is printed as text, also to a file or pipe.
    pub(crate) fn is_raw(&self) -> bool {
        match self {
            Self::Run(args) => args.raw,
            Self::Machine(Machine::Run(args)) => args.raw,
            Self::Runs(Runs::Resume(args)) => args.raw,
            Self::Runs(Runs::Retry(args)) => args.raw,
            Self::Approve(args) => args.raw,
            Self::Deny(args) => args.raw,
            Self::Skill(Skill::Run(args)) => args.raw,
            _ => false,
        }
    }
}

/// Purpose of a command: to run the app, or only to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Only looks: nothing that an app defines is started, opened or contacted.
    Look,
    /// Runs it: the user has named the app, and that is the consent.
    Run,
}

/// Relation of a command to runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deals {
    /// It deals with runs, wherever they are.
    Runs,
    /// It deals with the journal of this machine.
    Journal,
    /// It deals with no run.
    Files,
}

impl Command {
    /// Returns the relation of the command to runs.
    pub(crate) fn deals(&self) -> Deals {
        match self {
            Self::Run(_) | Self::Machine(Machine::Run(_)) | Self::Approve(_) | Self::Deny(_) => Deals::Runs,
            Self::Runs(
                Runs::List(_)
                | Runs::Show(_)
                | Runs::Resume(_)
                | Runs::Retry(_)
                | Runs::Cancel(_)
                | Runs::Watch(_)
                | Runs::Delete(_)
                | Runs::Diff(_)
                | Runs::Stats(_)
                | Runs::Judge(_),
            ) => Deals::Runs,
            Self::Runs(_) | Self::Cache(_) | Self::Learn(_) | Self::Convert(_) => Deals::Journal,
            _ => Deals::Files,
        }
    }

    /// Returns the purpose of the command. Every command is listed, so that a new one needs a decision.
    pub(crate) fn purpose(&self) -> Purpose {
        let runs = match self {
            Self::Run(args) => !args.dry_run,
            Self::Machine(Machine::Run(_)) | Self::Test(_) | Self::Convert(_) | Self::Conversion(_) => true,
            Self::Runs(Runs::Resume(_) | Runs::Retry(_) | Runs::Cancel(_)) => true,
            #[cfg(feature = "serve")]
            Self::Serve(args) => !args.link,
            #[cfg(feature = "serve")]
            Self::Mcp(_) => true,
            #[cfg(feature = "serve")]
            Self::Token(_) => false,
            #[cfg(feature = "postgres")]
            Self::Engine(_) | Self::Push(_) | Self::Bundles(_) | Self::Workers => false,
            #[cfg(all(feature = "postgres", feature = "serve"))]
            Self::Worker(_) => true,
            Self::Approve(args) => args.resume,
            Self::Deny(args) => args.resume,
            Self::Apps(Apps::Run(_)) | Self::Skill(Skill::Run(_)) => true,
            Self::Route(_) | Self::Check(_) | Self::List | Self::Graph(_) | Self::Machine(Machine::Show(_)) => false,
            Self::Learn(Learn { action: None, .. }) => true,
            Self::Learn(Learn {
                action: Some(LearnAction::Test(_) | LearnAction::Promote(_) | LearnAction::Shadow(_)),
                ..
            }) => true,
            Self::Learn(_) | Self::Runs(Runs::Judge(_)) => false,
            Self::Runs(Runs::List(_) | Runs::Show(_) | Runs::Export(_) | Runs::Watch(_) | Runs::Diff(_)) => false,
            Self::Runs(Runs::Stats(_) | Runs::Delete(_) | Runs::Prune(_) | Runs::Backup(_) | Runs::Import(_)) => false,
            Self::Cache(_) => false,
            Self::Apps(Apps::List(_) | Apps::Show(_) | Apps::Check(_)) => false,
            Self::Skill(Skill::List(_) | Skill::Show(_) | Skill::Check(_) | Skill::Catalog(_)) => false,
            Self::Skill(Skill::Explain(_) | Skill::Graph(_)) | Self::Trust(_) | Self::Untrust(_) => false,
            Self::Model(Model::List | Model::Pull(_) | Model::Test(_)) | Self::Doctor(_) => false,
            Self::Model(Model::Serve(_) | Model::Process(_)) => false,
            Self::New(_) | Self::Import(_) | Self::Schema(_) | Self::Host(_) | Self::Explain(_) => false,
            Self::Completions(_) | Self::Man | Self::Help(_) => false,
        };
        if runs { Purpose::Run } else { Purpose::Look }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// The command, such as `runs resume`
    pub(crate) command: Vec<String>,
}
