//! The port to runs: the HTTP interface of the server, without a connection.

use std::collections::BTreeMap;
use std::pin::Pin;

use tokio::sync::watch;

use crate::settings::Settings;

/// A method of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A read, which changes nothing.
    Get,
    /// A change; it needs a scope of writing.
    Post,
}

/// A request to the interface.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET` reads and `POST` changes; the interface has no others.
    pub method: Method,
    /// Path and query, from `/v1`.
    pub path: String,
    /// The JSON text of the body; `None`: no body.
    pub body: Option<String>,
    /// The name under which a decision is recorded instead of that of the token: `mcp:CLIENT`.
    pub decider: Option<String>,
    /// Maximum number of bytes to return, from the first one on; `None`: all.
    pub first_bytes: Option<u64>,
    /// True if the request is part of a call, for which the scope of its tool is enough. Only a read may be part of a call.
    pub is_of_call: bool,
}

impl Request {
    /// Reads a document.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::Get, path: path.into(), body: None, decider: None, first_bytes: None, is_of_call: false }
    }

    /// Reads a document for a call. The tool's scope is enough: `run` does not imply `read`.
    pub fn for_call(path: impl Into<String>) -> Self {
        Self { is_of_call: true, ..Self::get(path) }
    }

    /// Sends a document.
    pub fn post(path: impl Into<String>, body: impl Into<String>) -> Self {
        Self { method: Method::Post, body: Some(body.into()), ..Self::get(path) }
    }
}

/// The response to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status of the interface.
    pub status: u16,
    /// The body as it was sent: a JSON document, or bytes of a stream.
    pub body: Vec<u8>,
}

/// Future of a response.
pub type Replying<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// Future of an optional text, such as the status of a run.
pub type Finding<'a> = Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>;

/// A skill of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The slug of the app.
    pub app: String,
    /// The `name` of its `SKILL.md`.
    pub name: String,
    /// The `description` of its `SKILL.md`, for the model of the client.
    pub description: String,
}

/// Future of the settings of apps, by their slugs.
pub type Configuring<'a> = Pin<Box<dyn Future<Output = BTreeMap<String, Settings>> + Send + 'a>>;

/// Future of the skills of all apps that the caller may see.
pub type Listing<'a> = Pin<Box<dyn Future<Output = Vec<Skill>> + Send + 'a>>;

/// The interface with the rights of one caller. `--only` and the scopes of the caller's token apply to every request, except for
/// [`Request::for_call`].
pub trait Api: Send + Sync {
    /// The response to a request.
    fn send(&self, request: Request) -> Replying<'_>;

    /// The status of a run that the caller may see, read without its journal.
    fn status<'a>(&'a self, run_id: &'a str) -> Finding<'a>;

    /// The current settings of the apps; an app without any has the defaults.
    fn settings(&self) -> Configuring<'_>;

    /// The skills that agents may use.
    fn skills(&self) -> Listing<'_>;

    /// The text of a skill; `None` if it is not available.
    fn skill<'a>(&'a self, skill: &'a Skill) -> Finding<'a>;

    /// A receiver that changes whenever the run may have: its status, its effects or its questions.
    fn news(&self, run_id: &str) -> watch::Receiver<()>;

    /// A receiver that changes whenever the sources of tools may have: definitions, applications, and settings of the apps. They
    /// are checked while there are receivers.
    fn definitions(&self) -> watch::Receiver<u64>;

    /// A receiver that becomes true when the server is about to stop.
    fn stopping(&self) -> watch::Receiver<bool>;

    /// The name of the caller's token.
    fn caller(&self) -> &str;

    /// True if the caller's token has the scope.
    fn may(&self, scope: &str) -> bool;

    /// True if the caller's token covers the pipeline or machine.
    fn covers(&self, name: &str) -> bool;

    /// The address of the server's pages, without a trailing slash; `None` if it has none.
    fn pages(&self) -> Option<String>;
}
