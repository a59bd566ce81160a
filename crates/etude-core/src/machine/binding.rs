//! Values that a step binds to the parameters of a pipeline or machine, and references without a value.

use serde_json::value::RawValue;

use super::values::Values;
use crate::data::Json;
use crate::failure::{Failure, FailureKind, Reason};
use crate::plan::Binding;
use crate::schema::Schema;
use crate::template::Unresolved;

/// The input that a step gives to a pipeline or a machine, checked against what that takes.
pub(super) fn bind(
    step: &str,
    taker: &str,
    bound: &[(String, Binding)],
    schema: &Schema,
    values: &Values,
) -> Result<Json, Failure> {
    let input = Json::trusted(members(bound, values)?);
    let tree = input.value().map_err(|e| Failure::new(FailureKind::Internal, e.to_string()))?;
    let violations = schema.faults(&tree);
    if violations.is_empty() {
        return Ok(input);
    }
    let message = format!("step `{step}` gives {taker} an input that it does not take: {}", violations.join("; "));
    Err(Failure::new(FailureKind::InputInvalid, message).because(Reason::FieldType))
}

/// Bound values as the text of a JSON object.
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

/// The failure for a reference without a value.
pub(super) fn unresolved(why: &Unresolved) -> Failure {
    Failure::new(FailureKind::TemplateUnresolved, why.to_string()).because(Reason::FieldMissing)
}
