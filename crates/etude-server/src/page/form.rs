//! Forms built from a JSON Schema, and the values of their fields.

use etude_core::pointer::escaped;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::text::{marked, visible};
use crate::problem::Problem;

/// Maximum number of choices that are shown as radio buttons.
const MAX_RADIOS: usize = 4;

/// Maximum length of a text with a single-line field, in characters.
const SHORT: u64 = 64;

/// A form for the values of one schema. The name of a field is `PREFIX.PROPERTY`, or the prefix alone for a schema without properties.
pub(super) struct Form<'s> {
    pub(super) prefix: &'static str,
    pub(super) schema: &'s Value,
    /// The fields of a refused form.
    pub(super) sent: &'s [(String, String)],
    /// Faults by JSON pointer.
    pub(super) faults: &'s [(String, String)],
}

/// The kind of a field.
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

/// The choices as a form sends them, if all are texts, or all are numbers.
fn choices(schema: &Value) -> Option<Vec<String>> {
    let choices = schema["enum"].as_array()?;
    let is_one_kind = choices.iter().all(Value::is_string) || choices.iter().all(Value::is_number);
    is_one_kind.then(|| choices.iter().filter_map(written).collect())
}

/// The kind of a field. A schema with choices may have no type.
fn kind_of(schema: &Value) -> Kind {
    let is_text = schema["enum"].as_array().is_some_and(|choices| choices.iter().all(Value::is_string));
    if is_text { Kind::Text } else { kind(schema) }
}

/// True if an empty field is the empty text; otherwise it has no value, and so its default.
fn takes_empty(schema: &Value) -> bool {
    kind(schema) == Kind::Text && schema["enum"].is_null() && schema["format"].is_null()
}

impl Form<'_> {
    fn properties(&self) -> Option<&serde_json::Map<String, Value>> {
        self.schema["properties"].as_object()
    }

    /// The last value of a field: a checked box sends two.
    fn sent(&self, name: &str) -> Option<&str> {
        self.sent.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The fields as HTML.
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
                        (self.field(&format!("{}.{name}", self.prefix), name, &format!("/{}", escaped(name)), schema, required.contains(&name.as_str())))
                    }
                },
                None => { (self.field(self.prefix, self.schema["title"].as_str().unwrap_or("Answer"), "", self.schema, true)) },
            }
        }
    }

    fn field(&self, name: &str, label: &str, place: &str, schema: &Value, is_required: bool) -> Markup {
        let default = &schema["default"];
        let has_default = !default.is_null();
        let note = match (is_required && !has_default, schema["type"].as_str()) {
            (true, Some(kind)) => format!("{kind}, required"),
            (false, Some(kind)) => kind.to_owned(),
            (true, None) => "required".to_owned(),
            (false, None) => String::new(),
        };
        // A fault inside a value is shown at its field.
        let is_own = |at: &str| at.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let faults: Vec<&str> = self.faults.iter().filter(|(at, _)| is_own(at)).map(|(_, why)| why.as_str()).collect();
        let help = format!("{name}-help");
        let has_own = takes_empty(schema) || kind(schema) == Kind::Flag || choices(schema).is_some();
        let absent = written(default).filter(|_| !has_own);
        let is_described = schema["description"].is_string() || absent.is_some() || !faults.is_empty();
        Field {
            name,
            title: html! { (visible(schema["title"].as_str().unwrap_or(label))) " " span.kind { (note) } },
            value: self.sent(name).map(str::to_owned).or_else(|| written(default)),
            is_needed: is_required && !has_default,
            described: is_described.then_some(&help),
            is_invalid: (!faults.is_empty()).then_some("true"),
            after: html! {
                div id=(help) {
                    @if let Some(text) = schema["description"].as_str() { span.help { (marked(text)) } " " }
                    @if let Some(default) = &absent { span.help { "If it is empty: " code { (visible(default)) } } }
                    @for fault in &faults { p.fault role="alert" { (marked(fault)) } }
                }
            },
        }
        .render(schema)
    }

    /// The value of the fields as JSON text. Numbers keep their digits; text that is not JSON becomes a string, which the API
    /// refuses.
    pub(super) fn value(&self) -> String {
        let Some(properties) = self.properties() else {
            return self
                .sent(self.prefix)
                .map_or_else(|| "null".to_owned(), |text| given(kind_of(self.schema), text, &Value::Null));
        };
        let mut members = Vec::new();
        for (name, schema) in properties {
            let field = format!("{}.{name}", self.prefix);
            let Some(text) = self.sent(&field) else { continue };
            // Without the member, a cleared text would have its default again.
            let is_cleared = takes_empty(schema) && schema["default"].is_string();
            if !text.is_empty() || is_cleared {
                members.push(format!("{}:{}", json!(name), given(kind_of(schema), text, &schema["default"])));
            }
        }
        format!("{{{}}}", members.join(","))
    }

    /// The problem of the first field that takes JSON and has something else.
    pub(super) fn unreadable(&self, root: &str) -> Option<Problem> {
        let is_unreadable = |name: &str, schema: &Value| {
            let text = self.sent(name).filter(|text| !text.is_empty());
            kind_of(schema) == Kind::Json && text.is_some_and(|text| !etude_core::tree::is_json(text))
        };
        let place = match self.properties() {
            None => is_unreadable(self.prefix, self.schema).then(String::new)?,
            Some(properties) => {
                let is_wrong = |name: &str, schema| is_unreadable(&format!("{}.{name}", self.prefix), schema);
                let (name, _) = properties.iter().find(|(name, schema)| is_wrong(name, schema))?;
                format!("/{}", escaped(name))
            }
        };
        Some(Problem::invalid(&format!("{root}{place}"), "the text is not JSON"))
    }
}

/// The contents of a field.
struct Field<'f> {
    name: &'f str,
    title: Markup,
    value: Option<String>,
    is_needed: bool,
    /// The id of the element that describes the field.
    described: Option<&'f String>,
    is_invalid: Option<&'static str>,
    /// Help and faults, below the field.
    after: Markup,
}

impl Field<'_> {
    fn render(&self, schema: &Value) -> Markup {
        let Self { name, title, is_needed, described, is_invalid, after, .. } = self;
        let value = self.value.as_deref();
        match (choices(schema), kind(schema)) {
            (Some(choices), _) => self.of_choices(&choices),
            (None, Kind::Flag) => html! {
                div.field {
                    // An unchecked box sends nothing.
                    input type="hidden" name=(name) value="false";
                    label.choice { input type="checkbox" name=(name) value="true" checked[value == Some("true")] aria-describedby=[described]; span { (title) } }
                    (after)
                }
            },
            (None, Kind::Json) => html! {
                div.field {
                    label for=(name) { (title) }
                    textarea.mono id=(name) name=(name) rows="3" spellcheck="false" required[*is_needed] placeholder="JSON" aria-describedby=[described] aria-invalid=[is_invalid] { "\n" (value.unwrap_or_default()) }
                    (after)
                }
            },
            (None, Kind::Text) if is_long(schema, value) => html! {
                div.field {
                    label for=(name) { (title) }
                    // HTML parsers drop the first line break of a `textarea`.
                    textarea id=(name) name=(name) rows="1" required[*is_needed] aria-describedby=[described] aria-invalid=[is_invalid] { "\n" (value.unwrap_or_default()) }
                    (after)
                }
            },
            (None, kind) => html! {
                div.field {
                    label for=(name) { (title) }
                    input id=(name) name=(name) value=(value.unwrap_or_default()) required[*is_needed] inputmode=[(kind == Kind::Number).then_some("decimal")] aria-describedby=[described] aria-invalid=[is_invalid];
                    (after)
                }
            },
        }
    }

    fn of_choices(&self, choices: &[String]) -> Markup {
        let Self { name, title, value, is_needed, described, is_invalid, after } = self;
        html! {
            @if choices.len() <= MAX_RADIOS {
                fieldset.field {
                    legend { (title) }
                    @for choice in choices {
                        label.choice { input type="radio" name=(name) value=(choice) required[*is_needed] checked[value.as_ref() == Some(choice)]; (visible(choice)) }
                    }
                    (after)
                }
            } @else {
                div.field {
                    label for=(name) { (title) }
                    select id=(name) name=(name) required[*is_needed] aria-describedby=[described] aria-invalid=[is_invalid] {
                        option value="" { "Choose" }
                        @for choice in choices { option value=(choice) selected[value.as_ref() == Some(choice)] { (visible(choice)) } }
                    }
                    (after)
                }
            }
        }
    }
}

/// True for a text that may have several lines.
fn is_long(schema: &Value, value: Option<&str>) -> bool {
    let is_short = schema["format"].is_string() || schema["maxLength"].as_u64().is_some_and(|length| length <= SHORT);
    !is_short || value.is_some_and(|value| value.contains('\n'))
}

/// A value as JSON text. Browsers change line ends; an unchanged default stays as it was written.
fn given(kind: Kind, text: &str, default: &Value) -> String {
    let plain = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n");
    let text = plain(text);
    match default.as_str().filter(|default| kind == Kind::Text && plain(default) == text) {
        Some(default) => json!(default).to_string(),
        None => json_text(kind, &text),
    }
}

fn json_text(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Text => json!(text).to_string(),
        _ if etude_core::tree::is_json(text) => text.to_owned(),
        _ => json!(text).to_string(),
    }
}

/// A default in the form in which a field shows it.
fn written(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values keep their types and digits; empty fields are left out, and an unchecked box is false.
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
        let text = form.render().into_string();
        assert!(text.contains("value=\"true\" checked"), "a checked box is shown checked again: {text}");
        let plain = json!({"type": "integer"});
        let sent = [("answer".to_owned(), "7".to_owned())];
        assert_eq!(Form { prefix: "answer", schema: &plain, sent: &sent, faults: &[] }.value(), "7");
    }

    /// The description of a field and its default are two sentences.
    #[test]
    fn a_description_does_not_touch_the_default() {
        let schema = json!({"properties": {"count": {"type": "integer", "default": 4, "description": "The number."}}});
        let text = Form { prefix: "input", schema: &schema, sent: &[], faults: &[] }.render().into_string();
        assert!(text.contains("The number.</span> <span class=\"help\">If it is empty"), "{text}");
    }

    /// Lines stay lines, an unchanged default stays as it was written, and a cleared text is empty.
    #[test]
    fn texts_keep_their_lines() {
        let schema = json!({"properties": {
            "note": {"type": "string"}, "kept": {"type": "string", "default": "a\r\nb\n\tc"},
            "cleared": {"type": "string", "default": "x"}, "day": {"type": "string", "format": "date"},
            "count": {"type": "integer", "default": 7}, "size": {"type": "integer", "enum": [1, 2]}, "list": {"type": "array"},
        }});
        let sent = [
            ("input.note", "1\r\n2"),
            ("input.kept", "a\r\nb\r\n\tc"),
            ("input.cleared", ""),
            ("input.day", ""),
            ("input.count", ""),
            ("input.size", "2"),
            ("input.list", "[1, 2"),
        ];
        let sent: Vec<(String, String)> =
            sent.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let form = |sent| Form { prefix: "input", schema: &schema, sent, faults: &[] };
        assert_eq!(
            form(sent.as_slice()).value(),
            r#"{"note":"1\n2","kept":"a\r\nb\n\tc","cleared":"","size":2,"list":"[1, 2"}"#
        );
        let refused = form(sent.as_slice()).unreadable("/input").expect("a problem").to_json("", "");
        assert_eq!(refused["errors"][0]["pointer"], "/input/list");
        let text = form(&[]).render().into_string();
        assert!(text.contains("name=\"input.kept\" rows=\"1\">\na\r\nb\n\tc</textarea>"), "{text}");
        assert!(text.contains("type=\"radio\" name=\"input.size\" value=\"2\""), "{text}");
        assert!(text.contains("<input id=\"input.day\"") && text.contains("If it is empty: <code>7</code>"), "{text}");
    }
}
