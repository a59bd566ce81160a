//! `import`: from definitions of other programs to an app.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use etude_convert::import::ImportKind;

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A workflow file, or a folder: with `.claude` or `.github/workflows`, or of workflow files
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The program that the definitions are for [default: by names and contents]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) from: Option<ImportFrom>,
    /// The folder of the app, empty or missing [default: NAME-app in the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
}

/// The program that definitions are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    /// Commands and skills of Claude Code
    ClaudeCode,
    /// Workflows in the form of GitHub Actions
    #[value(name = "github-actions")]
    Actions,
    /// DAGs of Dagu
    Dagu,
    /// Workflows of Lobster
    Lobster,
}

impl ImportFrom {
    /// The kind of the importer.
    pub(crate) fn kind(self) -> ImportKind {
        match self {
            Self::ClaudeCode => ImportKind::ClaudeCode,
            Self::Actions => ImportKind::Actions,
            Self::Dagu => ImportKind::Dagu,
            Self::Lobster => ImportKind::Lobster,
        }
    }
}
