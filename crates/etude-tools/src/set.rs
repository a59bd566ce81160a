//! All tools of an agent: the built-in ones, the app's, and those of MCP servers, narrowed by `allowed-tools`.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::effect::Sandbox;
use etude_process::ProcessHost;
use etude_spec::did_you_mean;

use crate::app::{self, AppTools};
use crate::bound;
use crate::builtin;
use crate::confine::Roots;
use crate::found::Found;
use crate::mcp::Servers;
use crate::pattern::AllowedTools;
use crate::program::Programs;
use crate::tool::{MAX_CONTENT, Tool, ToolError};

/// The tools that one agent may call. Cheap to clone: clones share processes and servers.
#[derive(Debug, Clone)]
pub struct ToolSet {
    roots: Roots,
    programs: Programs,
    fixed: Arc<Vec<Found>>,
    servers: Option<Arc<Servers>>,
    allowed: Vec<AllowedTools>,
}

/// The tools of a set at one moment.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The tools, in a fixed order: built-in, the app's by name, MCP by server and name.
    pub tools: Vec<Arc<Tool>>,
    /// Sentences about missing tools, one for each server that could not be reached.
    pub problems: Vec<String>,
}

impl ToolSet {
    /// The built-in tools over the folders of `roots`. Programs run through `host`, whose directory is the app's.
    pub fn built_in(roots: Roots, host: Arc<ProcessHost>) -> Self {
        Self::with_programs(roots, Programs { host, sandbox: None })
    }

    /// Built-in tools like [`ToolSet::built_in`], with all programs in a sandbox. Its paths begin in the app's
    /// directory.
    pub fn sandboxed(roots: Roots, host: Arc<ProcessHost>, sandbox: Sandbox) -> Self {
        Self::with_programs(roots, Programs { host, sandbox: Some(Box::new(sandbox)) })
    }

    fn with_programs(roots: Roots, programs: Programs) -> Self {
        let fixed = Arc::new(builtin::entries(&roots, &programs));
        Self { roots, programs, fixed, servers: None, allowed: Vec::new() }
    }

    /// Adds the tools of the app's `tools/`. Scripts that only their `--help` describes are started for it now.
    #[must_use]
    pub async fn with_app(mut self, tools: AppTools) -> Self {
        let more = app::entries(tools, &self.programs).await;
        let fixed = Arc::make_mut(&mut self.fixed);
        // A duplicate name was reported when the definitions were read; the first one stays.
        for entry in more {
            if fixed.iter().all(|there| there.tool.name != entry.tool.name) {
                fixed.push(entry);
            }
        }
        self
    }

    /// Adds the tools of MCP servers, which are started when tools are first needed.
    #[must_use]
    pub fn with_servers(mut self, servers: Arc<Servers>) -> Self {
        self.servers = Some(servers);
        self
    }

    /// A copy of the set, narrowed by a list. Narrowing twice leaves the tools that both lists allow.
    #[must_use]
    pub fn narrowed(&self, allowed: AllowedTools) -> Self {
        let mut narrowed = self.clone();
        narrowed.allowed.push(allowed);
        narrowed
    }

    /// The folders that the tools may touch.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The tools that may be called now. Starts servers, all at once, and lists again the tools of servers that reported a
    /// change.
    pub async fn tools(&self) -> Listing {
        let mut listing = Listing::default();
        for entry in self.fixed.iter().filter(|entry| self.lists(&entry.tool)) {
            listing.tools.push(Arc::clone(&entry.tool));
        }
        if let Some(servers) = &self.servers {
            let found = servers.tools(|server| self.may_use_server(server)).await;
            listing.tools.extend(found.tools.into_iter().map(|entry| entry.tool).filter(|tool| self.lists(tool)));
            listing.problems = found.problems;
        }
        let mut names = BTreeSet::new();
        listing.tools.retain(|tool| names.insert(tool.name.clone()));
        listing
    }

    /// The tool `name`, if it may be called.
    ///
    /// # Errors
    /// `ToolTerminal/ToolNotRegistered`: the lists allow no tool of that name.
    pub async fn find(&self, name: &str) -> Result<Found, ToolError> {
        match self.entry(name).await {
            Some(entry) => Ok(entry),
            None => Err(self.unknown(name).await),
        }
    }

    /// The lists that narrow the set. They also decide about a call by its arguments.
    pub fn allowed(&self) -> &[AllowedTools] {
        &self.allowed
    }

    fn lists(&self, tool: &Tool) -> bool {
        self.allowed.iter().all(|list| list.lists(tool))
    }

    fn may_use_server(&self, server: &str) -> bool {
        self.allowed.iter().all(|list| list.may_list_server(server))
    }

    async fn entry(&self, name: &str) -> Option<Found> {
        if let Some(entry) = self.fixed.iter().find(|entry| entry.tool.name == name) {
            return self.lists(&entry.tool).then(|| entry.clone());
        }
        let entry = self.servers.as_ref()?.find(name).await?;
        self.lists(&entry.tool).then_some(entry)
    }

    async fn unknown(&self, name: &str) -> ToolError {
        let listing = self.tools().await;
        let names: Vec<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
        let shown = bound::one_line(name, 80);
        let hint = match near(name, &names) {
            Some(near) => format!("; did you mean `{near}`?"),
            None if names.is_empty() => String::new(),
            None => format!("; available tools: {}", names.join(", ")),
        };
        let problems: String = listing.problems.iter().map(|problem| format!("; {problem}")).collect();
        let message = format!("there is no tool `{shown}`{hint}{problems}");
        ToolError::terminal("ToolNotRegistered", bound::clip(&message, MAX_CONTENT, ""))
    }
}

/// The tool whose name `name` was probably meant to be. Tools of one MCP server share a prefix, which makes their names look alike, so
/// only the parts after it are compared.
fn near<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let own = |whole: &'n str| whole.rsplit_once("__").map_or(whole, |(_, own)| own);
    let (server, word) = name.rsplit_once("__").unwrap_or(("", name));
    let of_server: Vec<&'n str> = names
        .iter()
        .copied()
        .filter(|whole| whole.rsplit_once("__").is_some_and(|(other, _)| other == server))
        .collect();
    let among = if of_server.is_empty() { names } else { &of_server };
    let called = |wanted: &str| among.iter().copied().find(|whole| own(whole) == wanted);
    called(word).or_else(|| called(did_you_mean(word, among.iter().copied().map(own))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `b-stages` AP5: tools of one server are similar only if their own names are.
    #[test]
    fn a_prefix_of_a_server_makes_no_names_similar() {
        let names = ["Read", "mcp__files__list", "mcp__files__search", "mcp__git__log"];
        for (name, expected) in [
            ("mcp__files__read", None),
            ("mcp__files__searches", Some("mcp__files__search")),
            ("mcp__file__search", Some("mcp__files__search")),
            ("search", Some("mcp__files__search")),
            ("read", Some("Read")),
            ("mcp__git__status", None),
        ] {
            assert_eq!(near(name, &names), expected, "{name}");
        }
    }
}
