//! JSON Schemas in stage files and machine.yaml.

use std::collections::BTreeMap;
use std::sync::Arc;

use etude_core::schema::Schema;
use serde_json::Value;

use super::mark::{VALIDATION, rank};
use super::stage::StageFileContext;
use crate::check::Findings;
use crate::diagnose::stage_machine as diagnose;
use crate::diagnostic::Diagnostic;
use crate::schema_file::{inline, meta_faults};
use crate::schema_words;
use crate::yaml::{Entries, Node, place_in};

/// Reads the schema of a field of a stage file; `name` is the code word of an invalid one.
pub(super) fn of_field(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    field: &str,
    name: &'static str,
    cx: StageFileContext<'_>,
) -> Option<Arc<Schema>> {
    let node = entries.get(field).filter(|node| node.as_map().is_some() || node.as_bool().is_some())?;
    read(found, node, field, &format!("/{field}"), name, cx)
}

/// Reads the schema in `node`, which messages call `field`.
pub(super) fn read(
    found: &mut Findings<'_>,
    node: &Node<'_>,
    field: &str,
    path: &str,
    name: &'static str,
    cx: StageFileContext<'_>,
) -> Option<Arc<Schema>> {
    let document: Value = match node.to_json() {
        Ok(text) => serde_json::from_str(&text).ok()?,
        Err(at) => {
            let fault = crate::diagnose::values::not_json(found.file, at, &format!("`{field}`"));
            found.push(fault.rule(VALIDATION, name, path, rank::SCHEMAS));
            return None;
        }
    };
    let faults = meta_faults(&document);
    if !faults.is_empty() {
        for fault in faults {
            let at = place_in(node, &fault.pointer);
            let fault = diagnose::not_a_schema(found.file, at, field, &fault.why).maybe_hint(fault.hint);
            found.push(fault.rule(VALIDATION, name, path, rank::SCHEMAS));
        }
        return None;
    }
    let slips = schema_words::in_yaml(found.file, node, &document);
    let (document, faults) = inline(cx.sources, found.file, cx.dir, document);
    let is_broken = faults.iter().any(Diagnostic::is_error);
    let slips = slips.into_iter().chain(faults.iter().filter(|_| !is_broken).cloned());
    found.list.extend(slips.map(|slip| slip.rule(VALIDATION, name, path, rank::SCHEMAS)));
    if is_broken {
        found.list.extend(faults.into_iter().map(|fault| fault.rule(VALIDATION, name, path, rank::SCHEMAS)));
        return None;
    }
    match Schema::compile(field, document, BTreeMap::new()) {
        Ok(schema) => Some(Arc::new(schema)),
        Err(why) => {
            let fault = diagnose::not_a_schema(found.file, node.span, field, &why);
            found.push(fault.rule(VALIDATION, name, path, rank::SCHEMAS));
            None
        }
    }
}
