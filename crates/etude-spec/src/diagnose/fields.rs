//! P0201 to P0203: fields that are unknown, misplaced or missing.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::fields::{Field, Object};
use crate::source::{SourceFile, Span};
use crate::wording::{did_you_mean, list, quoted, quoted_list};

type File = Arc<SourceFile>;

/// A key that the table does not have. `subject` is the name of the object, `owners` are the kinds of object that have
/// such a field.
pub(crate) fn unknown_field(
    file: &File,
    at: Span,
    key: &str,
    table: &'static Object,
    subject: &str,
    owners: &[&str],
) -> Diagnostic {
    let has = label(table);
    if !owners.is_empty() {
        let message = format!("{subject} has no field {}", quoted(key));
        let owners = match owners {
            [init @ .., last] if !init.is_empty() => format!("{} and {last}", init.join(", ")),
            _ => owners.concat(),
        };
        let hint = format!("{} belongs to {owners}", quoted(key));
        return Diagnostic::error(Code::MisplacedField, file, at, message).label(has).hint(hint);
    }
    let message = format!("unknown field {} in {subject}", quoted(key));
    let near = || other_word(key, table).or_else(|| did_you_mean(key, table.names()));
    let hint = of_scope(key).or_else(|| near().map(|name| format!("did you mean {}?", quoted(name))));
    Diagnostic::error(Code::UnknownField, file, at, message).label(has).maybe_hint(hint)
}

/// Hint on the place of constructor and destructor: they belong to the app and are never fields.
fn of_scope(key: &str) -> Option<String> {
    let (name, when) = match key.trim_start_matches('_').to_lowercase().as_str() {
        "constructor" => ("_constructor", "before"),
        "destructor" => ("_destructor", "after"),
        _ => return None,
    };
    Some(format!(
        "write it as a separate pipeline, `pipelines/{name}/pipeline.yaml`: it runs {when} every pipeline of the app"
    ))
}

/// Field that other tools call `key`, if similar letters do not reveal it.
fn other_word<'t>(key: &str, table: &'t Object) -> Option<&'t str> {
    const WORDS: &[(&str, &[&str])] = &[
        ("command", &["run", "script", "cmd", "exec", "shell", "bash", "sh"]),
        ("prompt", &["message", "messages", "instruction", "instructions", "user"]),
        ("model", &["tier", "model_tier", "model_name", "llm"]),
        ("schema", &["output_schema", "response_schema", "json_schema", "response_format"]),
        ("when", &["if", "condition"]),
        ("require", &["requires", "assert", "precondition"]),
        ("for_each", &["foreach", "map", "loop", "matrix", "with_items"]),
        ("timeout", &["timeout_minutes", "time_limit"]),
        ("retry", &["retries", "attempts", "max_attempts", "max_retries"]),
        ("env", &["environment", "variables"]),
        ("steps", &["children", "branches", "tasks", "jobs"]),
    ];
    let meant = WORDS.iter().find(|(_, others)| others.contains(&key.to_lowercase().as_str()))?.0;
    table.names().find(|name| *name == meant)
}

/// Label with every field of the table, those of the protocol first.
fn label(table: &Object) -> String {
    let extensions: Vec<_> = table.iter().filter(|field| field.extension.is_some()).map(|field| field.name).collect();
    let portable = table.portable();
    match (portable.is_empty(), extensions.is_empty()) {
        (false, false) => format!("{} has: {}; extensions: {}", table.name, list(&portable), list(&extensions)),
        (false, true) => format!("{} has: {}", table.name, list(&portable)),
        (true, _) => format!("{} has: {}", table.name, list(&extensions)),
    }
}

pub(crate) fn missing_field(file: &File, at: Span, field: &Field, table: &Object, subject: &str) -> Diagnostic {
    let required: Vec<_> = table.iter().filter(|field| field.required).map(|field| field.name).collect();
    Diagnostic::error(Code::MissingField, file, at, format!("{subject} has no `{}`", field.name))
        .field(field.name)
        .label(format!("{} needs {}", table.name, quoted_list(&required, "and")))
        .hint(match field.name {
            "steps" => "add `steps:` with at least one step below it".to_owned(),
            name => format!("for example: `{name}: {}`", field.example),
        })
}
