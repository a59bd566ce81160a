//! MCP servers as a source of tools: child processes and streamable HTTP, revisions 2025-11-25 and 2026-07-28.
//!
//! Servers are started all at once, when their tools are first needed. A server that ends is started again at the next call.
//! Everything that a server reports about itself is foreign data: descriptions are bounded and stripped, hints such as "read
//! only" grant nothing, and names are always checked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etude_core::service_url::ServiceUrl;
use futures_util::future::join_all;
use serde_json::Value;

use crate::found::Found;
use crate::tool::Boxed;

mod client;
mod content;
mod schema;
mod server;

use crate::mcp_name::may_be_of;
pub use crate::mcp_name::tool_name;
use server::Server;

/// Connection settings of one server. Secrets are resolved: this crate reads no environment.
#[derive(Clone, PartialEq)]
pub struct ServerConfig {
    /// A command to start, or a URL.
    pub endpoint: Endpoint,
    /// The revision to use, or a way to find out.
    pub protocol: Protocol,
    /// Time limit of one tool call.
    pub call_timeout: Duration,
    /// Time limit for a server to list its tools.
    pub start_timeout: Duration,
}

/// The address or command of a server.
#[derive(Clone, PartialEq)]
pub enum Endpoint {
    /// A program that is started, with JSON-RPC on stdin and stdout.
    Stdio {
        /// The program, found on `PATH` unless it has a `/`.
        command: String,
        /// The arguments of the program, in order.
        args: Vec<String>,
        /// Variables besides [`Settings::base_env`].
        env: Vec<(String, String)>,
    },
    /// A URL of the streamable HTTP transport.
    Http {
        /// The URL, which may hold credentials.
        url: ServiceUrl,
        /// Headers of every request, which may hold credentials.
        headers: Vec<(String, String)>,
    },
    /// The server must not be started or reached, for this reason.
    Withheld(String),
}

/// Revision of the protocol to use with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The newest revision that both sides support: `server/discover` first, then `initialize`.
    #[default]
    Auto,
    /// Revisions with `initialize`, up to 2025-11-25.
    Initialize,
    /// Revision 2026-07-28 only, without sessions.
    Stateless,
}

/// Settings for all servers.
#[derive(Clone, Default)]
pub struct Settings {
    /// All variables that server processes inherit. They get nothing else of this process's environment.
    pub base_env: Vec<(OsString, OsString)>,
    /// Working directory of server processes: that of the app.
    pub dir: std::path::PathBuf,
    /// Receives the stderr and log messages of servers.
    pub on_log: Option<OnLog>,
    /// Responds to questions of servers. Without it, servers learn that no one can be asked.
    pub on_elicit: Option<OnElicit>,
}

/// An observer for log lines: the server's name, and one line without control characters.
pub type OnLog = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Responds to a question of a server.
pub type OnElicit = Arc<dyn Fn(Elicitation) -> Boxed<Elicited> + Send + Sync>;

/// A question that a server asks the user during a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Elicitation {
    /// The name of the server in the configuration.
    pub server: String,
    /// The question: foreign text, without control characters and of bounded length.
    pub message: String,
    /// JSON Schema of the reply: an object of plain fields.
    pub schema: Value,
}

/// The user's reply to a question of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Elicited {
    /// An object. Missing fields get the defaults of the schema.
    Accept(Value),
    /// The user refused.
    Decline,
    /// The user gave no reply.
    Cancel,
}

/// The MCP servers of a run.
#[derive(Debug)]
pub struct Servers {
    servers: BTreeMap<String, Arc<Server>>,
}

/// Tools that are available at one moment, and the problems of other servers.
#[derive(Debug, Default)]
pub(crate) struct Available {
    pub(crate) tools: Vec<Found>,
    pub(crate) problems: Vec<String>,
}

impl ServerConfig {
    /// A program as a server, with the default limits.
    pub fn stdio(command: impl Into<String>, args: Vec<String>, env: Vec<(String, String)>) -> Self {
        Self::new(Endpoint::Stdio { command: command.into(), args, env })
    }

    /// A URL as a server, with the default limits.
    pub fn http(url: impl Into<ServiceUrl>, headers: Vec<(String, String)>) -> Self {
        Self::new(Endpoint::Http { url: url.into(), headers })
    }

    /// A server that must not be started or reached. `why` is the end of a sentence.
    pub fn withheld(why: impl Into<String>) -> Self {
        Self::new(Endpoint::Withheld(why.into()))
    }

    fn new(endpoint: Endpoint) -> Self {
        let (call_timeout, start_timeout) = (Duration::from_secs(120), Duration::from_secs(60));
        Self { endpoint, protocol: Protocol::Auto, call_timeout, start_timeout }
    }

    /// A server from the configuration, whose `${env:NAME}` the caller has resolved.
    pub fn from_definition(server: &etude_spec::config::McpServer) -> Self {
        let pairs = |map: &indexmap::IndexMap<String, String>| {
            map.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>()
        };
        let mut config = match &server.url {
            Some(url) => Self::http(url.as_str(), pairs(&server.headers)),
            None => {
                let command = server.command.clone().unwrap_or_default();
                Self::stdio(command, server.args.clone(), pairs(&server.env))
            }
        };
        config.protocol = match server.protocol.as_deref() {
            Some("2025-11-25") => Protocol::Initialize,
            Some("2026-07-28") => Protocol::Stateless,
            _ => Protocol::Auto,
        };
        if let Some(ms) = server.timeout_ms {
            config.call_timeout = Duration::from_millis(ms);
        }
        config
    }
}

/// Hides variables and headers, which may be secrets.
impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Stdio { command, .. } => write!(f, "ServerConfig(command {command})"),
            Endpoint::Http { url, .. } => write!(f, "ServerConfig(url {url})"),
            Endpoint::Withheld(_) => f.write_str("ServerConfig(withheld)"),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Servers {
    /// The servers by name. Nothing is started yet.
    pub fn new(servers: impl IntoIterator<Item = (String, ServerConfig)>, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let server = |(name, config): (String, ServerConfig)| {
            let server = Server::new(name.clone(), config, Arc::clone(&settings));
            (name, Arc::new(server))
        };
        Self { servers: servers.into_iter().map(server).collect() }
    }

    /// The names of the servers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// Ends all started servers, and waits for that. Without it, they are killed when this is dropped.
    pub async fn close(&self) {
        join_all(self.servers.values().map(|server| server.close())).await;
    }

    /// All tools of the servers, and by name of server the reason why some have none. Starts the servers.
    pub async fn available(&self) -> (Vec<Found>, BTreeMap<String, String>) {
        let (mut tools, mut problems) = (Vec::new(), BTreeMap::new());
        let answers = join_all(self.servers.values().map(|server| Arc::clone(server).tools())).await;
        for (name, answer) in self.names().zip(answers) {
            match answer {
                Ok(found) => tools.extend(found.iter().cloned()),
                Err(problem) => drop(problems.insert(name.to_owned(), problem)),
            }
        }
        (tools, problems)
    }

    /// The tools of the servers that `wanted` selects, by server and name.
    pub(crate) async fn tools(&self, wanted: impl Fn(&str) -> bool) -> Available {
        let asked = self.servers.iter().filter(|(name, _)| wanted(name)).map(|(_, server)| Arc::clone(server).tools());
        let mut found = Available::default();
        for answer in join_all(asked).await {
            match answer {
                Ok(tools) => found.tools.extend(tools.iter().cloned()),
                Err(problem) => found.problems.push(problem),
            }
        }
        found
    }

    /// The tool `name`. Starts only the servers whose tools could have that name.
    pub(crate) async fn find(&self, name: &str) -> Option<Found> {
        let found = self.tools(|server| may_be_of(name, server)).await;
        found.tools.into_iter().find(|entry| entry.tool.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-12, D-N03: a URL takes precedence over a command.
    #[test]
    fn a_server_with_an_address_is_reached_there() {
        let definition = etude_spec::config::McpServer {
            url: Some("http://127.0.0.1:1/mcp".to_owned()),
            command: Some("serve".to_owned()),
            ..Default::default()
        };
        assert!(matches!(ServerConfig::from_definition(&definition).endpoint, Endpoint::Http { .. }));
    }
}
