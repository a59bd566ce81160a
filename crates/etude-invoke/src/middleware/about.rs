//! Middleware that copies a metadata value into `run.tool`, with its schema resolved.

use std::sync::Arc;

use crate::chain::{Middleware, Options, Resume, Step, View};
use etude_spec::cascade::resolve;
use etude_spec::cascade::strategy::SchemaResolution;
use serde_json::{Value, json};

use super::Shared;
use super::validate::no_schema;

/// Copies one value into `run.tool`.
pub(super) struct About {
    pub(super) key: String,
    pub(super) shared: Arc<Shared>,
}

/// Local of the middleware's own context that holds the partly resolved schema.
const SCHEMA: &str = "schema";

impl Middleware for About {
    fn step(&self, view: &mut View<'_>, resume: Resume) -> Step {
        let schema = match resume {
            Resume::Start => match view.target().metadata(&self.key).cloned() {
                Some(value) => value,
                None => return Step::Done(None),
            },
            Resume::Invoked(Ok(given)) => {
                let mut schema = view.own_mut().locals.remove(SCHEMA).unwrap_or_else(|| json!({}));
                if let Some(part) = resolve::first(&schema) {
                    resolve::put(&mut schema, &part, given);
                }
                schema
            }
            Resume::Invoked(Err(throw)) => return Step::Throw(throw),
            _ => return Step::Done(None),
        };
        self.proceed(view, schema)
    }
}

impl About {
    /// Requests the next part of a schema from its tool, or stores the finished value.
    fn proceed(&self, view: &mut View<'_>, value: Value) -> Step {
        let is_schema = matches!(self.key.as_str(), "params" | "returns");
        let part = resolve::first(&value)
            .filter(|_| is_schema && self.shared.strategy.schema_resolution == SchemaResolution::Invoke);
        match part {
            Some(part) => {
                view.own_mut().locals.insert(SCHEMA.to_owned(), value);
                let options = Options { is_exempt: true, ..Options::default() };
                Step::Invoke { reference: part.reference, args: part.args, options }
            }
            None => {
                if let Some(why) = Some(&value).filter(|_| is_schema).and_then(|schema| self.shared.fault(schema)) {
                    return Step::Throw(no_schema(&self.key, &self.key, &view.target().tool.name, &why));
                }
                view.target_mut().about.insert(self.key.clone(), value);
                Step::Done(None)
            }
        }
    }
}
