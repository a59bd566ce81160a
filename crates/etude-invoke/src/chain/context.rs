//! What an invocation knows and may change (D-8).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::chain::throw::Throw;
use crate::chain::tool::Tool;

/// Names a context within its machine. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub(crate) u64);

impl ContextId {
    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What anyone who invoked a tool from outside wants its own layers to know. The machine passes it on and looks at nothing.
#[derive(Clone)]
pub struct Payload(pub Arc<dyn Any + Send + Sync>);

impl Payload {
    /// What is in it, if it is one of these.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Payload")
    }
}

/// The context of one invocation.
#[derive(Debug)]
pub struct Context {
    /// Its id: `envelope.id`.
    pub id: ContextId,
    /// The context that an entry of a chain serves; `None` for anything that is no entry.
    pub target: Option<ContextId>,
    /// The context whose function or layer made this call.
    pub parent: Option<ContextId>,
    /// The context whose `allowed-tools` hold for this call; `None` if no one's do.
    pub caller: Option<ContextId>,
    /// The arguments. Never changed.
    pub args: Arc<Value>,
    /// The tool or layer that is invoked, as the catalog has it.
    pub tool: Arc<Tool>,
    /// `run.tool`, with its differences from what the tool began with.
    pub about: Map<String, Value>,
    /// `locals.result`: nothing so far, or a value, which may be `null`.
    pub result: Option<Value>,
    /// `locals.error`.
    pub error: Option<Throw>,
    /// `locals.config`.
    pub config: Arc<Value>,
    /// `locals.prompt`.
    pub prompt: Option<Arc<str>>,
    /// The rest of `locals`.
    pub locals: Map<String, Value>,
    /// What is handed down to everything that is invoked from here, as a copy.
    pub nonlocals: Arc<Map<String, Value>>,
    /// What came with the invocation, if it came from outside.
    pub payload: Option<Payload>,
    pub(crate) history: Option<Arc<Frame>>,
    /// How many invocations it lies in. An entry lies where the tool does that it serves.
    pub(crate) depth: u32,
    /// How many entries of its tool's chain were taken.
    pub(crate) taken: usize,
    pub(crate) is_stopped: bool,
    pub(crate) is_executed: bool,
    /// It belongs to a hook, or to what one has called: no hooks look on.
    pub(crate) is_of_hook: bool,
}

/// One frame of `locals.history`. Frames of a caller are shared with what it calls.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) tool: Arc<str>,
    pub(crate) args: Arc<Value>,
    pub(crate) at_ms: u64,
    pub(crate) before: Option<Arc<Frame>>,
}

impl Drop for Frame {
    /// One after the other: a long history would be as deep a recursion.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut frame) = before.and_then(Arc::into_inner) {
            before = frame.before.take();
        }
    }
}

impl Context {
    /// True if it belongs to an entry of a chain.
    pub fn is_entry(&self) -> bool {
        self.target.is_some()
    }

    /// One value of `run.tool`.
    pub fn about(&self, key: &str) -> Option<&Value> {
        self.about.get(key).or_else(|| self.tool.about.get(key))
    }

    /// One value of the merged metadata.
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.tool.metadata.get(key)
    }

    /// The history, oldest first: `{"tool", "args", "timestamp"}` each.
    pub fn history(&self) -> Vec<Value> {
        let mut frames = Vec::new();
        let mut next = self.history.as_deref();
        while let Some(frame) = next {
            frames.push(json!({"tool": &*frame.tool, "args": &*frame.args, "timestamp": frame.at_ms}));
            next = frame.before.as_deref();
        }
        frames.reverse();
        frames
    }

    /// The context as a document, `globals` as given. What is undefined is not in it.
    pub fn json(&self, globals: &Value) -> Value {
        let mut about: Map<String, Value> = (*self.tool.about).clone();
        about.extend(self.about.clone());
        about.insert("name".to_owned(), json!(&*self.tool.name));
        about.insert("metadata".to_owned(), (*self.tool.metadata).clone());
        let mut locals = self.locals.clone();
        locals.insert("config".to_owned(), (*self.config).clone());
        locals.insert("history".to_owned(), Value::Array(self.history()));
        let optional = [
            ("result", self.result.clone()),
            ("error", self.error.as_ref().map(Throw::json)),
            ("prompt", self.prompt.as_deref().map(|text| json!({"text": text, "expanded": text}))),
        ];
        locals.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let id = |id: Option<ContextId>| id.map(|id| id.0);
        json!({
            "envelope": {"id": self.id.0, "target": id(self.target), "parent": id(self.parent)},
            "args": &*self.args,
            "run": {"origin": {"uri": self.tool.uri.as_deref(), "frontmatter": &*self.tool.frontmatter}, "tool": about},
            "locals": locals,
            "nonlocals": &*self.nonlocals,
            "globals": globals,
        })
    }

    /// Takes over what may be changed from a document of this form: `locals`, `nonlocals`, `run.tool`. What it does not
    /// have is left as it is.
    pub fn take_over(&mut self, document: &Value) {
        if let Some(locals) = document.get("locals").and_then(Value::as_object) {
            for (key, value) in locals {
                self.set_local(key, value.clone());
            }
        }
        if let Some(nonlocals) = document.get("nonlocals").and_then(Value::as_object) {
            Arc::make_mut(&mut self.nonlocals).extend(nonlocals.clone());
        }
        if let Some(about) = document.get("run").and_then(|run| run.get("tool")).and_then(Value::as_object) {
            let own = |key: &str| key != "name" && key != "metadata";
            let changed = about.iter().filter(|(key, value)| own(key) && self.about(key) != Some(value));
            let changed: Vec<(String, Value)> = changed.map(|(key, value)| (key.clone(), value.clone())).collect();
            self.about.extend(changed);
        }
    }

    fn set_local(&mut self, key: &str, value: Value) {
        match key {
            "result" => self.result = Some(value),
            "config" => self.config = Arc::new(value),
            "prompt" => {
                let text = value.as_str().or_else(|| value.get("expanded").and_then(Value::as_str));
                self.prompt = text.map(Arc::from);
            }
            // History is only added to, and only by the machine; errors are what was thrown.
            "history" | "error" => {}
            _ => drop(self.locals.insert(key.to_owned(), value)),
        }
    }
}
