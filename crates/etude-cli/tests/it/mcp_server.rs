//! Common part of MCP servers on stdin and stdout, in Python.

/// Source of a server whose one tool `tool` defines: `TOOL`, `call(arguments)`, and `REFUSAL`, the error for all other
/// requests.
pub(crate) fn with(tool: &str) -> String {
    format!("import base64, json, os, sys, urllib.parse\n{tool}{}", include_str!("mcp_server/server.py"))
}
