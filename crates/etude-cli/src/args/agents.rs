//! Commands for packages, trust and models.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Apps {
    /// List the packages of this project and of your home directory
    List(AppsPlaces),
    /// Show a package's contract and skills as agents see them
    Show(AppsShow),
    /// Check packages against the specification
    Check(AppsCheck),
    /// Run a declared command of a package
    Run(AppsRun),
}

#[derive(Debug, Args)]
pub(crate) struct AppsPlaces {
    /// Search this package, or this directory of packages, first. Repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) apps_path: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AppsShow {
    /// The package
    pub(crate) slug: String,
    /// Show this skill of the package [default: every listed skill]. Repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) skill: Vec<String>,
    #[command(flatten)]
    pub(crate) places: AppsPlaces,
}

#[derive(Debug, Args)]
pub(crate) struct AppsCheck {
    /// The package's directory [default: every package that etude finds]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) places: AppsPlaces,
}

#[derive(Debug, Args)]
pub(crate) struct AppsRun {
    /// The package
    pub(crate) slug: String,
    /// The command, followed by arguments that do not start with a hyphen
    #[arg(required = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
    /// Arguments of the command, unchanged
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
    /// Stop the command after this time: `500ms`, `30s`, `5m`; a bare number is seconds [default: 60s]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = crate::value::duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Stop the command when its output is larger than this: bytes, `512KiB`, `8MiB` [default: 8MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::value::size)]
    pub(crate) max_output: Option<usize>,
    /// The form of the command's output, if it is not JSON
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) expect: Option<Expected>,
    /// Fail if the output violates the package's schema
    #[arg(long)]
    pub(crate) strict_schemas: bool,
    /// Pass this file to the command's stdin, or `-` for etude's own [default: empty]
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,
    /// Pass this environment variable to the command. Repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) places: AppsPlaces,
}

/// The form of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Expected {
    /// Text
    Text,
}

#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// A package, a skill or a folder
    #[arg(required_unless_present = "list")]
    pub(crate) path: Option<PathBuf>,
    /// Allow agents to read it, and nothing more
    #[arg(long)]
    pub(crate) activation: bool,
    /// Allow its commands to run too
    #[arg(long)]
    pub(crate) execution: bool,
    /// List what is trusted
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Untrust {
    /// A trusted path or a folder above it
    pub(crate) path: PathBuf,
    /// Hide it from agents even where no trust is required
    #[arg(long)]
    pub(crate) block: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// List each tier's model and the reason, the providers, and the local models
    List,
    /// Download a local model and check its SHA-256
    Pull(ModelPull),
    /// Request one structured response and one tool call from each tier
    Test(ModelTest),
    /// Serve a local model to other programs with OpenAI's API
    Serve(ModelServe),
    /// The model's process
    #[command(hide = true)]
    Process(ModelProcess),
}

#[derive(Debug, Args)]
pub(crate) struct ModelPull {
    /// The model's name from `etude model list` [default: the local default model, 1.1 GB]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelTest {
    /// Test only this tier: `lite`, `standard` or `reasoning`
    #[arg(value_parser = crate::value::tier)]
    pub(crate) tier: Option<etude_core::model::Tier>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelServe {
    /// The model's name from `etude model list` [default: the local default model]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) tcp: ModelListen,
}

#[derive(Debug, Args)]
pub(crate) struct ModelListen {
    /// Listen on this TCP address too: `8080`, `127.0.0.1:8080`, `[::1]:0`; others need `--token-file`
    #[arg(long, value_name = "ADDR", value_parser = crate::value::address)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Require the bearer token in this file from every request over TCP
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "listen")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The arguments of the model's process; internal.
#[derive(Debug, Args)]
pub(crate) struct ModelProcess {
    #[arg(long)]
    pub(crate) id: String,
    #[arg(long)]
    pub(crate) weights: PathBuf,
    #[arg(long)]
    pub(crate) runtime_dir: PathBuf,
    #[arg(long, value_parser = crate::value::whole(0..=usize::MAX))]
    pub(crate) context_tokens: usize,
    #[arg(long, value_parser = crate::value::whole(0..=u64::MAX))]
    pub(crate) idle_ms: u64,
    /// Stay, and print where it serves.
    #[arg(long)]
    pub(crate) foreground: bool,
    #[arg(long)]
    pub(crate) embedding: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tcp: ModelListen,
}
