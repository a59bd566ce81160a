//! MCP servers on stdin and stdout, in Python: what they have in common.

/// The text of a server whose one tool and its answers `tool` defines: `TOOL`, `call(arguments)`, and the `REFUSAL` that
/// meets everything else.
pub(crate) fn with(tool: &str) -> String {
    format!("import base64, json, os, sys, urllib.parse\n{tool}{}", include_str!("mcp_server/server.py"))
}
