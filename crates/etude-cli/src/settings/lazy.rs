//! Models that are set up at the first call, so that a pipeline of code steps waits for nothing.

use std::sync::Arc;

use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Request, Tier};
use etude_core::tool::ToolCalling;
use etude_models::{ModelId, Models, Redactor, Secret};
use etude_runtime::host::{Boxed, ModelPort, OnDelta};
use tokio::sync::OnceCell;

use super::{Resolved, defaults};

#[derive(Debug)]
pub(super) struct LazyModels(Arc<Inner>);

struct Inner {
    resolved: Resolved,
    models: OnceCell<Result<Models, String>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inner")
    }
}

impl LazyModels {
    pub(super) fn new(resolved: Resolved) -> Self {
        Self(Arc::new(Inner { resolved, models: OnceCell::new() }))
    }
}

impl Inner {
    /// The models, if one is configured for `tier`.
    async fn models_for(&self, tier: Tier) -> Result<&Models, CallFailure> {
        let failure = |message: String| CallFailure {
            kind: CallFailureKind::Environment,
            message,
            model: None,
            transport_failures: Vec::new(),
        };
        let models = self.models.get_or_init(|| set_up(&self.resolved)).await;
        let models = models.as_ref().map_err(|why| failure(why.clone()))?;
        if models.describe(tier).is_none() {
            return Err(failure(format!("no model is configured for tier `{tier}`; {}", super::REMEDIES)));
        }
        Ok(models)
    }
}

impl ModelPort for LazyModels {
    fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.models_for(request.tier).await?.call(&request).await })
    }

    fn call_streaming(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.models_for(request.tier).await?.call_streaming(&request, &*on_delta).await })
    }

    fn call_watched(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.models_for(request.tier).await?.call_watched(&request, &*on_delta).await })
    }

    fn only(&self, model: &str) -> Option<Arc<dyn ModelPort>> {
        let id = ModelId::parse(model)?;
        let mut resolved = self.0.resolved.clone();
        resolved.settings.mapping = Tier::ALL.into_iter().map(|tier| (tier, vec![id.clone()])).collect();
        Some(Arc::new(Self::new(resolved)))
    }

    fn secrets_in(&self, text: &str, typed: &str) -> Vec<String> {
        // A short value is a word that may occur anywhere.
        let is_reported = |value: &Secret| {
            let redactor = Redactor::new([value].into_iter());
            value.expose().len() >= 6 && redactor.finds_in(text) && !redactor.finds_in(typed)
        };
        let of_variable = |name: &&String| std::env::var(name).is_ok_and(|value| is_reported(&Secret::new(value)));
        let mut names: Vec<String> = self.0.resolved.withheld_env.iter().filter(of_variable).cloned().collect();
        // A literal in the configuration, or a value of several parts, has no variable name.
        if names.is_empty() && self.0.resolved.grants.secrets.iter().any(is_reported) {
            names.push("a key or header of the configuration".to_owned());
        }
        names
    }

    fn tool_calling(&self, tier: Tier) -> Boxed<(String, ToolCalling)> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let models = inner.models.get_or_init(|| set_up(&inner.resolved)).await;
            // Without a model the first call reports what is missing.
            models.as_ref().map_or_else(
                |_| (String::new(), ToolCalling::Hard),
                |models| (models.describe(tier).unwrap_or_default(), models.tool_calling(tier)),
            )
        })
    }

    fn window_tokens(&self, tier: Tier) -> Boxed<Option<u64>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let models = inner.models.get_or_init(|| set_up(&inner.resolved)).await;
            models.as_ref().ok()?.window_tokens(tier)
        })
    }

    fn unpriced(&self, tier: Tier) -> Boxed<Vec<String>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let models = inner.models.get_or_init(|| set_up(&inner.resolved)).await;
            // Without a model the first call reports what is missing.
            models.as_ref().map_or_else(|_| Vec::new(), |models| models.unpriced(tier))
        })
    }
}

async fn set_up(resolved: &Resolved) -> Result<Models, String> {
    let mut resolved = resolved.clone();
    defaults::fill(&mut resolved).await;
    Models::new(resolved.settings).map_err(|error| error.to_string())
}
