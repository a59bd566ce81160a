//! Second router, which compares meanings where words alone are not sure.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use etude_route::{Decision, Embedder, Route, Router};

use super::cache;

/// A sentence model that is loaded on first use.
pub trait Sentences: Send + Sync + fmt::Debug {
    /// Identity of the vectors, such as the hash of the weights.
    fn id(&self) -> &str;
    /// Loads the model; `None` if that fails.
    fn load(&self) -> Option<Box<dyn Embedder + Send + Sync>>;
}

/// A router that also compares meanings, built on the first request.
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

    /// Decides by meaning; `routes` must be the same at every call. `None` if the model cannot be loaded or had no part
    /// in the decision.
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
