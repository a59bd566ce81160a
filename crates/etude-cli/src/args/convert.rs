//! `convert`: from a skill to an app.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The folder of the skill
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// The folder of the app, empty or missing [default: DIR-app beside DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// JSON lines with `name`, `request`, `input` and `output`: the tests of the app
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cases: Option<PathBuf>,
    /// The model that labels statements and drafts pipelines: `lite`, `standard` or `reasoning` [default: `standard`]
    #[arg(long, value_name = "TIER", value_parser = crate::value::tier)]
    pub(crate) model: Option<etude_core::model::Tier>,
    /// Stop the conversion when its model calls cost more than this (USD)
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = crate::value::dollars)]
    pub(crate) max_cost: Option<f64>,
    /// Run cases of the skill in a sandbox without asking
    #[arg(long)]
    pub(crate) yolo: bool,
}

/// The steps of a conversion, which its run starts; internal.
#[derive(Debug, Subcommand)]
pub(crate) enum Conversion {
    /// Check that every statement has a label
    Labels,
    /// Verify drafted pipelines
    Verify,
    /// Write the app
    Write,
}
