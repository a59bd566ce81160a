//! The provider kind `local`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etude::local::{self, Entry, Local, ModelUse};
use etude_models::{ProviderKind, ProviderSettings};
use etude_request::Sentences;
use etude_spec::config::Provider;
use serde_json::{Value, json};

use super::process;
use crate::paths;
use crate::problem::Problem;

/// Model of every tier if no other is configured or found.
pub(crate) const DEFAULT: Option<&str> = Some(local::DEFAULT_MODEL);

/// A model of the catalog, and the path of its weights.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    pub(super) entry: &'static Entry,
    dir: PathBuf,
    hub: Option<String>,
}

impl Weights {
    /// Path of the weights, if they are present.
    pub(crate) fn installed(&self) -> Option<PathBuf> {
        local::installed(self.entry, &self.dir)
    }

    /// JSON document of the weights.
    pub(crate) fn document(&self) -> Value {
        json!({
            "name": self.entry.id,
            "about": self.entry.about,
            "use": if matches!(self.entry.kind, ModelUse::Chat { .. }) { "answers" } else { "routing" },
            "expect": self.entry.expect,
            "licence": self.entry.licence,
            "size_bytes": self.entry.size,
            "sha256": self.entry.sha256,
            "path": self.installed(),
            "pull": self.command(),
        })
    }

    /// Human-readable description.
    pub(crate) fn text(&self) -> String {
        let there = match self.installed() {
            Some(path) => format!("downloaded: {}", path.display()),
            None => format!("not downloaded: {}", self.command()),
        };
        let Entry { id, about, expect, licence, .. } = self.entry;
        format!("{id}  {}, {there}\n    {about} ({licence}): {expect}\n", self.size())
    }

    /// Human-readable size of the file.
    pub(crate) fn size(&self) -> String {
        local::size(self.entry.size)
    }

    /// Command that downloads the weights.
    pub(crate) fn command(&self) -> String {
        local::pull_command(self.entry)
    }

    /// Sources and target of a download.
    pub(super) fn places(&self) -> local::Places {
        let pip = [vec!["python3", "-m", "pip"], vec!["pip3"], vec!["pip"]];
        let pip = pip.map(|words| words.into_iter().map(str::to_owned).collect());
        local::Places { dir: self.dir.clone(), hub: self.hub.clone(), pip: pip.into() }
    }
}

/// The provider `local` without configuration.
pub(crate) fn unconfigured() -> Result<ProviderSettings, Problem> {
    provider("local", &Provider::default(), Path::new(""))
}

/// A provider of the kind `local`. `given.path` is a GGUF file or a directory of weights, relative to the app's directory.
pub(crate) fn provider(name: &str, given: &Provider, app: &Path) -> Result<ProviderSettings, Problem> {
    let mut provider = ProviderSettings::new(name, ProviderKind::Local);
    provider.base_url = given.base_url.as_deref().map(Into::into);
    provider.path = given.path.as_ref().map(|path| app.join(path));
    provider.local = Some(Arc::new(local_of(&provider, given)?));
    Ok(provider)
}

pub(super) fn local_of(provider: &ProviderSettings, given: &Provider) -> Result<Local, Problem> {
    Ok(Local {
        models_dir: models_dir(provider)?,
        runtime_dir: runtime_dir()?,
        weights: provider.path.clone().filter(|path| local::is_file_of_weights(path)),
        context_tokens: given.context_tokens.and_then(|tokens| usize::try_from(tokens).ok()),
        idle: given.idle_ms.map(Duration::from_millis),
        start: process::starter(threads(given)),
    })
}

pub(super) fn threads(given: &Provider) -> Option<usize> {
    given.threads.and_then(|threads| usize::try_from(threads).ok())
}

/// Weights of the model `name` of a provider of the kind `local`. `None` if the user's own file replaces them, or if there is
/// no such model, which the call will report.
pub(crate) fn weights_of(provider: &ProviderSettings, name: &str) -> Option<Weights> {
    let is_file = provider.path.as_deref().is_some_and(local::is_file_of_weights);
    let entry = local::lookup(name).ok().filter(|_| !is_file)?;
    Some(Weights { entry, dir: models_dir(provider).ok()?, hub: hub_of(provider) })
}

/// All models of the catalog, with the paths of `provider`.
pub(crate) fn list_weights(provider: &ProviderSettings) -> Result<Vec<Weights>, Problem> {
    let dir = match provider.path.as_deref().is_some_and(local::is_file_of_weights) {
        true => paths::cache_dir().map_err(Problem::environment)?.join("models"),
        false => models_dir(provider)?,
    };
    let weights = |entry| Weights { entry, dir: dir.clone(), hub: hub_of(provider) };
    Ok(local::catalog().iter().map(weights).collect())
}

/// Weights of the model `name`, of any kind.
pub(crate) fn wanted_by_name(provider: &ProviderSettings, name: Option<&str>) -> Result<Weights, Problem> {
    let name = name.unwrap_or(local::DEFAULT_MODEL);
    let name = name.strip_prefix("local/").unwrap_or(name);
    let all = list_weights(provider)?;
    let names: Vec<&str> = all.iter().map(|weights| weights.entry.id).collect();
    let near = etude_spec::did_you_mean(name, names.iter().copied()).map(str::to_owned);
    let listed = names.join(", ");
    all.into_iter().find(|weights| weights.entry.id == name).ok_or_else(|| {
        let problem = Problem::usage(format!("there is no local model `{name}`"));
        match near {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem.hint(format!("local models: {listed}")),
        }
    })
}

/// Sentence embedding model for the router, if it is on this machine.
pub(crate) fn sentences(providers: &[ProviderSettings]) -> Option<Arc<dyn Sentences>> {
    let is_usable = |provider: &&ProviderSettings| provider.kind == ProviderKind::Local && provider.withheld.is_none();
    let configured = providers.iter().find(is_usable);
    let provider = configured.cloned().or_else(|| unconfigured().ok())?;
    let weights =
        list_weights(&provider).ok()?.into_iter().find(|weights| weights.entry.id == local::EMBEDDING_MODEL)?;
    Some(Arc::new(local::MiniLm::new(weights.installed()?)))
}

fn hub_of(provider: &ProviderSettings) -> Option<String> {
    provider.base_url.as_ref().map(|url| url.expose().to_owned())
}

fn models_dir(provider: &ProviderSettings) -> Result<PathBuf, Problem> {
    match provider.path.as_ref().filter(|path| !local::is_file_of_weights(path)) {
        Some(dir) => Ok(dir.clone()),
        None => Ok(paths::cache_dir().map_err(Problem::environment)?.join("models")),
    }
}

/// Directory for the socket: the session's, or one of the user's whose path is short enough for a socket.
fn runtime_dir() -> Result<PathBuf, Problem> {
    const MAX_LENGTH: usize = 60;
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("etude"));
    let own = paths::state_dir().map_err(Problem::environment)?.join("run");
    let fits = |dir: &PathBuf| dir.is_absolute() && dir.as_os_str().len() <= MAX_LENGTH;
    let named = etude_core::digest::Digest::of(own.as_os_str().as_encoded_bytes()).to_string();
    let shared = std::env::temp_dir().join(format!("etude-{}", &named[..12]));
    Ok(session
        .filter(|dir| fits(dir) && dir.parent().is_some_and(Path::is_dir))
        .or(Some(own).filter(fits))
        .unwrap_or(shared))
}
