//! Recorded forms of agents' tool lists and of the results of tool calls.

use std::sync::Arc;

use etude_core::model::Tool;
use etude_core::tool::{AvailableTool, ErrorClass, ToolCalling, ToolError, ToolList, ToolReply, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Serialize, Deserialize)]
pub(super) struct ToolListBody {
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
    pipeline: bool,
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
    /// Restrictions that the sandbox enforced on the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    /// Key and question of a call that waits for approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<(String, String)>,
    /// True if the approval is for this one call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    once: bool,
}

impl ToolListBody {
    pub(super) fn of(tool_list: &ToolList) -> Self {
        let tool = |available: &AvailableTool| ToolBody {
            name: available.tool.name.clone(),
            description: available.tool.description.clone(),
            parameters: (*available.tool.parameters).clone(),
            pipeline: available.is_pipeline,
            exclusive: available.is_exclusive,
            kept: available.is_kept,
            approval_key: available.approval_key.clone(),
        };
        Self {
            tools: tool_list.tools.iter().map(tool).collect(),
            context: tool_list.context.clone(),
            window: tool_list.window_tokens,
            problems: tool_list.problems.clone(),
            model: tool_list.model.clone(),
            calling: (tool_list.tool_calling != ToolCalling::Hard).then(|| tool_list.tool_calling.word().to_owned()),
        }
    }

    pub(super) fn into_tool_list(self) -> ToolList {
        let tool = |body: ToolBody| AvailableTool {
            tool: Tool { name: body.name, description: body.description, parameters: Arc::new(body.parameters) },
            is_pipeline: body.pipeline,
            is_exclusive: body.exclusive,
            is_kept: body.kept,
            approval_key: body.approval_key,
        };
        ToolList {
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
                let error = done.error.as_ref().map(|e| (e.class.word().to_owned(), e.code.clone(), e.message.clone()));
                let (result, sandbox) = (Some(done.content.clone()), done.sandbox.clone());
                Self { result, error, sandbox, held: None, once: false }
            }
        }
    }

    pub(super) fn into_reply(self) -> Option<ToolReply> {
        match (self.result, self.held) {
            (Some(content), None) => {
                let error = match self.error {
                    Some((class, code, message)) => {
                        Some(ToolError { class: ErrorClass::from_word(&class)?, code, message })
                    }
                    None => None,
                };
                Some(ToolReply::Done(ToolResult { content, error, sandbox: self.sandbox }))
            }
            (None, Some((key, question))) => Some(ToolReply::Held { key, question, is_once: self.once }),
            _ => None,
        }
    }
}
