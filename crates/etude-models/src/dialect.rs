//! From any JSON Schema to what a provider's structured output takes, and back.
//!
//! A provider enforces a subset of JSON Schema and refuses the rest. [`prepare`] rewrites a schema into that subset
//! without ever excluding an answer that the schema asks for: what cannot be said is left out, and then the whole
//! schema goes into the instructions too. The caller validates the answer against the schema as written.

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

/// The subset of JSON Schema that a provider takes.
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

/// The schema as a provider gets it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProviderSchema {
    /// The answer's name.
    pub(crate) name: String,
    /// The rewritten schema.
    pub(crate) schema: Value,
    /// Whether the provider is to enforce it; otherwise it only guides.
    pub(crate) strict: bool,
}

/// A schema made ready for one provider.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// What goes into the provider's own structured output, if the dialect can say enough.
    pub(crate) provider_schema: Option<ProviderSchema>,
    /// Whether the instructions must hold the schema too.
    pub(crate) reported: bool,
    /// The way back.
    pub(crate) reversal: Reversal,
}

/// Makes `schema` ready for providers of `dialect`.
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

/// `schema` as written, for a server whose grammar takes every schema.
pub(crate) fn verbatim(schema: &ResponseSchema) -> Prepared {
    let provider_schema = ProviderSchema { name: schema.name.clone(), schema: (*schema.schema).clone(), strict: true };
    Prepared { provider_schema: Some(provider_schema), reported: false, reversal: Reversal::default() }
}

/// A schema that the dialect cannot express. OpenAI's API takes it all the same as a guide that is not enforced.
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
