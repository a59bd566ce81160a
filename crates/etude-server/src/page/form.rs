//! Forms built from a JSON Schema, and the values that they send.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::text::{marked, visible};

/// Choices that are shown all at once.
const MAX_RADIOS: usize = 4;

/// A form for the values of one schema. The name of a field is `PREFIX.PROPERTY`, or the prefix alone for a schema without properties.
pub(super) struct Form<'s> {
    pub(super) prefix: &'static str,
    pub(super) schema: &'s Value,
    /// What was sent before, if it was refused.
    pub(super) sent: &'s [(String, String)],
    /// Faults by JSON pointer.
    pub(super) faults: &'s [(String, String)],
}

/// What a field is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Flag,
    Json,
}

fn kind(schema: &Value) -> Kind {
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().find(|kind| *kind != "null").cloned().unwrap_or_default(),
        other => other.clone(),
    };
    match types.as_str() {
        Some("string") => Kind::Text,
        Some("integer" | "number") => Kind::Number,
        Some("boolean") => Kind::Flag,
        _ => Kind::Json,
    }
}

fn choices(schema: &Value) -> Option<&[Value]> {
    schema["enum"].as_array().map(Vec::as_slice).filter(|choices| choices.iter().all(Value::is_string))
}

impl Form<'_> {
    fn properties(&self) -> Option<&serde_json::Map<String, Value>> {
        self.schema["properties"].as_object()
    }

    fn sent(&self, name: &str) -> Option<&str> {
        self.sent.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The fields.
    pub(super) fn render(&self) -> Markup {
        if self.schema.is_null() {
            return html! {};
        }
        let required: Vec<&str> =
            self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        html! {
            @match self.properties() {
                Some(properties) => {
                    @for (name, schema) in properties {
                        (self.field(&format!("{}.{name}", self.prefix), name, &format!("/{}", pointer(name)), schema, required.contains(&name.as_str())))
                    }
                },
                None => { (self.field(self.prefix, self.schema["title"].as_str().unwrap_or("Answer"), "", self.schema, true)) },
            }
        }
    }

    fn field(&self, name: &str, label: &str, place: &str, schema: &Value, is_required: bool) -> Markup {
        let default = &schema["default"];
        let value = self.sent(name).map(str::to_owned).or_else(|| written(default));
        let has_default = !default.is_null();
        let note = match (is_required && !has_default, schema["type"].as_str()) {
            (true, Some(kind)) => format!("{kind}, required"),
            (false, Some(kind)) => kind.to_owned(),
            (true, None) => "required".to_owned(),
            (false, None) => String::new(),
        };
        let faults: Vec<&str> = self.faults.iter().filter(|(at, _)| at == place).map(|(_, why)| why.as_str()).collect();
        let help = format!("{name}-help");
        let described = (schema["description"].is_string() || !faults.is_empty()).then_some(&help);
        let is_needed = is_required && !has_default;
        let is_checked = value.as_deref() == Some("true");
        let title = html! { (visible(schema["title"].as_str().unwrap_or(label))) " " span.kind { (note) } };
        let after = html! {
            div id=(help) {
                @if let Some(text) = schema["description"].as_str() { span.help { (marked(text)) } }
                @for fault in &faults { p.fault role="alert" { (marked(fault)) } }
            }
        };
        let is_invalid = (!faults.is_empty()).then_some("true");
        match (choices(schema), kind(schema)) {
            (Some(choices), _) if choices.len() <= MAX_RADIOS => html! {
                fieldset.field {
                    legend { (title) }
                    @for choice in choices.iter().filter_map(Value::as_str) {
                        label.choice { input type="radio" name=(name) value=(choice) required[is_needed] checked[value.as_deref() == Some(choice)]; (visible(choice)) }
                    }
                    (after)
                }
            },
            (Some(choices), _) => html! {
                div.field {
                    label for=(name) { (title) }
                    select id=(name) name=(name) required[is_needed] aria-describedby=[described] aria-invalid=[is_invalid] {
                        option value="" { "Choose" }
                        @for choice in choices.iter().filter_map(Value::as_str) { option value=(choice) selected[value.as_deref() == Some(choice)] { (visible(choice)) } }
                    }
                    (after)
                }
            },
            (None, Kind::Flag) => html! {
                div.field {
                    // A box that is not checked sends nothing.
                    input type="hidden" name=(name) value="false";
                    label.choice { input type="checkbox" name=(name) value="true" checked[is_checked] aria-describedby=[described]; span { (title) } }
                    (after)
                }
            },
            (None, Kind::Json) => html! {
                div.field {
                    label for=(name) { (title) }
                    textarea.mono id=(name) name=(name) rows="3" spellcheck="false" required[is_needed] placeholder="JSON" aria-describedby=[described] aria-invalid=[is_invalid] { (value.unwrap_or_default()) }
                    (after)
                }
            },
            (None, kind) => html! {
                div.field {
                    label for=(name) { (title) }
                    input id=(name) name=(name) value=(value.unwrap_or_default()) required[is_needed] inputmode=[(kind == Kind::Number).then_some("decimal")] aria-describedby=[described] aria-invalid=[is_invalid];
                    (after)
                }
            },
        }
    }

    /// The value of the fields as JSON text: numbers keep their digits, and what is no JSON is a string that the API refuses.
    pub(super) fn value(&self) -> String {
        let Some(properties) = self.properties() else {
            return self.sent(self.prefix).map_or_else(|| "null".to_owned(), |text| json_text(kind(self.schema), text));
        };
        let mut members = Vec::new();
        for (name, schema) in properties {
            let field = format!("{}.{name}", self.prefix);
            // Of a box, the last value counts.
            let Some(text) = self.sent.iter().rev().find(|(key, _)| *key == field).map(|(_, value)| value) else {
                continue;
            };
            if !text.is_empty() {
                let kind = if choices(schema).is_some() { Kind::Text } else { kind(schema) };
                members.push(format!("{}:{}", json!(name), json_text(kind, text)));
            }
        }
        format!("{{{}}}", members.join(","))
    }
}

fn json_text(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Text => json!(text).to_string(),
        _ if etude_core::tree::is_json(text) => text.to_owned(),
        _ => json!(text).to_string(),
    }
}

/// A default as a field has it.
fn written(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values keep their types and digits; empty fields are left out, and what is not checked is false.
    #[test]
    fn a_form_sends_the_values_of_its_schema() {
        let schema = json!({"properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "list": {"type": "array"}, "note": {"type": "string"},
            "sure": {"type": "boolean"}, "size": {"enum": ["1", "2"]}, "odd": {"type": "number"},
        }});
        let pairs = [
            ("input.name", "a \"b\""),
            ("input.count", "123456789012345678901"),
            ("input.list", "[1, 2]"),
            ("input.note", ""),
            ("input.sure", "false"),
            ("input.sure", "true"),
            ("input.size", "1"),
            ("input.odd", "x"),
            ("other", "y"),
        ];
        let sent: Vec<(String, String)> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let form = Form { prefix: "input", schema: &schema, sent: &sent, faults: &[] };
        let wanted =
            r#"{"name":"a \"b\"","count":123456789012345678901,"list":[1, 2],"sure":true,"size":"1","odd":"x"}"#;
        assert_eq!(form.value(), wanted);
        let plain = json!({"type": "integer"});
        let sent = [("answer".to_owned(), "7".to_owned())];
        assert_eq!(Form { prefix: "answer", schema: &plain, sent: &sent, faults: &[] }.value(), "7");
    }
}
