//! Values that a step binds to the parameters of a pipeline or machine, and references without a value.

use serde_json::value::RawValue;

use super::values::Values;
use crate::condition::{ConditionError, NAMES_UNREADABLE, Unreadable};
use crate::data::{Json, ReadError};
use crate::failure::{Failure, FailureKind, Reason};
use crate::plan::Binding;
use crate::schema::Schema;
use crate::template::{Reference, Scope, Unresolved};

/// The input that a step passes to a pipeline or a machine, checked against the schema.
pub(super) fn bind(
    step: &str,
    taker: &str,
    bound: &[(String, Binding)],
    schema: &Schema,
    values: &Values,
) -> Result<Json, Failure> {
    let input = Json::trusted(members(bound, values)?);
    let tree = input.value().map_err(|why| {
        let given = bound.iter().find_map(|(name, binding)| {
            let is_it = binding.resolve(values).is_ok_and(|value| value.value().is_err());
            is_it
                .then(|| format!("`{name}`{}", binding.as_reference().map(|of| format!(", {of},")).unwrap_or_default()))
        });
        let what =
            format!("the value that step `{step}` passes to {taker} as {}", given.as_deref().unwrap_or("its input"));
        unreadable(&what, &why, FailureKind::InputInvalid, FailureKind::Internal, values.abi())
    })?;
    let violations = schema.faults(&tree);
    if violations.is_empty() {
        return Ok(input);
    }
    let message = format!("step `{step}` passes an invalid input to {taker}: {}", violations.join("; "));
    Err(Failure::new(FailureKind::InputInvalid, message).because(Reason::FieldType))
}

/// The bound values as the text of a JSON object.
pub(super) fn members(bound: &[(String, Binding)], values: &Values) -> Result<String, Failure> {
    let broken = |why: serde_json::Error| Failure::new(FailureKind::Internal, why.to_string());
    let mut members = indexmap::IndexMap::new();
    for (name, binding) in bound {
        let value = binding.resolve(values).map_err(|e| unresolved(&e))?;
        let text = value.text().map_err(|e| Failure::new(FailureKind::Environment, e.to_string()))?;
        members.insert(name.as_str(), RawValue::from_string(text.to_string()).map_err(broken)?);
    }
    serde_json::to_string(&members).map_err(broken)
}

/// The failure for a value that cannot be read or looked into. A value that cannot be looked into is the fault of its
/// maker, with the failure kind `kind`. In runs of earlier versions the kind was `before`.
pub(super) fn unreadable(what: &str, why: &ReadError, kind: FailureKind, before: FailureKind, abi: u32) -> Failure {
    match why {
        _ if abi < NAMES_UNREADABLE => Failure::new(before, why.to_string()),
        ReadError::Opaque(why) => Failure::new(kind, format!("{what} cannot be parsed: {why}")),
        why => Failure::new(FailureKind::Environment, why.to_string()),
    }
}

/// The failure kind for [`unreadable`]: for an input of the pipeline, or for the output of a step.
pub(super) fn kind_of_maker(binding: &Binding) -> FailureKind {
    match binding {
        Binding::Reference(Reference::Input { .. }) => FailureKind::InputInvalid,
        _ => FailureKind::StepOutputInvalid,
    }
}

/// The failure of a step whose condition, under the keyword `word`, cannot be evaluated.
pub(super) fn undecided(step: &str, word: &str, why: &ConditionError, values: &Values) -> Failure {
    match why {
        ConditionError::Unresolved(why) => unresolved(why),
        ConditionError::Unreadable(Unreadable { why, .. }) if values.abi() < NAMES_UNREADABLE => {
            unresolved(&Unresolved { reference: "when".to_owned(), why: why.to_string() })
        }
        ConditionError::Unreadable(Unreadable { binding, why }) => {
            let value = binding.as_reference().unwrap_or_else(|| "a value".to_owned());
            let what = format!("{value} in the `{word}` of step `{step}`");
            unreadable(&what, why, kind_of_maker(binding), FailureKind::TemplateUnresolved, values.abi())
        }
    }
}

/// The failure for a reference without a value.
pub(super) fn unresolved(why: &Unresolved) -> Failure {
    Failure::new(FailureKind::TemplateUnresolved, why.to_string()).because(Reason::FieldMissing)
}
