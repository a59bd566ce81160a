//! The YAML tree: nodes, scalars and mappings.

use std::borrow::Cow;

use crate::source::Span;
use crate::yaml::scalar::Plain;

/// One value, with its place in the file. A copy made by an alias keeps the place of its anchor.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'s> {
    /// The value itself: scalar, sequence or mapping.
    pub value: Value<'s>,
    /// Place of the value. Empty for a value that was left out.
    pub span: Span,
}

/// The value of a node, with its parts as nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'s> {
    /// Text, a number, a boolean or nothing.
    Scalar(Scalar<'s>),
    /// A list.
    Seq(Vec<Node<'s>>),
    /// A mapping.
    Map(Entries<'s>),
    /// A value whose fault is already reported.
    Invalid,
}

/// A scalar as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar<'s> {
    /// Text of the scalar, with quotes, escapes and folding resolved.
    pub text: Cow<'s, str>,
    /// The quotes or the block, which decide the type of plain text.
    pub style: Style,
}

/// Notation of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without quotes: may be a number, a boolean or nothing.
    Plain,
    /// In single quotes.
    Single,
    /// In double quotes.
    Double,
    /// In a block scalar: `|` keeps line breaks, `>` folds them.
    Block,
}

/// Entries of a mapping, in order, without duplicate keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entries<'s>(pub Vec<(Node<'s>, Node<'s>)>);

impl<'s> Entries<'s> {
    /// Key node and value node of `key`.
    pub fn entry(&self, key: &str) -> Option<(&Node<'s>, &Node<'s>)> {
        self.0.iter().find(|(k, _)| k.key() == key).map(|(k, v)| (k, v))
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Node<'s>> {
        self.entry(key).map(|(_, value)| value)
    }

    /// Each key with its key node and value node.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node<'s>, &Node<'s>)> {
        self.0.iter().map(|(key, value)| (key.key(), key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.key())
    }
}

impl<'s> Node<'s> {
    /// Text of a key; keys of a tree are always scalars.
    pub fn key(&self) -> &str {
        match &self.value {
            Value::Scalar(scalar) => &scalar.text,
            _ => "",
        }
    }

    /// The text of a string: quoted, a block, or plain without the form of a number, a boolean or nothing.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if scalar.resolve() == Plain::Text => Some(&scalar.text),
            _ => None,
        }
    }

    /// Resolved form of a scalar; `None` for a list or mapping.
    pub fn as_plain(&self) -> Option<Plain> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar.resolve()),
            _ => None,
        }
    }

    /// The value of a boolean; `None` for any other value.
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_plain() {
            Some(Plain::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of a whole number; `None` for any other value, or if it does not fit.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        match self.as_plain()? {
            Plain::Int(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// Elements of a list; `None` for any other value.
    pub fn as_seq(&self) -> Option<&[Node<'s>]> {
        match &self.value {
            Value::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// Entries of a mapping; `None` for any other value.
    pub fn as_map(&self) -> Option<&Entries<'s>> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// True if the fault of the value is already reported.
    pub fn is_invalid(&self) -> bool {
        matches!(self.value, Value::Invalid)
    }

    /// Kind of the value with its article, for messages: `a number`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) => match scalar.resolve() {
                Plain::Null => "nothing",
                Plain::Bool(_) => "a boolean",
                Plain::Int(_) | Plain::Float(_) | Plain::NotFinite => "a number",
                Plain::Text => "text",
            },
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Invalid => "nothing usable",
        }
    }

    /// Compact JSON of the value, with numbers in canonical form.
    ///
    /// # Errors
    /// The place of a value that JSON cannot express: `.inf`, `.nan`, or one that was reported already.
    pub fn to_json(&self) -> Result<String, Span> {
        let mut out = String::new();
        self.write_json(&mut out)?;
        Ok(out)
    }

    /// The value as JSON. Values that JSON cannot express are left out of mappings and become `null` in lists. `None`
    /// if the value itself is one of them.
    pub fn to_json_value(&self) -> Option<serde_json::Value> {
        match &self.value {
            Value::Seq(items) => Some(items.iter().map(|item| item.to_json_value().unwrap_or_default()).collect()),
            Value::Map(entries) => {
                let member = |(key, _, value): (&str, &Self, &Self)| Some((key.to_owned(), value.to_json_value()?));
                Some(serde_json::Value::Object(entries.iter().filter_map(member).collect()))
            }
            Value::Scalar(_) | Value::Invalid => serde_json::from_str(&self.to_json().ok()?).ok(),
        }
    }

    fn write_json(&self, out: &mut String) -> Result<(), Span> {
        match &self.value {
            Value::Invalid => return Err(self.span),
            Value::Scalar(scalar) => match scalar.resolve() {
                Plain::Null => out.push_str("null"),
                Plain::Bool(value) => out.push_str(if value { "true" } else { "false" }),
                Plain::Int(text) | Plain::Float(text) => out.push_str(&text),
                Plain::NotFinite => return Err(self.span),
                Plain::Text => push_json_string(out, &scalar.text),
            },
            Value::Seq(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.write_json(out)?;
                }
                out.push(']');
            }
            Value::Map(entries) => {
                out.push('{');
                for (at, (key, value)) in entries.0.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    push_json_string(out, key.key());
                    out.push(':');
                    value.write_json(out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

pub(crate) fn push_json_string(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}
