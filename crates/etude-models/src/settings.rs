//! Resolved settings of the crate: values, and no names of variables to look up.

use etude_core::tool::ToolCalling;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use etude_core::model::Tier;
use etude_core::service_url::{self, ServiceUrl};
use reqwest::Url;

use crate::kind::{ProviderKind, provider_kind_words};
use crate::local::LocalServer;
use crate::prices::Prices;
use crate::redact::Secret;
use crate::transport::TransportPolicy;

/// Everything that [`Models`](crate::Models) needs (A-4.2: the mapping is runtime configuration).
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The providers that the mapping may name.
    pub providers: Vec<ProviderSettings>,
    /// The models of each tier. The next one is called if one cannot be reached or keeps failing.
    pub mapping: BTreeMap<Tier, Vec<ModelId>>,
    /// Models of the mapping that no configuration names: they may be out of service by now.
    pub defaulted: Vec<ModelId>,
    /// Prices that extend and override the known ones.
    pub prices: Prices,
    /// Retries of transport failures (A-4.5).
    pub transport: TransportPolicy,
    /// The app's directory: images and recordings are relative to it, and programs run in it.
    pub app_dir: PathBuf,
    /// Environment variables that programs of the kind `command` do not inherit: the providers' keys.
    pub withheld_env: Vec<String>,
    /// Secrets that responses must not contain, besides the providers' own keys and headers: those of tools that models call.
    pub secrets: Vec<Secret>,
}

/// Headers that identify the caller or an API version. They are not secret, and models may well mention their values.
const PUBLIC_HEADERS: [&str; 8] = [
    "accept", "accept-language", "anthropic-beta", "anthropic-version", "http-referer", "openai-beta", "user-agent",
    "x-title",
];

/// Hosts whose responses state their cost (`usage.cost`).
const COSTING_HOSTS: [&str; 1] = ["openrouter.ai"];

/// True if the header `name` holds no secret.
pub fn is_public_header(name: &str) -> bool {
    PUBLIC_HEADERS.iter().any(|public| name.eq_ignore_ascii_case(public))
}

/// Connection to one provider, as its configuration says.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// The name before the `/` of a [`ModelId`].
    pub name: String,
    /// The API that the provider speaks.
    pub kind: ProviderKind,
    /// The base URL; `None` means that of the kind. A URL without a path gets the API's usual version path.
    pub base_url: Option<ServiceUrl>,
    /// The key. Without one, calls of the kinds that need a key fail with a remedy.
    pub api_key: Option<Secret>,
    /// The variable in which the key was searched, such as `ANTHROPIC_API_KEY`; for messages.
    pub key_hint: Option<String>,
    /// Kind `command`: program and arguments. In arguments `{model}` becomes the model's name and `{schema}` the JSON text of
    /// the response's schema (`{}` if there is none).
    pub command: Vec<String>,
    /// Kind `local`: starts the server.
    pub local: Option<Arc<dyn LocalServer>>,
    /// Kind `recorded`: a directory with one file per recording, or one file with many. Kind `local`: path of the weights, if
    /// not the usual one.
    pub path: Option<PathBuf>,
    /// Kind `recorded`: true if an app names the path, which must then lead to a place in [`Settings::app_dir`], links included.
    pub is_path_of_app: bool,
    /// Kind `recorded`: the model to call when no recording matches. Its response becomes a recording.
    pub record_from: Option<ModelId>,
    /// More HTTP headers. They may hold keys, hence the type.
    pub headers: Vec<(String, Secret)>,
    /// Use of the provider's own structured output. `None`: tried first, and given up if the provider refuses it.
    pub structured_output: Option<bool>,
    /// Time limit of one attempt in milliseconds, including the connection.
    pub timeout_ms: Option<u64>,
    /// Retries of one call after transport failures (A-4.5); `None`: those of [`Settings::transport`].
    pub retries: Option<u32>,
    /// Maximum wait between two attempts in milliseconds; `None`: that of [`Settings::transport`].
    pub max_wait_ms: Option<u64>,
    /// True if the provider's responses state their cost; `None`: decided by its host.
    pub states_cost: Option<bool>,
    /// Context window of the provider's models, in tokens; `None`: the known one of each model.
    pub context_window: Option<u64>,
    /// Maximum number of tokens of a response whose request names none. `None`: the maximum of the model, or a known default.
    pub max_tokens: Option<u32>,
    /// Support for tool calls in the provider's models; `None`: that of its kind.
    pub tool_calling: Option<ToolCalling>,
    /// Kind `command`: variables that the program does not inherit, besides [`Settings::withheld_env`].
    pub withheld_env: Vec<String>,
    /// Reason why the provider must not be used. Calls then fail with this sentence: nothing is started, opened or sent.
    pub withheld: Option<String>,
}

impl ProviderSettings {
    /// A provider with only a name and a kind.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: None,
            api_key: None,
            key_hint: None,
            command: Vec::new(),
            local: None,
            path: None,
            is_path_of_app: false,
            record_from: None,
            headers: Vec::new(),
            structured_output: None,
            timeout_ms: None,
            retries: None,
            max_wait_ms: None,
            states_cost: None,
            context_window: None,
            max_tokens: None,
            tool_calling: None,
            withheld_env: Vec::new(),
            withheld: None,
        }
    }
}

/// A provider and one of its models, written `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId {
    /// Name of the provider; empty if a bare name of a model does not tell it.
    pub provider: String,
    /// The provider's own name of the model; may contain `/`.
    pub model: String,
}

impl ModelId {
    /// Splits `provider/model` at the first `/`. `None` if one of the two is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, model) = text.trim().split_once('/')?;
        let known = !provider.is_empty() && !model.is_empty();
        known.then(|| Self { provider: provider.to_owned(), model: model.to_owned() })
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.provider.is_empty() {
            return f.write_str(&self.model);
        }
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// Settings that cannot work for any request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Two providers have the same name.
    #[error("two providers are named `{name}`; rename one of them")]
    DuplicateProvider {
        /// The name of both entries of `providers`.
        name: String,
    },
    /// A model id names a provider that is not configured.
    #[error("`{model}` names the provider `{provider}`, which is not configured; add it under `providers` (kinds: {})", provider_kind_words().join(", "))]
    UnknownProvider {
        /// The id as written.
        model: String,
        /// The part before the `/`.
        provider: String,
    },
    /// A model without a provider, whose name does not tell its vendor.
    #[error("`{model}` names no provider; write it as `PROVIDER/{model}`, with the name of a provider or its kind (kinds: {})", provider_kind_words().join(", "))]
    NoProvider {
        /// The name as written.
        model: String,
    },
    /// A provider lacks a setting that its kind requires.
    #[error("provider `{name}` of kind `{kind}` needs `{setting}`")]
    Missing {
        /// Name of the provider.
        name: String,
        /// The kind of the provider, which requires the setting.
        kind: ProviderKind,
        /// The member of the configuration that is missing.
        setting: &'static str,
    },
    /// The settings need a feature that this program was built without.
    #[error(
        "provider `{name}` is of kind `local`, and this program was built without the local model; build it with the \
         feature `local-model`, or map the tiers to another provider"
    )]
    NoLocalModel {
        /// Name of the provider.
        name: String,
    },
    /// A base URL that is not one. The URL itself is not shown, because it may contain a password.
    #[error("`base_url` of provider `{name}` is not an http or https URL")]
    BaseUrl {
        /// Name of the provider.
        name: String,
    },
    /// An HTTP header that cannot be sent. Its value is not shown.
    #[error("header `{header}` of provider `{name}` has characters that HTTP does not allow")]
    Header {
        /// Name of the provider.
        name: String,
        /// Name of the header, or `api_key`.
        header: String,
    },
    /// A provider that records would call one that replays recordings.
    #[error("provider `{name}` records `{model}`, which is itself recorded; name a model that answers")]
    RecordsRecorded {
        /// Name of the provider.
        name: String,
        /// The id as written.
        model: String,
    },
}

impl Settings {
    /// Checks the settings without any IO.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All faults that show without any IO: those of the providers, then those of the mapping.
    pub fn faults(&self) -> Vec<SettingsError> {
        let mut faults = Vec::new();
        for (index, provider) in self.providers.iter().enumerate() {
            if self.providers[..index].iter().any(|other| other.name == provider.name) {
                faults.push(SettingsError::DuplicateProvider { name: provider.name.clone() });
            }
            faults.extend(provider.check().err());
            let recorded = provider.record_from.as_ref().map(|model| (model, self.provider(model)));
            match recorded {
                Some((_, Err(unknown))) => faults.push(unknown),
                Some((model, Ok(known))) if known.kind == ProviderKind::Recorded => {
                    let model = model.to_string();
                    faults.push(SettingsError::RecordsRecorded { name: provider.name.clone(), model });
                }
                _ => {}
            }
        }
        faults.extend(self.mapping.values().flatten().filter_map(|model| self.provider(model).err()));
        faults
    }

    fn provider(&self, model: &ModelId) -> Result<&ProviderSettings, SettingsError> {
        let found = self.providers.iter().find(|provider| provider.name == model.provider);
        found.ok_or_else(|| match model.provider.is_empty() {
            true => SettingsError::NoProvider { model: model.model.clone() },
            false => SettingsError::UnknownProvider { model: model.to_string(), provider: model.provider.clone() },
        })
    }
}

impl ProviderSettings {
    fn check(&self) -> Result<(), SettingsError> {
        let setting = match self.kind {
            ProviderKind::OpenAiCompatible if self.base_url.is_none() => Some("base_url"),
            ProviderKind::Command if self.command.is_empty() => Some("command"),
            ProviderKind::Recorded if self.path.is_none() => Some("path"),
            _ => None,
        };
        if let Some(setting) = setting {
            return Err(SettingsError::Missing { name: self.name.clone(), kind: self.kind, setting });
        }
        if self.kind == ProviderKind::Local && self.local.is_none() {
            return Err(SettingsError::NoLocalModel { name: self.name.clone() });
        }
        // A URL that is not used still has its variables as written.
        let is_known = |url: &ServiceUrl| self.withheld.is_none() || !url.expose().contains("${");
        if self.kind.is_http() && self.url().is_none() && self.base_url.as_ref().is_none_or(is_known) {
            return Err(SettingsError::BaseUrl { name: self.name.clone() });
        }
        Ok(())
    }

    /// The remedy for a missing key; `None` if none is missing. A provider without a key cannot be called, unless its kind
    /// needs none or other headers replace it. If the configuration names the variable of the key, the key is required for any
    /// kind.
    pub fn key_remedy(&self) -> Option<String> {
        let variable = self.key_hint.as_deref().or(self.kind.key_variable())?;
        let is_absent = self.api_key.as_ref().is_none_or(|key| key.expose().trim().is_empty());
        if !is_absent || !self.headers.is_empty() {
            return None;
        }
        let setting = format!("providers.{}.api_key", self.name);
        let is_sent = self.key_hint.is_some() || self.kind.customary_key(self.base_url.as_ref(), []).is_some();
        if is_sent {
            return Some(format!("set `{variable}` or `{setting}`"));
        }
        let place = self.base_url.as_ref().map(ToString::to_string).unwrap_or_default();
        Some(format!("set `{setting}`: `{variable}` is sent to {place} only as `{setting}: \"${{env:{variable}}}\"`"))
    }

    /// Everything that must not be shown: the key, the values of additional headers, and secrets in the URL.
    pub fn secrets(&self) -> Vec<Secret> {
        let mut secrets: Vec<Secret> = self.api_key.iter().cloned().collect();
        secrets.extend(self.headers.iter().filter(|(name, _)| !is_public_header(name)).map(|(_, value)| value.clone()));
        secrets.extend(self.base_url.iter().flat_map(ServiceUrl::secrets).map(Secret::new));
        secrets
    }

    /// True if costs are known without a price. Either the responses state their cost, as configured or as is known of the
    /// host. Or the server is on this machine, which mostly costs nothing.
    pub(crate) fn states_cost(&self) -> bool {
        let is_known = |url: Url| {
            let is_of_host = url.host_str().is_some_and(|host| COSTING_HOSTS.contains(&host));
            is_of_host || service_url::is_loopback(&url)
        };
        self.states_cost.unwrap_or_else(|| self.url().is_some_and(is_known))
    }

    /// The retry policy of this provider, where `policy` holds for all providers.
    pub(crate) fn policy(&self, policy: TransportPolicy) -> TransportPolicy {
        TransportPolicy {
            tries: self.retries.map_or(policy.tries, |retries| retries.saturating_add(1)),
            max_wait_ms: self.max_wait_ms.unwrap_or(policy.max_wait_ms),
            ..policy
        }
    }

    /// The base URL, parsed. `None` if it is missing, or cannot be called.
    pub(crate) fn url(&self) -> Option<Url> {
        let text = self.base_url.as_ref().map(ServiceUrl::expose).or(self.kind.default_base_url())?;
        Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_id_splits_at_the_first_slash() {
        let id = ModelId::parse("router/meta/llama-3").expect("it has both parts");
        assert_eq!((id.provider.as_str(), id.model.as_str()), ("router", "meta/llama-3"));
        assert_eq!(id.to_string(), "router/meta/llama-3");
        for text in ["", "x", "/x", "x/"] {
            assert_eq!(ModelId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_base_url_without_scheme_is_refused_and_not_repeated() {
        let mut provider = ProviderSettings::new("vllm", ProviderKind::OpenAiCompatible);
        provider.base_url = Some("user:canary@127.0.0.1".into());
        let error = Settings { providers: vec![provider], ..Settings::default() }.check().expect_err("no scheme");
        assert_eq!(error.to_string(), "`base_url` of provider `vllm` is not an http or https URL");
        for (url, is_fault) in [("127.0.0.1:8000/v1", true), ("${env:HOST}/v1", false), ("http://127.0.0.1", false)] {
            let mut unused = ProviderSettings::new("vllm", ProviderKind::OpenAiCompatible);
            (unused.base_url, unused.withheld) = (Some(url.into()), Some("the app defines it".to_owned()));
            let faults = Settings { providers: vec![unused], ..Settings::default() }.faults();
            assert_eq!(!faults.is_empty(), is_fault, "{url}");
        }
    }

    #[test]
    fn all_faults_are_found_and_the_first_one_is_refused() {
        let provider = |name: &str, kind| ProviderSettings::new(name, kind);
        let mut records = provider("r", ProviderKind::Recorded);
        (records.path, records.record_from) = (Some("x".into()), ModelId::parse("nowhere/m"));
        let settings = Settings {
            providers: vec![
                provider("a", ProviderKind::OpenAiCompatible),
                provider("b", ProviderKind::Command),
                provider("b", ProviderKind::OpenAi),
                records,
            ],
            mapping: BTreeMap::from([(Tier::Lite, vec![ModelId::parse("none/m").expect("an id")])]),
            ..Settings::default()
        };
        let faults: Vec<String> = settings.faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults[0], "provider `a` of kind `openai-compatible` needs `base_url`");
        let starts = ["provider `a`", "provider `b`", "two providers", "`nowhere/m` names", "`none/m` names"];
        assert!(faults.iter().zip(starts).all(|(fault, start)| fault.starts_with(start)), "{faults:?}");
        assert_eq!(faults.len(), starts.len());
        assert_eq!(settings.check().expect_err("faults").to_string(), faults[0]);
    }

    #[test]
    fn a_mapping_to_an_unknown_provider_is_refused() {
        let settings = Settings {
            mapping: BTreeMap::from([(Tier::Lite, vec![ModelId::parse("nowhere/m").expect("an id")])]),
            ..Settings::default()
        };
        let error = settings.check().expect_err("unknown").to_string();
        assert!(error.starts_with("`nowhere/m` names the provider `nowhere`, which is not configured"), "{error}");
    }

    #[test]
    fn a_mapping_to_a_name_of_no_known_vendor_is_refused_as_it_is_written() {
        let id = ModelId { provider: String::new(), model: "my-model".to_owned() };
        assert_eq!(id.to_string(), "my-model");
        let settings = Settings { mapping: BTreeMap::from([(Tier::Lite, vec![id])]), ..Settings::default() };
        let error = settings.check().expect_err("no provider").to_string();
        assert!(error.starts_with("`my-model` names no provider; write it as `PROVIDER/my-model`"), "{error}");
    }
}
