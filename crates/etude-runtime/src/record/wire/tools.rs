//! What agents were offered, and what their tool calls gave.

use std::sync::Arc;

use etude_core::model::Tool;
use etude_core::tool::{Offer, OfferedTool, ToolCalling, ToolError, ToolReply, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Serialize, Deserialize)]
pub(super) struct OfferBody {
    tools: Vec<ToolBody>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    context: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calling: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ToolBody {
    name: String,
    description: String,
    parameters: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exclusive: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    kept: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval_key: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ReplyBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    /// Class, code and message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<(String, String, String)>,
    /// What was enforced on the program that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    /// Key and question of a call that was held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<(String, String)>,
    /// The answer is for this one call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    once: bool,
}

impl OfferBody {
    pub(super) fn of(offer: &Offer) -> Self {
        let tool = |offered: &OfferedTool| ToolBody {
            name: offered.tool.name.clone(),
            description: offered.tool.description.clone(),
            parameters: (*offered.tool.parameters).clone(),
            exclusive: offered.is_exclusive,
            kept: offered.is_kept,
            approval_key: offered.approval_key.clone(),
        };
        Self {
            tools: offer.tools.iter().map(tool).collect(),
            context: offer.context.clone(),
            window: offer.window_tokens,
            problems: offer.problems.clone(),
            model: offer.model.clone(),
            calling: (offer.tool_calling != ToolCalling::Hard).then(|| offer.tool_calling.word().to_owned()),
        }
    }

    pub(super) fn into_offer(self) -> Offer {
        let tool = |body: ToolBody| OfferedTool {
            tool: Tool { name: body.name, description: body.description, parameters: Arc::new(body.parameters) },
            is_exclusive: body.exclusive,
            is_kept: body.kept,
            approval_key: body.approval_key,
        };
        Offer {
            tools: self.tools.into_iter().map(tool).collect(),
            context: self.context,
            window_tokens: self.window,
            problems: self.problems,
            model: self.model,
            tool_calling: self.calling.as_deref().and_then(ToolCalling::from_word).unwrap_or_default(),
        }
    }
}

impl ReplyBody {
    pub(super) fn of(reply: &ToolReply) -> Self {
        match reply {
            ToolReply::Held { key, question, is_once } => {
                let held = Some((key.clone(), question.clone()));
                Self { result: None, error: None, sandbox: None, held, once: *is_once }
            }
            ToolReply::Done(done) => {
                let error = done.error.as_ref().map(|e| (e.class.clone(), e.code.clone(), e.message.clone()));
                let (result, sandbox) = (Some(done.content.clone()), done.sandbox.clone());
                Self { result, error, sandbox, held: None, once: false }
            }
        }
    }

    pub(super) fn into_reply(self) -> Option<ToolReply> {
        match (self.result, self.held) {
            (Some(content), None) => {
                let error = self.error.map(|(class, code, message)| ToolError { class, code, message });
                Some(ToolReply::Done(ToolResult { content, error, sandbox: self.sandbox }))
            }
            (None, Some((key, question))) => Some(ToolReply::Held { key, question, is_once: self.once }),
            _ => None,
        }
    }
}
