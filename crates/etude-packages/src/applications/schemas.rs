//! The schemas that a package has for its answers: a second look, never a condition (C-1.16).

use std::collections::BTreeMap;

use etude_core::schema::Schema;
use etude_spec::Diagnostic;
use etude_spec::application::findings;
use serde_json::Value;

use super::Package;

/// Most bytes of a schema.
const MAX_COUNT: u64 = 1 << 20;

/// `schemas/output/<command>.schema.json`, if it is a schema.
pub(super) fn of(package: &Package, command: &str) -> Option<Schema> {
    let name = name(command);
    let file = package.root.join(&name);
    let text = etude_files::regular::read_text(&file, MAX_COUNT).ok()?;
    let document: Value = serde_json::from_str(&text).ok()?;
    // What is no schema is somebody else's file.
    Schema::compile(name, document, BTreeMap::new()).ok()
}

/// What to say about an answer that does not follow it.
pub(super) fn mismatch(package: &Package, command: &str, fault: &str, is_strict: bool) -> Diagnostic {
    findings::schema_mismatch(&package.file(), &name(command), fault, is_strict)
}

fn name(command: &str) -> String {
    format!("schemas/output/{}.schema.json", command.replace(' ', "."))
}
