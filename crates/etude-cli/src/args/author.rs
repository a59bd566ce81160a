//! Commands for authors: `new`, `check`, `graph`, `test`, `schema`, `explain`, `completions`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Check only these pipelines and machines [default: all]
    pub(crate) names: Vec<String>,
    /// List every use of an extension of the protocol
    #[arg(long)]
    pub(crate) portable: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Graph {
    /// The pipeline or machine
    pub(crate) name: String,
    /// The language of the drawing
    #[arg(long, value_enum, default_value_t = Drawing::Mermaid)]
    pub(crate) to: Drawing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// Mermaid
    Mermaid,
    /// Graphviz
    Dot,
    /// An image
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Run only tests whose name contains this text
    pub(crate) name: Option<String>,
    /// Call the configured models where a response is missing, and record it
    #[arg(long)]
    pub(crate) record: bool,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// `pipeline`, `machine`, `skill` or `app`, or at once the name of a pipeline or the directory of an app
    #[arg(value_name = "KIND|NAME")]
    pub(crate) kind: String,
    /// The name, after a kind
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// The kind of file
    #[arg(value_enum)]
    pub(crate) what: SchemaOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// pipeline.yaml
    Pipeline,
    /// The frontmatter of a stage (`stages/*.md`)
    Stage,
    /// machine.yaml
    Machine,
    /// A test (`tests/*.yaml`)
    Test,
    /// The frontmatter of an application (APP.md)
    #[value(alias = "app")]
    Application,
    /// The frontmatter of a skill (SKILL.md)
    Skill,
    /// etude.yaml
    Config,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Call each model once; that can cost money
    #[arg(long)]
    pub(crate) call: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A code such as `P0201`, the start of one, a kind such as `step_failed`, or words to search for
    #[arg(value_name = "CODE|WORD")]
    pub(crate) words: Vec<String>,
    /// List the codes instead of explaining one
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// Bash
    Bash,
    /// Zsh
    Zsh,
    /// Fish
    Fish,
    /// Elvish
    Elvish,
    /// PowerShell
    #[value(name = "powershell")]
    Pwsh,
}
