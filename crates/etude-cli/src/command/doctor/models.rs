//! Checks of keys, tiers and models. No model is called without `--call`: servers are asked for their list, hosts for a
//! connection.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use etude_core::model::{Message, Request, Tier};
use etude_core::report::duration;
use etude_core::service_url::ServiceUrl;
use etude_models::{ModelId, Models, ProviderKind, ProviderSettings};

use super::files::{App, of_problem, program};
use super::{Finding, Level};
use crate::context::Context;
use crate::runtime::block_on;
use crate::settings::{self, Need, Resolved};

/// Maximum response time of a server.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum response time of a model with `--call`.
const CALL_PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn findings(context: &Context, app: &App, calls: bool) -> Vec<Finding> {
    let resolved = context.settings(&app.dir());
    let resolved = resolved.and_then(|resolved| settings::ready(&context.global, resolved, &Tier::ALL, Need::Look));
    let resolved = match resolved {
        Ok(resolved) => resolved,
        // A separate check reports a configuration that cannot be read.
        Err(_) => return keys(&[]),
    };
    let mut findings = keys(&resolved.settings.providers);
    let needed = app.tiers();
    let models = settings::sound(&resolved);
    match block_on(tiers(&resolved, &needed, models.as_ref().ok().filter(|_| calls))) {
        Ok(found) => findings.extend(found),
        Err(problem) => findings.push(of_problem("models", &problem)),
    }
    if let Err(problem) = models {
        findings.push(of_problem("models", &problem));
    }
    findings
}

/// Lists the keys in the environment, never their values.
fn keys(providers: &[ProviderSettings]) -> Vec<Finding> {
    let variables: BTreeSet<&str> = ProviderKind::ALL.iter().filter_map(|kind| kind.key_variable()).collect();
    let is_set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let set: Vec<&str> = variables.iter().filter(is_set).copied().collect();
    let message = match set.is_empty() {
        true => format!("none of {} is set", variables.iter().copied().collect::<Vec<_>>().join(", ")),
        false => format!("{} set", set.join(", ")),
    };
    let lacking = providers.iter().filter_map(|provider| {
        let fix = provider.key_hint.as_ref().map(|name| format!("set {name}"));
        let fix = fix.unwrap_or(provider.key_remedy()?);
        Some(Finding::new("keys", Level::Warning, format!("provider `{}` has no key", provider.name)).fix(fix))
    });
    std::iter::once(Finding::ok("keys", message)).chain(lacking).collect()
}

/// Checks each tier. A tier without a model is an error only where the app calls it.
async fn tiers(resolved: &Resolved, needed: &BTreeSet<Tier>, called: Option<&Models>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut known: Vec<(ModelId, Result<String, Lack>)> = Vec::new();
    for tier in Tier::ALL {
        let check = format!("model {tier}");
        let fault = if needed.contains(&tier) { Level::Error } else { Level::Warning };
        let Some(model) = resolved.first(tier) else {
            findings.push(Finding::new(check, fault, "no model").fix(settings::REMEDIES));
            continue;
        };
        // Tiers with the same model share one probe.
        let probed = match known.iter().find(|(other, _)| other == model) {
            Some((_, probed)) => probed.clone(),
            None => probe(resolved, tier, model, called).await,
        };
        known.push((model.clone(), probed.clone()));
        let why = resolved.why.get(&tier).map(|why| format!(" ({})", why.text())).unwrap_or_default();
        findings.push(match probed {
            Ok(state) => Finding::ok(check, format!("{model}{why}: {state}")),
            Err(Lack { is_certain, what, fix }) => {
                let level = if is_certain { fault } else { Level::Warning };
                Finding::new(check, level, format!("{model}{why}: {what}")).fix(fix)
            }
        });
    }
    findings
}

/// Reason why a model cannot respond.
#[derive(Debug, Clone)]
struct Lack {
    /// True if a call would certainly fail, false if it might.
    is_certain: bool,
    what: String,
    fix: String,
}

impl Lack {
    fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { is_certain: true, what: what.into(), fix: fix.into() }
    }
}

async fn probe(resolved: &Resolved, tier: Tier, model: &ModelId, called: Option<&Models>) -> Result<String, Lack> {
    let providers = &resolved.settings.providers;
    let Some(provider) = providers.iter().find(|provider| provider.name == model.provider) else {
        return Err(Lack::new(format!("no provider `{}`", model.provider), "add it to etude.yaml under `providers`"));
    };
    if let Some(why) = &provider.withheld {
        return Err(Lack { is_certain: false, what: why.clone(), fix: settings::remedy(resolved.purpose) });
    }
    if let Some(weights) = resolved.missing(model) {
        return Err(Lack::new(format!("not downloaded ({})", weights.size()), weights.command()));
    }
    if let Some(remedy) = provider.key_remedy() {
        let set = provider.key_hint.as_ref().map(|name| format!("set {name}"));
        return Err(Lack::new("no key", set.unwrap_or(remedy)));
    }
    match called {
        Some(models) => call(models, tier).await,
        None => reach(provider).await,
    }
}

/// Makes one short call.
async fn call(models: &Models, tier: Tier) -> Result<String, Lack> {
    let messages = vec![Message::user("Reply with the word ok.")];
    let request = Request { tier, messages, max_tokens: Some(100), ..Request::default() };
    let start = Instant::now();
    match tokio::time::timeout(CALL_PATIENCE, models.call(&request)).await {
        Err(_) => Err(Lack::new(format!("no response within {} s", CALL_PATIENCE.as_secs()), "etude model test")),
        Ok(Err(failure)) => Err(Lack::new(failure.message, "list the configured models: etude model list")),
        Ok(Ok(answer)) => {
            let took = duration(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
            let cost = answer.usage.cost_usd.map(|cost| format!(", ${cost:.5}")).unwrap_or_default();
            Ok(format!("responds in {took}{cost}"))
        }
    }
}

/// Checks a provider without a call.
async fn reach(provider: &ProviderSettings) -> Result<String, Lack> {
    match provider.kind {
        ProviderKind::Local => Ok("downloaded".to_owned()),
        ProviderKind::Recorded => Ok("recorded responses".to_owned()),
        ProviderKind::Command => {
            let name = provider.command.first().map_or("", String::as_str);
            let is_path = name.contains('/');
            match is_path || program(name).is_some() {
                true => Ok(format!("runs `{name}`; not called")),
                false => Err(Lack::new(format!("`{name}` is not on PATH"), format!("install `{name}`"))),
            }
        }
        _ => connected(provider).await,
    }
}

async fn connected(provider: &ProviderSettings) -> Result<String, Lack> {
    let configured = provider.base_url.as_ref().map(ServiceUrl::expose);
    let url = configured.or(provider.kind.default_base_url()).unwrap_or_default();
    if provider.api_key.is_none()
        && let Ok(Some(models)) = tokio::time::timeout(PATIENCE, etude_models::list_models(url)).await
    {
        return Ok(format!("responds with {} models", models.len()));
    }
    let Some(address) = address(url) else { return Err(Lack::new("its address is invalid", "correct `base_url`")) };
    let is_remote = provider.kind.default_base_url().is_some();
    if is_remote
        && ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].iter().any(|name| std::env::var_os(name).is_some())
    {
        return Ok("has a key; behind a proxy, not called".to_owned());
    }
    match tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(&address)).await {
        Ok(Ok(_)) => Ok(format!("{address} accepts connections; not called")),
        _ => Err(Lack {
            is_certain: false,
            what: format!("no connection to {address} within {} s", PATIENCE.as_secs()),
            fix: "check the network, or start the server".to_owned(),
        }),
    }
}

/// Host and port of a URL.
pub(super) fn address(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty())?;
    let after_brackets = host.rsplit(']').next().unwrap_or(host);
    match (after_brackets.contains(':'), scheme) {
        (true, _) => Some(host.to_owned()),
        (false, "https") => Some(format!("{host}:443")),
        (false, "http") => Some(format!("{host}:80")),
        _ => None,
    }
}
