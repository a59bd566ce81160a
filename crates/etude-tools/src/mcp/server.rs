//! One server: started when it is needed, started again after it has ended, with its tools as tools of etude.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use etude_core::{exact, report};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::bound;
use crate::found::Found;
use crate::mcp::client::{Connection, Failure};
use crate::mcp::{Endpoint, Protocol, ServerConfig, Settings, content, schema};
use crate::mcp_name as name;
use crate::tool::{Boxed, CallContext, Effect, Origin, Run, Tool, ToolError, ToolResult, members};

/// Time after a failed start during which listing tools does not start the server again.
const PAUSE: Duration = Duration::from_secs(30);

/// Maximum length of a description, in characters.
pub(super) const MAX_DESCRIPTION: usize = 2_000;

/// A server of the configuration.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    config: ServerConfig,
    settings: Arc<Settings>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    tools: Option<Arc<Vec<Found>>>,
    failed: Option<(Instant, String)>,
    /// The revision of the last connection: a server that is started again is not probed again.
    agreed: Option<Protocol>,
}

impl Server {
    pub(super) fn new(name: String, config: ServerConfig, settings: Arc<Settings>) -> Self {
        Self { name, config, settings, state: Mutex::default() }
    }

    /// The current tools, or a sentence with the reason why there are none.
    pub(super) async fn tools(self: Arc<Self>) -> Result<Arc<Vec<Found>>, String> {
        let mut state = self.state.lock().await;
        if let Some((at, why)) = &state.failed
            && at.elapsed() < PAUSE
        {
            return Err(why.clone());
        }
        // A server that has ended is not started only to list the same tools again.
        let changed = state.connection.as_ref().is_some_and(|connection| connection.take_changed());
        if let (Some(tools), false) = (&state.tools, changed) {
            return Ok(Arc::clone(tools));
        }
        match self.started(&mut state).await {
            Ok(_) => state.tools.clone().ok_or_else(|| self.problem("it has no tools")),
            Err(why) => {
                state.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// An open connection whose tools were read.
    async fn connected(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        let mut state = self.state.lock().await;
        match &state.connection {
            Some(connection) if connection.is_open() => Ok(Arc::clone(connection)),
            _ => self.started(&mut state).await,
        }
    }

    /// Connects if necessary, and reads the tools.
    async fn started(self: &Arc<Self>, state: &mut State) -> Result<Arc<Connection>, String> {
        let open = state.connection.take().filter(|connection| connection.is_open());
        let mut config = self.config.clone();
        // Another program may be there by now, so the agreed revision is used for one attempt.
        config.protocol = state.agreed.take().unwrap_or(config.protocol);
        let start = async {
            let connection = match open {
                Some(connection) => connection,
                None => Arc::new(Connection::open(&self.name, &config, &self.settings).await?),
            };
            let tools = connection.tools().await.map_err(|failure| match failure {
                Failure::Refused(why) | Failure::Lost(why) => why,
            })?;
            Ok::<_, String>((connection, tools))
        };
        let (connection, tools) = match tokio::time::timeout(self.config.start_timeout, start).await {
            Ok(started) => started.map_err(|why| self.problem(&why))?,
            Err(_) => {
                let limit = shown(self.config.start_timeout);
                return Err(self.problem(&format!("it did not respond within {limit}")));
            }
        };
        state.agreed = Some(connection.protocol());
        state.tools = Some(Arc::new(self.entries(tools)));
        state.connection = Some(Arc::clone(&connection));
        state.failed = None;
        Ok(connection)
    }

    fn problem(&self, why: &str) -> String {
        format!("the MCP server `{}` cannot be used: {}", self.name, self.redacted(why))
    }

    /// Redacts a message of the server or a library, which may repeat the URL.
    fn redacted(&self, why: &str) -> String {
        match &self.config.endpoint {
            Endpoint::Http { url, .. } => url.redact(why),
            Endpoint::Stdio { .. } | Endpoint::Withheld(_) => why.to_owned(),
        }
    }

    fn entries(self: &Arc<Self>, mut tools: Vec<rmcp::model::Tool>) -> Vec<Found> {
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools.dedup_by(|a, b| a.name == b.name);
        let (mut names, mut room) = (BTreeSet::new(), schema::MAX_SCHEMAS);
        tools.iter().filter_map(|tool| self.entry(tool, &mut names, &mut room)).collect()
    }

    /// A tool of the server as a tool of etude; `None` if it has no usable name.
    fn entry(
        self: &Arc<Self>,
        tool: &rmcp::model::Tool,
        names: &mut BTreeSet<String>,
        room: &mut usize,
    ) -> Option<Found> {
        let remote = tool.name.to_string();
        if remote.is_empty() || remote.len() > 256 {
            return None;
        }
        let mut local = name::tool_name(&self.name, &remote);
        if !names.insert(local.clone()) {
            local = name::other_name(&self.name, &remote);
            names.insert(local.clone());
        }
        let reported = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let description = format!("[MCP server {}] {}", self.name, bound::plain(reported.trim(), MAX_DESCRIPTION));
        let schema = schema::clean(Value::Object((*tool.input_schema).clone()), room);
        let origin = Origin::Mcp { server: self.name.clone(), tool: remote.clone() };
        let tool = Tool::new(&local, description.trim_end(), schema, Effect::External, origin);
        Some(Found::new(tool, McpRun { server: Arc::downgrade(self), remote }))
    }

    pub(super) async fn close(&self) {
        let connection = self.state.lock().await.connection.take();
        // A running call keeps the connection, which ends with the call.
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.close().await;
        }
    }
}

/// Calls a tool of a server. The reference is weak, because the server owns its tools.
#[derive(Debug)]
struct McpRun {
    server: Weak<Server>,
    /// Name of the tool on the server.
    remote: String,
}

impl Run for McpRun {
    fn run(&self, args: Arc<Value>, cx: CallContext) -> Boxed<ToolResult> {
        let (server, remote, most) = (self.server.upgrade(), self.remote.clone(), cx.max_result());
        // The protocol's library uses trees: a number that they would round would change the call.
        if let Some(number) = cx.written.as_deref().and_then(exact::rounded_whole) {
            let number = bound::one_line(&number, 80);
            let message = format!(
                "the number {number} has more digits than a call of an MCP tool keeps; pass it as a string if the tool accepts one"
            );
            return Box::pin(std::future::ready(ToolError::failed(message).into()));
        }
        Box::pin(async move {
            let Some(server) = server else {
                return ToolError::transient("ServerUnavailable", "its MCP server was stopped").into();
            };
            let cancel = cx.cancel.clone();
            tokio::select! {
                result = server.call(&remote, args, most) => result,
                () = cancel.cancelled() => ToolError::cancelled().into(),
            }
        })
    }
}

impl Server {
    async fn call(self: &Arc<Self>, tool: &str, args: Arc<Value>, most: usize) -> ToolResult {
        let connection = match self.connected().await {
            Ok(connection) => connection,
            Err(why) => return ToolError::transient("ServerUnavailable", why).into(),
        };
        let limit = self.config.call_timeout;
        let name = bound::one_line(tool, 80);
        match tokio::time::timeout(limit, connection.call(tool, members(&args).clone())).await {
            Ok(Ok(answer)) => content::result(&answer, most),
            Ok(Err(Failure::Refused(why))) => {
                ToolError::failed(format!("the MCP server `{}` refused `{name}`: {}", self.name, self.redacted(&why)))
                    .into()
            }
            Ok(Err(Failure::Lost(why))) => {
                self.forget(&connection).await;
                let message = format!(
                    "the MCP server `{}` was lost during `{name}`: {}; the next call restarts it, \
                     and this call may have taken effect",
                    self.name,
                    self.redacted(&why)
                );
                ToolError::transient("ServerUnavailable", message).into()
            }
            Err(_) => {
                let message = format!("the MCP server `{}` took longer than {} for `{name}`", self.name, shown(limit));
                ToolError::transient("ExecutionTimeout", message).into()
            }
        }
    }

    /// Drops a lost connection, so that it is not used again.
    async fn forget(&self, lost: &Arc<Connection>) {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, lost)) {
            state.connection = None;
        }
    }
}

/// A limit for people, such as `5 s`.
fn shown(limit: Duration) -> String {
    report::duration(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
}
