//! Middleware that applies one value of the metadata to the context.

use std::sync::Arc;

use crate::chain::{Throw, ThrowKind, View};
use etude_spec::cascade::mcp;
use etude_spec::cascade::search::absolute;
use etude_spec::cascade::skill::names;
use serde_json::{Map, Value, json};

use super::{Once, Shared, dir_of};
use crate::handlers::add_handler;

/// Sets one value of `locals.config`, or the value that the name stands for.
pub(super) struct Configure {
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
}

impl Once for Configure {
    fn run(&self, view: &mut View<'_>) -> Result<Option<Value>, Throw> {
        let value = view.target().metadata(&self.name).cloned().unwrap_or(Value::Null);
        let set = self.shared.config.iter().rev().find(|(key, _)| *key == self.name).map(|(_, value)| value.clone());
        match self.name.as_str() {
            "cwd" | "workspace" => {
                let value = set.unwrap_or(value);
                if let Some(dir) = value.as_str() {
                    let dir = if self.name == "cwd" { absolute(&self.shared.cwd(), dir) } else { dir.to_owned() };
                    configure(view, &self.name, json!(dir));
                }
            }
            "paths" => configure(view, "paths", value),
            "mcp" if !value.is_null() => {
                for (server, entry) in value.as_object().into_iter().flatten() {
                    let faulty =
                        |why| Throw::new(ThrowKind::Definition, "mcp", format!("the server `{server}`: {why}"));
                    mcp::transport(entry).map_err(faulty)?;
                }
                configure(view, "mcp", value);
            }
            "model" if !value.is_null() => configure(view, &self.name, value),
            "gateway" if !value.is_null() => {
                Arc::make_mut(&mut view.target_mut().nonlocals).insert("gateway".to_owned(), value);
            }
            "event" => subscribe(view.globals, &value),
            "log" if !value.is_null() => drop(view.target_mut().locals.insert("log".to_owned(), value)),
            "include" => return self.include(view, &value),
            _ => {}
        }
        Ok(None)
    }
}

impl Configure {
    /// Puts the content of files before the prompt, if the tool has one. Several files keep their order (D-10).
    fn include(&self, view: &mut View<'_>, value: &Value) -> Result<Option<Value>, Throw> {
        let Some(prompt) = view.target().prompt.clone() else { return Ok(None) };
        let files = match value {
            Value::String(file) => vec![file.clone()],
            value => names(value),
        };
        let cwd =
            view.target().config.get("cwd").and_then(Value::as_str).map_or_else(|| self.shared.cwd(), str::to_owned);
        let mut text = String::new();
        for file in files {
            let own = dir_of(view.target(), &self.shared);
            let content =
                self.shared.read(&cwd, &file, &own).map_err(|why| Throw::new(ThrowKind::Failed, "include", why))?;
            text.push_str(content.trim_end());
            text.push_str("\n\n");
        }
        view.target_mut().prompt = Some((text + &prompt).into());
        Ok(None)
    }
}

/// Sets one value of `locals.config`.
fn configure(view: &mut View<'_>, key: &str, value: Value) {
    let target = view.target_mut();
    let config = Arc::make_mut(&mut target.config);
    match config {
        Value::Object(members) => drop(members.insert(key.to_owned(), value)),
        other => *other = Value::Object(Map::from_iter([(key.to_owned(), value)])),
    }
}

/// Adds event handlers: each topic maps to a skill, or to `{ref, args}`. Duplicates are ignored.
fn subscribe(globals: &mut Value, value: &Value) {
    let Some(topics) = value.as_object() else { return };
    for (topic, handlers) in topics {
        let handlers = match handlers {
            Value::Array(items) => items.clone(),
            one => vec![one.clone()],
        };
        for handler in handlers {
            let handler = if handler.is_string() { json!({ "ref": handler }) } else { handler };
            add_handler(globals, topic, &handler);
        }
    }
}
