//! The models of all tiers, behind one call.

use std::collections::BTreeMap;

use etude_core::model::{CallFailure, CallFailureKind, ModelResponse, Piece, Reasoning, Request, Stop, Tier, Usage};
use etude_core::tool::ToolCalling;
use etude_core::tree;

use crate::command::{Printed, Program, ProgramFailed};
use crate::delta_sink::DeltaSink;
use crate::hosted::{Call, Hosted};
use crate::image;
use crate::kind::ProviderKind;
use crate::prices::{Price, Prices};
use crate::recorded::{Recordings, digests, fields};
use crate::redact::{Redactor, Secret};
use crate::settings::{ModelId, ProviderSettings, Settings, SettingsError};
use crate::transport::{Failed, FailedAs};
use crate::windows;
use crate::wire::{Decoded, TokenCount};

/// The configured models. Building them costs next to nothing: connections, certificates and recordings wait for the first
/// call.
pub struct Models {
    providers: BTreeMap<String, Provider>,
    mapping: BTreeMap<Tier, Vec<ModelId>>,
    /// Default models of the mapping, which no configuration names.
    defaulted: Vec<ModelId>,
    prices: Prices,
    app_dir: std::path::PathBuf,
    /// Redacts messages of this crate.
    redactor: Redactor,
    /// Redacts responses of models.
    responses: Redactor,
}

struct Provider {
    kind: ProviderKind,
    context_window: Option<u64>,
    tool_calling: ToolCalling,
    states_cost: bool,
    backend: Backend,
}

enum Backend {
    Hosted(Box<Hosted>),
    Program(Program),
    Recorded {
        recordings: Recordings,
        record_from: Option<ModelId>,
    },
    /// The provider must not be used, for this reason.
    Withheld(String),
}

/// A failed call of one model. `passing` is true if another model may succeed.
struct Missed {
    kind: CallFailureKind,
    message: String,
    earlier: Vec<String>,
    passing: bool,
    /// True if the provider does not know the model.
    is_unknown: bool,
}

impl Missed {
    fn new(kind: CallFailureKind, message: impl Into<String>) -> Self {
        let passing = kind == CallFailureKind::Environment;
        Self { kind, message: message.into(), earlier: Vec::new(), passing, is_unknown: false }
    }
}

impl Models {
    /// Checks the settings and stores them. Nothing is read, opened or contacted.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let secrets: Vec<Secret> = settings.providers.iter().flat_map(ProviderSettings::secrets).collect();
        let redactor = Redactor::new(secrets.iter());
        let responses = Redactor::for_data(secrets.iter().chain(&settings.secrets));
        let mut providers = BTreeMap::new();
        for provider in &settings.providers {
            let backend = backend(provider, &settings, &redactor)?;
            providers.insert(
                provider.name.clone(),
                Provider {
                    kind: provider.kind,
                    context_window: provider.context_window,
                    tool_calling: provider.tool_calling.unwrap_or(provider.kind.tool_calling()),
                    states_cost: provider.states_cost(),
                    backend,
                },
            );
        }
        let Settings { mapping, defaulted, prices, app_dir, .. } = settings;
        Ok(Self { providers, mapping, defaulted, prices, app_dir, redactor, responses })
    }

    /// The first model of a tier, as `provider/model`.
    pub fn describe(&self, tier: Tier) -> Option<String> {
        self.first(tier).map(ToString::to_string)
    }

    /// The price of the first model of a tier; `None` if it is unknown.
    pub fn price(&self, tier: Tier) -> Option<Price> {
        let model = self.first(tier)?;
        self.prices.get(model, self.providers.get(&model.provider)?.kind)
    }

    /// The models of a tier whose price is unknown and not stated with their responses: a cost limit does not apply to them
    ///
    pub fn unpriced(&self, tier: Tier) -> Vec<String> {
        let models = self.mapping.get(&tier).map_or(&[][..], Vec::as_slice);
        models.iter().filter(|model| !self.is_priced(model)).map(ToString::to_string).collect()
    }

    fn is_priced(&self, model: &ModelId) -> bool {
        let Some(provider) = self.providers.get(&model.provider) else { return true };
        match &provider.backend {
            // No model is called.
            Backend::Withheld(_) | Backend::Recorded { record_from: None, .. } => true,
            Backend::Recorded { record_from: Some(source), .. } => self.is_priced(source),
            Backend::Hosted(_) | Backend::Program(_) => {
                provider.states_cost || self.prices.get(model, provider.kind).is_some()
            }
        }
    }

    /// Support for tool calls in the first model of a tier.
    pub fn tool_calling(&self, tier: Tier) -> ToolCalling {
        let provider = self.first(tier).and_then(|model| self.providers.get(&model.provider));
        provider.map_or(ToolCalling::Hard, |provider| provider.tool_calling)
    }

    /// Context window of the first model of a tier, in tokens; `None` if it is unknown.
    pub fn window_tokens(&self, tier: Tier) -> Option<u64> {
        let model = self.first(tier)?;
        let provider = self.providers.get(&model.provider)?;
        provider.context_window.or_else(|| windows::lookup(provider.kind, &model.model))
    }

    fn first(&self, tier: Tier) -> Option<&ModelId> {
        self.mapping.get(&tier)?.first()
    }

    /// Calls the model of the request's tier, or the next one of the mapping if a model is unreachable or keeps failing.
    /// Dropping the future ends the connection, or the program, at once.
    pub async fn call(&self, request: &Request) -> Result<ModelResponse, CallFailure> {
        self.try_each(request, None).await
    }

    /// Calls like [`Models::call`], and reports deltas of the response. Providers are then asked to stream; one that does not
    /// stream is understood as well. Deltas have the text as the provider writes it; with a schema the response may differ.
    pub async fn call_streaming(
        &self,
        request: &Request,
        on_delta: &(dyn Fn(Piece<'_>) + Send + Sync),
    ) -> Result<ModelResponse, CallFailure> {
        self.try_each(request, Some(&DeltaSink::new(on_delta, &self.responses))).await
    }

    /// Calls like [`Models::call`], and reports each wait of the transport.
    pub async fn call_watched(
        &self,
        request: &Request,
        on_delta: &(dyn Fn(Piece<'_>) + Send + Sync),
    ) -> Result<ModelResponse, CallFailure> {
        self.try_each(request, Some(&DeltaSink::of_waits(on_delta, &self.responses))).await
    }

    async fn try_each(
        &self,
        request: &Request,
        delta_sink: Option<&DeltaSink<'_>>,
    ) -> Result<ModelResponse, CallFailure> {
        let models = self.mapping.get(&request.tier).map_or(&[][..], Vec::as_slice);
        let mut earlier = Vec::new();
        let mut last = None;
        for (index, model) in models.iter().enumerate() {
            delta_sink.inspect(|delta_sink| delta_sink.begin());
            match self.ask(model, request, delta_sink).await {
                Ok(mut response) => {
                    delta_sink.inspect(|delta_sink| delta_sink.end());
                    earlier.append(&mut response.transport_failures);
                    response.transport_failures = self.redact(earlier);
                    return Ok(response);
                }
                Err(missed) => {
                    earlier.extend(missed.earlier);
                    let mut message = format!("`{model}`: {}", missed.message);
                    if missed.is_unknown && self.defaulted.contains(model) {
                        let tier = request.tier;
                        message += &format!(
                            "; etude chose this model because none is configured, and it may be retired: set \
                             `model_mapping.{tier}` to another"
                        );
                    }
                    let another = missed.passing && index + 1 < models.len();
                    if another {
                        earlier.push(message);
                        continue;
                    }
                    last = Some((missed.kind, message, Some(model.to_string())));
                    break;
                }
            }
        }
        let (kind, message, model) = last.unwrap_or_else(|| {
            let tier = request.tier;
            let message =
                format!("no model is configured for the tier `{tier}`; set `model_mapping.{tier}` to provider/model");
            (CallFailureKind::Environment, message, None)
        });
        let message = self.redactor.redact(&message);
        Err(CallFailure { kind, message, model, transport_failures: self.redact(earlier) })
    }

    /// Redacts every text that leaves, whatever its source.
    fn redact(&self, sentences: Vec<String>) -> Vec<String> {
        sentences.iter().map(|sentence| self.redactor.redact(sentence)).collect()
    }

    /// Redacts a response: a provider may repeat its request, and a model its prompt. This happens before anything of the
    /// response is shown, recorded or passed on.
    fn cleaned(&self, mut response: ModelResponse) -> ModelResponse {
        let calls = response.tool_calls.iter_mut().flat_map(|call| [&mut call.id, &mut call.name, &mut call.arguments]);
        let reason = match &mut response.stop {
            Stop::Refusal(reason) => Some(reason),
            Stop::End | Stop::ToolCalls | Stop::Length => None,
        };
        for text in calls.chain([&mut response.text]).chain(reason) {
            if let Some(redact) = self.responses.cleaned(text) {
                *text = redact;
            }
        }
        response.reasoning = response.reasoning.and_then(|reasoning| self.cleaned_reasoning(reasoning));
        response
    }

    /// Redacts reasoning. Signed or encrypted reasoning is invalid once its text changes, so it is dropped as a whole.
    fn cleaned_reasoning(&self, reasoning: Reasoning) -> Option<Reasoning> {
        let Some(redacted) = self.responses.cleaned(&reasoning.json) else { return Some(reasoning) };
        let provider = reasoning.model.split_once('/').and_then(|(name, _)| self.providers.get(name))?;
        let is_signed = matches!(provider.kind, ProviderKind::Anthropic | ProviderKind::OpenAi | ProviderKind::Gemini);
        let is_kept = !is_signed && tree::parse_response(&redacted).is_ok();
        is_kept.then(|| Reasoning { json: redacted.into(), ..reasoning })
    }

    async fn ask(
        &self,
        model: &ModelId,
        request: &Request,
        delta_sink: Option<&DeltaSink<'_>>,
    ) -> Result<ModelResponse, Missed> {
        let images =
            image::load(request, &self.app_dir).await.map_err(|why| Missed::new(CallFailureKind::Model, why))?;
        let provider = self.provider(model)?;
        let Backend::Recorded { recordings, record_from } = &provider.backend else {
            let response = self.ask_live(model, provider, Call { request, images: &images, delta_sink }).await?;
            return Ok(self.cleaned(response));
        };
        let unreadable = |why: String| Missed::new(CallFailureKind::Environment, why);
        let asked = fields(request, &digests(&images));
        let miss = match recordings.find(&asked).await.map_err(unreadable)? {
            Ok(found) => {
                return Ok(self.cleaned(ModelResponse {
                    text: found.text,
                    tool_calls: found.tool_calls,
                    stop: found.stop,
                    usage: found.usage,
                    model: model.to_string(),
                    reasoning: None,
                    transport_failures: Vec::new(),
                }));
            }
            Err(miss) => miss,
        };
        let Some(source) = record_from else {
            return Err(Missed::new(CallFailureKind::NotRecorded, miss));
        };
        let response =
            self.ask_live(source, self.provider(source)?, Call { request, images: &images, delta_sink }).await?;
        let response = self.cleaned(response);
        recordings.add(request, &images, &response).await.map_err(unreadable)?;
        Ok(ModelResponse { model: model.to_string(), ..response })
    }

    fn provider(&self, model: &ModelId) -> Result<&Provider, Missed> {
        self.providers.get(&model.provider).ok_or_else(|| {
            let name = &model.provider;
            Missed::new(CallFailureKind::Environment, format!("provider `{name}` is not configured"))
        })
    }

    async fn ask_live(&self, model: &ModelId, provider: &Provider, call: Call<'_>) -> Result<ModelResponse, Missed> {
        match &provider.backend {
            Backend::Hosted(hosted) => {
                let (decoded, failures) =
                    hosted.call(&model.model, call).await.map_err(|failed| missed(failed, provider.kind))?;
                Ok(self.response(model, provider.kind, decoded, failures))
            }
            Backend::Program(program) => {
                let Printed { text, tokens, cost_usd } =
                    program.call(&model.model, call.request, call.streaming()).await.map_err(program_missed)?;
                let decoded = Decoded { text, tool_calls: Vec::new(), reasoning: None, stop: Stop::End, tokens };
                let mut response = self.response(model, provider.kind, decoded, Vec::new());
                response.usage.cost_usd = cost_usd.or(response.usage.cost_usd);
                Ok(response)
            }
            Backend::Withheld(why) => Err(Missed::new(CallFailureKind::Environment, why)),
            Backend::Recorded { .. } => {
                Err(Missed::new(CallFailureKind::Environment, format!("`{model}` is itself recorded")))
            }
        }
    }

    fn response(&self, model: &ModelId, kind: ProviderKind, decoded: Decoded, failures: Vec<String>) -> ModelResponse {
        let TokenCount { input, output, cached, reasoning, .. } = decoded.tokens;
        let cost_usd = self.prices.cost(model, kind, &decoded.tokens);
        ModelResponse {
            text: decoded.text,
            tool_calls: decoded.tool_calls,
            stop: decoded.stop,
            usage: Usage {
                calls: 1,
                input_tokens: input,
                output_tokens: output,
                cached_tokens: cached,
                reasoning_tokens: reasoning,
                cost_usd,
            },
            model: model.to_string(),
            reasoning: decoded
                .reasoning
                .map(|thought| Reasoning { model: model.to_string(), json: thought.to_string().into() }),
            transport_failures: failures,
        }
    }
}

fn backend(provider: &ProviderSettings, settings: &Settings, redactor: &Redactor) -> Result<Backend, SettingsError> {
    if let Some(why) = &provider.withheld {
        return Ok(Backend::Withheld(why.clone()));
    }
    Ok(match provider.kind {
        ProviderKind::Command => {
            let mut hidden = settings.withheld_env.clone();
            hidden.extend(provider.withheld_env.iter().cloned());
            hidden.extend(settings.providers.iter().filter_map(|provider| provider.key_hint.clone()));
            Backend::Program(Program::new(provider, &settings.app_dir, hidden, redactor.clone()))
        }
        ProviderKind::Recorded => {
            let path = provider.path.clone().unwrap_or_default();
            let app = provider.is_path_of_app.then(|| settings.app_dir.clone());
            let recordings = Recordings::new(settings.app_dir.join(path), app);
            Backend::Recorded { recordings, record_from: provider.record_from.clone() }
        }
        _ => Backend::Hosted(Box::new(Hosted::new(provider, settings.transport, redactor.clone())?)),
    })
}

fn missed(failed: Failed, provider: ProviderKind) -> Missed {
    let (kind, passing) = match failed.kind {
        // The weights of the local model cannot be loaded.
        FailedAs::Rejected(404) if provider == ProviderKind::Local => (CallFailureKind::Environment, true),
        FailedAs::Unauthorized | FailedAs::Unreachable => (CallFailureKind::Environment, true),
        FailedAs::Exhausted => (CallFailureKind::Model, true),
        // No credit, no permission, or no such model: each concerns this provider, not the request.
        FailedAs::Rejected(402..=404) => (CallFailureKind::Model, true),
        FailedAs::Rejected(_) | FailedAs::Filtered => (CallFailureKind::Model, false),
    };
    let is_unknown = matches!(failed.kind, FailedAs::Rejected(404 | 410));
    Missed { kind, message: failed.message, earlier: failed.earlier, passing, is_unknown }
}

fn program_missed(failed: ProgramFailed) -> Missed {
    match failed {
        ProgramFailed::NotStarted(message) => Missed::new(CallFailureKind::Environment, message),
        ProgramFailed::TimedOut(message) => Missed { passing: true, ..Missed::new(CallFailureKind::Model, message) },
        ProgramFailed::Failed(message) => Missed::new(CallFailureKind::Model, message),
    }
}
