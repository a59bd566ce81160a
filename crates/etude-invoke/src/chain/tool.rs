//! Tools with their chains, compiled to plain lists.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::chain::middleware::Middleware;

/// A compiled tool. Built once and shared by all invocations.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The name for calls and messages.
    pub name: Arc<str>,
    /// Names of the entries of the chain, in order.
    pub chain: Arc<[Arc<str>]>,
    /// Tools that observe every entry of the chain, before and after it (D-4.7, `$hook`).
    pub hooks: Arc<[Arc<str>]>,
    /// The merged metadata, which middleware reads at the target.
    pub metadata: Arc<Value>,
    /// Initial values of `run.tool`.
    pub about: Arc<Map<String, Value>>,
    /// Origin of the tool: `run.origin.uri`.
    pub uri: Option<Arc<str>>,
    /// The frontmatter: `run.origin.frontmatter`.
    pub frontmatter: Arc<Value>,
    /// The text of a Markdown tool: `locals.prompt`.
    pub prompt: Option<Arc<str>>,
    /// Patterns of the tools that it may call; `None`: all tools.
    pub allowed_tools: Option<Arc<str>>,
    /// The function, program or text that an invocation runs.
    pub body: ToolHandler,
}

/// The implementation of a tool.
#[derive(Clone)]
pub enum ToolHandler {
    /// No function: the tool is a prompt, which `agent-execute` sends to an agent.
    Nothing,
    /// Built-in middleware, which runs inside the machine.
    Middleware(Arc<dyn Middleware>),
    /// An effect, which the driver of the machine runs.
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

    /// True if an entry of the chain runs the tool's function.
    pub(crate) fn has_execute(&self) -> bool {
        self.chain.iter().any(|name| **name == *EXECUTE)
    }
}

impl fmt::Debug for ToolHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Middleware(_) => "Middleware",
            Self::Effect => "Effect",
        })
    }
}
