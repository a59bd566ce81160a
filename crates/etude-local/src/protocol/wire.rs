//! Requests and answers as they go through the socket: types of their own, so that a change inside the program cannot
//! change what another version of it reads.

use std::io;
use std::sync::Arc;

use etude_core::model::{
    Message, ModelResponse, Part, Request, ResponseSchema, Role, Stop, Tier, Tool, ToolCall, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub(crate) enum Call {
    /// For an answer. `client` is who asks: clients take turns.
    Generate { client: String, request: Box<WireRequest> },
    /// For nothing; the answer says what is served.
    Status,
    /// To end as soon as nothing is under way.
    Stop,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To `Generate`.
    Answer { answer: WireAnswer },
    /// To `Generate`, if there is no answer.
    Failed { kind: FailureKind, message: String },
    /// To `Status`.
    Status(Status),
    /// To `Stop`.
    Stopping,
    /// To `Generate`, if the process is about to end: another one has to be started.
    Ending,
}

/// What a model process is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The model's name.
    pub model: String,
    /// The process.
    pub process: u32,
    /// True once the weights are in memory.
    pub is_loaded: bool,
    /// Calls that wait or are under way, without those that were given up while they waited.
    pub calls: usize,
}

/// Who has to do something about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// Anyone who set the machine up: the weights are missing or broken.
    Environment,
    /// Anyone who wrote the request: it is too long, or has what the model cannot read.
    Request,
    /// No one: the model's machinery failed.
    Engine,
}

/// What can be sent: the calls and the replies.
pub(crate) trait Frame: Sized {
    /// Its JSON.
    fn to_json(&self) -> io::Result<Vec<u8>>;
    /// From its JSON.
    fn from_json(text: &[u8]) -> io::Result<Self>;
}

impl Frame for Call {
    fn to_json(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    fn from_json(text: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(text)?)
    }
}

impl Frame for Reply {
    fn to_json(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    fn from_json(text: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(text)?)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireRequest {
    tier: WireTier,
    system: Option<String>,
    messages: Vec<WireMessage>,
    schema: Option<WireSchema>,
    tools: Vec<WireTool>,
    #[serde(default)]
    must_call: Option<String>,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireTier {
    Lite,
    Standard,
    Reasoning,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireSchema {
    name: String,
    schema: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireTool {
    name: String,
    description: String,
    parameters: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireMessage {
    role: WireRole,
    parts: Vec<WirePart>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireRole {
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
enum WirePart {
    Text { text: String },
    Image { path: String },
    ToolCall { id: String, name: String, arguments: String },
    ToolResult { id: String, content: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireAnswer {
    text: String,
    tool_calls: Vec<WireCall>,
    stop: WireStop,
    usage: WireUsage,
    model: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireCall {
    id: String,
    name: String,
    arguments: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireStop {
    End,
    ToolCalls,
    Length,
    Refusal(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct WireUsage {
    calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
}

impl From<&Request> for WireRequest {
    fn from(request: &Request) -> Self {
        let tier = match request.tier {
            Tier::Lite => WireTier::Lite,
            Tier::Standard => WireTier::Standard,
            Tier::Reasoning => WireTier::Reasoning,
        };
        let schema = request.schema.as_ref();
        Self {
            tier,
            system: request.system.clone(),
            messages: request.messages.iter().map(WireMessage::from).collect(),
            schema: schema.map(|schema| WireSchema { name: schema.name.clone(), schema: (*schema.schema).clone() }),
            tools: request.tools.iter().map(WireTool::from).collect(),
            must_call: request.must_call.clone(),
            temperature: request.temperature,
            max_tokens: request.max_tokens,
        }
    }
}

impl From<WireRequest> for Request {
    fn from(wire: WireRequest) -> Self {
        let tier = match wire.tier {
            WireTier::Lite => Tier::Lite,
            WireTier::Standard => Tier::Standard,
            WireTier::Reasoning => Tier::Reasoning,
        };
        let tool = |tool: WireTool| Tool {
            name: tool.name,
            description: tool.description,
            parameters: Arc::new(tool.parameters),
        };
        Self {
            tier,
            system: wire.system,
            messages: wire.messages.into_iter().map(Message::from).collect(),
            schema: wire.schema.map(|wire| ResponseSchema { name: wire.name, schema: Arc::new(wire.schema) }),
            tools: wire.tools.into_iter().map(tool).collect(),
            must_call: wire.must_call,
            temperature: wire.temperature,
            max_tokens: wire.max_tokens,
            cache_prompt: false,
        }
    }
}

impl From<&Tool> for WireTool {
    fn from(tool: &Tool) -> Self {
        let parameters = (*tool.parameters).clone();
        Self { name: tool.name.clone(), description: tool.description.clone(), parameters }
    }
}

impl From<&Message> for WireMessage {
    fn from(message: &Message) -> Self {
        let role = match message.role {
            Role::User => WireRole::User,
            Role::Assistant => WireRole::Assistant,
            Role::Tool => WireRole::Tool,
        };
        let parts = message.parts.iter().cloned().map(|part| match part {
            Part::Text(text) => WirePart::Text { text },
            Part::Image { path } => WirePart::Image { path },
            Part::ToolCall { id, name, arguments } => WirePart::ToolCall { id, name, arguments },
            Part::ToolResult { id, content } => WirePart::ToolResult { id, content },
        });
        Self { role, parts: parts.collect() }
    }
}

impl From<WireMessage> for Message {
    fn from(wire: WireMessage) -> Self {
        let role = match wire.role {
            WireRole::User => Role::User,
            WireRole::Assistant => Role::Assistant,
            WireRole::Tool => Role::Tool,
        };
        let parts = wire.parts.into_iter().map(|part| match part {
            WirePart::Text { text } => Part::Text(text),
            WirePart::Image { path } => Part::Image { path },
            WirePart::ToolCall { id, name, arguments } => Part::ToolCall { id, name, arguments },
            WirePart::ToolResult { id, content } => Part::ToolResult { id, content },
        });
        Self { role, parts: parts.collect() }
    }
}

impl From<ModelResponse> for WireAnswer {
    fn from(answer: ModelResponse) -> Self {
        let stop = match answer.stop {
            Stop::End => WireStop::End,
            Stop::ToolCalls => WireStop::ToolCalls,
            Stop::Length => WireStop::Length,
            Stop::Refusal(why) => WireStop::Refusal(why),
        };
        let usage = WireUsage {
            calls: answer.usage.calls,
            input_tokens: answer.usage.input_tokens,
            output_tokens: answer.usage.output_tokens,
            cached_tokens: answer.usage.cached_tokens,
        };
        let calls = answer.tool_calls.into_iter();
        let calls = calls.map(|call| WireCall { id: call.id, name: call.name, arguments: call.arguments });
        Self { text: answer.text, tool_calls: calls.collect(), stop, usage, model: answer.model }
    }
}

impl From<WireAnswer> for ModelResponse {
    fn from(wire: WireAnswer) -> Self {
        let stop = match wire.stop {
            WireStop::End => Stop::End,
            WireStop::ToolCalls => Stop::ToolCalls,
            WireStop::Length => Stop::Length,
            WireStop::Refusal(why) => Stop::Refusal(why),
        };
        // What runs on the user's own machine has no price.
        let usage = Usage {
            calls: wire.usage.calls,
            input_tokens: wire.usage.input_tokens,
            output_tokens: wire.usage.output_tokens,
            cached_tokens: wire.usage.cached_tokens,
            cost_usd: Some(0.0),
            ..Usage::default()
        };
        let calls = wire.tool_calls.into_iter();
        let calls = calls.map(|call| ToolCall { id: call.id, name: call.name, arguments: call.arguments });
        Self {
            text: wire.text,
            tool_calls: calls.collect(),
            stop,
            usage,
            model: wire.model,
            transport_failures: vec![],
        }
    }
}
