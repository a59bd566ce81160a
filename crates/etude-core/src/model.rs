//! Requests to a model and its responses, without any provider's wire format.

use std::fmt;
use std::sync::Arc;

crate::words! {
    /// A capability level; the runtime maps it to an actual model (protocol section 5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub enum Tier {
        /// Fast and cheap: classification, extraction.
        Lite = "lite",
        /// General purpose.
        #[default]
        Standard = "standard",
        /// Deep reasoning.
        Reasoning = "reasoning",
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A model call, with the whole conversation: calls are stateless.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// Capability level of the model; the configuration names the models of a tier.
    pub tier: Tier,
    /// The system prompt; `None` if there is none.
    pub system: Option<String>,
    /// The conversation so far; never empty, and the last message is not the assistant's.
    pub messages: Vec<Message>,
    /// Schema of the response, which must then be JSON.
    pub schema: Option<ResponseSchema>,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
    /// The name of the tool that the model must call, where its provider can force that.
    pub must_call: Option<String>,
    /// Sampling temperature; `None`: the provider's default.
    pub temperature: Option<f64>,
    /// Maximum number of tokens of the response.
    pub max_tokens: Option<u32>,
    /// True to ask the provider to cache the unchanging start of the conversation.
    pub cache_prompt: bool,
}

/// The JSON Schema of a structured response.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseSchema {
    /// A name for the provider: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// The schema, with every reference to another file resolved.
    pub schema: Arc<serde_json::Value>,
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name for the provider: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// Description of the tool, for the model.
    pub description: String,
    /// JSON Schema (an object) of its arguments.
    pub parameters: Arc<serde_json::Value>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The side that the message is from.
    pub role: Role,
    /// Content of the message, in order.
    pub parts: Vec<Part>,
}

impl Message {
    /// A message with one text, as a user sends it.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![Part::Text(text.into())] }
    }

    /// A message with one text, as a model answers.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, parts: vec![Part::Text(text.into())] }
    }
}

/// Sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user, or etude on the user's behalf.
    User,
    /// The model, with text and calls of tools.
    Assistant,
    /// Results of the tools that the model called.
    Tool,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text that one side wrote, as the provider transmits it.
    Text(String),
    /// An image file inside the app, as a path relative to the app's directory.
    Image {
        /// Path relative to the app's directory; the file is read when the request is sent.
        path: String,
    },
    /// A tool call that the model requests.
    ToolCall {
        /// The provider's id for the call.
        id: String,
        /// The tool's name as the model wrote it: it may not be in [`Request::tools`].
        name: String,
        /// Arguments as the model wrote them: JSON text, not checked.
        arguments: String,
    },
    /// The result of a call that the model made in an earlier message.
    ToolResult {
        /// The provider's id of the call with this result.
        id: String,
        /// The result, for the model to read.
        content: String,
    },
    /// The model's reasoning before and between the rest of the message.
    Reasoning(Reasoning),
}

/// Reasoning of a model, in the format of its provider. Only the model that wrote it can read it, and receives it back
/// unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoning {
    /// `provider/model`, as configured; the reasoning is sent to no other model.
    pub model: String,
    /// JSON text that only the provider's wire format interprets.
    pub json: Arc<str>,
}

/// A complete response, streamed or not.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelResponse {
    /// The text of the response; empty if there was none.
    pub text: String,
    /// Tool calls that the model requests, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The reason why the response ended.
    pub stop: Stop,
    /// Tokens and US dollars of the call.
    pub usage: Usage,
    /// `provider/model`, as configured.
    pub model: String,
    /// Reasoning that the model needs back with the next turn of the conversation.
    pub reasoning: Option<Reasoning>,
    /// Failed attempts before this response, as sentences.
    pub transport_failures: Vec<String>,
}

/// An event while a response arrives, for people who wait. The [`ModelResponse`] itself arrives as a whole, and does
/// not depend on the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The next piece of the response's text, as the provider writes it.
    Text(&'a str),
    /// The model is asked again, and the text received so far is void.
    Restarted,
    /// The transport waits before its next attempt.
    Waiting(&'a TransportWait),
}

/// A wait between two attempts of the transport at one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportWait {
    /// HTTP status of the failed attempt, if it had one.
    pub status: Option<u16>,
    /// Reason of the failure, as a sentence without secrets.
    pub reason: String,
    /// Length of the wait in milliseconds.
    pub wait_ms: u64,
    /// Number of the attempt that follows; the first attempt is 1.
    pub attempt: u32,
    /// Maximum number of attempts of the call.
    pub max_attempts: u32,
}

/// A tool call of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The provider's id for the call.
    pub id: String,
    /// The tool's name as the model wrote it: it may not be among the available tools.
    pub name: String,
    /// Arguments as the model wrote them: JSON text, not checked.
    pub arguments: String,
}

/// The reason why a response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The model finished its response.
    End,
    /// The model waits for its tool calls.
    ToolCalls,
    /// The response was cut off at its maximum length.
    Length,
    /// The model or its provider declined; the reason as given, if any.
    Refusal(String),
}

/// Tokens and cost of model calls.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Number of responses of models, rejected ones included.
    pub calls: u64,
    /// Tokens read, those from a cache included.
    pub input_tokens: u64,
    /// Tokens written, those of reasoning included.
    pub output_tokens: u64,
    /// Tokens of `input_tokens` that came from a cache.
    pub cached_tokens: u64,
    /// Tokens of `output_tokens` that were reasoning.
    pub reasoning_tokens: u64,
    /// Cost in US dollars; `None` if the price of the model is unknown.
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Adds the usage of another call. An unknown cost counts as zero, and a sum without any known cost stays unknown.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cached_tokens += other.cached_tokens;
        self.reasoning_tokens += other.reasoning_tokens;
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        };
    }
}

/// Reason why a model call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// The class, which decides the kind of the run's failure.
    pub kind: CallFailureKind,
    /// One sentence fragment for the user, free of secrets.
    pub message: String,
    /// `provider/model`, if a model was chosen.
    pub model: Option<String>,
    /// The failed attempts before the last, as sentences.
    pub transport_failures: Vec<String>,
}

/// Kinds of [`CallFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailureKind {
    /// The user's environment is at fault: no key, a refused key (401), no model configured, no server listening.
    Environment,
    /// The provider refused the request or kept failing: 400, 403, 404, attempts exhausted, an unreadable response.
    Model,
    /// A recorded model has no recording that fits; the message names the first differing field.
    NotRecorded,
}
