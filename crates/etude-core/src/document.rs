//! JSON documents whose parts keep all digits of their numbers.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::exact::Exact;
use crate::pointer::escaped;

/// A JSON document for a program: a tree, and the parts of it that a tree would round.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    tree: Value,
    /// By pointer (RFC 6901).
    exact: BTreeMap<String, Exact>,
}

impl Document {
    /// The document with all digits at `pointer`, where its tree has a value. `None` changes nothing.
    #[must_use]
    pub fn with(mut self, pointer: String, exact: Option<Exact>) -> Self {
        self.exact.extend(exact.map(|exact| (pointer, exact)));
        self
    }

    /// The document with `more` laid over its members, and the same exact parts.
    pub(crate) fn overlaid(&self, more: Value) -> Self {
        Self { tree: crate::data::overlaid(self.tree.clone(), more), exact: self.exact.clone() }
    }
}

impl From<Value> for Document {
    fn from(tree: Value) -> Self {
        Self { tree, exact: BTreeMap::new() }
    }
}

/// Compact JSON.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exact.is_empty() {
            true => write!(f, "{}", self.tree),
            false => self.write(f, &self.tree, ""),
        }
    }
}

impl Document {
    /// Writes the part at `pointer`.
    fn write(&self, f: &mut fmt::Formatter<'_>, part: &Value, pointer: &str) -> fmt::Result {
        if let Some(exact) = self.exact.get(pointer) {
            return write!(f, "{exact}");
        }
        match part {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at == 0 { "[" } else { "," })?;
                    self.write(f, item, &format!("{pointer}/{at}"))?;
                }
                f.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Value::Object(all) => {
                for (at, (name, item)) in all.iter().enumerate() {
                    write!(f, "{}{}:", if at == 0 { "{" } else { "," }, Value::from(name.as_str()))?;
                    self.write(f, item, &format!("{pointer}/{}", escaped(name)))?;
                }
                f.write_str(if all.is_empty() { "{}" } else { "}" })
            }
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// ADR 0176: only the named parts are written with their digits; nesting below them is not limited by the document.
    #[test]
    fn exact_parts_keep_their_digits() {
        let tree = json!({"n": 1.5, "a/b": [{"args": {"id": 1e22}}, {"args": {}}, []]});
        let plain = Document::from(tree.clone());
        assert_eq!(plain.to_string(), tree.to_string());
        let deep = "[".repeat(126) + "12345678901234567890123" + &"]".repeat(126);
        let exact = Exact::parse(&format!(r#"{{"id":{deep}}}"#)).ok();
        let document = plain.with("/a~1b/0/args".to_owned(), exact).with("/n".to_owned(), None);
        let expected = format!(r#"{{"n":1.5,"a/b":[{{"args":{{"id":{deep}}}}},{{"args":{{}}}},[]]}}"#);
        assert_eq!(document.to_string(), expected);
        assert!(document.overlaid(json!({"answer": true})).to_string().ends_with(r#","answer":true}"#));
    }
}
