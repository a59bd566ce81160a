//! Substitutes in a build without the local model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etude_models::ProviderSettings;
use etude_request::Sentences;
use etude_spec::config::Provider;

use crate::args::{Global, ModelProcess, ModelServe};
use crate::exit::Exit;
use crate::problem::Problem;

/// This build has no fallback model.
pub(crate) const DEFAULT: Option<&str> = None;

/// Weights, which this build cannot use.
#[derive(Debug, Clone)]
pub(crate) enum Weights {}

/// Result of a download.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) path: PathBuf,
    pub(crate) was_there: bool,
}

impl Weights {
    pub(crate) fn installed(&self) -> Option<PathBuf> {
        match *self {}
    }

    pub(crate) fn size(&self) -> String {
        match *self {}
    }

    pub(crate) fn command(&self) -> String {
        match *self {}
    }

    pub(crate) fn document(&self) -> serde_json::Value {
        match *self {}
    }

    pub(crate) fn text(&self) -> String {
        match *self {}
    }
}

fn problem() -> Problem {
    Problem::environment("this program was built without the local model")
        .hint("build it with the feature `local-model`, which is on by default")
}

pub(crate) fn unconfigured() -> Result<ProviderSettings, Problem> {
    Err(problem())
}

pub(crate) fn provider(_: &str, _: &Provider, _: &Path) -> Result<ProviderSettings, Problem> {
    Err(problem())
}

pub(crate) fn weights_of(_: &ProviderSettings, _: &str) -> Option<Weights> {
    None
}

pub(crate) fn list_weights(_: &ProviderSettings) -> Result<Vec<Weights>, Problem> {
    Ok(Vec::new())
}

pub(crate) fn wanted_by_name(_: &ProviderSettings, _: Option<&str>) -> Result<Weights, Problem> {
    Err(problem())
}

pub(crate) fn sentences(_: &[ProviderSettings]) -> Option<Arc<dyn Sentences>> {
    None
}

pub(crate) fn fetch(_: &Global, weights: &Weights) -> Result<Fetched, Problem> {
    match *weights {}
}

pub(crate) fn ask(_: &Global, weights: &Weights) -> Result<bool, Problem> {
    match *weights {}
}

pub(crate) fn serve(_: &Global, _: &ModelProcess) -> Result<Exit, Problem> {
    Err(problem())
}

pub(crate) fn become_server(_: &Global, _: &ModelServe, _: &ProviderSettings, _: &Provider) -> Result<Exit, Problem> {
    Err(problem())
}
