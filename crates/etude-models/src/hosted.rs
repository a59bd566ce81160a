//! Providers over HTTP: address, key, codec, and structured output if the provider supports it.

mod concessions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use etude_core::model::{Request, ResponseSchema};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::delta_sink::DeltaSink;
use crate::dialect::{self, Dialect, Prepared, ProviderSchema, Reversal};
use crate::image::Images;
use crate::kind::ProviderKind;
use crate::local::LocalServer;
use crate::redact::{Redactor, Secret};
use crate::settings::{ProviderSettings, SettingsError};
use crate::transport::{Failed, FailedAs, Line, StreamSink, TransportPolicy, WireRequest};
use crate::wire::openai_chat::Flavor;
use crate::wire::{self, Ask, Decoded, anthropic, gemini, openai_chat, openai_responses, stream};
use concessions::Concession;

/// The URL of every local server; its socket identifies the server.
const LOCAL_URL: &str = "http://localhost/v1";
/// Default time limit of a local response: 30 days.
const MAX_LOCAL_MS: u64 = 30 * 24 * 3_600_000;
/// Maximum number of attempts for a local server. The second one reaches a new process if the first one met a process that was
/// ending.
const LOCAL_ATTEMPTS: u32 = 2;

/// A provider over HTTP.
pub(crate) struct Hosted {
    name: String,
    kind: ProviderKind,
    base: Url,
    headers: HeaderMap,
    /// Message for a missing key; `None` if calls can be made.
    key_missing: Option<String>,
    structured_output: Option<bool>,
    /// Maximum number of tokens of a response, for requests without a limit of their own.
    max_tokens: Option<u32>,
    /// Models, or schemas for a model, whose structured output was refused.
    unstructured: Mutex<BTreeSet<String>>,
    /// Models whose streams were refused.
    streamless: Mutex<BTreeSet<String>>,
    /// Changes that the requests of each model need.
    conceded: Mutex<BTreeMap<String, BTreeSet<Concession>>>,
    line: Line,
    /// Starts the server of kind `local`.
    local: Option<Arc<dyn LocalServer>>,
}

/// Inputs of one call to any provider.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) request: &'a Request,
    /// Contents of the images in the request, by path.
    pub(crate) images: &'a Images,
    /// Observer of deltas and waits.
    pub(crate) delta_sink: Option<&'a DeltaSink<'a>>,
}

impl<'a> Call<'a> {
    /// The observer of the response's text, if there is one.
    pub(crate) fn streaming(&self) -> Option<&'a DeltaSink<'a>> {
        self.delta_sink.filter(|delta_sink| delta_sink.is_streaming)
    }
}

impl Hosted {
    pub(crate) fn new(
        settings: &ProviderSettings,
        policy: TransportPolicy,
        redactor: Redactor,
    ) -> Result<Self, SettingsError> {
        let is_local = settings.kind == ProviderKind::Local;
        // For kind `local`, the base URL is the source of the weights.
        let base = if is_local { Url::parse(LOCAL_URL).ok() } else { settings.url() };
        let base = base.ok_or_else(|| SettingsError::BaseUrl { name: settings.name.clone() })?;
        // A model on this machine takes as long as the machine and its queue need.
        let timeout_ms = settings.timeout_ms.or(is_local.then_some(MAX_LOCAL_MS));
        let policy = settings.policy(policy);
        let tries = if is_local { policy.tries.min(LOCAL_ATTEMPTS) } else { policy.tries };
        Ok(Self {
            name: settings.name.clone(),
            kind: settings.kind,
            base: versioned(base, settings.kind),
            headers: headers(settings)?,
            key_missing: key_missing(settings),
            structured_output: if is_local { Some(true) } else { settings.structured_output },
            max_tokens: settings.max_tokens,
            unstructured: Mutex::new(BTreeSet::new()),
            streamless: Mutex::new(BTreeSet::new()),
            conceded: Mutex::default(),
            line: Line::new(TransportPolicy { tries, ..policy }, timeout_ms, redactor),
            local: settings.local.clone().filter(|_| is_local),
        })
    }

    /// Calls `model`. With a schema, the text of the response is already converted back to the form of the schema.
    pub(crate) async fn call(&self, model: &str, call: Call<'_>) -> Result<(Decoded, Vec<String>), Failed> {
        if let Some(message) = &self.key_missing {
            let message = message.clone();
            return Err(Failed { kind: FailedAs::Unauthorized, message, earlier: Vec::new() });
        }
        let Some(schema) = &call.request.schema else {
            return self.free(model, call).await;
        };
        let prepared = (!self.gave_up(model, schema)).then(|| match self.kind {
            ProviderKind::Local => dialect::verbatim(schema),
            kind => dialect::prepare(schema, Dialect::of(kind)),
        });
        match prepared {
            Some(Prepared { provider_schema: Some(provider_schema), reported, reversal }) => {
                self.structured(model, call, (schema, &provider_schema, reported, &reversal)).await
            }
            _ => self.instructed(model, call, schema).await,
        }
    }

    /// Calls a model without a schema. A server that cannot force a tool call is asked again without that.
    async fn free(&self, model: &str, call: Call<'_>) -> Result<(Decoded, Vec<String>), Failed> {
        let refusal = match self.send(model, call, None).await {
            Err(failed) if call.request.must_call.is_some() && self.may_be_about_forcing(&failed) => failed,
            other => return other,
        };
        let mut asked = call.request.clone();
        asked.must_call = None;
        let (decoded, later) = self.send(model, Call { request: &asked, ..call }, None).await?;
        let note = format!("the provider rejected `tool_choice`, so it was removed: {}", refusal.message);
        Ok((decoded, [refusal.earlier, vec![note], later].concat()))
    }

    /// True if the failure may mean that a tool call cannot be forced. The services name the refused member; other servers
    /// return 400 with any text.
    fn may_be_about_forcing(&self, failed: &Failed) -> bool {
        let FailedAs::Rejected(status) = failed.kind else { return false };
        let message = failed.message.to_lowercase();
        let is_named = ["tool_choice", "toolconfig", "tool_config"].iter().any(|name| message.contains(name));
        matches!(status, 400 | 422 | 501) && (self.kind == ProviderKind::OpenAiCompatible || is_named)
    }

    async fn structured(
        &self,
        model: &str,
        call: Call<'_>,
        (schema, provider_schema, reported, reversal): (&ResponseSchema, &ProviderSchema, bool, &Reversal),
    ) -> Result<(Decoded, Vec<String>), Failed> {
        let mut asked = call.request.clone();
        if reported {
            dialect::annotate(&mut asked, schema, reversal.wrapped);
        }
        let refusal = match self.send(model, Call { request: &asked, ..call }, Some(provider_schema)).await {
            Ok((mut decoded, failures)) => {
                decoded.text = reversal.apply(decoded.text);
                return Ok((decoded, failures));
            }
            Err(failed) => failed,
        };
        if !self.may_be_about_structure(&refusal) {
            return Err(refusal);
        }
        match self.instructed(model, call, schema).await {
            Ok((decoded, later)) => {
                self.lock().insert(self.memory(model, schema));
                let note =
                    format!("the provider rejected structured output, so it was turned off: {}", refusal.message);
                Ok((decoded, [refusal.earlier, vec![note], later].concat()))
            }
            // The request was refused without structured output too, so the first message, about the original request, is
            // reported.
            Err(again) if again.kind == refusal.kind => Err(refusal),
            Err(other) => Err(other),
        }
    }

    async fn instructed(
        &self,
        model: &str,
        call: Call<'_>,
        schema: &ResponseSchema,
    ) -> Result<(Decoded, Vec<String>), Failed> {
        let mut asked = call.request.clone();
        dialect::instruct(&mut asked, schema);
        self.send(model, Call { request: &asked, ..call }, None).await
    }

    /// True if the failure may mean that structured output is not supported. A server without it returns 400 with any text.
    /// The services that have it name it in the refusal: older models lack it, some lack it beside tools, and schemas have
    /// limits of size and depth.
    fn may_be_about_structure(&self, failed: &Failed) -> bool {
        let FailedAs::Rejected(status) = failed.kind else {
            return false;
        };
        if self.structured_output == Some(true) || !matches!(status, 400 | 422 | 501) {
            return false;
        }
        let named = ["schema", "response_format", "text.format", "output_config", "structured output"];
        let message = failed.message.to_lowercase();
        self.kind == ProviderKind::OpenAiCompatible || named.iter().any(|name| message.contains(name))
    }

    fn gave_up(&self, model: &str, schema: &ResponseSchema) -> bool {
        self.structured_output == Some(false) || self.lock().contains(&self.memory(model, schema))
    }

    /// Key under which a refusal is remembered. A server lacks structured output for a whole model; a service that has it
    /// refuses a single schema.
    fn memory(&self, model: &str, schema: &ResponseSchema) -> String {
        match self.kind {
            ProviderKind::OpenAiCompatible => model.to_owned(),
            _ => format!("{model} {}", schema.schema),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.unstructured.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn encode(&self, model: &str, call: Call<'_>, provider_schema: Option<&ProviderSchema>) -> Value {
        let id = format!("{}/{model}", self.name);
        let mut request = dialect::with_plain_tools(call.request, self.kind);
        if let (None, Some(most)) = (request.max_tokens, self.max_tokens) {
            request.to_mut().max_tokens = Some(most);
        }
        let ask = Ask { model, id: &id, request: &request, images: call.images, provider_schema };
        match self.kind {
            ProviderKind::Anthropic => anthropic::encode(ask),
            ProviderKind::OpenAi => openai_responses::encode(ask),
            ProviderKind::Gemini => gemini::encode(ask),
            ProviderKind::OpenAiChat => openai_chat::encode(ask, Flavor::OpenAi),
            _ => openai_chat::encode(ask, Flavor::Compatible),
        }
    }

    /// Sends one body. It is streamed if an observer is present, unless the server is known to refuse that.
    async fn send_body(&self, model: &str, call: Call<'_>, body: &Value) -> Result<(Decoded, Vec<String>), Failed> {
        let decode = |body: &Value| {
            let mut decoded = wire::decode(self.kind, body, call.request)?;
            // Only a model that calls tools continues from its reasoning.
            decoded.reasoning = decoded.reasoning.filter(|_| !call.request.tools.is_empty());
            Ok(decoded)
        };
        let url = endpoint(&self.base, self.kind, model);
        let wire = |url, body: &Value| self.wire(url, body, model);
        let mut earlier = Vec::new();
        if let Some(delta_sink) = call.streaming().filter(|_| !self.refuses_streams(model)) {
            let (url, asked) = stream::ask(self.kind, url.clone(), body.clone());
            let streaming = StreamSink { delta_sink, assembler: &|| stream::assembler(self.kind) };
            match self.line.call(&wire(url, &asked), &decode, call.delta_sink, Some(&streaming)).await {
                Err(failed) if self.may_be_about_streams(&failed, body) => {
                    earlier = failed.earlier;
                    earlier.push(format!("the provider rejected streaming, so it was turned off: {}", failed.message));
                }
                other => return other,
            }
        }
        call.delta_sink.inspect(|delta_sink| delta_sink.begin());
        let (decoded, later) = self.line.call(&wire(url, body), &decode, call.delta_sink, None).await?;
        if !earlier.is_empty() {
            self.streamless().insert(model.to_owned());
        }
        earlier.extend(later);
        Ok((decoded, earlier))
    }

    fn wire(&self, url: Url, body: &Value, model: &str) -> WireRequest {
        let local = self.local.as_ref().map(|server| (Arc::clone(server), model.to_owned()));
        WireRequest { url, headers: self.headers.clone(), body: body.to_string().into_bytes(), local }
    }

    /// True if the failure may mean that streaming is not supported. A server that cannot stream returns any text. The
    /// services that can stream name it in the refusal: some models cannot, and some accounts may not.
    fn may_be_about_streams(&self, failed: &Failed, body: &Value) -> bool {
        let FailedAs::Rejected(status) = failed.kind else {
            return false;
        };
        if Concession::asked_by(failed, self.kind, body).is_some() {
            return false;
        }
        let is_named = failed.message.to_lowercase().contains("stream");
        match self.kind {
            ProviderKind::OpenAiCompatible => matches!(status, 400 | 404 | 405 | 415 | 422) || is_named,
            _ => is_named,
        }
    }

    fn refuses_streams(&self, model: &str) -> bool {
        self.streamless().contains(model)
    }

    fn streamless(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.streamless.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Adds the API version to a URL without a path.
fn versioned(mut base: Url, kind: ProviderKind) -> Url {
    if base.path().trim_matches('/').is_empty() {
        base.set_path(if kind == ProviderKind::Gemini { "/v1beta" } else { "/v1" });
    }
    base
}

/// The URL of a call. A base URL that already names the endpoint stays unchanged.
fn endpoint(base: &Url, kind: ProviderKind, model: &str) -> Url {
    let tail = match kind {
        ProviderKind::Anthropic => "messages".to_owned(),
        ProviderKind::OpenAi => "responses".to_owned(),
        ProviderKind::Gemini => format!("models/{}:generateContent", model.trim_start_matches("models/")),
        _ => "chat/completions".to_owned(),
    };
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    if !path.ends_with(&format!("/{tail}")) {
        url.set_path(&format!("{path}/{tail}"));
    }
    url
}

fn headers(settings: &ProviderSettings) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = &settings.api_key {
        let (name, value) = match settings.kind {
            ProviderKind::Anthropic => ("x-api-key", key.expose().trim().to_owned()),
            ProviderKind::Gemini => ("x-goog-api-key", key.expose().trim().to_owned()),
            _ => ("authorization", format!("Bearer {}", key.expose().trim())),
        };
        headers.insert(HeaderName::from_static(name), secret_value(settings, "api_key", &value)?);
    }
    if settings.kind == ProviderKind::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
    }
    for (name, value) in &settings.headers {
        let bad = || SettingsError::Header { name: settings.name.clone(), header: name.clone() };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        headers.insert(header, secret_value(settings, name, Secret::expose(value))?);
    }
    Ok(headers)
}

fn secret_value(settings: &ProviderSettings, header: &str, value: &str) -> Result<HeaderValue, SettingsError> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| SettingsError::Header { name: settings.name.clone(), header: header.to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

fn key_missing(settings: &ProviderSettings) -> Option<String> {
    let remedy = settings.key_remedy()?;
    Some(format!("provider `{}` has no key; {remedy}", settings.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_completed_however_much_of_it_is_given() {
        let cases = [
            (ProviderKind::Anthropic, "http://h:1", "http://h:1/v1/messages"),
            (ProviderKind::Anthropic, "http://h:1/v1", "http://h:1/v1/messages"),
            (ProviderKind::Anthropic, "http://h:1/v1/messages", "http://h:1/v1/messages"),
            (ProviderKind::OpenAi, "http://h:1/v1/", "http://h:1/v1/responses"),
            (ProviderKind::OpenAiChat, "http://h:1", "http://h:1/v1/chat/completions"),
            (ProviderKind::OpenAiCompatible, "http://h:1/api/paas", "http://h:1/api/paas/chat/completions"),
            (ProviderKind::Gemini, "http://h:1/", "http://h:1/v1beta/models/m:generateContent"),
            (ProviderKind::Gemini, "http://h:1/v1beta?x=1", "http://h:1/v1beta/models/m:generateContent?x=1"),
        ];
        for (kind, base, expected) in cases {
            let base = versioned(Url::parse(base).expect("a URL"), kind);
            assert_eq!(endpoint(&base, kind, "m").as_str(), expected);
        }
    }
}
