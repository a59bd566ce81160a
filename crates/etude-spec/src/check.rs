//! Checks of mappings against their field tables, and of values that JSON cannot express.

mod braces;

use std::sync::Arc;

use etude_core::data::Json;

use crate::diagnose::{fields as diagnose, references, values};
use crate::diagnostic::Diagnostic;
use crate::duration;
use crate::fields::{Field, FieldKind, Object};
use crate::source::{SourceFile, Span};
use crate::wording::{did_you_mean, quoted};
use crate::yaml::{Entries, Locator, Node, Plain, Value};

/// Findings of a reader of definitions in one file.
pub(crate) struct Findings<'s> {
    pub(crate) file: &'s Arc<SourceFile>,
    pub(crate) list: Vec<Diagnostic>,
    /// Uses of extensions, for `etude check --portable`.
    pub(crate) extensions: Vec<Diagnostic>,
    /// Values with a reference that is not filled in there. Other findings in them are consequences.
    not_filled_in: Vec<Span>,
}

impl<'s> Findings<'s> {
    pub(crate) fn new(file: &'s Arc<SourceFile>) -> Self {
        Self { file, list: Vec::new(), extensions: Vec::new(), not_filled_in: Vec::new() }
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let within = |whole: &Span| diagnostic.span.is_some_and(|at| whole.start <= at.start && at.end <= whole.end);
        if !self.not_filled_in.iter().any(within) {
            self.list.push(diagnostic);
        }
    }

    /// Reports references in `value` and in its members: they are used as written.
    pub(crate) fn as_written(&mut self, field: &Field, value: &Node<'_>) {
        if let Some(text) = value.as_text() {
            let Some((range, reference)) = braces::reference(text) else { return };
            let overlaps = |found: &Diagnostic| {
                found.span.is_some_and(|at| at.start < value.span.end && value.span.start < at.end)
            };
            if self.list.iter().any(|found| found.is_error() && overlaps(found)) {
                return;
            }
            let at = Locator::new(self.file, value).map_or(value.span, |mut places| places.span(range));
            let variable = braces::variable(reference);
            self.push(references::not_a_template(self.file, at, field, reference, &variable));
            self.not_filled_in.push(value.span);
        }
        value.as_seq().unwrap_or_default().iter().for_each(|item| self.as_written(field, item));
        value.as_map().into_iter().flat_map(Entries::iter).for_each(|(_, _, item)| self.as_written(field, item));
    }
}

/// Name and place of an object, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Name in messages: ``llm step `analyze` ``.
    pub(crate) name: &'a str,
    /// Span for diagnostics about missing fields.
    pub(crate) at: Span,
}

/// Checks names, presence and types of the fields of `entries`. `elsewhere` are tables whose fields are known but
/// misplaced here.
pub(crate) fn object(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    table: &'static Object,
    subject: Subject<'_>,
    elsewhere: &[&'static Object],
) {
    for (key, key_node, value) in entries.iter() {
        match table.field(key) {
            Some(field) => {
                if let Some(clause) = field.extension {
                    let note = values::extension(found.file, key_node.span, subject.name, key, clause);
                    found.extensions.push(note.field(field.name));
                }
                value_of(found, field, key_node, value);
            }
            None => {
                let owners: Vec<_> = elsewhere.iter().filter(|o| o.field(key).is_some()).map(|o| o.name).collect();
                found.push(diagnose::unknown_field(found.file, key_node.span, key, table, subject.name, &owners));
            }
        }
    }
    // A required field whose name is misspelt is one fault, not two.
    let unknown = || entries.iter().map(|(key, ..)| key).filter(|key| table.field(key).is_none());
    let is_misspelt = |name: &str| unknown().any(|key| did_you_mean(key, table.names()) == Some(name));
    let missing = table.iter().filter(|field| field.required && entries.get(field.name).is_none());
    for field in missing.filter(|field| !is_misspelt(field.name)) {
        found.push(diagnose::missing_field(found.file, subject.at, field, table, subject.name));
    }
}

/// Checks the value of one field.
pub(crate) fn value_of(found: &mut Findings<'_>, field: &'static Field, key: &Node<'_>, value: &Node<'_>) {
    let place = if value.span.is_empty() { key.span } else { value.span };
    let context = Context { field, what: &format!("`{}`", field.name), place };
    kind(found, &field.kind, context, value);
}

#[derive(Clone, Copy)]
struct Context<'a> {
    field: &'static Field,
    /// Name of the value in messages.
    what: &'a str,
    place: Span,
}

fn kind(found: &mut Findings<'_>, expected: &FieldKind, at: Context<'_>, value: &Node<'_>) {
    if value.is_invalid() {
        return;
    }
    match expected {
        FieldKind::Any | FieldKind::Data | FieldKind::Condition => {}
        FieldKind::Literal => found.as_written(at.field, value),
        FieldKind::Schema if value.as_map().is_some() => {
            let note = values::extension(found.file, at.place, at.what, "a JSON Schema in place of a path", "X-3");
            found.extensions.push(note.field(at.field.name));
        }
        FieldKind::Text
        | FieldKind::Prose
        | FieldKind::Template
        | FieldKind::ArgsTemplate
        | FieldKind::Path
        | FieldKind::Schema => match value.as_text() {
            Some(text) if text.trim().is_empty() => found.push(values::empty(found.file, at.place, at.what)),
            Some(_) if matches!(expected, FieldKind::Text | FieldKind::Path | FieldKind::Schema) => {
                found.as_written(at.field, value);
            }
            Some(_) => {}
            None => wrong_type(found, expected, at, value),
        },
        FieldKind::Bool if value.as_bool().is_some() => {}
        FieldKind::Integer(min, max) => integer(found, expected, at, value, *min, *max),
        FieldKind::Number(min, max) => number(found, expected, at, value, *min, *max),
        FieldKind::Duration => {
            if let Err(why) = duration::of_node(value) {
                found.push(values::bad_duration(found.file, at.place, at.what, why));
            }
        }
        FieldKind::LongDuration => {
            if let Err(why) = duration::long_of_node(value) {
                found.push(values::bad_duration(found.file, at.place, at.what, why));
            }
        }
        FieldKind::Word(words) => match value.as_text() {
            Some(text) if words.contains(&text) => {}
            Some(text) => found.push(values::unknown_word(found.file, at.place, at.what, text, words)),
            None => wrong_type(found, expected, at, value),
        },
        FieldKind::List(_) | FieldKind::Entries(_) | FieldKind::Object(_) => members(found, expected, at, value),
        FieldKind::Either(kinds) => match kinds.iter().find(|kind| same_shape(kind, value)) {
            Some(chosen) => kind(found, chosen, at, value),
            None => wrong_type(found, expected, at, value),
        },
        FieldKind::Steps if value.as_seq().is_some() => {}
        FieldKind::Inputs if value.as_map().is_some() => {}
        FieldKind::Bool | FieldKind::Steps | FieldKind::Inputs => wrong_type(found, expected, at, value),
    }
}

/// Checks a list or mapping with its members.
fn members(found: &mut Findings<'_>, expected: &FieldKind, at: Context<'_>, value: &Node<'_>) {
    let or = |span: Span, other: Span| if span.is_empty() { other } else { span };
    match (expected, &value.value) {
        (FieldKind::List(of), Value::Seq(items)) => {
            let what = &format!("an element of {}", at.what);
            for item in items {
                let place = or(item.span, at.place);
                kind(found, of, Context { place, what, ..at }, item);
            }
        }
        (FieldKind::Entries(of), Value::Map(entries)) => {
            for (name, key, item) in entries.iter() {
                let what = &quoted(&format!("{}.{name}", at.field.name));
                let place = or(item.span, key.span);
                // An environment variable may be empty.
                if !(may_be_template(of) && item.as_text().is_some_and(str::is_empty)) {
                    kind(found, of, Context { place, what, ..at }, item);
                }
            }
        }
        (FieldKind::Object(table), Value::Map(entries)) => {
            let (name, at) = (at.what, at.place);
            object(found, entries, table, Subject { name, at }, &[]);
        }
        _ => wrong_type(found, expected, at, value),
    }
}

/// True for a template and for a choice with one.
pub(crate) fn may_be_template(kind: &FieldKind) -> bool {
    match kind {
        FieldKind::Template => true,
        FieldKind::Either(kinds) => kinds.iter().any(may_be_template),
        _ => false,
    }
}

/// True if a value has the shape of the kind, so that its faults are best described in that kind's terms.
fn same_shape(kind: &FieldKind, value: &Node<'_>) -> bool {
    match (kind, &value.value) {
        (FieldKind::Object(_) | FieldKind::Entries(_), Value::Map(_)) | (FieldKind::List(_), Value::Seq(_)) => true,
        (FieldKind::Bool, _) => value.as_bool().is_some(),
        (FieldKind::Integer(..) | FieldKind::Number(..), _) => {
            matches!(value.as_plain(), Some(Plain::Int(_) | Plain::Float(_)))
        }
        (
            FieldKind::Word(_)
            | FieldKind::Text
            | FieldKind::Prose
            | FieldKind::Template
            | FieldKind::ArgsTemplate
            | FieldKind::Path,
            _,
        ) => value.as_text().is_some(),
        _ => false,
    }
}

fn wrong_type(found: &mut Findings<'_>, expected: &FieldKind, at: Context<'_>, value: &Node<'_>) {
    found.push(values::wrong_type(found.file, at.place, (at.field.name, at.what), expected, value));
}

fn integer(found: &mut Findings<'_>, expected: &FieldKind, at: Context<'_>, value: &Node<'_>, min: i64, max: i64) {
    match value.as_plain() {
        Some(Plain::Int(digits)) if digits.parse::<i64>().is_ok_and(|n| (min..=max).contains(&n)) => {}
        Some(Plain::Int(digits)) => {
            found.push(values::out_of_range(found.file, at.place, at.what, &digits, &bound(min), &bound(max)));
        }
        _ => wrong_type(found, expected, at, value),
    }
}

fn bound(n: i64) -> String {
    let digits = crate::wording::number(n.unsigned_abs());
    if n < 0 { format!("-{digits}") } else { digits }
}

fn number(found: &mut Findings<'_>, expected: &FieldKind, at: Context<'_>, value: &Node<'_>, min: f64, max: f64) {
    match value.as_plain() {
        Some(Plain::Int(text) | Plain::Float(text)) => {
            if !text.parse::<f64>().is_ok_and(|n| (min..=max).contains(&n)) {
                let (min, max) = (min.to_string(), max.to_string());
                found.push(values::out_of_range(found.file, at.place, at.what, &text, &min, &max));
            }
        }
        _ => wrong_type(found, expected, at, value),
    }
}

/// Converts a value to JSON; `None`, with a diagnostic, if JSON cannot express it.
pub(crate) fn literal(found: &mut Findings<'_>, node: &Node<'_>, what: &str) -> Option<Json> {
    match node.to_json() {
        Ok(text) => Some(Json::trusted(text)),
        Err(at) => {
            // An invalid part has been reported at its own place.
            if found.file.slice(at).contains(['i', 'I', 'n', 'N']) && found.file.slice(at).contains('.') {
                found.push(values::not_json(found.file, at, what));
            }
            None
        }
    }
}

/// The value of a node; a number that no double can hold is reported.
pub(crate) fn literal_value(found: &mut Findings<'_>, node: &Node<'_>, what: &str) -> Option<serde_json::Value> {
    let value = literal(found, node, what)?.value();
    if value.is_err() {
        found.push(values::too_large(found.file, node.span, what));
    }
    value.ok()
}
