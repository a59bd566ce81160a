//! How an MCP server is spoken to (D-12).

use serde_json::Value;

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A child process.
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// How the server of an entry of `mcp` is spoken to; an entry with both has a `url`.
///
/// # Errors
/// What the entry lacks.
pub fn transport(entry: &Value) -> Result<Transport, &'static str> {
    let is_text = |key: &str| entry.get(key).is_some_and(Value::is_string);
    match (is_text("url"), is_text("command")) {
        (true, _) => Ok(Transport::Http),
        (false, true) => Ok(Transport::Stdio),
        (false, false) => Err("it has neither a `url` nor a `command`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// D-12, D-N03: a `url` wins over a `command`.
    #[test]
    fn a_url_wins_over_a_command() {
        assert_eq!(transport(&json!({"url": "http://x", "command": "y"})), Ok(Transport::Http));
        assert_eq!(transport(&json!({"command": "y"})), Ok(Transport::Stdio));
        assert!(transport(&json!({"args": []})).is_err());
    }
}
