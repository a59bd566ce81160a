//! Requests of the protocol and their dispatch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::Api;
use crate::catalog::{Catalog, Selection, Target, Tool};
use crate::joined::Unfinished;
use crate::peer::{Greeting, Peer};
use crate::seal::SealKey;
use crate::settings::Settings;
use crate::wire::{Headers, Outcome, Params, Revision, RpcError, TASKS, meta, raw, response};
use crate::{broken, call, changes, prompt, resource, task};

/// The connection that a message came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One client, to which the server can send requests at any time.
    Stdio,
    /// One connection for each request, without sessions.
    Http,
}

/// The protocol service for one caller.
pub struct Service {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) selection: Selection,
    pub(crate) transport: Transport,
    pub(crate) unfinished: Arc<Unfinished>,
    pub(crate) seal: SealKey,
    /// The tools at their last reading. A service of a single request has none.
    last: Mutex<Option<Arc<Catalog>>>,
    /// The last list of tools sent to a client without subscriptions, as one text.
    pub(crate) listed: watch::Sender<Option<String>>,
    version: String,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// The context of a request, with all facts about its client.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) revision: Revision,
    /// The id of the request.
    pub(crate) id: Value,
    pub(crate) capabilities: Value,
    pub(crate) client: String,
    pub(crate) progress: Option<Value>,
    pub(crate) peer: Arc<Peer>,
    /// The settings of the apps, by their slugs.
    pub(crate) settings: BTreeMap<String, Settings>,
}

impl Context {
    /// The context of a request without further facts.
    pub(crate) fn new(revision: Revision, peer: &Arc<Peer>) -> Self {
        Self {
            revision,
            id: Value::Null,
            capabilities: Value::Null,
            client: "client".to_owned(),
            progress: None,
            peer: Arc::clone(peer),
            settings: BTreeMap::new(),
        }
    }

    /// True if the client polls tasks.
    pub(crate) fn has_tasks(&self) -> bool {
        self.revision == Revision::July2026 && self.capabilities["extensions"].get(TASKS).is_some()
    }

    /// The settings of an app by its slug; the default if it has none.
    pub(crate) fn settings(&self, app: &str) -> Settings {
        self.settings.get(app).cloned().unwrap_or_default()
    }
}

/// A response, with its HTTP status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The JSON-RPC message as text.
    pub text: String,
    /// The HTTP status; other transports ignore it.
    pub status: u16,
}

impl Service {
    /// The service for the caller of `api`. `seal` is the key of states that clients carry, `version` that of the program.
    pub fn new(api: Arc<dyn Api>, transport: Transport, seal: SealKey, version: &str) -> Self {
        Self {
            api,
            selection: Selection::default(),
            transport,
            unfinished: Arc::default(),
            seal,
            last: Mutex::default(),
            listed: watch::Sender::new(None),
            version: version.to_owned(),
        }
    }

    /// Sets the selection of tools.
    pub fn selection(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// Sets the runs of earlier calls that equal ones join.
    pub fn unfinished(self, unfinished: Arc<Unfinished>) -> Self {
        Self { unfinished, ..self }
    }

    /// The response to a message that is not a request.
    pub fn refuse(id: Option<&RawValue>, error: RpcError) -> Response {
        let status = error.http_status(None);
        Response { text: response(id, &Err(error)), status }
    }

    /// The response to a request. Dropping the future abandons the request.
    pub async fn respond(
        &self,
        peer: &Arc<Peer>,
        headers: Option<&Headers>,
        id: &RawValue,
        method: &str,
        params: &Params,
    ) -> Response {
        let context = match self.context(peer, headers, method, params) {
            Ok(context) => {
                let id = serde_json::from_str(id.get()).unwrap_or_default();
                Context { id, settings: self.api.settings().await, ..context }
            }
            Err(error) => {
                let status = if headers.is_some() { 400 } else { error.http_status(None) };
                return Response { text: response(Some(id), &Err(error)), status };
            }
        };
        let outcome = self.dispatch(&context, method, params).await.and_then(|result| self.finish(&context, result));
        let status = outcome.as_ref().err().map_or(200, |error| error.http_status(Some(context.revision)));
        Response { text: response(Some(id), &outcome), status }
    }

    /// Collects the facts about the client from the request and the connection.
    fn context(
        &self,
        peer: &Arc<Peer>,
        headers: Option<&Headers>,
        method: &str,
        params: &Params,
    ) -> Result<Context, RpcError> {
        let progress = params.meta("progressToken").filter(|token| token.is_string() || token.is_i64()).cloned();
        let of_header = headers.and_then(|headers| headers.revision.as_deref());
        let Some(given) = params.meta(meta::REVISION) else {
            if of_header == Some(Revision::July2026.word()) || method == "server/discover" {
                return Err(RpcError::params(format!("`_meta` has no `{}`", meta::REVISION)));
            }
            let greeting = match (of_header, peer.greeting()) {
                (Some(word), _) => {
                    let revision = Revision::from_word(word).ok_or_else(|| RpcError::revision(word))?;
                    Some(Greeting { revision, capabilities: Value::Null, client: "client".to_owned() })
                }
                (None, greeting) => greeting,
            };
            let greeting = match greeting {
                Some(greeting) => greeting,
                None if headers.is_some() || matches!(method, "initialize" | "ping") => {
                    Greeting { revision: Revision::June2025, capabilities: Value::Null, client: "client".to_owned() }
                }
                None => {
                    return Err(RpcError::new(
                        RpcError::INVALID_REQUEST,
                        "the first request of a connection must be `initialize`",
                    ));
                }
            };
            let Greeting { revision, capabilities, client } = greeting;
            return Ok(Context { capabilities, client, progress, ..Context::new(revision, peer) });
        };
        let word = given.as_str().ok_or_else(|| RpcError::params(format!("`{}` must be a string", meta::REVISION)))?;
        if headers.is_some() && of_header.is_some_and(|header| header != word) {
            let message = format!("the header `MCP-Protocol-Version` is not `{word}`");
            return Err(RpcError::new(RpcError::HEADERS, message));
        }
        let revision = Revision::from_word(word).ok_or_else(|| RpcError::revision(word))?;
        if let Some(headers) = headers {
            headers.check(revision, method, params)?;
        }
        let capabilities = params.meta(meta::CAPABILITIES).cloned().unwrap_or_default();
        if revision == Revision::July2026 && !capabilities.is_object() {
            return Err(RpcError::params(format!("`{}` is required and must be an object", meta::CAPABILITIES)));
        }
        let client = params.meta(meta::CLIENT).and_then(|client| client["name"].as_str()).unwrap_or("client");
        let client = client.to_owned();
        Ok(Context { capabilities, client, progress, ..Context::new(revision, peer) })
    }

    async fn dispatch(&self, context: &Context, method: &str, params: &Params) -> Outcome {
        let is_new = context.revision == Revision::July2026;
        if method.ends_with("/list") && params.members.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
            // Every list is one page, so no cursor can be from this server.
            return Err(RpcError::params("`cursor` is not valid: each list is one page"));
        }
        match method {
            "initialize" if !is_new => raw(&self.initialize(context, params).await?),
            "ping" if !is_new => raw(&json!({})),
            "server/discover" if is_new => raw(&self.discover(context).await?),
            "tools/list" => {
                let tools = Value::from(self.catalog(context).await?.documents());
                if !is_new {
                    self.listed.send_replace(Some(tools.to_string()));
                }
                raw(&listed(context, "tools", tools))
            }
            "subscriptions/listen" if is_new => changes::listen(self, context, params).await,
            "tools/call" => call::call(self, context, params).await,
            "resources/list" => {
                raw(&listed(context, "resources", resource::list(&*self.api, &*self.catalog(context).await?)))
            }
            "resources/templates/list" => raw(&listed(context, "resourceTemplates", resource::templates())),
            "resources/read" => raw(&cached(context, resource::read(self, context, params).await?)),
            "prompts/list" => raw(&listed(context, "prompts", prompt::list(self).await)),
            "prompts/get" => raw(&prompt::get(self, params).await?),
            "tasks/get" | "tasks/update" | "tasks/cancel" if is_new && !context.has_tasks() => {
                Err(RpcError::no_extension(TASKS))
            }
            "tasks/get" if is_new => task::get(self, context, params).await,
            "tasks/update" if is_new => task::update(self, context, params).await,
            "tasks/cancel" if is_new => task::cancel(self, params).await,
            _ => Err(RpcError::no_method(method)),
        }
    }

    /// Adds the members that all results of the revision have.
    fn finish(&self, context: &Context, result: Box<RawValue>) -> Outcome {
        if context.revision.has_initialize() {
            return Ok(result);
        }
        let mut members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(result.get()).map_err(|e| RpcError::internal(e.to_string()))?;
        if !members.contains_key("resultType") {
            members.insert("resultType".to_owned(), raw(&"complete")?);
        }
        let mut about: Value =
            members.get("_meta").map_or(Ok(json!({})), |own| serde_json::from_str(own.get())).unwrap_or_default();
        about[meta::SERVER] = self.info();
        members.insert("_meta".to_owned(), raw(&about)?);
        raw(&members)
    }

    /// The tools as the files are now. Reading them loads every definition of the apps.
    pub(crate) async fn catalog(&self, context: &Context) -> Result<Arc<Catalog>, RpcError> {
        let catalog = Arc::new(Catalog::read(&*self.api, &self.selection, context).await?);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&catalog));
        Ok(catalog)
    }

    /// The pipeline, machine or command with this tool name at the last reading of the tools.
    pub(crate) fn target(&self, name: &str) -> Option<Box<Target>> {
        match self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.tool(name)? {
            Tool::Run(target) => Some(target),
            _ => None,
        }
    }

    fn info(&self) -> Value {
        json!({"name": "etude", "version": self.version})
    }

    async fn instructions(&self, context: &Context) -> Result<String, RpcError> {
        let catalog = self.catalog(context).await?;
        let tools = match catalog.is_compact() {
            false if catalog.targets.is_empty() && !catalog.broken.is_empty() => {
                "There is no pipeline or machine to call: all have errors."
            }
            false if catalog.targets.is_empty() => {
                "There is no pipeline, machine or command to call. In a directory without an app, `etude new .` makes one; its pipelines are in the next list of tools."
            }
            false => "Each pipeline, machine and command of an application is a tool.",
            true => {
                "There are too many pipelines, machines and commands to list as tools. Find one with `etude_find` and call it with `etude_call`."
            }
        };
        let broken =
            broken::note(&catalog.broken).map(|note| format!(" Not available as tools: {note}.")).unwrap_or_default();
        Ok(format!(
            "{tools}{broken} A call of a pipeline or machine starts a durable run. A long call returns the status `running` and the run id; read the run \
             with `etude_show`. Cancelling a call does not stop its run, and an equal call joins it; `etude_cancel` stops it. Only people make decisions \
             that approve something, not tools."
        ))
    }

    async fn initialize(&self, context: &Context, params: &Params) -> Result<Value, RpcError> {
        let requested = params.text("protocolVersion")?;
        let revision = Revision::from_word(requested).filter(|revision| revision.has_initialize());
        let revision = revision.unwrap_or(Revision::November2025);
        let member = |name: &str| params.members.get(name).cloned().unwrap_or_default();
        let client = member("clientInfo")["name"].as_str().unwrap_or("client").to_owned();
        context.peer.greet(Greeting { revision, capabilities: member("capabilities"), client });
        // Without sessions there is no connection for unrequested notifications.
        let tools = if self.transport == Transport::Stdio { json!({"listChanged": true}) } else { json!({}) };
        Ok(json!({
            "protocolVersion": revision.word(),
            "capabilities": {"tools": tools, "resources": {}, "prompts": {}},
            "serverInfo": self.info(),
            "instructions": self.instructions(context).await?,
        }))
    }

    async fn discover(&self, context: &Context) -> Result<Value, RpcError> {
        let supported: Vec<&str> = Revision::ALL.into_iter().map(Revision::word).collect();
        Ok(json!({
            "supportedVersions": supported,
            "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}, "extensions": {TASKS: {}}},
            "instructions": self.instructions(context).await?,
            "ttlMs": 0,
            "cacheScope": "private",
        }))
    }
}

/// A list as a result.
fn listed(context: &Context, name: &str, items: Value) -> Value {
    cached(context, json!({name: items}))
}

/// Adds the cache lifetime that the newest revision requires. Files may change at any time, so it is 0.
fn cached(context: &Context, mut result: Value) -> Value {
    if context.revision == Revision::July2026 {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
    result
}
