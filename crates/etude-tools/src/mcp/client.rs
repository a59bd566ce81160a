//! One connection to a server. The only module that uses the protocol library's service types.

#![expect(deprecated, reason = "log messages end with revision 2026-07-28; servers of earlier ones send them")]

mod probe;
mod process;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etude_core::service_url::redact;
use etude_process::{ChildEnvironment, detached};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, FormElicitationCapability, Implementation,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProtocolVersion, SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, RequestContext, RoleClient, RunningService,
    ServiceError, serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use crate::bound;
use crate::mcp::{Elicitation, Elicited, Endpoint, Protocol, ServerConfig, Settings};
use crate::tool::Args;

use probe::Probing;
use process::ServerProcess;

/// Maximum number of pages of a list, and of tools of a server: a server that never ends its list must not be trusted.
const MAX_PAGES: usize = 200;
const MAX_TOOLS: usize = 2_000;

/// Maximum length of a log line, in characters.
const MAX_LINE: usize = 2_000;

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    /// Set when the server reports that its tools have changed.
    changed: Arc<AtomicBool>,
}

/// Reason why a request has no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server responded with an error.
    Refused(String),
    /// The connection is lost.
    Lost(String),
}

impl Connection {
    /// Starts or reaches a server and agrees on a revision.
    ///
    /// # Errors
    /// The connection failed. The error is a sentence fragment.
    pub(super) async fn open(name: &str, config: &ServerConfig, settings: &Arc<Settings>) -> Result<Self, String> {
        let first = match config.protocol {
            Protocol::Auto => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
            Protocol::Initialize => ClientLifecycleMode::Initialize,
            Protocol::Stateless => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
        };
        let has_answered_late = Arc::new(AtomicBool::new(false));
        let opened = Self::open_as(name, config, settings, first, &has_answered_late).await;
        match opened {
            // The server supports the newest revision, but responded late.
            Err(Unopened::Protocol(_)) if has_answered_late.load(Ordering::SeqCst) => {
                let newest = vec![ProtocolVersion::V_2026_07_28];
                let mode = ClientLifecycleMode::Discover { preferred_versions: newest };
                let second = Self::open_as(name, config, settings, mode, &has_answered_late).await;
                second.map_err(|error| error.to_string())
            }
            // Old servers end, or respond with a bare HTTP error, when the first message is not `initialize`.
            Err(Unopened::Protocol(error))
                if config.protocol == Protocol::Auto && !error.is_authorization_required() =>
            {
                let mode = ClientLifecycleMode::Initialize;
                let second = Self::open_as(name, config, settings, mode, &has_answered_late).await;
                second.map_err(|error| error.to_string())
            }
            opened => opened.map_err(|error| error.to_string()),
        }
    }

    async fn open_as(
        name: &str,
        config: &ServerConfig,
        settings: &Arc<Settings>,
        mode: ClientLifecycleMode,
        has_answered_late: &Arc<AtomicBool>,
    ) -> Result<Self, Unopened> {
        let changed = Arc::new(AtomicBool::new(false));
        let handler =
            Handler { server: name.to_owned(), settings: Arc::clone(settings), changed: Arc::clone(&changed) };
        let service = match &config.endpoint {
            Endpoint::Stdio { .. } => {
                let transport = spawn(name, config, settings).map_err(Unopened::Start)?;
                match mode {
                    ClientLifecycleMode::Auto { .. } => {
                        let transport = Probing::new(transport, Arc::clone(has_answered_late));
                        serve_client_with_lifecycle(handler, transport, mode).await
                    }
                    mode => serve_client_with_lifecycle(handler, transport, mode).await,
                }
            }
            Endpoint::Withheld(why) => return Err(Unopened::Start(why.clone())),
            Endpoint::Http { .. } => {
                let transport = http(config).map_err(Unopened::Start)?;
                serve_client_with_lifecycle(handler, transport, mode).await
            }
        };
        let service = service.map_err(|error| Unopened::Protocol(Box::new(error)))?;
        let connection = Self { service, changed };
        connection.listen();
        Ok(connection)
    }

    /// Subscribes to changes of the tools: without sessions, a server reports them only on request.
    fn listen(&self) {
        let Some(info) = self.service.peer_info() else { return };
        let reports = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        if info.protocol_version < ProtocolVersion::V_2026_07_28 || !reports {
            return;
        }
        let (peer, changed) = (self.service.peer().clone(), Arc::clone(&self.changed));
        tokio::spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            // Without the subscription the list is as old as the connection, which is not a fault of a call.
            let Ok(mut subscription) = peer.listen(filter).await else { return };
            while let Ok(Some(_)) = subscription.next().await {
                changed.store(true, Ordering::SeqCst);
            }
        });
    }

    /// The revision that both sides agreed on.
    pub(super) fn protocol(&self) -> Protocol {
        let version = self.service.peer_info().map(|info| info.protocol_version.clone());
        match version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
            true => Protocol::Stateless,
            false => Protocol::Initialize,
        }
    }

    /// False once the server is gone.
    pub(super) fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.peer().is_transport_closed()
    }

    /// True once after the server has reported a change of its tools.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// The server's tools, from all pages.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, Failure> {
        let tool_list_outcome = self.service.peer_info().is_none_or(|info| info.capabilities.tools.is_some());
        if !tool_list_outcome {
            return Ok(Vec::new());
        }
        let (mut tools, mut cursor, mut seen) = (Vec::new(), None, BTreeSet::new());
        for _ in 0..MAX_PAGES {
            let mut params = PaginatedRequestParams::default();
            params.cursor = cursor;
            let page = self.service.peer().list_tools(Some(params)).await.map_err(failure)?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            let is_new = cursor.as_ref().is_some_and(|cursor| seen.insert(cursor.clone()));
            if !is_new || tools.len() >= MAX_TOOLS {
                break;
            }
        }
        tools.truncate(MAX_TOOLS);
        Ok(tools)
    }

    /// Makes one call. Dropping the future notifies the server of the cancellation.
    pub(super) async fn call(&self, tool: &str, args: Args) -> Result<CallToolResult, Failure> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(args);
        self.service.call_tool(params).await.map_err(failure)
    }

    /// Ends the connection, and the server if it is a process.
    pub(super) async fn close(mut self) {
        // A server that does not end by itself is killed by then. Its reports are of no further use.
        let _ = self.service.close_with_timeout(Duration::from_secs(10)).await;
    }
}

fn failure(error: ServiceError) -> Failure {
    match error {
        ServiceError::McpError(error) => {
            Failure::Refused(format!("{} (code {})", bound::one_line(&error.message, 500), error.code.0))
        }
        // The library wraps the error in the name of one of its types.
        ServiceError::TransportSend(error) => Failure::Lost(chain(error.error.as_ref())),
        ServiceError::TransportClosed => Failure::Lost("it closed the connection".to_owned()),
        error => Failure::Refused(chain(&error)),
    }
}

/// An error with its causes, on one line, each cause once.
fn chain(error: &dyn std::error::Error) -> String {
    // The library's errors repeat the URL, including credentials.
    bound::one_line(&redact(&etude_http::causes(error)), 500)
}

/// The reason why the two sides did not agree, without the names of the library's types.
fn opening(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, context } => {
            format!("{} ({context})", chain(error.error.as_ref()))
        }
        ClientInitializeError::ConnectionClosed(_) => {
            "it exited before it responded; its log may contain the reason".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("{} (code {})", bound::one_line(&error.message, 500), error.code.0)
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => opening(fallback),
        error => chain(error),
    }
}

/// Reason why a connection was not opened.
#[derive(Debug)]
enum Unopened {
    Start(String),
    Protocol(Box<ClientInitializeError>),
}

impl std::fmt::Display for Unopened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start(why) => f.write_str(why),
            Self::Protocol(error) if error.is_authorization_required() => {
                f.write_str("the server asks for authorization; give it an `Authorization` header in `headers`")
            }
            Self::Protocol(error) => f.write_str(&opening(error)),
        }
    }
}

fn spawn(name: &str, config: &ServerConfig, settings: &Arc<Settings>) -> Result<ServerProcess, String> {
    let Endpoint::Stdio { command, args, env } = &config.endpoint else {
        return Err("its command is empty".to_owned());
    };
    let environment = ChildEnvironment::only(settings.base_env.clone());
    let environment = environment.with(env.iter().map(|(name, value)| (name.clone(), value.into())));
    let mut program = detached(command, environment);
    program.args(args);
    if !settings.dir.as_os_str().is_empty() {
        program.current_dir(&settings.dir);
    }
    let started = ServerProcess::start(program);
    let (process, stderr) = started.map_err(|error| format!("`{command}` could not be started: {error}"))?;
    tokio::spawn(pass_on(name.to_owned(), Arc::clone(settings), stderr));
    Ok(process)
}

/// Forwards the lines of a server's stderr, and reads it to its end, so that the server never blocks.
async fn pass_on(name: String, settings: Arc<Settings>, stderr: impl AsyncRead + Unpin) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut stderr).take(64 * 1024).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        settings.log(&name, &String::from_utf8_lossy(&line));
    }
}

fn http(config: &ServerConfig) -> Result<StreamableHttpClientTransport<Client>, String> {
    let Endpoint::Http { url, headers } = &config.endpoint else { return Err("its URL is empty".to_owned()) };
    let parsed = Url::parse(url.expose()).map_err(|error| format!("its URL is not valid: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
        return Err("its URL does not begin with http:// or https:// and a host".to_owned());
    }
    let mut map = HashMap::new();
    for (name, value) in headers {
        let header = name.parse::<http::HeaderName>();
        let header = header.map_err(|_| format!("`{}` is not the name of a header", bound::one_line(name, 60)))?;
        // The value is not shown, because it may be a key.
        let mut value = value
            .parse::<http::HeaderValue>()
            .map_err(|_| format!("the value of the header `{name}` has characters that headers do not allow"))?;
        value.set_sensitive(true);
        map.insert(header, value);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(url.expose()).custom_headers(map);
    // A reused connection waits for a delayed acknowledgement if the previous response was not read to its end.
    let client = etude_http::client(&parsed, |client| client.pool_max_idle_per_host(0).redirect(same_origin()))?;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Follows redirects that keep method, body and origin: a server may be mounted with another trailing slash. Headers, which
/// may have keys, go nowhere else.
fn same_origin() -> Policy {
    Policy::custom(|attempt| {
        let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
        let keeps_origin = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        match attempt.previous().len() {
            0..=10 if keeps_body && keeps_origin => attempt.follow(),
            _ => attempt.stop(),
        }
    })
}

impl Settings {
    fn log(&self, server: &str, line: &str) {
        let line = bound::one_line(line, MAX_LINE);
        if let Some(on_log) = &self.on_log
            && !line.is_empty()
        {
            on_log(server, &line);
        }
    }
}

/// The client side of a connection.
#[derive(Debug)]
struct Handler {
    server: String,
    settings: Arc<Settings>,
    changed: Arc<AtomicBool>,
}

impl rmcp::ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.settings.on_elicit.is_some() {
            let form = FormElicitationCapability::default();
            capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        }
        let mut info = ClientConfig::new(capabilities, Implementation::new("etude", env!("CARGO_PKG_VERSION")));
        info.protocol_version = ProtocolVersion::V_2025_11_25;
        info
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::SeqCst);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        match &params.data {
            Value::String(text) => self.settings.log(&self.server, text),
            data => self.settings.log(&self.server, &data.to_string()),
        }
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let decline = || Ok(ElicitResult::new(ElicitationAction::Decline));
        let Some(ask) = &self.settings.on_elicit else { return decline() };
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            // A URL from a foreign server to open is not passed on.
            return decline();
        };
        let schema = serde_json::to_value(&requested_schema).unwrap_or_default();
        let message = bound::plain(&message, 2_000);
        let question = Elicitation { server: self.server.clone(), message, schema: schema.clone() };
        match ask(question).await {
            Elicited::Accept(answer) => {
                let mut result = ElicitResult::new(ElicitationAction::Accept);
                result.content = Some(with_defaults(answer, &schema));
                Ok(result)
            }
            Elicited::Decline => decline(),
            Elicited::Cancel => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }
}

/// A reply with the defaults of the schema for missing fields.
fn with_defaults(mut answer: Value, schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    if let (Some(members), Some(properties)) = (answer.as_object_mut(), properties) {
        for (name, property) in properties {
            if let (false, Some(default)) = (members.contains_key(name), property.get("default")) {
                members.insert(name.clone(), default.clone());
            }
        }
    }
    answer
}
