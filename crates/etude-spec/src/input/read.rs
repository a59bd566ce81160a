//! Reading of `input` in a pipeline file.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::schema::Schema;
use serde_json::{Value, json};

use super::{InputDecl, InputType, Parameter, fits};
use crate::check::{Findings, literal, literal_value};
use crate::diagnose::values;
use crate::fields::pipeline::PARAMETER;
use crate::schema_file::meta_faults;
use crate::schema_words;
use crate::source::Span;
use crate::yaml::{Entries, Node, place_in};

/// Reads the declarations in `input`.
pub(crate) fn read(found: &mut Findings<'_>, parameters: &Entries<'_>) -> InputDecl {
    let mut declared = InputDecl::default();
    for (name, key, node) in parameters.iter() {
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || ".={}[]()|\"'`\\".contains(c)) {
            let rule = "no spaces, dots, `=`, quotes or brackets, so that `{{input.name}}` can refer to it";
            found.push(values::bad_name(found.file, key.span, "a parameter", name, rule));
            continue;
        }
        let at = if node.span.is_empty() { key.span } else { node.span };
        declared.parameters.extend(match (node.as_text(), node.as_map()) {
            (Some(word), _) => short(found, name, word, key.span, at),
            (_, Some(members)) => long(found, name, members, key.span),
            _ if node.is_invalid() => None,
            _ => {
                found.push(values::parameter_shape(found.file, at, name, node.kind()));
                None
            }
        });
    }
    declared
}

fn short(found: &mut Findings<'_>, name: &str, word: &str, key: Span, at: Span) -> Option<Parameter> {
    let Some(kind) = InputType::from_word(word) else {
        found.push(values::unknown_input_type(found.file, at, name, word));
        // The parameter still exists, so templates that name it are not at fault.
        return Some(Parameter { sound: false, ..parameter(name, json!({}), None, key) });
    };
    Some(parameter(name, json!({ "type": word }), Some(kind), key))
}

fn parameter(name: &str, schema: Value, short: Option<InputType>, at: Span) -> Parameter {
    let schema = Arc::new(Schema::lazy(format!("input {name}"), schema, BTreeMap::new()));
    Parameter { name: name.to_owned(), schema, required: true, default: None, short, at, sound: true }
}

fn long(found: &mut Findings<'_>, name: &str, members: &Entries<'_>, key: Span) -> Option<Parameter> {
    let subject = format!("parameter `{name}`");
    found.extensions.push(values::extension(found.file, key, &subject, "a JSON Schema", "A-2.4"));
    let before = found.list.len();
    check_types(found, name, members.get("type"));
    let sound = found.list.len() == before;
    let default = match members.get("default") {
        Some(node) => {
            if let Some(field) = PARAMETER.field("default") {
                found.as_written(field, node);
            }
            Some(literal(found, node, &format!("the default of `{name}`"))?)
        }
        None => None,
    };
    let mut required = default.is_none();
    let mut schema = serde_json::Map::new();
    for (member, _, node) in members.iter() {
        match (member, node.as_bool()) {
            ("default", _) => {}
            // A list is the `required` of JSON Schema itself: names of members.
            ("required", Some(given)) => required = given,
            _ => {
                let value = literal_value(found, node, &format!("the schema of `{name}`"))?;
                schema.insert(member.to_owned(), value);
            }
        }
    }
    let required = required && default.is_none();
    Some(Parameter { required, default, sound, ..parameter(name, Value::Object(schema), None, key) })
}

fn check_types(found: &mut Findings<'_>, name: &str, node: Option<&Node<'_>>) {
    let Some(node) = node else { return };
    for node in node.as_seq().unwrap_or(std::slice::from_ref(node)) {
        match node.as_text() {
            Some(word) if word == "null" || InputType::from_word(word).is_some() => {}
            Some(word) => found.push(values::unknown_input_type(found.file, node.span, name, word)),
            // `type: [string, null]`: a plain `null` means the word in JSON Schema.
            None if node.is_invalid() => {}
            None => found.push(values::parameter_shape(found.file, node.span, name, node.kind())),
        }
    }
}

/// Checks the schemas and defaults of parameters in the long form. `node` is the value of `input`.
pub(crate) fn check_parameters(found: &mut Findings<'_>, input: &InputDecl, node: Option<&Node<'_>>) {
    for parameter in input.parameters.iter().filter(|parameter| parameter.short.is_none() && parameter.sound) {
        let own = node.and_then(Node::as_map).and_then(|entries| entries.get(&parameter.name));
        if let Some(own) = own {
            let slips = schema_words::in_yaml(found.file, own, parameter.schema.document());
            slips.into_iter().for_each(|slip| found.push(slip));
        }
        let place = |pointer: &str| own.map_or(parameter.at, |own| place_in(own, pointer));
        let faults = meta_faults(parameter.schema.document());
        if !faults.is_empty() {
            for fault in faults {
                let at = place(&fault.pointer);
                let diagnostic = values::not_a_parameter_schema(found.file, at, &parameter.name, &fault.why);
                found.push(diagnostic.maybe_hint(fault.hint));
            }
        } else if let Some(default) = parameter.default.as_ref().and_then(|json| json.inline())
            && let Err(why) = fits(parameter, default)
        {
            found.push(values::bad_default(found.file, place("/default"), &parameter.name, &why));
        }
    }
}
