//! `etude model list`: the model of each tier with the reason, the providers, and the local models.

use etude_core::model::Tier;
use etude_models::{ModelId, Models, ProviderSettings};
use serde_json::{Value, json};

use super::{hint_of_withheld, local_provider, resolve};
use crate::context::Context;
use crate::exit::Exit;
use crate::local::{self, Weights};
use crate::problem::Problem;
use crate::settings::{self, Need, Resolved};
use crate::stdout;

pub(super) fn list(context: &Context) -> Result<Exit, Problem> {
    let resolved = settings::ready(&context.global, resolve(context)?, &Tier::ALL, Need::Look)?;
    let weights = local_provider(&resolved).and_then(|provider| local::list_weights(&provider)).unwrap_or_default();
    match context.is_json() {
        true => stdout::json(&document(&resolved, &weights)),
        false => stdout::text(&text(&resolved, &weights)),
    }
    hint_of_withheld(context, &resolved);
    Ok(Exit::Done)
}

/// Reason why a model cannot respond, if known without a call.
fn lacks(resolved: &Resolved, model: &ModelId) -> Option<String> {
    let provider = resolved.settings.providers.iter().find(|provider| provider.name == model.provider);
    if let Some(why) = provider.and_then(|provider| provider.withheld.as_ref()) {
        return Some(why.clone());
    }
    if let Some(weights) = resolved.missing(model) {
        return Some(format!("not downloaded: {} ({})", weights.command(), weights.size()));
    }
    let Some(provider) = provider else {
        return Some(match model.provider.is_empty() {
            true => format!("it names no provider: write it as `PROVIDER/{model}`"),
            false => format!("there is no provider `{}`", model.provider),
        });
    };
    let remedy = provider.key_remedy()?;
    Some(provider.key_hint.as_ref().map_or(format!("no key: {remedy}"), |name| format!("no key: {name} is not set")))
}

/// Price in US dollars for a million input and output tokens.
fn price(resolved: &Resolved, tier: Tier) -> Option<(f64, f64)> {
    let models = Models::new(resolved.settings.clone()).ok()?;
    models.price(tier).map(|price| (price.input, price.output))
}

fn document(resolved: &Resolved, weights: &[Weights]) -> Value {
    let tier = |tier: Tier| {
        let models = resolved.settings.mapping.get(&tier).map_or(&[][..], Vec::as_slice);
        let price = price(resolved, tier).map(|(input, output)| json!({"input": input, "output": output}));
        json!({
            "tier": tier.word(),
            "model": models.first().map(ToString::to_string),
            "then": models.iter().skip(1).map(ToString::to_string).collect::<Vec<_>>(),
            "why": resolved.why.get(&tier).map(settings::Why::word),
            "because": resolved.why.get(&tier).map(settings::Why::text),
            "lacks": models.first().and_then(|model| lacks(resolved, model)),
            "price": price,
        })
    };
    let provider = |provider: &ProviderSettings| {
        json!({
            "name": provider.name,
            "kind": provider.kind.word(),
            "base_url": provider.base_url.as_ref().map(ToString::to_string),
            "has_key": provider.kind.key_variable().map(|_| provider.api_key.is_some()),
        })
    };
    json!({
        "tiers": Tier::ALL.map(tier),
        "providers": resolved.settings.providers.iter().map(provider).collect::<Vec<_>>(),
        "local": weights.iter().map(Weights::document).collect::<Vec<_>>(),
    })
}

fn text(resolved: &Resolved, weights: &[Weights]) -> String {
    let mut text = String::from("tiers\n");
    for tier in Tier::ALL {
        let models = resolved.settings.mapping.get(&tier).map_or(&[][..], Vec::as_slice);
        let Some(model) = models.first() else {
            text.push_str(&format!("  {:<10} nothing; {}\n", tier.word(), settings::REMEDIES));
            continue;
        };
        text.push_str(&format!("  {:<10} {model}", tier.word()));
        for next in &models[1..] {
            text.push_str(&format!(", then {next}"));
        }
        if let Some((input, output)) = price(resolved, tier) {
            match input + output == 0.0 {
                true => text.push_str(", free"),
                false => {
                    text.push_str(&format!(", ${input} per million input tokens, ${output} per million output tokens"))
                }
            }
        }
        text.push('\n');
        if let Some(why) = resolved.why.get(&tier) {
            text.push_str(&format!("  {:<10} {}\n", "", why.text()));
        }
        if let Some(lacks) = lacks(resolved, model) {
            text.push_str(&format!("  {:<10} {lacks}\n", ""));
        }
    }
    text.push_str("\nproviders\n");
    for provider in &resolved.settings.providers {
        let place = provider.base_url.as_ref().map(|url| format!(", {url}")).unwrap_or_default();
        let key = match (provider.kind.key_variable(), &provider.api_key) {
            (None, _) => "",
            (Some(_), Some(_)) => ", with a key",
            (Some(_), None) => ", without a key",
        };
        text.push_str(&format!("  {} ({}{place}{key})\n", provider.name, provider.kind));
    }
    if !weights.is_empty() {
        text.push_str("\nlocal models\n");
        for weights in weights {
            for line in weights.text().lines() {
                text.push_str(&format!("  {line}\n"));
            }
        }
    }
    text
}
