//! The tool through which an agent reads a skill: progressive disclosure (A-7.1, C-2.7).

use std::path::Path;
use std::sync::Arc;

use etude_core::model::Tool;
use etude_core::tool::{AvailableTool, ToolResult};
use etude_core::tree;
use serde_json::{Value, json};

use etude_packages::skills::{Invoker, Request, SkillCatalog};
use etude_packages::trust::Approvals;

pub(super) const NAME: &str = "activate_skill";

/// The catalog, with an instruction for its use.
pub(super) fn introduced(xml: &str) -> String {
    format!(
        "These skills are in reach. When one fits what you are doing, read it with `{NAME}` before you go on:\n\n{}",
        xml.trim()
    )
}

/// The tool, whose schema lists the available names.
pub(super) fn available(catalog: &SkillCatalog, trust: &Approvals) -> AvailableTool {
    let names: Vec<&str> = catalog.visible_to_agents(trust).map(|entry| entry.skill.name.as_str()).collect();
    let parameters = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": names, "description": "The skill."},
            "arguments": {"type": "string", "description": "What the skill must work on, if it takes arguments."},
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    let description = "Reads a skill: instructions for a kind of task, and the files that come with them.".to_owned();
    let tool = Tool { name: NAME.to_owned(), description, parameters: Arc::new(parameters) };
    // The content of an activated skill stays in the conversation, however long it grows (C-2.8).
    AvailableTool { tool, is_pipeline: false, is_exclusive: false, is_kept: true, approval_key: None }
}

/// The skill as the agent gets it.
pub(super) fn activate(catalog: &SkillCatalog, trust: &Approvals, app: &Path, arguments: &str) -> ToolResult {
    let asked = tree::parse_response(arguments).unwrap_or_default();
    let Some(name) = asked.get("name").and_then(Value::as_str) else {
        return ToolResult::terminal("InputInvalid", "the arguments must be an object with `name`");
    };
    let request = Request {
        invoker: Invoker::Agent,
        arguments: asked.get("arguments").and_then(Value::as_str),
        project_dir: app,
        ..Request::new(trust)
    };
    match catalog.activate(name, &request) {
        Ok(activation) => ToolResult::ok(activation.text()),
        Err(error) => ToolResult::terminal("SkillUnavailable", &error.to_string()),
    }
}
