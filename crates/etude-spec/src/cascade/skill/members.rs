//! The frontmatter of a skill as values, and the outline that the chains of nearly all skills need.
//!
//! A search path may hold thousands of skills of which a run calls three. The facts that are needed of all of them are
//! kept as spans in their files.

use std::collections::BTreeMap;

use etude_core::exact::scalar;
use serde_json::{Map, Value};

use crate::source::{SourceFile, Span};
use crate::yaml::{Entries, Node};

/// Values of the frontmatter.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    /// Values of all keys except `metadata`.
    pub(super) head: Map<String, Value>,
    /// Values below `metadata`.
    pub(super) metadata: Map<String, Value>,
}

impl Members {
    pub(super) fn read(entries: &Entries<'_>) -> Self {
        let others = entries.iter().filter(|(key, ..)| *key != "metadata");
        let head = others.map(|(key, _, node)| (key.to_owned(), json(node))).collect();
        Self { head, ..Self::of_metadata(entries) }
    }

    /// Only the values below `metadata`.
    pub(super) fn of_metadata(entries: &Entries<'_>) -> Self {
        let metadata = match entries.get("metadata").map(json) {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        Self { head: Map::new(), metadata }
    }
}

/// Spans of the keys of `metadata`.
#[derive(Debug, Clone)]
pub(super) struct Outline {
    keys: Box<[Span]>,
    /// Span of the value of `$inherit`, if there is one.
    parent: Option<Span>,
}

impl Outline {
    /// Finds the spans; `None` if a key or the single parent is written with escapes, or is not text.
    pub(super) fn find(file: &SourceFile, entries: &Entries<'_>) -> Option<Self> {
        let metadata = match entries.get("metadata") {
            Some(node) => node.as_map()?,
            None => return Some(Self { keys: Box::default(), parent: None }),
        };
        let as_written = |node: &Node<'_>, text: &str| Some(node.span).filter(|span| file.slice(*span) == text);
        let keys = metadata.iter().map(|(key, node, _)| as_written(node, key)).collect::<Option<_>>()?;
        let parent = match metadata.get("$inherit") {
            // A parent with an empty name differs from no parent.
            Some(node) => Some(node.as_text().filter(|text| !text.is_empty()).and_then(|text| as_written(node, text))?),
            None => None,
        };
        Some(Self { keys, parent })
    }

    /// Text of the keys, as written.
    pub(super) fn keys<'f>(&self, file: &'f SourceFile) -> impl Iterator<Item = &'f str> {
        self.keys.iter().map(|span| file.slice(*span))
    }

    /// Name of the single parent; empty without one.
    pub(super) fn parent<'f>(&self, file: &'f SourceFile) -> &'f str {
        self.parent.map_or("", |span| file.slice(span))
    }
}

/// Spans of the members of a mapping and the elements of a list, nested, by key and by index.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(pub(super) BTreeMap<String, (Span, Places)>);

impl Places {
    pub(super) fn read(node: &Node<'_>) -> Self {
        let mut places = BTreeMap::new();
        for (name, key, value) in node.as_map().into_iter().flat_map(Entries::iter) {
            // A value that was left out has an empty span, so that of its key counts.
            let span = if value.span.is_empty() { key.span } else { value.span };
            places.entry(name.to_owned()).or_insert_with(|| (span, Self::read(value)));
        }
        for (at, item) in node.as_seq().into_iter().flatten().enumerate() {
            places.insert(at.to_string(), (item.span, Self::read(item)));
        }
        Self(places)
    }
}

/// Converts a value to JSON; one that JSON cannot express (`.inf`) counts as missing.
pub(super) fn json(node: &Node<'_>) -> Value {
    if let Some(text) = node.as_text() {
        return Value::from(text);
    }
    if let Some(entries) = node.as_map() {
        return Value::Object(entries.iter().map(|(key, _, value)| (key.to_owned(), json(value))).collect());
    }
    if let Some(items) = node.as_seq() {
        return items.iter().map(json).collect();
    }
    node.to_json().ok().and_then(|text| scalar(&text)).unwrap_or(Value::Null)
}
