//! The local model as a provider: the weights of each model name, and the process that serves them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etude_models::{LocalServer, Starting};
use etude_request::Sentences;

pub use etude_local::catalog::{DEFAULT_MODEL, EMBEDDING_MODEL, Entry, ModelUse, catalog, find};
pub use etude_local::{
    Embedder, Ended, Listen, Places, Progress, PullError, Ready, Serving, Settings, WhenIdle, default_threads,
    environment, installed, pull, serve,
};

/// Starts the process that serves these settings and returns at once.
pub type Start = Arc<dyn Fn(&Settings) -> io::Result<()> + Send + Sync>;

/// Settings of one provider that serves the local model.
#[derive(Clone)]
pub struct Local {
    /// Directory of downloaded weights.
    pub models_dir: PathBuf,
    /// A directory for sockets, private to the user and with a short path.
    pub runtime_dir: PathBuf,
    /// A GGUF file of the user, which serves every model name; `None`: weights from the catalog.
    pub weights: Option<PathBuf>,
    /// Maximum tokens of prompt and completion together; `None`: the default.
    pub context_tokens: Option<usize>,
    /// Idle time after which the process ends; `None`: the default.
    pub idle: Option<Duration>,
    /// Starts the process of the model.
    pub start: Start,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("models_dir", &self.models_dir).field("weights", &self.weights).finish()
    }
}

impl Local {
    /// Settings of the process that serves the model `name`.
    ///
    /// # Errors
    /// The model does not exist, or its weights are missing; the sentence says what to do.
    pub fn settings(&self, name: &str) -> Result<Settings, String> {
        let mut settings = match &self.weights {
            Some(file) if file.is_file() => Settings::new(name, file, &self.runtime_dir),
            Some(file) => return Err(format!("there is no weights file `{}`", file.display())),
            None => {
                let entry = lookup(name)?;
                let weights = installed(entry, &self.models_dir).ok_or_else(|| missing(entry))?;
                let mut settings = Settings::new(name, &weights, &self.runtime_dir);
                if let ModelUse::Chat { context_tokens, .. } = entry.kind {
                    settings.context_tokens = settings.context_tokens.min(context_tokens);
                }
                settings
            }
        };
        settings.context_tokens = self.context_tokens.unwrap_or(settings.context_tokens);
        settings.idle = self.idle.unwrap_or(settings.idle);
        Ok(settings)
    }
}

/// The catalog entry of the chat model `name`.
///
/// # Errors
/// The model does not exist; the sentence lists the available ones.
pub fn lookup(name: &str) -> Result<&'static Entry, String> {
    let answers = |entry: &&Entry| matches!(entry.kind, ModelUse::Chat { .. });
    find(name).filter(answers).ok_or_else(|| {
        let names: Vec<String> = catalog().iter().filter(answers).map(|entry| format!("`{}`", entry.id)).collect();
        format!(
            "there is no local model `{name}`; local models are {}, and `path` of the provider may name a GGUF file",
            names.join(" and ")
        )
    })
}

/// The command that downloads the weights of `entry`.
pub fn pull_command(entry: &Entry) -> String {
    match entry.id {
        DEFAULT_MODEL => "etude model pull".to_owned(),
        id => format!("etude model pull {id}"),
    }
}

/// A number of bytes in readable form: `1.1 GB`, `98 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..=999_000 => format!("{} kB", bytes.div_ceil(1000)),
        999_001..999_500_000 => format!("{} MB", (bytes + 500_000) / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn missing(entry: &Entry) -> String {
    format!("its weights are not downloaded; run `{}` ({})", pull_command(entry), size(entry.size))
}

/// True if `path`, a setting of the provider, names a GGUF file rather than a directory of weights.
pub fn is_file_of_weights(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) || path.is_file()
}

/// The sentence embedding model in a directory, for the router.
#[derive(Debug)]
pub struct MiniLm {
    dir: PathBuf,
}

impl MiniLm {
    /// The model in the directory `dir`, as `pull` left it. Nothing is loaded yet.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }
}

impl Sentences for MiniLm {
    fn id(&self) -> &str {
        find(EMBEDDING_MODEL).map_or(EMBEDDING_MODEL, |entry| entry.sha256)
    }

    fn load(&self) -> Option<Box<dyn etude_route::Embedder + Send + Sync>> {
        // Without the model, routing falls back to words.
        let loaded = Embedder::load(&self.dir).ok()?;
        Some(Box::new(Vectors(loaded)))
    }
}

struct Vectors(Embedder);

impl etude_route::Embedder for Vectors {
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        // An empty list says that not every text has a vector: the router then decides by words.
        self.0.embed(texts).unwrap_or_default()
    }
}

impl LocalServer for Local {
    fn start(&self, name: &str) -> Starting {
        let (settings, start) = (self.settings(name), Arc::clone(&self.start));
        Box::pin(async move {
            let settings = settings?;
            let socket = etude_local::ensure_running(&settings, &|| start(&settings)).await;
            socket.map_err(|error| format!("cannot start the local model: {error}"))
        })
    }
}

#[cfg(test)]
mod tests;
