//! Chat templates: conversations in the form on which a model was trained.

use etude_core::model::{Message, Part, Request, Role, Tool};
use serde_json::{Value, json};

/// The mark that begins a tool call.
pub(crate) const CALL_START: &str = "<tool_call>";
pub(crate) const CALL_END: &str = "</tool_call>";

const TURN_START: &str = "<|im_start|>";
const TURN_END: &str = "<|im_end|>";

/// A part of a rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Foreign text, in which no character sequence is a control token.
    Text(String),
    /// A control token of the template itself.
    Mark(&'static str),
}

/// Reason why a conversation cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The conversation has an image.
    #[error(
        "the local model reads text only, and the request has the image `{0}`; map the tier to a model that reads images"
    )]
    Image(String),
}

/// The chat template on which a model was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatTemplate {
    /// ChatML in the form of Qwen2.5, with tools.
    Qwen,
    /// ChatML in the form of SmolLM2. The model was not trained on tools; they are described to it as to Qwen.
    SmolLm,
}

impl ChatTemplate {
    /// The default system prompt: models answer worse without the one of their training.
    const fn default_system(self) -> &'static str {
        match self {
            Self::Qwen => "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
            Self::SmolLm => "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
        }
    }

    /// Detects the template from the template program in a weights file.
    pub(crate) fn detect(program: &str) -> Option<Self> {
        if !program.contains(TURN_START) {
            return None;
        }
        Some(if program.contains("<tools>") { Self::Qwen } else { Self::SmolLm })
    }

    /// Renders `request` up to the point where the model answers.
    pub(crate) fn render(self, request: &Request) -> Result<Vec<Piece>, TemplateError> {
        let mut out = Out::default();
        let mut system = request.system.clone().unwrap_or_else(|| self.default_system().to_owned());
        if let Some(schema) = &request.schema {
            system.push_str("\n\nAnswer with nothing but JSON that satisfies this JSON Schema:\n");
            system.push_str(&schema.schema.to_string());
        }
        out.open("system");
        out.text(&system);
        if !request.tools.is_empty() {
            out.tools(&request.tools);
        }
        out.close();
        let mut previous = None;
        for (at, message) in request.messages.iter().enumerate() {
            let next = request.messages.get(at + 1).map(|message| message.role);
            out.message(message, previous, next)?;
            previous = Some(message.role);
        }
        out.open("assistant");
        Ok(out.pieces)
    }
}

#[derive(Default)]
struct Out {
    pieces: Vec<Piece>,
}

impl Out {
    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn mark(&mut self, mark: &'static str) {
        self.pieces.push(Piece::Mark(mark));
    }

    fn open(&mut self, role: &str) {
        self.mark(TURN_START);
        self.text(role);
        self.text("\n");
    }

    fn close(&mut self) {
        self.mark(TURN_END);
        self.text("\n");
    }

    fn tools(&mut self, tools: &[Tool]) {
        self.text(
            "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided \
             with function signatures within <tools></tools> XML tags:\n<tools>",
        );
        for tool in tools {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": &*tool.parameters});
            self.text("\n");
            self.text(&spaced(&json!({"type": "function", "function": function})));
        }
        self.text(
            "\n</tools>\n\nFor each function call, return a json object with function name and arguments within ",
        );
        self.mark(CALL_START);
        self.mark(CALL_END);
        self.text(" XML tags:\n");
        self.mark(CALL_START);
        self.text("\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n");
        self.mark(CALL_END);
    }

    /// Adjacent messages of tools share one turn.
    fn message(&mut self, message: &Message, previous: Option<Role>, next: Option<Role>) -> Result<(), TemplateError> {
        match message.role {
            Role::User => self.open("user"),
            Role::Assistant => self.open("assistant"),
            Role::Tool if previous != Some(Role::Tool) => {
                self.mark(TURN_START);
                self.text("user");
            }
            Role::Tool => {}
        }
        let mut is_first = true;
        for part in &message.parts {
            match part {
                Part::Text(text) => self.text(text),
                Part::Image { path } => return Err(TemplateError::Image(path.clone())),
                Part::ToolCall { name, arguments, .. } => {
                    self.text(if is_first { "" } else { "\n" });
                    self.mark(CALL_START);
                    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments.as_str()));
                    let call = json!({"name": name, "arguments": arguments});
                    self.text(&format!("\n{}\n", spaced(&call)));
                    self.mark(CALL_END);
                }
                Part::Reasoning(_) => continue,
                Part::ToolResult { content, .. } => {
                    self.text(&format!("\n<tool_response>\n{content}\n</tool_response>"));
                }
            }
            is_first = false;
        }
        if message.role != Role::Tool || next != Some(Role::Tool) {
            self.close();
        }
        Ok(())
    }
}

/// JSON with a space after each comma and colon, as in the models' training.
pub(crate) fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests;
