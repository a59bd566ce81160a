//! Parameters of a pipeline: their declaration, and the values given for them.

mod coerce;
mod number;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::schema::Schema;
use serde_json::{Map, Value};

use crate::source::Span;

pub use coerce::InputProblem;
pub(crate) use coerce::fits;
pub(crate) use read::{check_parameters, read};

/// Declared parameters of a pipeline, in order.
#[derive(Debug, Clone, Default)]
pub struct InputDecl {
    /// Parameters in the order of the file, without duplicate names.
    pub parameters: Vec<Parameter>,
    /// True if any input is accepted: a stage machine without `input`.
    pub is_open: bool,
}

/// A parameter that a pipeline declares under `input`.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// The key under `input`, and the name in `{{input.NAME}}`.
    pub name: String,
    /// The JSON Schema of its value; for the short form just `{"type": …}`.
    pub schema: Arc<Schema>,
    /// True if a value must be given.
    pub required: bool,
    /// Value of a parameter that is not given.
    pub default: Option<Json>,
    /// The type, if the parameter is declared in the short form, `name: type`.
    pub short: Option<InputType>,
    /// Span of the declaration.
    pub(crate) at: Span,
    /// True if its types have no faults.
    pub(crate) sound: bool,
}

etude_core::words! {
    /// A type of the short form.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum InputType {
        /// Text.
        String = "string",
        /// A whole number of any size.
        Integer = "integer",
        /// A number of any size and precision.
        Number = "number",
        /// `true` or `false`.
        Boolean = "boolean",
        /// A list.
        Array = "array",
        /// A mapping with text keys.
        Object = "object",
    }
}

impl Parameter {
    /// True if the declaration accepts this JSON value.
    pub fn accepts(&self, json: &str) -> bool {
        serde_json::from_str::<&serde_json::value::RawValue>(json).is_ok() && fits(self, json).is_ok()
    }
}

impl InputDecl {
    /// The parameter `name`; `None` if it is not declared.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// True if `given` lacks a required parameter.
    pub fn has_required_beyond(&self, given: &[&str]) -> bool {
        self.parameters.iter().any(|p| p.required && p.default.is_none() && !given.contains(&p.name.as_str()))
    }

    /// The names of all parameters.
    pub fn names(&self) -> Vec<&str> {
        self.parameters.iter().map(|parameter| parameter.name.as_str()).collect()
    }

    /// JSON Schema of the whole input object, including the defaults.
    pub fn schema(&self) -> Value {
        let mut properties = Map::new();
        for parameter in &self.parameters {
            let mut schema = parameter.schema.document().as_ref().clone();
            if let (Value::Object(members), Some(default)) = (&mut schema, &parameter.default)
                && let Ok(default) = default.value()
            {
                members.insert("default".to_owned(), default);
            }
            properties.insert(parameter.name.clone(), schema);
        }
        let required: Vec<&str> = self.parameters.iter().filter(|p| p.required).map(|p| p.name.as_str()).collect();
        serde_json::json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": self.is_open,
        })
    }

    /// Rebuilds a declaration from its [`InputDecl::schema`].
    pub fn of_schema(schema: &Value) -> Self {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let parameter = |(name, schema): (&String, &Value)| {
            let mut schema = schema.clone();
            let default = schema.as_object_mut().and_then(|members| members.shift_remove("default"));
            let short = schema.as_object().filter(|members| members.len() == 1).and_then(|members| members.get("type"));
            let short = short.and_then(Value::as_str).and_then(InputType::from_word);
            Parameter {
                name: name.clone(),
                schema: Arc::new(Schema::lazy(name, schema, BTreeMap::new())),
                required: required.contains(&name.as_str()),
                default: default.as_ref().map(Json::of),
                short,
                at: Span::default(),
                sound: true,
            }
        };
        let parameters = schema["properties"].as_object().into_iter().flatten().map(parameter).collect();
        Self { parameters, is_open: schema["additionalProperties"] == true }
    }

    /// [`InputDecl::schema`], compiled on first use.
    pub fn compiled(&self, name: &str) -> Arc<Schema> {
        Arc::new(Schema::lazy(name, self.schema(), BTreeMap::new()))
    }
}
