//! The port to runs: the HTTP interface of the server, without a connection.

use std::collections::BTreeMap;
use std::pin::Pin;

use tokio::sync::watch;

use crate::settings::Settings;

/// A method of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads; nothing changes.
    Get,
    /// Changes something; scopes of writing apply.
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
    /// The number of bytes that are wanted, from the first one on; `None`: all.
    pub first_bytes: Option<u64>,
    /// True if the request is part of a call, which needs the scope of its tool alone. Only a read may be part of one.
    pub is_of_call: bool,
}

impl Request {
    /// Reads a document.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::Get, path: path.into(), body: None, decider: None, first_bytes: None, is_of_call: false }
    }

    /// Reads a document for a call, whose tool says which scope is needed: `run` does not imply `read`.
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
    /// The body as it came: a JSON document, or bytes of a stream.
    pub body: Vec<u8>,
}

/// The future of a response.
pub type Replying<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// The future of a run's status.
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

/// The future of the settings of apps, by their slugs.
pub type Configuring<'a> = Pin<Box<dyn Future<Output = BTreeMap<String, Settings>> + Send + 'a>>;

/// The future of the skills of all apps that the caller may see.
pub type Listing<'a> = Pin<Box<dyn Future<Output = Vec<Skill>> + Send + 'a>>;

/// The interface as one caller sees it. `--only` of the caller's token holds for every request, and so do its scopes, but for
/// [`Request::for_call`].
pub trait Api: Send + Sync {
    /// The response to a request.
    fn send(&self, request: Request) -> Replying<'_>;

    /// The status of a run that the caller sees, read without its journal.
    fn status<'a>(&'a self, run_id: &'a str) -> Finding<'a>;

    /// The settings of the apps as their files are now; an app without any has the defaults.
    fn settings(&self) -> Configuring<'_>;

    /// The skills that agents may use.
    fn skills(&self) -> Listing<'_>;

    /// The text of such a skill.
    fn skill<'a>(&'a self, skill: &'a Skill) -> Finding<'a>;

    /// Changes whenever the run may have: its status, its effects or its questions.
    fn news(&self, run_id: &str) -> watch::Receiver<()>;

    /// Changes whenever what tools are made of may have: definitions, applications, and settings of the apps. It is looked at while
    /// there are receivers.
    fn definitions(&self) -> watch::Receiver<u64>;

    /// True when the server is about to stop.
    fn stopping(&self) -> watch::Receiver<bool>;

    /// The name of the caller's token.
    fn caller(&self) -> &str;

    /// True if the caller's token has the scope.
    fn may(&self, scope: &str) -> bool;

    /// True if the caller's token is for the pipeline or machine.
    fn covers(&self, name: &str) -> bool;

    /// The address of the server's pages, without a trailing slash; `None` if it has none.
    fn pages(&self) -> Option<String>;
}
