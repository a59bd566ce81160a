//! Skill names of the tools of MCP servers, and the transport of a server (D-12).

use serde_json::Value;

/// Skill name of a server's tool: `read_file` of `filesystem` is `filesystem-read-file`.
pub fn tool_name(server: &str, tool: &str) -> String {
    format!("{}-{}", sanitized(server), sanitized(tool)).trim_matches('-').to_owned()
}

/// Address of a server's tool: `mcp://filesystem/read-file`.
pub fn uri(server: &str, tool: &str) -> String {
    format!("mcp://{}/{}", sanitized(server), sanitized(tool))
}

/// Expands a value of `env` or `headers` at the launch of its server: `${NAME}` is an environment variable.
///
/// # Errors
/// The error of `variable`: the reason why a variable is not available.
pub fn launched(text: &str, variable: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&variable(name)?);
        rest = tail;
    }
    Ok(out + rest)
}

fn sanitized(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.trim_end_matches('-').to_owned()
}

/// True if a skill may run without this server when it does not start: `optional: true`.
pub fn is_optional(entry: &Value) -> bool {
    entry.get("optional").and_then(Value::as_bool).unwrap_or(false)
}

/// Transport to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A child process with stdin and stdout.
    Stdio,
    /// Streamable HTTP, to the address under `url`.
    Http,
}

/// Transport of the server of an `mcp` entry; a `url` wins over a `command`.
///
/// # Errors
/// The missing key of the entry.
pub fn transport(entry: &Value) -> Result<Transport, &'static str> {
    let is_text = |key: &str| entry.get(key).is_some_and(Value::is_string);
    match (is_text("url"), is_text("command")) {
        (true, _) => Ok(Transport::Http),
        (false, true) => Ok(Transport::Stdio),
        (false, false) => Err("it has no `url` and no `command`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// D-12, D-N01, D-N02: names and addresses of the tools of servers.
    #[test]
    fn tools_of_servers_have_names_of_skills() {
        assert_eq!(tool_name("filesystem", "read_file"), "filesystem-read-file");
        assert_eq!(uri("filesystem", "read_file"), "mcp://filesystem/read-file");
        assert_eq!(tool_name("GitHub", "Get__Issue!"), "github-get-issue");
    }

    /// D-12: variables are looked up at launch, and any other text stays.
    #[test]
    fn values_are_completed_at_launch() {
        let variable = |name: &str| if name == "A" { Ok("${B}".to_owned()) } else { Err(format!("no {name}")) };
        assert_eq!(launched("x${A}y${", variable).as_deref(), Ok("x${B}y${"));
        assert_eq!(launched("${C}", variable), Err("no C".to_owned()));
    }

    /// D-12, D-N03: a `url` wins over a `command`.
    #[test]
    fn a_url_wins_over_a_command() {
        assert_eq!(transport(&json!({"url": "http://x", "command": "y"})), Ok(Transport::Http));
        assert_eq!(transport(&json!({"command": "y"})), Ok(Transport::Stdio));
        assert!(transport(&json!({"args": []})).is_err());
    }
}
