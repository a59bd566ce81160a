//! Client of a server: `--server` makes commands work on the runs there.
//!
//! A server's documents are converted to the values that the local journal yields, and are shown by the same functions.

mod address;
mod event;
mod follow;
mod problem;
mod result;
mod row;
mod stream;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use etude_runs::listing::LATEST;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) use address::SERVER;
pub(crate) use follow::Watching;
pub(crate) use result::RunDocument;
#[cfg(feature = "postgres")]
pub(crate) use result::failure as failure_of;
pub(crate) use row::listed;

use crate::args::Global;
use crate::context::Context;
use crate::problem::Problem;
use address::Address;

/// Maximum size of a document, in bytes.
const MAX_DOCUMENT: usize = 256 * 1024 * 1024;

/// Maximum time until a response begins.
const RESPONSE: Duration = Duration::from_secs(90);

/// Client of one server.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Name of the server as the user typed it; `None` for the server in this process.
    name: Option<String>,
    endpoint: RefCell<Arc<Endpoint>>,
    runtime: Runtime,
    /// The app that `--app` names.
    app: Option<String>,
}

/// Address of a server with the HTTP client for it.
#[derive(Debug)]
struct Endpoint {
    address: Address,
    client: reqwest::Client,
}

impl Endpoint {
    async fn find(name: Option<&str>) -> Result<Arc<Self>, Problem> {
        let address = match name {
            Some(name) => Address::find(name).await?,
            None => Address::of_process().await?,
        };
        Ok(Arc::new(Self { client: address.client()?, address }))
    }
}

/// The server that the command line or the environment names. An engine on the command line overrides the variable.
fn named(global: &Global) -> Option<String> {
    if global.engine.is_some() { None } else { address::named(global.server.as_deref()) }
}

impl Remote {
    /// Client of the server that the command line or the environment names; `None` if runs are in the local journal.
    pub(crate) fn from_context(context: &Context) -> Result<Option<Self>, Problem> {
        let Some(name) = named(&context.global) else { return Ok(None) };
        let app = context.global.app.as_ref().map(|app| app.display().to_string());
        Self::new(Some(name), app).map(Some)
    }

    /// True if the command line or the environment names a server.
    #[cfg(feature = "serve")]
    pub(crate) fn is_named(context: &Context) -> bool {
        named(&context.global).is_some()
    }

    /// Client of the server in this process, which has one app.
    #[cfg(feature = "serve")]
    pub(crate) fn of_process() -> Result<Self, Problem> {
        Self::new(None, None)
    }

    fn new(name: Option<String>, app: Option<String>) -> Result<Self, Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Problem::environment(format!("cannot start threads: {e}")))?;
        let endpoint = RefCell::new(runtime.block_on(Endpoint::find(name.as_deref()))?);
        Ok(Self { name, endpoint, runtime, app })
    }

    /// Runs a future on the client's runtime.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint.borrow())
    }

    /// Looks for the server again, since a restarted one has another socket. If there is none, the old address stays.
    async fn find_again(&self) {
        if let Ok(endpoint) = Endpoint::find(self.name.as_deref()).await {
            self.endpoint.replace(endpoint);
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let endpoint = self.endpoint();
        let request = endpoint.client.request(method, format!("{}{path}", endpoint.address.base));
        request.bearer_auth(endpoint.address.token.expose())
    }

    /// Sends a request. Any response but a success is a problem.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Problem> {
        let response = self.respond(request).await?;
        self.successful(response).await
    }

    /// Sends a request, and returns the response with any status.
    async fn respond(&self, request: RequestBuilder) -> Result<Response, Problem> {
        match tokio::time::timeout(RESPONSE, request.send()).await {
            Ok(sent) => sent.map_err(|error| self.unreachable(&error)),
            Err(_) => Err(Problem::environment(format!("{} does not respond", self.endpoint().address))),
        }
    }

    /// Returns a successful response; any other is a problem.
    async fn successful(&self, response: Response) -> Result<Response, Problem> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.body(response).await?;
        Err(problem::from_response(
            &self.endpoint().address,
            status.as_u16(),
            &serde_json::from_slice(&body).unwrap_or_default(),
        ))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Problem {
        let why = etude_http::root_cause(error);
        let address = &self.endpoint().address;
        let way = etude_http::environment::way_to(&address.base);
        Problem::environment(format!("{address} cannot be reached{way}: {why}")).hint(problem::way_out(&why))
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_DOCUMENT {
                return Err(Problem::environment(format!(
                    "a response of {} is larger than 256 MiB",
                    self.endpoint().address
                )));
            }
        }
        Ok(bytes)
    }

    async fn text(&self, request: RequestBuilder) -> Result<String, Problem> {
        let bytes = self.body(self.send(request).await?).await?;
        String::from_utf8(bytes).map_err(|_| self.foreign("is not UTF-8"))
    }

    async fn document(&self, request: RequestBuilder) -> Result<Value, Problem> {
        let text = self.text(request).await?;
        serde_json::from_str(&text).map_err(|e| self.foreign(&format!("is not JSON: {e}")))
    }

    /// Problem of a response that does not come from an etude server.
    fn foreign(&self, what: &str) -> Problem {
        Problem::environment(format!("the response of {} {what}", self.endpoint().address))
            .hint("the address may belong to another program; `etude serve` prints the address of the server")
    }

    /// Fetches a document by its path and query.
    pub(crate) fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Problem> {
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", encoded(query)) };
        self.block_on(self.document(self.request(Method::GET, &path)))
    }

    /// Fetches a document that has a member `name`.
    pub(crate) fn with_member(&self, path: &str, query: &[(&str, String)], name: &str) -> Result<Value, Problem> {
        let document = self.get(path, query)?;
        if document.get(name).is_some() { Ok(document) } else { Err(self.foreign(&format!("has no member `{name}`"))) }
    }

    /// Fetches a page of a list: its entries, which are the member `name`, and the cursor of the next page.
    pub(crate) fn list(
        &self,
        path: &str,
        query: &[(&str, String)],
        name: &str,
    ) -> Result<(Vec<Value>, Option<String>), Problem> {
        let mut page = self.get(path, query)?;
        match page.get_mut(name).map(Value::take) {
            Some(Value::Array(entries)) => Ok((entries, page["next"].as_str().map(str::to_owned))),
            _ => Err(self.foreign(&format!("has no list `{name}`"))),
        }
    }

    /// Fetches the bytes at a path, in pieces.
    pub(crate) fn bytes(&self, path: &str, mut each: impl FnMut(&[u8])) -> Result<(), Problem> {
        self.block_on(async {
            let mut response = self.send(self.request(Method::GET, path)).await?;
            while let Some(piece) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
                each(&piece);
            }
            Ok(())
        })
    }

    /// Sends a POST and returns the document. Its idempotency key makes repeating it safe.
    pub(crate) fn post(&self, path: &str, body: &str) -> Result<Value, Problem> {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        let request = request.header("idempotency-key", etude_runtime::run_id::new());
        self.block_on(self.document(request.body(body.to_owned())))
    }

    /// Like [`Self::post`], with the document as text, which keeps all of its digits.
    pub(crate) fn post_for_text(&self, path: &str, body: &str) -> Result<String, Problem> {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        let request = request.header("idempotency-key", etude_runtime::run_id::new());
        let text = self.block_on(self.text(request.body(body.to_owned())))?;
        let checked = serde_json::from_str::<&serde_json::value::RawValue>(&text);
        checked.map(|raw| raw.get().to_owned()).map_err(|e| self.foreign(&format!("is not JSON: {e}")))
    }

    /// Starts a run by a POST to `path`, with this idempotency key or a new one. Returns its document, and whether it already
    /// existed under the key.
    pub(crate) fn start(&self, path: &str, body: &str, key: Option<&str>) -> Result<(Value, bool), Problem> {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        let request = request.header("idempotency-key", key.map_or_else(etude_runtime::run_id::new, str::to_owned));
        self.block_on(async {
            let response = self.send(request.body(body.to_owned())).await?;
            let is_replayed = response.headers().contains_key("idempotency-replayed");
            let run = serde_json::from_slice(&self.body(response).await?);
            run.map(|run| (run, is_replayed)).map_err(|e| self.foreign(&format!("is not JSON: {e}")))
        })
    }

    /// Fetches the current document of a run.
    pub(crate) async fn run(&self, id: &str) -> Result<RunDocument, Problem> {
        let text = self.text(self.request(Method::GET, &format!("/v1/runs/{id}"))).await?;
        RunDocument::parse(&text).map_err(|why| self.foreign(&why))
    }

    /// Slug of the selected app: the named one, or the only one.
    pub(crate) fn app(&self) -> Result<String, Problem> {
        if let Some(app) = &self.app {
            return Ok(app.clone());
        }
        let (apps, _) = self.list("/v1/server", &[], "apps")?;
        let apps: Vec<&str> = apps.iter().filter_map(Value::as_str).collect();
        match apps.as_slice() {
            [app] => Ok((*app).to_owned()),
            _ => Err(Problem::usage(format!("{} has several apps", self.endpoint().address))
                .hint(format!("name one with `--app`: {}", apps.join(", ")))),
        }
    }

    /// Query filter of the named app.
    pub(crate) fn of_app(&self) -> Vec<(&'static str, String)> {
        self.app.iter().map(|app| ("app", app.clone())).collect()
    }

    /// Finds a run by its id, by a prefix of it, or as `latest`.
    pub(crate) fn find(&self, id: &str) -> Result<RunDocument, Problem> {
        if id == LATEST {
            let mut query = self.of_app();
            query.push(("limit", "1".to_owned()));
            let (runs, _) = self.list("/v1/runs", &query, "runs")?;
            let Some(latest) = runs.first().and_then(|run| run["run_id"].as_str()) else {
                return Err(Problem::usage("the server has no run, so there is no latest one"));
            };
            return self.block_on(self.run(latest));
        }
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(unknown(id));
        }
        // A complete id may occur in labels of many other runs, which a search would find too.
        if let Some(run) = self.block_on(self.run_if_known(id))? {
            return Ok(run);
        }
        match self.beginning(id)?.as_slice() {
            [] => Err(unknown(id)),
            [one] => self.block_on(self.run(one)),
            several => Err(Problem::usage(format!("`{id}` is a prefix of several run ids: {}", several.join(", ")))
                .hint("list the full ids with `etude runs list`")),
        }
    }

    /// The run with this complete id; `None` if the server has none.
    async fn run_if_known(&self, id: &str) -> Result<Option<RunDocument>, Problem> {
        let response = self.respond(self.request(Method::GET, &format!("/v1/runs/{id}"))).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let bytes = self.body(self.successful(response).await?).await?;
        let text = String::from_utf8(bytes).map_err(|_| self.foreign("is not UTF-8"))?;
        RunDocument::parse(&text).map(Some).map_err(|why| self.foreign(&why))
    }

    /// Ids of the runs that begin with `id`; only a few of them if there are several.
    fn beginning(&self, id: &str) -> Result<Vec<String>, Problem> {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let mut query = vec![("q", id.to_owned()), ("limit", "200".to_owned())];
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let (rows, next) = self.list("/v1/runs", &query, "runs")?;
            let ids = rows.iter().filter_map(|row| row["run_id"].as_str()).filter(|known| known.starts_with(id));
            found.extend(ids.map(str::to_owned));
            cursor = next;
            if found.len() > 1 || cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// Requests that a run is cancelled, or killed.
    async fn cancel_run(&self, id: &str, reason: &str, mode: &str) -> Result<Value, Problem> {
        let request = self.request(Method::POST, &format!("/v1/runs/{id}/cancel"));
        let body = json!({"reason": reason, "mode": mode}).to_string();
        self.document(request.header("content-type", "application/json").body(body)).await
    }

    /// Requests that a run is cancelled. Returns its row.
    pub(crate) fn cancel(&self, id: &str, reason: &str) -> Result<Value, Problem> {
        self.block_on(self.cancel_run(id, reason, "cancel"))
    }

    /// Deletes a run that has ended.
    pub(crate) fn delete(&self, id: &str) -> Result<(), Problem> {
        self.block_on(self.send(self.request(Method::DELETE, &format!("/v1/runs/{id}")))).map(drop)
    }

    /// Description of the server for messages.
    pub(crate) fn described(&self) -> String {
        self.endpoint().address.to_string()
    }
}

fn unknown(id: &str) -> Problem {
    Problem::usage(format!("there is no run `{id}`")).hint("list them with `etude runs list`")
}

/// Encodes a query string.
fn encoded(pairs: &[(&str, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
    pairs.join("&")
}

/// Percent-encodes a text as one segment of a path, or as a value of a query.
pub(crate) fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Refuses options that a server does not accept.
pub(crate) fn refuse_options(options: &[(bool, &str, &str)]) -> Result<(), Problem> {
    match options.iter().find(|(is_given, _, _)| *is_given) {
        None => Ok(()),
        Some((_, option, way)) => {
            Err(Problem::usage(format!("a run on a server does not accept `{option}`")).hint(way.to_owned()))
        }
    }
}

impl Context {
    /// Client of the server that has the runs; `None` if they are in the local journal.
    pub(crate) fn server(&self) -> Result<Option<Remote>, Problem> {
        Remote::from_context(self)
    }

    /// True if the runs of this command are on a server.
    pub(crate) fn is_remote(&self) -> bool {
        named(&self.global).is_some()
    }
}
