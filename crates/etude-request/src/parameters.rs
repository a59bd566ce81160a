//! Declared parameters in the form that the request reader takes.

use etude_route::values::{ModelValue, Parameter, Type};
use etude_spec::input::{InputDecl, Parameter as Declared};
use serde_json::Value;

/// Parts of a declaration that a reading borrows.
pub(super) struct Facts<'d> {
    declared: &'d Declared,
    schema: &'d Value,
    default: Option<String>,
    is_given: bool,
    accepts: Box<dyn Fn(&str) -> bool + 'd>,
}

/// Facts of all parameters; `given` names the parameters that were given in another way.
pub(super) fn facts<'d>(input: &'d InputDecl, given: &[&str]) -> Vec<Facts<'d>> {
    let facts = input.parameters.iter().map(|declared| Facts {
        declared,
        schema: declared.schema.document(),
        default: declared.default.as_ref().and_then(|default| default.text().ok()).map(|text| text.to_string()),
        is_given: given.contains(&declared.name.as_str()),
        accepts: Box::new(|json| declared.accepts(json)),
    });
    facts.collect()
}

impl Facts<'_> {
    /// The view of these facts that a reading takes.
    pub(super) fn parameter(&self) -> Parameter<'_> {
        let text = |member: &str| self.schema.get(member).and_then(Value::as_str);
        let choices = self.schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        Parameter {
            name: &self.declared.name,
            description: text("description").unwrap_or_default(),
            kind: kind(self.schema),
            choices: choices.filter_map(Value::as_str).map(str::to_owned).collect(),
            format: text("format"),
            default: self.default.clone(),
            is_required: self.declared.required,
            is_given: self.is_given,
            accepts: &*self.accepts,
        }
    }
}

/// Type of a value by its schema; `null` next to another type is ignored.
fn kind(schema: &Value) -> Type {
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).filter(|word| *word != "null").collect(),
        _ => Vec::new(),
    };
    let is_of_texts = |all: &Vec<Value>| all.iter().all(Value::is_string);
    match types[..] {
        ["integer"] => Type::Integer,
        ["number"] | ["integer", "number"] | ["number", "integer"] => Type::Number,
        ["boolean"] => Type::Boolean,
        ["string"] => Type::Text,
        ["array"] => match schema.get("items").map(kind) {
            Some(Type::Integer | Type::Number) => Type::Numbers,
            _ => Type::Other,
        },
        [] if schema.get("enum").and_then(Value::as_array).is_some_and(is_of_texts) => Type::Text,
        _ => Type::Other,
    }
}

/// Converts a value of a model's answer.
pub(super) fn said(value: &Value) -> ModelValue {
    match value {
        Value::Null => ModelValue::Null,
        Value::Bool(value) => ModelValue::Bool(*value),
        Value::Number(number) => ModelValue::Number(number.to_string()),
        Value::String(text) => ModelValue::Text(text.clone()),
        Value::Array(items) => ModelValue::Many(items.iter().map(said).collect()),
        Value::Object(members) => ModelValue::Many(members.values().map(said).collect()),
    }
}
