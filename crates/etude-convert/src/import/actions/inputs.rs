//! Inputs of manual and reusable workflows as parameters.

use etude_spec::yaml::Node;
use serde_json::{Value, json};

use super::super::{Imported, text_of};
use super::{Workflow, parameter};

impl Workflow<'_> {
    /// Adds the inputs of a trigger. A default that does not fit its type is a finding, and the parameter has none.
    pub(super) fn inputs(&mut self, imported: &mut Imported, event: &str, node: &Node<'_>) {
        let inputs = node.as_map().and_then(|map| map.get("inputs")).and_then(Node::as_map);
        for (key, input) in inputs.map(|map| map.0.as_slice()).unwrap_or_default() {
            let Some(name) = key.as_text() else { continue };
            let (mut declared, default) = declared(event, input);
            match default {
                Ok(Some(default)) => declared["default"] = default,
                Ok(None) => {}
                Err(reason) => {
                    let what = format!("the default of input `{name}`");
                    imported.find(self.document.file.path(), self.document.line(key), what, reason);
                }
            }
            self.inputs.insert(parameter(name), declared);
        }
    }
}

/// Parameter without its default, and the default: that of the input or, if it is not required, that of its type.
fn declared(event: &str, input: &Node<'_>) -> (Value, Result<Option<Value>, String>) {
    let field = |field: &str| input.as_map().and_then(|map| map.get(field));
    let kind = field("type").and_then(text_of).unwrap_or_default();
    let options: Vec<String> =
        field("options").and_then(Node::as_seq).into_iter().flatten().filter_map(text_of).collect();
    let declared = match kind.as_str() {
        word @ ("boolean" | "number") => json!({"type": word}),
        "choice" if !options.is_empty() => json!({"type": "string", "enum": options}),
        _ => json!({"type": "string"}),
    };
    let is_required = field("required").and_then(text_of).is_some_and(|word| word == "true");
    let default = match field("default").filter(|node| node.to_json().is_ok_and(|json| json != "null")) {
        Some(node) => value(&kind, &options, &text_of(node).unwrap_or_default()).map(Some),
        None if is_required => Ok(None),
        None => Ok(match kind.as_str() {
            "boolean" => Some(json!(false)),
            // A manual run has no number then, which a parameter of this type cannot express.
            "number" => (event == "workflow_call").then(|| json!(0)),
            "choice" if !options.is_empty() => None,
            _ => Some(json!("")),
        }),
    };
    (declared, default)
}

/// Default as a value of the type of its input. GitHub accepts it with or without quotes.
///
/// # Errors
/// The text is not a value of that type: the reason.
fn value(kind: &str, options: &[String], text: &str) -> Result<Value, String> {
    if text.contains("${{") {
        return Err("it is computed".to_owned());
    }
    let found = match kind {
        "boolean" => text.parse::<bool>().ok().map(Value::from),
        "number" => serde_json::from_str::<serde_json::Number>(text.trim()).ok().map(Value::from),
        "choice" if !options.is_empty() => options.iter().any(|option| option == text).then(|| json!(text)),
        _ => Some(json!(text)),
    };
    found.ok_or_else(|| match kind {
        "choice" => format!("`{text}` is not one of its options"),
        kind => format!("`{text}` is not a {kind}"),
    })
}
