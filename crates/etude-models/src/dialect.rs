//! Conversion of any JSON Schema into the dialect of a provider's structured output, and of the response back.
//!
//! A provider enforces a subset of JSON Schema and refuses the rest. [`prepare`] rewrites a schema into that subset without
//! ever excluding a response that the schema allows. Keywords that the subset lacks are dropped, and then the whole schema
//! goes into the instructions too. The caller validates the response against the original schema.

mod allof;
mod instructions;
mod keywords;
mod kinds;
mod nullable;
mod references;
mod reverse;
mod rewrite;
mod tools;

use std::sync::Arc;

use etude_core::model::ResponseSchema;
use etude_core::schema::root::{self, is_plain_object};
use serde_json::Value;

use crate::kind::ProviderKind;

pub(crate) use instructions::{annotate, instruct};
pub(crate) use reverse::Reversal;
pub(crate) use tools::with_plain_tools;

/// The subset of JSON Schema that a provider supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's strict form: closed objects, every property required.
    OpenAi,
    /// Anthropic: closed objects, no bounds, no recursion.
    Anthropic,
    /// Gemini's `responseJsonSchema`.
    Gemini,
}

impl Dialect {
    /// The dialect of a kind of provider.
    pub(crate) const fn of(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
            _ => Self::OpenAi,
        }
    }
}

/// The schema that the provider receives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProviderSchema {
    /// Name of the response.
    pub(crate) name: String,
    pub(crate) schema: Value,
    /// True if the provider must enforce the schema; false if it only guides.
    pub(crate) strict: bool,
}

/// A schema prepared for one provider.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// Schema for the provider's own structured output; `None` if the dialect cannot express enough of it.
    pub(crate) provider_schema: Option<ProviderSchema>,
    /// True if the instructions must contain the schema too.
    pub(crate) reported: bool,
    /// Conversion of the response back to the original schema.
    pub(crate) reversal: Reversal,
}

/// Prepares `schema` for providers of `dialect`.
pub(crate) fn prepare(schema: &ResponseSchema, dialect: Dialect) -> Prepared {
    let root_schema = &*schema.schema;
    let Some(rewritten) = rewrite::rewrite(root_schema, dialect) else {
        return loose(schema, dialect);
    };
    let wrapped = dialect != Dialect::Gemini && !is_plain_object(&rewritten.schema);
    let provider_schema = if wrapped { root::wrapped(rewritten.schema) } else { rewritten.schema };
    Prepared {
        provider_schema: Some(ProviderSchema { name: schema.name.clone(), schema: provider_schema, strict: true }),
        reported: rewritten.dropped,
        reversal: Reversal { wrapped, nulled: rewritten.nulled.then(|| Arc::clone(&schema.schema)) },
    }
}

/// Passes `schema` on unchanged, for a server whose grammar supports every schema.
pub(crate) fn verbatim(schema: &ResponseSchema) -> Prepared {
    let provider_schema = ProviderSchema { name: schema.name.clone(), schema: (*schema.schema).clone(), strict: true };
    Prepared { provider_schema: Some(provider_schema), reported: false, reversal: Reversal::default() }
}

/// Prepares a schema that the dialect cannot express. OpenAI's API still accepts it as a guide that is not enforced.
fn loose(schema: &ResponseSchema, dialect: Dialect) -> Prepared {
    let root_schema = &*schema.schema;
    let provider_schema = (dialect == Dialect::OpenAi && is_plain_object(root_schema)).then(|| ProviderSchema {
        name: schema.name.clone(),
        schema: root_schema.clone(),
        strict: false,
    });
    Prepared { provider_schema, reported: true, reversal: Reversal::default() }
}

#[cfg(test)]
mod tests;
