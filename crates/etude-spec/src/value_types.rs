//! Types of values that are known before a run, and comparisons with them that have the same result for each value.

use etude_core::condition::Op;
use serde_json::Value;

/// Types that a value may have, by the words of JSON Schema; an integer is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueTypes(Vec<&'static str>);

const WORDS: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Keywords beside which the types of a schema are not the whole truth: other schemas decide as well.
const COMBINED: [&str; 8] = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "not", "type"];

impl ValueTypes {
    /// The type of this name, with or without an article; `None` for another word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let word = word.rsplit(' ').next().unwrap_or(word);
        WORDS.into_iter().find(|known| *known == word).map(|known| Self(vec![known]))
    }

    /// The types that a schema allows; `None` if it does not name them.
    pub(crate) fn of_schema(schema: &Value) -> Option<Self> {
        let members = schema.as_object()?;
        let words: Vec<&str> = match members.get("type")? {
            Value::String(word) => vec![word],
            Value::Array(words) => words.iter().map(Value::as_str).collect::<Option<_>>()?,
            _ => return None,
        };
        let is_alone = COMBINED.iter().filter(|word| members.contains_key(**word)).count() == 1;
        let types: Option<Vec<&'static str>> =
            words.iter().map(|word| WORDS.into_iter().find(|known| known == word)).collect();
        types.filter(|types| is_alone && !types.is_empty()).map(Self)
    }

    /// The types of alternatives; `None` if those of one are unknown.
    pub(crate) fn any(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let lists: Option<Vec<Self>> = all.into_iter().collect();
        let types: Vec<&'static str> = lists?.into_iter().flat_map(|types| types.0).collect();
        (!types.is_empty()).then_some(Self(types))
    }

    fn takes(&self, value: &Value) -> bool {
        self.has(type_of(value))
    }

    fn has(&self, wanted: &str) -> bool {
        self.0.iter().any(|own| *own == wanted || (*own == "integer" && wanted == "number"))
    }

    /// Result of the comparison with a literal for each value of these types; `None` if it depends on the value.
    pub(crate) fn decided(&self, op: Op, literal: &Value) -> Option<bool> {
        let is_alien = match (op, literal) {
            (Op::Equals | Op::NotEquals, literal) => !self.takes(literal),
            (Op::In | Op::NotIn, Value::Array(list)) => {
                !list.is_empty() && !list.iter().any(|element| self.takes(element))
            }
            (Op::Gt | Op::Gte | Op::Lt | Op::Lte, literal) => !self.takes(literal),
            (Op::Matches, _) => !self.has("string"),
            (Op::In | Op::NotIn | Op::Exists, _) => false,
        };
        is_alien.then_some(matches!(op, Op::NotEquals | Op::NotIn))
    }

    /// The types as words for messages: `an integer`, `a string or null`.
    pub(crate) fn shown(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for word in &self.0 {
            let shown = match *word {
                "null" => "null".to_owned(),
                word if word.starts_with(['a', 'i', 'o']) => format!("an {word}"),
                word => format!("a {word}"),
            };
            if !words.contains(&shown) {
                words.push(shown);
            }
        }
        words.join(" or ")
    }

    /// The literal in the type of the value, as YAML: a text without quotes, or a number in quotes.
    pub(crate) fn meant(&self, literal: &Value) -> Option<String> {
        match literal {
            Value::String(text) => {
                let plain: Value = serde_json::from_str(text.trim()).ok()?;
                (!plain.is_string() && self.takes(&plain)).then(|| plain.to_string())
            }
            Value::Number(_) | Value::Bool(_) | Value::Null if self.has("string") => Some(format!("\"{literal}\"")),
            _ => None,
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Null => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn types(schema: Value) -> Option<ValueTypes> {
        ValueTypes::of_schema(&schema)
    }

    /// a comparison with a value of another type has the same result for each value.
    #[test]
    fn comparisons_with_other_types_are_decided() {
        let integer = types(json!({"type": "integer", "minimum": 1})).expect("types");
        for (op, literal, expected) in [
            (Op::Equals, json!("3"), Some(false)),
            (Op::NotEquals, json!("3"), Some(true)),
            (Op::In, json!(["3", "4"]), Some(false)),
            (Op::NotIn, json!(["3"]), Some(true)),
            (Op::Gt, json!("3"), Some(false)),
            (Op::Matches, json!("3"), Some(false)),
            (Op::Equals, json!(3), None),
            (Op::In, json!(["3", 4]), None),
            (Op::In, json!([]), None),
            (Op::Exists, json!(true), None),
        ] {
            assert_eq!(integer.decided(op, &literal), expected, "{op:?} {literal}");
        }
        let text = types(json!({"type": ["string", "null"]})).expect("types");
        assert_eq!(text.decided(Op::Equals, &json!(null)), None);
        assert_eq!(text.decided(Op::Equals, &json!(3)), Some(false));
        assert_eq!((text.shown(), integer.shown()), ("a string or null".to_owned(), "an integer".to_owned()));
        assert_eq!(
            (text.meant(&json!(3)), integer.meant(&json!("3"))),
            (Some("\"3\"".to_owned()), Some("3".to_owned()))
        );
        assert_eq!(integer.meant(&json!("three")), None);
    }

    /// Schemas that combine others are not judged by their type alone.
    #[test]
    fn combined_schemas_have_no_known_types() {
        for schema in [json!({}), json!(true), json!({"type": "string", "anyOf": []}), json!({"enum": ["a"]})] {
            assert_eq!(types(schema), None);
        }
        assert_eq!(ValueTypes::of_word("an integer"), types(json!({"type": "integer"})));
        assert_eq!(ValueTypes::any([types(json!({"type": "string"})), None]), None);
    }
}
