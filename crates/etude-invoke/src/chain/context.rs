//! The context of an invocation (D-8).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::chain::throw::Throw;
use crate::chain::tool::Tool;

/// Identifies a context within its machine. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub(crate) u64);

impl ContextId {
    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Data of an outside caller for the program's own middleware. The machine passes it on unread.
#[derive(Clone)]
pub struct Payload(pub Arc<dyn Any + Send + Sync>);

impl Payload {
    /// The value, if it has the type `T`.
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
    /// The context that an entry of a chain serves; `None` for other invocations.
    pub target: Option<ContextId>,
    /// The context whose function or middleware made this call.
    pub parent: Option<ContextId>,
    /// The context whose `allowed-tools` apply to this call; `None` if none do.
    pub caller: Option<ContextId>,
    /// The immutable arguments.
    pub args: Arc<Value>,
    /// The tool or middleware that is invoked, as the catalog has it.
    pub tool: Arc<Tool>,
    /// `run.tool`, as differences from the tool's own values.
    pub about: Map<String, Value>,
    /// `locals.result`: `None` while undefined, or a value, which may be `null`.
    pub result: Option<Value>,
    /// `locals.error`.
    pub error: Option<Throw>,
    /// `locals.config`.
    pub config: Arc<Value>,
    /// `locals.prompt`.
    pub prompt: Option<Arc<str>>,
    /// The rest of `locals`.
    pub locals: Map<String, Value>,
    /// `nonlocals`: copied to everything that is invoked from here.
    pub nonlocals: Arc<Map<String, Value>>,
    /// Payload of an invocation from outside.
    pub payload: Option<Payload>,
    pub(crate) history: Option<Arc<Frame>>,
    /// Number of enclosing invocations. An entry has the depth of the tool that it serves.
    pub(crate) depth: u32,
    /// Number of entries of the chain that were taken.
    pub(crate) taken: usize,
    pub(crate) is_stopped: bool,
    pub(crate) is_executed: bool,
    /// True for a hook and everything that it calls: hooks do not observe it.
    pub(crate) is_of_hook: bool,
}

/// One frame of `locals.history`. Callees share the frames of their caller.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) tool: Arc<str>,
    pub(crate) args: Arc<Value>,
    pub(crate) at_ms: u64,
    pub(crate) before: Option<Arc<Frame>>,
}

impl Drop for Frame {
    /// Drops the frames in a loop: recursion would be as deep as the history is long.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut frame) = before.and_then(Arc::into_inner) {
            before = frame.before.take();
        }
    }
}

impl Context {
    /// True if the context belongs to an entry of a chain.
    pub fn is_entry(&self) -> bool {
        self.target.is_some()
    }

    /// The value of `run.tool` at `key`.
    pub fn about(&self, key: &str) -> Option<&Value> {
        self.about.get(key).or_else(|| self.tool.about.get(key))
    }

    /// The value of the merged metadata at `key`.
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.tool.metadata.get(key)
    }

    /// The frames of the history, oldest first.
    fn frames(&self) -> Vec<&Frame> {
        let mut frames: Vec<_> =
            std::iter::successors(self.history.as_deref(), |frame| frame.before.as_deref()).collect();
        frames.reverse();
        frames
    }

    /// The positions in the history of the frames that have the arguments `args`.
    pub(crate) fn frames_of(&self, args: &Arc<Value>) -> Vec<usize> {
        let frames = self.frames().into_iter().enumerate();
        frames.filter(|(_, frame)| Arc::ptr_eq(&frame.args, args)).map(|(at, _)| at).collect()
    }

    /// The history as `{"tool", "args", "timestamp"}` each, oldest first.
    pub fn history(&self) -> Vec<Value> {
        let document = |frame: &Frame| json!({"tool": &*frame.tool, "args": &*frame.args, "timestamp": frame.at_ms});
        self.frames().into_iter().map(document).collect()
    }

    /// The context as a document, with the given `globals`. Undefined values are left out.
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

    /// Takes the mutable parts of such a document: `locals`, `nonlocals` and `run.tool`. Missing members stay as they are.
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
            // The machine alone extends the history, and errors come from throws only.
            "history" | "error" => {}
            _ => drop(self.locals.insert(key.to_owned(), value)),
        }
    }
}
