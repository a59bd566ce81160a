//! The command line, exactly as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Muscle memory for agents: runs pipelines of code and model steps, durably.
#[derive(Debug, Parser)]
#[command(name = "etude", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Exit status: 0 done, 1 the run failed, 2 wrong usage, 3 a definition is wrong, \
4 the environment is, 5 waiting for somebody, 70 a bug of etude, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The app's directory; default: the nearest one at or above the current directory
    #[arg(long, short = 'C', global = true, value_name = "DIR")]
    pub(crate) app: Option<PathBuf>,
    /// A configuration file to use instead of `etude.yaml` and the user's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What stdout is for: people or programs
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// Say nothing on stderr but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more on stderr: what is configured where, which model answers, each step as it begins, tool calls in full,
    /// every invocation with its layers
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    /// No colours; `NO_COLOR` in the environment does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

/// The form of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Human,
    /// One JSON document
    Json,
    /// One JSON document a line: events as they come, then the result
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline
    Run(Run),
    /// Say which pipeline a request is for, and why; runs nothing
    Route(Route),
    /// Report every error in the app's definitions, or in a directory of skills
    Check(Check),
    /// List what the app has
    List,
    /// Run and show machines of stages
    #[command(subcommand)]
    Machine(Machine),
    /// Draw a pipeline or a machine
    Graph(Graph),
    /// Run the app's own tests, with recorded model answers
    Test(Test),
    /// Look at, go on with, cancel and remove runs
    #[command(subcommand)]
    Runs(Runs),
    /// Approve what a run waits for; `etude runs resume` then goes on with it
    Approve(Approve),
    /// Deny what a run waits for; `etude runs resume` then goes on with it
    Deny(Deny),
    /// Agent Applications: packages whose commands agents may call
    #[command(subcommand)]
    Apps(Apps),
    /// Agent Skills: what agents are told, and what is wrong with a skill
    #[command(subcommand)]
    Skill(Skill),
    /// Let agents read and run what was found: a package, a skill, or a folder
    Trust(Trust),
    /// Take back what `etude trust` has given
    Untrust(Untrust),
    /// Look at, get and try the models that answer
    #[command(subcommand)]
    Model(Model),
    /// Ask the host of a running code tool; for scripts of skills
    #[command(subcommand)]
    Host(crate::command::host::Host),
    /// Make a new app or pipeline
    New(New),
    /// Print a JSON Schema for editors
    Schema(Schema),
    /// Explain an error code
    Explain(Explain),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the manual page
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What you want, in your own words
    pub(crate) request: Option<String>,
    /// Who routes the request; default: as configured, else `auto`
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) router: Option<RouterMode>,
    /// Run this pipeline, without routing
    #[arg(long, short, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// An input parameter; its value is taken as the declared type. May be repeated
    #[arg(short = 'i', value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// The input as a JSON object, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Follow the app's SKILL.md with a model that calls tools, without looking for a pipeline
    #[arg(long, conflicts_with = "pipeline", requires = "request")]
    pub(crate) skill: bool,
    #[command(flatten)]
    pub(crate) granted: Granted,
    /// Show what would run, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Download the local model (1.1 GB) if it is what answers and is not there yet
    #[arg(long)]
    pub(crate) pull: bool,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// What agents of the run may do besides what the configuration allows.
#[derive(Debug, Args)]
pub(crate) struct Granted {
    /// Let tools of agents read this folder as well. May be repeated
    #[arg(long = "read", value_name = "DIR")]
    pub(crate) read: Vec<PathBuf>,
    /// Let tools of agents read and write this folder as well. May be repeated
    #[arg(long = "write", value_name = "DIR")]
    pub(crate) write: Vec<PathBuf>,
    /// Ask nothing: every tool call is allowed
    #[arg(long)]
    pub(crate) yolo: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Machine {
    /// Run a machine from its entry stage on
    Run(MachineRun),
    /// Show a machine: its stages, what they may do, and how they follow each other
    Show(MachineShow),
}

#[derive(Debug, Args)]
pub(crate) struct MachineRun {
    /// The machine
    pub(crate) name: String,
    /// An input parameter. May be repeated
    #[arg(short = 'i', value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// The input as a JSON object, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
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

#[derive(Debug, Args)]
pub(crate) struct Route {
    /// What you want, in your own words
    #[arg(required_unless_present = "test")]
    pub(crate) request: Option<String>,
    /// Who decides; default: as configured, else `auto`
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<RouterMode>,
    /// Measure routing on labelled phrases: JSON lines {"request", "expected": name or null}
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    pub(crate) test: Option<PathBuf>,
}

/// Who routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouterMode {
    /// The embedded router where it is sure, a model where it is not
    Auto,
    /// A model of the lite tier
    Llm,
    /// The embedded router
    Embedded,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Limits {
    /// End the run when its model calls have cost more than so many US dollars
    #[arg(long, value_name = "USD")]
    pub(crate) max_cost: Option<f64>,
    /// End the run when it has read and written more than so many tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// End the run after this time: `500ms`, `30s`, `5m`, `1h`; a bare number is seconds
    #[arg(long, value_name = "DURATION", value_parser = crate::value::duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// Wait for the disk after every step, so that even a loss of power loses nothing
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Pipelines and machines to check; default: all of them
    pub(crate) names: Vec<String>,
    /// Name every extension of the protocol that is used
    #[arg(long)]
    pub(crate) portable: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Graph {
    /// The pipeline or machine
    pub(crate) name: String,
    /// The drawing's language
    #[arg(long, value_enum, default_value_t = Drawing::Mermaid)]
    pub(crate) to: Drawing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// Mermaid
    Mermaid,
    /// Graphviz
    Dot,
    /// A picture
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Only tests whose name contains this
    pub(crate) name: Option<String>,
    /// Ask the configured models for answers that are not recorded, and record them
    #[arg(long)]
    pub(crate) record: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    List(RunsList),
    /// Show one run: its result, its input, and what each step read and wrote
    Show(RunsShow),
    /// Go on with a run that was interrupted, waits, or failed for something that was not there
    Resume(RunsResume),
    /// Cancel a run; its destructor still runs
    Cancel(RunsId),
    /// Print everything about a run as JSON lines; with `--format json` as one document
    Export(RunsId),
    /// Remove finished runs and the values that only they had
    Prune(RunsPrune),
}

#[derive(Debug, Args)]
pub(crate) struct RunsList {
    /// Runs of every app
    #[arg(long)]
    pub(crate) all: bool,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 50)]
    pub(crate) limit: u32,
    /// Only runs of this status
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsId {
    /// The run's id, or the beginning of it
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShow {
    /// The run's id, or the beginning of it
    pub(crate) id: String,
    /// Print one stream of one effect as it was: EFFECT/stdin, EFFECT/stdout, EFFECT/stderr, EFFECT/prompt, EFFECT/answer
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsResume {
    /// The run's id, or the beginning of it
    pub(crate) id: String,
    /// Go on although the definition has changed since the run began; what the change touches is done again
    #[arg(long)]
    pub(crate) accept_changes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsPrune {
    /// Only runs that began longer ago than this: `12h`, `30d`
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = crate::value::long_duration_ms)]
    pub(crate) older_than: u64,
    /// Runs of every app
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// What is waiting, as `etude runs show` lists it; a run's id is enough if it waits for one thing only
    pub(crate) id: String,
    /// A structured answer
    #[arg(long, value_name = "JSON")]
    pub(crate) answer: Option<String>,
    /// Who approves; default: the user's name
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// What is waiting, as `etude runs show` lists it; a run's id is enough if it waits for one thing only
    pub(crate) id: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Who denies; default: the user's name
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Apps {
    /// List the packages of this project and of your home
    List(AppsPlaces),
    /// Show the contract of a package and its skills, as an agent would get them
    Show(AppsShow),
    /// Check packages
    Check(AppsCheck),
    /// Run a declared command of a package
    Run(AppsRun),
}

#[derive(Debug, Args)]
pub(crate) struct AppsPlaces {
    /// A package, or a directory with packages, that comes before all others. May be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) apps_path: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AppsShow {
    /// The package
    pub(crate) slug: String,
    /// A skill of the package; default: all that it lists. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) skill: Vec<String>,
    #[command(flatten)]
    pub(crate) places: AppsPlaces,
}

#[derive(Debug, Args)]
pub(crate) struct AppsCheck {
    /// The package's directory; default: all packages that are found
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) places: AppsPlaces,
}

#[derive(Debug, Args)]
pub(crate) struct AppsRun {
    /// The package
    pub(crate) slug: String,
    /// The command, and arguments that do not begin with a hyphen
    #[arg(required = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
    /// Arguments, whatever they look like
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
    /// End the command after this time: `500ms`, `30s`, `5m`; a bare number is seconds; default: 60s
    #[arg(long, value_name = "DURATION", value_parser = crate::value::duration_ms)]
    pub(crate) timeout: Option<u64>,
    /// End the command when it has printed more than this: bytes, or `512KiB`, `8MiB`; default: 8MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::value::size)]
    pub(crate) max_output: Option<usize>,
    /// What the command prints, if it is not JSON
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) expect: Option<Expected>,
    /// Fail if the answer does not fit the package's schema
    #[arg(long)]
    pub(crate) strict_schemas: bool,
    /// A file that the command reads as its stdin, or `-`; default: nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,
    /// A variable of your environment that the command gets, too. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) places: AppsPlaces,
}

/// What a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Expected {
    /// Text
    Text,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Skill {
    /// List the skills of this project and of your home
    List(SkillPlaces),
    /// Show one skill as an agent would get it
    Show(SkillShow),
    /// Check one skill
    Check(SkillCheck),
    /// Print the catalog that agents get
    Catalog(SkillPlaces),
    /// Show what a skill's metadata adds up to, and the chain that its calls pass
    Explain(crate::command::skill::explain::Explain),
    /// Draw the levels and the chain of a skill
    Graph(crate::command::skill::graph::Graph),
    /// Call a skill through its chain
    Run(crate::command::skill::run::Run),
}

#[derive(Debug, Args)]
pub(crate) struct SkillPlaces {
    /// Whose conventions hold where they differ
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub(crate) compat: Option<CompatWord>,
}

/// A client whose conventions can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompatWord {
    /// Claude Code: your own skills first; placeholders and commands in bodies
    ClaudeCode,
}

#[derive(Debug, Args)]
pub(crate) struct SkillShow {
    /// The skill
    pub(crate) name: String,
    /// Whose conventions hold for its body
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub(crate) compat: Option<CompatWord>,
    /// What is typed after its name
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SkillCheck {
    /// The skill's directory, or its file
    pub(crate) path: PathBuf,
    /// Allow what the specification allows, and nothing else
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// A package, a skill, or a folder
    #[arg(required_unless_present = "list")]
    pub(crate) path: Option<PathBuf>,
    /// Agents may read it, and nothing more
    #[arg(long)]
    pub(crate) activation: bool,
    /// Its commands may run, too
    #[arg(long)]
    pub(crate) execution: bool,
    /// List what is trusted
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Untrust {
    /// What was trusted, or a folder above it
    pub(crate) path: PathBuf,
    /// Also keep agents away from it where it would need no trust
    #[arg(long)]
    pub(crate) block: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// List what each tier is mapped to and why, the providers, and the local models
    List,
    /// Download a local model: its weights, checked by their SHA-256
    Pull(ModelPull),
    /// Ask each tier for one structured answer and one tool call
    Test(ModelTest),
    /// Serve a local model to the runs of this user
    #[command(hide = true)]
    Serve(ModelServe),
}

#[derive(Debug, Args)]
pub(crate) struct ModelPull {
    /// The model, as `etude model list` names it; default: the one that answers when nothing else does (1.1 GB)
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelTest {
    /// Only this tier: `lite`, `standard` or `reasoning`
    #[arg(value_parser = crate::value::tier)]
    pub(crate) tier: Option<etude::core::model::Tier>,
}

/// What the model's process is told; nobody types this.
#[derive(Debug, Args)]
pub(crate) struct ModelServe {
    #[arg(long)]
    pub(crate) id: String,
    #[arg(long)]
    pub(crate) weights: PathBuf,
    #[arg(long)]
    pub(crate) runtime_dir: PathBuf,
    #[arg(long)]
    pub(crate) context_tokens: usize,
    #[arg(long)]
    pub(crate) idle_ms: u64,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Where the app shall be, or the name of a pipeline for the app that is there
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// What the schema describes
    #[arg(value_enum)]
    pub(crate) what: SchemaOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// pipeline.yaml
    Pipeline,
    /// The frontmatter of a stage of a machine
    Stage,
    /// machine.yaml
    Machine,
    /// etude.yaml
    Config,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A code, such as P0201; without one, all of them are listed
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
