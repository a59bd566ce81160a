//! `when` and `require` (L-46), and values that are literals or references.

use etude_core::condition::{Condition, Op};
use etude_core::data::Json;
use etude_core::exact::Literal;
use etude_core::plan::{Binding, Requirement};
use etude_core::template::Template;
use serde_json::Value;

use crate::check::{Findings, literal};
use crate::diagnose::{fields, values};
use crate::fields::pipeline::COMPARISON;
use crate::pipeline::read::Templates;
use crate::wording::quoted_list;
use crate::yaml::{Entries, Node};

/// Reads the condition in `node`, a part of `field`; `None`, with a diagnostic, if it is invalid.
pub(crate) fn read<'n>(
    found: &mut Findings<'_>,
    node: &'n Node<'n>,
    templates: &mut Templates<'_, 'n>,
    field: &'static str,
) -> Option<Condition> {
    if node.is_invalid() {
        return None;
    }
    if let Some(items) = node.as_seq() {
        return all(found, items, templates, field).map(Condition::All);
    }
    if let Some(entries) = node.as_map() {
        return comparison(found, node, entries, templates, field);
    }
    if let Some(value) = node.as_bool() {
        return Some(Condition::Truthy(Binding::Literal(Json::of(&Value::Bool(value)))));
    }
    if node.as_text().is_some_and(|text| !text.trim().is_empty()) {
        let before = found.list.len();
        let template = templates.read(found, field, node, false)?;
        let is_sound = found.list.len() == before;
        if is_sound && template.is_literal() {
            found.push(values::bad_condition(
                found.file,
                node.span,
                format!("`{field}` has no reference, so its result would never change"),
            ));
        } else if is_sound && template.has_text() {
            let comparison = node.as_text().and_then(|text| meant(text, &template));
            found.push(values::condition_with_text(found.file, node.span, field, comparison.as_deref()));
        }
        return Some(Condition::Truthy(bind(node, template)));
    }
    let message = format!("`{field}` must be a template, a comparison or a list of conditions, not {}", node.kind());
    found.push(values::bad_condition(found.file, node.span, message));
    None
}

/// The comparison that a text such as `{{a.output}} == 3` is meant as.
fn meant(text: &str, template: &Template) -> Option<String> {
    const OPERATORS: [(&str, Op); 8] = [
        ("===", Op::Equals),
        ("!==", Op::NotEquals),
        ("==", Op::Equals),
        ("!=", Op::NotEquals),
        (">=", Op::Gte),
        ("<=", Op::Lte),
        (">", Op::Gt),
        ("<", Op::Lt),
    ];
    let mut references = template.references();
    let (Some((reference, range)), None) = (references.next(), references.next()) else { return None };
    let (before, after) = (text.get(..range.start)?, text.get(range.end..)?.trim());
    let (op, right) = OPERATORS.iter().find_map(|(word, op)| Some((op, after.strip_prefix(word)?.trim())))?;
    let bare = right.trim_matches(['"', '\'']);
    // A second operator is part of a longer expression.
    if !before.trim().is_empty() || bare.is_empty() || bare.contains(['"', '\'', '&', '|', '=', '(']) {
        return None;
    }
    let right = match serde_json::from_str::<Value>(right) {
        Ok(value) if !value.is_array() && !value.is_object() => value,
        _ => Value::from(bare),
    };
    Some(format!("{{value: \"{{{{{reference}}}}}\", {}: {right}}}", op.word()))
}

fn all<'n>(
    found: &mut Findings<'_>,
    items: &'n [Node<'n>],
    templates: &mut Templates<'_, 'n>,
    field: &'static str,
) -> Option<Vec<Condition>> {
    let read: Vec<_> = items.iter().map(|item| read(found, item, templates, field)).collect();
    read.into_iter().collect()
}

fn comparison<'n>(
    found: &mut Findings<'_>,
    node: &'n Node<'n>,
    entries: &'n Entries<'n>,
    templates: &mut Templates<'_, 'n>,
    field: &'static str,
) -> Option<Condition> {
    for (key, at, _) in entries.iter().filter(|(key, _, _)| COMPARISON.field(key).is_none()) {
        found.push(fields::unknown_field(found.file, at.span, key, &COMPARISON, "a condition", &[]));
    }
    let known: Vec<&str> = entries.keys().filter(|key| COMPARISON.field(key).is_some()).collect();
    match known.as_slice() {
        ["any"] => {
            let node = entries.get("any")?;
            match node.as_seq() {
                Some(items) => all(found, items, templates, field).map(Condition::Any),
                None => {
                    found.push(values::bad_condition(
                        found.file,
                        node.span,
                        "`any` must be a list of conditions".into(),
                    ));
                    None
                }
            }
        }
        ["not"] => read(found, entries.get("not")?, templates, field).map(|inner| Condition::Not(Box::new(inner))),
        ["value", word] | [word, "value"] if !["any", "not"].contains(word) => {
            let op = Op::from_word(word)?;
            compare(found, entries, (op, word), templates, field)
        }
        [] if !entries.0.is_empty() => None,
        ["value"] if entries.0.len() > 1 => None,
        _ => {
            let message = match known.as_slice() {
                [] => "the condition is empty".to_owned(),
                ["value"] => "the condition compares `value` with nothing".to_owned(),
                [one] => format!("the condition has `{one}` but no `value`"),
                many => format!("a condition has exactly one comparison, not {}", quoted_list(many, "and")),
            };
            found.push(values::bad_condition(found.file, node.span, message));
            None
        }
    }
}

fn compare<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    (op, word): (Op, &str),
    templates: &mut Templates<'_, 'n>,
    field: &'static str,
) -> Option<Condition> {
    let value_node = entries.get("value")?;
    let uses = templates.uses.len();
    let value = match value_node.as_text() {
        Some(_) => templates.read(found, field, value_node, false).map(|template| bind(value_node, template)),
        None => literal(found, value_node, "`value`").map(Binding::Literal),
    };
    for used in &mut templates.uses[uses..] {
        used.may_be_missing = op == Op::Exists;
    }
    let node = entries.get(word)?;
    let takes_template = field == "require" && matches!(op, Op::Equals | Op::NotEquals | Op::In | Op::NotIn);
    if takes_template && node.as_text().is_some_and(|text| text.contains("{{")) {
        let right = bind(node, templates.read(found, field, node, false)?);
        return Some(Condition::Relate { value: value?, op, right });
    }
    if let Some(field) = COMPARISON.field(word) {
        found.as_written(field, node);
    }
    let json = literal(found, node, &format!("`{word}`"))?;
    let literal = Literal::from_json(&json).ok()?;
    let wrong = match (op, literal.tree()) {
        (Op::In | Op::NotIn, Value::Array(_)) | (Op::Exists, Value::Bool(_)) | (Op::Matches, Value::String(_)) => None,
        (Op::Gt | Op::Gte | Op::Lt | Op::Lte, Value::Number(_) | Value::String(_)) => None,
        (Op::Equals | Op::NotEquals, _) => None,
        (Op::In | Op::NotIn, _) => Some("a list"),
        (Op::Exists, _) => Some("`true` or `false`"),
        (Op::Matches, _) => Some("a regular expression"),
        _ => Some("a number or text"),
    };
    if let Some(expected) = wrong {
        let message = format!("`{word}` must be {expected}, not {}", node.kind());
        found.push(values::bad_condition(found.file, node.span, message));
        return None;
    }
    if let (Op::Matches, Value::String(pattern)) = (op, literal.tree())
        && let Err(why) = regex::Regex::new(pattern)
    {
        found.push(values::bad_pattern(found.file, node.span, &why.to_string()));
        return None;
    }
    Some(Condition::Compare { value: value?, op, literal })
}

/// Reads the `require` of a step, with its text for messages of runs.
pub(crate) fn requirement<'n>(
    found: &mut Findings<'_>,
    node: &'n Node<'n>,
    templates: &mut Templates<'_, 'n>,
) -> Option<Requirement> {
    let condition = read(found, node, templates, "require")?;
    let written = node.as_text().unwrap_or_else(|| found.file.slice(node.span).trim());
    Some(Requirement { condition, written: written.to_owned() })
}

/// Binds a text with its template: a sole reference keeps its JSON type, everything else is a string.
pub(crate) fn bind(node: &Node<'_>, template: Template) -> Binding {
    if let Some(reference) = template.sole_reference() {
        return Binding::Reference(reference.clone());
    }
    match template.is_literal() && !node.as_text().unwrap_or_default().contains("{{") {
        true => Binding::Literal(Json::string(node.as_text().unwrap_or_default())),
        false => Binding::Template(template),
    }
}
