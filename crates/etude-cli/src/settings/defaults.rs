//! What holds without configuration: providers by their names, models by the key that is found.

use std::time::Duration;

use etude::core::model::Tier;
use etude::models::{ModelId, ProviderKind, ProviderSettings, Secret, Settings};

use super::{Resolved, secrets};

/// A provider that is there without being configured, with its model for each tier.
struct Hosted {
    kind: ProviderKind,
    /// Beginnings of the names of its models.
    prefixes: &'static [&'static str],
    /// lite, standard, reasoning.
    models: [&'static str; 3],
}

/// In the order in which their keys are looked for.
const HOSTED: [Hosted; 3] = [
    Hosted {
        kind: ProviderKind::Anthropic,
        prefixes: &["claude"],
        models: ["claude-haiku-4-5", "claude-sonnet-4-6", "claude-opus-4-6"],
    },
    Hosted {
        kind: ProviderKind::OpenAi,
        prefixes: &["gpt", "o1", "o3", "o4", "chatgpt"],
        models: ["gpt-5-mini", "gpt-5", "gpt-5"],
    },
    Hosted {
        kind: ProviderKind::Gemini,
        prefixes: &["gemini"],
        models: ["gemini-2.5-flash-lite", "gemini-2.5-flash", "gemini-2.5-pro"],
    },
];

/// Where model servers listen on one's own machine, with their customary names.
const LOCAL: [(&str, &str); 4] = [
    ("llama-server", "http://127.0.0.1:8080/v1"),
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("lm-studio", "http://127.0.0.1:1234/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
];

/// `provider/model`, or a bare known name: that of its vendor.
pub(super) fn model_id(text: &str) -> ModelId {
    if let Some(id) = ModelId::parse(text) {
        return id;
    }
    let vendor = HOSTED.iter().find(|hosted| hosted.prefixes.iter().any(|prefix| text.starts_with(prefix)));
    let provider = vendor.map_or("", |hosted| hosted.kind.word());
    ModelId { provider: provider.to_owned(), model: text.to_owned() }
}

/// Adds the hosted providers that the mapping names without their being configured.
pub(super) fn add_hosted(resolved: &mut Resolved) {
    let named: Vec<ModelId> = resolved.settings.mapping.values().flatten().cloned().collect();
    let recorded: Vec<ModelId> = resolved.settings.providers.iter().filter_map(|p| p.record_from.clone()).collect();
    for id in named.iter().chain(&recorded) {
        let is_known = resolved.settings.providers.iter().any(|provider| provider.name == id.provider);
        if let (false, Some(kind)) = (is_known, ProviderKind::from_word(&id.provider)) {
            add(&mut resolved.settings, &mut resolved.scrub_env, kind);
        }
    }
    // A key that fills in the missing tiers is used by us, and so is not for scripts.
    if Tier::ALL.iter().any(|tier| !resolved.settings.mapping.contains_key(tier))
        && let Some(hosted) = with_key()
        && let Some(variable) = hosted.kind.key_variable()
    {
        secrets::note(&mut resolved.scrub_env, variable);
    }
}

fn add(settings: &mut Settings, scrub_env: &mut Vec<String>, kind: ProviderKind) {
    let mut provider = ProviderSettings::new(kind.word(), kind);
    take_key(&mut provider, scrub_env);
    settings.providers.push(provider);
}

/// Takes the key from the variable that customarily holds it.
pub(super) fn take_key(provider: &mut ProviderSettings, scrub_env: &mut Vec<String>) {
    let Some(variable) = provider.kind.key_variable() else { return };
    provider.key_hint = Some(variable.to_owned());
    provider.api_key = std::env::var(variable).ok().filter(|key| !key.is_empty()).map(Secret::new);
    secrets::note(scrub_env, variable);
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

/// Fills in the tiers that no configuration maps, by the key found in the environment.
pub(super) fn fill_from_key(settings: &mut Settings) {
    let missing = missing(settings);
    if let Some(hosted) = with_key().filter(|_| !missing.is_empty()) {
        if !settings.providers.iter().any(|provider| provider.name == hosted.kind.word()) {
            add(settings, &mut Vec::new(), hosted.kind);
        }
        for tier in missing {
            let model = hosted.models[tier as usize].to_owned();
            settings.mapping.insert(tier, vec![ModelId { provider: hosted.kind.word().to_owned(), model }]);
        }
    }
}

/// Fills in the tiers that no configuration maps: by the key found in the environment, then by a local server that
/// answers.
pub(super) async fn fill(settings: &mut Settings) {
    fill_from_key(settings);
    let missing = missing(settings);
    if missing.is_empty() {
        return;
    }
    let Some((name, url, model)) = local_server().await else { return };
    if !settings.providers.iter().any(|provider| provider.name == name) {
        let mut provider = ProviderSettings::new(name, ProviderKind::OpenAiCompatible);
        provider.base_url = Some(url.to_owned());
        settings.providers.push(provider);
    }
    for tier in missing {
        settings.mapping.insert(tier, vec![ModelId { provider: name.to_owned(), model: model.clone() }]);
    }
}

/// The first model server of this machine that answers, with its first model.
async fn local_server() -> Option<(&'static str, &'static str, String)> {
    let asked = LOCAL.map(|(name, url)| async move {
        let names = tokio::time::timeout(Duration::from_millis(300), etude::models::list_models(url)).await.ok()??;
        Some((name, url, names.into_iter().next()?))
    });
    for answer in asked {
        if let Some(found) = answer.await {
            return Some(found);
        }
    }
    None
}
