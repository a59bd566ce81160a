//! Values of fields that have the right type. All others were reported by the check of the mapping.

use etude_core::pointer::unescaped;

use crate::source::Span;
use crate::yaml::node::{Entries, Node};
use crate::yaml::scalar::Plain;

/// A text with its place.
#[derive(Clone, Copy)]
pub(crate) struct Text<'n> {
    pub(crate) text: &'n str,
    pub(crate) at: Span,
}

/// Text of a field; `None` if it is not text or is blank.
pub(crate) fn text<'n>(entries: &'n Entries<'n>, field: &str) -> Option<Text<'n>> {
    let node = entries.get(field)?;
    let text = node.as_text().filter(|text| !text.trim().is_empty())?;
    Some(Text { text, at: node.span })
}

/// Texts of a list; other elements were reported.
pub(crate) fn texts(entries: &Entries<'_>, field: &str) -> Vec<String> {
    let items = entries.get(field).and_then(Node::as_seq).unwrap_or_default();
    items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect()
}

/// A whole number in a field; `None` if the value has another type.
pub(crate) fn integer(entries: &Entries<'_>, field: &str) -> Option<i64> {
    entries.get(field)?.as_integer()
}

/// A number in a field; `None` if the value has another type.
pub(crate) fn number(entries: &Entries<'_>, field: &str) -> Option<f64> {
    match entries.get(field)?.as_plain()? {
        Plain::Int(text) | Plain::Float(text) => text.parse().ok(),
        _ => None,
    }
}

/// A boolean in a field; `None` if the value has another type.
pub(crate) fn boolean(entries: &Entries<'_>, field: &str) -> Option<bool> {
    entries.get(field)?.as_bool()
}

/// Span of a value, or of its key if the value was left out.
pub(crate) fn place(entries: &Entries<'_>, field: &str) -> Span {
    entries.entry(field).map_or_else(
        Span::default,
        |(key, value)| {
            if value.span.is_empty() { key.span } else { value.span }
        },
    )
}

/// Span of the value at a JSON pointer.
pub(crate) fn place_in(node: &Node<'_>, pointer: &str) -> Span {
    let mut node = node;
    for token in pointer.split('/').skip(1) {
        let token = unescaped(token);
        let inner = match (node.as_map(), node.as_seq()) {
            (Some(entries), _) => entries.get(&token),
            (_, Some(items)) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
        node = inner.unwrap_or(node);
    }
    node.span
}
