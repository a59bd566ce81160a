//! Parameters from the request.

use std::sync::Arc;

use etude_core::data::Json;
use etude_core::failure::{Failure, Kind};
use etude_core::model::Usage;
use etude_runtime::host::ModelPort;
use etude_spec::pipeline::input::InputDecl;
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ask, in_routing, prompt};

/// What was found in a request.
#[derive(Debug, Clone)]
pub struct Extracted {
    /// A JSON object with the parameters that the request states and that were not given otherwise.
    pub input: String,
    /// What the model call has cost.
    pub usage: Usage,
    /// Why the model has given nothing that could be used, if it has not: what may be left out is then left out.
    pub undelivered: Option<String>,
}

/// Looks in `request` for the parameters of `pipeline` that are not in `given`. Asks nothing if there are none.
///
/// # Errors
/// The model could not be asked.
pub async fn extract(
    request: &str,
    pipeline: &str,
    declared: &InputDecl,
    given: &[&str],
    models: &Arc<dyn ModelPort>,
) -> Result<Extracted, Failure> {
    let mut found = Extracted { input: "{}".to_owned(), usage: Usage::default(), undelivered: None };
    let Some(schema) = wanted(declared, given) else { return Ok(found) };
    let reply = ask::ask(models, prompt::for_parameters(request, pipeline, &schema)).await;
    found.usage = reply.usage;
    match reply.value {
        Ok(value) => {
            found.input = without_nulls(&value).ok_or_else(|| {
                in_routing(Failure::new(Kind::Internal, "the extracted parameters are no JSON object"))
            })?;
            Ok(found)
        }
        // Nothing usable was found: what is required is then missing, and is said to be.
        Err(failure) if failure.kind == Kind::ValidationExhausted => {
            found.undelivered = Some(failure.message);
            Ok(found)
        }
        Err(failure) => Err(in_routing(failure)),
    }
}

/// Whether `declared` has parameters that are not in `given`.
pub fn has_wanted(declared: &InputDecl, given: &[&str]) -> bool {
    wanted(declared, given).is_some()
}

/// The parameters of `declared` that are not in `given` and may be left out.
pub fn optional<'d>(declared: &'d InputDecl, given: &[&str]) -> impl Iterator<Item = &'d str> {
    let is_required = |name: &str| {
        let others: Vec<&str> = declared.names().into_iter().filter(|other| *other != name).collect();
        declared.has_required_beyond(&others)
    };
    declared.names().into_iter().filter(move |name| !given.contains(name) && !is_required(name))
}

/// The schema of the parameters that are still to be found; `None` if there are none.
fn wanted(declared: &InputDecl, given: &[&str]) -> Option<Value> {
    let mut schema = declared.schema();
    let object = schema.as_object_mut()?;
    object.insert("required".to_owned(), Value::Array(Vec::new()));
    object.insert("additionalProperties".to_owned(), Value::Bool(false));
    let properties = object.get_mut("properties")?.as_object_mut()?;
    properties.retain(|name, _| !given.contains(&name.as_str()));
    (!properties.is_empty()).then_some(schema)
}

/// The members of an object that are not `null`: models like to name what they have not found.
fn without_nulls(object: &Json) -> Option<String> {
    let text = object.text().ok()?;
    let members: IndexMap<String, &RawValue> = serde_json::from_str(&text).ok()?;
    let stated: IndexMap<&str, &RawValue> = members
        .iter()
        .filter(|(_, value)| value.get() != "null")
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    serde_json::to_string(&stated).ok()
}
