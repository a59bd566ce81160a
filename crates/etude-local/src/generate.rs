//! Generation of a response to a request.

mod decode;
mod response;
mod wire;

use std::path::Path;
use std::time::{Duration, Instant};

use etude_core::model::{ModelResponse, Part, Request, Role, Stop, Usage};
use serde_json::Value;

use crate::gguf::{Gguf, OpenError};
use crate::grammar::{GrammarError, Grammars};
use crate::network::Network;
use crate::sample::Sampler;
use crate::template::{ChatTemplate, TemplateError};
use crate::vocabulary::Vocabulary;
use decode::Decoding;

/// Maximum number of tokens of a response to a request without a limit.
pub const DEFAULT_MAX_TOKENS: u32 = 1024;

/// The temperature of a second attempt. It follows if the first answer violates a keyword that the grammar does not know, or
/// repeats the previous answer: without chance, the second one would be the same.
const SECOND_TEMPERATURE: f64 = 0.7;

/// A loaded model.
pub struct Model {
    pub(crate) network: Network,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) grammars: Grammars,
    template: ChatTemplate,
    label: String,
}

/// Options of a request that etude itself never sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Texts that end a free text; the output stops before them. JSON is never cut by them.
    pub stop: Vec<String>,
    /// The random seed for a temperature above 0.
    pub seed: Option<u64>,
}

/// Failure of a generation: the request gets no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The conversation cannot be rendered for the model.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The conversation is too long.
    #[error(
        "the prompt has {prompt} tokens and the local model's context {context}; shorten the prompt, raise the \
         context, or map the tier to a larger model"
    )]
    TooLong {
        /// Number of tokens of the prompt.
        prompt: usize,
        /// Maximum number of tokens of prompt and response together.
        context: usize,
    },
    /// A schema cannot be turned into a grammar.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// The request was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The model or its computation failed.
    #[error("the local model failed: {0}")]
    Engine(String),
}

/// Durations of the parts of a call, for measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time of reading the prompt.
    pub prompt: Duration,
    /// Number of tokens of the prompt that were read, without those that were known from the previous call.
    pub prompt_tokens: usize,
    /// Time of writing the response.
    pub response: Duration,
    /// Number of tokens of the response, including those that the grammar forced.
    pub response_tokens: usize,
    /// Number of tokens of the response that the grammar forced.
    pub forced_tokens: usize,
}

impl Model {
    /// Loads the weights in `path`, for conversations of at most `context_tokens`; answers name the model `id`.
    ///
    /// # Errors
    /// The file cannot be read, or has a model that is not supported.
    pub fn load(path: &Path, id: &str, context_tokens: usize) -> Result<Self, OpenError> {
        let mut gguf = Gguf::open(path)?;
        let unsupported = |why: String| OpenError::Unsupported { path: path.to_owned(), why };
        let template = gguf.text("tokenizer.chat_template").and_then(ChatTemplate::detect);
        let template = template.ok_or_else(|| unsupported("its chat template is not ChatML".into()))?;
        let vocabulary = Vocabulary::load(&gguf).map_err(unsupported)?;
        let grammars = Grammars::new(vocabulary.environment()).map_err(unsupported)?;
        gguf.shape().map_err(|error| unsupported(error.to_string()))?;
        let network = Network::load(&mut gguf, context_tokens)
            .map_err(|error| OpenError::Format { path: path.to_owned(), why: error.to_string() })?;
        Ok(Self { network, vocabulary, grammars, template, label: format!("local/{id}") })
    }

    /// Answers `request`. `is_cancelled` is called before each token. The response's text satisfies the request's schema, and its
    /// tool calls satisfy those of their tools, unless [`Stop::Length`] marks the response as cut off.
    ///
    /// # Errors
    /// See [`GenerateError`].
    pub fn generate(
        &mut self,
        request: &Request,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<ModelResponse, GenerateError> {
        self.run(request, &Options::default(), is_cancelled, &|_| ()).map(|(response, _)| response)
    }

    /// Like [`Model::generate`], and emits the text as it grows if no second attempt can replace it: without a schema, tools or
    /// an earlier response that could be repeated. Otherwise nothing is emitted.
    ///
    /// # Errors
    /// See [`GenerateError`].
    pub fn generate_streaming(
        &mut self,
        request: &Request,
        options: &Options,
        is_cancelled: &dyn Fn() -> bool,
        on_delta: &dyn Fn(&str),
    ) -> Result<ModelResponse, GenerateError> {
        self.run(request, options, is_cancelled, on_delta).map(|(response, _)| response)
    }

    /// Like [`Model::generate`], with the durations.
    ///
    /// # Errors
    /// See [`GenerateError`].
    pub fn generate_timed(
        &mut self,
        request: &Request,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(ModelResponse, Timing), GenerateError> {
        self.run(request, &Options::default(), is_cancelled, &|_| ())
    }

    fn run(
        &mut self,
        request: &Request,
        options: &Options,
        is_cancelled: &dyn Fn() -> bool,
        on_delta: &dyn Fn(&str),
    ) -> Result<(ModelResponse, Timing), GenerateError> {
        let temperature = request.temperature.unwrap_or(0.0);
        let seed = options.seed.unwrap_or_else(Sampler::seed);
        let sampler = Sampler::new(temperature, seed);
        let (mut response, timing) = self.attempt(request, &options.stop, sampler, is_cancelled, on_delta)?;
        if is_broken(&response, request) || (request.temperature.is_none() && is_repeated(&response, request)) {
            let sampler = Sampler::new(temperature.max(SECOND_TEMPERATURE), seed.wrapping_add(1));
            let (second, _) = self.attempt(request, &options.stop, sampler, is_cancelled, &|_| ())?;
            let mut usage = response.usage;
            usage.add(&second.usage);
            if !is_broken(&second, request) {
                response = second;
            }
            response.usage = usage;
        }
        Ok((response, timing))
    }

    fn attempt(
        &mut self,
        request: &Request,
        stop: &[String],
        sampler: Sampler,
        is_cancelled: &dyn Fn() -> bool,
        on_delta: &dyn Fn(&str),
    ) -> Result<(ModelResponse, Timing), GenerateError> {
        let prompt = self.vocabulary.encode(&self.template.render(request)?);
        let context = self.network.context();
        if prompt.len() >= context {
            return Err(GenerateError::TooLong { prompt: prompt.len(), context });
        }
        let limit = usize::try_from(request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)).unwrap_or(usize::MAX);
        let room = limit.min(context - prompt.len());
        let prompt_tokens = prompt.len();
        let start = Instant::now();
        let mut decoding = Decoding::new(self, prompt, room, sampler, is_cancelled);
        let forced = request.must_call.as_ref().and_then(|name| request.tools.iter().find(|tool| tool.name == *name));
        let is_whole = match (&request.schema, forced) {
            (Some(schema), _) => decoding.bound(|grammars| grammars.response(&schema.schema, &request.tools))?,
            (None, Some(tool)) => decoding.bound(|grammars| grammars.call(std::slice::from_ref(tool)))?,
            (None, None) => decoding.free(&request.tools, stop, can_stream(request).then_some(on_delta))?,
        };
        let timing = decoding.timing(start.elapsed());
        let written = decoding.finish();
        let usage = Usage {
            calls: 1,
            input_tokens: prompt_tokens as u64,
            output_tokens: written.tokens as u64,
            cached_tokens: written.reused as u64,
            cost_usd: Some(0.0),
            ..Usage::default()
        };
        let response = response::build(&written.text, is_whole, request, usage, self.label.clone());
        Ok((response, timing))
    }
}

/// True if the first attempt is final.
fn can_stream(request: &Request) -> bool {
    let has_responses = request.messages.iter().any(|message| message.role == Role::Assistant);
    request.schema.is_none() && request.tools.is_empty() && (request.temperature.is_some() || !has_responses)
}

/// True for a response that equals the previous one. Without chance, a small model repeats a failed call, whatever the result was,
/// until its turns are used up.
fn is_repeated(response: &ModelResponse, request: &Request) -> bool {
    let Some(last) = request.messages.iter().rev().find(|message| message.role == Role::Assistant) else {
        return false;
    };
    let called = last.parts.iter().filter_map(|part| match part {
        Part::ToolCall { name, arguments, .. } => Some((name, arguments)),
        _ => None,
    });
    let is_text = |part: &Part| matches!(part, Part::Text(text) if text.trim() == response.text);
    let calls = response.tool_calls.iter().map(|call| (&call.name, &call.arguments));
    calls.eq(called) && (!response.tool_calls.is_empty() || last.parts.iter().any(is_text))
}

/// True for a complete answer that violates the schema: the grammar ignores some keywords.
fn is_broken(response: &ModelResponse, request: &Request) -> bool {
    let (Some(schema), Stop::End) = (&request.schema, &response.stop) else { return false };
    let Ok(validator) = jsonschema::validator_for(&schema.schema) else { return false };
    serde_json::from_str::<Value>(&response.text).map_or(true, |value| !validator.is_valid(&value))
}

#[cfg(test)]
mod tests {
    use etude_core::model::{Message, ToolCall};

    use super::*;

    #[test]
    fn a_response_is_repeated_if_it_is_the_last_one() {
        let call = |path: &str| {
            let arguments = format!("{{\"path\": \"{path}\"}}");
            ToolCall { id: "call_1".into(), name: "Read".into(), arguments }
        };
        let of = |calls: Vec<ToolCall>, text: &str| ModelResponse {
            text: text.into(),
            tool_calls: calls,
            stop: Stop::End,
            usage: Usage::default(),
            model: String::new(),
            reasoning: None,
            transport_failures: Vec::new(),
        };
        let asked = |part: Part| Request {
            messages: vec![Message { role: Role::Assistant, parts: vec![part] }, Message::user("go on")],
            ..Request::default()
        };
        let ToolCall { id, name, arguments } = call("a");
        let read = asked(Part::ToolCall { id, name, arguments });
        assert!(is_repeated(&of(vec![call("a")], ""), &read));
        assert!(!is_repeated(&of(vec![call("b")], ""), &read));
        assert!(!is_repeated(&of(Vec::new(), "done"), &read));
        let said = asked(Part::Text("done\n".into()));
        assert!(is_repeated(&of(Vec::new(), "done"), &said));
        assert!(!is_repeated(&of(vec![call("a")], "done"), &said));
        assert!(!is_repeated(&of(Vec::new(), "done"), &Request::default()));
    }
}
