//! Names of tools of MCP servers.

use etude_core::digest::Digest;

/// Maximum length of a tool's name, in characters; the limit of model providers.
const MAX_LENGTH: usize = 64;

/// The name of a server's tool for models: `mcp__server__tool`, in the characters that providers accept. A name that is too
/// long is cut, with a part of its hash at the end.
pub fn tool_name(server: &str, tool: &str) -> String {
    let name = format!("{}{}", prefix(server), plain(tool));
    if name.len() <= MAX_LENGTH { name } else { marked(&name, server, tool) }
}

/// The name of the second of two tools whose names would be equal.
pub(crate) fn other_name(server: &str, tool: &str) -> String {
    marked(&tool_name(server, tool), server, tool)
}

fn marked(name: &str, server: &str, tool: &str) -> String {
    let hash = Digest::of(format!("{server}\0{tool}").as_bytes()).to_string();
    format!("{}_{}", &name[..name.len().min(MAX_LENGTH - 9)], &hash[..8])
}

/// True if a tool of `server` could have this name.
pub(crate) fn may_be_of(name: &str, server: &str) -> bool {
    let prefix = prefix(server);
    name.starts_with(&prefix[..prefix.len().min(MAX_LENGTH - 9)])
}

fn prefix(server: &str) -> String {
    format!("mcp__{}__", plain(server))
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_the_characters_that_providers_accept() {
        assert_eq!(tool_name("github", "create_issue"), "mcp__github__create_issue");
        assert_eq!(tool_name("my server", "a.b/c"), "mcp__my_server__a_b_c");
        let long = tool_name("s", &"x".repeat(100));
        assert!(long.len() == 64 && long.starts_with("mcp__s__xxx"));
        assert_ne!(long, tool_name("s", &"x".repeat(101)));
        assert_ne!(other_name("s", "a.b"), other_name("s", "a_b"));
        assert!(may_be_of(&long, "s") && !may_be_of(&long, "t"));
    }
}
