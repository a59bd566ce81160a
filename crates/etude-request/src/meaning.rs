//! The second look: meaning, where words are not sure.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use etude_route::{Decision, Embedder, Route, Router};

use super::cache;

/// A model of sentences that is loaded when it is needed first.
pub trait Sentences: Send + Sync + fmt::Debug {
    /// What its vectors depend on, such as the hash of its weights.
    fn id(&self) -> &str;
    /// Loads it; `None` if it cannot be loaded.
    fn load(&self) -> Option<Box<dyn Embedder + Send + Sync>>;
}

/// A router that also compares meanings, built when it is asked first.
pub(super) struct Meaning {
    sentences: Arc<dyn Sentences>,
    cache: Option<PathBuf>,
    built: OnceLock<Option<Built>>,
}

struct Built {
    router: Router,
    embedder: Box<dyn Embedder + Send + Sync>,
}

impl fmt::Debug for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meaning").field("sentences", &self.sentences).field("cache", &self.cache).finish()
    }
}

impl Meaning {
    pub(super) fn new(sentences: Arc<dyn Sentences>, cache: Option<&Path>) -> Self {
        Self { sentences, cache: cache.map(Path::to_owned), built: OnceLock::new() }
    }

    /// What `request` means among `routes`, which are the same ones every time; `None` if meaning is not to be had.
    pub(super) fn decide(&self, routes: &[Route], request: &str) -> Option<Decision> {
        let built = self.built.get_or_init(|| {
            let embedder = self.sentences.load()?;
            let build = || Router::with_embeddings(routes, embedder.as_ref());
            let router = cache::router(self.cache.as_deref(), routes, Some(self.sentences.id()), build);
            Some(Built { router, embedder })
        });
        let built = built.as_ref()?;
        Some(built.router.decide_with(request, built.embedder.as_ref())).filter(|decision| decision.signals.semantic)
    }
}
