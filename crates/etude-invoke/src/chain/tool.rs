//! A tool, ready to be invoked: its chain compiled to a plain list.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::chain::middleware::Middleware;

/// A tool, ready to be invoked. Made once, shared by all invocations.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The name by which it is called and by which messages name it.
    pub name: Arc<str>,
    /// The names of the entries of its chain, in order.
    pub chain: Arc<[Arc<str>]>,
    /// The tools that look on before and after every entry of its chain (D-4.7, `$hook`).
    pub hooks: Arc<[Arc<str>]>,
    /// The merged metadata, which layers read at the target.
    pub metadata: Arc<Value>,
    /// What `run.tool` begins with.
    pub about: Arc<Map<String, Value>>,
    /// Where it comes from: `run.origin.uri`.
    pub uri: Option<Arc<str>>,
    /// The frontmatter: `run.origin.frontmatter`.
    pub frontmatter: Arc<Value>,
    /// The text of a Markdown tool: `locals.prompt`.
    pub prompt: Option<Arc<str>>,
    /// Which tools it may call, as patterns; `None`: every one.
    pub allowed_tools: Option<Arc<str>>,
    /// The function, program or text that an invocation runs.
    pub body: ToolHandler,
}

/// What is run when a tool is called.
#[derive(Clone)]
pub enum ToolHandler {
    /// Nothing: the tool is a prompt, and `agent-execute` does the rest.
    Nothing,
    /// Something that needs no one else.
    Middleware(Arc<dyn Middleware>),
    /// One effect, which anyone who drives the machine performs.
    Effect,
}

/// The name of the entry that runs the function of a tool.
pub const EXECUTE: &str = "execute";

impl Tool {
    /// A tool with an empty chain and no metadata.
    pub fn new(name: &str, body: ToolHandler) -> Self {
        Self {
            name: name.into(),
            chain: Arc::new([]),
            hooks: Arc::new([]),
            metadata: Arc::new(Value::Object(Map::new())),
            about: Arc::default(),
            uri: None,
            frontmatter: Arc::new(Value::Null),
            prompt: None,
            allowed_tools: None,
            body,
        }
    }

    /// The same tool with this chain.
    #[must_use]
    pub fn with_chain<S: AsRef<str>>(mut self, names: &[S]) -> Self {
        self.chain = names.iter().map(|name| Arc::from(name.as_ref())).collect();
        self
    }

    /// True if its function is run by an entry of its chain.
    pub(crate) fn has_execute(&self) -> bool {
        self.chain.iter().any(|name| **name == *EXECUTE)
    }
}

impl fmt::Debug for ToolHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Middleware(_) => "Layer",
            Self::Effect => "Effect",
        })
    }
}
