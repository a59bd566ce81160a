//! Readiness of models before the first call: their choice, their weights, and the notes about them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use etude_core::model::Tier;
use etude_models::{ModelId, ProviderKind};

use super::{Resolved, Why, defaults};
use crate::args::Global;
use crate::local::{self, Weights};
use crate::problem::Problem;
use crate::runtime::block_on;

/// Behaviour if weights are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Do nothing: the code that needs the weights reports it.
    Look,
    /// Ask the user, if there is a terminal.
    Ask,
    /// Download them, as the command line requests.
    Pull,
}

/// Settings with a model for every tier that has one. If a tier of `tiers` uses the local model, a note says so once; missing
/// weights are handled according to `need`.
pub(crate) fn ready(global: &Global, resolved: Resolved, tiers: &[Tier], need: Need) -> Result<Resolved, Problem> {
    let mut resolved = resolved;
    defaults::fill_from_key(&mut resolved);
    if tiers.iter().any(|tier| !resolved.settings.mapping.contains_key(tier)) {
        resolved = block_on(async {
            defaults::fill(&mut resolved).await;
            resolved
        })?;
    }
    announce(global, &resolved, tiers);
    for tier in tiers.iter().filter(|tier| resolved.withheld(**tier).is_none()) {
        let Some(model) = resolved.first(*tier).filter(|model| resolved.is_local(model)) else { continue };
        if let Some(weights) = resolved.missing(model) {
            let wanted = match need {
                Need::Look => false,
                Need::Ask => local::ask(global, &weights)?,
                Need::Pull => true,
            };
            if !wanted {
                return Ok(resolved);
            }
            local::fetch(global, &weights)?;
        }
        if resolved.why.get(tier) == Some(&Why::Local) && need != Need::Look {
            emit(global, model);
        }
    }
    Ok(resolved)
}

/// Notes once that the local model responds because none is configured.
fn emit(global: &Global, model: &ModelId) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !global.quiet && !REPORTED.swap(true, Ordering::Relaxed) {
        crate::render::say!(
            "note: using {model}, a small model on this machine: no key is set, and no model server responds"
        );
    }
}

/// Notes once which hosts get prompts only because the app says so, and which sandbox rights the app does not get.
pub(crate) fn announce(global: &Global, resolved: &Resolved, tiers: &[Tier]) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let note = |note: String| {
        if REPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(note.clone()) {
            crate::render::say!("{}", crate::render::text::harmless(&note));
        }
    };
    if !global.quiet && !resolved.untaken.is_empty() {
        let untaken = resolved.untaken.join(", ");
        note(format!("note: your `agent.sandbox` limits the app's `etude.yaml`, which also requests {untaken}"));
    }
    for tier in tiers.iter().filter(|_| !global.quiet) {
        for model in resolved.settings.mapping.get(tier).into_iter().flatten() {
            let Some(host) = resolved.redirects.get(&model.provider) else { continue };
            note(format!("note: the app's `etude.yaml` sends prompts of the tier `{tier}` to {host}"));
        }
    }
}

impl Resolved {
    /// Reason why the first model of `tier` must not be called, if any.
    pub(crate) fn withheld(&self, tier: Tier) -> Option<&str> {
        let model = self.first(tier)?;
        let provider = self.settings.providers.iter().find(|provider| provider.name == model.provider)?;
        provider.withheld.as_deref()
    }

    /// First model that a tier is mapped to.
    pub(crate) fn first(&self, tier: Tier) -> Option<&ModelId> {
        self.settings.mapping.get(&tier)?.first()
    }

    /// True if `model` runs on this machine.
    pub(crate) fn is_local(&self, model: &ModelId) -> bool {
        self.settings.providers.iter().any(|p| p.name == model.provider && p.kind == ProviderKind::Local)
    }

    /// Weights of `model`, if it is a local model whose weights are missing.
    pub(crate) fn missing(&self, model: &ModelId) -> Option<Weights> {
        let provider = self.settings.providers.iter().find(|provider| provider.name == model.provider)?;
        let is_local = provider.kind == ProviderKind::Local;
        local::weights_of(provider, &model.model).filter(|weights| is_local && weights.installed().is_none())
    }

    /// True if a model of `tier` can be called, if known without a call.
    pub(crate) fn has_model(&self, tier: Tier) -> bool {
        self.withheld(tier).is_none() && self.first(tier).is_some_and(|model| self.missing(model).is_none())
    }
}
