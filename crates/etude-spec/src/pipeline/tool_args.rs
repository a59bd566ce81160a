//! Arguments of a step that calls a tool, checked against the tool's input schema (L-43).
//!
//! Only certain faults are reported: templates may have any value.

use std::collections::BTreeMap;

use etude_core::plan::Binding;
use etude_core::pointer::escaped;
use etude_core::schema::Schema;
use serde_json::{Map, Value};

use crate::check::Findings;
use crate::diagnose::references;
use crate::diagnostic::{Diagnostic, Severity};
use crate::pipeline::definition::{BindingDef, StepDef};
use crate::source::Span;
use crate::tool::built_in;
use crate::yaml::Text;

/// Keywords of a schema that hold for each argument alone.
const OF_ONE: &[&str] = &["$schema", "$id", "$defs", "definitions", "type", "properties", "patternProperties"];

/// Checks the arguments `args` of a step that calls `tool`, whose arguments `schema` describes. The faults are warnings:
/// such a call is an error of the tool in a run, and a deviation where the pipeline falls back (L-45, L-67).
pub(super) fn check(
    found: &mut Findings<'_>,
    (step, tool): (&StepDef<'_>, Text<'_>),
    args: &[BindingDef<'_>],
    schema: &Value,
) {
    let Some(members) = schema.as_object() else { return };
    let node = step.node.as_map().and_then(|entries| entries.get("args"));
    let given: Vec<(&str, Span)> = match node {
        Some(node) => match node.as_map() {
            Some(entries) => entries.iter().map(|(name, key, _)| (name, key.span)).collect(),
            // A value of another type was reported with the step.
            None => return,
        },
        None => Vec::new(),
    };
    let call = Call { tool, given: &given, args, at: node.map_or(tool.at, |node| node.span), members };
    let faults = call.faults(found, schema);
    faults.into_iter().for_each(|fault| found.push(fault.at_most(Severity::Warning)));
}

struct Call<'c, 'n> {
    tool: Text<'n>,
    /// Names of the arguments, also of those that could not be read.
    given: &'c [(&'n str, Span)],
    args: &'c [BindingDef<'n>],
    at: Span,
    /// Keywords of the tool's input schema.
    members: &'c Map<String, Value>,
}

impl Call<'_, '_> {
    fn faults(&self, found: &Findings<'_>, schema: &Value) -> Vec<Diagnostic> {
        // Earlier drafts ignore the keywords beside a reference.
        let mut faults = match self.members.contains_key("$ref") {
            true => Vec::new(),
            false => [self.missing(found), self.unknown(found), self.mistyped(found)].concat(),
        };
        if let Some(whole) = self.whole().filter(|_| faults.is_empty()) {
            let violations = violations(schema.clone(), &whole);
            faults.extend(violations.into_iter().map(|(pointer, why)| {
                let why = if pointer.is_empty() { why } else { format!("{pointer}: {why}") };
                references::unfit_arguments(found.file, self.at, self.tool.text, &why)
            }));
        }
        faults
    }

    fn missing(&self, found: &Findings<'_>) -> Vec<Diagnostic> {
        let required = self.members.get("required").and_then(Value::as_array).into_iter().flatten();
        let is_given = |name: &str| self.given.iter().any(|(given, _)| *given == name);
        let missing: Vec<&str> = required.filter_map(Value::as_str).filter(|name| !is_given(name)).collect();
        match missing.as_slice() {
            [] => Vec::new(),
            missing => vec![references::missing_arguments(found.file, self.tool.at, self.tool.text, missing)],
        }
    }

    fn unknown(&self, found: &Findings<'_>) -> Vec<Diagnostic> {
        let is_closed = self.members.get("additionalProperties") == Some(&Value::Bool(false));
        if !is_closed || self.members.contains_key("patternProperties") {
            return Vec::new();
        }
        let declared: Vec<&str> = self.properties().map(|(name, _)| name.as_str()).collect();
        let is_known = |name: &str| declared.contains(&name) || built_in::is_positional(self.tool.text, name);
        let unknown = self.given.iter().filter(|(name, _)| !is_known(name));
        unknown
            .map(|(name, at)| references::unknown_argument(found.file, *at, self.tool.text, name, &declared))
            .collect()
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.members.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// Faults of the literal arguments, each by itself.
    fn mistyped(&self, found: &Findings<'_>) -> Vec<Diagnostic> {
        let literals = self.literals();
        if literals.is_empty() {
            return Vec::new();
        }
        let mut schema: Map<String, Value> = self.members.clone();
        schema.retain(|keyword, _| OF_ONE.contains(&keyword.as_str()));
        let whole = literals.iter().map(|(arg, value)| (arg.name.text.to_owned(), value.clone())).collect();
        let violations = violations(Value::Object(schema), &Value::Object(whole));
        let fault = |(arg, _): &(&BindingDef<'_>, Value)| {
            let place = format!("/{}", escaped(arg.name.text));
            let own = violations.iter().filter_map(|(pointer, why)| {
                let rest = pointer.strip_prefix(&place).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
                Some(if rest.is_empty() { why.clone() } else { format!("{rest}: {why}") })
            });
            let all: Vec<String> = own.collect();
            let why = (!all.is_empty()).then(|| all.join("; "))?;
            Some(references::mistyped_argument(found.file, arg.at, self.tool.text, arg.name.text, &why))
        };
        literals.iter().filter_map(fault).collect()
    }

    fn literals(&self) -> Vec<(&BindingDef<'_>, Value)> {
        let value = |arg: &BindingDef<'_>| match &arg.value {
            Binding::Literal(json) => json.value().ok(),
            _ => None,
        };
        self.args.iter().filter_map(|arg| Some((arg, value(arg)?))).collect()
    }

    /// All arguments, if all of them are literals.
    fn whole(&self) -> Option<Value> {
        let literals = self.literals();
        let is_whole = literals.len() == self.given.len() && !built_in::has_positional(self.tool.text);
        let members = literals.into_iter().map(|(arg, value)| (arg.name.text.to_owned(), value));
        is_whole.then(|| Value::Object(members.collect()))
    }
}

/// Violations of a schema, by JSON pointer. A schema that cannot be compiled has none: the tool's file reports it.
fn violations(schema: Value, value: &Value) -> Vec<(String, String)> {
    let Ok(schema) = Schema::compile("inputSchema", schema, BTreeMap::new()) else { return Vec::new() };
    schema.violations(value).into_iter().map(|violation| (violation.pointer, violation.message)).collect()
}

#[cfg(test)]
mod tests;
