//! Defaults without configuration: providers by their names, models by the key found.

use std::time::Duration;

use etude_core::model::Tier;
use etude_models::{ModelId, ProviderKind, ProviderSettings, Secret, Settings};

use super::{Resolved, secrets};
use crate::local;
use crate::problem::Problem;

/// A built-in provider, with its model for each tier.
struct Hosted {
    kind: ProviderKind,
    /// Name prefixes of its models.
    prefixes: &'static [&'static str],
    /// Models of the tiers lite, standard and reasoning.
    models: [&'static str; 3],
}

/// Built-in providers in the order in which their keys are looked for. The models are those in service in 2026-11.
const HOSTED: [Hosted; 3] = [
    Hosted {
        kind: ProviderKind::Anthropic,
        prefixes: &["claude"],
        models: ["claude-haiku-4-5", "claude-sonnet-4-6", "claude-opus-4-6"],
    },
    Hosted {
        kind: ProviderKind::OpenAi,
        prefixes: &["gpt", "o1", "o3", "o4", "chatgpt"],
        models: ["gpt-6-luna", "gpt-6.1-terra", "gpt-6.1-sol"],
    },
    Hosted {
        kind: ProviderKind::Gemini,
        prefixes: &["gemini"],
        models: ["gemini-3.5-flash-lite", "gemini-3.8-flash", "gemini-3.8-flash"],
    },
];

/// Customary names and addresses of model servers on this machine.
const LOCAL: [(&str, &str); 4] = [
    ("llama-server", "http://127.0.0.1:8080/v1"),
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("lm-studio", "http://127.0.0.1:1234/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
];

/// Maximum time for a server to respond.
const PATIENCE: Duration = Duration::from_millis(300);

/// Reason why a tier is mapped to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// This file configures it.
    Configured(String),
    /// This variable has a key.
    Key(&'static str),
    /// A server responds at this URL.
    Server(&'static str),
    /// There is no other model.
    Local,
}

impl Why {
    /// Human-readable reason.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Configured(path) => format!("`{path}` says so"),
            Self::Key(variable) => format!("{variable} is set"),
            Self::Server(url) => format!("no key is set, and a server responds at {url}"),
            Self::Local => "no key is set, and no model server responds".to_owned(),
        }
    }

    /// Machine-readable word.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Configured(_) => "configured",
            Self::Key(_) => "key",
            Self::Server(_) => "server",
            Self::Local => "local",
        }
    }
}

/// Parses `provider/model`, or a bare model name, whose vendor is then the provider.
pub(super) fn model_id(text: &str) -> ModelId {
    if let Some(id) = ModelId::parse(text) {
        return id;
    }
    let vendor = HOSTED.iter().find(|hosted| hosted.prefixes.iter().any(|prefix| text.starts_with(prefix)));
    let provider = vendor.map_or("", |hosted| hosted.kind.word());
    ModelId { provider: provider.to_owned(), model: text.to_owned() }
}

/// Adds built-in providers that the mapping names without configuration.
pub(super) fn add_hosted(resolved: &mut Resolved) -> Result<(), Problem> {
    let named: Vec<ModelId> = resolved.settings.mapping.values().flatten().cloned().collect();
    let recorded: Vec<ModelId> = resolved.settings.providers.iter().filter_map(|p| p.record_from.clone()).collect();
    for id in named.iter().chain(&recorded) {
        let is_known = resolved.settings.providers.iter().any(|provider| provider.name == id.provider);
        match ProviderKind::from_word(&id.provider).filter(|_| !is_known) {
            Some(ProviderKind::Local) => resolved.settings.providers.push(local::unconfigured()?),
            Some(kind) => add(&mut resolved.settings, &mut resolved.withheld_env, kind),
            None => {}
        }
    }
    // etude uses a key that fills in the missing tiers, so scripts do not get it.
    if Tier::ALL.iter().any(|tier| !resolved.settings.mapping.contains_key(tier))
        && let Some(hosted) = with_key()
        && let Some(variable) = hosted.kind.key_variable()
    {
        secrets::note(&mut resolved.withheld_env, variable);
    }
    Ok(())
}

fn add(settings: &mut Settings, withheld_env: &mut Vec<String>, kind: ProviderKind) {
    let mut provider = ProviderSettings::new(kind.word(), kind);
    take_key(&mut provider, withheld_env);
    settings.providers.push(provider);
}

/// Takes the key from its customary variable, if that may be sent to the provider's address.
pub(super) fn take_key(provider: &mut ProviderSettings, withheld_env: &mut Vec<String>) {
    let Some(variable) = provider.kind.key_variable() else { return };
    secrets::note(withheld_env, variable);
    let headers = provider.headers.iter().map(|(name, _)| name.as_str());
    if provider.kind.customary_key(provider.base_url.as_ref(), headers).is_some() {
        provider.key_hint = Some(variable.to_owned());
        provider.api_key = std::env::var(variable).ok().filter(|key| !key.is_empty()).map(Secret::new);
    }
}

fn with_key() -> Option<&'static Hosted> {
    HOSTED.iter().find(|hosted| {
        let key = hosted.kind.key_variable().and_then(|name| std::env::var(name).ok());
        key.is_some_and(|key| !key.is_empty())
    })
}

fn missing(settings: &Settings) -> Vec<Tier> {
    Tier::ALL.into_iter().filter(|tier| !settings.mapping.contains_key(tier)).collect()
}

/// Maps the remaining tiers.
fn map(resolved: &mut Resolved, why: &Why, model: impl Fn(Tier) -> ModelId) {
    for tier in missing(&resolved.settings) {
        let model = model(tier);
        if matches!(why, Why::Key(_)) {
            resolved.settings.defaulted.push(model.clone());
        }
        resolved.settings.mapping.insert(tier, vec![model]);
        resolved.why.insert(tier, why.clone());
    }
}

/// Fills in the unmapped tiers by the key found in the environment.
pub(super) fn fill_from_key(resolved: &mut Resolved) {
    let is_complete = missing(&resolved.settings).is_empty();
    let Some(hosted) = with_key().filter(|_| !is_complete) else { return };
    if !resolved.settings.providers.iter().any(|provider| provider.name == hosted.kind.word()) {
        add(&mut resolved.settings, &mut Vec::new(), hosted.kind);
    }
    let why = Why::Key(hosted.kind.key_variable().unwrap_or_default());
    map(resolved, &why, |tier| ModelId {
        provider: hosted.kind.word().to_owned(),
        model: hosted.models[tier as usize].to_owned(),
    });
}

/// Fills in the unmapped tiers: by the key found in the environment, then by a local server that responds, then by the local
/// model.
pub(super) async fn fill(resolved: &mut Resolved) {
    fill_from_key(resolved);
    if missing(&resolved.settings).is_empty() {
        return;
    }
    if let Some((name, url, model)) = local_server().await {
        if !resolved.settings.providers.iter().any(|provider| provider.name == name) {
            let mut provider = ProviderSettings::new(name, ProviderKind::OpenAiCompatible);
            provider.base_url = Some(url.into());
            resolved.settings.providers.push(provider);
        }
        map(resolved, &Why::Server(url), |_| ModelId { provider: name.to_owned(), model: model.clone() });
    }
    fill_from_local(resolved);
}

/// Fills in the local model under the name `local`, unless another provider has that name.
fn fill_from_local(resolved: &mut Resolved) {
    let Some(model) = local::DEFAULT else { return };
    let providers = &mut resolved.settings.providers;
    match providers.iter().find(|provider| provider.name == "local") {
        Some(other) if other.kind != ProviderKind::Local => return,
        Some(_) => {}
        None => match local::unconfigured() {
            Ok(provider) => providers.push(provider),
            // Without a home directory there is no directory for weights.
            Err(_) => return,
        },
    }
    map(resolved, &Why::Local, |_| ModelId { provider: "local".to_owned(), model: model.to_owned() });
}

/// The first model server of this machine that responds, with its first model.
async fn local_server() -> Option<(&'static str, &'static str, String)> {
    let asked = LOCAL.map(|(name, url)| async move {
        // Most ports are closed, and connecting costs less than preparing a request.
        let listens = tokio::net::TcpStream::connect(url.trim_start_matches("http://").trim_end_matches("/v1"));
        tokio::time::timeout(PATIENCE, listens).await.ok()?.ok()?;
        let names = tokio::time::timeout(PATIENCE, etude_models::list_models(url)).await.ok()??;
        Some((name, url, names.into_iter().next()?))
    });
    for answer in asked {
        if let Some(found) = answer.await {
            return Some(found);
        }
    }
    None
}
