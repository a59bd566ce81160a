//! Commands for skills, and `host`, which the script of a skill calls.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Number;

#[derive(Debug, Subcommand)]
pub(crate) enum Skill {
    /// List the skills of this project and of your home directory
    List(SkillPlaces),
    /// Show a skill as agents see it
    Show(SkillShow),
    /// Check a skill against the specification
    Check(SkillCheck),
    /// Print the skill catalog that agents receive
    Catalog(SkillPlaces),
    /// Show a skill's merged metadata and the chain that its calls pass
    Explain(SkillExplain),
    /// Draw a skill's levels and chain
    Graph(SkillGraph),
    /// Call a skill through its chain
    Run(SkillRun),
}

#[derive(Debug, Args)]
pub(crate) struct SkillPlaces {
    /// Follow the conventions of this client where they differ
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub(crate) compat: Option<CompatWord>,
}

/// A client with conventions of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompatWord {
    /// Claude Code: your own skills first; placeholders and commands in bodies
    ClaudeCode,
}

#[derive(Debug, Args)]
pub(crate) struct SkillShow {
    /// The skill
    pub(crate) name: String,
    /// Follow the conventions of this client in the skill's body
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub(crate) compat: Option<CompatWord>,
    /// The text after the skill's name, for placeholders in its body
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SkillCheck {
    /// The skill's directory or file
    pub(crate) path: PathBuf,
    /// Refuse everything that the specification does not allow
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SkillExplain {
    /// The skill
    pub(crate) name: String,
    /// Print the project's directory as `${cwd}` and the library as `${library}`
    #[arg(long)]
    pub(crate) portable_paths: bool,
    #[command(flatten)]
    pub(crate) layers: Layers,
}

#[derive(Debug, Args)]
pub(crate) struct SkillGraph {
    /// The skill
    pub(crate) name: String,
    /// The language of the drawing
    #[arg(long, value_enum, default_value_t = SkillDrawing::Mermaid)]
    pub(crate) to: SkillDrawing,
    #[command(flatten)]
    pub(crate) layers: Layers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SkillDrawing {
    /// Mermaid
    Mermaid,
    /// Graphviz
    Dot,
}

#[derive(Debug, Args)]
pub(crate) struct SkillRun {
    /// The skill or the path of its file
    #[arg(required_unless_present = "log")]
    pub(crate) name: Option<String>,
    /// Set an argument; etude converts the value to the type in `params`. Repeatable
    #[arg(long = "arg", value_name = "KEY=VALUE")]
    pub(crate) args: Vec<String>,
    /// Set the arguments: JSON, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON")]
    pub(crate) arg_json: Option<String>,
    /// Allow every call that a trust rule would ask about
    #[arg(long)]
    pub(crate) yolo: bool,
    /// Print a log: `level=debug`, `scope=SCOPE,…`, a scope, `reporter=json`, or `full`; alone: list them. Repeatable
    #[arg(long, value_name = "KEY=VALUE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) log: Vec<String>,
    #[command(flatten)]
    pub(crate) layers: Layers,
    /// Print a string result as text without quotes, also to a file or pipe
    #[arg(long)]
    pub(crate) raw: bool,
}

/// Values that override metadata for this command.
#[derive(Debug, Args)]
pub(crate) struct Layers {
    /// Override a metadata value of this skill. Repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) local: Vec<String>,
    /// Override a metadata value of every skill. Repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) global: Vec<String>,
    /// Set a value of `locals.config` for `${locals.config.…}` in metadata. Repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Requests to the host.
#[derive(Debug, Subcommand)]
pub(crate) enum Host {
    /// Call another skill and print its result
    Invoke {
        /// The skill
        name: String,
        /// The arguments as a JSON object
        #[arg(long, value_name = "JSON", default_value = "{}")]
        args: String,
    },
    /// Run the rest of the chain and print the target's result
    Next,
    /// Print a value of the target's context
    Get {
        /// The path of the value, such as `args.who` or `run.tool.metadata`
        path: String,
    },
    /// Set a value in the target's context
    Set {
        /// The path of the value, below `locals`, `nonlocals`, `run.tool` or `globals`
        path: String,
        /// The value as JSON
        json: String,
    },
    /// Add to a number in the target's context in one request and print the sum
    ///
    /// A limit of 4 calls in a run is one line of a skill's program:
    /// `etude host add globals.calls 1 --max 4 >/dev/null || exit 1`
    Add {
        /// The path of the number, as for `set`; a missing value counts as 0
        path: String,
        /// The number to add
        #[arg(default_value = "1", allow_negative_numbers = true)]
        by: Number,
        /// Refuse what would exceed this: nothing is changed, and the exit status is 1
        #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
        max: Option<Number>,
    },
    /// Emit an event on a topic
    Emit {
        /// The topic
        topic: String,
        /// The payload as JSON
        #[arg(default_value = "null")]
        json: String,
    },
    /// Ask the user a question and print the answer
    Ask {
        /// The question as JSON: a string, or `{"question", "options"}`
        json: String,
    },
    /// Write a line to the log
    Log {
        /// The level: `trace`, `debug`, `info`, `warn` or `error`
        level: String,
        /// The line
        text: String,
    },
}
