//! The frontmatter of a skill as values, made for the caller; and what the chains of nearly all skills need to know of it.
//!
//! Thousands of skills may lie on a search path of which a run calls three. What all of them are looked through for is kept
//! as places in their files.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::source::{SourceFile, Span};
use crate::yaml::{Entries, Node};

/// The frontmatter.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    /// All but `metadata`.
    pub(super) head: Map<String, Value>,
    /// What is below `metadata`.
    pub(super) metadata: Map<String, Value>,
}

impl Members {
    pub(super) fn of(entries: &Entries<'_>) -> Self {
        let others = entries.iter().filter(|(key, ..)| *key != "metadata");
        let head = others.map(|(key, _, node)| (key.to_owned(), json(node))).collect();
        let metadata = match entries.get("metadata").map(json) {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        Self { head, metadata }
    }
}

/// Where the keys of `metadata` stand.
#[derive(Debug, Clone)]
pub(super) struct Outline {
    keys: Box<[Span]>,
    /// The value of `$inherit`, if there is one.
    parent: Option<Span>,
}

impl Outline {
    /// `None` if the keys, or the one parent, are not written as they are: with escapes, or as something else than text.
    pub(super) fn of(file: &SourceFile, entries: &Entries<'_>) -> Option<Self> {
        let metadata = match entries.get("metadata") {
            Some(node) => node.as_map()?,
            None => return Some(Self { keys: Box::default(), parent: None }),
        };
        let as_written = |node: &Node<'_>, text: &str| Some(node.span).filter(|span| file.slice(*span) == text);
        let keys = metadata.iter().map(|(key, node, _)| as_written(node, key)).collect::<Option<_>>()?;
        let parent = match metadata.get("$inherit") {
            // The parent of no name, which there is not, is something else than none.
            Some(node) => Some(node.as_text().filter(|text| !text.is_empty()).and_then(|text| as_written(node, text))?),
            None => None,
        };
        Some(Self { keys, parent })
    }

    /// The keys, as written.
    pub(super) fn keys<'f>(&self, file: &'f SourceFile) -> impl Iterator<Item = &'f str> {
        self.keys.iter().map(|span| file.slice(*span))
    }

    /// The only parent that is named; empty if none is.
    pub(super) fn parent<'f>(&self, file: &'f SourceFile) -> &'f str {
        self.parent.map_or("", |span| file.slice(span))
    }
}

/// Where the members of a mapping and the elements of a list stand, and what is in them, by key and by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(pub(super) BTreeMap<String, (Span, Places)>);

impl Places {
    pub(super) fn of(node: &Node<'_>) -> Self {
        let mut places = BTreeMap::new();
        for (name, key, value) in node.as_map().into_iter().flat_map(Entries::iter) {
            // A value that was left out has no place; its key has one.
            let span = if value.span.is_empty() { key.span } else { value.span };
            places.entry(name.to_owned()).or_insert_with(|| (span, Self::of(value)));
        }
        for (at, item) in node.as_seq().into_iter().flatten().enumerate() {
            places.insert(at.to_string(), (item.span, Self::of(item)));
        }
        Self(places)
    }
}

/// What JSON has no form for (`.inf`) is no value of a skill either.
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
    node.to_json().ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
}
