//! Output schemas of a package: an additional check, never a condition (C-1.16).

use std::collections::BTreeMap;

use etude_core::schema::Schema;
use etude_spec::Diagnostic;
use etude_spec::application::findings;
use serde_json::Value;

use super::Package;

/// Maximum size of a schema, in bytes.
const MAX_COUNT: u64 = 1 << 20;

/// The schema `schemas/output/<command>.schema.json`; `None` if it is missing or invalid.
pub(super) fn of(package: &Package, command: &str) -> Option<Schema> {
    let name = name(command);
    let file = package.root.join(&name);
    let text = etude_files::regular::read_text(&file, MAX_COUNT).ok()?;
    let document: Value = serde_json::from_str(&text).ok()?;
    // An invalid schema is a file for another purpose.
    Schema::compile(name, document, BTreeMap::new()).ok()
}

/// The finding about an output that does not match its schema.
pub(super) fn mismatch(package: &Package, command: &str, fault: &str, is_strict: bool) -> Diagnostic {
    findings::schema_mismatch(&package.file(), &name(command), fault, is_strict)
}

fn name(command: &str) -> String {
    format!("schemas/output/{}.schema.json", command.replace(' ', "."))
}
