//! Parameters from the request: values that code finds, then values that a model finds and the request
//! confirms.

use std::ops::Range;
use std::sync::Arc;

use etude_core::data::Json;
use etude_core::failure::{Failure, FailureKind};
use etude_core::model::Usage;
use etude_route::Route;
use etude_route::values::{About, Question, Reading, pairs};
use etude_runtime::host::ModelPort;
use etude_spec::did_you_mean;
use etude_spec::input::InputDecl;
use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ask::RoutingCall;
use super::source::{From, Source};
use super::{ask, in_routing, parameters, prompt};

/// A request for a pipeline, and the parameters that were given in another way.
#[derive(Debug, Clone)]
pub struct Stated<'a> {
    /// The request in the user's words.
    pub request: &'a str,
    /// The pipeline's name, description and example requests.
    pub about: &'a Route,
    /// The parameters under `input` of the pipeline.
    pub declared: &'a InputDecl,
    /// The names of parameters that were given in another way.
    pub given: Vec<&'a str>,
    /// Ranges of the request that were read already, in bytes.
    pub masked: Vec<Range<usize>>,
}

/// Parameters found in a request.
#[derive(Debug, Clone, Default)]
pub struct Extracted {
    /// A JSON object with the parameters that the request states and that were not given otherwise.
    pub input: String,
    /// Origin of each value in `input`.
    pub sources: Vec<Source>,
    /// Parameters that would take their default although the request has a text that may belong to them.
    pub unclear: Vec<Unclear>,
    /// Values of the model that the request does not confirm: names and values as JSON.
    pub made_up: Vec<(String, String)>,
    /// Tokens and cost of the model calls.
    pub usage: Usage,
    /// Reason why the model gave no usable values; `None` if it did or was not asked.
    pub undelivered: Option<String>,
    /// The model calls, in order.
    pub calls: Vec<RoutingCall>,
}

/// A parameter without a value, for which the request has a possible text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// The name of the parameter.
    pub name: String,
    /// The declared default, as JSON.
    pub default: Option<String>,
    /// Possible texts in the request.
    pub texts: Vec<String>,
    /// An accepted value, as a user would type it.
    pub example: Option<String>,
}

/// Finds each `NAME=VALUE` of a request whose name is declared: it counts as given by `-i`.
///
/// # Errors
/// A name that resembles a declared one: the name as typed, and the declared one.
pub fn typed(request: &str, declared: &InputDecl) -> Result<Vec<pairs::Pair>, (String, String)> {
    let mut found = Vec::new();
    for pair in pairs::pairs(request) {
        let names = declared.names();
        if names.contains(&pair.name.as_str()) {
            found.push(pair);
        } else if let Some(near) = did_you_mean(&pair.name, names) {
            return Err((pair.name, near.to_owned()));
        }
    }
    Ok(found)
}

impl Stated<'_> {
    /// Names of the parameters that only a model may find in the request, in their order.
    pub fn questions(&self) -> Vec<String> {
        let facts = parameters::facts(self.declared, &self.given);
        let names = self.reading(&facts).questions().into_iter().map(|question| question.name);
        names.collect()
    }

    /// Extracts only with code, without a model.
    pub fn by_code(&self) -> Extracted {
        let facts = parameters::facts(self.declared, &self.given);
        self.result(&self.reading(&facts), None, &[])
    }

    /// Extracts the parameters; `models` are asked for those that code cannot find. Without `models`, they are left
    /// open.
    ///
    /// # Errors
    /// The model could not be asked.
    pub async fn extract(&self, models: Option<&Arc<dyn ModelPort>>) -> Result<Extracted, Failure> {
        let (questions, mut found) = {
            let facts = parameters::facts(self.declared, &self.given);
            let reading = self.reading(&facts);
            (reading.questions(), self.result(&reading, None, &[]))
        };
        let Some(models) = models.filter(|_| !questions.is_empty()) else { return Ok(found) };
        let taken: Vec<&str> = found.sources.iter().map(|source| source.name.as_str()).collect();
        let Some(schema) = self.wanted(&taken, &questions) else { return Ok(found) };
        let reply = ask::ask(models, prompt::for_parameters(self.request, &self.about.name, &schema)).await;
        let undelivered = match reply.value {
            Ok(value) => {
                let members = members(&value).ok_or_else(|| {
                    in_routing(Failure::new(FailureKind::Internal, "the extracted parameters are not a JSON object"))
                })?;
                found = self.believed(&members);
                None
            }
            // Without a usable answer, required parameters are missing and are reported as such.
            Err(failure) if failure.kind == FailureKind::ValidationExhausted => Some(failure.message),
            Err(failure) => return Err(in_routing(failure)),
        };
        Ok(Extracted { usage: reply.usage, calls: reply.calls, undelivered, ..found })
    }

    /// Reads the request again, with the model's values.
    fn believed(&self, members: &IndexMap<String, String>) -> Extracted {
        let facts = parameters::facts(self.declared, &self.given);
        let mut reading = self.reading(&facts);
        let by_code: Vec<String> = reading.taken().map(|(name, _)| name.to_owned()).collect();
        let is_default = |name: &str, value: &Value| {
            let default = self.declared.parameter(name).and_then(|parameter| parameter.default.as_ref());
            default.and_then(|default| default.value().ok()).as_ref() == Some(value)
        };
        let parsed = members.iter().map(|(name, json)| (name, json, serde_json::from_str(json).unwrap_or_default()));
        let values: Vec<_> = parsed
            .filter(|(name, _, value)| *value != Value::Null && !is_default(name, value))
            .map(|(name, json, value)| (name.clone(), parameters::said(&value), json.clone()))
            .collect();
        let refused = reading.believe(&values);
        let made_up =
            values.into_iter().filter(|(name, ..)| refused.contains(name)).map(|(name, _, json)| (name, json));
        self.result(&reading, Some(&by_code), &made_up.collect::<Vec<_>>())
    }

    fn reading<'f>(&'f self, facts: &'f [parameters::Facts<'f>]) -> Reading<'f> {
        let about =
            About { name: &self.about.name, description: &self.about.description, triggers: &self.about.triggers };
        let parameters = facts.iter().map(parameters::Facts::parameter).collect();
        Reading::new(self.request, about, parameters, &self.masked)
    }

    /// Turns a reading into its result. If a model took part, `by_code` names the parameters that code found.
    fn result(&self, reading: &Reading<'_>, by_code: Option<&[String]>, made_up: &[(String, String)]) -> Extracted {
        let sources: Vec<Source> = reading
            .taken()
            .map(|(name, taken)| Source {
                name: name.to_owned(),
                value: taken.json.clone(),
                from: match by_code.is_none_or(|by_code| by_code.iter().any(|known| known == name)) {
                    true => From::Request,
                    false => From::Model,
                },
                span: Some(taken.span.clone()).filter(|span| !span.is_empty()),
                text: Some(self.request[taken.span.clone()].to_owned()).filter(|text| !text.is_empty()),
            })
            .collect();
        let members: Vec<String> =
            sources.iter().map(|source| format!("{}:{}", Value::from(source.name.as_str()), source.value)).collect();
        let default = |name: &str| self.declared.parameter(name)?.default.as_ref()?.text().ok().map(|t| t.to_string());
        let unclear = reading.unclear().into_iter().map(|unclear| Unclear {
            default: default(&unclear.name),
            texts: unclear.spans.iter().map(|span| self.request[span.clone()].to_owned()).collect(),
            example: unclear.example.map(|json| serde_json::from_str::<String>(&json).unwrap_or(json)),
            name: unclear.name,
        });
        Extracted {
            input: format!("{{{}}}", members.join(",")),
            unclear: unclear.collect(),
            made_up: made_up.to_vec(),
            sources,
            ..Extracted::default()
        }
    }

    /// Schema of the parameters that a model may answer with: all that were not given, including those that code has
    /// found, whose value stays. `None` if code has found them all. If the request has several numbers, the schema
    /// allows only those.
    fn wanted(&self, taken: &[&str], questions: &[Question]) -> Option<Value> {
        let mut schema = self.declared.schema();
        let object = schema.as_object_mut()?;
        object.insert("required".to_owned(), Value::Array(Vec::new()));
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
        let properties = object.get_mut("properties")?.as_object_mut()?;
        properties.retain(|name, _| !self.given.contains(&name.as_str()));
        let has_open = properties.keys().any(|name| !taken.contains(&name.as_str()));
        for (name, schema) in properties.iter_mut() {
            let choices = questions.iter().find(|question| question.name == *name).map(|q| &q.choices[..]);
            let numbers: Option<Vec<Value>> =
                choices.map(|all| all.iter().filter_map(|json| serde_json::from_str(json).ok()).collect());
            let numbers = numbers.filter(|all| all.len() > 1 && all.iter().all(Value::is_number));
            if let (Some(numbers), Some(schema)) = (numbers, schema.as_object_mut()) {
                schema.remove("default");
                schema.insert("enum".to_owned(), Value::Array(numbers));
            }
        }
        has_open.then_some(schema)
    }
}

/// Members of an object in order, each value as its original JSON text.
fn members(object: &Json) -> Option<IndexMap<String, String>> {
    let text = object.text().ok()?;
    let members: IndexMap<String, &RawValue> = serde_json::from_str(&text).ok()?;
    Some(members.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect())
}
